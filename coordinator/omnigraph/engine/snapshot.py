"""One commit, read: every table as it was, whatever happens meanwhile."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.parts import Verb, WorkOrder
from omnigraph.engine.shares import Share
from omnigraph.engine.table_at import TableAt, refuse_unknown_columns
from omnigraph.errors import InvalidOptionError
from omnigraph.model.catalog import Catalog
from omnigraph.model.lineage import Commit
from omnigraph.model.schema import TableType
from omnigraph.model.tables import TableKey
from omnigraph.report.notebook import snapshot_card
from omnigraph.rules.arrow_schema import arrow_schema
from omnigraph.storage.lance_door import Predicate, Scan, Tables
from omnigraph.storage.lance_written import LIMITS, WriteLimits
from omnigraph.storage.layout import table_location
from omnigraph.storage.roots import GraphRoot
from omnigraph.storage.staging import Ticket


class Snapshot:
    """The immutable graph of one commit."""

    def __init__(self, commit: Commit, catalog: Callable[[], Catalog], tables: Tables, root: GraphRoot) -> None:
        self.commit = commit
        self._catalog = catalog
        self._tables = tables
        self._root = root

    def __repr__(self) -> str:
        return f"<Snapshot {self.commit.branch}@{self.commit.version} {self.commit.id}>"

    @property
    def version(self) -> int:
        """The commit's number along its branch."""
        return self.commit.version

    @property
    def catalog(self) -> Catalog:
        """The types this snapshot has."""
        return self._catalog()

    @property
    def tables(self) -> tuple[TableKey, ...]:
        """The keys of all tables, empty ones included."""
        return self.catalog.tables

    def count(self, type: str, where: str | None = None) -> int:
        """Count rows of a type; without a filter no data is read."""
        kind = self._kind(type)
        pin = self.commit.pins.get(kind.table_id)
        if where is None:
            return 0 if pin is None else pin.rows
        if pin is None:
            return self._tables.scan_empty(arrow_schema(kind), Scan(where=where)).read_all().num_rows
        return self._tables.count(self._uri(kind), pin.lance_version, where)

    def scan(
        self, type: str, *, columns: Sequence[str] | None = None, where: str | None = None, limit: int | None = None
    ) -> pa.RecordBatchReader:
        """Stream rows of a type in batches."""
        if limit is not None and limit < 0:
            raise InvalidOptionError(f"limit is {limit}; it may not be negative")
        return self._scan(self._kind(type), Scan(columns=columns, where=where, limit=limit))

    def read(
        self, type: str, *, columns: Sequence[str] | None = None, where: str | None = None, limit: int | None = None
    ) -> pa.Table:
        """Read rows of a type."""
        return self.scan(type, columns=columns, where=where, limit=limit).read_all()

    def shares(
        self,
        type: str,
        *,
        columns: Sequence[str] | None = None,
        where: Predicate | None = None,
        limit: int | None = None,
        parallelism: int = 1,
    ) -> tuple[Share, ...]:
        """Cut a read into shares of about equal size that other processes can read; an empty table has none."""
        at = self.table_at(type)
        return at.shares(columns=columns, where=where, limit=limit, parallelism=parallelism)

    def table_at(self, type: str) -> TableAt:
        """Return what has to be known to read a type of this snapshot elsewhere."""
        kind = self._kind(type)
        pin = self.commit.pins.get(kind.table_id)
        version = None if pin is None else pin.lance_version
        return TableAt(kind=kind, uri=self._uri(kind), version=version, options=self._root.options)

    def order(self, type: str, verb: Verb, *, limits: WriteLimits = LIMITS, is_checked: bool = True) -> WorkOrder:
        """Return what tasks elsewhere need to stage rows against this snapshot; a transaction takes what they make."""
        at = self.table_at(type)
        ticket = Ticket(uri=at.uri, base_version=at.version, limits=limits)
        return WorkOrder(verb=verb, kind=at.kind, ticket=ticket, options=at.options, is_checked=is_checked)

    def entity(self, type: str, id: str) -> dict[str, Any] | None:
        """Return one node or edge by its id, or None; no other table is touched."""
        # An expression, not text: an id is never spliced into a predicate.
        found = self._scan(self._kind(type), Scan(where=pc.field("id") == pc.scalar(id), limit=1)).read_all()
        return dict(found.to_pylist()[0]) if found.num_rows else None

    def to_dict(self) -> dict[str, Any]:
        """Return the commit and the size of every table."""
        return {**self.commit.to_dict(), "tables": {str(key): rows for key, rows in self._sizes()}}

    def _repr_html_(self) -> str:
        return snapshot_card(self.commit, [(str(key), rows) for key, rows in self._sizes()])

    def _sizes(self) -> Iterator[tuple[TableKey, int]]:
        for key in self.tables:
            yield key, self.count(key.name)

    def _kind(self, name: str) -> TableType:
        return self.catalog.table_type(name)

    def _scan(self, kind: TableType, request: Scan) -> pa.RecordBatchReader:
        schema = arrow_schema(kind)
        refuse_unknown_columns(kind, schema, request.columns or ())
        pin = self.commit.pins.get(kind.table_id)
        if request.columns is None:
            request = replace(request, columns=schema.names)  # files may have them in another order
        if pin is None:
            return self._tables.scan_empty(schema, request)
        return self._tables.scan(self._uri(kind), pin.lance_version, request)

    def _uri(self, kind: TableType) -> str:
        return self._root.uri(table_location(kind.table.kind, kind.table_id))
