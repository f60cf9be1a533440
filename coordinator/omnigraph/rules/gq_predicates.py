"""Predicates as Arrow expressions, with the logic of SQL: a row matches only if the predicate is true of it."""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import pyarrow as pa

from omnigraph.model.mutations import (
    And,
    ColumnRef,
    Compare,
    Comparison,
    In,
    IsNull,
    Leaf,
    Not,
    Or,
    Predicate,
    TextMatch,
    TextTest,
)
from omnigraph.model.schema import FLOATS, ScalarType
from omnigraph.rules.arrow_schema import arrow_type
from omnigraph.rules.values import compute

Expression: TypeAlias = Any
"""A ``pyarrow.compute.Expression``; the stubs know too little of it."""

_COMPARED: dict[Comparison, Callable[[Expression, Expression], Expression]] = {
    Comparison.EQUAL: lambda left, right: left == right,
    Comparison.NOT_EQUAL: lambda left, right: left != right,
    Comparison.LESS: lambda left, right: left < right,
    Comparison.AT_MOST: lambda left, right: left <= right,
    Comparison.GREATER: lambda left, right: left > right,
    Comparison.AT_LEAST: lambda left, right: left >= right,
}


def to_arrow(predicate: Predicate) -> Expression:
    """Return the predicate as an expression that is true, false or null for each row.

    Values travel as scalars of the column's type, never as text. ``not`` of null is null, so a row
    with a null is matched by neither ``a = 1`` nor ``not (a = 1)``. NaN is above, below and equal to nothing.
    """
    match predicate:
        case And(terms=terms):
            return _joined([to_arrow(term) for term in terms], lambda left, right: left & right)
        case Or(terms=terms):
            return _joined([to_arrow(term) for term in terms], lambda left, right: left | right)
        case Not(term=term):
            return ~to_arrow(term)
        case _:
            return _leaf(predicate)


def columns_of(predicate: Predicate) -> frozenset[str]:
    """Return the names of the columns a predicate looks at."""
    match predicate:
        case And(terms=terms) | Or(terms=terms):
            return frozenset().union(*(columns_of(term) for term in terms))
        case Not(term=term):
            return columns_of(term)
        case _:
            return frozenset({predicate.column.name})


def _leaf(leaf: Leaf) -> Expression:
    column = compute.field(leaf.column.name)
    match leaf:
        case Compare(comparison=comparison, value=value):
            compared = _COMPARED[comparison](column, compute.scalar(_scalar(value, leaf.column)))
            return compared & ~compute.is_nan(column) if _may_see_nan(leaf.column, comparison) else compared
        case In(values=values):
            # A zero equals the negative one, which Arrow's look-up tells apart.
            both = [*values, *(-value for value in values if isinstance(value, float) and value == 0.0)]
            found = compute.is_in(column, value_set=pa.array(both, arrow_type(leaf.column.type)))
            # Arrow calls a null no member; here it is not known to be one.
            return compute.if_else(column.is_null(), compute.scalar(pa.scalar(None, pa.bool_())), found)
        case IsNull():
            return column.is_null()
        case TextMatch(test=TextTest.STARTS_WITH, text=text):
            return compute.starts_with(column, pattern=text)
        case TextMatch(text=text):
            return compute.match_substring(column, pattern=text)


def _may_see_nan(column: ColumnRef, comparison: Comparison) -> bool:
    """Tell whether engines disagree: to Arrow NaN is above nothing, to Lance it is above everything."""
    is_float = isinstance(column.type, ScalarType) and column.type.scalar in FLOATS
    return is_float and comparison in (Comparison.GREATER, Comparison.AT_LEAST)


def _scalar(value: Any, column: ColumnRef) -> Any:
    return pa.scalar(value, arrow_type(column.type))


def _joined(terms: Sequence[Expression], join: Callable[[Expression, Expression], Expression]) -> Expression:
    """Join terms pairwise, so that thousands of them do not make an expression thousands deep."""
    if len(terms) == 1:
        return terms[0]
    half = len(terms) // 2
    return join(_joined(terms[:half], join), _joined(terms[half:], join))
