"""Rows of many tables set aside on local disk, each table's in the order it came."""

import tempfile
import threading
from collections.abc import Iterator
from types import TracebackType
from typing import IO, Any, Self

import pyarrow as pa

from omnigraph.errors import StorageError


class Spool:
    """A context manager over one unnamed file: it is gone when the block ends, and when the process dies."""

    def __init__(self, folder: str | None = None) -> None:
        self._folder = folder
        self._file: IO[bytes] | None = None
        self._schemas: dict[str, pa.Schema] = {}
        self._places: dict[str, list[tuple[int, int]]] = {}
        self._rows: dict[str, int] = {}
        self._end = 0
        self._lock = threading.Lock()  # an engine reads several tables at once

    def __enter__(self) -> Self:
        try:
            self._file = tempfile.TemporaryFile(prefix="omnigraph-", dir=self._folder)
        except OSError as problem:
            raise _failed(problem) from problem
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()

    @property
    def rows(self) -> dict[str, int]:
        """How many rows each table was given."""
        return dict(self._rows)

    def open_table(self, table: str, schema: pa.Schema) -> None:
        """Name a table, also one that will be given no rows."""
        self._schemas.setdefault(table, schema)
        self._places.setdefault(table, [])
        self._rows.setdefault(table, 0)

    def add(self, table: str, batch: pa.RecordBatch) -> None:
        """Write a batch of a table that was named."""
        data = batch.serialize()
        try:
            with self._lock:
                self._open.seek(self._end)
                self._open.write(data)
        except OSError as problem:
            raise _failed(problem) from problem
        self._places[table].append((self._end, data.size))
        self._rows[table] += batch.num_rows
        self._end += data.size

    def reader(self, table: str) -> pa.RecordBatchReader:
        """Stream a table's rows, one batch in memory at a time."""
        return pa.RecordBatchReader.from_batches(self._schemas[table], self._batches(table))

    def _batches(self, table: str) -> Iterator[pa.RecordBatch]:
        read: Any = pa.ipc.read_record_batch
        for start, length in self._places[table]:
            try:
                with self._lock:
                    self._open.seek(start)
                    data = self._open.read(length)
            except OSError as problem:
                raise _failed(problem) from problem
            yield read(pa.py_buffer(data), self._schemas[table])

    @property
    def _open(self) -> IO[bytes]:
        assert self._file is not None  # noqa: S101  only a bug can ask for it outside the block
        return self._file


def _failed(problem: OSError) -> StorageError:
    return StorageError(f"the temporary file that holds the rows can not be used, so nothing was applied: {problem}")
