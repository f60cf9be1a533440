"""Which rows of a version are already what an upsert says: read by row id, compared a bounded part at a time."""

from collections.abc import Iterator
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from lance import LanceDataset

from omnigraph.rules.arrow_schema import is_blob
from omnigraph.rules.same_rows import same_rows, same_values
from omnigraph.rules.values import Column, compute
from omnigraph.storage.lance_rows import ROW_ID, Located, scan_blob_sizes, scan_row_ids
from omnigraph.storage.row_scratch import Scratch

COMPARE_ROWS_MAX: Final = 65_536
COMPARE_BLOB_BYTES_MAX: Final = 64 * 2**20
NO_BLOB: Final = -1

Places: TypeAlias = "npt.NDArray[np.int64]"
Verdicts: TypeAlias = "npt.NDArray[np.bool_]"


class Comparison:
    """Located rows beside the rows given for them; a place is a rank in the order of row ids."""

    def __init__(self, handle: LanceDataset, scratch: Scratch, found: Located) -> None:
        self._handle = handle
        self._scratch = scratch
        plain = [column for column in handle.schema if column.name != "id" and not is_blob(column)]
        self._narrow = [column.name for column in plain if _is_narrow(column.type)]
        self._wide = [column.name for column in plain if not _is_narrow(column.type)]
        self._blobs = [column.name for column in handle.schema if is_blob(column)]
        self._order = np.argsort(found.row_ids, kind="stable")
        self._row_ids = found.row_ids[self._order]
        self._numbers = found.numbers[self._order]

    def same(self) -> Verdicts:
        """Return one verdict per located row, in the order they were located in."""
        verdict = np.ones(len(self._row_ids), np.bool_)
        # Narrow columns first: rows that differ there need not be read any further, and mostly that is where they do.
        for columns in filter(None, (self._narrow, self._wide)):
            self._compare_columns(columns, verdict)
        for name in self._blobs:
            self._compare_blobs(name, verdict)
        asked = np.empty_like(verdict)
        asked[self._order] = verdict
        return asked

    def _compare_columns(self, columns: list[str], verdict: Verdicts) -> None:
        """Compare rows that agree so far; one that can not be read does not agree."""
        agreed = np.flatnonzero(verdict)
        verdict[agreed] = False
        for start in range(0, len(agreed), COMPARE_ROWS_MAX):
            wanted = self._row_ids[agreed[start : start + COMPARE_ROWS_MAX]]
            for batch in scan_row_ids(self._handle, wanted, columns):
                places = self._places(batch)
                for at, given in self._given(places, columns):
                    there = batch.slice(at.start, given.num_rows).select(columns)
                    verdict[places[at]] = np.asarray(same_rows(there, given))

    def _compare_blobs(self, name: str, verdict: Verdicts) -> None:
        """Compare blobs of rows that agree so far: sizes first, then the bytes of those of equal size."""
        agreed = np.flatnonzero(verdict)
        for start in range(0, len(agreed), COMPARE_ROWS_MAX):
            places = agreed[start : start + COMPARE_ROWS_MAX]
            for batch in scan_blob_sizes(self._handle, self._row_ids[places], name):
                self._compare_sizes(name, batch, verdict)

    def _compare_sizes(self, name: str, batch: pa.RecordBatch, verdict: Verdicts) -> None:
        places = self._places(batch)
        there = _sizes(compute.struct_field(batch.column(name), "size"))
        for at, given in self._given(places, [name]):
            wanted = _sizes(compute.binary_length(_bytes_of(given.column(name))))
            verdict[places[at]] = wanted == there[at]
        again = verdict[places] & (there > 0)
        for group in _groups(places[again], there[again]):
            self._compare_bytes(name, group, verdict)

    def _compare_bytes(self, name: str, places: Places, verdict: Verdicts) -> None:
        for batch in scan_row_ids(self._handle, self._row_ids[places], [name]):
            found = self._places(batch)
            for at, given in self._given(found, [name]):
                there = batch.column(name).slice(at.start, given.num_rows)
                verdict[found[at]] = np.asarray(same_values(there, _bytes_of(given.column(name))))

    def _given(self, places: Places, columns: list[str]) -> Iterator[tuple[slice, pa.RecordBatch]]:
        """Yield what was given for these places, a part at a time, with where the part lies among them."""
        done = 0
        for part in self._scratch.rows_at(self._numbers[places], columns):
            yield slice(done, done + part.num_rows), part
            done += part.num_rows

    def _places(self, batch: pa.RecordBatch) -> Places:
        return np.searchsorted(self._row_ids, np.asarray(batch.column(ROW_ID), np.uint64)).astype(np.int64)


def _is_narrow(kind: pa.DataType) -> bool:
    return pa.types.is_primitive(kind)


def _bytes_of(blobs: Column) -> Column:
    """Return the bytes of blobs in the form they are written in; null where there is no blob."""
    return compute.struct_field(blobs, [0])


def _sizes(lengths: Column) -> Places:
    whole = compute.fill_null(compute.cast(lengths, pa.int64()), NO_BLOB)
    return np.asarray(whole, np.int64)


def _groups(places: Places, sizes: Any) -> Iterator[Places]:
    """Split rows so that the blobs of a group are bounded together; one that is larger is alone."""
    start, total = 0, 0
    for number, size in enumerate(sizes):
        if total and total + int(size) > COMPARE_BLOB_BYTES_MAX:
            yield places[start:number]
            start, total = number, 0
        total += int(size)
    if start < len(places):
        yield places[start:]
