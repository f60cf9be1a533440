"""Row ids: derived from the key where a type has one, given or minted where it has none."""

import json
from collections.abc import Callable, Mapping
from datetime import date, datetime
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from omnigraph.errors import InvalidDataError
from omnigraph.ids import ULID_CHARACTERS
from omnigraph.model.schema import TableType
from omnigraph.rules.values import Column, compute

ID_CHARACTERS_MAX = 4_096
ESCAPED_IN_JSON = r'["\\\x00-\x1f]'

Minting: TypeAlias = Callable[[int], bytes]
"""Gives as many fresh ids as it is asked for, one after the other."""


def row_ids(kind: TableType, columns: Mapping[str, Column], count: int, mint: Minting) -> Column:
    """Return the id of every row: the key's, the given one, or a new one."""
    given = _one_chunk(columns["id"]) if "id" in columns else None
    if kind.key_columns:
        ids = key_ids(columns, kind.key_columns)
        if given is not None and not _agree(given, ids):
            key = ", ".join(kind.key_columns)
            raise InvalidDataError(f"{kind.table}: 'id' differs from the key ({key}) it is made from; leave 'id' away")
        return ids
    if given is None:
        return fresh_ids(count, mint)
    return with_fresh_ids(given, mint)


def fresh_ids(count: int, mint: Minting) -> Column:
    """Return so many new ids."""
    ends = np.arange(0, (count + 1) * ULID_CHARACTERS, ULID_CHARACTERS, dtype=np.int32)
    return pa.StringArray.from_buffers(count, pa.py_buffer(ends.data), pa.py_buffer(mint(count)))


def with_fresh_ids(given: Column, mint: Minting) -> Column:
    """Return ids with a new one where there is none."""
    if not given.null_count:
        return given
    return compute.replace_with_mask(given, compute.is_null(given), fresh_ids(given.null_count, mint))


def key_ids(columns: Mapping[str, Column], key: tuple[str, ...]) -> Column:
    """Return ids made from key columns: one text column as it is, anything else as a compact JSON array."""
    if len(key) == 1 and pa.types.is_string(columns[key[0]].type):
        return _one_chunk(columns[key[0]])
    texts = [_as_json(_one_chunk(columns[name])) for name in key]
    joined = compute.binary_join_element_wise(*texts, ",")
    return compute.binary_join_element_wise("[", joined, "]", "")


def key_id(values: tuple[Any, ...]) -> str:
    """Return the id of one composite or non-text key."""
    return json.dumps([_plain(value) for value in values], separators=(",", ":"), ensure_ascii=False)


def _as_json(column: Column) -> Column:
    """Return a column's values as JSON; where Arrow writes a value as JSON does, it writes them all at once."""
    if pa.types.is_integer(column.type) or pa.types.is_boolean(column.type):
        written = column.cast(pa.string())
    elif pa.types.is_string(column.type) and not _is_any(compute.match_substring_regex(column, ESCAPED_IN_JSON)):
        written = compute.binary_join_element_wise('"', column, '"', "")
    else:
        written = pa.array([key_id((value,))[1:-1] for value in column.to_pylist()], pa.string())
    return compute.fill_null(written, "null")


def _is_any(truths: Column) -> bool:
    return compute.any(truths).as_py() is True


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
