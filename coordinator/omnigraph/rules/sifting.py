"""Telling rows that fit a type from rows that do not: the first become a table, the others keep what of them fits."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from omnigraph.errors import InvalidDataError
from omnigraph.model.schema import EdgeType, TableType
from omnigraph.rules.arrow_schema import arrow_schema
from omnigraph.rules.conform import Rows, conform
from omnigraph.rules.identity import Minting
from omnigraph.rules.records import ENDPOINT_NAMES, BadRecordError, plain_schema
from omnigraph.rules.values import Column, MisfitError, column_of, compute, converted

Reasons: TypeAlias = "list[list[Reason]]"
"""For each of some rows, why it was not taken."""


@dataclass(frozen=True, slots=True)
class Reason:
    """A constraint that a row breaks, and what of the row does, if that can not be seen in it."""

    constraint: str
    detail: str | None = None

    def __str__(self) -> str:
        return self.constraint if self.detail is None else f"{self.constraint}: {self.detail}"


@dataclass(frozen=True, slots=True)
class Misfits:
    """Rows that can not be rows of a type: what of them fits, nulls for the rest, and why."""

    rows: pa.Table
    reasons: Reasons


def sifted(kind: TableType, rows: Rows, mint: Minting) -> Iterator[pa.Table | Misfits]:
    """Yield rows as the table stores them, and those that can not be stored; what is wrong with all is raised."""
    try:
        yield conform(kind, rows, mint)
        return
    except InvalidDataError:
        _check_columns(kind, rows, mint)
    lacking = _lacking(kind, rows)
    if lacking.any():
        yield misfits(kind, _taken(rows, lacking))
        rows = _taken(rows, ~lacking)
    yield from _halved(kind, rows, mint)


def _halved(kind: TableType, rows: Rows, mint: Minting) -> Iterator[pa.Table | Misfits]:
    """Find the rows at fault: the parts that have none are taken whole."""
    try:
        yield conform(kind, rows, mint)
    except InvalidDataError as problem:
        if len(rows) == 1:
            yield misfits(kind, rows, problem)
            return
        half = len(rows) // 2
        yield from _halved(kind, _sliced(rows, 0, half), mint)
        yield from _halved(kind, _sliced(rows, half, len(rows)), mint)


def _check_columns(kind: TableType, rows: Rows, mint: Minting) -> None:
    """Raise if it is not the rows that are at fault, but the columns they all have."""
    if not isinstance(rows, pa.Table | pa.RecordBatch):
        if not all(isinstance(row, Mapping) for row in rows):
            conform(kind, rows, mint)
        return
    conform(kind, rows.slice(0, 0), mint)
    for field, plain in zip(arrow_schema(kind), plain_schema(kind), strict=True):
        if field.name in rows.schema.names:
            _fit_nothing(kind, field.name, rows.schema.field(field.name).type, plain.type)
        elif not field.nullable and field.name != "id":
            raise InvalidDataError(
                f"{kind.table}.{field.name} is required, but no such column was given",
                table_key=str(kind.table),
                column=field.name,
            )


def _fit_nothing(kind: TableType, name: str, given: pa.DataType, wanted: pa.DataType) -> None:
    nothing: Any = pa.array([], given)
    try:
        converted(pa.chunked_array([nothing]), wanted)
    except MisfitError as problem:
        raise InvalidDataError(
            f"{kind.table}.{name} does not fit: {problem}; nothing was applied", table_key=str(kind.table), column=name
        ) from problem


def _lacking(kind: TableType, rows: Rows) -> "np.ndarray[Any, np.dtype[np.bool_]]":
    """Return which rows have no value where one is required."""
    found = np.zeros(len(rows), np.bool_)
    for name in _required(kind):
        if isinstance(rows, pa.Table | pa.RecordBatch):
            found |= np.asarray(compute.is_null(rows.column(name)))
        else:
            found |= np.array([row.get(name) is None for row in rows], np.bool_)
    return found


def _required(kind: TableType) -> list[str]:
    return [field.name for field in arrow_schema(kind) if not field.nullable and field.name != "id"]


def misfits(kind: TableType, rows: Rows, problem: Exception | None = None) -> Misfits:
    """Return what of some rows fits, and why they do not; ``problem`` if it is nothing that can be seen in a value."""
    if isinstance(rows, pa.RecordBatch):
        rows = pa.Table.from_batches([rows])
    schema = plain_schema(kind)
    types = _types(kind)
    reasons: Reasons = [[] for _ in range(len(rows))]
    columns = [_what_fits(rows, field, types.get(field.name, "String"), reasons) for field in schema]
    for name in _required(kind):
        for given, why in zip(_values(rows, name), reasons, strict=True):
            if given is None:
                why.append(Reason(f"{name} is required"))
    for why in reasons:
        if not why:
            why.append(Reason(f"a row of {kind.name}", str(getattr(problem, "message", problem))))
    return Misfits(pa.Table.from_arrays(columns, schema=schema), reasons)


def _what_fits(rows: Rows, field: Any, type: str, reasons: Reasons) -> Column:
    values = _values(rows, field.name)
    try:
        if isinstance(rows, pa.Table) and field.name in rows.schema.names:
            return converted(rows.column(field.name), field.type)
        return column_of(values, field.type)
    except MisfitError:
        parts = [_alone(value, field, type, why) for value, why in zip(values, reasons, strict=True)]
        return pa.chunked_array([chunk for part in parts for chunk in part.chunks], field.type)


def _alone(value: Any, field: Any, type: str, why: list[Reason]) -> Column:
    try:
        return column_of([value], field.type)
    except MisfitError as problem:
        why.append(Reason(f"{field.name}: {type}", str(problem)))
        return pa.chunked_array([pa.nulls(1, field.type)])


def _values(rows: Rows, name: str) -> list[Any]:
    if isinstance(rows, pa.Table | pa.RecordBatch):
        return rows.column(name).to_pylist() if name in rows.schema.names else [None] * len(rows)
    return [row.get(name) for row in rows]


def _sliced(rows: Rows, start: int, end: int) -> Rows:
    return rows.slice(start, end - start) if isinstance(rows, pa.Table | pa.RecordBatch) else rows[start:end]


def _taken(rows: Rows, mask: "np.ndarray[Any, np.dtype[np.bool_]]") -> Rows:
    if isinstance(rows, pa.Table | pa.RecordBatch):
        return rows.filter(pa.array(mask))
    return [row for row, wanted in zip(rows, mask.tolist(), strict=True) if wanted]


# -- records of files -----------------------------------------------------------------------------------


def halved(
    count: int, attempt: Callable[[int, int], pa.RecordBatch]
) -> Iterator[tuple[int, pa.RecordBatch | BadRecordError]]:
    """Yield what an attempt makes of parts of some records, and why it fails for one alone, each with its place."""

    def part(start: int, end: int) -> Iterator[tuple[int, pa.RecordBatch | BadRecordError]]:
        try:
            yield start, attempt(start, end)
        except BadRecordError as problem:
            if end - start == 1:
                yield start, problem
                return
            middle = (start + end) // 2
            yield from part(start, middle)
            yield from part(middle, end)

    return part(0, count)


def misfit(
    kind: TableType, record: Mapping[str, Any], convert: Callable[[list[Any], Any], Column], problem: Exception, at: str
) -> Misfits:
    """Return what of one record fits its type; ``at`` says which record it is."""
    ends = ENDPOINT_NAMES if isinstance(kind, EdgeType) else {}
    given = {ends.get(name, name): value for name, value in record.items()}
    columns = [_one(given.get(field.name), field, convert) for field in plain_schema(kind)]
    reason = Reason(_constraint(kind, getattr(problem, "column", None), given), f"{at}{problem}")
    return Misfits(pa.Table.from_arrays(columns, schema=plain_schema(kind)), [[reason]])


def _one(value: Any, field: Any, convert: Callable[[list[Any], Any], Column]) -> Column:
    try:
        return convert([value], field.type)
    except MisfitError:
        return pa.nulls(1, field.type)


def _constraint(kind: TableType, column: str | None, given: Mapping[str, Any]) -> str:
    if column is None or column not in plain_schema(kind).names:
        return f"a row of {kind.name}"
    if given.get(column) is None:
        return f"{column} is required"
    return f"{column}: {_types(kind).get(column, 'String')}"


def _types(kind: TableType) -> dict[str, str]:
    return {column.name: str(column.type) for column in kind.properties}
