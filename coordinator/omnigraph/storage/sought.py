"""Texts that are looked for among very many others, most of which are not looked for.

They are found by their fingerprints and then compared, so an answer is exact. Fingerprints lie in tables of numbers:
of those that want the same slot one gets it, and the others lie in the next table, which is smaller. That takes a third
of the time of a set of texts, because nothing is done for one text at a time.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.observing import Threads
from omnigraph.rules.fingerprints import Fingerprints, Places, fingerprints, parts_of
from omnigraph.rules.values import Column, compute
from omnigraph.storage.lance_cores import cores

NOTHING: Final = -1
SLOTS_LOG2_MIN: Final = 10
SLOTS_ROOM_LOG2: Final = 1
TURN: Final = np.uint64(7)
ALONE_MAX: Final = 2**17
"""How many texts are made into numbers sooner by one thread than by several."""
ENTERED_AT_ONCE: Final = 32_768
MET_AT_ONCE: Final = 65_536
"""More than fit the nearest cache: threads that do little at a time wait for each other more than for memory."""
STRANGERS_MAX: Final = 2**20
TEXT_BYTES_MAX: Final = 2**31 - 1

Numbers: TypeAlias = npt.NDArray[np.int32]
"""Which of the texts, counted from zero."""


@dataclass(frozen=True, slots=True)
class _Table:
    """Slots, each with the number of a text or nothing; a text's slot is told by bits of its fingerprint."""

    turn: np.uint64
    shift: np.uint64
    slots: Numbers

    @classmethod
    def sized(cls, texts: int, turn: np.uint64) -> "_Table":
        log2 = max(SLOTS_LOG2_MIN, texts.bit_length() + SLOTS_ROOM_LOG2)
        return cls(turn, np.uint64(64 - log2), np.full(1 << log2, NOTHING, np.int32))

    def slots_of(self, seen: Fingerprints) -> Places:
        turned = (seen << self.turn) | (seen >> (np.uint64(64) - self.turn)) if self.turn else seen
        return (turned >> self.shift).view(np.int64)


class Sought:
    """Texts, each as often as it likes, and which of them were met; several threads may let it meet others at once."""

    def __init__(self, texts: Column) -> None:
        chunks = texts.chunks if isinstance(texts, pa.ChunkedArray) else [texts]
        if len(texts) > ALONE_MAX:
            with Threads(cores()) as pool:
                seen = [pool.submit(fingerprints, chunk, MET_AT_ONCE) for chunk in chunks]
                self._texts = _together(chunks)
                self._seen = np.concatenate([each.result() for each in seen])
        else:
            self._texts, self._seen = _together(chunks), fingerprints(texts)
        self._tables: list[_Table] = []
        firsts = self._entered()
        self._is_left = np.zeros(len(firsts), np.bool_)
        self._is_left[firsts] = True
        # What has the fingerprint of another text and differs. It can not be found by fingerprint, so it is compared
        # with all that are met and have that fingerprint. Nearly always there is none.
        self._others = self._differing(firsts)
        self._strangers: list[Column] = []
        self._lock = threading.Lock()

    @property
    def left(self) -> int:
        """How many different texts were not met."""
        self._settle()
        return int(np.count_nonzero(self._is_left)) + len(self._others)

    def missing(self) -> Column:
        """Return the texts that were not met, each once; as large ones only if they fit no column of others."""
        self._settle()
        left = self._texts.take(pa.array(np.flatnonzero(self._is_left)))
        every = pa.concat_arrays([left, self._others])
        return compute.cast(every, pa.string()) if every.nbytes <= TEXT_BYTES_MAX else every

    def meet(self, texts: Column) -> None:
        """Note which of the texts that are looked for are among these."""
        for part in parts_of(texts, MET_AT_ONCE):
            places, numbers = self._found(fingerprints(part, MET_AT_ONCE))
            is_same = _equal(self._texts.take(pa.array(numbers)), part.take(pa.array(places)))
            self._is_left[numbers[is_same]] = False
            if len(self._others) and not is_same.all():
                self._keep(part.take(pa.array(places[~is_same])))

    def _entered(self) -> Numbers:
        """Put all texts into tables; return for each the number of the one with its fingerprint that is found there."""
        entered = np.empty(len(self._seen), np.int32)
        waiting, seen = np.arange(len(self._seen), dtype=np.int32), self._seen
        while len(waiting):
            table = _Table.sized(len(waiting), (TURN * np.uint64(len(self._tables))) % np.uint64(64))
            parts = [slice(start, start + ENTERED_AT_ONCE) for start in range(0, len(waiting), ENTERED_AT_ONCE)]
            for part in parts:
                table.slots[table.slots_of(seen[part])] = waiting[part]
            again = [np.empty(0, np.int64)]
            for part in parts:
                there = table.slots.take(table.slots_of(seen[part]))
                entered[waiting[part]] = there
                again.append(np.flatnonzero(self._seen.take(there) != seen[part]) + part.start)
            still = np.concatenate(again)
            waiting, seen = waiting[still], seen[still]
            self._tables.append(table)
        return entered

    def _found(self, seen: Fingerprints) -> tuple[Places, Numbers]:
        """Return the places of the fingerprints that are in a table, and the numbers of the texts that have them."""
        every, numbers = [np.empty(0, np.int64)], [np.empty(0, np.int32)]
        places = np.arange(len(seen))
        for table in self._tables:
            there = table.slots.take(table.slots_of(seen))
            taken = np.flatnonzero(there != NOTHING)
            there, seen, places = there[taken], seen[taken], places[taken]
            is_same = self._seen.take(there) == seen
            every.append(places[is_same])
            numbers.append(there[is_same])
            seen, places = seen[~is_same], places[~is_same]
            if not len(seen):
                break
        return np.concatenate(every), np.concatenate(numbers)

    def _differing(self, firsts: Numbers) -> Column:
        again = np.flatnonzero(firsts != np.arange(len(firsts), dtype=np.int32))
        later = self._texts.take(pa.array(again))
        is_same = _equal(self._texts.take(pa.array(firsts[again])), later)
        return compute.unique(later.filter(pa.array(~is_same)))

    def _keep(self, strangers: Column) -> None:
        with self._lock:
            self._strangers.append(_large(strangers))
            if sum(map(len, self._strangers)) >= STRANGERS_MAX:
                self._compare()

    def _settle(self) -> None:
        with self._lock:
            if self._strangers:
                self._compare()

    def _compare(self) -> None:
        is_met = compute.is_in(self._others, value_set=pa.concat_arrays(self._strangers))
        self._others = self._others.filter(compute.invert(is_met))
        self._strangers = []


def _together(chunks: Sequence[Column]) -> Column:
    """Put texts into one piece, which may have more bytes than a column of texts can."""
    return pa.concat_arrays([pa.array([], pa.large_string()), *map(_large, chunks)])


def _large(texts: Column) -> Column:
    return compute.cast(texts, pa.large_string())


def _equal(large: Column, texts: Column) -> "npt.NDArray[np.bool_]":
    same = compute.fill_null(compute.equal(large, _large(texts)), False)
    return np.asarray(same, np.bool_)
