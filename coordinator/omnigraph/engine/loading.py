"""Loading files into a graph: everything is read and checked first, then it becomes one commit, or nothing.

Records of different types may come in any order. They are turned into columns a few megabytes at a time and
set aside on local disk, one stream per table; only when the input has ended is a branch forked, if one is
asked for, and a transaction begun. What is held in memory does not grow with the input, but for the ids that
a transaction keeps.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import pyarrow as pa

from omnigraph.engine.history import History
from omnigraph.errors import BranchNotFoundError, InvalidDataError, InvalidOptionError
from omnigraph.model.catalog import Catalog
from omnigraph.model.receipt import Receipt
from omnigraph.model.schema import TableType, did_you_mean
from omnigraph.rules import records
from omnigraph.rules.names import check_ref_name
from omnigraph.rules.who import check_actor, check_message, check_txn
from omnigraph.storage import record_files as files
from omnigraph.storage.spool import Spool

if TYPE_CHECKING:
    from omnigraph.engine.graph import Graph

Mode = Literal["append", "merge", "overwrite"]
MODES: Final[tuple[Mode, ...]] = ("append", "merge", "overwrite")
BUFFERED_CHARACTERS_MAX: Final = 8 * 2**20
BATCH_CHARACTERS_MAX: Final = 2 * 2**20
BATCH_RECORDS_MAX: Final = 4_096
PROGRESS_RECORDS: Final = 2_000

Source: TypeAlias = "str | PathLike[str] | pa.Table | pa.RecordBatch | pa.RecordBatchReader | Any"
Progress: TypeAlias = Callable[[int, int, int | None], None]
"""Told how many records and bytes were read, and how many bytes there are, if that is known."""
InMemory = (pa.Table, pa.RecordBatch, pa.RecordBatchReader)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRequest:
    """What to load, how, and where to."""

    source: Source
    mode: str
    branch: str
    create_from: str | None = None
    type: str | None = None
    format: str | None = None
    message: str | None = None
    actor: str | None = None
    txn: tuple[str, int] | None = None
    constraints: str = "fail"
    progress: Progress | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadResult:
    """What a load did: the rows read for each table, and the receipt of its one commit."""

    branch: str
    branch_created: bool
    receipt: Receipt
    rows: Mapping[str, int]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "branch": self.branch,
            "branch_created": self.branch_created,
            "rows": dict(self.rows),
            "receipt": self.receipt.to_dict(),
        }


def load(graph: "Graph", history: History, request: LoadRequest) -> LoadResult:
    """Read and check the whole input, then publish it."""
    _check(request)
    start = _start(graph, request)
    catalog = graph.catalog(history.named(request.branch if start is None else start))
    with Spool() as spool:
        _Intake(catalog, spool, request).read()
        if start is not None:
            graph.branches.create(request.branch, from_=start)
        receipt = _publish(graph, catalog, spool, request)
        return LoadResult(branch=request.branch, branch_created=start is not None, receipt=receipt, rows=spool.rows)


def _check(request: LoadRequest) -> None:
    """Refuse early what would be refused after everything was read."""
    if request.mode not in MODES:
        hint = did_you_mean(str(request.mode), MODES)
        text = f"there is no mode {str(request.mode)[:60]!r}; there are {', '.join(MODES)}"
        raise InvalidOptionError(text + (f"; {hint}" if hint else ""))
    check_message(request.message)
    check_actor(request.actor)
    check_txn(request.txn)


def _start(graph: "Graph", request: LoadRequest) -> str | None:
    """Return what to fork the branch from, or None if it is there."""
    try:
        graph.branches.get(request.branch)
    except BranchNotFoundError:
        if request.create_from is None:
            raise
        check_ref_name(request.branch)
        return request.create_from
    return None


def _publish(graph: "Graph", catalog: Catalog, spool: Spool, request: LoadRequest) -> Receipt:
    transaction = graph.transaction(
        request.branch,
        message=request.message,
        actor=request.actor,
        txn=request.txn,
        constraints=request.constraints,
    )
    with transaction as tx:
        write = {"append": tx.append, "merge": tx.upsert, "overwrite": tx.overwrite}[request.mode]
        rows = spool.rows
        for table in map(str, catalog.tables):
            if table in rows:
                write(table, spool.reader(table))
    return tx.receipt


# -- reading --------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Waiting:
    """Rows of one type that are not columns yet, and where each came from."""

    kind: TableType
    rows: list[records.Row] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    characters: int = 0


class _Intake:
    """Reads one source into a spool."""

    def __init__(self, catalog: Catalog, spool: Spool, request: LoadRequest) -> None:
        self._catalog = catalog
        self._spool = spool
        self._source = request.source
        self._format = None if request.format is None else files.check_format(request.format)
        self._only = None if request.type is None else catalog.table_type(request.type)
        self._progress = request.progress
        self._waiting: dict[str, _Waiting] = {}
        self._characters = 0
        self._records = 0

    def read(self) -> None:
        """Read everything, or raise before anything was applied."""
        if self._only is not None:
            self._open(self._only)
        source = self._source
        if isinstance(source, InMemory):
            self._read_columns(self._named(None), files.table_batches(source), None)
        elif hasattr(source, "read") or source == files.STANDARD_STREAM:
            self._read_stream(source, self._format or "jsonl", None)
        elif isinstance(source, str | PathLike):
            self._read_path(Path(source))
        else:
            raise InvalidOptionError("a source is a path, a binary file, or a pyarrow table, batch or reader")

    def _read_path(self, path: Path) -> None:
        if "://" in str(self._source):
            raise InvalidOptionError("a source is a local path; copy the file here first, or pass an open file")
        if path.is_dir():
            if self._format not in (None, "parquet"):
                raise InvalidOptionError("a folder holds Parquet files, named <Type>.parquet")
            self._read_folder(path)
        else:
            self._read_stream(path, self._format or files.format_of(path), files.stem_of(path))

    def _read_folder(self, folder: Path) -> None:
        found = files.folder_files(folder)
        kinds = [self._catalog.type(file.type) for file in found]
        if self._only is not None:
            found, kinds = _chosen(found, kinds, self._only)
        total = sum(file.path.stat().st_size for file in found)
        done = 0
        for file, kind in zip(found, kinds, strict=True):
            self._open(kind)
            self._read_parquet(kind, file.path)
            done += file.path.stat().st_size
            self._tell(done, total)

    def _read_stream(self, source: Any, format: files.Format, name: str | None) -> None:
        with files.opened(source) as (stream, count):
            if format == "jsonl":
                self._read_json(stream, count)
                return
            kind = self._named(name)
            self._open(kind)
            if format == "csv":
                self._read_csv(kind, stream, count)
            elif format == "arrow":
                given = source if isinstance(source, Path) else stream
                self._read_columns(kind, files.arrow_batches(given), count)
            elif isinstance(source, Path):
                self._read_parquet(kind, source)
                self._tell(count.total or 0, count.total)
            else:
                raise InvalidOptionError("Parquet is read from a path, not from a stream")

    def _read_json(self, stream: Any, count: files.Input) -> None:
        catalog, only = self._catalog, self._only
        for record in files.json_records(stream):
            self._records += 1
            try:
                kind, row = records.record_of(catalog, record.value, only)
            except records.BadRecordError as problem:
                raise _invalid(problem, record.number, record.line) from problem
            self._hold(kind, row, record.number, record.line, record.size)
            if self._records % PROGRESS_RECORDS == 0:
                self._tell(count.count, count.total)
        for waiting in self._waiting.values():
            self._flush(waiting)
        self._tell(count.count, count.total)

    def _hold(self, kind: TableType, row: records.Row, number: int, line: int, size: int) -> None:
        waiting = self._waiting.get(kind.name)
        if waiting is None:
            self._open(kind)
            waiting = self._waiting[kind.name] = _Waiting(kind)
        waiting.rows.append(row)
        waiting.numbers.append(number)
        waiting.lines.append(line)
        waiting.characters += size
        self._characters += size
        if waiting.characters >= BATCH_CHARACTERS_MAX or len(waiting.rows) >= BATCH_RECORDS_MAX:
            self._flush(waiting)
        elif self._characters >= BUFFERED_CHARACTERS_MAX:
            self._flush(max(self._waiting.values(), key=lambda each: each.characters))

    def _flush(self, waiting: _Waiting) -> None:
        if not waiting.rows:
            return
        try:
            batch = records.batch_of_rows(waiting.kind, waiting.rows)
        except records.BadRecordError as problem:
            row = problem.row or 0
            raise _invalid(problem, waiting.numbers[row], waiting.lines[row]) from problem
        self._spool.add(str(waiting.kind.table), batch)
        self._characters -= waiting.characters
        waiting.rows, waiting.numbers, waiting.lines, waiting.characters = [], [], [], 0

    def _read_csv(self, kind: TableType, stream: Any, count: files.Input) -> None:
        self._take(kind, files.csv_batches(stream), records.batch_of_texts, count)

    def _read_parquet(self, kind: TableType, path: Path) -> None:
        try:
            records.check_columns(kind, files.parquet_names(path))
        except records.BadRecordError as problem:
            raise _invalid(problem, None, None) from problem
        self._read_columns(kind, files.parquet_batches(path), None)

    def _read_columns(self, kind: TableType, batches: Iterator[pa.RecordBatch], count: files.Input | None) -> None:
        self._open(kind)
        self._take(kind, batches, records.batch_of_columns, count)

    def _take(
        self,
        kind: TableType,
        batches: Iterator[pa.RecordBatch],
        convert: Callable[[TableType, pa.RecordBatch], pa.RecordBatch],
        count: files.Input | None,
    ) -> None:
        before = self._records
        for batch in batches:
            try:
                fitted = convert(kind, batch)
            except records.BadRecordError as problem:
                number = None if problem.row is None else self._records - before + problem.row + 1
                raise _invalid(problem, number, None) from problem
            if fitted.num_rows:
                self._spool.add(str(kind.table), fitted)
            self._records += batch.num_rows
            if count is not None:
                self._tell(count.count, count.total)

    def _open(self, kind: TableType) -> None:
        self._spool.open_table(str(kind.table), records.plain_schema(kind))

    def _named(self, name: str | None) -> TableType:
        """Return the type that columns are of: the one that was given, or the one the file is named after."""
        if self._only is not None:
            return self._only
        if name is None:
            raise InvalidOptionError("columns alone do not say which type they are of; give type=")
        return self._catalog.type(name)

    def _tell(self, done: int, total: int | None) -> None:
        if self._progress is not None:
            self._progress(self._records, done, total)


def _chosen(
    found: list[files.FolderFile], kinds: list[TableType], only: TableType
) -> tuple[list[files.FolderFile], list[TableType]]:
    pairs = [(file, kind) for file, kind in zip(found, kinds, strict=True) if kind is only]
    return [file for file, _ in pairs], [kind for _, kind in pairs]


def _invalid(problem: records.BadRecordError, number: int | None, line: int | None) -> InvalidDataError:
    place = "" if number is None else f"record {number}: " if line is None else f"record {number} (line {line}): "
    return InvalidDataError(
        f"{place}{problem}; nothing was applied",
        record=number,
        line=line,
        table_key=problem.table,
        column=problem.column,
    )
