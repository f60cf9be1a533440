"""Make incoming rows fit a table exactly, or say which column does not, and why. Nothing is silently changed."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa

from omnigraph.errors import InvalidDataError
from omnigraph.model.schema import TableType, did_you_mean
from omnigraph.rules.arrow_schema import BLOB_STORAGE, arrow_schema, is_blob
from omnigraph.rules.identity import ID_CHARACTERS_MAX, Minting, key_ids, row_ids
from omnigraph.rules.values import Column, MisfitError, column_of, compute, converted

Rows: TypeAlias = "pa.Table | pa.RecordBatch | Sequence[Mapping[str, Any]]"


def conform(kind: TableType, rows: Rows, mint: Minting) -> pa.Table:
    """Return the rows as the table stores them: its columns, its types, its ids."""
    wanted = arrow_schema(kind)
    names = _names(kind, rows)
    _refuse_unknown(kind, names, wanted)
    count = len(rows)
    if count == 0:
        return wanted.empty_table()
    fitted = {f.name: _fit(kind, f, rows, count) for f in wanted if f.name in names or f.name != "id"}
    ids = row_ids(kind, fitted, count, mint)
    _check_ids(kind, ids)
    return pa.Table.from_arrays([ids if f.name == "id" else fitted[f.name] for f in wanted], schema=wanted)


def ids_given(kind: TableType, rows: pa.RecordBatch) -> Column:
    """Return the ids that rows will have; null for a row that gets a new one, or that will be refused."""
    wanted = arrow_schema(kind)
    asked = kind.key_columns or (("id",) if "id" in rows.schema.names else ())
    if not asked or not rows.num_rows:
        return pa.nulls(rows.num_rows, pa.string())
    try:
        fitted = {name: _fit(kind, wanted.field(name), rows, rows.num_rows) for name in asked}
    except InvalidDataError:
        return pa.nulls(rows.num_rows, pa.string())
    return key_ids(fitted, kind.key_columns) if kind.key_columns else pa.concat_arrays(fitted["id"].chunks)


def _names(kind: TableType, rows: Rows) -> list[str]:
    if isinstance(rows, pa.Table | pa.RecordBatch):
        return list(rows.schema.names)
    for number, row in enumerate(rows, 1):
        if not isinstance(row, Mapping):
            raise InvalidDataError(f"row {number} for {kind.table} is no mapping of columns to values", row=number)
    return list(dict.fromkeys(name for row in rows for name in row))


def _refuse_unknown(kind: TableType, names: list[str], wanted: pa.Schema) -> None:
    for name in names:
        if name not in wanted.names:
            hint = did_you_mean(str(name), wanted.names)
            shown = ascii(name)[:60]
            raise InvalidDataError(
                f"{kind.table} has no column {shown}" + (f"; {hint}" if hint else ""), table_key=str(kind.table)
            )
    if len(set(names)) != len(names):
        raise InvalidDataError(f"the rows for {kind.table} have a column twice", table_key=str(kind.table))


def _fit(kind: TableType, field: "pa.Field[Any]", rows: Rows, count: int) -> Column:
    """Return one column of the table, made from the column of that name that was given."""
    try:
        fitted = _given(field, rows)
    except MisfitError as problem:
        raise InvalidDataError(
            f"{kind.table}.{field.name} does not fit: {problem}; nothing was applied",
            table_key=str(kind.table),
            column=field.name,
        ) from problem
    if fitted is None:
        if not field.nullable:
            raise InvalidDataError(
                f"{kind.table}.{field.name} is required, but no such column was given",
                table_key=str(kind.table),
                column=field.name,
            )
        return pa.chunked_array([pa.nulls(count, field.type)])
    if fitted.null_count and not field.nullable and field.name != "id":
        first = compute.index(compute.is_null(fitted), True).as_py() + 1
        raise InvalidDataError(
            f"{kind.table}.{field.name} is required, but {fitted.null_count} rows have none (first: row {first})",
            table_key=str(kind.table),
            column=field.name,
            row=first,
        )
    return fitted


def _given(field: "pa.Field[Any]", rows: Rows) -> Column | None:
    plain = pa.large_binary() if is_blob(field) else field.type
    if isinstance(rows, pa.Table | pa.RecordBatch):
        if field.name not in rows.schema.names:
            return None
        column: Column = rows.column(field.name)
        chunked = pa.chunked_array([column]) if isinstance(rows, pa.RecordBatch) else column
        fitted = converted(chunked, plain)
    else:
        if not any(field.name in row for row in rows):
            return None
        fitted = column_of([row.get(field.name) for row in rows], plain)
    return _blobs(fitted) if is_blob(field) else fitted


def _blobs(column: Column) -> Column:
    """Wrap bytes the way blobs are stored; the address of another object is never taken from data."""
    chunks: list[Column] = [
        pa.StructArray.from_arrays(
            [chunk, pa.nulls(len(chunk), pa.string())], fields=list(BLOB_STORAGE), mask=compute.is_null(chunk)
        )
        for chunk in column.chunks
    ]
    chunked: Any = pa.chunked_array
    return chunked(chunks, type=BLOB_STORAGE)


def _check_ids(kind: TableType, ids: Column) -> None:
    lengths = compute.binary_length(ids)
    if compute.max(lengths).as_py() > ID_CHARACTERS_MAX:  # bytes, of which a character has at least one
        lengths = compute.utf8_length(ids)
    if compute.max(lengths).as_py() > ID_CHARACTERS_MAX or compute.min(lengths).as_py() == 0:
        raise InvalidDataError(
            f"{kind.table}: an id has 1 to {ID_CHARACTERS_MAX} characters", table_key=str(kind.table)
        )
