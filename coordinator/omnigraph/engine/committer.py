"""From staged files to one visible commit: promise, seal, publish, forget.

The same code finishes a writer's own work and, during recovery, another's. The commit id was minted
before anything else, so doing it twice is doing it once.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta

from omnigraph.engine.changes import Abandon, AddCommit, AddTogether, Together, commit_of
from omnigraph.engine.company import Company
from omnigraph.engine.history import History
from omnigraph.engine.lately import learn_ids, tell_ids
from omnigraph.engine.owners import let_go, note_failure, take_in_hand
from omnigraph.engine.sealing import SealedWork, Sealer
from omnigraph.engine.sealing_early import Early, EarlySealer
from omnigraph.engine.session import Session
from omnigraph.errors import (
    CommitOutcomeUnknownError,
    ContentionError,
    CorruptGraphError,
    OmnigraphError,
    StorageError,
    VersionConflictError,
)
from omnigraph.failpoints import Failpoint, reach
from omnigraph.model.lineage import Commit, CommitRow
from omnigraph.model.sidecar import Sidecar
from omnigraph.observing import logger, phase, retried
from omnigraph.rules.refs import Stamp, branch_held
from omnigraph.storage.manifest import Reading
from omnigraph.storage.turns import leave_notes, turn

SEALS_MAX = 1_000
PAUSE_SECONDS_MAX = 0.5
PAUSE_DOUBLINGS_MAX = 5
SLEPT_LONG = timedelta(hours=1)
SAMPLE_MAX = 5

log = logger(__name__)


@dataclass(slots=True)
class Progress:
    """How a commit went: attempts, and milliseconds per phase."""

    attempts: int = 0
    milliseconds: dict[str, float] = field(default_factory=dict)


class Committer:
    """Phases A to D, and nothing else."""

    def __init__(self, session: Session, history: History) -> None:
        self._session = session
        self._history = history
        self._sealer = Sealer(session, history)
        self._early = EarlySealer(session, self._sealer)
        self._company = Company(session, self._sealer, self._early)

    def commit(self, sidecar: Sidecar, stamp: Stamp, progress: Progress) -> Commit:
        """Make promised work visible as one commit, or raise an error that means it is not and never will be."""
        take_in_hand(sidecar.operation)
        try:
            with self._timed(progress, "promise"):
                doubt = self._promise(sidecar)  # phase A: promise
            commit = self._land_or_withdraw(sidecar, stamp, progress, doubt)  # phases B and C: effect, visibility
            self._early.learn(sidecar, commit)
            with self._timed(progress, "forget"):
                self._forget(sidecar)  # phase D: forget
            return commit
        except BaseException as stopped:
            note_failure()
            if isinstance(stopped, KeyboardInterrupt | SystemExit):
                what = f"omnigraph was writing commit {sidecar.commit}"
                stopped.add_note(f"{what}: the next write finishes it or gives it up")
            raise
        finally:
            let_go(sidecar.operation)

    def _land_or_withdraw(
        self, sidecar: Sidecar, stamp: Stamp, progress: Progress, doubt: StorageError | None
    ) -> Commit:
        """Make a promise come true, or take it back before anyone is told that it did not."""
        if doubt is not None:
            return self._withdraw(sidecar, doubt)
        try:
            reach(Failpoint.AFTER_SIDECAR)
            early = self._early.begin(sidecar)
            with turn(str(self._session.root), sidecar.operation, early.offer) as ours:
                if ours.waited:
                    self._session.shelf.had_to_wait()
                told = _told(sidecar, ours.note)
                if told is not None:
                    progress.attempts += 1
                    return told
                company = ours.waited and not ours.is_done
                if self._session.shelf.is_crowded:
                    learn_ids(self._session)
                promised = lambda: self._stands(sidecar)  # noqa: E731
                return self.land(sidecar, stamp, progress, promised, early=early, with_company=company)
        except CommitOutcomeUnknownError as unknown:
            unknown.facts.setdefault("commit", sidecar.commit)
            raise
        except OSError as problem:
            return self._withdraw(sidecar, StorageError(f"nothing was applied: {problem}"))
        except Exception as refused:  # noqa: BLE001  whatever it is, it is raised again once the promise is taken back
            return self._withdraw(sidecar, refused)

    def land(
        self,
        sidecar: Sidecar,
        stamp: Stamp,
        progress: Progress,
        promised: Callable[[], bool] = lambda: True,
        *,
        early: Early | None = None,
        with_company: bool = False,
    ) -> Commit:
        """Seal every table on the newest pin it fits on and publish once; again if a table moved that allows it."""
        for attempt in range(SEALS_MAX):
            begun = self._session.sources.monotonic()
            progress.attempts += 1
            landed, head = self._look(sidecar)
            if landed is not None:
                return landed  # someone took us along, or helped
            with self._timed(progress, "seal"):
                sealed = None if early is None else early.on(head)
                work = [sealed or self._sealer.seal(sidecar, head)]
                reach(Failpoint.AFTER_SEALS)
                if with_company:
                    work += self._company.sealed_with(work[0])
            ours = AddCommit(
                manifest=self._session.manifest, draft=self._sealer.draft(work[0]), stamp=stamp, promised=promised
            )
            change = AddTogether(first=ours, others=tuple(map(self._company.change, work[1:])))
            try:
                with self._timed(progress, "publish"):
                    together = self._session.publisher.publish(change)
            except VersionConflictError:
                retried("seal")
                # Sealing again decides whether what moved can be lived with. Waiting first, longer each time and by
                # chance, leaves the others room: writers that all try at once spend their time on losing.
                spent = self._session.sources.monotonic() - begun
                longest = min(PAUSE_SECONDS_MAX, spent * 2 ** min(attempt, PAUSE_DOUBLINGS_MAX))
                self._session.sources.sleep(longest * self._session.sources.random())
                continue
            self._tell(work, together)
            return together.commit
        raise ContentionError("nothing was applied: the tables kept changing; try again")

    def _tell(self, work: list[SealedWork], together: Together) -> None:
        """Remember what became visible, and let those know whose it is."""
        others = {commit.id: commit for commit in together.others}
        landed = [each for each in work[1:] if each.sidecar.commit in others]
        notes = {each.sidecar.operation: CommitRow.of(others[each.sidecar.commit]).to_text() for each in landed}
        leave_notes(str(self._session.root), notes)
        if self._session.shelf.is_crowded:
            tell_ids(self._session, self._sealer.few_ids((work[0], *landed)))
        for each in (work[0], *landed):
            self._sealer.remember(each)

    def _look(self, sidecar: Sidecar) -> tuple[Commit | None, Commit]:
        """Return the promised commit if it is there already, and the head of its branch, seen at one moment."""

        def look(reading: Reading) -> tuple[Commit | None, Commit]:
            landed = self._session.manifest.commit(reading, sidecar.commit)
            branch = branch_held(reading.state, sidecar.branch, sidecar.incarnation)
            return (None if landed is None else landed.commit), commit_of(self._session.manifest, reading, branch.head)

        return self._history.looking(look)

    def _promise(self, sidecar: Sidecar) -> StorageError | None:
        """Write the sidecar, or raise that it is not there; return what went wrong if it may be there all the same."""
        try:
            reach(Failpoint.BEFORE_SIDECAR)
            self._session.sidecars.put(sidecar)
        except OSError as problem:
            raise StorageError(f"nothing was applied: {problem}") from problem
        except StorageError as problem:
            # What may be there must be withdrawn: recovery could finish it after we have reported an error.
            if self._surely_absent(sidecar, problem):
                raise
            return problem
        return None

    def _forget(self, sidecar: Sidecar) -> None:
        """Drop a promise that was kept; the commit is visible, so nothing that fails here is an error."""
        try:
            reach(Failpoint.BEFORE_FORGET)
            self._session.sidecars.forget(sidecar.operation)
            reach(Failpoint.AFTER_FORGET)
        except Exception:
            log.warning("a sidecar was left behind", extra={"sidecar": sidecar.operation}, exc_info=True)

    def _stands(self, sidecar: Sidecar) -> bool:
        """Tell whether our own promise is still there; asked only after a sleep in which it could have been settled."""
        age = self._session.sources.now() - sidecar.started_at
        return age < SLEPT_LONG or self._session.sidecars.exists(sidecar.operation)

    def _surely_absent(self, sidecar: Sidecar, problem: StorageError) -> bool:
        if problem.facts.get("reason") in ("unreachable", "conflict"):
            return False
        try:
            return not self._session.sidecars.exists(sidecar.operation)
        except StorageError:
            return False

    def _withdraw(self, sidecar: Sidecar, refused: Exception) -> Commit:
        """Give a promise up, in the manifest first; if someone finished it meanwhile, that is the answer."""
        try:
            decided = self._session.publisher.publish(
                Abandon(manifest=self._session.manifest, commit=sidecar.commit, at=self._session.sources.now())
            )
            if decided.commit is not None:
                return decided.commit
            self._session.sidecars.forget(sidecar.operation)
        except OmnigraphError as problem:
            raise CommitOutcomeUnknownError(
                f"it is not known whether commit {sidecar.commit} will be applied ({problem}); look for it",
                commit=sidecar.commit,
            ) from refused
        raise refused

    @contextmanager
    def _timed(self, progress: Progress, name: str) -> Iterator[None]:
        begun = self._session.sources.monotonic()
        try:
            with phase(name):
                yield
        finally:
            spent = (self._session.sources.monotonic() - begun) * 1e3
            progress.milliseconds[name] = progress.milliseconds.get(name, 0.0) + spent


def _told(sidecar: Sidecar, note: str) -> Commit | None:
    """Return our commit as the one who took it along describes it; None if there is no such note."""
    if not note:
        return None
    try:
        row = CommitRow.from_text(note)
        return row.commit if row.id == sidecar.commit else None
    except (CorruptGraphError, ValueError, TypeError, OverflowError):
        return None
