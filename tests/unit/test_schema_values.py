"""What becomes of values when the type of their property changes."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.model.schema import NUMBERS, Scalar, ScalarType
from omnigraph.rules.arrow_schema import ARROW_TYPES
from omnigraph.rules.schema_values import WIDER, Change, backfilled, change_of, fits, misfit_of, recast

EDGES: dict[Scalar, list[Any]] = {
    Scalar.I32: [-(2**31), -1, 0, 2**24 + 1, 2**31 - 1],
    Scalar.I64: [-(2**63), -1, 0, 2**53, 2**53 + 1, 2**63 - 1],
    Scalar.U32: [0, 2**24 + 1, 2**32 - 1],
    Scalar.U64: [0, 2**53 + 1, 2**63, 2**64 - 1],
    Scalar.F32: [0.5, -3.0, 2.0**31, float("nan"), float("inf")],
    Scalar.F64: [0.1, -3.0, 2.0**31, 2.0**63, 2.0**64, -(2.0**63), float("nan"), float("-inf"), 1e300],
}


def holds(value: Any, new: Scalar) -> bool:
    """Whether a type has this very number, told by Python's own."""
    kind = ARROW_TYPES[new]
    if pa.types.is_floating(kind):
        if value != value:
            return True
        try:
            there = pa.scalar(float(value), pa.float64()).cast(kind, safe=False).as_py()
        except OverflowError:
            return False
        exact = 2**24 if new is Scalar.F32 else 2**53
        return bool(there == value) and (isinstance(value, float) or abs(value) <= exact)
    if value != value or value in (float("inf"), float("-inf")) or value != int(value):
        return False
    try:
        pa.scalar(int(value), kind)
    except (pa.ArrowInvalid, OverflowError):
        return False
    return True


@pytest.mark.parametrize("old", sorted(NUMBERS))
@pytest.mark.parametrize("new", sorted(NUMBERS))
def test_numbers_fit_exactly_where_the_other_type_has_them(old: Scalar, new: Scalar) -> None:
    values = [*EDGES[old], None]
    column = pa.array(values, ARROW_TYPES[old])
    wanted = [value is not None and (new in WIDER.get(old, ()) or old == new or holds(value, new)) for value in values]
    assert fits(column, old, new).to_pylist() == wanted or old == new
    cast = recast(column, old, new)
    assert cast.type == ARROW_TYPES[new]
    kept = [there for there, fit in zip(cast.to_pylist(), fits(column, old, new).to_pylist(), strict=True) if not fit]
    assert kept == [None] * len(kept)


@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.none()))
def test_what_is_recast_is_the_same_number_or_null(values: list[int | None]) -> None:
    for new in (Scalar.I32, Scalar.U32, Scalar.U64, Scalar.F64, Scalar.F32):
        there = recast(pa.array(values, pa.int64()), Scalar.I64, new).to_pylist()
        assert all(new_one is None or new_one == old for old, new_one in zip(values, there, strict=True))


def test_only_some_changes_are_known() -> None:
    text, whole = (ScalarType(scalar=scalar) for scalar in (Scalar.STRING, Scalar.I32))
    assert change_of(text, whole) is Change.IMPOSSIBLE
    assert change_of(whole, ScalarType(scalar=Scalar.I64)) is Change.WIDENED
    assert change_of(whole, ScalarType(scalar=Scalar.F32)) is Change.NARROWED


def test_a_value_is_written_as_in_a_file_of_text() -> None:
    day = ScalarType(scalar=Scalar.DATE)
    assert [str(value) for value in backfilled(day, "2026-11-16", 2).to_pylist()] == ["2026-11-16"] * 2
    assert misfit_of(day, "soon") is not None
    assert misfit_of(ScalarType(scalar=Scalar.STRING), "") is None
