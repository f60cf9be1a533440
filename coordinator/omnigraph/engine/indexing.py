"""Building indexes: of ids and of the ends of edges, so that a write looks up what it must know instead of reading it.

Indexes are derived data: one that is lost can be built again, and rows without one are searched. So nothing is
promised before it is built: a build that dies leaves files that nothing refers to, and a publish makes all that was
built visible at once, or nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from omnigraph.engine.changes import AddCommit
from omnigraph.engine.deltas import uri_of
from omnigraph.engine.history import History
from omnigraph.engine.session import Session
from omnigraph.errors import ContentionError, VersionConflictError
from omnigraph.ids import CommitId, TableId
from omnigraph.model.indexes import IndexCoverage, IndexReport
from omnigraph.model.lineage import Branch, Commit
from omnigraph.model.schema import ENDPOINT_COLUMNS, EdgeType, TableType, Unique
from omnigraph.model.tables import Pin
from omnigraph.rules.arrow_schema import arrow_schema
from omnigraph.rules.refs import Draft
from omnigraph.storage.lance_indexing import Coverage, Segment

BUILDS_MAX = 100
OPERATION = "ensure_indices"


@dataclass(frozen=True, slots=True)
class _Built:
    """What was built for one table on one version of it."""

    kind: TableType
    before: tuple[Coverage, ...]
    segments: tuple[Segment, ...]


class Indexing:
    """Brings the indexes of a branch up to date."""

    def __init__(self, session: Session, history: History, actor: str | None) -> None:
        self._session = session
        self._history = history
        self._actor = actor

    def ensure(self, branch: str, types: Sequence[str] | None) -> IndexReport:
        """Build what is missing, for some types or for all, and make it visible in one commit."""
        commit_id = CommitId(self._session.sources.mint())
        built: dict[TableId, _Built] = {}
        for _ in range(BUILDS_MAX):
            held, head = self._history.head(branch)
            catalog = self._history.catalog(head)
            kinds = catalog.table_types if types is None else [catalog.table_type(name) for name in types]
            born = [kind for kind in kinds if kind.table_id in head.pins]
            try:
                return self._ensure(held, head, born, built, commit_id)
            except VersionConflictError:
                continue  # a table was written to meanwhile; what was built is kept, and what came is added to it
        raise ContentionError("no index was added: the tables kept changing; try again")

    def _ensure(
        self, held: Branch, head: Commit, kinds: Sequence[TableType], built: dict[TableId, _Built], commit: CommitId
    ) -> IndexReport:
        pins: dict[TableId, Pin] = {}
        for kind in kinds:
            pin = self._sealed(kind, head.pins[kind.table_id], built)
            if pin is not None:
                pins[kind.table_id] = pin
        landed = self._publish(held, head, pins, kinds, commit) if pins else None
        reports = {str(kind.table): _report(built[kind.table_id]) for kind in kinds}
        return IndexReport(
            branch=held.name,
            commit=None if landed is None else landed.id,
            version=None if landed is None else landed.version,
            tables=reports,
        )

    def _sealed(self, kind: TableType, pin: Pin, built: dict[TableId, _Built]) -> Pin | None:
        """Build what a table lacks and was not built yet; return its new pin, or None if it lacks nothing."""
        indexes, uri = self._session.indexes, uri_of(self._session, kind)
        gaps = indexes.coverage(uri, pin.lance_version, indexed_columns(kind))
        kept = _still_fitting(built.get(kind.table_id), gaps)
        segments = list(kept)
        for gap in gaps:
            done = frozenset(number for segment in kept if segment.column == gap.column for number in segment.fragments)
            rest = gap.missing - done
            if rest:
                segments.append(indexes.build(uri, pin.lance_version, Coverage(gap.column, gap.rows, 0, rest)))
        built[kind.table_id] = _Built(kind, gaps, tuple(segments))
        if not segments:
            return None
        sealed = indexes.seal(uri, pin.lance_version, segments, self._session.sources.mint())
        if sealed is None:
            raise VersionConflictError(f"{kind.table} was rewritten while it was indexed", table_key=str(kind.table))
        return Pin(
            table=pin.table,
            version=pin.version + 1,
            lance_version=sealed.lance_version,
            transaction=sealed.transaction,
            rows=sealed.rows,
        )

    def _publish(
        self, held: Branch, head: Commit, pins: Mapping[TableId, Pin], kinds: Sequence[TableType], commit: CommitId
    ) -> Commit:
        keys = {kind.table_id: str(kind.table) for kind in kinds if kind.table_id in pins}
        draft = Draft(
            id=commit,
            branch=held.name,
            incarnation=held.incarnation,
            operation=OPERATION,
            schema_hash=head.schema_hash,
            base_schema=head.schema_hash,
            pins=pins,
            expected={table: head.pins[table] for table in pins},
            table_keys=keys,
        )
        stamp = self._session.stamp(self._actor)
        return self._session.publisher.publish(AddCommit(manifest=self._session.manifest, draft=draft, stamp=stamp))


def indexed_columns(kind: TableType) -> tuple[str, ...]:
    """Return the columns whose values writes look for: ids, ends of edges, and the first one of what must be unique."""
    columns = ["id", *(ENDPOINT_COLUMNS if isinstance(kind, EdgeType) else ())]
    schema = arrow_schema(kind)
    uniques = [each.columns[0] for each in kind.constraints if isinstance(each, Unique)]
    return tuple(dict.fromkeys(columns + [name for name in uniques if pa.types.is_string(schema.field(name).type)]))


def _still_fitting(built: _Built | None, gaps: Sequence[Coverage]) -> list[Segment]:
    """Return the segments that were built before and still are what is missing."""
    if built is None:
        return []
    missing = {gap.column: gap.missing for gap in gaps}
    return [segment for segment in built.segments if segment.fragments <= missing[segment.column]]


def _report(built: _Built) -> dict[str, IndexCoverage]:
    added = {segment.column for segment in built.segments}
    return {
        gap.column: IndexCoverage(
            rows=gap.rows,
            rows_covered=gap.rows if gap.column in added else gap.rows_covered,
            rows_added=gap.rows - gap.rows_covered if gap.column in added else 0,
        )
        for gap in built.before
    }
