"""Writing rows into new files of a table that nothing refers to yet, a part of the input at a time."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
from lance import LanceDataset
from lance.file import LanceFileSession
from lance.fragment import FragmentMetadata, write_fragments

from omnigraph.errors import InvalidOptionError, OmnigraphError
from omnigraph.model.staged import Replacement
from omnigraph.rules.arrow_schema import is_blob
from omnigraph.rules.values import Column
from omnigraph.storage.lance_door import STORAGE_VERSION, file_name
from omnigraph.storage.lance_encoding import looked_at, writing
from omnigraph.storage.lance_fresh import FRESH_ROWS, is_few
from omnigraph.storage.lance_ids import KNOWN_IDS, SMALL_FILE_ROWS_MAX
from omnigraph.storage.lance_rows import DATA, UnsignedNumbers, fitted, fragment_text, pack, stored_schema, translated
from omnigraph.storage.roots import StorageOptions
from omnigraph.storage.row_scratch import MEMORY_BYTES_DEFAULT, gathered, pieces


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteLimits:
    """How large files may get, and how much of an upsert's input is held before it goes to a local file.

    Lance looks at bytes after every batch, so a file may be larger by one part of the input (16 MiB, or
    one row if that is larger), and its own buffers come on top.
    """

    rows_per_file: int = 1_048_576
    bytes_per_file: int = 4 * 2**30
    scratch_memory_bytes: int = MEMORY_BYTES_DEFAULT
    scratch_folder: str | None = None

    def __post_init__(self) -> None:
        for name in ("rows_per_file", "bytes_per_file"):
            if getattr(self, name) < 1:
                raise InvalidOptionError(f"{name} must be at least 1", option=name)


LIMITS: Final = WriteLimits()


@dataclass(slots=True)
class Written:
    """New fragments of one table, with all the files they are made of."""

    handle: LanceDataset
    limits: WriteLimits
    options: StorageOptions
    fragments: list[FragmentMetadata] = field(default_factory=list)

    @property
    def texts(self) -> tuple[str, ...]:
        """The fragments as Lance's JSON text."""
        return tuple(fragment_text(fragment) for fragment in self.fragments)

    @property
    def rows(self) -> int:
        """How many rows were written."""
        return sum(int(fragment.physical_rows) for fragment in self.fragments)

    @property
    def bytes(self) -> int:
        """How large the data files are; separately stored blobs are not counted."""
        return sum(int(file.file_size_bytes or 0) for fragment in self.fragments for file in fragment.files)

    @property
    def files(self) -> tuple[str, ...]:
        """The names of data files, and of the blob files beside them that Lance's metadata does not mention."""
        return file_names(self.handle, self.fragments, self.options)

    def write(self, batches: Iterable[pa.RecordBatch]) -> "Written":
        """Stream rows into new files; what the source raises is raised as it is, and nothing is kept."""
        schema = stored_schema(self.handle)
        source = _Watched(batches, schema)
        try:
            with translated(f"rows for {self.handle.uri} can not be staged", self.options):
                rows, quick = looked_at(source.batches())
                self.fragments += write_fragments(
                    pa.RecordBatchReader.from_batches(schema, rows),
                    writing(self.handle, quick, self.options),
                    mode="append",
                    schema=schema,
                    data_storage_version=STORAGE_VERSION,
                    max_rows_per_file=self.limits.rows_per_file,
                    max_bytes_per_file=self.limits.bytes_per_file,
                )
        except OmnigraphError:
            if source.problem is not None:
                raise source.problem from None
            raise
        if len(self.fragments) == 1:
            if source.small_ids is not None:
                KNOWN_IDS.written(self.fragments[0], source.small_ids)
            if source.few is not None:
                FRESH_ROWS.written(file_name(self.fragments[0]), source.few)
        return self

    def carrying(self, row_ids: UnsignedNumbers) -> tuple[Replacement, ...]:
        """Return the fragments with the row ids their rows, in their order, take over."""
        ends = np.cumsum([int(fragment.physical_rows) for fragment in self.fragments])
        parts = np.split(row_ids, ends[:-1]) if self.fragments else []
        return tuple(replacement(*both) for both in zip(self.fragments, parts, strict=True))


def replacement(fragment: FragmentMetadata, row_ids: UnsignedNumbers) -> Replacement:
    """Return a new fragment with the ids of the rows it replaces."""
    # Lance takes fewer ids than rows to mean that the rest is new: that must not happen here.
    assert len(row_ids) == fragment.physical_rows  # noqa: S101  only a bug can break it
    return Replacement(fragment=fragment_text(fragment), row_ids=pack(row_ids))


def file_names(handle: LanceDataset, fragments: Iterable[FragmentMetadata], options: StorageOptions) -> tuple[str, ...]:
    """Return the files of new fragments, relative to the table."""
    names = [name for fragment in fragments for name in (file_name(fragment), *map(_path, fragment.files[1:]))]
    found = [f"{DATA}/{name}" for name in names]
    if names and any(is_blob(column) for column in handle.schema):
        with translated(f"the blobs staged for {handle.uri} can not be listed", options):
            session = LanceFileSession(handle.uri, storage_options=options.for_clients() or None)
            for name in names:
                found += sorted(session.list(f"{DATA}/{name.removesuffix('.lance')}"))
    return tuple(found)


def _path(file: Any) -> str:
    return str(file.path)


class _Watched:
    """A source of rows, cut to size, that remembers what it raised: Lance only keeps the text."""

    def __init__(self, source: Iterable[pa.RecordBatch], schema: pa.Schema) -> None:
        self._source = source
        self._schema = schema
        self._rows = self._bytes = 0
        self.problem: Exception | None = None
        self.small_ids: list[Column] | None = []
        """The ids that went through, unless they are many."""
        self.few: list[pa.RecordBatch] | None = []
        """The rows that went through, unless they are more than a few."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        try:
            yield from gathered(self._pieces())
        except Exception as problem:
            self.problem = problem
            raise

    def _pieces(self) -> Iterator[pa.RecordBatch]:
        for batch in self._source:
            for piece in pieces(batch):
                yield self._noted(fitted(piece, self._schema))

    def _noted(self, piece: pa.RecordBatch) -> pa.RecordBatch:
        self._rows += piece.num_rows
        self._bytes += piece.nbytes
        if self._rows > SMALL_FILE_ROWS_MAX:
            self.small_ids = None
        elif self.small_ids is not None and "id" in piece.schema.names:
            self.small_ids.append(piece.column("id"))
        if not is_few(self._rows, self._bytes):
            self.few = None
        elif self.few is not None:
            self.few.append(piece)
        return piece
