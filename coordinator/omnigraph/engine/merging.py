"""Merging one branch into another: worked out row by row, refused as a whole, or published as one commit.

The source is the commit that was read, whatever its branch does meanwhile. If a table of the target that mattered has
moved when the merge is published, it is worked out anew on what is there now.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice

import pyarrow as pa

from omnigraph.engine.ancestry import CommitGraph
from omnigraph.engine.changes import commit_of
from omnigraph.engine.committer import Committer, Progress
from omnigraph.engine.conflict_rows import conflict_batches, conflict_relations, conflict_table
from omnigraph.engine.evolving import schema_promise
from omnigraph.engine.history import History
from omnigraph.engine.integrity import reads_of
from omnigraph.engine.merge_bases import Bases
from omnigraph.engine.merge_planning import CONFLICTS_SHOWN_MAX, Aside, Plan, Planner
from omnigraph.engine.merge_staging import staged_promises
from omnigraph.engine.owners import this_process
from omnigraph.engine.schema_merging import (
    Aligned,
    Alignment,
    divergence_conflicts,
    divergent_counts,
    lacking_target,
    missing_values,
)
from omnigraph.engine.session import Session
from omnigraph.errors import (
    BranchConflictError,
    ContentionError,
    CorruptGraphError,
    MergeConflictsError,
    VersionConflictError,
)
from omnigraph.ids import CommitId, TableId
from omnigraph.model.catalog import Catalog
from omnigraph.model.lineage import Branch, Commit
from omnigraph.model.merge_promise import Adoption, MergePromise
from omnigraph.model.merges import Conflict, MergeResult, Outcome
from omnigraph.model.schema_promise import SchemaPromise
from omnigraph.model.sidecar import ReadPin, Sidecar, TablePromise
from omnigraph.observing import retried
from omnigraph.rules.merging import policies
from omnigraph.rules.refs import branch_held
from omnigraph.storage.manifest import Reading
from omnigraph.storage.relations import Relation

MERGES_MAX = 20
PAUSE_SECONDS_MAX = 0.5
OPERATION = "merge"


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeRequest:
    """What is to be merged into what, and how, as the caller said it."""

    source: str
    target: str
    policy: str | Mapping[str, str] = "fail"
    dry_run: bool = False
    message: str | None = None
    actor: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Met:
    """A source and a target at one moment, and where they come from."""

    branch: Branch
    source: Commit
    target: Commit
    bases: Bases

    @property
    def base_ids(self) -> tuple[CommitId, ...]:
        """The best common ancestors."""
        return tuple(base.id for base in self.bases.commits)

    @property
    def outcome(self) -> Outcome:
        """What comes of it if nothing is in the way."""
        if self.base_ids == (self.source.id,):
            return Outcome.ALREADY_UP_TO_DATE
        return Outcome.FAST_FORWARD if self.base_ids == (self.target.id,) else Outcome.MERGED

    @property
    def has_one_schema(self) -> bool:
        """Whether both sides and what they come from have the same types."""
        return len({each.schema_hash for each in (self.source, self.target, *self.bases.commits)}) == 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Worked:
    """A merge that was worked out: what it would do, and what it would answer."""

    met: Met
    catalog: Catalog
    plan: Plan
    result: MergeResult
    aligned: Aligned | None = None
    """Both sides under one schema, if they had two."""
    is_comparable: bool = True
    """Whether rows could be compared; if not, the result says why."""


class Merger:
    """Merges commits into branches of one graph."""

    def __init__(self, session: Session, history: History) -> None:
        self._session = session
        self._history = history
        self._alignment = Alignment(session, history)

    def merge(self, request: MergeRequest) -> MergeResult:
        """Merge, or raise every conflict there is; a dry run says what would happen and changes nothing."""
        began = self._session.sources.monotonic()
        source = self._history.named(request.source)
        branch, _ = self._history.head(request.target)
        for attempt in range(1, MERGES_MAX + 1):
            with self._worked(request, source, branch) as worked:
                result = replace(worked.result, attempts=attempt)
                if request.dry_run or result.outcome is Outcome.ALREADY_UP_TO_DATE:
                    return result
                if result.outcome is Outcome.CONFLICTS:
                    raise _refused(result)
                try:
                    commit = self._publish(request, worked, began)
                except (VersionConflictError, BranchConflictError):  # a branch that is gone is met again at once
                    retried("merge")
                    self._session.sources.sleep(PAUSE_SECONDS_MAX * self._session.sources.random())
                    continue
                return replace(result, commit=commit.id, version=commit.version)
        raise ContentionError("nothing was merged: the tables of the target kept changing; try again")

    def conflicts(self, request: MergeRequest) -> Iterator[Conflict]:
        """Yield every row that both sides changed, each in its own way, and some for each constraint that breaks."""
        source = self._history.named(request.source)
        branch, _ = self._history.head(request.target)
        with self._worked(request, source, branch) as worked:
            yield from worked.plan.conflicts(worked.catalog) if worked.is_comparable else worked.result.conflicts

    def conflict_rows(self, request: MergeRequest) -> Iterator[pa.RecordBatch]:
        """Yield the same as rows; what each side has is JSON, because every type has other columns."""
        return conflict_batches(self.conflicts(request))

    @contextmanager
    def conflict_relations(self, request: MergeRequest) -> Iterator[list[Relation]]:
        """Give the same as relations, which are worked out once as long as the block lasts."""
        source = self._history.named(request.source)
        branch, _ = self._history.head(request.target)
        with self._worked(request, source, branch) as worked:
            if worked.is_comparable:
                yield conflict_relations(worked.plan, worked.catalog)
            else:
                yield [conflict_table(worked.result.conflicts)]

    # -- working it out -------------------------------------------------------------------------------

    @contextmanager
    def _worked(self, request: MergeRequest, source: Commit, branch: Branch) -> Iterator[Worked]:
        met = self._meet(source, branch)
        catalog = self._history.catalog(met.source if met.outcome is Outcome.FAST_FORWARD else met.target)
        chosen = policies(request.policy, catalog)
        with Aside() as aside:
            planner = Planner(self._session, catalog, met.target, met.source)
            result = self._blank(request, met)
            plan, aligned = Plan(), None
            divergent: tuple[Conflict, ...] = ()
            if met.outcome is Outcome.FAST_FORWARD:
                plan = planner.forward(aside)
            elif met.outcome is Outcome.MERGED and met.has_one_schema:
                plan = planner.merge(met.bases, chosen, aside)
            elif met.outcome is Outcome.MERGED:
                aligned = self._alignment.align(met.bases.commits, met.target, met.source)
                divergent = aligned.conflicts
                if not divergent:
                    catalog, ours = aligned.catalog, catalog
                    chosen = policies(request.policy, catalog)
                    plan = Planner(self._session, catalog, aligned.target, aligned.source).merge(aligned, chosen, aside)
                    plan.violations += missing_values(aligned, plan)
                    divergent = divergence_conflicts(lacking_target(aligned, plan, ours))
                if divergent:
                    plan = Plan()
                    result = _with_conflicts(result, divergent, divergent_counts(divergent))
            counts = plan.conflict_counts(catalog)
            if counts:
                shown = islice(plan.conflicts(catalog, CONFLICTS_SHOWN_MAX), CONFLICTS_SHOWN_MAX)
                result = _with_conflicts(result, shown, counts)
            result = replace(result, tables=plan.tables)
            yield Worked(
                met=met, catalog=catalog, plan=plan, result=result, aligned=aligned, is_comparable=not divergent
            )

    def _meet(self, source: Commit, branch: Branch) -> Met:
        """Look at the target and at the whole history, at one moment."""

        def look(reading: Reading) -> Met:
            held = branch_held(reading.state, branch.name, branch.incarnation)
            target = commit_of(self._session.manifest, reading, held.head)
            graph = CommitGraph(self._session.manifest, reading)
            bases = graph.bases([source.id], [target.id])
            if not bases:
                raise CorruptGraphError(f"{source.id} and {target.id} have no commit in common", commit=source.id)
            return Met(branch=held, source=source, target=target, bases=Bases(self._session, graph, target, bases))

        return self._history.looking(look)

    def _blank(self, request: MergeRequest, met: Met) -> MergeResult:
        return MergeResult(
            outcome=met.outcome,
            source=request.source,
            target=met.branch.name,
            source_commit=met.source.id,
            target_commit=met.target.id,
            bases=met.base_ids,
            dry_run=request.dry_run,
        )

    # -- publishing -----------------------------------------------------------------------------------

    def _publish(self, request: MergeRequest, worked: Worked, began: float) -> Commit:
        if worked.aligned is not None:
            promises: tuple[TablePromise, ...] = ()
            adopted = self._alignment.adoptions(worked.aligned, worked.plan, worked.met.target)
        else:
            promises = staged_promises(self._session, worked.plan, worked.met.target)
            adopted = tuple(_adoptions(worked.met, worked.plan))
        sidecar = self._sidecar(request, worked, promises, adopted)
        stamp = self._session.stamp(request.actor, began)
        return Committer(self._session, self._history).commit(sidecar, stamp, Progress())

    def _sidecar(
        self,
        request: MergeRequest,
        worked: Worked,
        promises: tuple[TablePromise, ...],
        adopted: tuple[Adoption, ...],
    ) -> Sidecar:
        met = worked.met
        return Sidecar(
            operation=self._session.sources.mint(),
            commit=CommitId(self._session.sources.mint()),
            branch=met.branch.name,
            incarnation=met.branch.incarnation,
            base=met.target.id,
            schema_hash=met.target.schema_hash,
            writer=OPERATION,
            actor=request.actor if request.actor is not None else self._session.actor,
            message=request.message or f"merge {request.source} into {met.branch.name}",
            user_metadata=None,
            txn=None,
            started_at=self._session.sources.now(),
            owner=this_process(),
            tables=promises,
            reads=tuple(
                ReadPin(table=table, key=worked.catalog.by_table_id(table).table, expected=met.target.pins.get(table))
                for table in sorted(_read(worked) - {promise.table for promise in promises})
            ),
            merge=MergePromise(
                source=met.source.id,
                source_at=met.source.created_at,
                schema_hash=worked.catalog.hash,
                adopted=adopted,
            ),
            schema=self._schema(worked),
        )

    def _schema(self, worked: Worked) -> SchemaPromise | None:
        """Return what is promised about the schema of the target, if it gets another one."""
        if worked.aligned is not None:
            return self._alignment.promise(worked.aligned, worked.met.target)
        if worked.catalog.hash == worked.met.target.schema_hash:
            return None
        theirs = self._history.accepted_schema(worked.met.source)
        change = schema_promise(self._history.catalog(worked.met.target), worked.catalog, theirs.source)
        return replace(change, schema=theirs, is_stored=True)


def _read(worked: Worked) -> frozenset[TableId]:
    """Return the tables that decided what is done, beside those it is done to."""
    changes = worked.plan.changes
    if worked.met.outcome is Outcome.FAST_FORWARD:
        # It was not checked, because all of it is as the source has it: no table may be otherwise.
        return frozenset(kind.table_id for kind in worked.catalog.table_types) - set(changes)
    if worked.aligned is not None:
        return frozenset(kind.table_id for kind in worked.catalog.table_types)
    return reads_of(worked.catalog, changes) | frozenset(worked.plan.merged)


def _adoptions(met: Met, plan: Plan) -> Iterator[Adoption]:
    for table, each in plan.adopted.items():
        expected = met.target.pins.get(table)
        yield Adoption(table=table, key=each.kind.table, expected=expected, pin=met.source.pins[table])


def _with_conflicts(
    result: MergeResult, conflicts: Iterable[Conflict], counts: Mapping[str, Mapping[str, int]]
) -> MergeResult:
    return replace(result, outcome=Outcome.CONFLICTS, conflicts=tuple(conflicts), conflict_counts=counts)


def _refused(result: MergeResult) -> MergeConflictsError:
    total = sum(number for counts in result.conflict_counts.values() for number in counts.values())
    listed = "; ".join(
        f"{key or 'schema'} {', '.join(f'{number} {kind}' for kind, number in counts.items())}"
        for key, counts in result.conflict_counts.items()
    )
    first = next(iter(result.conflicts), None)
    shown = "" if first is None else f"; the first: {first.row_id!r}, {first.message}"
    return MergeConflictsError(
        f"nothing was merged: {result.source!r} and {result.target!r} have {total} conflicts: {listed}{shown}. "
        "Choose a policy, or mend one side and merge again",
        source=result.source,
        target=result.target,
        conflict_counts={key: dict(counts) for key, counts in result.conflict_counts.items()},
        conflicts=result.conflicts,
    )
