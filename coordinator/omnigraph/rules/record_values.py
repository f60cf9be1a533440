"""Columns from what files say: decoded JSON values, or texts. Nothing is nulled, wrapped, cut or guessed."""

import base64
import binascii
import re
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from omnigraph.rules.json_stream import NEGATIVE_INFINITY, POSITIVE_INFINITY, JsonError, decode
from omnigraph.rules.moments import days_of, microseconds_of
from omnigraph.rules.values import ARROW_ERRORS, Column, MisfitError, column_of, infinities

BLOB_PREFIX: Final = "base64:"
WORDS: Final = {"NaN": float("nan"), "Infinity": POSITIVE_INFINITY, "-Infinity": NEGATIVE_INFINITY}
"""Floats that JSON has no number for, as text in a float column."""

_NOTHING = type(None)
_PLAIN: tuple[tuple[Callable[[Any], bool], frozenset[type]], ...] = (
    (pa.types.is_string, frozenset({str, _NOTHING})),
    (pa.types.is_boolean, frozenset({bool, _NOTHING})),
    (pa.types.is_integer, frozenset({int, _NOTHING})),
)
_WHOLE = re.compile(r"[+-]?\d{1,40}", re.ASCII)
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_BOOLS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}

Texts: TypeAlias = "Sequence[str | None]"


def typed_column(values: Sequence[Any], wanted: Any) -> Column:
    """Return decoded JSON values as a column, or raise MisfitError."""
    if pa.types.is_list(wanted) or pa.types.is_fixed_size_list(wanted):
        return _lists(values, wanted)
    for accepts, fine in _PLAIN:
        if accepts(wanted):
            # Where every value is of the very type that is stored, Arrow's own checks are enough.
            return _array(values, wanted) if fine.issuperset(map(type, values)) else _checked(values, wanted)
    if pa.types.is_floating(wanted):
        return _floats(values, wanted)
    if pa.types.is_date(wanted):
        return _array([None if v is None else days_of(v) for v in values], pa.int32()).cast(wanted)
    if pa.types.is_timestamp(wanted):
        return _array([None if v is None else microseconds_of(v) for v in values], pa.int64()).cast(wanted)
    if pa.types.is_large_binary(wanted):
        return _array([None if v is None else _bytes(v) for v in values], wanted)
    raise MisfitError(f"{wanted} columns can not be read from files of text")


def text_column(texts: Texts, wanted: Any) -> Column:
    """Return texts, as a CSV file has them, as a column; None is null. Lists are JSON arrays."""
    return typed_column([None if text is None else _from_text(text, wanted) for text in texts], wanted)


def _is_fixed(kind: Any) -> bool:
    return pa.types.is_fixed_size_list(kind)


def _array(values: Sequence[Any], wanted: pa.DataType) -> Column:
    try:
        return pa.array(values, wanted)
    except ARROW_ERRORS as problem:
        raise MisfitError(str(problem)) from problem


def _checked(values: Sequence[Any], wanted: pa.DataType) -> Column:
    column = column_of(values, wanted).combine_chunks()
    return column if isinstance(column, pa.Array) else column.chunk(0)


def _floats(values: Sequence[Any], wanted: pa.DataType) -> Column:
    kinds = set(map(type, values))
    if str in kinds:
        values = [WORDS.get(value, value) if type(value) is str else value for value in values]
    column = _array(values, wanted) if kinds <= {float, int, _NOTHING} else _checked(values, wanted)
    found = infinities(column)
    # A number that is too large becomes an infinity that nobody wrote.
    if found and found != sum(value is POSITIVE_INFINITY or value is NEGATIVE_INFINITY for value in values):
        raise MisfitError(f"a number is too large for {wanted}")
    return column


def _lists(values: Sequence[Any], wanted: Any) -> Column:
    for value in values:
        if type(value) is not list and value is not None:
            raise MisfitError(f"{ascii(value)[:60]} is not a list")
    absent = [value is None for value in values]
    mask: Any = pa.array(absent, pa.bool_()) if any(absent) else None
    maker: Any
    if _is_fixed(wanted):
        size = wanted.list_size
        for value in values:
            if value is not None and len(value) != size:
                raise MisfitError(f"a vector has {len(value)} numbers where {size} belong")
        blank = [None] * size
        inner = typed_column(list(chain.from_iterable(blank if v is None else v for v in values)), wanted.value_type)
        maker = pa.FixedSizeListArray
        return maker.from_arrays(inner, type=wanted, mask=mask)
    lengths = [0 if value is None else len(value) for value in values]
    offsets = pa.array(np.cumsum([0, *lengths]), pa.int32())
    inner = typed_column(list(chain.from_iterable(filter(None, values))), wanted.value_type)
    maker = pa.ListArray
    return maker.from_arrays(offsets, inner, type=wanted, mask=mask)


def _bytes(value: Any) -> bytes:
    if type(value) is not str or not value.startswith(BLOB_PREFIX):
        raise MisfitError(f"{ascii(value)[:60]} is not a blob; write its bytes as '{BLOB_PREFIX}…'")
    try:
        return base64.b64decode(value[len(BLOB_PREFIX) :], validate=True)
    except (binascii.Error, ValueError) as problem:
        raise MisfitError(f"a blob is not valid base64: {problem}") from None


def _from_text(text: str, wanted: Any) -> Any:
    """Return what a cell of text says, as JSON would have said it."""
    if pa.types.is_boolean(wanted):
        return _BOOLS.get(text, text)
    if pa.types.is_integer(wanted):
        return int(text) if _WHOLE.fullmatch(text) else text
    if pa.types.is_floating(wanted):
        return float(text) if _NUMBER.fullmatch(text) else text
    if pa.types.is_list(wanted) or _is_fixed(wanted):
        try:
            return decode(text)
        except JsonError as problem:
            raise MisfitError(f"{ascii(text)[:60]} is not a JSON array: {problem}") from None
    return text
