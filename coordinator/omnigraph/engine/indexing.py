"""Building indexes: of ids, of the ends of edges, and of whatever the schema says is key, unique or index.

Indexes are derived data: one that is lost can be built again, and rows without one are searched. So nothing is
promised before it is built: a build that dies leaves files that nothing refers to, and a publish makes all that was
built visible at once, or nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from omnigraph.engine.announcing import Announcement
from omnigraph.engine.deltas import uri_of
from omnigraph.engine.history import History
from omnigraph.engine.index_building import built
from omnigraph.engine.same_rows import next_pin, publish_same_rows
from omnigraph.engine.session import Session
from omnigraph.errors import ContentionError, VersionConflictError
from omnigraph.ids import CommitId, TableId
from omnigraph.model.indexes import EXTENDED_KINDS, IndexCoverage, IndexReport, WantedIndex
from omnigraph.model.lineage import Branch, Commit
from omnigraph.model.schema import TableType
from omnigraph.model.tables import Pin
from omnigraph.observing import retried
from omnigraph.rules.indexes import SEGMENTS_MAX, grouped, labels, wanted_indexes
from omnigraph.storage.lance_index_building import Build, Segment, Untrained
from omnigraph.storage.lance_indexing import Coverage, Survey

BUILDS_MAX: Final = 100
OPERATION: Final = "ensure_indices"


@dataclass(frozen=True, slots=True)
class _Plan:
    """What is to be built of one index: what it lacks, or all of it if it is outdated or in too many pieces."""

    coverage: Coverage
    todo: frozenset[int]
    is_whole: bool

    @classmethod
    def of(cls, coverage: Coverage, rows: Mapping[int, int]) -> "_Plan":
        groups = len(grouped({number: rows[number] for number in coverage.missing}))
        is_much = coverage.segments + groups > SEGMENTS_MAX or coverage.is_outdated
        is_whole = groups > 0 and coverage.segments > 0 and is_much
        return cls(coverage, frozenset(rows) if is_whole else coverage.missing, is_whole)


@dataclass(slots=True)
class _Work:
    """What was built for one table so far, and how it looked when its version was looked at last."""

    kind: TableType
    uri: str
    segments: list[Segment] = field(default_factory=list)
    untrained: list[Untrained] = field(default_factory=list)
    survey: Survey = field(default_factory=lambda: Survey({}, (), {}))
    plans: tuple[_Plan, ...] = ()

    def look(self, survey: Survey, fitting: Sequence[Segment]) -> None:
        """Plan what a version lacks; what was built before is kept as far as it is part of that."""
        self.survey = survey
        self.plans = tuple(_Plan.of(coverage, survey.rows) for coverage in survey.coverage)
        todo = {plan.coverage.wanted: plan.todo for plan in self.plans}
        self.segments = still_good(fitting, todo)
        self.untrained = [one for one in self.untrained if one.fragments == todo.get(one.wanted)]

    @property
    def rests(self) -> dict[Coverage, frozenset[int]]:
        """The fragments that are yet to be indexed."""
        rests = {plan.coverage: plan.todo - self._done(plan.coverage.wanted) for plan in self.plans}
        return {coverage: rest for coverage, rest in rests.items() if rest}

    def give_up(self) -> None:
        """Let an index be as it is that was to be built anew and can not be as a whole."""
        for plan in self.plans:
            if plan.is_whole and self._indexed(plan.coverage.wanted) != plan.todo:
                self.segments = [one for one in self.segments if one.wanted != plan.coverage.wanted]

    @property
    def dropped(self) -> tuple[str, ...]:
        """The names of indexes that go: nobody asks for them, or they are built anew."""
        whole = [plan.coverage.name for plan in self.plans if plan.is_whole and self._indexed(plan.coverage.wanted)]
        return (*self.survey.unwanted, *whole)

    @property
    def report(self) -> dict[str, IndexCoverage]:
        """What is told of the table."""
        names = labels([plan.coverage.wanted for plan in self.plans])
        return {names[plan.coverage.wanted]: self._told(plan) for plan in self.plans}

    def _told(self, plan: _Plan) -> IndexCoverage:
        coverage, rows = plan.coverage, self.survey.rows
        added = sum(rows[number] for number in self._indexed(coverage.wanted) & coverage.missing)
        reasons = [one.reason for one in self.untrained if one.wanted == coverage.wanted]
        return IndexCoverage(
            kind=coverage.wanted.kind,
            rows=coverage.rows,
            rows_covered=coverage.rows_covered + added,
            rows_added=added,
            pending="; ".join(reasons) or None,
        )

    def _indexed(self, wanted: WantedIndex) -> frozenset[int]:
        return frozenset[int]().union(*(one.fragments for one in self.segments if one.wanted == wanted))

    def _done(self, wanted: WantedIndex) -> frozenset[int]:
        few = (one.fragments for one in self.untrained if one.wanted == wanted)
        return self._indexed(wanted).union(*few)


def still_good(segments: Sequence[Segment], todo: Mapping[WantedIndex, frozenset[int]]) -> list[Segment]:
    """Return which of the segments that were built before are part of what is to be built now.

    Where something came since and an index does not know which rows have moved, nothing is.
    """
    there = [one for one in segments if one.fragments <= todo.get(one.wanted, frozenset())]
    done = {wanted: frozenset().union(*(one.fragments for one in there if one.wanted == wanted)) for wanted in todo}
    return [one for one in there if one.wanted.kind in EXTENDED_KINDS or done[one.wanted] == todo[one.wanted]]


class Indexing:
    """Brings the indexes of a branch up to date."""

    def __init__(self, session: Session, history: History, actor: str | None) -> None:
        self._session = session
        self._history = history
        self._actor = actor
        self._works: dict[TableId, _Work] = {}
        self._began = session.sources.monotonic()

    def ensure(self, branch: str, types: Sequence[str] | None) -> IndexReport:
        """Build what is missing, for some types or for all, and make it visible in one commit."""
        commit_id = CommitId(self._session.sources.mint())
        announcement = Announcement(self._session, self._history.head(branch)[1].id)
        try:
            for _ in range(BUILDS_MAX):
                held, head = self._history.head(branch)
                catalog = self._history.catalog(head)
                kinds = catalog.table_types if types is None else [catalog.table_type(name) for name in types]
                born = [kind for kind in kinds if kind.table_id in head.pins]
                try:
                    return self._ensure(held, head, born, commit_id, announcement)
                except VersionConflictError:
                    retried(OPERATION)
                    continue  # a table was written to meanwhile; what was built is kept, and what came is added to it
        finally:
            announcement.end()
        raise ContentionError("no index was added: the tables kept changing; try again")

    def _ensure(
        self,
        held: Branch,
        head: Commit,
        kinds: Sequence[TableType],
        commit: CommitId,
        announcement: Announcement,
    ) -> IndexReport:
        works = [self._planned(kind, head.pins[kind.table_id]) for kind in kinds]
        self._build(works, head, announcement)
        pins: dict[TableId, Pin] = {}
        for work in works:
            pin = self._sealed(work, head.pins[work.kind.table_id])
            if pin is not None:
                pins[pin.table] = pin
        landed = self._publish(held, head, pins, commit) if pins else None
        return IndexReport(
            branch=held.name,
            commit=None if landed is None else landed.id,
            version=None if landed is None else landed.version,
            tables={str(work.kind.table): work.report for work in works},
            dropped={
                str(work.kind.table): tuple(work.survey.unwanted.values()) for work in works if work.survey.unwanted
            },
        )

    def _planned(self, kind: TableType, pin: Pin) -> _Work:
        """Look at what a table has now, and plan what is to be built."""
        work = self._works.setdefault(kind.table_id, _Work(kind, uri_of(self._session, kind)))
        indexes = self._session.indexes
        survey = indexes.survey(work.uri, pin.lance_version, wanted_indexes(kind))
        work.look(survey, indexes.fitting(work.uri, pin.lance_version, work.segments))
        return work

    def _build(self, works: Sequence[_Work], head: Commit, announcement: Announcement) -> None:
        """Build what tables lack and was not built yet, all of it at once."""
        orders: list[Build] = []
        by_uri = {work.uri: work for work in works}
        for work in works:
            for coverage, rest in work.rests.items():
                announcement.now(work.kind.table_id)
                version = head.pins[work.kind.table_id].lance_version
                groups = grouped({number: work.survey.rows[number] for number in rest})
                orders += [self._session.indexes.order(work.uri, version, coverage, group) for group in groups]
        for order, answer in built(self._session, orders):
            made = answer.result()
            if isinstance(made, Segment):
                by_uri[order.uri].segments.append(made)
            else:
                by_uri[order.uri].untrained.append(made)
        for work in works:
            work.give_up()

    def _sealed(self, work: _Work, pin: Pin) -> Pin | None:
        """Return the new pin of a table, or None if it lacks nothing."""
        if not work.segments and not work.dropped:
            return None
        mint = self._session.sources.mint
        sealed = self._session.indexes.seal(work.uri, pin.lance_version, work.segments, work.dropped, mint())
        if sealed is None:
            table = str(work.kind.table)
            raise VersionConflictError(f"{table} was rewritten while it was indexed", table_key=table)
        return next_pin(pin, sealed)

    def _publish(self, held: Branch, head: Commit, pins: Mapping[TableId, Pin], commit: CommitId) -> Commit:
        keys = {table: str(self._works[table].kind.table) for table in pins}
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
        )
