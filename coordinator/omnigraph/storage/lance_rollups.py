"""Rolling up: of the files of many small commits at the end of a table, one is made while the next commit is sealed.

Every file costs each reader as much as ten thousand rows, and each version a line in its list of files. So whoever
seals rows on a version that ends in many small fragments writes those anew as one first, and seals on what that gives.
No row changes, no row id, and not the order of rows. Nobody depends on it: if it can not be done, the version is sealed
on as it is. Fragments with an index are left to `optimize`, which indexes what it writes, and so are blobs.
"""

import threading
from collections import OrderedDict
from collections.abc import Collection, Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
from lance import LanceDataset, LanceOperation
from lance.fragment import FragmentMetadata, RowIdSequence

from omnigraph.errors import CorruptGraphError, OmnigraphError
from omnigraph.failpoints import MaintenancePoint, reach
from omnigraph.model.staged import StagedAppend, StagedUpsert
from omnigraph.observing import logger
from omnigraph.rules.arrow_schema import is_blob
from omnigraph.rules.rollups import SMALL_BYTES_MAX, SMALL_FRAGMENTS_MAX, SMALL_ROWS_MAX, is_due, rolled_up
from omnigraph.storage.lance_detached import committed, named
from omnigraph.storage.lance_door import VERSIONS
from omnigraph.storage.lance_rows import ROW_ID, translated
from omnigraph.storage.lance_written import LIMITS, Written
from omnigraph.storage.roots import StorageOptions

KEPT_MAX: Final = 8

log = logger(__name__)


class _Rollups:
    """What was rolled up last, so that what is sealed twice on one version is not rolled up twice."""

    def __init__(self) -> None:
        self._made: OrderedDict[tuple[str, int], LanceDataset] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, handle: LanceDataset) -> LanceDataset | None:
        with self._lock:
            return self._made.get((handle.uri, int(handle.version)))

    def keep(self, handle: LanceDataset, made: LanceDataset) -> None:
        with self._lock:
            self._made[handle.uri, int(handle.version)] = made
            while len(self._made) > KEPT_MAX:
                self._made.popitem(last=False)


_ROLLUPS: Final = _Rollups()


def with_few_files(handle: LanceDataset, staged: StagedAppend | StagedUpsert, options: StorageOptions) -> LanceDataset:
    """Return a version with the same rows to seal work on: the same, or one that does not end in many small files."""
    if not is_due(len(handle.fragment_ids()), len(staged.fragments)):
        return handle
    touched = set() if isinstance(staged, StagedAppend) else {each.out.fragment for each in staged.deletions}
    known = _ROLLUPS.of(handle)
    if known is not None:
        return known if touched <= set(known.fragment_ids()) else handle
    try:
        with translated(f"small files of {handle.uri} can not be rolled up", options):
            made = _rolled_up(handle, touched, options)
    except OmnigraphError as problem:
        log.warning("%s; the write goes on without", problem.message)
        return handle
    if made is not handle:
        VERSIONS.keep(handle.uri, made, options)
        _ROLLUPS.keep(handle, made)
    return made


def _rolled_up(handle: LanceDataset, touched: Collection[int], options: StorageOptions) -> LanceDataset:
    if any(is_blob(column) for column in handle.schema):
        return handle
    small = _small_at_the_end(handle, touched)
    some = small[len(small) - rolled_up([int(each.num_rows) for each in small]) :]
    if not some:
        return handle
    row_ids: list[Any] = []

    def batches() -> Iterator[pa.RecordBatch]:
        chosen: Any = [handle.get_fragment(int(each.id)) for each in some]
        for batch in handle.scanner(fragments=chosen, with_row_id=True).to_reader():
            row_ids.append(batch.column(ROW_ID))
            yield batch.drop_columns([ROW_ID])

    written = Written(handle, LIMITS, options).write(batches()).fragments
    reach(MaintenancePoint.ROLLUP_WRITTEN)
    _number(handle, written, row_ids)
    made = committed(handle, LanceOperation.Rewrite([LanceOperation.RewriteGroup(named(some), written)], []))
    expected = (int(handle.count_rows()), len(handle.fragment_ids()) - len(some) + len(written))
    if (int(made.count_rows()), len(made.fragment_ids())) != expected:
        raise CorruptGraphError(f"what was rolled up of {handle.uri} is not what was there")
    reach(MaintenancePoint.ROLLUP_SEALED)
    return made


def _small_at_the_end(handle: LanceDataset, touched: Collection[int]) -> list[FragmentMetadata]:
    """Return the last fragments that are small, that no index covers and that nobody is about to take rows out of.

    What is added later has a higher number than what was there, so the last ones are those of the highest numbers.
    """
    left = {int(n) for index in handle.describe_indices() for part in index.segments for n in part.fragment_ids}
    left |= set(touched)
    found: list[FragmentMetadata] = []
    for number in reversed(list(handle.fragment_ids())[-SMALL_FRAGMENTS_MAX:]):
        fragment: Any = handle.get_fragment(number)
        metadata = fragment.metadata
        size = sum(int(file.file_size_bytes or SMALL_BYTES_MAX) for file in metadata.files)
        if number in left or metadata.physical_rows > SMALL_ROWS_MAX or size > SMALL_BYTES_MAX:
            break
        found.append(metadata)
    return found[::-1]


def _number(handle: LanceDataset, fragments: list[FragmentMetadata], row_ids: list[Any]) -> None:
    """Give new fragments the row ids of their rows, and numbers beyond all there are."""
    every = np.concatenate([np.asarray(each, np.uint64) for each in row_ids])
    ends = np.cumsum([int(each.physical_rows) for each in fragments])
    if not len(ends) or int(ends[-1]) != len(every):
        raise CorruptGraphError(f"{len(every)} rows of {handle.uri} were read, and others written")
    last = max(handle.fragment_ids())
    for number, (fragment, part) in enumerate(zip(fragments, np.split(every, ends[:-1]), strict=True), last + 1):
        fragment.id = number
        fragment.row_id_meta = RowIdSequence(pa.array(part, pa.uint64())).to_inline_metadata()
