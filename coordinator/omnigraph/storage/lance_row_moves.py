"""Whether rows of some fragments were in others before: a row that is upserted keeps its row id and moves.

Of a row that moved, an index of its old fragment still tells what it was. Lance leaves such answers out of a BTREE,
and as long as the new fragment has no index of the same name; of other kinds it gives both answers (measured).
"""

from itertools import product
from typing import Any

import numpy as np
from lance import LanceDataset
from lance.fragment import FragmentMetadata, RowIdSequence

from omnigraph.storage.lance_rows import UnsignedNumbers


def rows_moved(handle: LanceDataset, covered: frozenset[int], others: frozenset[int]) -> bool:
    """Tell whether other fragments may have rows that were in covered ones, of which some may be gone."""
    if not covered or not others:
        return False
    there = {int(each.fragment_id): each.metadata for each in handle.get_fragments()}
    if not covered <= there.keys() or any(each.row_id_meta is None for each in there.values()):
        return True
    ranges = {number: _range(there[number]) for number in covered | others}
    return any(
        _overlap(ranges[old], ranges[new]) and np.isin(_row_ids(there[new]), _row_ids(there[old])).any()
        for old, new in product(sorted(covered), sorted(others))
    )


def _row_ids(fragment: FragmentMetadata) -> UnsignedNumbers:
    """Return the row ids of all rows that a fragment ever had."""
    noted: Any = fragment.row_id_meta
    return np.asarray(RowIdSequence.from_inline_metadata(noted).to_pyarrow(), np.uint64)


def _range(fragment: FragmentMetadata) -> tuple[int, int]:
    numbers = _row_ids(fragment)
    return (int(numbers.min()), int(numbers.max())) if len(numbers) else (0, -1)


def _overlap(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one[0] <= other[1] and other[0] <= one[1]
