"""A write over any number of tables that becomes one commit, or nothing.

Rows are staged as they are given: files that nothing refers to. When the block ends, each touched
table is sealed as a detached version built on exactly the pinned one, and one publish makes all of
them visible. Whatever fails before that leaves only files nobody sees.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from omnigraph.engine.changes import AddCommit
from omnigraph.engine.history import History
from omnigraph.engine.session import Session
from omnigraph.errors import ContentionError, InvalidDataError, TransactionStateError, VersionConflictError
from omnigraph.ids import CommitId, TableId
from omnigraph.model.catalog import Catalog
from omnigraph.model.lineage import Commit
from omnigraph.model.receipt import Receipt, TableReceipt
from omnigraph.model.schema import TableType
from omnigraph.model.tables import Pin
from omnigraph.rules.arrow_schema import arrow_schema
from omnigraph.rules.conform import Rows, conform
from omnigraph.rules.identity import repeated
from omnigraph.rules.refs import Draft
from omnigraph.rules.values import Column
from omnigraph.rules.who import check_actor
from omnigraph.storage.layout import table_location

SEALS_MAX = 50
SAMPLE_MAX = 5


@dataclass(slots=True, kw_only=True)
class _Staged:
    """What has been staged for one table so far."""

    kind: TableType
    uri: str
    fragments: list[str] = field(default_factory=list)
    ids: list[Column] = field(default_factory=list)

    @property
    def all_ids(self) -> Column:
        return pa.concat_arrays(self.ids)


class Transaction:
    """A context manager: leave the block and everything is published, raise in it and nothing is."""

    def __init__(
        self,
        session: Session,
        history: History,
        catalog: Callable[[Commit], Catalog],
        branch: str,
        message: str | None,
        actor: str | None,
    ) -> None:
        self._session = session
        self._history = history
        self._message = message
        self._actor = check_actor(actor)
        self._branch, self._base = history.head(branch)
        self._catalog = catalog(self._base)
        self._staged: dict[TableId, _Staged] = {}
        self._open = True
        self._receipt: Receipt | None = None

    @property
    def receipt(self) -> Receipt:
        """What was published; there is none before the block has ended well."""
        if self._receipt is None:
            raise TransactionStateError("this transaction has not been published, so it has no receipt")
        return self._receipt

    def append(self, type: str, rows: "Rows | pa.RecordBatchReader | Iterable[Mapping[str, Any]]") -> None:
        """Insert rows; one whose id exists already makes the whole transaction fail. A reader is streamed."""
        self._usable()
        kind = self._catalog.table_type(type)
        if isinstance(rows, pa.RecordBatchReader):
            for batch in rows:
                self._stage(kind, batch)
        else:
            self._stage(kind, rows if isinstance(rows, pa.Table | pa.RecordBatch | Sequence) else list(rows))

    def _stage(self, kind: TableType, rows: Rows) -> None:
        table = conform(kind, rows, self._session.sources.mint)
        if table.num_rows == 0:
            return
        staged = self._staged.get(kind.table_id) or self._begin(kind)
        staged.fragments += self._session.tables.stage(staged.uri, table.to_reader())
        staged.ids.append(table.column("id").combine_chunks())

    def __enter__(self) -> Self:
        self._usable()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open = False
        if error is None:
            self._receipt = self._publish()

    def _usable(self) -> None:
        if not self._open:
            raise TransactionStateError("this transaction has ended; begin another one")

    def _begin(self, kind: TableType) -> _Staged:
        uri = self._session.root.uri(table_location(kind.table.kind, kind.table_id))
        if kind.table_id not in self._base.pins:
            self._session.tables.ensure(uri, arrow_schema(kind))
        self._staged[kind.table_id] = staged = _Staged(kind=kind, uri=uri)
        return staged

    def _publish(self) -> Receipt:
        if not self._staged:
            return Receipt(branch=self._branch.name, commit=None, version=None)
        self._refuse_repeats()
        commit_id = CommitId(self._session.sources.mint())
        base = self._base
        for _ in range(SEALS_MAX):
            self._refuse_existing(base)
            draft = self._draft(commit_id, base)
            change = AddCommit(manifest=self._session.manifest, draft=draft, stamp=self._session.stamp(self._actor))
            try:
                return self._answer(self._session.publisher.publish(change))
            except VersionConflictError:
                # Inserts commute: seal the same files on the table as it is now, after checking it for our ids.
                _, base = self._history.head(self._branch.name, self._branch.incarnation)
        raise ContentionError("nothing was applied: the tables kept changing; try again")

    def _draft(self, commit_id: CommitId, base: Commit) -> Draft:
        pins = {table: self._seal(staged, base.pins.get(table)) for table, staged in self._staged.items()}
        return Draft(
            id=commit_id,
            branch=self._branch.name,
            incarnation=self._branch.incarnation,
            operation="append",
            schema_hash=base.schema_hash,
            base_schema=self._base.schema_hash,
            pins=pins,
            expected={table: base.pins.get(table) for table in pins},
            table_keys={table: str(staged.kind.table) for table, staged in self._staged.items()},
            message=self._message,
            metrics={str(s.kind.table): {"rows_inserted": len(s.all_ids)} for s in self._staged.values()},
        )

    def _seal(self, staged: _Staged, pin: Pin | None) -> Pin:
        sealed = self._session.tables.seal_append(
            staged.uri, pin.lance_version if pin else None, staged.fragments, self._session.sources.mint()
        )
        return Pin(
            table=staged.kind.table_id,
            version=(pin.version if pin else 0) + 1,
            lance_version=sealed.lance_version,
            transaction=sealed.transaction,
            rows=sealed.rows,
        )

    def _refuse_repeats(self) -> None:
        for staged in self._staged.values():
            again = repeated(staged.all_ids)
            if again:
                raise _duplicates(staged.kind, again, "occur more than once in what was given")

    def _refuse_existing(self, base: Commit) -> None:
        for table, staged in self._staged.items():
            pin = base.pins.get(table)
            if pin is not None:
                there = self._session.tables.present(staged.uri, pin.lance_version, staged.all_ids)
                if there:
                    raise _duplicates(staged.kind, there, "exist already")

    def _answer(self, commit: Commit) -> Receipt:
        tables = {str(s.kind.table): TableReceipt(rows_inserted=len(s.all_ids)) for s in self._staged.values()}
        return Receipt(branch=commit.branch, commit=commit.id, version=commit.version, tables=tables)


def _duplicates(kind: TableType, ids: list[str], what: str) -> InvalidDataError:
    sample = ", ".join(repr(i) for i in sorted(ids)[:SAMPLE_MAX]) + (", …" if len(ids) > SAMPLE_MAX else "")
    return InvalidDataError(
        f"nothing was applied: {len(ids)} ids of {kind.table} {what}: {sample}",
        table_key=str(kind.table),
        count=len(ids),
        sample=sorted(ids)[:SAMPLE_MAX],
    )
