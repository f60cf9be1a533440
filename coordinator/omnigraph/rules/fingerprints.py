"""A number for every text, so that equal texts are found by comparing numbers.

A fingerprint is made of a text's length, its first sixteen bytes and its last sixteen. Equal texts have
equal fingerprints; texts with equal fingerprints may differ, so whoever finds two must compare the texts.
That happens for longer texts that differ only in the middle, and by chance about once in 2**64 pairs.
"""

from collections.abc import Iterable
from typing import Final, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.rules.values import Column

Fingerprints: TypeAlias = "npt.NDArray[np.uint64]"
Places: TypeAlias = "npt.NDArray[np.int64]"

WORD_BYTES: Final = 8
WORDS_EACH_END: Final = 2
MIX_LENGTH: Final = np.uint64(0x9E3779B97F4A7C15)
MIX_UP: Final = np.uint64(0xFF51AFD7ED558CCD)
MIX_UP_AGAIN: Final = np.uint64(0xC4CEB9FE1A85EC53)
HALF: Final = np.uint64(32)
SLOTS_PER_ID_LOG2: Final = 4
SLOTS_LOG2_MAX: Final = 26


def fingerprints(texts: Column) -> Fingerprints:
    """Return the fingerprints of a column of texts; a null counts as the empty text."""
    if isinstance(texts, pa.ChunkedArray):
        return np.concatenate([np.empty(0, np.uint64), *(fingerprints(chunk) for chunk in texts.chunks)])
    if len(texts) == 0:
        return np.empty(0, np.uint64)
    _, offsets, data = texts.buffers()
    ends = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1].astype(np.int64)
    padding = WORDS_EACH_END * WORD_BYTES
    padded = np.zeros(int(ends[-1] - ends[0]) + 2 * padding, np.uint8)
    if ends[-1] > ends[0]:
        padded[padding:-padding] = np.frombuffer(data, np.uint8)[ends[0] : ends[-1]]
    # Every byte begins a word here, and there is room for words before the first text and after the last.
    words: Fingerprints = np.ndarray((len(padded) - WORD_BYTES + 1,), "<u8", padded, strides=(1,))
    begins, stops = ends[:-1] - ends[0] + padding, ends[1:] - ends[0] + padding
    lengths = stops - begins
    mixed = lengths.astype(np.uint64) * MIX_LENGTH
    for number in range(WORDS_EACH_END):
        # What is done to a text depends on that text alone: one whose bytes were all seen is left as it is.
        longer = lengths > 2 * number * WORD_BYTES
        if not longer.all():
            mixed[longer] = _with_words(mixed[longer], words, begins[longer], stops[longer], number * WORD_BYTES)
        else:
            mixed = _with_words(mixed, words, begins, stops, number * WORD_BYTES)
    return _mixed(mixed, MIX_LENGTH)


def _with_words(mixed: Fingerprints, words: Fingerprints, begins: Places, stops: Places, before: int) -> Fingerprints:
    """Stir in the words that lie ``before`` bytes from either end of their texts."""
    from_start, from_end = words[begins + before], words[stops - (before + WORD_BYTES)]
    there = np.minimum(stops - begins - before, WORD_BYTES)
    if there.size and there.min() < WORD_BYTES:
        # Only the bytes that belong to the text count.
        beyond = ((WORD_BYTES - there) * 8).astype(np.uint64)
        from_start <<= beyond
        from_end >>= beyond
    return _mixed(_mixed(mixed, from_start), from_end)


def _mixed(mixed: Fingerprints, word: "Fingerprints | np.uint64") -> Fingerprints:
    """Stir a word in: multiplying spreads a difference to the bits above it, shifting to those below."""
    mixed = (mixed ^ word) * MIX_UP
    mixed ^= mixed >> HALF
    mixed *= MIX_UP_AGAIN
    return mixed


def occurring_twice(parts: Iterable[Fingerprints]) -> Fingerprints:
    """Return, ascending, the fingerprints that occur more than once."""
    every = np.sort(np.concatenate([np.empty(0, np.uint64), *parts]))
    return np.unique(every[1:][every[1:] == every[:-1]])


class Sieve:
    """Holds fingerprints and lets through the texts that have one of them."""

    def __init__(self, held: Fingerprints) -> None:
        self._held = np.sort(held)
        bits = min(SLOTS_LOG2_MAX, max(1, len(held)).bit_length() + SLOTS_PER_ID_LOG2)
        self._bits, self._shift = np.uint64(bits), np.uint64(64 - bits)
        self._upper, self._lower = np.zeros((2, 1 << bits), np.bool_)
        self._upper[held >> self._shift] = True
        self._lower[held << self._bits >> self._shift] = True

    def admitted(self, texts: Column) -> Places:
        """Return the places of the texts that get through, ascending."""
        seen = fingerprints(texts)
        # Two looks into small tables turn nearly all others away; what is left is searched for.
        places = np.flatnonzero(self._upper[seen >> self._shift])
        places = places[self._lower[seen[places] << self._bits >> self._shift]]
        if len(places):
            nearest = np.minimum(np.searchsorted(self._held, seen[places]), len(self._held) - 1)
            places = places[self._held[nearest] == seen[places]]
        return cast("Places", places)
