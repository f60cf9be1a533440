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
SLOTS_PER_TEXT_LOG2: Final = 4
SLOTS_LOG2_MAX: Final = 26


class _Texts:
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


def fingerprints(texts: Column) -> Fingerprints:
    """Return the fingerprints of a column of texts; a null counts as the empty text."""
    return np.concatenate([np.empty(0, np.uint64), *(_fingerprints(_Texts(part)) for part in _parts(texts))])


def _fingerprints(texts: _Texts, which: Any = slice(None)) -> Fingerprints:
    lengths = texts.lengths[which]
    mixed = lengths.astype(np.uint64) * MIX_LENGTH
    for number in range(WORDS_EACH_END):
        before = number * WORD_BYTES
        # What is done to a text depends on that text alone: one whose bytes were all seen is left as it is.
        longer = lengths > 2 * before
        if longer.all():
            mixed = _mixed(_mixed(mixed, texts.from_start(before, which)), texts.from_end(before, which))
        elif longer.any():
            some = np.arange(len(texts.lengths))[which][longer]
            seen = _mixed(mixed[longer], texts.from_start(before, some))
            mixed[longer] = _mixed(seen, texts.from_end(before, some))
    return _mixed(mixed, MIX_LENGTH)


def _endings(texts: _Texts) -> Fingerprints:
    """Return a poorer and cheaper number per text, of its length and its last word; zero for the empty text."""
    last = texts.from_end(0)
    last ^= texts.lengths.astype(np.uint64) * MIX_LENGTH
    last *= MIX_UP
    if texts.lengths.min() == 0:
        last[texts.lengths == 0] = 0  # shifting a word by its whole width leaves it as it was
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
    every = np.sort(np.concatenate([np.empty(0, np.uint64), *parts]))
    again: Fingerprints = every[1:][every[1:] == every[:-1]]
    return again[first_of_runs(again)]


def with_fingerprint(column: Column, wanted: Fingerprints) -> Places:
    """Return the places of the texts that have one of these fingerprints, which are ascending."""
    seen = fingerprints(column)
    if not len(wanted) or not len(seen):
        return np.empty(0, np.int64)
    nearest = np.minimum(np.searchsorted(wanted, seen), len(wanted) - 1)
    return cast("Places", np.flatnonzero(wanted[nearest] == seen))


class Sieve:
    """Holds texts and lets through those that have the fingerprint of one of them."""

    def __init__(self, held: Iterable[Column]) -> None:
        parts = [part for column in held for part in _parts(column)]
        bits = min(SLOTS_LOG2_MAX, max(1, sum(map(len, parts))).bit_length() + SLOTS_PER_TEXT_LOG2)
        self._shift = np.uint64(64 - bits)
        self._endings, self._whole = np.zeros((2, 1 << bits), np.bool_)
        seen: list[Fingerprints] = []
        for part in parts:
            texts = _Texts(part)
            seen.append(_fingerprints(texts))
            self._endings[_endings(texts) >> self._shift] = True
            self._whole[seen[-1] >> self._shift] = True
        self._held = np.sort(np.concatenate([np.empty(0, np.uint64), *seen]))

    def admitted(self, column: Column) -> Places:
        """Return the places of the texts that get through, ascending."""
        found, start = [np.empty(0, np.int64)], 0
        for part in _parts(column):
            found.append(self._admitted(_Texts(part)) + start)
            start += len(part)
        return np.concatenate(found)

    def _admitted(self, texts: _Texts) -> Places:
        # Looks into small tables turn nearly all others away, by the ending first; what is left is searched for.
        places = np.flatnonzero(self._endings[_endings(texts) >> self._shift])
        seen = _fingerprints(texts, places)
        likely = np.flatnonzero(self._whole[seen >> self._shift])
        places, seen = places[likely], seen[likely]
        if len(places):
            nearest = np.minimum(np.searchsorted(self._held, seen), len(self._held) - 1)
            places = places[self._held[nearest] == seen]
        return cast("Places", places)


def _parts(column: Column) -> Iterator[Column]:
    """Yield a column in parts that fit the processor's caches, and that other threads can wait for."""
    for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
        for start in range(0, len(chunk), PART_TEXTS_MAX):
            yield chunk.slice(start, PART_TEXTS_MAX)
