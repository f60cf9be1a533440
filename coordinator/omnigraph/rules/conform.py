"""Make incoming rows fit a table exactly, or say which column does not, and why. Nothing is silently changed."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa

from omnigraph.errors import InvalidDataError
from omnigraph.model.schema import TableType, did_you_mean
from omnigraph.rules.arrow_schema import BLOB_STORAGE, arrow_schema
from omnigraph.rules.identity import ID_CHARACTERS_MAX, Column, compute, row_ids

Rows: TypeAlias = "pa.Table | pa.RecordBatch | Sequence[Mapping[str, Any]]"


def conform(kind: TableType, rows: Rows, mint: Callable[[], str]) -> pa.Table:
    """Return the rows as the table stores them: its columns, its types, its ids."""
    wanted = arrow_schema(kind)
    given = _columns(kind, rows, wanted)
    count = len(next(iter(given.values()))) if given else 0
    fitted = {f.name: _fit(kind, f, given.get(f.name), count) for f in wanted if f.name != "id"}
    if "id" in given:
        fitted["id"] = _cast(kind, "id", given["id"], pa.string())
    ids = row_ids(kind, pa.table(fitted) if fitted else _rows_without_columns(count), mint)
    _check_ids(kind, ids)
    return pa.Table.from_arrays([ids if f.name == "id" else fitted[f.name] for f in wanted], schema=wanted)


def _columns(kind: TableType, rows: Rows, wanted: pa.Schema) -> dict[str, Column]:
    """Return the given columns by name; a column the table does not have is refused."""
    if isinstance(rows, pa.Table | pa.RecordBatch):
        names: list[str] = list(rows.schema.names)
        _refuse_unknown(kind, names, wanted)
        table = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
        return {name: table.column(position) for position, name in enumerate(names)}
    names = list(dict.fromkeys(name for row in rows for name in row))
    _refuse_unknown(kind, names, wanted)
    return {name: _from_values(kind, wanted.field(name), [row.get(name) for row in rows]) for name in names}


def _refuse_unknown(kind: TableType, names: list[str], wanted: pa.Schema) -> None:
    for name in names:
        if name not in wanted.names:
            hint = did_you_mean(name, wanted.names)
            raise InvalidDataError(
                f"{kind.table} has no column {name!r}" + (f"; {hint}" if hint else ""), table_key=str(kind.table)
            )
    if len(set(names)) != len(names):
        raise InvalidDataError(f"the rows for {kind.table} have a column twice", table_key=str(kind.table))


def _from_values(kind: TableType, field: "pa.Field[Any]", values: list[Any]) -> Column:
    plain = pa.large_binary() if field.type == BLOB_STORAGE else field.type
    try:
        return pa.chunked_array([pa.array(values, plain)])
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as problem:
        raise _misfit(kind, field.name, problem) from problem


def _fit(kind: TableType, field: "pa.Field[Any]", column: Column | None, count: int) -> Column:
    if column is None:
        if not field.nullable:
            raise InvalidDataError(f"{kind.table}.{field.name} is required, but no such column was given")
        return pa.chunked_array([pa.nulls(count, field.type)])
    fitted = _cast(kind, field.name, column, field.type)
    if fitted.null_count and not field.nullable:
        first = compute.index(compute.is_null(fitted), True).as_py()
        raise InvalidDataError(
            f"{kind.table}.{field.name} is required, but {fitted.null_count} rows have none (first: row {first + 1})",
            table_key=str(kind.table),
            column=field.name,
            row=first + 1,
        )
    return fitted


def _cast(kind: TableType, name: str, column: Column, wanted: pa.DataType) -> Column:
    if column.type == wanted:
        return column
    try:
        if wanted == BLOB_STORAGE:
            return _blobs(column.cast(pa.large_binary()))
        if _family(column.type) != _family(wanted):
            raise InvalidDataError(f"{kind.table}.{name} is {wanted}, but {column.type} was given; convert it first")
        return column.cast(wanted, safe=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as problem:
        raise _misfit(kind, name, problem) from problem


def _family(kind: pa.DataType) -> str:
    """Return the group within which a checked conversion keeps the value; across groups it would change meaning."""
    tests = {
        "text": (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view, pa.types.is_dictionary),
        "number": (pa.types.is_integer, pa.types.is_floating),
        "list": (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list),
        "nothing": (pa.types.is_null,),
    }
    for family, fits in tests.items():
        if any(fit(kind) for fit in fits):
            return family
    return "time" if pa.types.is_temporal(kind) else str(kind)


def _blobs(column: Column) -> Column:
    """Wrap bytes the way blobs are stored; addresses of other objects are not taken from data."""
    chunks: list[Column] = [
        pa.StructArray.from_arrays(
            [chunk, pa.nulls(len(chunk), pa.string())], fields=list(BLOB_STORAGE), mask=compute.is_null(chunk)
        )
        for chunk in column.chunks
    ]
    chunked: Any = pa.chunked_array
    return chunked(chunks, type=BLOB_STORAGE)


def _check_ids(kind: TableType, ids: Column) -> None:
    longest = compute.max(compute.utf8_length(ids)).as_py() or 0
    shortest = compute.min(compute.utf8_length(ids)).as_py()
    if longest > ID_CHARACTERS_MAX or shortest == 0:
        raise InvalidDataError(
            f"{kind.table}: an id has 1 to {ID_CHARACTERS_MAX} characters", table_key=str(kind.table)
        )


def _rows_without_columns(count: int) -> pa.Table:
    return pa.table({"row": pa.nulls(count)})


def _misfit(kind: TableType, name: str, problem: Exception) -> InvalidDataError:
    return InvalidDataError(
        f"{kind.table}.{name} does not fit: {problem}; nothing was applied", table_key=str(kind.table), column=name
    )
