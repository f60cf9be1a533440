"""Moving staged work: onto a version that became the pin meanwhile, or several parts into one.

When the pin moved, an upsert is worked out anew from what was staged (:func:`rebase`): rows are found by
id, never by the row ids of the old version, which may mean other rows there. A staged fragment whose
rows are all still there (or all still absent) is used as it is; one whose rows are not is written again,
whole, so that every replaced row carries the id of the row it replaces and every other row a fresh one.
Rows that were unchanged and are no longer what they were are taken from the old version and written too.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from lance import LanceDataset, LanceOperation
from lance.dataset import Transaction
from lance.file import LanceFileSession
from lance.fragment import FragmentMetadata

from omnigraph.errors import InvalidOptionError, StorageError, VersionConflictError
from omnigraph.model.staged import Replacement, StagedAppend, StagedDelete, StagedUpsert
from omnigraph.rules.identity import repeated
from omnigraph.rules.values import Column, compute
from omnigraph.storage.lance_door import SEAL_DRAWS_MAX, Sealed
from omnigraph.storage.lance_fields import Columns
from omnigraph.storage.lance_rows import (
    DATA,
    ROW_ID,
    Located,
    UnsignedNumbers,
    as_written,
    fragment_text,
    fragments_of,
    ids_in,
    locate,
    open_at,
    row_sets,
    rows_of,
    scan_all,
    scan_row_ids,
    stored_schema,
    translated,
    united,
)
from omnigraph.storage.lance_sealing import missing_files, seal, shape_of
from omnigraph.storage.lance_staging import Upserting, delete_rows, repeated_ids
from omnigraph.storage.lance_written import LIMITS, WriteLimits, file_names, replacement
from omnigraph.storage.roots import StorageOptions

Movable: TypeAlias = StagedAppend | StagedUpsert
"""Work that may be sealed on another version than the one it was staged for."""


def reseal(
    uri: str,
    new_base: int,
    staged: Movable,
    transaction: str,
    properties: Mapping[str, str] | None = None,
    *,
    options: StorageOptions,
) -> tuple[Movable, Sealed | None]:
    """Seal staged work on a pin that moved; return the work as it is there, and no seal if nothing is left to do."""
    moved = rebase(uri, new_base, staged, options=options)
    if moved.is_empty:
        return moved, None
    return moved, seal(uri, new_base, moved, transaction, properties, options=options)


def rebase(
    uri: str, new_base: int, staged: Movable, *, limits: WriteLimits = LIMITS, options: StorageOptions
) -> Movable:
    """Return staged work as it is against another version; rows that fit there are not written again."""
    _refuse_other_columns(uri, new_base, staged, options)
    if isinstance(staged, StagedAppend) or staged.base_version == new_base:
        return staged
    lost = missing_files(uri, staged, options=options)
    if any(name.startswith(f"{DATA}/") for name in lost):
        raise StorageError(f"nothing was applied: {len(lost)} staged files of {uri} are gone; stage again")
    return _Rebase(open_at(uri, new_base, options), staged, limits, options).result()


def _refuse_other_columns(uri: str, base: int, staged: Movable, options: StorageOptions) -> None:
    """Refuse rows that lack a column of the version they are moved to: a schema may change, and change back."""
    # Of a column that is made of parts, files name only the parts that hold values.
    columns = Columns.of(open_at(uri, base, options).lance_schema).columns
    wanted = [{field.number for field in column} for column in columns]
    every = {number for column in wanted for number in column}
    for fragment in fragments_of(staged.fragments):
        held = {number for file in fragment.files for number in file.fields}
        if held - every or not all(column & held for column in wanted):
            raise VersionConflictError(f"the columns of {uri} were rewritten meanwhile; refresh and retry")


def combine_upserts(
    uri: str, parts: Iterable[StagedUpsert], *, are_distinct: bool = False, options: StorageOptions
) -> StagedUpsert:
    """Make one upsert of several that were staged against the same version for different ids.

    Whether new ids are different is looked at, unless that ``are_distinct`` is known.
    """
    every = list(parts)
    if len({part.base_version for part in every}) != 1:
        raise InvalidOptionError("upserts are combined if there are some, all against the same version")
    handle = open_at(uri, every[0].base_version, options)
    out = united([deletion.out for part in every for deletion in part.deletions])
    unchanged = united([rows for part in every for rows in part.unchanged])
    both = np.concatenate([out, unchanged])
    if len(np.unique(both)) != len(both):
        raise repeated_ids(_repeated_rows(handle, both, options))
    insertions = tuple(text for part in every for text in part.insertions)
    if not are_distinct:
        _refuse_repeats(handle, insertions, options)
    deletions, names = delete_rows(handle, out, options)
    data = [name for part in every for name in part.files if name.startswith(f"{DATA}/")]
    return StagedUpsert(
        base_version=every[0].base_version,
        replacements=tuple(one for part in every for one in part.replacements),
        insertions=insertions,
        deletions=deletions,
        unchanged=row_sets(unchanged),
        rows_inserted=sum(part.rows_inserted for part in every),
        bytes=sum(part.bytes for part in every),
        files=(*data, *names),
    )


def take_out_too(
    uri: str, staged: StagedAppend | StagedUpsert, gone: StagedDelete, *, options: StorageOptions
) -> StagedUpsert:
    """Make one piece of rows that come and rows that go, both worked out against the same version."""
    handle = open_at(uri, gone.base_version, options)
    upsert = _as_upsert(staged, gone.base_version)
    if upsert.base_version != gone.base_version:
        raise InvalidOptionError("rows that come and rows that go were worked out against different versions")
    replaced = united([deletion.out for deletion in upsert.deletions])
    out = np.concatenate([replaced, united([deletion.out for deletion in gone.deletions])])
    unchanged = united(upsert.unchanged)
    if len(np.unique(np.concatenate([out, unchanged]))) != len(out) + len(unchanged):
        raise repeated_ids(_repeated_rows(handle, np.concatenate([out, unchanged]), options))
    deletions, names = delete_rows(handle, np.sort(out), options)
    data = [name for name in upsert.files if name.startswith(f"{DATA}/")]
    return replace(upsert, deletions=deletions, files=(*data, *names), rows_deleted=gone.deleted)


def _as_upsert(staged: StagedAppend | StagedUpsert, base_version: int) -> StagedUpsert:
    """Return staged work as an upsert; rows that are known to be new are one without replacements."""
    if isinstance(staged, StagedUpsert):
        return staged
    return StagedUpsert(
        base_version=base_version,
        replacements=(),
        insertions=staged.fragments,
        deletions=(),
        unchanged=(),
        rows_inserted=staged.rows,
        bytes=staged.bytes,
        files=staged.files,
    )


def _repeated_rows(handle: LanceDataset, addresses: UnsignedNumbers, options: StorageOptions) -> list[str]:
    found, counts = np.unique(addresses, return_counts=True)
    with translated(f"rows of {handle.uri} can not be read", options):
        return [
            str(i) for batch in rows_of(handle, row_sets(found[counts > 1])) for i in batch.column("id").to_pylist()
        ]


def _refuse_repeats(handle: LanceDataset, fragments: Iterable[str], options: StorageOptions) -> None:
    with translated(f"the ids staged for {handle.uri} can not be read", options):
        session = LanceFileSession(handle.uri, storage_options=options.for_clients() or None)
        parts = list(ids_in(session, fragments_of(fragments)))
    ids: Column = pa.chunked_array(parts, pa.string())
    if compute.count_distinct(ids).as_py() != len(ids):
        raise repeated_ids(repeated(ids))


class _Rebase:
    """One upsert, worked out against a version it was not staged for."""

    def __init__(
        self, handle: LanceDataset, staged: StagedUpsert, limits: WriteLimits, options: StorageOptions
    ) -> None:
        self._handle = handle
        self._old = open_at(handle.uri, staged.base_version, options)
        self._staged = staged
        self._options = options
        self._schema = stored_schema(handle)
        self._again = Upserting(handle, limits, options)
        self._kept: list[FragmentMetadata] = []
        self._replacements: list[Replacement] = []
        self._insertions: list[FragmentMetadata] = []
        self._stirred: list[FragmentMetadata] = []
        self._replaced: list[UnsignedNumbers] = []
        self._unchanged: list[UnsignedNumbers] = []

    def result(self) -> StagedUpsert:
        """Keep what fits, write the rest again, and delete what is replaced."""
        with translated(f"staged rows of {self._handle.uri} can not be moved", self._options):
            self._sort_fragments()
            owed = self._owed_rows()
            self._again.place(self._rows_to_write(owed))
        replaced = np.concatenate([self._again.replaced, *self._replaced])
        deletions, names = delete_rows(self._handle, replaced, self._options)
        insertions = [*self._insertions, *self._again.insertions.fragments]
        every = [*self._kept, *self._again.rewritten.fragments, *insertions]
        return StagedUpsert(
            base_version=int(self._handle.version),
            replacements=(*self._replacements, *self._again.replacements),
            insertions=tuple(fragment_text(fragment) for fragment in insertions),
            deletions=deletions,
            unchanged=row_sets(np.concatenate([self._again.unchanged, *self._unchanged])),
            rows_inserted=sum(int(fragment.physical_rows) for fragment in insertions),
            bytes=sum(int(file.file_size_bytes or 0) for fragment in every for file in fragment.files),
            files=(*file_names(self._handle, every, self._options), *names),
        )

    def _sort_fragments(self) -> None:
        """Tell fragments whose rows are all still there, or all still new, from those with some of each."""
        session = LanceFileSession(self._handle.uri, storage_options=self._options.for_clients() or None)
        fragments = fragments_of(self._staged.fragments)
        if not fragments:
            return
        found = locate(self._handle, pa.concat_arrays(list(ids_in(session, fragments))))
        start = 0
        for number, fragment in enumerate(fragments):
            end = start + int(fragment.physical_rows)
            here = found.pick(slice(*np.searchsorted(found.numbers, [start, end])))
            self._sort_fragment(fragment, here, was_there=number < len(self._staged.replacements))
            start = end

    def _sort_fragment(self, fragment: FragmentMetadata, found: Located, *, was_there: bool) -> None:
        if was_there and len(found) == fragment.physical_rows:
            self._kept.append(fragment)
            self._replacements.append(replacement(fragment, found.row_ids))
            self._replaced.append(found.addresses)
        elif not was_there and len(found) == 0:
            self._insertions.append(fragment)
        else:
            self._stirred.append(fragment)

    def _owed_rows(self) -> UnsignedNumbers:
        """Return the row ids, in the old version, of unchanged rows whose fragment is not what it was."""
        untouched = {number for number, _ in self._fragments(self._old) & self._fragments(self._handle)}
        sets = self._staged.unchanged
        self._unchanged.append(united(rows for rows in sets if rows.fragment in untouched))
        touched = (rows for rows in sets if rows.fragment not in untouched)
        parts = [np.asarray(batch.column(ROW_ID), np.uint64) for batch in rows_of(self._old, touched)]
        return np.concatenate([np.empty(0, np.uint64), *parts])

    def _fragments(self, handle: LanceDataset) -> set[tuple[int, tuple[str, ...]]]:
        return {(int(f.fragment_id), shape_of(f.metadata)) for f in handle.get_fragments()}

    def _rows_to_write(self, owed: UnsignedNumbers) -> Iterator[pa.RecordBatch]:
        if self._stirred:
            for batch in scan_all(self._glimpse()):
                yield as_written(batch, self._schema)
        if len(owed):
            for batch in scan_row_ids(self._old, owed, self._schema.names):
                yield as_written(batch, self._schema)

    def _glimpse(self) -> LanceDataset:
        """Return a version of nothing but staged fragments, to read them through; nothing ever refers to it."""
        everything = LanceOperation.Overwrite(self._handle.lance_schema, self._stirred)
        wanted = Transaction(self._handle.version, everything)
        return LanceDataset.commit(self._handle, wanted, detached=True, max_retries=SEAL_DRAWS_MAX)
