"""Many keys are looked up by an index in shares, some of them at once.

Lance searches a page of an index for all keys of a filter, and reads one page after the other. Keys that are neighbours
lie in the same pages, so two shares of neighbours need hardly more pages than one look-up of all, and two cores.
"""

import os
from collections.abc import Callable
from typing import Final, TypeVar

import pyarrow.compute as pc

from omnigraph.observing import Threads
from omnigraph.rules.values import Column, compute
from omnigraph.storage.lance_door import IDS_PER_LOOKUP_MAX

SHARE_KEYS_MIN: Final = 500
LOOKUPS_AT_ONCE: Final = max(1, min(8, os.cpu_count() or 1))

T = TypeVar("T")


def each_share(column: str, keys: Column, look: Callable[[pc.Expression], T]) -> list[T]:
    """Look for keys in a column, a share of them at a time; each row is found once."""
    share = max(SHARE_KEYS_MIN, min(IDS_PER_LOOKUP_MAX, -(-len(keys) // LOOKUPS_AT_ONCE)))
    if len(keys) <= share:
        return [look(pc.field(column).isin(keys))]
    once = compute.unique(keys)
    ordered = once.take(compute.sort_indices(once))
    shares = [pc.field(column).isin(ordered.slice(start, share)) for start in range(0, len(ordered), share)]
    with Threads(min(len(shares), LOOKUPS_AT_ONCE)) as pool:
        return list(pool.map(look, shares))
