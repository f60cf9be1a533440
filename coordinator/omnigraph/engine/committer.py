"""From staged files to one visible commit: promise, seal, publish, forget.

The same code finishes a writer's own work and, during recovery, another's. The commit id was minted
before anything else, so doing it twice is doing it once.
"""

import logging
import os
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta

from omnigraph.engine.changes import Abandon, AddCommit
from omnigraph.engine.history import History
from omnigraph.engine.session import Session
from omnigraph.errors import (
    CommitOutcomeUnknownError,
    ContentionError,
    InvalidDataError,
    OmnigraphError,
    StorageError,
    VersionConflictError,
)
from omnigraph.failpoints import Failpoint, reach
from omnigraph.model.lineage import Commit
from omnigraph.model.sidecar import Owner, Sidecar, TablePromise
from omnigraph.model.staged import StagedAppend, StagedUpsert
from omnigraph.model.tables import Pin
from omnigraph.rules.refs import Draft, Stamp
from omnigraph.storage.layout import table_location
from omnigraph.storage.turns import turn

SEALS_MAX = 1_000
PAUSE_SECONDS_MAX = 0.5
PAUSE_DOUBLINGS_MAX = 5
SLEPT_LONG = timedelta(hours=1)
SAMPLE_MAX = 5

log = logging.getLogger(__name__)

_IN_HAND: set[str] = set()
"""Operations this process is working on: their sidecars are nobody else's business yet."""


@dataclass(slots=True)
class Progress:
    """How a commit went: attempts, and milliseconds per phase."""

    attempts: int = 0
    milliseconds: dict[str, float] = field(default_factory=dict)


def this_process() -> Owner:
    """Return who we are, for others to look after."""
    return Owner(host=platform.node(), process=os.getpid())


def in_hand(operation: str) -> bool:
    """Tell whether this very process is still working on an operation."""
    return operation in _IN_HAND


class Committer:
    """Phases A to D, and nothing else."""

    def __init__(self, session: Session, history: History) -> None:
        self._session = session
        self._history = history

    def commit(self, sidecar: Sidecar, stamp: Stamp, progress: Progress) -> Commit:
        """Make promised work visible as one commit, or raise an error that means it is not and never will be."""
        _IN_HAND.add(sidecar.operation)
        try:
            with self._timed(progress, "promise"):
                doubt = self._promise(sidecar)  # phase A: promise
            commit = self._land_or_withdraw(sidecar, stamp, progress, doubt)  # phases B and C: effect, visibility
            with self._timed(progress, "forget"):
                self._forget(sidecar)  # phase D: forget
            return commit
        except (KeyboardInterrupt, SystemExit) as stopped:
            stopped.add_note(
                f"omnigraph was writing commit {sidecar.commit}: the next write finishes it or gives it up"
            )
            raise
        finally:
            _IN_HAND.discard(sidecar.operation)

    def _land_or_withdraw(
        self, sidecar: Sidecar, stamp: Stamp, progress: Progress, doubt: StorageError | None
    ) -> Commit:
        """Make a promise come true, or take it back before anyone is told that it did not."""
        if doubt is not None:
            return self._withdraw(sidecar, doubt)
        try:
            reach(Failpoint.AFTER_SIDECAR)
            with turn(str(self._session.root)):
                return self.land(sidecar, stamp, progress, lambda: self._stands(sidecar))
        except CommitOutcomeUnknownError as unknown:
            unknown.facts.setdefault("commit", sidecar.commit)
            raise
        except OSError as problem:
            return self._withdraw(sidecar, StorageError(f"nothing was applied: {problem}"))
        except Exception as refused:  # noqa: BLE001  whatever it is, it is raised again once the promise is taken back
            return self._withdraw(sidecar, refused)

    def land(
        self, sidecar: Sidecar, stamp: Stamp, progress: Progress, promised: Callable[[], bool] = lambda: True
    ) -> Commit:
        """Seal every table on the newest pin it fits on and publish once; again if a table moved that allows it."""
        for attempt in range(SEALS_MAX):
            begun = self._session.sources.monotonic()
            progress.attempts += 1
            _, head = self._history.head(sidecar.branch, sidecar.incarnation)
            with self._timed(progress, "seal"):
                sealed = self._seal_all(sidecar, head)
            reach(Failpoint.AFTER_SEALS)
            change = AddCommit(
                manifest=self._session.manifest,
                draft=self._draft(sidecar, head, sealed),
                stamp=stamp,
                promised=promised,
            )
            try:
                with self._timed(progress, "publish"):
                    commit = self._session.publisher.publish(change)
            except VersionConflictError:
                # Sealing again decides whether what moved can be lived with. Waiting first, longer each time and by
                # chance, leaves the others room: writers that all try at once spend their time on losing.
                spent = self._session.sources.monotonic() - begun
                longest = min(PAUSE_SECONDS_MAX, spent * 2 ** min(attempt, PAUSE_DOUBLINGS_MAX))
                self._session.sources.sleep(longest * self._session.sources.random())
                continue
            self._remember(head, sealed)
            return commit
        raise ContentionError("nothing was applied: the tables kept changing; try again")

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
            log.warning("a sidecar was left behind", extra={"operation": sidecar.operation}, exc_info=True)

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

    def _seal_all(self, sidecar: Sidecar, head: Commit) -> list[tuple[TablePromise, Pin | None]]:
        sealed: list[tuple[TablePromise, Pin | None]] = []
        for promise in sidecar.tables:
            sealed.append(self._seal(promise, head.pins.get(promise.table)))
            if len(sealed) == 1:
                reach(Failpoint.AFTER_FIRST_SEAL)
        return sealed

    def _seal(self, promise: TablePromise, pin: Pin | None) -> tuple[TablePromise, Pin | None]:
        """Seal one table; return the work as it is on the pin it met, and the new pin."""
        uri = self._uri(promise)
        moved = pin != promise.expected
        if moved:
            self._check_commutes(promise, pin, uri)
        base = pin.lance_version if pin else None
        staging = self._session.staging
        if moved and isinstance(promise.staged, StagedAppend | StagedUpsert):
            work, sealed = staging.seal_moved(uri, base, promise.staged, promise.transaction)
            promise = replace(promise, staged=work)
        else:
            sealed = staging.seal(uri, base, promise.staged, promise.transaction)
        if sealed is None:
            # What was to be written is there already, value for value: the table stays as it is.
            return promise, pin
        return promise, Pin(
            table=promise.table,
            version=(pin.version if pin else 0) + 1,
            lance_version=sealed.lance_version,
            transaction=sealed.transaction,
            rows=sealed.rows,
        )

    def _remember(self, head: Commit, sealed: list[tuple[TablePromise, Pin | None]]) -> None:
        for promise, pin in sealed:
            before = head.pins.get(promise.table)
            if pin is not None and pin != before:
                base = before.lance_version if before else None
                self._session.staging.landed(self._uri(promise), base, pin.lance_version, promise.staged)

    def _uri(self, promise: TablePromise) -> str:
        return self._session.root.uri(table_location(promise.key.kind, promise.table))

    def _check_commutes(self, promise: TablePromise, pin: Pin | None, uri: str) -> None:
        """Refuse work that was planned on a table that is another one now, unless it only adds or replaces by id."""
        if not promise.commutes:
            seen, found = (p.version if p else 0 for p in (promise.expected, pin))
            raise VersionConflictError(
                f"{promise.key} is at version {found}, but this was planned on {seen}; refresh and retry",
                table_key=str(promise.key),
                expected=seen,
                actual=found,
            )
        if promise.must_be_new and pin is not None and isinstance(promise.staged, StagedAppend):
            there = self._session.staging.present(uri, pin.lance_version, promise.staged)
            if there:
                raise duplicates(str(promise.key), there, "exist already")

    def _draft(self, sidecar: Sidecar, head: Commit, sealed: list[tuple[TablePromise, Pin | None]]) -> Draft:
        pins = {promise.table: pin for promise, pin in sealed if pin is not None}
        return Draft(
            id=sidecar.commit,
            branch=sidecar.branch,
            incarnation=sidecar.incarnation,
            operation=sidecar.writer,
            schema_hash=head.schema_hash,
            base_schema=sidecar.schema_hash,
            pins=pins,
            expected={promise.table: head.pins.get(promise.table) for promise, _ in sealed},
            table_keys={promise.table: str(promise.key) for promise, _ in sealed},
            message=sidecar.message,
            user_metadata=sidecar.user_metadata,
            metrics={str(promise.key): promise.metrics for promise, _ in sealed},
            txn=sidecar.txn,
        )

    @contextmanager
    def _timed(self, progress: Progress, phase: str) -> Iterator[None]:
        begun = self._session.sources.monotonic()
        try:
            yield
        finally:
            spent = (self._session.sources.monotonic() - begun) * 1e3
            progress.milliseconds[phase] = progress.milliseconds.get(phase, 0.0) + spent


def duplicates(table_key: str, ids: list[str], what: str) -> InvalidDataError:
    """Say which ids are there twice: how many, and a few of them."""
    sample = sorted(ids)[:SAMPLE_MAX]
    shown = ", ".join(repr(i) for i in sample) + (", …" if len(ids) > SAMPLE_MAX else "")
    return InvalidDataError(
        f"nothing was applied: {len(ids)} ids of {table_key} {what}: {shown}",
        table_key=table_key,
        count=len(ids),
        sample=sample,
    )
