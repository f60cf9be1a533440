"""A number for every text, so that equal texts are found by comparing numbers.

A fingerprint is made of a text's length, its first sixteen bytes and its last sixteen. Equal texts have
equal fingerprints; texts with equal fingerprints may differ, so whoever finds two must compare the texts.
That happens for longer texts that differ only in the middle, and by chance about once in 2**64 pairs.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.rules.values import Column

Fingerprints: TypeAlias = npt.NDArray[np.uint64]
Places: TypeAlias = npt.NDArray[np.int64]

WORD_BYTES: Final = 8
WORDS_EACH_END: Final = 2
PART_TEXTS_MAX: Final = 16_384
MIX_LENGTH: Final = np.uint64(0x9E3779B97F4A7C15)
MIX_UP: Final = np.uint64(0xFF51AFD7ED558CCD)
MIX_UP_AGAIN: Final = np.uint64(0xC4CEB9FE1A85EC53)
HALF: Final = np.uint64(32)
TOP: Final = np.uint64(48)
UPPER_DIGITS: Final = (HALF, TOP)
BITS: Final = np.array([1 << bit for bit in range(8)], np.uint8)
MARKS_LOG2_MIN: Final = 10
MARKS_LOG2_MAX: Final = 31
ENDINGS_ROOM_LOG2: Final = 4
WHOLE_ROOM_LOG2: Final = 6


class Texts:
    """A column of texts as bytes: every byte begins a word, with room before the first text and after the last."""

    def __init__(self, texts: Column) -> None:
        _, offsets, data = texts.buffers()
        ends = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1].astype(np.int64)
        padding = WORDS_EACH_END * WORD_BYTES
        padded = np.zeros(int(ends[-1] - ends[0]) + 2 * padding, np.uint8)
        if ends[-1] > ends[0]:
            padded[padding:-padding] = np.frombuffer(data, np.uint8)[ends[0] : ends[-1]]
        self._words: Fingerprints = np.ndarray((len(padded) - WORD_BYTES + 1,), "<u8", padded, strides=(1,))
        places = ends + (padding - ends[0])
        self._begins, self._stops = places[:-1], places[1:]
        self.lengths = np.diff(ends)

    def from_start(self, before: int, which: Any = slice(None)) -> Fingerprints:
        """Return the words that lie so many bytes from the starts of their texts."""
        words: Fingerprints = self._words[self._begins[which] + before]
        beyond = self._beyond(before, which)
        return words if beyond is None else words << beyond

    def from_end(self, before: int, which: Any = slice(None)) -> Fingerprints:
        """Return the words that lie so many bytes from the ends of their texts."""
        words: Fingerprints = self._words[self._stops[which] - (before + WORD_BYTES)]
        beyond = self._beyond(before, which)
        return words if beyond is None else words >> beyond

    def _beyond(self, before: int, which: Any) -> Fingerprints | None:
        """Return how many bits of each word lie beyond its text; None if none do."""
        there = self.lengths[which] - before
        if there.size == 0 or there.min() >= WORD_BYTES:
            return None
        bits: Fingerprints = ((WORD_BYTES - np.minimum(there, WORD_BYTES)) * 8).astype(np.uint64)
        return bits


def fingerprints(texts: Column, at_once: int = PART_TEXTS_MAX) -> Fingerprints:
    """Return the fingerprints of a column of texts; a null counts as the empty text."""
    parts = (_fingerprints(Texts(part)) for part in parts_of(texts, at_once))
    return np.concatenate([np.empty(0, np.uint64), *parts])


def _fingerprints(texts: Texts) -> Fingerprints:
    mixed = texts.lengths.astype(np.uint64) * MIX_LENGTH
    for number in range(WORDS_EACH_END):
        before = number * WORD_BYTES
        # What is done to a text depends on that text alone: one whose bytes were all seen is left as it is.
        longer = texts.lengths > 2 * before
        if longer.all():
            mixed = _mixed(_mixed(mixed, texts.from_start(before)), texts.from_end(before))
        elif longer.any():
            some = np.flatnonzero(longer)
            seen = _mixed(mixed[some], texts.from_start(before, some))
            mixed[some] = _mixed(seen, texts.from_end(before, some))
    return _mixed(mixed, MIX_LENGTH)


def _endings(texts: Column) -> Fingerprints:
    """Return a poorer and cheaper number per text, of its length and its last word; zero for the empty text."""
    _, offsets, data = texts.buffers()
    ends = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    stops, lengths = ends[1:], np.diff(ends)
    shortest = int(lengths.min())
    # Words are read where they lie: copying the texts would take longer than all the rest. Those of the first few
    # texts would begin before the buffer.
    first = int(np.searchsorted(stops, WORD_BYTES))
    last = np.empty(len(texts), np.uint64)
    last[:first] = Texts(texts.slice(0, first)).from_end(0) if first else 0
    if first < len(texts):
        words: Fingerprints = np.ndarray((data.size - WORD_BYTES + 1,), "<u8", data, strides=(1,))
        last[first:] = words[np.subtract(stops[first:], WORD_BYTES, dtype=np.intp)]
        if shortest < WORD_BYTES:
            last[first:] >>= ((WORD_BYTES - np.minimum(lengths[first:], WORD_BYTES)) * 8).astype(np.uint64)
    last ^= lengths.astype(np.uint64) * MIX_LENGTH
    last *= MIX_UP
    if shortest == 0:
        last[lengths == 0] = 0  # shifting a word by its whole width leaves it as it was
    return last


def _mixed(mixed: Fingerprints, word: "Fingerprints | np.uint64") -> Fingerprints:
    """Stir a word in: multiplying spreads a difference to the bits above it, shifting to those below."""
    mixed = (mixed ^ word) * MIX_UP
    mixed ^= mixed >> HALF
    mixed *= MIX_UP_AGAIN
    return mixed


def first_of_runs(ascending: "npt.NDArray[Any]") -> Places:
    """Return where each distinct number of an ascending sequence stands first."""
    # numpy's own way of asking this loads a module that takes longer than most writes.
    changes = np.flatnonzero(ascending[1:] != ascending[:-1]) + 1
    return np.concatenate([np.zeros(min(1, len(ascending)), np.int64), changes])


def occurring_twice(parts: Iterable[Fingerprints]) -> Fingerprints:
    """Return, ascending, the fingerprints that occur more than once."""
    every = np.concatenate([np.empty(0, np.uint64), *parts])
    for shift in UPPER_DIGITS:
        every = in_digit_order(every, shift)
    upper = every >> HALF  # which nearly all of them differ in, so that hardly any is left to be sorted
    is_next = np.concatenate([[False], upper[1:] == upper[:-1]]) if len(upper) else np.zeros(0, np.bool_)
    some = np.sort(every[is_next | np.concatenate([is_next[1:], [False]])]) if is_next.any() else every[:0]
    again: Fingerprints = some[1:][some[1:] == some[:-1]]
    return again[first_of_runs(again)]


def in_digit_order(numbers: Fingerprints, shift: np.uint64) -> Fingerprints:
    """Return numbers in the order of sixteen of their bits, and where those are equal as they were.

    Sixteen bits are sorted by counting, in a seventh of the time that comparing takes.
    """
    return numbers[np.argsort((numbers >> shift).astype(np.uint16), kind="stable")]


def with_fingerprint(column: Column, wanted: Fingerprints) -> Places:
    """Return the places of the texts that have one of these fingerprints, which are ascending."""
    seen = fingerprints(column)
    if not len(wanted) or not len(seen):
        return np.empty(0, np.int64)
    nearest = np.minimum(np.searchsorted(wanted, seen), len(wanted) - 1)
    return cast("Places", np.flatnonzero(wanted[nearest] == seen))


class _Marks:
    """A set of numbers by their upper bits, one bit of memory each: it may hold more than was put in, never less."""

    def __init__(self, numbers: int, room_log2: int) -> None:
        bits = min(MARKS_LOG2_MAX, max(MARKS_LOG2_MIN, numbers.bit_length() + room_log2))
        self._shift = np.uint64(64 - bits)
        self._table = np.zeros(1 << (bits - 3), np.uint8)

    def add(self, numbers: Fingerprints) -> None:
        """Put numbers in."""
        slots = self._slots(numbers)
        places, bits = slots >> 3, BITS.take(slots & 7)
        while len(places):
            # Of several for one byte the last stays, so the others are put in again: a third of the time of `.at`.
            self._table[places] |= bits
            lost = np.flatnonzero((self._table.take(places) & bits) == 0)
            places, bits = places[lost], bits[lost]

    def which(self, numbers: Fingerprints) -> Places:
        """Return the places of the numbers that are in."""
        slots = self._slots(numbers)
        found = self._table.take(slots >> 3, mode="clip")
        found &= BITS.take(slots & 7, mode="clip")
        return cast("Places", np.flatnonzero(found))

    def _slots(self, numbers: Fingerprints) -> Places:
        return (numbers >> self._shift).view(np.int64)


class Sieve:
    """Holds texts and lets them through; of others hardly one in a thousand."""

    def __init__(self, held: Iterable[Column]) -> None:
        parts = [part for column in held for part in parts_of(column)]
        count = max(1, sum(map(len, parts)))
        self._endings = _Marks(count, ENDINGS_ROOM_LOG2)
        self._whole = _Marks(count, WHOLE_ROOM_LOG2)
        for part in parts:
            self._endings.add(_endings(part))
            self._whole.add(_fingerprints(Texts(part)))

    def admitted(self, column: Column) -> Places:
        """Return the places of the texts that get through, ascending."""
        found, start = [np.empty(0, np.int64)], 0
        for part in parts_of(column):
            found.append(self._admitted(part) + start)
            start += len(part)
        return np.concatenate(found)

    def _admitted(self, texts: Column) -> Places:
        # The ending turns nearly all others away, so the whole fingerprint is made of few.
        places = self._endings.which(_endings(texts))
        if len(places):
            places = places[self._whole.which(_fingerprints(Texts(texts.take(pa.array(places)))))]
        return places


def parts_of(column: Column, most: int = PART_TEXTS_MAX) -> Iterator[Column]:
    """Yield a column in parts that fit the processor's caches, and that other threads can wait for."""
    for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
        for start in range(0, len(chunk), most):
            yield chunk.slice(start, most)
