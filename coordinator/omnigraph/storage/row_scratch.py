"""Rows kept aside so that they can be read again in any order: in memory while few, then in a local file."""

import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.rules.fingerprints import first_of_runs

Numbers: TypeAlias = "npt.NDArray[np.int64] | npt.NDArray[np.uint64]"

MEMORY_BYTES_DEFAULT: Final = 64 * 2**20
PIECE_ROWS_MAX: Final = 131_072
PIECE_BYTES_MAX: Final = 16 * 2**20
GOOD_ROWS_MIN: Final = 32_768
GOOD_BYTES_MIN: Final = 4 * 2**20
GATHER_ROWS_MAX: Final = 131_072
GATHER_BYTES_MAX: Final = 16 * 2**20


def pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Cut a batch into parts small enough to be held, written and counted one at a time."""
    if batch.num_rows == 0:
        return
    each = max(1, PIECE_BYTES_MAX * batch.num_rows // max(1, batch.nbytes))
    step = min(each, PIECE_ROWS_MAX)
    for start in range(0, batch.num_rows, step):
        yield batch.slice(start, step)


def gathered(parts: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Put small batches together until they are of a size that pays.

    Lance takes a slice for as large as what it is a slice of, and ends a page with every one that seems large. So rows
    that come in small slices of a large table, as its readers give them, took it four times as long to write.
    """
    waiting: list[pa.RecordBatch] = []
    for part in parts:
        waiting.append(part)
        is_much = sum(each.num_rows for each in waiting) >= GOOD_ROWS_MIN
        if is_much or sum(each.nbytes for each in waiting) >= GOOD_BYTES_MIN:
            yield _as_one(waiting)
            waiting = []
    if waiting:
        yield _as_one(waiting)


def _as_one(parts: list[pa.RecordBatch]) -> pa.RecordBatch:
    return parts[0] if len(parts) == 1 else _joined(parts)


class Scratch:
    """A context manager that takes rows once, in order, and gives them back by number as often as asked.

    At most ``memory_bytes`` of them are held; more go to an unnamed local file that is gone when the
    block ends, however it ends. Reading maps that file, so the pages in use are the system's to drop.
    """

    def __init__(self, schema: pa.Schema, *, memory_bytes: int, folder: str | None) -> None:
        self._schema = schema
        # Without its metadata, so that reading back makes no extension types out of what names one.
        self._stored = pa.schema([pa.field(f.name, f.type, f.nullable) for f in schema])
        self._memory_bytes = memory_bytes
        self._folder = folder
        self._held: list[pa.RecordBatch] = []
        self._held_bytes = 0
        self._lengths: list[int] = []
        self._place: tempfile.TemporaryDirectory[str] | None = None
        self._writer: Any = None
        self._file: Any = None
        self._reading = threading.Lock()
        self._starts: npt.NDArray[np.int64] = np.zeros(1, np.int64)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._writer is not None:
            self._writer.close()
        self._file, self._held = None, []
        if self._place is not None:
            self._place.cleanup()

    @property
    def rows(self) -> int:
        """How many rows were taken."""
        return sum(self._lengths)

    @property
    def is_on_disk(self) -> bool:
        """Whether there were too many rows to hold."""
        return self._place is not None

    def fill(self, batches: Iterable[pa.RecordBatch], seen: Callable[[pa.RecordBatch], None]) -> None:
        """Take all rows, showing each part to ``seen`` on its way; afterwards they can be read."""
        for batch in batches:
            for piece in pieces(batch):
                seen(piece)
                self._add(pa.RecordBatch.from_arrays(piece.columns, schema=self._stored))
        if self._writer is not None:
            self._writer.close()
            self._writer = None
            self._file = pa.ipc.open_file(pa.memory_map(self._path))
        self._starts = np.cumsum([0, *self._lengths], dtype=np.int64)

    def rows_at(self, numbers: Numbers, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows with these numbers, in this order, a bounded part at a time."""
        for start in range(0, len(numbers), GATHER_ROWS_MAX):
            yield from self._gather(numbers[start : start + GATHER_ROWS_MAX].astype(np.int64), columns)

    @property
    def _path(self) -> str:
        assert self._place is not None  # noqa: S101  only a bug can ask for it earlier
        return str(Path(self._place.name) / "rows.arrow")

    def _add(self, piece: pa.RecordBatch) -> None:
        self._lengths.append(piece.num_rows)
        if self._place is None:
            self._held.append(piece)
            self._held_bytes += piece.nbytes
            if self._held_bytes <= self._memory_bytes:
                return
            self._place = tempfile.TemporaryDirectory(prefix="omnigraph-", dir=self._folder)
            self._writer = pa.ipc.new_file(self._path, self._stored)
            waiting, self._held = self._held, []
        else:
            waiting = [piece]
        for batch in waiting:
            self._writer.write_batch(batch)

    def _piece(self, number: int) -> pa.RecordBatch:
        if self._file is None:
            return self._held[number]
        with self._reading:  # two may read, but a file of Arrow's says nothing about reading it at once
            piece: pa.RecordBatch = self._file.get_batch(number)
            return piece

    def _gather(self, numbers: "npt.NDArray[np.int64]", columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        """Collect rows from the pieces they lie in, then put them into the order asked for."""
        order = np.argsort(numbers, kind="stable")
        ascending = numbers[order]
        inside = np.searchsorted(self._starts, ascending, side="right") - 1
        firsts = first_of_runs(inside)
        found = inside[firsts]
        parts, total = [], 0
        for number, first, end in zip(found, firsts, [*firsts[1:], len(numbers)], strict=True):
            places = ascending[first:end] - self._starts[number]
            parts.append(_selected(self._piece(int(number)), columns).take(pa.array(places)))
            total += parts[-1].nbytes
            if total > GATHER_BYTES_MAX and len(numbers) > 1:
                half = len(numbers) // 2
                yield from self._gather(numbers[:half], columns)
                yield from self._gather(numbers[half:], columns)
                return
        joined: Any = parts[0] if len(parts) == 1 else _joined(parts)
        yield self._dressed(joined.take(pa.array(np.argsort(order))))

    def _dressed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        schema = pa.schema([self._schema.field(name) for name in batch.schema.names])
        return pa.RecordBatch.from_arrays(batch.columns, schema=schema)


def _joined(parts: list[pa.RecordBatch]) -> pa.RecordBatch:
    columns: Any = [pa.concat_arrays([part.column(n) for part in parts]) for n in range(parts[0].num_columns)]
    return pa.RecordBatch.from_arrays(columns, schema=parts[0].schema)


def _selected(batch: pa.RecordBatch, columns: Sequence[str] | None) -> pa.RecordBatch:
    return batch if columns is None else batch.select(list(columns))
