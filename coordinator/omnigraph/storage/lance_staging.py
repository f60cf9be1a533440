"""Staging: writing data and deletion files that nothing refers to yet, and saying what they are.

A staged value is all that a seal needs. Its files are new at every call and named in the value; those
of a call that failed are named nowhere, so no seal can refer to them. Calling a function again with
the same input gives an equal value up to the names of files.

An upsert keeps rows what they are: a replaced row keeps its row id, and a row that is already what the
input says (:mod:`omnigraph.rules.same_rows` decides) is neither written nor counted as updated.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from lance import LanceDataset

from omnigraph.errors import CorruptGraphError, InvalidDataError, InvalidOptionError, StorageError
from omnigraph.model.staged import (
    Deletion,
    Replacement,
    RowSet,
    StagedAppend,
    StagedDelete,
    StagedOverwrite,
    StagedUpsert,
)
from omnigraph.observing import Threads
from omnigraph.rules.fingerprints import fingerprints, first_of_runs, occurring_twice, with_fingerprint
from omnigraph.rules.identity import repeated
from omnigraph.rules.values import Column, compute
from omnigraph.storage.lance_compare import Comparison
from omnigraph.storage.lance_door import (
    PREDICATE_CHARACTERS_MAX,
    STORAGE_WORDS,
    Predicate,
)
from omnigraph.storage.lance_rows import (
    ID_BYTES_MAX,
    ROW_ADDRESS,
    Located,
    PlacesSeen,
    UnsignedNumbers,
    fitted,
    locate,
    offsets_of,
    open_at,
    row_sets,
    stored_schema,
    translated,
    united,
)
from omnigraph.storage.lance_texts import rows_where
from omnigraph.storage.lance_written import LIMITS, WriteLimits, Written
from omnigraph.storage.roots import StorageOptions
from omnigraph.storage.row_scratch import Scratch

SAMPLE_MAX: Final = 5
BESIDE_ROWS_MIN: Final = 8_192
DELETION_SUFFIX: Final = {"array": "arrow", "bitmap": "bin"}
DELETIONS: Final = "_deletions"

Ids: TypeAlias = Column | Sequence[str]
"""Ids as an Arrow column of text, or as a plain sequence."""


def stage_append(
    uri: str,
    reader: pa.RecordBatchReader,
    *,
    base_version: int | None = None,
    limits: WriteLimits = LIMITS,
    options: StorageOptions,
) -> StagedAppend:
    """Write rows for a table whose columns are those of ``base_version``, a part of the input at a time."""
    written = Written(open_at(uri, base_version, options), limits, options).write(reader)
    return StagedAppend(fragments=written.texts, rows=written.rows, bytes=written.bytes, files=written.files)


def stage_overwrite(
    uri: str,
    reader: pa.RecordBatchReader,
    *,
    base_version: int | None = None,
    limits: WriteLimits = LIMITS,
    options: StorageOptions,
) -> StagedOverwrite:
    """Write rows that are to replace all others; there may be none."""
    # Written as an append, so that the files have the field numbers of the table and not fresh ones.
    written = Written(open_at(uri, base_version, options), limits, options).write(reader)
    return StagedOverwrite(fragments=written.texts, rows=written.rows, bytes=written.bytes, files=written.files)


def stage_upsert(
    uri: str,
    base_version: int | None,
    reader: pa.RecordBatchReader,
    *,
    limits: WriteLimits = LIMITS,
    seen: PlacesSeen | None = None,
    options: StorageOptions,
) -> StagedUpsert:
    """Work out against exactly ``base_version`` which rows are new, which differ and which do not; write those.

    Where the rows lie is looked up, unless ``seen`` knows it for all rows that ``reader`` has yielded.
    """
    handle = open_at(uri, base_version, options)
    return Upserting(handle, limits, options, seen).stage(reader)


def stage_delete(  # noqa: PLR0913  (the ways to say which rows go)
    uri: str,
    base_version: int,
    *,
    where: Predicate | None = None,
    ids: Ids | None = None,
    among: Mapping[str, Column] | None = None,
    rows: Sequence[RowSet] = (),
    options: StorageOptions,
) -> StagedDelete:
    """Take rows out of exactly ``base_version``; an empty value if none match.

    Those that a predicate holds for, those with some ids, those that have one of some texts in a column, and those
    that were found before: a row that matches in several ways goes once.
    """
    handle = open_at(uri, base_version, options)
    found = [united(rows)] if rows else []
    if where is not None:
        found.append(rows_matching(handle, where, options))
    if ids is not None:
        found.append(_with_ids(handle, ids, options))
    for column, texts in (among or {}).items():
        with translated(f"rows of {handle.uri} can not be found", options):
            found.append(np.asarray(rows_where(handle, column, texts, []).column(ROW_ADDRESS), np.uint64))
    if not found:
        raise InvalidOptionError("say which rows are to go")
    addresses = np.sort(np.concatenate(found))
    deletions, files = delete_rows(handle, addresses[first_of_runs(addresses)], options)
    return StagedDelete(base_version=int(handle.version), deletions=deletions, files=files)


def rows_matching(handle: LanceDataset, where: Predicate | None, options: StorageOptions) -> UnsignedNumbers:
    """Return the addresses of the rows that a predicate holds for."""
    if isinstance(where, str) and len(where) > PREDICATE_CHARACTERS_MAX:
        raise InvalidOptionError(
            f"the filter has {len(where)} characters; at most {PREDICATE_CHARACTERS_MAX} are allowed"
        )
    try:
        with translated(f"rows of {handle.uri} can not be found", options):
            rows = handle.scanner(columns=[], filter=where, with_row_address=True).to_reader()
            parts = [np.asarray(batch.column(ROW_ADDRESS), np.uint64) for batch in rows]
    except StorageError as problem:
        # Lance has no type for a filter it does not understand; what names no storage is the caller's.
        if any(word in problem.message for word in STORAGE_WORDS):
            raise
        raise InvalidOptionError(f"nothing was applied: {problem.message}") from None
    return np.concatenate([np.empty(0, np.uint64), *parts])


def _with_ids(handle: LanceDataset, ids: Any, options: StorageOptions) -> UnsignedNumbers:
    wanted: Column = ids if isinstance(ids, pa.Array | pa.ChunkedArray) else pa.array(ids, pa.string())
    with translated(f"rows of {handle.uri} can not be found", options):
        return locate(handle, compute.drop_null(compute.unique(wanted))).addresses


def delete_rows(
    handle: LanceDataset, addresses: UnsignedNumbers, options: StorageOptions
) -> tuple[tuple[Deletion, ...], tuple[str, ...]]:
    """Write a deletion file for every fragment these rows lie in; return them with the names of the files."""
    deletions, files = [], []
    sets = row_sets(addresses)
    with translated(f"deletions for {handle.uri} can not be staged", options):
        for rows in sets:
            file = _deletion_file(handle, rows)
            deletions.append(Deletion(out=rows, file=None if file is None else json.dumps(file)))
            if file is not None:
                files.append(deletion_name(rows.fragment, file))
    return tuple(deletions), tuple(files)


def _deletion_file(handle: LanceDataset, rows: RowSet) -> "dict[str, Any] | None":
    """Write the deletion file of one fragment; None if no row of it remains."""
    fragment: Any = handle.get_fragment(rows.fragment)
    if fragment is None:
        raise CorruptGraphError(f"{handle.uri} has no fragment {rows.fragment}, but rows of it; nothing was changed")
    left = fragment.delete_rows(offsets_of(rows).tolist())
    return None if left is None else dict(left.deletion_file.asdict())


def deletion_name(fragment: int, file: "dict[str, Any]") -> str:
    """Return where Lance keeps a deletion file, relative to the table."""
    return f"{DELETIONS}/{fragment}-{file['read_version']}-{file['id']}.{DELETION_SUFFIX[file['file_type']]}"


class Upserting:
    """One upsert against one version: find, compare, write, delete."""

    def __init__(
        self, handle: LanceDataset, limits: WriteLimits, options: StorageOptions, seen: PlacesSeen | None = None
    ) -> None:
        self._handle = handle
        self._limits = limits
        self._options = options
        self._seen = seen
        self._schema = stored_schema(handle)
        self.rewritten = Written(handle, limits, options)
        self.replacements: tuple[Replacement, ...] = ()
        self.insertions = Written(handle, limits, options)
        self.replaced: UnsignedNumbers = np.empty(0, np.uint64)
        self.unchanged: UnsignedNumbers = np.empty(0, np.uint64)

    def stage(self, batches: Iterable[pa.RecordBatch]) -> StagedUpsert:
        """Do all of it."""
        self.place(batches)
        deletions, names = delete_rows(self._handle, self.replaced, self._options)
        return StagedUpsert(
            base_version=int(self._handle.version),
            replacements=self.replacements,
            insertions=self.insertions.texts,
            deletions=deletions,
            unchanged=row_sets(self.unchanged),
            rows_inserted=self.insertions.rows,
            bytes=self.rewritten.bytes + self.insertions.bytes,
            files=self.rewritten.files + self.insertions.files + names,
        )

    def place(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Write what is new and what differs, and note where the replaced and the unchanged rows lie."""
        limits = self._limits
        ids: list[Column] = []
        with Scratch(self._schema, memory_bytes=limits.scratch_memory_bytes, folder=limits.scratch_folder) as scratch:
            scratch.fill((fitted(batch, self._schema) for batch in batches), lambda part: ids.append(part.column("id")))
            if scratch.rows == 0:
                return
            wanted = _checked_ids(ids)
            with translated(f"rows of {self._handle.uri} can not be compared", self._options):
                found = locate(self._handle, wanted) if self._seen is None else self._seen.located
            self._write(scratch, found)

    def _write(self, scratch: Scratch, found: Located) -> None:
        """Write new rows, and beside that compare the others and write those that differ."""
        is_new = np.ones(scratch.rows, np.bool_)
        is_new[found.numbers] = False
        new = np.flatnonzero(is_new)
        if len(new) < BESIDE_ROWS_MIN or not len(found):
            self._insert(scratch, new)
            self._replace(scratch, found)
            return
        with Threads(1) as beside:
            inserting = beside.submit(self._insert, scratch, new)
            self._replace(scratch, found)
            inserting.result()

    def _insert(self, scratch: Scratch, new: "npt.NDArray[np.int64]") -> None:
        if len(new):
            self.insertions.write(scratch.rows_at(new))

    def _replace(self, scratch: Scratch, found: Located) -> None:
        with translated(f"rows of {self._handle.uri} can not be compared", self._options):
            same = Comparison(self._handle, scratch, found).same()
        # In the order of row ids, because a rising sequence costs a byte per row in every later manifest, not eight.
        changed = found.pick(~same).by_row_id()
        if len(changed):
            self.rewritten.write(scratch.rows_at(changed.numbers))
            self.replacements = self.rewritten.carrying(changed.row_ids)
        self.replaced = changed.addresses
        self.unchanged = found.addresses[same]


def _checked_ids(parts: list[Column]) -> Column:
    """Return all ids as one column, each of them once."""
    if sum(part.nbytes for part in parts) > ID_BYTES_MAX:
        raise InvalidOptionError("these are too many rows to upsert at once: their ids fill 2 GiB; give fewer")
    ids: Column = pa.concat_arrays(parts)
    if ids.null_count:
        raise InvalidDataError(f"{ids.null_count} rows have no id; nothing was applied", count=ids.null_count)
    doubtful = occurring_twice([fingerprints(ids)])
    if len(doubtful):
        again = repeated(ids.take(pa.array(with_fingerprint(ids, doubtful), pa.int64())))
        if again:
            raise repeated_ids(again)
    return ids


def repeated_ids(ids: Sequence[str]) -> InvalidDataError:
    """Say which ids were given more than once."""
    sample = sorted(ids)[:SAMPLE_MAX]
    shown = ", ".join(repr(value) for value in sample) + (", …" if len(ids) > SAMPLE_MAX else "")
    return InvalidDataError(
        f"nothing was applied: {len(ids)} ids occur more than once in what was given: {shown}",
        count=len(ids),
        sample=sample,
    )
