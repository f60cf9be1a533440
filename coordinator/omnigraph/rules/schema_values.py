"""What becomes of values when the type of their property changes, and what rows get in a property that is new."""

from enum import StrEnum
from typing import Final

import pyarrow as pa

from omnigraph.model.schema import FLOATS, INTEGERS, NUMBERS, EnumType, PropertyType, Scalar, ScalarType
from omnigraph.rules.arrow_schema import arrow_type
from omnigraph.rules.record_values import text_column
from omnigraph.rules.values import Column, MisfitError, compute

WIDER: Final[dict[Scalar, frozenset[Scalar]]] = {
    Scalar.I32: frozenset({Scalar.I64, Scalar.F64}),
    Scalar.U32: frozenset({Scalar.I64, Scalar.U64, Scalar.F64}),
    Scalar.F32: frozenset({Scalar.F64}),
}
"""Numbers that hold every value of another."""
WHOLE_BITS: Final = {Scalar.F32: 24, Scalar.F64: 53}
"""Up to which power of two a float holds every whole number."""
_STRING: Final = ScalarType(scalar=Scalar.STRING)


class Change(StrEnum):
    """What a change of type asks of the values that are there."""

    NOTHING = "nothing"
    CHECKED = "checked"
    WIDENED = "widened"
    NARROWED = "narrowed"
    IMPOSSIBLE = "impossible"


def change_of(old: PropertyType, new: PropertyType) -> Change:
    """Tell what it takes to make values of one type values of another."""
    if isinstance(new, EnumType) and isinstance(old, EnumType):
        return Change.NOTHING if set(old.values) <= set(new.values) else Change.CHECKED
    if isinstance(old, EnumType) and new == _STRING:
        return Change.NOTHING
    if isinstance(new, EnumType) and old == _STRING:
        return Change.CHECKED
    if isinstance(old, ScalarType) and isinstance(new, ScalarType) and {old.scalar, new.scalar} <= NUMBERS:
        return Change.WIDENED if new.scalar in WIDER.get(old.scalar, frozenset()) else Change.NARROWED
    return Change.IMPOSSIBLE


def misfit_of(kind: PropertyType, text: str) -> str | None:
    """Say why a text is no value of a type; None if it is one."""
    try:
        column = backfilled(kind, text, 1)
    except MisfitError as problem:
        return str(problem)
    if isinstance(kind, EnumType) and text not in kind.values:
        return f"it is none of {', '.join(kind.values[:8])}"
    return "it is null" if column.null_count else None


def backfilled(kind: PropertyType, text: str, rows: int) -> Column:
    """Return a column in which every row has the value that a text stands for."""
    wanted = arrow_type(kind)
    if kind == ScalarType(scalar=Scalar.BLOB):
        raise MisfitError("blobs can not be given this way")
    value = text_column([text], wanted)
    return compute.take(value, pa.array([0] * rows, pa.int64()))


def recast(column: Column, old: Scalar, new: Scalar) -> Column:
    """Return numbers in another type; null where a number does not fit."""
    fitting = compute.if_else(fits(column, old, new), column, pa.scalar(None, column.type))
    return fitting.cast(arrow_type(ScalarType(scalar=new)), safe=False)


def fits(column: Column, old: Scalar, new: Scalar) -> Column:
    """Tell of each number whether another type holds the very same; null where there is none."""
    if new in WIDER.get(old, frozenset()):
        return compute.is_valid(column)
    if new in FLOATS:
        return _fits_float(column, old, new)
    least, most = _bounds(new)
    if old in INTEGERS:
        return compute.and_(_at_least(column, least), _at_most(column, most))
    whole = compute.equal(column, compute.trunc(column))  # false for NaN
    # The largest whole number of 64 bits is no float; the power of two above it is.
    inside = compute.and_(compute.greater_equal(column, float(least)), compute.less(column, float(most + 1)))
    return compute.fill_null(compute.and_(whole, inside), False)


def _fits_float(column: Column, old: Scalar, new: Scalar) -> Column:
    if old in INTEGERS:
        most = 2 ** WHOLE_BITS[new]
        return compute.and_(_at_least(column, -most), _at_most(column, most))
    back = column.cast(pa.float32(), safe=False).cast(pa.float64())
    same = compute.or_(compute.equal(back, column), compute.is_nan(column))
    return compute.fill_null(same, False)


def _bounds(number: Scalar) -> tuple[int, int]:
    bits = 32 if number in (Scalar.I32, Scalar.U32) else 64
    if number in (Scalar.I32, Scalar.I64):
        return -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    return 0, 2**bits - 1


def _at_least(column: Column, bound: int) -> Column:
    """Compare whole numbers with a bound that their own type may not hold."""
    try:
        limit = pa.scalar(bound, column.type)
    except (pa.ArrowInvalid, OverflowError):
        return compute.is_valid(column)  # the bound lies below all that the type holds
    return compute.fill_null(compute.greater_equal(column, limit), False)


def _at_most(column: Column, bound: int) -> Column:
    try:
        limit = pa.scalar(bound, column.type)
    except (pa.ArrowInvalid, OverflowError):
        return compute.is_valid(column)
    return compute.fill_null(compute.less_equal(column, limit), False)
