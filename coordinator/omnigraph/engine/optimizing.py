"""Optimize: small fragments become few large ones, indexes cover them, and plain readers see what `main` is.

No row changes, so nothing is promised: one that is killed leaves files that nothing refers to, and a publish makes
all that was sealed visible at once, or nothing. If a table was written to meanwhile, what was rewritten is sealed
again on what it is now, as far as it still fits.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from omnigraph.engine.announcing import Announcement
from omnigraph.engine.deltas import uri_of
from omnigraph.engine.history import History
from omnigraph.engine.index_building import built
from omnigraph.engine.indexing import still_good
from omnigraph.engine.same_rows import next_pin, publish_same_rows
from omnigraph.engine.session import Session
from omnigraph.engine.spread_work import each_done
from omnigraph.engine.upkeep import at_once
from omnigraph.errors import ContentionError, OmnigraphError, VersionConflictError
from omnigraph.failpoints import MaintenancePoint, reach
from omnigraph.ids import CommitId, TableId
from omnigraph.model.cleanups import Trouble
from omnigraph.model.lineage import MAIN, Branch, Commit
from omnigraph.model.optimizing import OptimizedTable, OptimizeReport
from omnigraph.model.schema import EdgeType, TableType
from omnigraph.model.tables import Pin
from omnigraph.observing import retried
from omnigraph.rules.indexes import grouped, wanted_indexes
from omnigraph.storage.lance_clustering import Cluster
from omnigraph.storage.lance_compacting import SHOWS, Compacting, Rewrite, Rewritten
from omnigraph.storage.lance_door import Sealed
from omnigraph.storage.lance_files import TableFiles
from omnigraph.storage.lance_index_building import Build, Segment
from omnigraph.storage.lance_indexing import Coverage

SEALS_MAX = 100
OPERATION = "optimize"
CLUSTERED_BY = ("src", "dst", "id")
REWRITING = "omnigraph: compacting"


@dataclass(slots=True)
class _Work:
    """What was done for one table so far."""

    kind: TableType
    uri: str
    rewritten: list[Rewritten] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)
    indexes: tuple[Coverage, ...] = ()
    rows: Mapping[int, int] = field(default_factory=dict)
    sealed: Sealed | None = None
    fragments_before: int = 0
    fragments_after: int = 0

    @property
    def metrics(self) -> dict[str, int]:
        """What the commit says about it."""
        return {
            "files_removed": sum(len(one.old) for one in self.rewritten),
            "files_added": sum(len(one.new) for one in self.rewritten),
            "bytes_added": sum(one.bytes for one in self.rewritten),
        }

    @property
    def stats(self) -> OptimizedTable:
        """What is told of it."""
        return OptimizedTable(
            fragments_before=self.fragments_before,
            fragments_after=self.fragments_after,
            bytes_written=sum(one.bytes for one in self.rewritten),
            indexed=tuple(dict.fromkeys(segment.wanted.column for segment in self.segments)),
        )


class Optimizing:
    """Compacts the tables of a branch."""

    def __init__(self, session: Session, history: History, actor: str | None) -> None:
        self._session = session
        self._history = history
        self._actor = actor
        self._compacting = Compacting(session.root.options)
        self._files = TableFiles(session.root.options)
        self._troubles: dict[str, Trouble] = {}
        self._is_clustered = False
        self._began = session.sources.monotonic()

    def optimize(
        self, branch: str, types: Sequence[str] | None, rows: int, *, is_clustered: bool = False
    ) -> OptimizeReport:
        """Compact what there is to compact, for some types or for all, and make it visible in one commit."""
        self._is_clustered = is_clustered
        self._refuse_pending()
        held, base = self._history.head(branch)
        announcement = Announcement(self._session, base.id)
        works: dict[TableId, _Work] = {}
        try:
            landed = self._landed(branch, types, rows, works, announcement)
        finally:
            announcement.end()
        shown = self._show() if branch == MAIN else ()
        return OptimizeReport(
            branch=held.name,
            commit=None if landed is None else landed.id,
            version=None if landed is None else landed.version,
            tables={str(work.kind.table): work.stats for work in works.values() if work.rewritten},
            shown=shown,
            troubles=tuple(self._troubles.values()),
        )

    def _refuse_pending(self) -> None:
        pending = self._session.sidecars.pending()
        if pending:
            raise ContentionError(
                f"nothing was optimized: {len(pending)} writes are promised and not finished, the first of them "
                f"{pending[0].operation}; try again, or run recover if their writers are dead"
            )

    def _landed(
        self,
        branch: str,
        types: Sequence[str] | None,
        rows: int,
        works: dict[TableId, _Work],
        announcement: Announcement,
    ) -> Commit | None:
        """Rewrite, seal and publish; again on what a table is now, if it was written to meanwhile."""
        commit = CommitId(self._session.sources.mint())
        for _ in range(SEALS_MAX):
            held, head = self._history.head(branch)
            catalog = self._history.catalog(head)
            kinds = catalog.table_types if types is None else [catalog.table_type(name) for name in types]
            born = [kind for kind in kinds if kind.table_id in head.pins and str(kind.table) not in self._troubles]
            for kind in born:
                works.setdefault(kind.table_id, _Work(kind, uri_of(self._session, kind)))
            self._rewrite([works[kind.table_id] for kind in born], head, rows, announcement)
            reach(MaintenancePoint.OPTIMIZE_REWRITTEN)
            pins = self._sealed([work for work in works.values() if work.rewritten], head)
            if not pins:
                return None
            reach(MaintenancePoint.OPTIMIZE_SEALED)
            try:
                landed = self._publish(held, head, pins, works, commit)
            except VersionConflictError:
                retried(OPERATION)
                continue
            reach(MaintenancePoint.OPTIMIZE_PUBLISHED)
            return landed
        raise ContentionError("nothing was optimized: the tables kept changing; try again")

    def _rewrite(self, works: Sequence[_Work], head: Commit, rows: int, announcement: Announcement) -> None:
        """Write anew what is small or thinned out, several pieces at once; what was written before and fits is kept."""
        orders: list[Rewrite | Cluster] = []
        by_uri = {work.uri: work for work in works}
        for work in works:
            version = head.pins[work.kind.table_id].lance_version
            with self._noting(work):
                work.rewritten = self._compacting.fitting(work.uri, version, work.rewritten)
                if not work.rewritten:
                    announcement.now(work.kind.table_id)
                    orders += self._planned(work, version, rows)
        for order, answer in each_done(self._session.cluster, orders, REWRITING):
            with self._noting(by_uri[order.uri]):
                by_uri[order.uri].rewritten.append(answer.result())

    def _planned(self, work: _Work, version: int, rows: int) -> Sequence[Rewrite | Cluster]:
        if self._is_clustered and isinstance(work.kind, EdgeType):
            order = Cluster(work.uri, version, self._session.root.options, CLUSTERED_BY, rows)
            if order.is_wanted:
                return [order]
        return self._compacting.plan(work.uri, version, rows)

    def _sealed(self, works: Sequence[_Work], head: Commit) -> dict[TableId, Pin]:
        """Seal what was rewritten on the newest pins, with indexes that cover it."""
        for work in works:
            with self._noting(work):
                self._seal_rows(work, head.pins[work.kind.table_id])
        self._index([work for work in works if work.rewritten])
        pins: dict[TableId, Pin] = {}
        for work in works:
            pin = head.pins[work.kind.table_id]
            with self._noting(work):
                sealed = self._seal_indexes(work) if work.rewritten else None
                if sealed is not None:
                    pins[pin.table] = next_pin(pin, sealed)
        return pins

    def _seal_rows(self, work: _Work, pin: Pin) -> None:
        """Seal what was rewritten, and look which indexes there were that the schema still asks for."""
        indexes, version = self._session.indexes, pin.lance_version
        work.sealed = self._compacting.seal(work.uri, version, work.rewritten, self._session.sources.mint())
        work.fragments_before = self._compacting.fragments(work.uri, version)
        work.fragments_after = self._compacting.fragments(work.uri, work.sealed.lance_version)
        found = indexes.survey(work.uri, version, wanted_indexes(work.kind)).coverage
        work.indexes = tuple(one for one in found if one.segments)
        work.rows = indexes.survey(work.uri, work.sealed.lance_version, ()).rows
        fitting = indexes.fitting(work.uri, work.sealed.lance_version, work.segments)
        if any(one.has_new_ids for one in work.rewritten):
            fitting = []  # what they are for may have got other numbers
        work.segments = still_good(fitting, {one.wanted: frozenset(work.rows) for one in work.indexes})

    def _index(self, works: Sequence[_Work]) -> None:
        """Build the indexes of what was sealed, all of it at once; what was built before and fits is kept."""
        orders: list[Build] = []
        by_uri = {work.uri: work for work in works}
        for work in works:
            version = 0 if work.sealed is None else work.sealed.lance_version
            for coverage in work.indexes if version else ():
                mine = [one.fragments for one in work.segments if one.wanted == coverage.wanted]
                rest = frozenset(work.rows).difference(*mine)
                orders += [
                    self._session.indexes.order(work.uri, version, coverage, group)
                    for group in grouped({number: work.rows[number] for number in rest})
                ]
        for order, answer in built(self._session, orders):
            work = by_uri[order.uri]
            with self._noting(work):
                made = answer.result()
                if isinstance(made, Segment):
                    work.segments.append(made)

    def _seal_indexes(self, work: _Work) -> Sealed | None:
        """Seal the new indexes; the version they are for has none."""
        sealed, mint = work.sealed, self._session.sources.mint
        if sealed is None or not work.segments:
            return sealed
        return self._session.indexes.seal(work.uri, sealed.lance_version, work.segments, (), mint())

    def _publish(
        self, held: Branch, head: Commit, pins: Mapping[TableId, Pin], works: Mapping[TableId, _Work], commit: CommitId
    ) -> Commit:
        keys = {table: str(works[table].kind.table) for table in pins}
        return publish_same_rows(
            self._session,
            held,
            head,
            pins,
            keys,
            commit=commit,
            operation=OPERATION,
            actor=self._actor,
            began=self._began,
            metrics={keys[table]: works[table].metrics for table in pins},
        )

    def _show(self) -> tuple[str, ...]:
        """Let plain readers see every table as `main` has it; return those that they saw otherwise."""
        _, head = self._history.head(MAIN)
        catalog = self._history.catalog(head)
        works = [_Work(kind, uri_of(self._session, kind)) for kind in catalog.table_types if kind.table_id in head.pins]

        def show(work: _Work) -> bool:
            wanted = head.pins[work.kind.table_id].lance_version
            plain = self._files.plain_head(work.uri)
            if self._files.restored(work.uri, plain, SHOWS) == wanted:
                return False
            self._compacting.show(work.uri, wanted, plain)
            return True

        shown = []
        for work, answer in at_once(show, works):
            with self._noting(work):
                if answer.result():
                    shown.append(str(work.kind.table))
        return tuple(shown)

    @contextmanager
    def _noting(self, work: _Work) -> Iterator[None]:
        """Note what can not be done for one table, and go on with the others."""
        try:
            yield
        except OmnigraphError as problem:
            work.rewritten, work.sealed = [], None
            self._troubles[str(work.kind.table)] = Trouble(table=str(work.kind.table), reason=problem.message)
