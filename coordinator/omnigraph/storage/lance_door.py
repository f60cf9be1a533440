"""The one door to Lance: everything omnigraph asks of it, and nothing else.

Lance's handles never leave this module untyped: callers hold a :class:`RowsAt` or a table URI and a
version number. What Lance does here was measured, and ``tests/guards`` repeats the measurements.
"""

import re
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import lance
import pyarrow as pa
import pyarrow.compute as pc
from lance import LanceDataset, LanceOperation
from lance.commit import CommitConflictError
from lance.dataset import Transaction
from lance.fragment import FragmentMetadata, LanceFragment, write_fragments

from omnigraph.errors import InvalidOptionError, StorageError
from omnigraph.rules.arrow_schema import is_blob
from omnigraph.storage.lance_cores import use_every_core
from omnigraph.storage.roots import StorageOptions, scrub

use_every_core()

STORAGE_VERSION = "2.2"
PREDICATE_CHARACTERS_MAX = 65_536
IDS_PER_LOOKUP_MAX = 8_192
OPEN_VERSIONS_MAX = 64
SEAL_DRAWS_MAX = 3
BIRTH_VERSION = 1

Predicate: TypeAlias = str | pc.Expression
STORAGE_WORDS = ("Not found:", "Object at location", "error sending request", "Generic S3 error", "os error")
REFUSAL_WORDS = (
    "lacked the necessary privileges",
    "403 Forbidden",
    "AccessDenied",
    "Permission denied",
    "Read-only file system",
    "No space left",
    "Disk quota exceeded",
)
_PLACE = re.compile(r",? /\S+\.rs:\d+:\d+")
LANCE_ERRORS = (OSError, RuntimeError, ValueError)


class SwapLostError(Exception):
    """Someone else took the next version: nothing of ours is visible."""


class SwapUncertainError(Exception):
    """Storage did not say whether the swap happened: read before answering."""


class SwapRefusedError(SwapUncertainError):
    """Storage said no, and will again: unless an earlier try of the client's got through, the swap did not happen."""


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file of a dataset; a new one is a file that nothing refers to yet."""

    name: str
    bytes: int
    fragment: FragmentMetadata

    @classmethod
    def of(cls, fragment: FragmentMetadata) -> "StoredFile":
        """Read name and size once: Lance makes new objects at every look."""
        return cls(file_name(fragment), int(fragment.files[0].file_size_bytes or 0), fragment)


@dataclass(frozen=True, slots=True, eq=False)
class RowsAt:
    """A dataset at one version, with its files in order."""

    handle: LanceDataset
    stored: tuple[StoredFile, ...]
    options: StorageOptions

    @property
    def files(self) -> tuple[str, ...]:
        """The names of its files."""
        return tuple(file.name for file in self.stored)

    @property
    def version(self) -> int:
        """The Lance version."""
        return int(self.handle.version)

    @property
    def metadata(self) -> Mapping[str, str]:
        """The schema-level metadata."""
        return {k.decode(): v.decode() for k, v in (self.handle.schema.metadata or {}).items()}

    def read(self, file: str, where: str | None = None) -> pa.Table:
        """Read one file's rows."""
        with self._reading():
            return self.handle.get_fragments()[self.files.index(file)].to_table(filter=where)

    def read_together(self, files: Sequence[str], where: str | None = None) -> pa.Table:
        """Read the rows of some files in one scan: each by itself takes three times as long."""
        with self._reading():
            every, names = self.handle.get_fragments(), self.files
            return self.handle.scanner(fragments=[every[names.index(file)] for file in files], filter=where).to_table()

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except LANCE_ERRORS as problem:
            raise _failed("a file of __manifest can not be read", problem, self.options) from None

    @property
    def latest_version(self) -> int:
        """The newest version there is now; one listing."""
        try:
            return int(self.handle.latest_version)
        except LANCE_ERRORS as problem:
            raise _failed("the newest version of __manifest can not be listed", problem, self.options) from None


class SwappedRows:
    """A small dataset whose list of files is replaced as a whole, by compare-and-swap.

    The swap is a Lance ``Overwrite`` that names old and new files alike and is never retried by
    Lance: it takes exactly the version after the one it was based on, or fails. Nothing is ever
    rebased, so nothing can land on a state its author did not see.
    """

    def __init__(self, uri: str, options: StorageOptions) -> None:
        self._uri = uri
        self._options = options
        self._client = options.for_clients() or None

    def latest(self) -> RowsAt:
        """Open the newest version."""
        try:
            handle = lance.dataset(self._uri, storage_options=self._client)
            files = tuple(StoredFile.of(fragment.metadata) for fragment in handle.get_fragments())
            return RowsAt(handle, files, self._options)
        except LANCE_ERRORS as problem:
            raise _failed("__manifest can not be opened", problem, self._options) from None

    def write(self, table: pa.Table, base: RowsAt | None) -> StoredFile:
        """Write rows into a new file beside those of ``base``, or of a dataset yet to be created."""
        try:
            fragments = write_fragments(
                table,
                base.handle if base is not None else self._uri,
                mode="append" if base is not None else "create",
                schema=table.schema,
                data_storage_version=STORAGE_VERSION,
                storage_options=None if base is not None else self._client,
            )
        except LANCE_ERRORS as problem:
            if base is None and "already exists" in str(problem):
                raise SwapLostError(str(problem)) from None  # someone created it since we looked
            raise _failed(f"nothing was applied: {self._uri} can not be written", problem, self._options) from None
        if len(fragments) != 1:
            raise StorageError(f"{len(fragments)} files were written where one was meant")
        return StoredFile.of(fragments[0])

    def create(self, files: Sequence[StoredFile], schema: pa.Schema) -> RowsAt:
        """Create the dataset with these files, or lose to whoever did."""
        return self._commit(self._uri, 0, files, schema)

    def swap(self, base: RowsAt, files: Sequence[StoredFile], schema: pa.Schema) -> RowsAt:
        """Replace the files of ``base`` by others, new ones and such that it has already."""
        return self._commit(base.handle, base.version, files, schema)

    def _commit(self, target: LanceDataset | str, base: int, files: Sequence[StoredFile], schema: pa.Schema) -> RowsAt:
        transaction = Transaction(base, LanceOperation.Overwrite(schema, [file.fragment for file in files]))
        options: dict[str, Any] = {"storage_options": self._client} if isinstance(target, str) else {}
        try:
            # max_retries=0: an Overwrite that Lance may retry discards what others published in between.
            handle = LanceDataset.commit(target, transaction, max_retries=0, **options)
        except CommitConflictError as lost:
            raise SwapLostError(str(lost)) from lost
        except BaseException as unclear:
            # A panic inside Lance is no Exception; it too leaves the outcome open.
            if isinstance(unclear, LANCE_ERRORS) or _is_panic(unclear):
                said = scrub(_without_places(str(unclear)), self._options)
                refused = any(word in said for word in REFUSAL_WORDS)
                raise (SwapRefusedError if refused else SwapUncertainError)(said) from None
            raise
        return RowsAt(handle, tuple(files), self._options)


def _fragment(handle: LanceDataset, number: int) -> LanceFragment:
    found = handle.get_fragment(number)
    if found is None:
        raise StorageError(f"version {handle.version} of {handle.uri} has no fragment {number}")
    return found


def _is_panic(problem: BaseException) -> bool:
    return type(problem).__module__ == "pyo3_runtime"


def _without_places(text: str) -> str:
    """Return Lance's message without the places in its own source that it names."""
    return _PLACE.sub("", text).removeprefix("Invalid user input: ").strip()


def _failed(what: str, problem: Exception, options: StorageOptions) -> StorageError:
    """Say what failed and why; Lance's text is kept, credentials in it are not."""
    return StorageError(f"{what}: {scrub(_without_places(str(problem)), options)}")


class OpenVersions:
    """Versions of tables that were opened lately: a version never changes, so one look is enough."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: OrderedDict[tuple[str, int, StorageOptions], LanceDataset] = OrderedDict()
        self._lock = threading.Lock()

    def at(self, uri: str, version: int, options: StorageOptions) -> LanceDataset:
        """Return a table at a version, opened now or before."""
        key = (uri, version, options)
        with self._lock:
            found = self._open.get(key)
            if found is not None:
                self._open.move_to_end(key)
                return found
        handle = lance.dataset(uri, version=version, storage_options=options.for_clients() or None)
        self.keep(uri, handle, options)
        return handle

    def keep(self, uri: str, handle: LanceDataset, options: StorageOptions) -> None:
        """Remember a version that is at hand."""
        with self._lock:
            self._open[(uri, int(handle.version), options)] = handle
            while len(self._open) > self._most:
                self._open.popitem(last=False)


VERSIONS = OpenVersions(OPEN_VERSIONS_MAX)


def file_name(fragment: FragmentMetadata) -> str:
    """Return the name of a fragment's first file."""
    return _name_of(fragment.files[0])


def file_names(fragment: FragmentMetadata) -> tuple[str, ...]:
    """Return the names of a fragment's files."""
    return tuple(map(_name_of, fragment.files))


def _name_of(file: Any) -> str:
    """Return the name of a file; Lance's own accessor makes a class at every call."""
    name = getattr(file, "_path", None)
    return name if type(name) is str else str(file.path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sealed:
    """A sealed version of a table: what a pin is made of."""

    lance_version: int
    transaction: str
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """Which columns and rows of a table to read; ``None`` means all."""

    columns: Sequence[str] | None = None
    where: Predicate | None = None
    limit: int | None = None
    fragments: Sequence[int] | None = None
    batch_rows: int | None = None
    with_places: bool = False
    """Whether row ids and row addresses come along, as ``_rowid`` and ``_rowaddr``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FragmentSize:
    """A piece of a table that can be read by itself, and how large it is."""

    number: int
    rows: int
    bytes: int
    files: int = 1


def blobs_last(fields: "Iterable[pa.Field[Any]]") -> "list[pa.Field[Any]]":
    """Return columns in the order files have them: Lance's reader of single files miscounts what follows a blob."""
    return sorted(fields, key=is_blob)


class Tables:
    """Node and edge datasets: staged, sealed as detached versions, read at exactly one of them."""

    def __init__(self, options: StorageOptions) -> None:
        self._options = options
        self._client = options.for_clients() or None

    def ensure(self, uri: str, schema: pa.Schema) -> None:
        """Create the empty dataset unless it is there; any number of writers may try at once."""
        empty = Transaction(0, LanceOperation.Overwrite(pa.schema(blobs_last(schema)), []))
        try:
            born = LanceDataset.commit(
                uri, empty, max_retries=0, enable_stable_row_ids=True, storage_options=self._client
            )
            VERSIONS.keep(uri, born, self._options)
        except (CommitConflictError, *LANCE_ERRORS):
            # Lost to another creator, or there already: either way it opens, or the error is real.
            self._open(uri, BIRTH_VERSION)

    def count(self, uri: str, version: int, where: Predicate) -> int:
        """Count the rows of a sealed version that a predicate holds for."""
        handle = self._open(uri, version)
        with self._reading(where):
            return int(handle.scanner(columns=[], filter=where, with_row_id=True).to_table().num_rows)

    def scan(self, uri: str, version: int, request: Scan) -> pa.RecordBatchReader:
        """Stream rows of a sealed version; blobs come as their bytes."""
        return self._stream(self._open(uri, version), request)

    def fragments(self, uri: str, version: int) -> tuple[FragmentSize, ...]:
        """Return the pieces a sealed version is made of."""
        handle = self._open(uri, version)
        with self._reading(None):
            every = [fragment.metadata for fragment in handle.get_fragments()]
            return tuple(
                FragmentSize(
                    number=int(each.id),
                    rows=int(each.num_rows),
                    bytes=sum(int(file.file_size_bytes or 0) for file in each.files),
                    files=len(each.files),
                )
                for each in every
            )

    def scan_empty(self, schema: pa.Schema, request: Scan) -> pa.RecordBatchReader:
        """Stream a table that has no rows yet, as particular about the request as one that has."""
        return self._stream(lance.write_dataset(schema.empty_table(), "memory://"), request)

    def _stream(self, handle: LanceDataset, request: Scan) -> pa.RecordBatchReader:
        with self._reading(request.where):
            scanner = handle.scanner(
                columns=None if request.columns is None else list(request.columns),
                filter=request.where,
                limit=request.limit,
                fragments=None if request.fragments is None else [_fragment(handle, n) for n in request.fragments],
                batch_size=request.batch_rows,
                prefilter=True,
                blob_handling="all_binary",
                with_row_id=request.with_places,
                with_row_address=request.with_places,
            )
            reader = scanner.to_reader()

        def batches() -> Iterator[pa.RecordBatch]:
            with self._reading(request.where):
                yield from reader

        return pa.RecordBatchReader.from_batches(reader.schema, batches())

    @contextmanager
    def _reading(self, where: Predicate | None) -> Iterator[None]:
        """Turn Lance's complaints about a scan into ours, and refuse predicates long enough to kill the process."""
        if isinstance(where, str) and len(where) > PREDICATE_CHARACTERS_MAX:
            raise InvalidOptionError(
                f"the filter has {len(where)} characters; at most {PREDICATE_CHARACTERS_MAX} are allowed"
            )
        try:
            yield
        except LANCE_ERRORS as problem:
            text = str(problem)
            # Without a filter there is nothing a caller could have got wrong: the storage did.
            if isinstance(where, str) and not any(word in text for word in STORAGE_WORDS):
                raise InvalidOptionError(
                    f"this can not be read: {scrub(_without_places(text), self._options)}"
                ) from None
            raise _failed("reading failed", problem, self._options) from None

    def _open(self, uri: str, version: int) -> LanceDataset:
        try:
            return VERSIONS.at(uri, version, self._options)
        except LANCE_ERRORS as problem:
            raise _failed(f"version {version} of {uri} can not be opened", problem, self._options) from None
