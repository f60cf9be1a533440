"""Watching the ids of a write go by, and telling afterwards which of them went by twice."""

from typing import Final

import numpy as np

from omnigraph.rules.fingerprints import Fingerprints, fingerprints, occurring_twice
from omnigraph.rules.values import Column

SORTED_TOGETHER_MAX: Final = 2**20
PARTS_LOG2: Final = 4


class Repeats:
    """Eight bytes per id, however long the ids are."""

    def __init__(self) -> None:
        self._noted: list[Fingerprints] = []

    def note(self, ids: Column) -> None:
        """Look at some ids."""
        seen = fingerprints(ids)
        seen.sort()
        self._noted.append(seen)

    def doubtful(self) -> Fingerprints:
        """Return, ascending, the fingerprints seen more than once: nearly always those of ids that were.

        Those of one range after the other are sorted, because sorting needs as much memory again.
        """
        if sum(map(len, self._noted)) <= SORTED_TOGETHER_MAX:
            return occurring_twice(self._noted)
        ends = np.arange(1, 1 << PARTS_LOG2, dtype=np.uint64) << np.uint64(64 - PARTS_LOG2)
        ranges = [np.split(noted, np.searchsorted(noted, ends)) for noted in self._noted]
        return np.concatenate([occurring_twice(same) for same in zip(*ranges, strict=True)])
