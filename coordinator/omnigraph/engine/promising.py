"""From what was staged for each table to what is promised for it, the edges of deleted nodes included."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import pyarrow as pa

from omnigraph.engine.sealing import duplicates
from omnigraph.engine.session import Session
from omnigraph.engine.table_work import TableWork, step, work_for
from omnigraph.failpoints import Failpoint
from omnigraph.ids import TableId
from omnigraph.model.catalog import Catalog
from omnigraph.model.schema import ENDPOINT_COLUMNS, NodeType
from omnigraph.model.sidecar import TablePromise
from omnigraph.model.staged import Staged, StagedAppend, StagedDelete, StagedOverwrite, StagedUpsert
from omnigraph.model.tables import Pin
from omnigraph.rules.arrow_schema import arrow_schema
from omnigraph.rules.values import Column
from omnigraph.storage.lance_door import Scan


class Promising:
    """The tables of one transaction, on the pins it began on."""

    def __init__(
        self, session: Session, catalog: Catalog, pins: Mapping[TableId, Pin], tables: dict[TableId, TableWork]
    ) -> None:
        self._session = session
        self._catalog = catalog
        self._pins = pins
        self._tables = tables
        self._is_sorted_out = False

    def promises(self, *, is_sorted_out: bool) -> tuple[TablePromise, ...]:
        """Return a promise for every table that would change; rows that were sorted out need no look at their ids."""
        self._is_sorted_out = is_sorted_out
        if any("delete" in table.verbs for table in self._tables.values()):
            return tuple(self._deletions())
        return tuple(filter(None, (self._written(table) for table in self._tables.values())))

    def _written(self, table: TableWork) -> TablePromise | None:
        """Return what is promised for a table that rows were written for, or None if nothing would change."""
        pin = self._pins.get(table.kind.table_id)
        self._refuse_repeats(table)
        staging = self._session.staging
        inserts = [part for part in table.parts if isinstance(part, StagedAppend)]
        added = staging.joined(inserts) if inserts else None
        is_left = False
        if pin is not None and added is not None and not self._is_sorted_out:
            # A few rows for a table that others write to: whoever seals them must look anyway, and once is enough.
            is_left = staging.is_behind(table.ticket.uri, pin.lance_version, added.rows)
            there = [] if is_left else staging.present(table.ticket.uri, pin.lance_version, added)
            if there:
                raise duplicates(table.key, there, "exist already")
        staged = staging.combined(table.ticket, table.parts) if table.parts else None
        changes_nothing = isinstance(staged, StagedOverwrite) and pin is None and not staged.files
        if staged is None or staged.is_empty or changes_nothing:
            return None
        few = None if added is None else staging.few_ids(table.ticket.uri, added)
        return replace(self._promise(table, staged), is_new_on_expected=not is_left, few_ids=few)

    def _promise(self, table: TableWork, staged: Staged) -> TablePromise:
        return TablePromise(
            table=table.kind.table_id,
            key=table.kind.table,
            expected=self._pins.get(table.kind.table_id),
            transaction=self._session.sources.mint(),
            staged=staged,
            must_be_new="append" in table.verbs,
            is_strict=table.is_strict,
        )

    def _deletions(self) -> Iterator[TablePromise]:
        """Yield what is promised for deletions: nodes first, then edges, those included whose ends go."""
        incident: dict[TableId, dict[str, list[Column]]] = {}
        for kind in self._catalog.table_types:
            among = {end: pa.concat_arrays(ids) for end, ids in incident.get(kind.table_id, {}).items()}
            if kind.table_id not in self._tables and not among:
                continue
            table = work_for(self._session, self._tables, kind, self._pins.get(kind.table_id), "delete")
            deleted = self._deletion(table, among)
            promise = self._with_written(table, deleted)
            if promise is not None:
                yield promise
            if deleted is None or deleted.is_empty:
                continue
            gone = self._session.staging.gone_ids(table.ticket.uri, deleted).chunks
            for edge in self._catalog.edges:
                for end, node in zip(ENDPOINT_COLUMNS, (edge.source, edge.target), strict=True):
                    if node == kind.name and isinstance(kind, NodeType):
                        incident.setdefault(edge.table_id, {}).setdefault(end, []).extend(gone)

    def _with_written(self, table: TableWork, deleted: StagedDelete | None) -> TablePromise | None:
        """Return what is promised for a table that loses rows, and perhaps gets some in the same change."""
        written = self._written(table)
        if deleted is None or deleted.is_empty:
            return written
        if written is None:
            return self._promise(table, deleted)
        assert isinstance(written.staged, StagedAppend | StagedUpsert)  # noqa: S101  an overwrite goes alone
        return replace(written, staged=self._session.staging.mixed(table.ticket, written.staged, deleted))

    def _deletion(self, table: TableWork, among: Mapping[str, Column]) -> StagedDelete | None:
        step(Failpoint.BEFORE_STAGE)
        if table.ticket.base_version is None:
            for predicate in table.predicates:  # nothing can match, but a mistake is a mistake
                self._session.tables.scan_empty(arrow_schema(table.kind), Scan(where=predicate)).read_all()
        where = " OR ".join(f"({predicate})" for predicate in table.predicates) or None
        ids = pa.concat_arrays(table.deleted_ids) if table.deleted_ids else None
        staged = self._session.staging.delete(table.ticket, where, ids, among, table.deleted_rows)
        step(Failpoint.AFTER_STAGE)
        return staged

    def _refuse_repeats(self, table: TableWork) -> None:
        again = self._session.staging.repeated(table.ticket.uri, table.parts, table.repeats.doubtful())
        if again:
            raise duplicates(table.key, again, "occur more than once in what was given")
