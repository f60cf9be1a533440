"""Changing the schema of a branch: planned, staged, checked, and published as one commit with the data it rewrites.

If rows came before it was published, it is planned anew on what is there now; if another schema came, it is refused.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace

from omnigraph.engine.announcing import Announcement
from omnigraph.engine.committer import Committer, Progress
from omnigraph.engine.history import History
from omnigraph.engine.integrity import refuse
from omnigraph.engine.owners import this_process
from omnigraph.engine.reshaping import reshapes, staged_reshape, trial_pins
from omnigraph.engine.schema_checking import SchemaChecks
from omnigraph.engine.session import Session
from omnigraph.errors import BranchConflictError, ContentionError, SchemaChangeError, VersionConflictError
from omnigraph.ids import CommitId, TableId
from omnigraph.model.catalog import Catalog
from omnigraph.model.lineage import Branch, Commit
from omnigraph.model.manifest import SchemaRow
from omnigraph.model.schema_plan import SchemaPlan, SchemaResult, Step
from omnigraph.model.schema_promise import SchemaPromise
from omnigraph.model.sidecar import ReadPin, Sidecar, TablePromise
from omnigraph.model.tables import Pin
from omnigraph.observing import retried
from omnigraph.rules.refs import refuse_other_schema
from omnigraph.rules.schema_plan import Planned, plan_schema

APPLIES_MAX = 50
PAUSE_SECONDS_MAX = 0.2
OPERATION = "schema"
STEPS_SHOWN_MAX = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyRequest:
    """What schema a branch shall have, and how, as the caller said it."""

    text: str
    branch: str
    allow_data_loss: bool = False
    message: str | None = None
    actor: str | None = None


class Evolution:
    """Changes schemas of one graph."""

    def __init__(self, session: Session, history: History) -> None:
        self._session = session
        self._history = history

    def plan(self, text: str, head: Commit, *, may_lose: bool) -> Planned:
        """Return what it takes to make a text the schema of a commit."""
        rows = {table: pin.rows for table, pin in head.pins.items()}
        return plan_schema(self._history.catalog(head), text, rows, self._session.sources.mint, may_lose=may_lose)

    def apply(self, request: ApplyRequest) -> SchemaResult:
        """Make a text the schema of a branch as one commit, or raise why it can not be."""
        began = self._session.sources.monotonic()
        branch, seen = self._history.head(request.branch)
        for attempt in range(1, APPLIES_MAX + 1):
            held, head = self._history.head(branch.name, branch.incarnation)
            planned = self.plan(request.text, head, may_lose=request.allow_data_loss)
            result = SchemaResult(branch=held.name, plan=planned.plan, attempts=attempt)
            if planned.plan.is_empty:
                return result
            # A text says all that a schema has: on top of another's change it would take that back.
            refuse_other_schema(held.name, seen.schema_hash, head)
            refuse_plan(planned.plan)
            try:
                commit = self._publish(request, planned, held, head, began)
            except (VersionConflictError, BranchConflictError):
                retried("schema")
                self._session.sources.sleep(PAUSE_SECONDS_MAX * self._session.sources.random())
                continue  # a branch that is gone is found out by looking at it again
            return replace(result, commit=commit.id, version=commit.version)
        raise ContentionError("the schema was not changed: the branch kept changing; try again")

    def _publish(self, request: ApplyRequest, planned: Planned, branch: Branch, head: Commit, began: float) -> Commit:
        announcement = Announcement(self._session, head.id)
        try:
            promises = self._checked(planned, head, announcement, is_hard=request.allow_data_loss)
            sidecar = self._sidecar(request, planned, branch, head, promises)
            stamp = self._session.stamp(request.actor, began)
            return Committer(self._session, self._history).commit(sidecar, stamp, Progress())
        finally:
            announcement.end()

    def _checked(
        self, planned: Planned, head: Commit, announcement: Announcement, *, is_hard: bool
    ) -> dict[TableId, TablePromise]:
        """Stage what the tables need, and make sure that their rows are what the new schema asks for."""
        old, new = planned.old, planned.new
        checks = SchemaChecks(self._session, old, new, head.pins, planned.backfills)
        refuse(checks.unfitting())
        promises: dict[TableId, TablePromise] = {}
        for each in reshapes(old, new, planned.backfills, is_hard=is_hard):
            table = each.new.table_id
            if each.writes and table in head.pins:
                announcement.now(table)  # this may take long, and cleanup must not take its files for leftovers
            promises[table] = staged_reshape(self._session, each, head.pins.get(table))
        asked = {table: promise for table, promise in promises.items() if table in checks.reads}
        after: Mapping[TableId, Pin] = {**head.pins, **trial_pins(self._session, asked)}
        refuse(SchemaChecks(self._session, old, new, after).violations())
        return promises

    def _sidecar(
        self,
        request: ApplyRequest,
        planned: Planned,
        branch: Branch,
        head: Commit,
        promises: Mapping[TableId, TablePromise],
    ) -> Sidecar:
        checks = SchemaChecks(self._session, planned.old, planned.new, head.pins)
        kinds = {kind.table_id: kind.table for kind in planned.old.table_types}
        return Sidecar(
            operation=self._session.sources.mint(),
            commit=CommitId(self._session.sources.mint()),
            branch=branch.name,
            incarnation=branch.incarnation,
            base=head.id,
            schema_hash=head.schema_hash,
            writer=OPERATION,
            actor=request.actor if request.actor is not None else self._session.actor,
            message=request.message or "; ".join(map(str, planned.plan.steps[:STEPS_SHOWN_MAX])),
            user_metadata=None,
            txn=None,
            started_at=self._session.sources.now(),
            owner=this_process(),
            tables=tuple(promises.values()),
            reads=tuple(
                ReadPin(table=table, key=kinds[table], expected=head.pins.get(table))
                for table in sorted(checks.reads - set(promises))
                if table in kinds  # a table that begins now is nobody else's
            ),
            schema=schema_promise(planned.old, planned.new, request.text),
        )


def schema_promise(old: Catalog, new: Catalog, text: str) -> SchemaPromise:
    """Return what is promised about a schema that follows another."""
    before = {kind.table_id: kind for kind in old.table_types}
    after = {kind.table_id: kind for kind in new.table_types}
    stored = json.dumps(new.to_json(), ensure_ascii=False)
    return SchemaPromise(
        schema=SchemaRow(hash=new.hash, source=text, catalog=stored),
        added=tuple((table, kind.table) for table, kind in after.items() if table not in before),
        dropped=tuple(table for table in before if table not in after),
    )


def refuse_plan(plan: SchemaPlan) -> None:
    """Raise if a plan has steps that can not be done, or that lose data."""
    if plan.refused:
        raise _refused("the schema was not changed", plan, plan.refused)
    if plan.losing:
        raise _refused("the schema was not changed, because data may be lost", plan, plan.losing)


def _refused(what: str, plan: SchemaPlan, steps: tuple[Step, ...]) -> SchemaChangeError:
    listed = "; ".join(_why(step) for step in steps[:STEPS_SHOWN_MAX])
    more = "" if len(steps) <= STEPS_SHOWN_MAX else f"; and {len(steps) - STEPS_SHOWN_MAX} more"
    return SchemaChangeError(f"{what}: {listed}{more}", plan=plan.to_dict())


def _why(step: Step) -> str:
    if step.problem is None:
        return str(step)
    return f"{step} [{step.problem.code}]: {step.problem.reason}; {step.problem.instead}"
