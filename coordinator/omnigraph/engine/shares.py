"""Reading one table in several processes: a plan of shares, each of which can be read anywhere.

A share names a version and some of its fragments. Whoever reads one opens that version and looks at nothing else: not
at the manifest, and so at no newer state.
"""

import heapq
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from omnigraph.storage.lance_door import FragmentSize, Predicate, Scan, Tables
from omnigraph.storage.roots import StorageOptions

SHARE_BYTES_MIN: Final = 2**20
SHARE_BYTES_MAX: Final = 128 * 2**20
BATCH_BYTES: Final = 16 * 2**20  # as stored; often a few times as much in memory
BATCH_ROWS_MIN, BATCH_ROWS_MAX = 64, 131_072
FILTERED_PART: Final = 0.25
PART_LEAST: Final = 1 / 32  # a guess: one column may hold nearly all there is
ROW_BYTES_LEAST: Final = 8  # a fragment of many tiny rows is work too


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """Some fragments of one table at one version: all that a task on another machine needs to read them."""

    uri: str
    version: int
    fragments: tuple[int, ...]
    columns: tuple[str, ...]
    options: StorageOptions
    where: Predicate | None = None
    limit: int | None = None
    batch_rows: int | None = None
    with_places: bool = False

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Stream the rows, with the columns in the order they were asked for."""
        request = Scan(
            columns=self.columns,
            where=self.where,
            limit=self.limit,
            fragments=self.fragments,
            batch_rows=self.batch_rows,
            with_places=self.with_places,
        )
        return iter(Tables(self.options).scan(self.uri, self.version, request))


def shares_wanted(fragments: Sequence[FragmentSize], parallelism: int, part: float = 1.0) -> int:
    """Return how many shares to make: one for each that can work at once, fewer of a small table, more of a large.

    Of a large one as many times more as it takes, so that nobody is left with a last share while the others rest.
    ``part`` is how much of the fragments is likely to be read.
    """
    weight = math.ceil(sum(map(_weight, fragments)) * max(part, PART_LEAST))
    rounds = -(-weight // (SHARE_BYTES_MAX * parallelism))
    return min(parallelism * rounds, -(-weight // SHARE_BYTES_MIN))


def part_read(wanted: int, of: int, *, is_filtered: bool) -> float:
    """Guess how much of some fragments is read for so many of their columns; of most rows a filter keeps nothing."""
    return (wanted / max(1, of)) * (FILTERED_PART if is_filtered else 1.0)


def rows_at_once(fragments: Sequence[FragmentSize]) -> int:
    """Return how many rows to read at a time: many, as long as they are not large."""
    rows = max(1, sum(fragment.rows for fragment in fragments))
    each = max(1, sum(fragment.bytes for fragment in fragments) // rows)
    return max(BATCH_ROWS_MIN, min(BATCH_ROWS_MAX, BATCH_BYTES // each))


def balanced(fragments: Sequence[FragmentSize], shares: int) -> list[tuple[int, ...]]:
    """Deal fragments out into at most so many groups of about equal size; each keeps the order of the table."""
    groups: list[list[int]] = [[] for _ in range(max(1, min(shares, len(fragments))))]
    heaviest_first = sorted(fragments, key=lambda each: (-_weight(each), each.number))
    loads = [(0, number) for number in range(len(groups))]
    for fragment in heaviest_first:
        load, group = heapq.heappop(loads)
        groups[group].append(fragment.number)
        heapq.heappush(loads, (load + _weight(fragment), group))
    return sorted(tuple(sorted(group)) for group in groups if group)


def enough_for(fragments: Sequence[FragmentSize], limit: int | None) -> Sequence[FragmentSize]:
    """Return the first fragments that have as many rows as are wanted; all of them if any number is."""
    if limit is None:
        return fragments
    rows = 0
    for number, fragment in enumerate(fragments):
        rows += fragment.rows
        if rows >= limit:
            return fragments[: number + 1]
    return fragments


def _weight(fragment: FragmentSize) -> int:
    return max(1, fragment.bytes, fragment.rows * ROW_BYTES_LEAST)
