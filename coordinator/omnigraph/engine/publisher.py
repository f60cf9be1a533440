"""Publish: the one act that makes anything visible."""

from dataclasses import dataclass
from typing import Protocol, TypeVar

from omnigraph.errors import CommitOutcomeUnknownError, ContentionError, OmnigraphError, StorageError
from omnigraph.ids import Sources
from omnigraph.model.manifest import ManifestState
from omnigraph.observing import retried
from omnigraph.storage.lance_door import SwapLostError, SwapRefusedError, SwapUncertainError
from omnigraph.storage.manifest import Manifest, Reading

ATTEMPTS_MAX = 1_000
DEADLINE_SECONDS = 120.0
PAUSE_SECONDS_MIN = 0.002
PAUSE_SECONDS_MAX = 0.25

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Change(Protocol[T_co]):
    """Something to publish: it is proposed anew on every state it meets, until one swap wins."""

    @property
    def subject(self) -> str:
        """What to look for if the outcome can not be known: ``commit 01J…``."""

    @property
    def traceable(self) -> bool:
        """Whether :meth:`landed` recognises this very change, and not only a state like the one it wanted."""

    def landed(self, reading: Reading) -> T_co | None:
        """Return the answer if an earlier attempt is visible already."""

    def propose(self, reading: Reading) -> tuple[ManifestState, T_co]:
        """Return the state to publish on top of what was read, or raise that it does not apply."""


@dataclass(frozen=True, slots=True)
class Doubt:
    """An attempt that may still become ``version``; once that version is there, we know."""

    version: int
    reason: str
    refused: bool = False


class Publisher:
    """Carries changes into the manifest, one swap each, retried under contention and never twice."""

    def __init__(self, manifest: Manifest, sources: Sources, known: Reading | None = None) -> None:
        self._manifest = manifest
        self._sources = sources
        self._known = known

    @property
    def known(self) -> Reading | None:
        """The state this process saw last."""
        return self._known

    def read(self) -> Reading:
        """Return the newest state; what has not changed is not read again."""
        known = self._known
        self._known = self._manifest.read() if known is None else self._manifest.refresh(known)
        return self._known

    def publish(self, change: Change[T]) -> T:
        """Make a change visible exactly once, or raise an error that means it is not and never will be.

        The first attempt builds on the state this process knows: if that is stale the swap is lost,
        at the cost of one small file. Every later attempt reads first. Each one begins by looking whether
        the change is visible already, by an attempt that seemed to fail or by another process that helped.
        """
        give_up_at = self._sources.monotonic() + DEADLINE_SECONDS
        reading = self._known or self.read()
        doubt: Doubt | None = None
        for attempt in range(ATTEMPTS_MAX):
            try:
                found = change.landed(reading) if doubt or change.traceable else None
                if found is not None:
                    return found
                if doubt is not None and reading.at.version >= doubt.version:
                    doubt = None  # the version it could have become is taken, and not by us: it never will be
                if attempt and self._sources.monotonic() > give_up_at:
                    break
                state, answer = change.propose(reading)
                outcome = self._swap(change, reading, state)
            except OmnigraphError as problem:
                reading = self._newer(change, reading, doubt, problem)
                continue
            if outcome is True:
                return answer
            if isinstance(outcome, Doubt):
                if outcome.refused:
                    return self._refused(change, outcome)
                doubt = doubt or outcome
            retried("publish")
            self._pause(attempt)
            reading = self._read_again(change, doubt)
        raise self._gave_up(change, doubt)

    def _swap(self, change: Change[T], reading: Reading, state: ManifestState) -> "bool | Doubt":
        """Return whether the swap was won, or that nobody said."""
        try:
            self._known = self._manifest.swap(reading, state)
        except SwapLostError:
            return False
        except SwapUncertainError as unclear:
            return Doubt(reading.at.version + 1, str(unclear), refused=isinstance(unclear, SwapRefusedError))
        except (KeyboardInterrupt, SystemExit) as stopped:
            stopped.add_note(f"omnigraph was publishing {change.subject}; look whether it is there")
            raise
        return True

    def _refused(self, change: Change[T], doubt: Doubt) -> T:
        """Return the answer if the change is visible all the same, or raise that it is not and never will be."""
        reading = self._read_again(change, doubt)
        found = change.landed(reading)
        if found is not None:
            return found
        raise StorageError(f"nothing was applied: the manifest can not be written: {doubt.reason}", reason="refused")

    def _read_again(self, change: Change[T], doubt: Doubt | None) -> Reading:
        try:
            return self.read()
        except StorageError as problem:
            if doubt is None:
                raise
            raise self._gave_up(change, doubt) from problem

    def _newer(self, change: Change[T], reading: Reading, doubt: Doubt | None, problem: OmnigraphError) -> Reading:
        """Read again after a state that may be old made trouble: what it names may have been swept since."""
        newer = self._read_again(change, doubt)
        if newer is not reading:
            return newer
        if doubt is not None and isinstance(problem, StorageError):
            raise self._gave_up(change, doubt) from problem
        raise problem

    def _pause(self, attempt: int) -> None:
        """Sleep a random while, longer as attempts go by, so that writers fall out of step."""
        longest = min(PAUSE_SECONDS_MAX, PAUSE_SECONDS_MIN * 2 ** min(attempt, 10))
        self._sources.sleep(longest * self._sources.random())

    def _gave_up(self, change: Change[T], doubt: Doubt | None) -> OmnigraphError:
        if doubt is None:
            return ContentionError(
                f"{change.subject} was not applied: other writers were faster for {DEADLINE_SECONDS:.0f} s; try again",
                subject=change.subject,
            )
        return CommitOutcomeUnknownError(
            f"it is not known whether {change.subject} was applied; look for it before trying again ({doubt.reason})",
            subject=change.subject,
        )
