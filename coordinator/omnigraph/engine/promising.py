"""From what was staged for each table to what is promised for it, the edges of deleted nodes included."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import pyarrow as pa

from omnigraph.engine.sealing import SAMPLE_MAX, duplicates
from omnigraph.engine.session import Session
from omnigraph.engine.spreading import SpreadTable, gone_ids, staged_ids
from omnigraph.engine.table_work import TableWork, step, work_for
from omnigraph.failpoints import Failpoint
from omnigraph.ids import TableId
from omnigraph.model.catalog import Catalog
from omnigraph.model.schema import ENDPOINT_COLUMNS, NodeType, TableType
from omnigraph.model.sidecar import TablePromise
from omnigraph.model.staged import RowSet, Staged, StagedAppend, StagedDelete, StagedOverwrite, StagedUpsert
from omnigraph.model.tables import Pin
from omnigraph.rules import constraints as rules
from omnigraph.rules.arrow_schema import arrow_schema
from omnigraph.rules.values import Column
from omnigraph.storage.lance_door import Scan
from omnigraph.storage.lance_rows import row_sets
from omnigraph.storage.relations import ClusterEngine, Relation, Spread

REPEATED, EXISTING = "occur more than once in what was given", "exist already"


@dataclass(slots=True)
class Incident:
    """The nodes that go, by the end of an edge that refers to them: their ids, or where to read them."""

    ids: dict[str, list[Column]] = field(default_factory=dict)
    spread: list[tuple[str, Spread]] = field(default_factory=list)


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
            if not is_left:
                self._refuse_existing(table, pin, added)
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
        incident: dict[TableId, Incident] = {}
        for kind in self._catalog.table_types:
            if kind.table_id not in self._tables and kind.table_id not in incident:
                continue
            table = work_for(self._session, self._tables, kind, self._pins.get(kind.table_id), "delete")
            deleted = self._deletion(table, incident.get(kind.table_id, Incident()))
            promise = self._with_written(table, deleted)
            if promise is not None:
                yield promise
            if deleted is not None and not deleted.is_empty and isinstance(kind, NodeType):
                self._note_gone(kind, table, deleted, incident)

    def _note_gone(
        self, node: NodeType, table: TableWork, deleted: StagedDelete, incident: dict[TableId, Incident]
    ) -> None:
        """Note for every edge type which nodes at its ends go."""
        uri = table.ticket.uri
        ends = [
            (incident.setdefault(edge.table_id, Incident()), end)
            for edge in self._catalog.edges
            for end, name in zip(ENDPOINT_COLUMNS, (edge.source, edge.target), strict=True)
            if name == node.name
        ]
        if ends and self._cluster(deleted.deleted) is not None:
            spread = gone_ids(self._session, uri, deleted)
            for edges, end in ends:
                edges.spread.append((end, spread))
        elif ends:
            gone = self._session.staging.gone_ids(uri, deleted).chunks
            for edges, end in ends:
                edges.ids.setdefault(end, []).extend(gone)

    def _with_written(self, table: TableWork, deleted: StagedDelete | None) -> TablePromise | None:
        """Return what is promised for a table that loses rows, and perhaps gets some in the same change."""
        written = self._written(table)
        if deleted is None or deleted.is_empty:
            return written
        if written is None:
            return self._promise(table, deleted)
        assert isinstance(written.staged, StagedAppend | StagedUpsert)  # noqa: S101  an overwrite goes alone
        return replace(written, staged=self._session.staging.mixed(table.ticket, written.staged, deleted))

    def _deletion(self, table: TableWork, incident: Incident) -> StagedDelete | None:
        step(Failpoint.BEFORE_STAGE)
        among = {end: pa.concat_arrays(ids) for end, ids in incident.ids.items()}
        for end, gone in incident.spread:
            table.deleted_rows += self._found_elsewhere(table.kind, end, gone)
        if table.ticket.base_version is None:
            for predicate in table.predicates:  # nothing can match, but a mistake is a mistake
                self._session.tables.scan_empty(arrow_schema(table.kind), Scan(where=predicate)).read_all()
        where = " OR ".join(f"({predicate})" for predicate in table.predicates) or None
        ids = pa.concat_arrays(table.deleted_ids) if table.deleted_ids else None
        staged = self._session.staging.delete(table.ticket, where, ids, among, table.deleted_rows)
        step(Failpoint.AFTER_STAGE)
        return staged

    def _found_elsewhere(self, kind: TableType, end: str, gone: Spread) -> tuple[RowSet, ...]:
        """Return where the edges lie that lead to or from nodes that go."""
        cluster = self._session.cluster
        assert cluster is not None  # noqa: S101  nothing is spread without one
        edges = SpreadTable(self._session, kind, None, self._pins.get(kind.table_id))
        found = cluster.run(rules.EDGES_OF_GONE, {"base": edges.places(end), "gone_nodes": gone})
        places = [np.asarray(batch.column("place"), np.uint64) for batch in found]
        return row_sets(np.concatenate([np.empty(0, np.uint64), *places]))

    def _refuse_repeats(self, table: TableWork) -> None:
        if table.has_no_twins:
            return
        uri, staging = table.ticket.uri, self._session.staging
        cluster = self._cluster(_rows(table.staged_elsewhere))
        if cluster is not None:
            given = staged_ids(self._session, uri, table.parts)
            self._refuse_found(cluster, table, rules.IDS_GIVEN_TWICE, {"new": given}, REPEATED)
            return
        table.repeats.note_all([partial(staging.staged_ids, uri, [part]) for part in table.staged_elsewhere])
        again = staging.repeated(uri, table.parts, table.repeats.doubtful())
        if again:
            raise duplicates(table.key, again, REPEATED)

    def _refuse_existing(self, table: TableWork, pin: Pin, added: StagedAppend) -> None:
        uri = table.ticket.uri
        cluster = self._cluster(added.rows if table.staged_elsewhere else 0)
        if cluster is not None:
            before = SpreadTable(self._session, table.kind, None, pin).before({"id": "id"})
            relations = {"new": staged_ids(self._session, uri, [added]), "base": before}
            self._refuse_found(cluster, table, rules.IDS_TAKEN, relations, EXISTING)
            return
        there = self._session.staging.present(uri, pin.lance_version, added)
        if there:
            raise duplicates(table.key, there, EXISTING)

    def _refuse_found(
        self, cluster: ClusterEngine, table: TableWork, sql: str, relations: Mapping[str, Relation], what: str
    ) -> None:
        count, some = cluster.sampled(sql, relations, most=SAMPLE_MAX)
        if count:
            raise duplicates(table.key, [str(id) for id in some.column("id").to_pylist()], what, count)

    def _cluster(self, rows: int) -> ClusterEngine | None:
        """Return the engine with machines of its own, if there is one and so many rows are worth it."""
        cluster = self._session.cluster
        return cluster if cluster is not None and cluster.takes(rows) else None


def _rows(parts: Iterable[Staged]) -> int:
    return sum(part.rows for part in parts if not isinstance(part, StagedDelete))
