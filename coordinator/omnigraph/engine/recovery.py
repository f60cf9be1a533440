"""Recovery: finish what a dead writer promised, or give it up; either way say so once, then forget it."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, assert_never

from omnigraph.engine.changes import Abandon, Settle
from omnigraph.engine.committer import Committer, Progress
from omnigraph.engine.history import History
from omnigraph.engine.owners import failures, in_hand, process_exists, this_process
from omnigraph.engine.session import Session
from omnigraph.errors import (
    AlreadyAppliedError,
    CommitExpiredError,
    CommitOutcomeUnknownError,
    ConflictError,
    CorruptGraphError,
    InvalidInputError,
    RecoveryRefusedError,
    UnsupportedFormatError,
)
from omnigraph.failpoints import Failpoint, reach
from omnigraph.ids import CommitId
from omnigraph.model.lineage import Commit
from omnigraph.model.sidecar import Sidecar, TablePromise
from omnigraph.observing import logger, observed, recovered
from omnigraph.rules.recovery import Decision, Discard, Finished, LeaveAlone, Observation, RollBack, RollForward, decide
from omnigraph.rules.refs import Stamp, branch_held
from omnigraph.storage.audit import AuditRow
from omnigraph.storage.layout import table_location
from omnigraph.storage.manifest import Reading
from omnigraph.storage.sidecars import Pending

RECOVERY_ACTOR = "omnigraph:recovery"
OWNER_GRACE = timedelta(seconds=60)
ABANDONED_KEPT = timedelta(days=1)
ABANDONED_DROPPED_MIN = 16
HEAL_SECONDS_MIN = 0.25
HEAL_SECONDS_MAX = 2.0
HEAL_SHARE_MAX = 0.02

ROLLED_FORWARD, ROLLED_BACK, DISCARDED = "RolledForward", "RolledBack", "OrphanedBranchDiscarded"

OWNED = Observation(
    landed=False,
    abandoned=False,
    owner_alive=True,
    branch_there=True,
    schema_same=True,
    moved_strict=(),
    missing_files=(),
)

log = logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """What became of one promise."""

    operation: str
    commit: str
    kind: str
    branch: str
    reason: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "operation": self.operation,
            "commit": self.commit,
            "kind": self.kind,
            "branch": self.branch,
            "reason": self.reason,
        }


class Recovery:
    """Looks at every sidecar, oldest first, each against a fresh state."""

    def __init__(self, session: Session, history: History) -> None:
        self._session = session
        self._history = history
        self._committer = Committer(session, history)
        self._rested_at = 0.0
        self._failures_seen = failures()

    def heal(self) -> list[Recovered]:
        """Sweep, unless that was done a moment ago and nothing failed here since: writers in a row need not look each.

        A promise may therefore wait a moment longer for the one who keeps it.
        """
        begun = self._session.sources.monotonic()
        if begun < self._rested_at and failures() == self._failures_seen:
            return []
        self._failures_seen = failures()
        done = self.sweep()
        # Where many write, there is much to look at that is in good hands.
        spent = self._session.sources.monotonic() - begun
        rest = min(HEAL_SECONDS_MAX, max(HEAL_SECONDS_MIN, spent / HEAL_SHARE_MAX))
        self._rested_at = begun + rest
        return done

    def sweep(self, grace: timedelta = OWNER_GRACE) -> list[Recovered]:
        """Settle every promise whose owner is dead or has been silent for ``grace``."""
        with observed("recover", self._session.root) as seen:
            done = self._sweep(grace)
            seen.is_idle = not done
            if done:
                seen.more["settled"] = len(done)
        return done

    def _sweep(self, grace: timedelta) -> list[Recovered]:
        done = []
        promised: set[CommitId] = set()
        for pending in self._session.sidecars.pending():
            ours = in_hand(pending.operation)  # asked before it is read: what we let go of is forgotten by then
            sidecar = self._read(pending)
            if ours and sidecar is not None:
                promised.add(sidecar.commit)
            elif sidecar is not None:
                promised.add(sidecar.commit)
                reach(Failpoint.RECOVERY_BEGUN)
                settled = self._settle(sidecar, pending, grace)
                if settled is not None:
                    done.append(settled)
                    promised.discard(sidecar.commit)
        self._settle_abandoned(promised)
        return done

    def _settle_abandoned(self, promised: set[CommitId]) -> None:
        """Drop old records of given-up commits once there are some, those that a sidecar still names excepted."""
        long_ago = self._session.sources.now() - ABANDONED_KEPT
        state = (self._session.publisher.known or self._session.publisher.read()).state
        old = {commit for commit, at in state.abandoned.items() if at < long_ago} - promised
        if len(old) >= ABANDONED_DROPPED_MIN:
            self._session.publisher.publish(Settle(commits=frozenset(old)))

    def _read(self, pending: Pending) -> Sidecar | None:
        try:
            return self._session.sidecars.read(pending.operation)
        except (CorruptGraphError, UnsupportedFormatError) as problem:
            raise RecoveryRefusedError(
                f"no write was begun: {problem.message}. Readers are not affected. "
                "Use the omnigraph that wrote the file, or move it away if you know what it was",
                operation=pending.operation,
            ) from problem

    def _settle(self, sidecar: Sidecar, pending: Pending, grace: timedelta) -> Recovered | None:
        seen = self._observe(sidecar, pending, grace)
        decision = decide(seen)
        log.info(
            "recovery decided",
            extra={"sidecar": sidecar.operation, "commit": sidecar.commit, "decision": type(decision).__name__},
        )
        match decision:
            case LeaveAlone():
                return None
            case Finished() | Discard() | RollForward() | RollBack():
                kind, reason = self._carry_out(decision, sidecar)
            case _:
                assert_never(decision)
        reach(Failpoint.RECOVERY_AFTER_PUBLISH)
        self._session.audit.add(self._audit_row(sidecar, kind))
        reach(Failpoint.RECOVERY_AFTER_AUDIT)
        self._session.sidecars.delete(sidecar.operation)
        recovered(kind)
        return Recovered(
            operation=sidecar.operation, commit=sidecar.commit, kind=kind, branch=sidecar.branch, reason=reason
        )

    def _carry_out(self, decision: Decision, sidecar: Sidecar) -> tuple[str, str | None]:
        match decision:
            case Finished():
                return ROLLED_FORWARD, None
            case Discard():
                return DISCARDED, "its branch is gone"
            case RollBack(reason=reason):
                return self._give_up(sidecar, reason)
            case RollForward():
                return self._roll_forward(sidecar)
            case LeaveAlone():
                raise AssertionError("what is left alone is not carried out")
            case _:
                assert_never(decision)

    def _roll_forward(self, sidecar: Sidecar) -> tuple[str, str | None]:
        stamp = Stamp(actor=RECOVERY_ACTOR, at=self._session.sources.now())
        try:
            self._committer.land(
                sidecar, stamp, Progress(), promised=lambda: self._session.sidecars.exists(sidecar.operation)
            )
        except CommitOutcomeUnknownError:
            raise
        except (AlreadyAppliedError, CommitExpiredError, ConflictError, InvalidInputError) as refused:
            return self._give_up(sidecar, refused.message)
        return ROLLED_FORWARD, None

    def _give_up(self, sidecar: Sidecar, reason: str) -> tuple[str, str | None]:
        decided = self._session.publisher.publish(
            Abandon(manifest=self._session.manifest, commit=sidecar.commit, at=self._session.sources.now())
        )
        return (ROLLED_FORWARD, None) if decided.commit is not None else (ROLLED_BACK, reason)

    def _observe(self, sidecar: Sidecar, pending: Pending, grace: timedelta) -> Observation:
        if self._owner_alive(sidecar, pending, grace):
            return OWNED  # the rest would not be looked at
        return self._history.looking(lambda reading: self._observe_in(reading, sidecar))

    def _observe_in(self, reading: Reading, sidecar: Sidecar) -> Observation:
        head = self._head_in(reading, sidecar)
        moved = [p for p in sidecar.tables if head is not None and head.pins.get(p.table) != p.expected]
        return Observation(
            landed=self._session.manifest.commit(reading, sidecar.commit) is not None,
            abandoned=sidecar.commit in reading.state.abandoned,
            owner_alive=False,
            branch_there=head is not None,
            schema_same=head is None or head.schema_hash == sidecar.schema_hash,
            moved_strict=tuple(str(p.key) for p in moved if not p.commutes),
            missing_files=() if head is None else self._missing(sidecar),
        )

    def _head_in(self, reading: Reading, sidecar: Sidecar) -> Commit | None:
        try:
            branch = branch_held(reading.state, sidecar.branch, sidecar.incarnation)
        except ConflictError:
            return None
        row = self._session.manifest.commit(reading, branch.head)
        return None if row is None else row.commit

    def _missing(self, sidecar: Sidecar) -> tuple[str, ...]:
        missing: list[str] = []
        for promise in sidecar.tables:
            uri = self._session.root.uri(table_location(promise.key.kind, promise.table))
            missing += self._session.staging.missing(uri, promise.staged)
        return tuple(missing)

    def _owner_alive(self, sidecar: Sidecar, pending: Pending, grace: timedelta) -> bool:
        """Guess whether someone is at it; guessing wrong costs a little work, never correctness."""
        us = this_process()
        if sidecar.owner == us:
            return False  # what we are working on was left out before
        if sidecar.owner.host == us.host and not process_exists(sidecar.owner.process):
            return False
        return grace > timedelta(0) and self._session.sources.now() - pending.modified < grace

    def _audit_row(self, sidecar: Sidecar, kind: str) -> AuditRow:
        landed = self._history.landed(sidecar.commit) if kind == ROLLED_FORWARD else None
        tables = tuple(_outcome(promise, landed) for promise in sidecar.tables)
        return AuditRow(
            operation=sidecar.operation,
            kind=kind,
            commit=sidecar.commit,
            original_actor=sidecar.actor,
            writer=sidecar.writer,
            branch=sidecar.branch,
            tables=tables,
            created_at=self._session.sources.now(),
        )


def _outcome(promise: TablePromise, landed: Commit | None) -> dict[str, Any]:
    """Return from which version to which a table went; it may have moved between the promise and its keeping."""
    planned = promise.expected.version if promise.expected else 0
    pin = landed.pins.get(promise.table) if landed is not None else None
    if pin is None:
        return {"table_key": str(promise.key), "from_version": planned, "to_version": planned}
    before = pin.version - 1 if pin.transaction == promise.transaction else pin.version
    return {"table_key": str(promise.key), "from_version": before, "to_version": pin.version}
