"""Watching the ids of a write go by, and telling afterwards which of them went by twice."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

import numpy as np

from omnigraph.observing import Threads
from omnigraph.rules.fingerprints import TOP, Fingerprints, fingerprints, in_digit_order, occurring_twice
from omnigraph.rules.values import Column
from omnigraph.storage.lance_cores import cores

SORTED_TOGETHER_MAX: Final = 2**18
PARTS_LOG2: Final = 4


class Repeats:
    """Eight bytes per id, however long the ids are."""

    def __init__(self) -> None:
        self._noted: list[Fingerprints] = []

    def note(self, ids: Column) -> None:
        """Look at some ids."""
        self._noted.append(in_digit_order(fingerprints(ids), TOP))

    def note_all(self, streams: Sequence[Callable[[], Iterable[Column]]]) -> None:
        """Look at the ids of several sources, as many of them at once as there are cores."""

        def note(stream: Callable[[], Iterable[Column]]) -> None:
            for ids in stream():
                self.note(ids)

        with Threads(max(1, min(cores(), len(streams)))) as pool:
            list(pool.map(note, streams))

    def doubtful(self) -> Fingerprints:
        """Return, ascending, the fingerprints seen more than once: nearly always those of ids that were.

        Of many, those of a few ranges are sorted at a time, because sorting needs as much memory again.
        """
        if sum(map(len, self._noted)) <= SORTED_TOGETHER_MAX:
            return occurring_twice(self._noted)
        ends = np.arange(1, 1 << PARTS_LOG2, dtype=np.uint64) << np.uint64(16 - PARTS_LOG2)
        ranges = [np.split(noted, np.searchsorted(noted >> TOP, ends)) for noted in self._noted]
        with Threads(cores()) as pool:
            return np.concatenate(list(pool.map(occurring_twice, zip(*ranges, strict=True))))
