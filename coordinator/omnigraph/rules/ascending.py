"""Ids that come in order: none of them can come twice, and nobody has to look for that.

The order is that of lengths first, and of bytes among equally long texts: so numbers that count are in order with any
text before them, as sorted files and generated keys are. Rows from several sources are apart if what each of them has,
from its first id to its last, overlaps with nothing of the others.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from omnigraph.rules.fingerprints import WORD_BYTES, Fingerprints, Places, Texts, parts_of
from omnigraph.rules.values import Column

WORDS_TOGETHER: Final = 2
"""Read of all texts at once, also of those that are shorter: there is room for as many after the last."""
WORDS_MAX: Final = 8
"""Of longer ids that begin alike it takes more to compare them than to look for twins."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Ids in order, each once: the first of them, and the last."""

    first: str
    last: str

    @property
    def bounds(self) -> "tuple[tuple[int, bytes], tuple[int, bytes]]":
        """Both as what they are ordered by."""
        return _place(self.first), _place(self.last)


class Ascending:
    """Watches ids go by."""

    def __init__(self) -> None:
        self._first: str | None = None
        self._last: str | None = None
        self._is_broken = False

    @property
    def stretch(self) -> Stretch | None:
        """What went by, if it was in order, and if anything did."""
        if self._is_broken or self._first is None or self._last is None:
            return None
        return Stretch(self._first, self._last)

    def look(self, ids: Column) -> None:
        """Look at the next ids; once they were out of order, at none."""
        for part in parts_of(ids):
            if self._is_broken:
                return
            first, last = str(part[0]), str(part[len(part) - 1])
            follows = self._last is None or _place(self._last) < _place(first)
            if not follows or part.null_count or not _is_ascending(part):
                self._is_broken = True
                return
            self._first = first if self._first is None else self._first
            self._last = last


def are_apart(stretches: Iterable[Stretch | None]) -> bool:
    """Tell whether no id can be in two of them: each is in order, and none overlaps with another."""
    every: Sequence[Stretch | None] = tuple(stretches)
    bounds = sorted(each.bounds for each in every if each is not None)
    return len(bounds) == len(every) and all(one[1] < other[0] for one, other in pairwise(bounds))


def _is_ascending(part: Column) -> bool:
    texts = Texts(part)
    longer = np.diff(texts.lengths)
    if not len(longer) or longer.min() > 0:
        return True
    if longer.min() < 0:
        return False
    is_open = longer == 0
    for before in range(0, WORDS_TOGETHER * WORD_BYTES, WORD_BYTES):
        words = texts.from_start(before)
        same = words[1:] == words[:-1]
        if not same.all():
            turned = _turned(words)
            if (is_open & (turned[1:] < turned[:-1])).any():
                return False
            is_open &= same
            if not is_open.any():
                return True
    return _are_ascending(texts, np.flatnonzero(is_open))


def _are_ascending(texts: Texts, pairs: Places) -> bool:
    """Tell whether each of some texts is less than the next, which is as long and begins alike."""
    for before in range(WORDS_TOGETHER * WORD_BYTES, WORDS_MAX * WORD_BYTES, WORD_BYTES):
        if texts.lengths[pairs].min() <= before:
            return False  # nothing is left to compare: two are equal
        one, other = (_turned(texts.from_start(before, pairs + step)) for step in (0, 1))
        if (other < one).any():
            return False
        pairs = pairs[one == other]
        if not len(pairs):
            return True
    return False


def _turned(words: Fingerprints) -> Fingerprints:
    """Return words so that they have the order of their texts: as a number, the first byte of one is the lowest."""
    return words.byteswap()


def _place(text: str) -> tuple[int, bytes]:
    encoded = text.encode()
    return len(encoded), encoded
