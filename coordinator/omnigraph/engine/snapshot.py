"""One commit, read: every table as it was, whatever happens meanwhile."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.parts import Verb, WorkOrder
from omnigraph.engine.shares import Share, balanced, enough_for, part_read, rows_at_once, shares_wanted
from omnigraph.errors import InvalidOptionError
from omnigraph.model.catalog import Catalog
from omnigraph.model.lineage import Commit
from omnigraph.model.schema import TableType, did_you_mean
from omnigraph.model.tables import TableKey
from omnigraph.report.notebook import snapshot_card
from omnigraph.rules.arrow_schema import arrow_schema, is_blob
from omnigraph.storage.lance_door import Predicate, Scan, Tables
from omnigraph.storage.lance_written import LIMITS, WriteLimits
from omnigraph.storage.layout import table_location
from omnigraph.storage.roots import GraphRoot
from omnigraph.storage.staging import Ticket

COLUMNS_SHOWN_MAX = 20
BLOB_ROWS_MAX = 64  # blobs may be large, and a batch of them is read whole


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
        kind = self._kind(type)
        schema = arrow_schema(kind)
        wanted = tuple(schema.names if columns is None else columns)
        _refuse_unknown_columns(kind, schema, wanted)
        if where is not None:
            self._tables.scan_empty(schema, Scan(where=where)).read_all()  # a mistake is told here, not by a task
        pin = self.commit.pins.get(kind.table_id)
        if pin is None:
            return ()
        fragments = self._tables.fragments(self._uri(kind), pin.lance_version)
        chosen = enough_for(fragments, limit if where is None else None)
        has_blobs = any(is_blob(schema.field(name)) for name in wanted)
        part = part_read(len(wanted), len(schema), is_filtered=where is not None)
        return tuple(
            Share(
                uri=self._uri(kind),
                version=pin.lance_version,
                fragments=group,
                columns=wanted,
                options=self._root.options,
                where=where,
                limit=limit,
                batch_rows=BLOB_ROWS_MAX if has_blobs else rows_at_once(chosen),
            )
            for group in balanced(chosen, shares_wanted(chosen, parallelism, part))
        )

    def order(self, type: str, verb: Verb, *, limits: WriteLimits = LIMITS, is_checked: bool = True) -> WorkOrder:
        """Return what tasks elsewhere need to stage rows against this snapshot; a transaction takes what they make."""
        kind = self._kind(type)
        pin = self.commit.pins.get(kind.table_id)
        version = None if pin is None else pin.lance_version
        ticket = Ticket(uri=self._uri(kind), base_version=version, limits=limits)
        return WorkOrder(verb=verb, kind=kind, ticket=ticket, options=self._root.options, is_checked=is_checked)

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
        _refuse_unknown_columns(kind, schema, request.columns or ())
        pin = self.commit.pins.get(kind.table_id)
        if request.columns is None:
            request = replace(request, columns=schema.names)  # files may have them in another order
        if pin is None:
            return self._tables.scan_empty(schema, request)
        return self._tables.scan(self._uri(kind), pin.lance_version, request)

    def _uri(self, kind: TableType) -> str:
        return self._root.uri(table_location(kind.table.kind, kind.table_id))


def _refuse_unknown_columns(kind: TableType, schema: pa.Schema, columns: Sequence[str]) -> None:
    for name in columns:
        if name not in schema.names:
            known = ", ".join(schema.names[:COLUMNS_SHOWN_MAX]) + (
                ", …" if len(schema.names) > COLUMNS_SHOWN_MAX else ""
            )
            hint = did_you_mean(name, schema.names)
            raise InvalidOptionError(
                f"{kind.table} has no column {name[:100]!r}; there are {known}" + (f"; {hint}" if hint else "")
            )
    if len(set(columns)) != len(columns):
        raise InvalidOptionError(f"a column of {kind.table} is asked for twice")
