"""Values into Arrow columns without changing one: what would be cut, wrapped or reinterpreted is refused."""

from collections.abc import Callable, Sequence
from datetime import date, datetime
from math import isinf
from numbers import Integral, Real
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Column: TypeAlias = Any
"""An Arrow array whose element type is only known at run time; the stubs can not say that."""
compute: Any = pc
"""Arrow's functions, untyped for the same reason."""


ASCII_END: Final = 128


class MisfitError(ValueError):
    """A value does not fit its column; the text says why."""


ARROW_ERRORS = (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError, UnicodeError)


def column_of(values: Sequence[Any], wanted: pa.DataType) -> Column:
    """Return Python values as a column, each checked to be what the column holds."""
    checked = [None if value is None else _value(value, wanted) for value in values]
    try:
        column = pa.chunked_array([pa.array(checked, wanted)])
    except ARROW_ERRORS as problem:
        raise MisfitError(str(problem)) from problem
    _refuse_new_infinities(column, lambda: _infinities_given(checked))
    return column


def converted(column: Column, wanted: pa.DataType) -> Column:
    """Return a column in another width of the same kind, if every value stays the same."""
    if "text" in _family(wanted):
        _refuse_broken_text(column)
    if column.type == wanted:
        return column
    if _family(column.type) not in (_family(wanted), "nothing"):
        raise MisfitError(f"the column is {wanted}, but {column.type} was given; convert it first")
    if pa.types.is_fixed_size_list(wanted):
        column = _with_values(column)
    try:
        fitted = column.cast(wanted, safe=True)
    except ARROW_ERRORS as problem:
        raise MisfitError(str(problem)) from problem
    _refuse_new_infinities(fitted, lambda: infinities(column))
    if pa.types.is_date64(column.type) and not fitted.cast(column.type).equals(column):
        raise MisfitError("a date has a time of day")
    return fitted


def _with_values(column: Column) -> Column:
    """Return lists with a buffer of values, if an empty one: Arrow crashes on lists that were sent without any."""
    if not _is_list(column.type) or pa.types.is_fixed_size_list(column.type):
        return column
    chunks = [chunk if len(chunk.values) else pa.array(chunk.to_pylist(), column.type) for chunk in column.chunks]
    return pa.chunked_array(chunks, column.type)


def _refuse_broken_text(column: Column) -> None:
    """Refuse text that is not UTF-8: Arrow takes a producer's word for it."""
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    try:
        for chunk in chunks:
            if not _is_plain_text(chunk):
                chunk.validate(full=True)
    except ARROW_ERRORS as problem:
        raise MisfitError(str(problem)) from problem


def _is_plain_text(chunk: Column) -> bool:
    """Tell whether a column is nothing but ASCII, in a tenth of the time that looking into every text takes."""
    if not pa.types.is_string(chunk.type) or not len(chunk):
        return False
    chunk.validate()
    _, offsets, data = chunk.buffers()
    ends = np.frombuffer(offsets, np.int32)[chunk.offset : chunk.offset + len(chunk) + 1]
    if (ends[1:] < ends[:-1]).any():
        return False
    return data is None or int(np.frombuffer(data, np.uint8)[ends[0] : ends[-1]].max(initial=0)) < ASCII_END


def _value(value: Any, wanted: pa.DataType) -> Any:
    if _is_list(wanted):
        inner: Any = wanted
        if isinstance(value, str | bytes) or not isinstance(value, Sequence):
            raise MisfitError(f"{value!r} is not a list")
        return [None if item is None else _value(item, inner.value_type) for item in value]
    for accepts, fits, convert in _SCALARS:
        if accepts(wanted):
            if not fits(value):
                raise MisfitError(f"{_shown(value)} is not a {wanted}")
            return convert(value)
    raise MisfitError(f"{wanted} columns can not be given as Python values")


def _is_whole(value: Any) -> bool:
    if isinstance(value, bool):
        return False
    return isinstance(value, Integral) or (isinstance(value, Real) and float(value).is_integer())


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


_SCALARS: tuple[tuple[Callable[[Any], bool], Callable[[Any], bool], Callable[[Any], Any]], ...] = (
    (pa.types.is_boolean, lambda v: isinstance(v, bool), bool),
    (pa.types.is_integer, _is_whole, int),
    (pa.types.is_floating, _is_number, lambda v: int(v) if isinstance(v, Integral) else float(v)),
    (pa.types.is_string, lambda v: isinstance(v, str), str),
    (pa.types.is_large_binary, lambda v: isinstance(v, bytes | bytearray | memoryview), bytes),
    (pa.types.is_timestamp, lambda v: isinstance(v, datetime), lambda v: v),
    (pa.types.is_date, lambda v: isinstance(v, date) and not isinstance(v, datetime), lambda v: v),
)


def _is_list(kind: pa.DataType) -> bool:
    return pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)


def _family(kind: Any) -> str:
    """Return the group within which a checked conversion keeps the meaning of a value."""
    if _is_list(kind):
        return f"list of {_family(kind.value_type)}"
    if pa.types.is_dictionary(kind):
        return _family(kind.value_type)
    groups = {
        "text": (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
        "bytes": (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary),
        "number": (pa.types.is_integer, pa.types.is_floating),
        "moment": (pa.types.is_timestamp,),
        "day": (pa.types.is_date,),
        "nothing": (pa.types.is_null,),
    }
    return next((name for name, tests in groups.items() if any(test(kind) for test in tests)), str(kind))


def _refuse_new_infinities(column: Column, given: Callable[[], int]) -> None:
    """Refuse numbers too large for the column, which Arrow turns into infinity without a word."""
    found = infinities(column)
    if found and found != given():
        raise MisfitError(f"a number is too large for {column.type}")


def infinities(column: Column) -> int:
    """Count the infinite numbers of a column, also inside lists."""
    while _is_list(column.type):
        column = compute.list_flatten(column)
    return int(compute.sum(compute.is_inf(column)).as_py() or 0) if pa.types.is_floating(column.type) else 0


def _infinities_given(values: Any) -> int:
    if isinstance(values, list):
        return sum(_infinities_given(value) for value in values)
    return int(isinstance(values, float) and isinf(values))


def _shown(value: Any) -> str:
    text = ascii(value)
    return text if len(text) <= 60 else text[:57] + "..."
