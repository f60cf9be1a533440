"""Row ids: derived from the key where a type has one, given or minted where it has none."""

import json
from collections.abc import Callable
from datetime import date, datetime
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import InvalidDataError
from omnigraph.model.schema import TableType

ID_CHARACTERS_MAX = 4_096

Column: TypeAlias = Any
"""An Arrow array whose element type is only known at run time; the stubs can not say that."""
compute: Any = pc
"""Arrow's functions, untyped for the same reason."""


def row_ids(kind: TableType, table: pa.Table, mint: Callable[[], str]) -> Column:
    """Return the id of every row: the key's, the given one, or a new one."""
    given = _one_chunk(table.column("id")) if "id" in table.column_names else None
    if kind.key_columns:
        ids = key_ids(table, kind.key_columns)
        if given is not None and not _agree(given, ids):
            key = ", ".join(kind.key_columns)
            raise InvalidDataError(f"{kind.table}: 'id' differs from the key ({key}) it is made from; leave 'id' away")
        return ids
    if given is None:
        return pa.array([mint() for _ in range(table.num_rows)], pa.string())
    if given.null_count:
        given = pa.array([mint() if value is None else value for value in given.to_pylist()], pa.string())
    return given


def key_ids(table: pa.Table, columns: tuple[str, ...]) -> Column:
    """Return ids made from key columns: one text column as it is, anything else as a compact JSON array."""
    if len(columns) == 1 and pa.types.is_string(table.schema.field(columns[0]).type):
        return _one_chunk(table.column(columns[0]))
    values = zip(*(table.column(name).to_pylist() for name in columns), strict=True)
    return pa.array([key_id(row) for row in values], pa.string())


def key_id(values: tuple[Any, ...]) -> str:
    """Return the id of one composite or non-text key."""
    return json.dumps([_plain(value) for value in values], separators=(",", ":"), ensure_ascii=False)


def repeated(ids: Column) -> list[str]:
    """Return the ids that occur more than once."""
    counts = compute.value_counts(ids)
    again = compute.greater(counts.field("counts"), 1)
    return list(counts.field("values").filter(again).to_pylist())


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, (date, datetime)) else value


def _agree(given: Column, derived: Column) -> bool:
    same = compute.or_kleene(compute.is_null(given), compute.equal(given, derived))
    return bool(compute.all(same).as_py() is not False)


def _one_chunk(column: Column) -> Column:
    combined = column.combine_chunks()
    return combined if isinstance(combined, pa.Array) else combined.chunk(0)
