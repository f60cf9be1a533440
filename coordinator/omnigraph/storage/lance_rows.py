"""How staging looks at tables: handles, rows found by id, rows read by row id, and errors in our words."""

import base64
import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from lance import LanceDataset
from lance.dataset import serialize_row_addrs
from lance.file import LanceFileSession
from lance.fragment import FragmentMetadata, LanceFragment

from omnigraph.errors import CorruptGraphError, InvalidDataError, OmnigraphError
from omnigraph.model.indexes import LOOKUP_KINDS, IndexKind
from omnigraph.model.staged import RowSet
from omnigraph.rules.arrow_schema import BLOB_STORAGE, EXTENSION_NAME, LANCE_BLOB, is_blob
from omnigraph.rules.fingerprints import Sieve, first_of_runs
from omnigraph.rules.values import Column, compute
from omnigraph.storage.lance_door import BIRTH_VERSION, LANCE_ERRORS, VERSIONS, _failed, _is_panic
from omnigraph.storage.lance_shares import each_share
from omnigraph.storage.roots import StorageOptions

UnsignedNumbers = npt.NDArray[np.uint64]

LOOKUP_ROWS_PER_ID: Final = 512  # measured: with an index, a look-up costs about as much as scanning this many ids
ID_BYTES_MAX: Final = 2**31 - 1  # what one Arrow text column holds
SCAN_ROWS: Final = 8_192
ID_SCAN_ROWS: Final = 65_536
BLOB_SCAN_ROWS: Final = 4  # blobs may be gigabytes each; a batch of them is read whole
ROW_ID, ROW_ADDRESS = "_rowid", "_rowaddr"
FRAGMENT_SHIFT: Final = np.uint64(32)
OFFSET_MASK: Final = np.uint64(2**32 - 1)
DATA: Final = "data"
PACK_LEVEL: Final = 6


@contextmanager
def translated(what: str, options: StorageOptions) -> Iterator[None]:
    """Turn whatever Lance raises, panics included, into a StorageError that says what was being done."""
    try:
        yield
    except OmnigraphError:
        raise
    except BaseException as problem:
        # A panic inside Lance is no Exception.
        if isinstance(problem, LANCE_ERRORS) or _is_panic(problem):
            raise _failed(what, Exception(str(problem)), options) from None
        raise


def open_at(uri: str, version: int | None, options: StorageOptions) -> LanceDataset:
    """Open a table at exactly this version; None means as it was born, without rows."""
    wanted = BIRTH_VERSION if version is None else version
    with translated(f"version {wanted} of {uri} can not be opened", options):
        return VERSIONS.at(uri, wanted, options)


def stored_schema(handle: LanceDataset) -> pa.Schema:
    """Return the columns of a table as they are written: blobs as the struct Lance takes for them."""
    return pa.schema([_stored_field(field) for field in handle.schema])


def _stored_field(field: "pa.Field[Any]") -> "pa.Field[Any]":
    if not is_blob(field):
        return field
    metadata = {**(field.metadata or {}), EXTENSION_NAME: LANCE_BLOB}
    return pa.field(field.name, BLOB_STORAGE, field.nullable, metadata)


def fitted(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the batch with exactly the columns of ``schema``; a column that does not fit is named."""
    if sorted(batch.schema.names) != sorted(schema.names):
        raise InvalidDataError(f"the rows have the columns {batch.schema.names}; the table has {schema.names}")
    columns = [_bare(batch.column(name)) for name in schema.names]
    for column, field in zip(columns, schema, strict=True):
        if column.type != field.type:
            raise InvalidDataError(
                f"column {field.name!r} is {field.type}, but {column.type} was given", column=field.name
            )
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _bare(column: Column) -> Column:
    return column.storage if isinstance(column, pa.ExtensionArray) else column


def as_written(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return rows that were read, with blobs as bytes, in the form they are written in."""
    columns: list[Column] = []
    for field in schema:
        column: Column = batch.column(field.name)
        if is_blob(field):
            parts: Any = [column, pa.nulls(len(column), pa.string())]
            column = pa.StructArray.from_arrays(parts, fields=list(BLOB_STORAGE), mask=compute.is_null(column))
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=schema)


@dataclass(frozen=True, slots=True, eq=False)
class Located:
    """Which of some numbered ids a version holds, and where: parallel columns in ascending order of number."""

    numbers: npt.NDArray[np.int64]
    row_ids: UnsignedNumbers
    addresses: UnsignedNumbers

    def __len__(self) -> int:
        return len(self.numbers)

    def pick(self, which: Any) -> "Located":
        """Return some of them, by mask or by order."""
        return Located(self.numbers[which], self.row_ids[which], self.addresses[which])

    def by_row_id(self) -> "Located":
        """Return them in the order of their row ids."""
        return self.pick(np.argsort(self.row_ids, kind="stable"))


class PlacesSeen:
    """Where rows lie that go by in their order, told by whoever found them; null where a row is new."""

    def __init__(self) -> None:
        self._row_ids: list[Column] = []
        self._addresses: list[Column] = []

    def note(self, row_ids: Column, addresses: Column) -> None:
        """Note some rows."""
        self._row_ids.append(row_ids)
        self._addresses.append(addresses)

    @property
    def located(self) -> Located:
        """Return which rows lie where."""
        row_ids, addresses = (pa.chunked_array(each, pa.int64()) for each in (self._row_ids, self._addresses))
        known = compute.is_valid(addresses)
        return Located(
            np.flatnonzero(known),
            np.asarray(row_ids.filter(known), np.uint64),
            np.asarray(addresses.filter(known), np.uint64),
        )


def locate(handle: LanceDataset, ids: Column) -> Located:
    """Find rows by id: through the index when there is one and the ids are few, else in one streamed scan."""
    rows = int(handle.count_rows())
    if rows == 0 or len(ids) == 0:
        return Located(np.empty(0, np.int64), np.empty(0, np.uint64), np.empty(0, np.uint64))
    indexed = few_enough(handle, len(ids)) and has_id_index(handle)
    found = looked_up(handle, ids) if indexed else _scanned(handle, ids)
    numbers = compute.index_in(found.column("id"), value_set=ids)
    located = Located(
        np.asarray(numbers, np.int64),
        np.asarray(found.column(ROW_ID), np.uint64),
        np.asarray(found.column(ROW_ADDRESS), np.uint64),
    )
    located = located.pick(np.argsort(located.numbers, kind="stable"))
    if len(located) and np.any(np.diff(located.numbers) == 0):
        twice = ids[int(located.numbers[:-1][np.diff(located.numbers) == 0][0])].as_py()
        raise CorruptGraphError(f"the table holds the id {twice!r} more than once; nothing was changed")
    return located


def few_enough(handle: LanceDataset, ids: int) -> bool:
    """Tell whether so many ids are looked up faster than the whole table is scanned."""
    return ids * LOOKUP_ROWS_PER_ID <= int(handle.count_rows())


def has_id_index(handle: LanceDataset) -> bool:
    """Tell whether ids can be looked up."""
    return has_index(handle, "id")


def has_index(handle: LanceDataset, column: str) -> bool:
    """Tell whether the values of a column can be looked up."""
    return any(_finds(index, column) for index in handle.describe_indices())


def index_kind(index: Any) -> IndexKind | None:
    """Return of what kind an index is; None if it is of none that we build."""
    name = str(index.index_type).upper()
    return IndexKind(name) if name in IndexKind.__members__ else None


def _finds(index: Any, column: str) -> bool:
    """Tell whether an index finds rows by the value of a column, and not by words of it."""
    return list(index.field_names) == [column] and index_kind(index) in LOOKUP_KINDS


def looked_up(handle: LanceDataset, ids: Column, fragments: Any = None) -> pa.Table:
    """Return id, row id and address of the rows with these ids, by the index; of some fragments, or of all."""

    def look(few: pc.Expression) -> pa.Table:
        return handle.scanner(["id"], few, fragments=fragments, with_row_id=True, with_row_address=True).to_table()

    return pa.concat_tables(each_share("id", ids, look))


def indexed_fragments(handle: LanceDataset, column: str) -> frozenset[int]:
    """Return the fragments whose values in a column can be looked up."""
    covered: set[int] = set()
    for index in handle.describe_indices():
        if _finds(index, column):
            covered |= {int(number) for segment in index.segments for number in segment.fragment_ids}
    return frozenset(covered)


def fragments_at(handle: LanceDataset, numbers: Iterable[int]) -> list[LanceFragment]:
    """Return the fragments with these numbers, those that there are."""
    return [fragment for fragment in map(handle.get_fragment, numbers) if fragment is not None]


def _scanned(handle: LanceDataset, ids: Column) -> pa.Table:
    stream = handle.scanner(["id"], with_row_id=True, with_row_address=True, batch_size=ID_SCAN_ROWS).to_reader()
    admitted = pa.Table.from_batches(sifted(stream, Sieve([ids])), stream.schema)
    return admitted.filter(compute.is_in(admitted.column("id"), value_set=ids))


def sifted(stream: pa.RecordBatchReader, sieve: Sieve, column: str = "id") -> Iterator[pa.RecordBatch]:
    """Yield the rows whose text has a fingerprint in the sieve; Lance reads ahead while we look."""
    for batch in stream:
        admitted = sieve.admitted(batch.column(column))
        if len(admitted):
            yield batch.take(pa.array(admitted, pa.int64()))


def scan_row_ids(
    handle: LanceDataset, row_ids: UnsignedNumbers, columns: Sequence[str], *, with_address: bool = False
) -> Iterator[pa.RecordBatch]:
    """Stream columns of the rows with these row ids, blobs as bytes, each batch with its ``_rowid``."""
    # On tables with stable row ids the list is one of row ids, whatever Lance calls it.
    blobs = any(is_blob(handle.schema.field(name)) for name in columns)
    yield from handle.scanner(
        columns=list(columns),
        with_row_id=True,
        with_row_address=with_address,
        row_addr_allowlist=serialize_row_addrs(row_ids.tolist()),
        blob_handling="all_binary",
        batch_size=BLOB_SCAN_ROWS if blobs else SCAN_ROWS,
        batch_readahead=1 if blobs else None,
    ).to_reader()


def scan_all(handle: LanceDataset, fragments: Sequence[int] | None = None) -> Iterator[pa.RecordBatch]:
    """Stream every row, or those of some fragments, blobs as bytes."""
    blobs = any(is_blob(field) for field in handle.schema)
    some: Any = None if fragments is None else [handle.get_fragment(number) for number in fragments]
    yield from handle.scanner(
        fragments=some,
        blob_handling="all_binary",
        batch_size=BLOB_SCAN_ROWS if blobs else SCAN_ROWS,
        batch_readahead=1 if blobs else None,
    ).to_reader()


def scan_blob_sizes(handle: LanceDataset, row_ids: UnsignedNumbers, column: str) -> Iterator[pa.RecordBatch]:
    """Stream what Lance notes of the blobs of these rows, their ``size`` among it, without reading them."""
    yield from handle.scanner(
        columns=[column],
        with_row_id=True,
        row_addr_allowlist=serialize_row_addrs(row_ids.tolist()),
        blob_handling="blobs_descriptions",
        batch_size=SCAN_ROWS,
    ).to_reader()


def rows_of(handle: LanceDataset, sets: Iterable[RowSet]) -> Iterator[pa.RecordBatch]:
    """Stream id, row id and address of these rows, reading only the fragments they lie in."""
    for rows in sets:
        fragment: Any = handle.get_fragment(rows.fragment)
        if fragment is None:
            raise CorruptGraphError(f"{handle.uri} has no fragment {rows.fragment}, but rows of it are staged")
        offsets = offsets_of(rows)
        scanner = handle.scanner(["id"], fragments=[fragment], with_row_id=True, with_row_address=True)
        for batch in scanner.to_reader():
            here = np.asarray(batch.column(ROW_ADDRESS), np.uint64) & OFFSET_MASK
            yield batch.filter(pa.array(np.isin(here, offsets, assume_unique=True)))


def row_sets(addresses: UnsignedNumbers) -> tuple[RowSet, ...]:
    """Return row addresses as one set of offsets per fragment, in ascending order."""
    if len(addresses) == 0:
        return ()
    ascending = np.sort(addresses)
    fragments = ascending >> FRAGMENT_SHIFT
    firsts = first_of_runs(fragments)
    parts = np.split(ascending & OFFSET_MASK, firsts[1:])
    return tuple(
        RowSet(fragment=int(fragment), rows=len(part), offsets=pack(part))
        for fragment, part in zip(fragments[firsts], parts, strict=True)
    )


def pack(numbers: UnsignedNumbers) -> str:
    """Return numbers as text: the differences of rising ones are small and compress to a byte or two each."""
    steps = np.diff(numbers, prepend=np.uint64(0)).astype("<u8")
    return base64.b64encode(zlib.compress(steps.tobytes(), PACK_LEVEL)).decode("ascii")


def unpack(text: str, count: int) -> UnsignedNumbers:
    """Read :func:`pack` back; anything else than ``count`` numbers is corrupt."""
    try:
        steps = np.frombuffer(zlib.decompress(base64.b64decode(text, validate=True)), "<u8")
    except (ValueError, zlib.error) as problem:
        raise CorruptGraphError(f"staged row numbers can not be read: {problem}") from problem
    if len(steps) != count:
        raise CorruptGraphError(f"{len(steps)} staged row numbers were found where {count} belong")
    return np.cumsum(steps, dtype=np.uint64)


def offsets_of(rows: RowSet) -> UnsignedNumbers:
    """Return the offsets of a set of rows, ascending."""
    offsets = unpack(rows.offsets, rows.rows)
    if np.any(offsets[1:] <= offsets[:-1]):
        raise CorruptGraphError(f"the rows staged for fragment {rows.fragment} are not in order")
    return offsets


def united(sets: Iterable[RowSet]) -> UnsignedNumbers:
    """Return sets of rows as row addresses."""
    parts = [(np.uint64(rows.fragment) << FRAGMENT_SHIFT) | offsets_of(rows) for rows in sets]
    return np.concatenate([np.empty(0, np.uint64), *parts])


def file_session(uri: str, options: StorageOptions) -> LanceFileSession:
    """Return a way to the files of a table."""
    return LanceFileSession(uri, storage_options=options.for_clients() or None)


def ids_in(session: LanceFileSession, fragments: Iterable[FragmentMetadata]) -> Iterator[Column]:
    """Stream the ids in the files of new fragments, in order."""
    for fragment in fragments:
        reader = session.open_reader(f"{DATA}/{fragment.files[0].path}", ["id"])
        for batch in reader.read_all(batch_size=ID_SCAN_ROWS).to_batches():
            yield batch.column("id")


def fragment_text(fragment: FragmentMetadata) -> str:
    """Return Lance's metadata of a fragment as JSON text."""
    return json.dumps(fragment.to_json(), separators=(",", ":"))


def fragments_of(texts: Iterable[str]) -> list[FragmentMetadata]:
    """Read fragments back from their JSON text."""
    try:
        return [FragmentMetadata.from_json(text) for text in texts]
    except (KeyError, TypeError, ValueError) as problem:
        raise CorruptGraphError(f"the metadata of a staged fragment can not be read: {problem!r}") from problem
