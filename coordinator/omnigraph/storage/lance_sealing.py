"""Sealing: staged work becomes one immutable version of its table, built on exactly the version it names.

A seal is one detached commit. Lance neither checks that the files of a commit exist nor on which version
a detached commit was meant to be built, so both are checked here: the files before, and afterwards that
the new version consists of exactly the fragments it should.
"""

import json
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, assert_never

import pyarrow as pa
from lance import LanceDataset, LanceOperation
from lance.file import LanceFileSession
from lance.fragment import DeletionFile, FragmentMetadata, RowIdSequence

from omnigraph.errors import CorruptGraphError, InvalidOptionError, StorageError
from omnigraph.model.staged import (
    Deletion,
    Staged,
    StagedAppend,
    StagedDelete,
    StagedOverwrite,
    StagedReshape,
    StagedUpsert,
)
from omnigraph.observing import Threads
from omnigraph.storage.lance_detached import committed
from omnigraph.storage.lance_door import BIRTH_VERSION, VERSIONS, Sealed, file_name
from omnigraph.storage.lance_fields import kept_columns, reshaping
from omnigraph.storage.lance_rollups import with_few_files
from omnigraph.storage.lance_rows import fragments_of, open_at, translated, unpack
from omnigraph.storage.roots import StorageOptions

CHECKS_AT_ONCE: Final = 16
CHECKS_IN_TURN_MAX: Final = 2
MISSING_SHOWN_MAX: Final = 5
ROWS_IN_ONE_MAX: Final = 262_144


def missing_files(uri: str, staged: Staged, *, options: StorageOptions) -> tuple[str, ...]:
    """Return which files of staged work are not there, relative to the table."""
    if not staged.files:
        return ()
    with translated(f"the staged files of {uri} can not be checked", options):
        session = LanceFileSession(uri, storage_options=options.for_clients() or None)
        if len(staged.files) <= CHECKS_IN_TURN_MAX:
            there = [session.contains(name) for name in staged.files]
        else:
            with Threads(CHECKS_AT_ONCE) as pool:
                there = list(pool.map(session.contains, staged.files))
    return tuple(name for name, found in zip(staged.files, there, strict=True) if not found)


def seal(
    uri: str,
    base_version: int | None,
    staged: Staged,
    transaction: str,
    properties: Mapping[str, str] | None = None,
    *,
    options: StorageOptions,
) -> Sealed:
    """Commit staged work as one detached version of exactly ``base_version``, or of the same rows, and check that."""
    base = BIRTH_VERSION if base_version is None else base_version
    _refuse_unfit(uri, base, staged)
    lost = missing_files(uri, staged, options=options)
    if lost:
        shown = ", ".join(lost[:MISSING_SHOWN_MAX]) + (", …" if len(lost) > MISSING_SHOWN_MAX else "")
        raise StorageError(
            f"nothing was applied: {len(lost)} staged files of {uri} are gone: {shown}; stage again", missing=lost
        )
    handle = open_at(uri, base, options)
    if isinstance(staged, StagedAppend | StagedUpsert):
        handle = with_few_files(handle, staged, options)
    with translated(f"nothing was applied: {uri} can not be sealed", options):
        if isinstance(staged, StagedUpsert) and _is_slow_in_one(handle, staged):
            sealed = _sealed_in_two(handle, staged, transaction, properties)
        elif isinstance(staged, StagedReshape):
            sealed = reshaped(handle, staged, transaction, properties)
        else:
            sealed = committed(handle, _operation(handle, staged), transaction, properties)
        _check_size(handle, sealed, staged)
        VERSIONS.keep(uri, sealed, options)
        return Sealed(lance_version=int(sealed.version), transaction=transaction, rows=int(sealed.count_rows()))


def _is_slow_in_one(handle: LanceDataset, staged: StagedUpsert) -> bool:
    """Tell whether an upsert replaces rows of a large table.

    Lance's own operation for that walks over all row ids of all fragments between the first and the last row
    replaced, to find out in which of its versions each was created: a quarter of a second for five million rows.
    Nobody asks for that, as our versions are detached and have no order.
    """
    replaces = bool(staged.replacements) and bool(staged.deletions)
    return replaces and int(handle.count_rows()) > ROWS_IN_ONE_MAX


def _sealed_in_two(
    handle: LanceDataset, staged: StagedUpsert, transaction: str, properties: Mapping[str, str] | None
) -> LanceDataset:
    """Take out what is replaced, then add what replaces it with the row ids it had; only the second is referred to."""
    updated, removed = _deletions(handle, staged.deletions)
    without = committed(handle, LanceOperation.Delete(updated, removed, ""), str(uuid.uuid4()))
    return committed(without, LanceOperation.Append(_new_fragments(staged)), transaction, properties)


def reshaped(
    handle: LanceDataset,
    staged: StagedReshape,
    transaction: str | None = None,
    properties: Mapping[str, str] | None = None,
) -> LanceDataset:
    """Commit other columns as one detached version; Lance takes a name for a new column only once it is free."""
    kept = kept_columns(handle, staged.schema)
    if kept is not None and not staged.is_rewrite:
        handle = committed(handle, LanceOperation.Project(kept))
    return committed(handle, _operation(handle, staged), transaction, properties)


def _refuse_unfit(uri: str, base: int, staged: Staged) -> None:
    if staged.is_empty:
        raise InvalidOptionError(f"nothing is staged for {uri}, so there is nothing to seal")
    if isinstance(staged, StagedDelete | StagedUpsert | StagedReshape) and staged.base_version != base:
        raise InvalidOptionError(
            f"this was staged for version {staged.base_version} of {uri} and can not be sealed on {base}",
            expected=staged.base_version,
            actual=base,
        )


def _operation(handle: LanceDataset, staged: Staged) -> Any:
    match staged:
        case StagedAppend():
            return LanceOperation.Append(fragments_of(staged.fragments))
        case StagedOverwrite():
            # Lance's own schema of the base: it keeps field numbers and metadata, which Arrow's would not.
            return LanceOperation.Overwrite(handle.lance_schema, fragments_of(staged.fragments))
        case StagedDelete():
            updated, removed = _deletions(handle, staged.deletions)
            return LanceOperation.Delete(updated, removed, "")
        case StagedUpsert():
            updated, removed = _deletions(handle, staged.deletions)
            return LanceOperation.Update(
                removed_fragment_ids=removed,
                updated_fragments=updated,
                new_fragments=_new_fragments(staged),
                update_mode="rewrite_rows",
                # Every field may have changed, so no index may count the new fragments as covered.
                fields_for_preserving_frag_bitmap=_field_ids(handle.lance_schema.fields()),
            )
        case StagedReshape():
            return reshaping(handle, staged.schema, fragments_of(staged.fragments), is_rewrite=staged.is_rewrite)
        case _:
            assert_never(staged)


def _new_fragments(staged: StagedUpsert) -> list[FragmentMetadata]:
    """Return the new fragments; the rows of replacements keep the ids of those they replace."""
    fragments = fragments_of(staged.fragments)
    for fragment, replacement in zip(fragments, staged.replacements, strict=False):
        row_ids = unpack(replacement.row_ids, int(fragment.physical_rows))
        fragment.row_id_meta = RowIdSequence(pa.array(row_ids, pa.uint64())).to_inline_metadata()
    return fragments


def _field_ids(fields: Iterable[Any]) -> list[int]:
    return [number for field in fields for number in (int(field.id()), *_field_ids(field.children()))]


def _deletions(handle: LanceDataset, deletions: Iterable[Deletion]) -> tuple[list[FragmentMetadata], list[int]]:
    """Return the fragments that lose rows, as the base has them but with their new deletion file, and those that go."""
    updated, removed = [], []
    for deletion in deletions:
        if deletion.file is None:
            removed.append(deletion.out.fragment)
            continue
        fragment: Any = handle.get_fragment(deletion.out.fragment)
        if fragment is None:
            raise CorruptGraphError(f"{handle.uri} has no fragment {deletion.out.fragment}; nothing was published")
        updated.append(replace(fragment.metadata, deletion_file=DeletionFile(**json.loads(deletion.file))))
    return updated, removed


def _check_size(handle: LanceDataset, sealed: LanceDataset, staged: Staged) -> None:
    """Compare the new version with what it should be.

    Counts, not fragments: a list of all those costs as much as the table is long.
    """
    if (int(sealed.count_rows()), len(sealed.fragment_ids())) != _expected(handle, staged):
        raise CorruptGraphError(f"the sealed version of {handle.uri} is not what was asked for; nothing was published")


def _expected(handle: LanceDataset, staged: Staged) -> tuple[int, int]:
    """Return how many rows and fragments the new version must have."""
    rows = int(handle.count_rows()) + _growth(handle, staged)
    new = 0 if isinstance(staged, StagedDelete) else len(staged.fragments)
    if isinstance(staged, StagedOverwrite) or (isinstance(staged, StagedReshape) and staged.is_rewrite):
        return rows, new
    if isinstance(staged, StagedReshape):
        return rows, len(handle.fragment_ids())
    gone = 0 if isinstance(staged, StagedAppend) else len([d for d in staged.deletions if d.file is None])
    return rows, len(handle.fragment_ids()) - gone + new


def _growth(handle: LanceDataset, staged: Staged) -> int:
    match staged:
        case StagedAppend():
            return staged.rows
        case StagedOverwrite():
            return staged.rows - int(handle.count_rows())
        case StagedDelete():
            return -staged.deleted
        case StagedUpsert():
            return staged.rows_inserted - staged.rows_deleted
        case StagedReshape():
            return 0
        case _:
            assert_never(staged)


def shape_of(fragment: FragmentMetadata) -> tuple[str, ...]:
    """Return what tells one fragment's rows from another's: its files, and what is deleted of them."""
    gone: Any = fragment.deletion_file
    return (file_name(fragment), *(str(file.path) for file in fragment.files[1:]), "" if gone is None else str(gone.id))
