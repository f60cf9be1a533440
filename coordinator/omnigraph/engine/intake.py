"""Reading sources into a spool: records of different types in any order, a few megabytes at a time.

Every row is remembered with the file and the number of the record it came from, on disk beside it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from omnigraph.engine.deltas import in_one_piece
from omnigraph.engine.origins import Origins
from omnigraph.engine.rejected import Rejected
from omnigraph.errors import InvalidDataError, InvalidOptionError
from omnigraph.model.catalog import Catalog
from omnigraph.model.schema import TableType
from omnigraph.rules import records
from omnigraph.rules.identity import Minting
from omnigraph.rules.json_lines import plain_records, uncollected
from omnigraph.rules.json_stream import JsonError, JsonStream
from omnigraph.rules.record_groups import Numbers, groups_of
from omnigraph.rules.record_values import text_column, typed_column
from omnigraph.rules.sifting import halved, misfit
from omnigraph.rules.values import Column, column_of
from omnigraph.storage import record_files as files
from omnigraph.storage.record_sources import RecordFile, files_of

Source: TypeAlias = "str | PathLike[str] | pa.Table | pa.RecordBatch | pa.RecordBatchReader | Any"
Progress: TypeAlias = Callable[[int, int, int | None], None]
"""Told how many records and bytes were read, and how many bytes there are, if that is known."""
InMemory = (pa.Table, pa.RecordBatch, pa.RecordBatchReader)
HASTY_FAILURES_MAX: Final = 4


class Intake:
    """Reads one source."""

    def __init__(
        self,
        catalog: Catalog,
        rows: Origins,
        mint: Minting,
        rejected: Rejected | None = None,
    ) -> None:
        """Begin; records that do not fit their type go to ``rejected``, and without it the first one is raised."""
        self._catalog = catalog
        self._rows = rows
        self._mint = mint
        self._rejected = rejected
        self._only: TableType | None = None
        self._progress: Progress | None = None
        self._file: str | None = None
        self._records = 0
        self._failures = 0
        self._done = 0
        self._total: int | None = None

    def read(
        self,
        source: Source,
        *,
        only: TableType | None,
        format: files.Format | None,
        options: Mapping[str, str] | None,
        progress: Progress | None,
    ) -> None:
        """Read everything, or raise before anything was applied."""
        self._only, self._progress = only, progress
        if only is not None:
            self._rows.open_table(only)
        if isinstance(source, InMemory):
            self._read_columns(self._named(None), files.table_batches(source), None)
        elif hasattr(source, "read") or source == files.STANDARD_STREAM:
            stream = source if hasattr(source, "read") else files.standard_input()
            self._read_stream(stream, format or "jsonl")
        elif isinstance(source, str | PathLike):
            self._read_files(files_of(source, format, options))
        else:
            raise InvalidOptionError("a source is a path, a binary file, or a pyarrow table, batch or reader")

    def _read_files(self, found: list[RecordFile]) -> None:
        typed = [(each, None if each.format == "jsonl" else self._type_of(each)) for each in found]
        if self._only is not None:
            # Of a folder that holds many types, only files of the one are read.
            typed = [(each, kind) for each, kind in typed if kind is None or kind is self._only]
        self._rows.has_many_files = len(typed) > 1
        for file, kind in typed:
            self._read_file(file, kind)

    def _read_file(self, file: RecordFile, kind: TableType | None) -> None:
        self._file = file.name
        self._rows.begin_file(file.name)
        with file.opened() as (opened, size):
            if not file.is_columns:
                with files.unpacked(opened, file.name, size) as (stream, count):
                    self._read_text(stream, count, kind)
            elif kind is not None and file.format == "parquet":
                self._check_names(kind, files.parquet_names(opened, file.name))
                self._read_columns(kind, files.parquet_batches(opened, file.name), None)
            elif kind is not None:
                self._read_columns(kind, files.arrow_batches(opened, is_file=True), None)
            self._done += size
        self._tell(0, None)

    def _read_stream(self, stream: Any, format: files.Format) -> None:
        count = files.Input(stream)
        if format == "parquet":
            raise InvalidOptionError("Parquet is read from a path, not from a stream")
        if format == "arrow":
            self._read_columns(self._named(None), files.arrow_batches(count, is_file=False), count)
        else:
            self._read_text(count, count, None if format == "jsonl" else self._named(None))

    def _read_text(self, stream: Any, count: files.Input, kind: TableType | None) -> None:
        if kind is None:
            self._read_json(stream, count)
        else:
            self._take(kind, files.csv_batches(stream), records.batch_of_texts, count)

    def _type_of(self, file: RecordFile) -> TableType:
        return self._catalog.type(file.type) if file.is_of_folder else self._named(file.type)

    def _named(self, name: str | None) -> TableType:
        """Return the type that columns are of: the one that was given, or the one the file is named after."""
        if self._only is not None:
            return self._only
        if name is None:
            raise InvalidOptionError("columns alone do not say which type they are of; give type=")
        return self._catalog.type(name)

    def _tell(self, done: int, total: int | None) -> None:
        if self._progress is not None:
            self._progress(self._records, self._done + done, total)

    # -- JSON ---------------------------------------------------------------------------------------

    def _read_json(self, stream: Any, count: files.Input) -> None:
        found = JsonStream()
        for text, is_last in files.text_blocks(stream, found):
            if found.waiting or not self._read_hastily(text, found):
                self._read_carefully(text, found, is_last=is_last)
            self._tell(count.count, count.total)

    def _read_hastily(self, text: str, found: JsonStream) -> bool:
        """Read plain lines that nothing is wrong with, all at once; tell whether they were."""
        if self._failures > HASTY_FAILURES_MAX:
            return False
        with uncollected():
            values = plain_records(text)
            groups = None if values is None else groups_of(self._catalog, values, self._only)
        if values is None or groups is None:
            self._failures += 1
            return False
        for group in groups:
            self._keep(group.kind, group.batch, group.places + (found.number + 1))
        found.pass_over(text, len(values))
        self._records += len(values)
        self._failures = 0
        return True

    def _read_carefully(self, text: str, found: JsonStream, *, is_last: bool) -> None:
        """Read values one by one, so that it can be said which one is wrong."""
        rows: dict[str, _Rows] = {}
        try:
            for record in found.take(text, last=is_last):
                try:
                    kind, row = records.record_of(self._catalog, record.value, self._only)
                except records.BadRecordError as problem:
                    raise self._invalid(problem, record.number, record.line) from problem
                rows.setdefault(kind.name, _Rows(kind)).add(row, record.number, record.line)
        except JsonError as problem:
            raise self._invalid(problem, problem.number, problem.line) from problem
        for each in rows.values():
            for start, batch in self._fitted(each):
                self._keep(each.kind, batch, each.numbers[start : start + batch.num_rows])
            self._records += len(each.rows)

    # -- columns ------------------------------------------------------------------------------------

    def _check_names(self, kind: TableType, names: Sequence[str]) -> None:
        try:
            records.check_columns(kind, names)
        except records.BadRecordError as problem:
            raise self._invalid(problem, None, None) from problem

    def _read_columns(self, kind: TableType, batches: Iterator[pa.RecordBatch], count: files.Input | None) -> None:
        self._take(kind, batches, records.batch_of_columns, count)

    def _take(
        self,
        kind: TableType,
        batches: Iterator[pa.RecordBatch],
        convert: Callable[[TableType, pa.RecordBatch], pa.RecordBatch],
        count: files.Input | None,
    ) -> None:
        self._rows.open_table(kind)
        before = 1
        for batch in batches:
            for start, fitted in self._fitted(_Columns(kind, batch, before, convert)):
                if fitted.num_rows:
                    self._keep(kind, fitted, np.arange(before + start, before + start + fitted.num_rows))
            before += batch.num_rows
            self._records += batch.num_rows
            if count is not None:
                self._tell(count.count, count.total)

    # -- rows ---------------------------------------------------------------------------------------

    def _fitted(self, given: "_Rows | _Columns") -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield records as rows, each part with its place; those that can not be rows are rejected, or raised."""
        try:
            yield 0, given.made(0, len(given))
            return
        except records.BadRecordError as problem:
            if self._rejected is None or problem.row is None:
                raise self._invalid(problem, *given.place(problem.row)) from problem
        self._rows.open_table(given.kind)
        for start, made in halved(len(given), given.made):
            if isinstance(made, records.BadRecordError):
                at = self._place(*given.place(start))
                alone = misfit(given.kind, given.record(start), given.value, made, at)
                self._rejected.add(given.kind, alone.rows, alone.reasons)
            else:
                yield start, made

    def _keep(self, kind: TableType, batch: pa.RecordBatch, numbers: Numbers) -> None:
        self._rows.add(kind, records.with_ids(kind, batch, self._mint), numbers)

    def _invalid(
        self, problem: "records.BadRecordError | JsonError", number: int | None, line: int | None
    ) -> InvalidDataError:
        return InvalidDataError(
            f"{self._place(number, line)}{problem}; nothing was applied",
            file=self._file,
            record=number,
            line=line,
            table_key=getattr(problem, "table", None),
            column=getattr(problem, "column", None),
        )

    def _place(self, number: int | None, line: int | None) -> str:
        where = [f"file {self._file!r}"] if self._rows.has_many_files else []
        if number is not None:
            where.append(f"record {number}" if line is None else f"record {number} (line {line})")
        return ", ".join(where) + ": " if where else ""


class _Rows:
    """Rows of one type that are not columns yet, and where each came from."""

    def __init__(self, kind: TableType) -> None:
        self.kind = kind
        self.rows: list[records.Row] = []
        self.places: list[tuple[int, int]] = []

    def add(self, row: records.Row, number: int, line: int) -> None:
        """Take a row."""
        self.rows.append(row)
        self.places.append((number, line))

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def numbers(self) -> Numbers:
        """The numbers of their records."""
        return np.array([number for number, _ in self.places], np.int64)

    def made(self, start: int, end: int) -> pa.RecordBatch:
        """Return some of them as columns."""
        return records.batch_of_rows(self.kind, self.rows[start:end])

    def place(self, row: int | None) -> tuple[int | None, int | None]:
        """Return the record and the line of one."""
        return self.places[row or 0]

    def record(self, row: int) -> Mapping[str, Any]:
        """Return the values of one."""
        return self.rows[row]

    @staticmethod
    def value(values: list[Any], wanted: Any) -> Column:
        """Return values of one column as a type holds them."""
        return typed_column(values, wanted)


@dataclass(frozen=True, slots=True)
class _Columns:
    """Rows of one type that are columns, but not those of the type, and the number of the first record."""

    kind: TableType
    batch: pa.RecordBatch
    first: int
    convert: Callable[[TableType, pa.RecordBatch], pa.RecordBatch]

    def __len__(self) -> int:
        return self.batch.num_rows

    def made(self, start: int, end: int) -> pa.RecordBatch:
        """Return some of them as columns of the type."""
        return self.convert(self.kind, self.batch.slice(start, end - start))

    def place(self, row: int | None) -> tuple[int | None, int | None]:
        """Return the record of one."""
        return None if row is None else self.first + row, None

    def record(self, row: int) -> Mapping[str, Any]:
        """Return the values of one."""
        return dict(self.batch.slice(row, 1).to_pylist()[0])

    def value(self, values: list[Any], wanted: Any) -> Column:
        """Return values of one column as a type holds them."""
        if self.convert is records.batch_of_texts:
            return text_column(values, wanted)
        return in_one_piece(column_of(values, wanted))
