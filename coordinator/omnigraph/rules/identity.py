"""Row ids: derived from the key where a type has one, given or minted where it has none."""

import json
from collections.abc import Callable, Mapping
from datetime import date, datetime
from typing import Any

import pyarrow as pa

from omnigraph.errors import InvalidDataError
from omnigraph.model.schema import TableType
from omnigraph.rules.values import Column, compute

ID_CHARACTERS_MAX = 4_096


def row_ids(kind: TableType, columns: Mapping[str, Column], count: int, mint: Callable[[], str]) -> Column:
    """Return the id of every row: the key's, the given one, or a new one."""
    given = _one_chunk(columns["id"]) if "id" in columns else None
    if kind.key_columns:
        ids = key_ids(columns, kind.key_columns)
        if given is not None and not _agree(given, ids):
            key = ", ".join(kind.key_columns)
            raise InvalidDataError(f"{kind.table}: 'id' differs from the key ({key}) it is made from; leave 'id' away")
        return ids
    if given is None:
        return pa.array([mint() for _ in range(count)], pa.string())
    if given.null_count:
        given = pa.array([mint() if value is None else value for value in given.to_pylist()], pa.string())
    return given


def key_ids(columns: Mapping[str, Column], key: tuple[str, ...]) -> Column:
    """Return ids made from key columns: one text column as it is, anything else as a compact JSON array."""
    if len(key) == 1 and pa.types.is_string(columns[key[0]].type):
        return _one_chunk(columns[key[0]])
    values = zip(*(columns[name].to_pylist() for name in key), strict=True)
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
    return value.isoformat() if isinstance(value, date | datetime) else value


def _agree(given: Column, derived: Column) -> bool:
    same = compute.or_kleene(compute.is_null(given), compute.equal(given, derived))
    return compute.all(same).as_py() is not False


def _one_chunk(column: Column) -> Column:
    combined = column.combine_chunks()
    return combined if isinstance(combined, pa.Array) else combined.chunk(0)
