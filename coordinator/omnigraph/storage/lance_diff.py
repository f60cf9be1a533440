"""Which rows two versions of a table do not share: told from their files, before any row is read.

Two versions that have a file in common have its rows in common, but for those that one of them has deleted. So only
the rows of files that one version lacks are looked at, and of shared files those that are deleted in one alone.
"""

import hashlib
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from lance import LanceDataset
from lance.fragment import FragmentMetadata

from omnigraph.errors import CorruptGraphError
from omnigraph.model.staged import RowSet
from omnigraph.rules.bitmaps import numbers_of
from omnigraph.rules.row_changes import DIGEST, ComparedTable
from omnigraph.rules.values import Column
from omnigraph.storage.lance_door import file_names
from omnigraph.storage.lance_rows import (
    BLOB_SCAN_ROWS,
    OFFSET_MASK,
    ROW_ADDRESS,
    ROW_ID,
    UnsignedNumbers,
    file_session,
    offsets_of,
    open_at,
    pack,
    scan_row_ids,
    translated,
)
from omnigraph.storage.lance_staging import deletion_name
from omnigraph.storage.roots import StorageOptions

PART_ROWS_MAX: Final = 2**20
SCAN_ROWS: Final = 16_384
DIGEST_BYTES: Final = 32
FEW_ROWS_MAX: Final = 16
TAKEN_ROWS_MAX: Final = 8_192
LISTS_MAX: Final = 64
LISTS_ROWS_MAX: Final = 2**16
_LISTS: Final[dict[tuple[str, str], UnsignedNumbers]] = {}
"""Lists of deleted rows that were read last: of commits in a row, each needs that of the one before too."""
FRAGMENTS_MAX: Final = 2
_FRAGMENTS: Final[dict[tuple[str, int], dict[tuple[str, ...], FragmentMetadata]]] = {}
"""The same of the fragments of versions."""
FEW_DELETED: Final = "array"
"""What Lance calls a deletion file that is a list, as those of few rows are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Rows of one fragment: all that are there, or some of them."""

    fragment: int
    rows: int
    some: RowSet | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SomeRows:
    """Rows of one version that another may not have, in the form they are compared in; readable anywhere."""

    uri: str
    version: int
    options: StorageOptions
    table: ComparedTable
    names: tuple[str | None, ...]
    """What the compared columns are called in this version; None where it has none, and all is null."""
    pieces: tuple[Piece, ...]
    needs_row_ids: bool = True
    """Whether rows are asked for by their row ids later; looking those up goes through all of a fragment's."""

    @property
    def rows(self) -> int:
        """How many they are."""
        return sum(piece.rows for piece in self.pieces)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Stream the rows: id, row id, row address, and the struct that is compared."""
        for batch in self._scan(self._columns, has_blobs=bool(self._blobs)):
            yield self._compared(batch)

    def known_by(self, row_ids: UnsignedNumbers) -> Iterator[pa.RecordBatch]:
        """Stream the rows of the version that have some row ids, in the same form; row ids that it has not are none."""
        handle = open_at(self.uri, self.version, self.options)
        with translated(f"rows of {self.uri} can not be read", self.options):
            for batch in scan_row_ids(handle, row_ids, self._columns, with_address=True):
                yield self._compared(batch)

    @property
    def _columns(self) -> list[str]:
        return ["id", *(name for name in self.names if name is not None and name != "id")]

    @property
    def _blobs(self) -> set[str | None]:
        return {name for name, column in zip(self.names, self.table.columns, strict=True) if column.is_blob}

    def _compared(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        blobs = self._blobs
        parts = [
            _nothing(batch, column.type)
            if name is None
            else digests(batch.column(name))
            if name in blobs
            else _cast(batch.column(name), column.type)
            for name, column in zip(self.names, self.table.columns, strict=True)
        ]
        at, place = (batch.column(name).cast(pa.int64()) for name in (ROW_ID, ROW_ADDRESS))
        row = self.table.struct(parts, batch.num_rows)
        return pa.RecordBatch.from_arrays([batch.column("id"), at, place, row], schema=self.table.schema)

    def stored(self, columns: Sequence[str], *, has_blobs: bool = False) -> Iterator[pa.RecordBatch]:
        """Stream columns of the rows as they are stored."""
        for batch in self._scan(list(dict.fromkeys(columns)), has_blobs=has_blobs):
            yield batch.select(list(columns))

    def _scan(self, columns: list[str], *, has_blobs: bool) -> Iterator[pa.RecordBatch]:
        handle = open_at(self.uri, self.version, self.options)
        whole = [piece.fragment for piece in self.pieces if piece.some is None]
        some = [piece.some for piece in self.pieces if piece.some is not None]
        with translated(f"rows of {self.uri} can not be read", self.options):
            if whole:
                yield from handle.scanner(
                    columns=columns,
                    fragments=[_fragment(handle, number) for number in whole],
                    with_row_id=True,
                    with_row_address=True,
                    blob_handling="all_binary",
                    batch_size=BLOB_SCAN_ROWS if has_blobs else SCAN_ROWS,
                    batch_readahead=1 if has_blobs else None,
                ).to_reader()
            if not self.needs_row_ids and not has_blobs:
                taken = [rows for rows in some if rows.rows <= TAKEN_ROWS_MAX]
                some = [rows for rows in some if rows.rows > TAKEN_ROWS_MAX]
                yield from (_taken(handle, rows, columns, self.options) for rows in taken)
            if some:
                yield from scan_row_ids(handle, _row_ids(handle, some, self.options), columns, with_address=True)


def digests(blobs: Column) -> Column:
    """Return a digest of each blob; null where there is none."""
    made = [
        None if data is None else hashlib.blake2b(data, digest_size=DIGEST_BYTES).digest() for data in blobs.to_pylist()
    ]
    return pa.array(made, DIGEST)


def blobs_at(uri: str, version: int, column: str, at: Column, options: StorageOptions) -> Column:
    """Return the blobs of rows by their row ids, in their order; null where there is no row or no blob."""
    handle = open_at(uri, version, options)
    wanted = np.unique(np.asarray(at.drop_null(), np.uint64))
    found: dict[Any, Any] = {}
    with translated(f"blobs of {uri} can not be read", options):
        for batch in scan_row_ids(handle, wanted, [column]) if len(wanted) else ():
            found |= dict(zip(batch.column(ROW_ID).to_pylist(), batch.column(column).to_pylist(), strict=True))
    return pa.array([None if place is None else found[place] for place in at.to_pylist()], pa.large_binary())


def _nothing(batch: pa.RecordBatch, kind: Any) -> Column:
    return pa.nulls(batch.num_rows, kind)


def _cast(column: Column, wanted: pa.DataType) -> Column:
    return column if column.type == wanted else column.cast(wanted)


def _fragment(handle: LanceDataset, number: int) -> Any:
    found = handle.get_fragment(number)
    if found is None:
        raise CorruptGraphError(f"version {handle.version} of {handle.uri} has no fragment {number}")
    return found


def _taken(handle: LanceDataset, rows: RowSet, columns: list[str], options: StorageOptions) -> pa.RecordBatch:
    """Return rows at some places of a fragment; their row ids are left open."""
    fragment, wanted = _fragment(handle, rows.fragment), offsets_of(rows)
    places = wanted - np.searchsorted(_gaps(handle, fragment.metadata, options), wanted).astype(np.uint64)
    found: pa.Table = fragment.take(places.tolist(), columns=columns)
    address = (np.uint64(rows.fragment) << np.uint64(32)) | wanted
    found = found.append_column(ROW_ID, pa.nulls(len(wanted), pa.uint64()))
    (batch,) = found.append_column(ROW_ADDRESS, pa.array(address)).combine_chunks().to_batches()
    return batch


def _row_ids(handle: LanceDataset, sets: Iterable[RowSet], options: StorageOptions) -> UnsignedNumbers:
    """Return the row ids of rows at some places; no data is read."""
    parts = [np.empty(0, np.uint64)]
    for rows in sets:
        wanted = offsets_of(rows)
        if len(wanted) <= FEW_ROWS_MAX:
            gaps = _gaps(handle, _fragment(handle, rows.fragment).metadata, options)
            at = [int(offset) - int(np.searchsorted(gaps, offset)) for offset in wanted]
            there = pa.concat_tables([_places(handle, rows.fragment, with_row_id=True, only=place) for place in at])
        else:
            there = _places(handle, rows.fragment, with_row_id=True)
        found = np.searchsorted(_offsets(there), wanted)  # both ascend
        parts.append(np.asarray(there.column(ROW_ID), np.uint64)[found])
    return np.concatenate(parts)


def _places(handle: LanceDataset, fragment: int, *, with_row_id: bool, only: int | None = None) -> pa.Table:
    """Return where rows of a fragment lie that are not deleted, in their order: all, or one; no data is read."""
    return handle.scanner(
        [],
        fragments=[_fragment(handle, fragment)],
        with_row_id=with_row_id,
        with_row_address=True,
        batch_size=PART_ROWS_MAX,
        offset=only,
        limit=None if only is None else 1,
    ).to_table()


def _offsets(places: pa.Table) -> UnsignedNumbers:
    return np.asarray(places.column(ROW_ADDRESS), np.uint64) & OFFSET_MASK


def differing(uri: str, old: int, new: int, options: StorageOptions) -> tuple[tuple[Piece, ...], tuple[Piece, ...]]:
    """Return the rows of each of two versions that the other may not have."""
    before, after = open_at(uri, old, options), open_at(uri, new, options)
    with translated(f"versions of {uri} can not be compared", options):
        left, right = _by_files(before), _by_files(after)
        lost = [_whole(left[files]) for files in left if files not in right]
        come = [_whole(right[files]) for files in right if files not in left]
        for files in left:
            if files in right and _deleted(left[files]) != _deleted(right[files]):
                one, other = _gaps(before, left[files], options), _gaps(after, right[files], options)
                lost += _some(left[files], np.setdiff1d(other, one, assume_unique=True))
                come += _some(right[files], np.setdiff1d(one, other, assume_unique=True))
    return tuple(lost), tuple(come)


def last_rows(some: SomeRows, since: int, count: int) -> SomeRows | None:
    """Return the last fragments of a version that have so many rows, or more; None if fewer came since another."""
    handle, before = (open_at(some.uri, version, some.options) for version in (some.version, since))
    with translated(f"versions of {some.uri} can not be compared", some.options):
        known, every = _by_files(before), _by_files(handle)
        if sum(int(each.num_rows) for files, each in every.items() if files not in known) < count:
            return None
        found: list[Piece] = []
        for fragment in sorted(every.values(), key=lambda each: int(each.id), reverse=True):
            if count <= 0:
                break
            found.append(_whole(fragment))
            count -= found[-1].rows
    return replace(some, pieces=tuple(reversed(found)), needs_row_ids=True)


def have_same_files(uri: str, one: int, other: int, options: StorageOptions) -> bool:
    """Tell whether two versions have the same files and deletions, and so surely the same rows."""
    handles = [open_at(uri, version, options) for version in (one, other)]
    with translated(f"versions of {uri} can not be compared", options):
        left, right = (
            {files: _deleted(fragment) for files, fragment in _by_files(handle).items()} for handle in handles
        )
    return left == right


def every_row(uri: str, version: int, options: StorageOptions) -> tuple[Piece, ...]:
    """Return all rows of a version."""
    handle = open_at(uri, version, options)
    with translated(f"version {version} of {uri} can not be read", options):
        return tuple(_whole(fragment) for fragment in _by_files(handle).values())


def in_parts(pieces: Sequence[Piece], rows_max: int = PART_ROWS_MAX) -> Iterator[tuple[Piece, ...]]:
    """Put pieces together into parts of about equal size; a piece is never cut."""
    part: list[Piece] = []
    for piece in pieces:
        if part and sum(each.rows for each in part) + piece.rows > rows_max:
            yield tuple(part)
            part = []
        part.append(piece)
    if part:
        yield tuple(part)


def _by_files(handle: LanceDataset) -> dict[tuple[str, ...], FragmentMetadata]:
    """Return the fragments of a version by the files they are made of: numbers mean other rows on other branches."""
    key = (handle.uri, int(handle.version))
    known = _FRAGMENTS.get(key)
    if known is None:
        known = {file_names(each): each for each in (fragment.metadata for fragment in handle.get_fragments())}
        while len(_FRAGMENTS) >= FRAGMENTS_MAX:
            _FRAGMENTS.pop(next(iter(_FRAGMENTS), ("", 0)), None)
        _FRAGMENTS[key] = known
    return known


def _deleted(fragment: FragmentMetadata) -> "tuple[Any, ...] | None":
    """Return what tells one set of deleted rows from another; None if none are."""
    file: Any = fragment.deletion_file
    return None if file is None else (file.read_version, file.id, file.file_type, file.num_deleted_rows)


def _listed(handle: LanceDataset, fragment: int, file: Any, options: StorageOptions) -> UnsignedNumbers | None:
    """Read which rows are deleted from the file that says so; a scan, which would do too, walks over all the others."""
    name = deletion_name(fragment, dict(file.asdict()))
    known = _LISTS.get((handle.uri, name))
    if known is not None:
        return known
    data = _content(handle.uri, name, options)
    if file.file_type == FEW_DELETED:
        with pa.ipc.open_file(data) as listed:
            offsets: UnsignedNumbers | None = np.sort(np.asarray(listed.read_all().column(0), np.uint64))
    else:
        offsets = numbers_of(data)
    if offsets is None or len(offsets) != file.num_deleted_rows:
        return None
    if len(offsets) <= LISTS_ROWS_MAX:
        while len(_LISTS) >= LISTS_MAX:
            _LISTS.pop(next(iter(_LISTS), ("", "")), None)
        _LISTS[handle.uri, name] = offsets
    return offsets


def _content(uri: str, name: str, options: StorageOptions) -> bytes:
    if "://" not in uri:
        return (Path(uri) / name).read_bytes()
    with tempfile.TemporaryDirectory(prefix="omnigraph-") as folder:
        local = Path(folder) / "deleted"
        file_session(uri, options).download_file(name, local)
        return local.read_bytes()


def _whole(fragment: FragmentMetadata) -> Piece:
    return Piece(fragment=int(fragment.id), rows=int(fragment.num_rows))


def _some(fragment: FragmentMetadata, offsets: UnsignedNumbers) -> list[Piece]:
    if not len(offsets):
        return []
    rows = RowSet(fragment=int(fragment.id), rows=len(offsets), offsets=pack(offsets))
    return [Piece(fragment=int(fragment.id), rows=len(offsets), some=rows)]


def _gaps(handle: LanceDataset, fragment: FragmentMetadata, options: StorageOptions) -> UnsignedNumbers:
    """Return the offsets of a fragment whose rows are deleted, ascending."""
    file: Any = fragment.deletion_file
    if file is None:
        return np.empty(0, np.uint64)
    listed = _listed(handle, int(fragment.id), file, options)
    if listed is not None:
        return listed
    size = np.uint64(fragment.physical_rows)
    alive = np.concatenate([_offsets(_places(handle, int(fragment.id), with_row_id=False)), [size]])
    widths = np.diff(alive, prepend=np.uint64(2**64 - 1)) - np.uint64(1)  # the first counts from one before zero
    wide = np.flatnonzero(widths)
    starts, widths = alive[wide] - widths[wide], widths[wide].astype(np.int64)
    within = np.arange(widths.sum()) - np.repeat(np.cumsum(widths) - widths, widths)
    return np.repeat(starts, widths) + within.astype(np.uint64)
