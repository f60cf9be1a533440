"""The relational engine in this process: plans over streamed relations, out of core.

DuckDB does the work (decision 0006). It sees nothing but the relations a plan is given: no file, no network,
no variable of Python. What does not fit into its memory goes to a private folder, which is removed with the engine.

Text, numbers, booleans, dates, moments in UTC, lists, vectors, structs, nulls and NaN come out as they went in. Large
text, large binary and large lists come out as the plain kinds, dictionaries as their values, and elements of lists as
nullable. Blobs do not belong here: select their keys, and read them by row.
"""

import atexit
import os
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias

import pyarrow as pa

from omnigraph.errors import OmnigraphError, StorageError
from omnigraph.storage.relations import Found, Made, Relation, Spread, Values

if TYPE_CHECKING:  # importing it takes tens of milliseconds, and most commands run no plan
    from duckdb import DuckDBPyConnection

MEMORY_BYTES: Final = 2**30
MEMORY_BYTES_MIN: Final = 64 * 2**20
THREADS_MAX: Final = 4
RESULT_ROWS: Final = 65_536

# In this order: the scratch folder can not be named any more once the outside is shut.
LOCKS: Final = (
    "SET GLOBAL TimeZone = 'UTC'",
    "SET GLOBAL async_threads = 1",
    "SET GLOBAL enable_external_access = false",
    "SET GLOBAL lock_configuration = true",
)
OUT_OF_MEMORY, OUT_OF_REACH = "Out of Memory Error", "IO Error"


def quoted(name: str) -> str:
    """Return a name as SQL takes it; two names that differ only in their case are one, quoted or not."""
    if "\0" in name or not name:
        raise _bug(f"{name!r} can not be the name of a relation or column")
    return '"' + name.replace('"', '""') + '"'


class EmbeddedEngine:
    """Runs plans; threads may share it. Close it, or use it as a context, and its scratch folder is gone."""

    def __init__(
        self, memory_bytes: int = MEMORY_BYTES, scratch_folder: str | None = None, threads: int | None = None
    ) -> None:
        if memory_bytes < MEMORY_BYTES_MIN:
            raise _bug(f"the engine can not work in less than {MEMORY_BYTES_MIN} bytes")
        self._memory_bytes = memory_bytes
        self._scratch_folder = scratch_folder
        self._threads = threads or min(THREADS_MAX, os.cpu_count() or 1)
        self._lock = threading.Lock()
        self._database: _Database | None = None
        self._is_closed = False
        self._open: weakref.WeakSet[_Rows] = weakref.WeakSet()
        _ENGINES.add(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End every result that is still being read, and remove the scratch folder."""
        with self._lock:
            self._is_closed = True
            rows, database = list(self._open), self._database
            self._database = None
        for each in rows:
            each.close()
        if database is not None:
            database.close()

    def run(self, sql: str, relations: Mapping[str, Relation], values: Values = ()) -> pa.RecordBatchReader:
        """Run one query and stream its rows; they come in no order unless the query says one.

        Each relation is a name in the query, and may be used more than once: it is then read as often. Values are
        bound to ``$name`` or ``$1``. What a relation raises while it is read, comes out as it is.
        """
        readable = {name: self._readable(relation) for name, relation in relations.items()}
        streams = _streams(readable)
        connection = self._connection()
        try:
            with _translated(streams):
                _prepare(connection, streams, readable)
                reader = _query(connection, sql, values)
        except BaseException:
            connection.close()
            _close_all(streams)
            raise
        rows = _Rows(self, connection, reader, streams)
        with self._lock:
            self._open.add(rows)
            is_closed = self._is_closed
        if is_closed:
            rows.close()
        return pa.RecordBatchReader.from_batches(reader.schema, rows)

    def sampled(
        self, sql: str, relations: Mapping[str, Relation], values: Values = (), *, most: int
    ) -> tuple[int, pa.Table]:
        """Run one query; return how many rows it finds, and at most so many of them."""
        count = 0
        rows = self.run(sql, relations, values)
        sample: list[pa.RecordBatch] = []
        for batch in rows:
            sample.append(batch.slice(0, max(0, most - count)))
            count += batch.num_rows
        return count, pa.Table.from_batches([part for part in sample if part.num_rows], rows.schema)

    def _readable(self, relation: Relation) -> "_Readable":
        """Return a relation as this process reads it."""
        if isinstance(relation, Spread):
            return relation.reader
        if isinstance(relation, Found):
            return lambda: self.run(relation.sql, relation.relations, relation.values)
        if isinstance(relation, Made):
            given = self._readable(relation.rows)
            return lambda: relation.reader(given.to_reader() if isinstance(given, pa.Table) else given())
        return relation

    def _connection(self) -> "DuckDBPyConnection":
        with self._lock:
            if self._is_closed:
                raise _bug("the engine is closed")
            if self._database is None:
                self._database = _Database(self._memory_bytes, self._scratch_folder, self._threads)
            return self._database.connection.cursor()


_Readable: TypeAlias = Callable[[], pa.RecordBatchReader] | pa.Table
_ENGINES: "weakref.WeakSet[EmbeddedEngine]" = weakref.WeakSet()


@atexit.register
def _close_engines() -> None:
    """End what was left open while Python still can: DuckDB complains on stderr about what outlives it."""
    for engine in list(_ENGINES):
        engine.close()


class _Database:
    """A database in memory with its scratch folder; both end together, at the latest when Python ends."""

    def __init__(self, memory_bytes: int, scratch_folder: str | None, threads: int) -> None:
        import duckdb

        try:
            folder = tempfile.TemporaryDirectory(
                prefix="omnigraph-engine-", dir=scratch_folder, ignore_cleanup_errors=True
            )
        except OSError as problem:
            raise StorageError(f"no scratch folder can be made for the relational engine: {problem}") from problem
        config: dict[str, Any] = {
            "memory_limit": f"{memory_bytes}B",
            "temp_directory": folder.name,
            "threads": threads,
            "preserve_insertion_order": False,
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
            "allow_community_extensions": False,
            "allow_persistent_secrets": False,
            "python_enable_replacements": False,
            "python_scan_all_frames": False,
        }
        try:
            with _translated({}):
                self.connection = duckdb.connect(":memory:", config=config)
                for lock in LOCKS:
                    self.connection.execute(lock)
        except BaseException:
            folder.cleanup()
            raise
        self.close = weakref.finalize(self, _shut, self.connection, folder)


def _shut(connection: "DuckDBPyConnection", folder: "tempfile.TemporaryDirectory[str]") -> None:
    connection.close()
    folder.cleanup()


class _Stream:
    """A relation as DuckDB reads it: opened when a query names it, and anew for each further use."""

    def __init__(self, name: str, factory: Callable[[], pa.RecordBatchReader]) -> None:
        self._name = name
        self._factory = factory
        self._schema: pa.Schema | None = None
        self._unread: pa.RecordBatchReader | None = None
        self._lock = threading.Lock()
        self.problem: BaseException | None = None

    def __arrow_c_schema__(self) -> object:
        with self._lock, self._kept():
            if self._schema is None:
                self._unread = self._factory()
                self._schema = self._unread.schema
                _check_columns(self._name, self._schema)
            return self._schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        with self._lock, self._kept():
            reader, self._unread = self._unread, None
            reader = reader or self._factory()
            if self._schema is not None and reader.schema != self._schema:
                raise _bug(f"the relation {self._name!r} has other columns when it is read again")
            watched: Any = pa.RecordBatchReader.from_batches(reader.schema, self._batches(reader))
            return watched.__arrow_c_stream__()

    def _batches(self, reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        # DuckDB keeps only the text of an exception, so we keep the exception.
        with self._kept():
            yield from reader

    @contextmanager
    def _kept(self) -> Iterator[None]:
        try:
            yield
        except GeneratorExit:
            raise
        except BaseException as problem:
            self.problem = self.problem or problem
            raise

    def close(self) -> None:
        """Let go of a reader that no query has used."""
        with self._lock:
            reader, self._unread = self._unread, None
        if reader is not None:
            reader.close()


class _Rows:
    """The rows of a running query; closed when read to the end, when dropped, or when the engine is closed."""

    def __init__(
        self,
        engine: EmbeddedEngine,
        connection: "DuckDBPyConnection",
        reader: pa.RecordBatchReader,
        streams: Mapping[str, _Stream],
    ) -> None:
        self._engine = engine  # an engine nobody holds any more lives as long as its results
        self._connection: DuckDBPyConnection | None = connection
        self._reader: pa.RecordBatchReader | None = reader
        self._streams = streams
        self._lock = threading.Lock()
        self._has_ended = False

    def __iter__(self) -> "_Rows":
        return self

    def __next__(self) -> pa.RecordBatch:
        with self._lock:
            if self._reader is None:
                if self._has_ended:
                    raise StopIteration
                raise _bug("the engine was closed before the result was read to the end")
            try:
                with _translated(self._streams):
                    return self._reader.read_next_batch()
            except BaseException as problem:
                self._has_ended = isinstance(problem, StopIteration)
                self._end()
                raise

    def close(self) -> None:
        """Stop the query."""
        with self._lock:
            self._end()

    def __del__(self) -> None:
        self._end()

    def _end(self) -> None:
        reader, self._reader = self._reader, None
        connection, self._connection = self._connection, None
        if reader is not None:
            with suppress(Exception):  # whatever it says, nobody asks for these rows any more
                reader.close()
        if connection is not None:
            connection.close()
            _close_all(self._streams)


def _streams(relations: "Mapping[str, _Readable]") -> dict[str, _Stream]:
    if len({name.casefold() for name in relations}) != len(relations):
        raise _bug(f"two relations have names that differ only in their case: {sorted(relations)}")
    return {name: _Stream(name, each) for name, each in relations.items() if not isinstance(each, pa.Table)}


def _prepare(
    connection: "DuckDBPyConnection", streams: Mapping[str, _Stream], relations: "Mapping[str, _Readable]"
) -> None:
    for name, relation in relations.items():
        if isinstance(relation, pa.Table):
            _check_columns(name, relation.schema)
            connection.register(name, relation)
        else:
            connection.register(name, streams[name])


def _query(connection: "DuckDBPyConnection", sql: str, values: Values) -> pa.RecordBatchReader:
    import duckdb

    statements = connection.extract_statements(sql)
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        raise _bug("a plan is exactly one query that reads")
    bound = dict(values) if isinstance(values, Mapping) else list(values)
    reader: pa.RecordBatchReader = connection.sql(statements[0], params=bound or None).to_arrow_reader(RESULT_ROWS)
    return reader


def _check_columns(name: str, schema: pa.Schema) -> None:
    if len({column.casefold() for column in schema.names}) != len(schema.names):
        raise _bug(f"two columns of the relation {name!r} differ only in their case: {schema.names}")


def _close_all(streams: Mapping[str, _Stream]) -> None:
    for stream in streams.values():
        stream.close()


@contextmanager
def _translated(streams: Mapping[str, _Stream]) -> Iterator[None]:
    """Raise what a relation has raised, or else what DuckDB says, in our words."""
    import duckdb

    try:
        yield
    except (duckdb.Error, OSError, pa.ArrowException) as problem:
        # While rows are streamed, Arrow stands between: then only the text says what kind of error it is.
        for stream in streams.values():
            if stream.problem is not None:
                raise stream.problem from None
        raise _in_our_words(problem) from problem


def _in_our_words(problem: Exception) -> OmnigraphError:
    text = str(problem)
    if text.startswith(OUT_OF_MEMORY):
        return StorageError(
            "the relational engine has used up its memory or its scratch space: give it more memory, or a scratch "
            f"folder on a disk with more room; {_first_line(text)}"
        )
    if text.startswith(OUT_OF_REACH):
        return StorageError(f"the scratch folder of the relational engine can not be used: {_first_line(text)}")
    return _bug(f"the relational engine does not take a plan: {text}")


def _first_line(text: str) -> str:
    return text.strip().split("\n", 1)[0]


def _bug(what: str) -> OmnigraphError:
    """Return the error of a plan that is wrong in itself; nothing a caller passes can make one so."""
    return OmnigraphError(f"internal error: {what}")
