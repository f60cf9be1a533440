"""Fingerprints of the ids in large files, kept by a process that asks about the same files again and again.

Whether a large file holds an id is found out by reading every id in it, unless there is an index. Whoever writes a few
rows at a time would do so at every write. So once a file was searched a few times, the fingerprints of its ids are
kept: eight bytes for each. Data files never change. Rows that were deleted since are still among them, so a fingerprint
that is there is only a reason to search. One that is not there is certain.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias, cast

import numpy as np
from lance.fragment import LanceFragment

from omnigraph.rules.fingerprints import Fingerprints, Places, fingerprints
from omnigraph.rules.values import Column
from omnigraph.storage.asked import BEFORE_KEEPING, Asked
from omnigraph.storage.lance_door import file_name

FINGERPRINTS_HELD_MAX: Final = 8_000_000

ReadFile: TypeAlias = Callable[[LanceFragment], Iterable[Column]]
"""All ids in the file of a fragment, those of deleted rows included."""


@dataclass(frozen=True, slots=True)
class Suspicion:
    """What is left to be searched: for which of the ids that were asked about, and in which fragments."""

    places: Places
    fragments: Sequence[LanceFragment]
    strangers: Sequence[LanceFragment]
    """Of these nothing is known: every id is to be searched for in them."""


class KeptIds:
    """The fingerprints of large files, of all tables, those that were asked about last and as many as fit."""

    def __init__(self, most: int = FINGERPRINTS_HELD_MAX) -> None:
        self._most = most
        self._kept: OrderedDict[str, Fingerprints] = OrderedDict()
        self._asked = Asked()
        self._lock = threading.Lock()

    def suspects(self, fragments: Sequence[LanceFragment], wanted: Sequence[Column], read: ReadFile) -> Suspicion:
        """Return what of some fragments must be searched for some ids."""
        # Files that do not fit together would push each other out, and be read again at every write.
        fits = sum(int(each.physical_rows) for each in fragments) <= self._most
        if not fits:
            return Suspicion(np.empty(0, np.int64), (), fragments)
        seen = np.concatenate([np.empty(0, np.uint64), *map(fingerprints, wanted)])
        is_suspected, doubtful, strangers = np.zeros(len(seen), np.bool_), [], []
        for fragment in fragments:
            kept = self._fingerprints(fragment, read)
            if kept is None:
                strangers.append(fragment)
            elif (is_there := _are_among(seen, kept)).any():
                is_suspected |= is_there
                doubtful.append(fragment)
        return Suspicion(np.flatnonzero(is_suspected), doubtful, strangers)

    def _fingerprints(self, fragment: LanceFragment, read: ReadFile) -> Fingerprints | None:
        """Return the fingerprints of a file, ascending; None if it is not worth reading it for them yet."""
        name = file_name(fragment.metadata)
        with self._lock:
            kept = self._kept.get(name)
            if kept is not None:
                self._kept.move_to_end(name)
                return kept
        # Those that are pushed out begin anew, so that tables that take turns are not read for nothing all the time.
        if not self._asked.before(name, BEFORE_KEEPING):
            return None
        kept = np.concatenate([np.empty(0, np.uint64), *map(fingerprints, read(fragment))])
        kept.sort()
        with self._lock:
            self._kept[name] = kept
            while sum(map(len, self._kept.values())) > self._most:
                self._kept.popitem(last=False)
        return kept


KEPT_IDS: Final = KeptIds()


def _are_among(seen: Fingerprints, ascending: Fingerprints) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    if not len(ascending):
        return np.zeros(len(seen), np.bool_)
    nearest = np.minimum(np.searchsorted(ascending, seen), len(ascending) - 1)
    return cast("np.ndarray[tuple[int], np.dtype[np.bool_]]", ascending[nearest] == seen)
