"""Watching the ids of a write go by, and telling afterwards which of them went by twice."""

from concurrent.futures import Future, ThreadPoolExecutor

from omnigraph.rules.fingerprints import Fingerprints, fingerprints, occurring_twice
from omnigraph.rules.values import Column

NOTED_AT_ONCE_MAX = 8_192
"""Up to so many ids are noted where they are; more, beside the writing of their rows."""


class Repeats:
    """Eight bytes per id, however long the ids are."""

    def __init__(self) -> None:
        self._noted: list[Fingerprints] = []
        self._being_noted: list[Future[Fingerprints]] = []
        self._beside: ThreadPoolExecutor | None = None

    def note(self, ids: Column) -> None:
        """Look at some ids."""
        if len(ids) <= NOTED_AT_ONCE_MAX:
            self._noted.append(fingerprints(ids))
            return
        if self._beside is None:
            self._beside = ThreadPoolExecutor(max_workers=1, thread_name_prefix="omnigraph-repeats")
        self._being_noted.append(self._beside.submit(fingerprints, ids))

    def doubtful(self) -> Fingerprints:
        """Return the fingerprints that were seen more than once: nearly always those of ids that were."""
        if self._beside is not None:
            self._beside.shutdown()
        return occurring_twice([*self._noted, *(future.result() for future in self._being_noted)])
