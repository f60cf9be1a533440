"""Rows as lines of JSON that load back into the same rows, value for value."""

import base64
import json
from collections.abc import Callable, Sequence
from json.encoder import encode_basestring
from typing import Any

import numpy as np
import pyarrow as pa

from omnigraph.model.schema import ENDPOINT_COLUMNS, EdgeType, TableType
from omnigraph.rules.moments import day_texts, moment_texts
from omnigraph.rules.record_values import BLOB_PREFIX
from omnigraph.rules.values import Column, compute

_WORDS = {"nan": '"NaN"', "inf": '"Infinity"', "-inf": '"-Infinity"'}


def record_lines(kind: TableType, batch: pa.RecordBatch) -> list[str]:
    """Return one JSON object per row, without line ends; the columns are those of the type."""
    columns = dict(zip(batch.schema.names, map(json_texts, batch.columns), strict=True))
    is_edge = isinstance(kind, EdgeType)
    ends = [columns.pop(name) for name in ENDPOINT_COLUMNS] if is_edge else []
    # The names are put in as JSON; what is left to fill in is one place per value.
    data = ",".join(f"{_escaped(name)}:%s" for name in columns)
    head = f'"edge":{_escaped(kind.name)},"from":%s,"to":%s' if is_edge else f'"type":{_escaped(kind.name)}'
    template = f'{{{head},"data":{{{data}}}}}'
    return [template % values for values in zip(*ends, *columns.values(), strict=True)]


def json_texts(column: Column) -> list[str]:
    """Return each value of a column as JSON text."""
    if column.null_count:
        texts = iter(json_texts(column.drop_null()))
        return [next(texts) if valid else "null" for valid in column.is_valid().to_pylist()]
    if pa.types.is_list(column.type) or pa.types.is_fixed_size_list(column.type):
        return _list_texts(column)
    if pa.types.is_floating(column.type):
        return _float_texts(column)
    return next(write for accepts, write in _WRITERS if accepts(column.type))(column)


def _escaped(name: str) -> str:
    return json.dumps(name, ensure_ascii=False).replace("%", "%%")


def _list_texts(column: Column) -> list[str]:
    items = json_texts(compute.list_flatten(column))
    ends = np.cumsum(compute.list_value_length(column).to_numpy(zero_copy_only=False)).tolist()
    return [f"[{','.join(items[start:end])}]" for start, end in zip([0, *ends], ends, strict=False)]


def _float_texts(column: Column) -> list[str]:
    doubles = _shortest(column) if pa.types.is_float32(column.type) else column
    texts = [repr(value) for value in doubles.to_pylist()]
    if compute.all(compute.is_finite(column)).as_py() is False:
        return [_WORDS.get(text, text) for text in texts]
    return texts


def _shortest(column: Column) -> Column:
    """Return 64-bit floats with the fewest digits that still make the same 32-bit floats."""
    exact = column.cast(pa.float64())
    short = column.cast(pa.string()).cast(pa.float64())
    return compute.if_else(compute.equal(short.cast(pa.float32(), safe=False), column), short, exact)


def _blob_texts(column: Column) -> list[str]:
    return [f'"{BLOB_PREFIX}{base64.b64encode(value).decode("ascii")}"' for value in column.to_pylist()]


def _quoted(texts: Sequence[str]) -> list[str]:
    return [f'"{text}"' for text in texts]


_WRITERS: tuple[tuple[Callable[[Any], bool], Callable[[Any], list[str]]], ...] = (
    (pa.types.is_string, lambda column: list(map(encode_basestring, column.to_pylist()))),
    (pa.types.is_boolean, lambda column: ["true" if value else "false" for value in column.to_pylist()]),
    (pa.types.is_integer, lambda column: list(map(str, column.to_pylist()))),
    (pa.types.is_date, lambda column: _quoted(day_texts(column))),
    (pa.types.is_timestamp, lambda column: _quoted(moment_texts(column))),
    (pa.types.is_large_binary, _blob_texts),
)
