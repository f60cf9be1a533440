"""Which files are held, and by whom: eight bytes and a number for each, so that millions fit into memory.

A file is known by a hash of its name. Two that share one are both held if one of them is: a file too many stays, and
none goes that should not.
"""

from collections.abc import Iterable, Sequence
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

UNSORTED_MAX = 4_000_000

Hashes = npt.NDArray[np.uint64]


class Marks:
    """Names that are held, each by the first who held it."""

    def __init__(self) -> None:
        self._holders: dict[str, int] = {}
        self._hashes: list[Hashes] = []
        self._numbers: list[npt.NDArray[np.uint32]] = []
        self._unsorted = 0

    def __len__(self) -> int:
        self._sort()
        return sum(map(len, self._hashes))

    def hold(self, names: Iterable[str], holder: str) -> None:
        """Hold names, unless someone held them before."""
        self.hold_hashes(hashes_of(names), holder)

    def hold_hashes(self, hashes: Hashes, holder: str) -> None:
        """Hold names by their hashes, unless someone held them before."""
        number = self._holders.setdefault(holder, len(self._holders))
        self._hashes.append(hashes)
        self._numbers.append(np.full(len(hashes), number, np.uint32))
        self._unsorted += len(hashes)
        if self._unsorted > UNSORTED_MAX:
            self._sort()

    def holders(self, names: Sequence[str]) -> list[str | None]:
        """Return who holds each of some names."""
        self._sort()
        if not names or not self._hashes or not len(self._hashes[0]):
            return [None] * len(names)
        (held,), (numbers,) = self._hashes, self._numbers
        wanted = hashes_of(names)
        places = np.minimum(np.searchsorted(held, wanted), len(held) - 1)
        known = list(self._holders)
        return [
            known[number] if found else None
            for number, found in zip(numbers[places].tolist(), (held[places] == wanted).tolist(), strict=True)
        ]

    def _sort(self) -> None:
        if not self._unsorted:
            return
        # Of equal ones the first is taken, which is the one who came first.
        hashes, first = np.unique(np.concatenate(self._hashes), return_index=True)
        self._hashes, self._numbers = [hashes], [np.concatenate(self._numbers)[first]]
        self._unsorted = 0


def hashes_of(names: Iterable[str]) -> Hashes:
    """Return the hash of each name."""
    return np.frombuffer(b"".join(blake2b(name.encode(), digest_size=8).digest() for name in names), np.uint64)
