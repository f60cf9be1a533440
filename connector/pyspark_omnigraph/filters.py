"""Filters that Spark handed over, as predicates of ours: a tree of names and values, and never a text of SQL.

The Java side of the catalog lets only such filters through as mean the same to Spark and to Lance, with one exception:
comparisons of floats find every row they should and perhaps some more, and Spark looks at those again.
"""

import json
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

from omnigraph.errors import InvalidOptionError
from omnigraph.model.mutations import (
    And,
    ColumnRef,
    Compare,
    Comparison,
    In,
    IsNull,
    Not,
    Or,
    Predicate,
    TextMatch,
    TextTest,
)
from omnigraph.model.schema import FLOATS, EnumType, PropertyType, Scalar, ScalarType, TableType
from omnigraph.rules.gq_predicates import Expression, to_arrow
from omnigraph.rules.gq_pushdown import pushed
from omnigraph.rules.values import compute
from pyspark_omnigraph.types import columns_of

EXACT: Final = frozenset({Scalar.STRING, Scalar.BOOL, Scalar.I32, Scalar.I64, Scalar.DATE, Scalar.DATETIME})
EPOCH_DAY: Final = date(1970, 1, 1)
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
COMPARISONS: Final = {
    "=": Comparison.EQUAL,
    "<>": Comparison.NOT_EQUAL,
    "<": Comparison.LESS,
    "<=": Comparison.AT_MOST,
    ">": Comparison.GREATER,
    ">=": Comparison.AT_LEAST,
}
TEXT_TESTS: Final = {"STARTS_WITH": TextTest.STARTS_WITH, "CONTAINS": TextTest.CONTAINS}


def exact_columns(kind: TableType) -> list[str]:
    """Return the columns whose values Spark and Lance compare alike."""
    return [name for name, held in columns_of(kind).items() if _scalar(held) in EXACT]


def float_columns(kind: TableType) -> list[str]:
    """Return the columns that are compared alike but for NaN and for zeros with a sign."""
    return [name for name, held in columns_of(kind).items() if _scalar(held) in FLOATS]


def _scalar(held: PropertyType) -> Scalar | None:
    match held:
        case ScalarType(scalar=scalar):
            return scalar
        case EnumType():
            return Scalar.STRING
        case _:
            return None


def expression(text: str, kind: TableType) -> Expression | None:
    """Return what storage is asked, or None for every row."""
    terms = _tree(text)[1:]
    known = columns_of(kind)
    exact = [_predicate(term, known) for term in terms if not _is_of_floats(term, known)]
    found = [_of_floats(term) for term in terms if _is_of_floats(term, known)]
    if exact:
        whole = exact[0] if len(exact) == 1 else And(terms=tuple(exact))
        asked = pushed(whole)
        if asked is None:
            raise InvalidOptionError("a filter was handed over that storage can not answer; this is a bug of omnigraph")
        found.insert(0, to_arrow(asked))
    joined: Expression | None = None
    for each in found:
        joined = each if joined is None else joined & each
    return joined


def _tree(text: str) -> list[Any]:
    tree = json.loads(text)
    if not isinstance(tree, list) or not tree or tree[0] != "AND":
        raise InvalidOptionError("option '_filter' is set by the SQL catalog only; leave it away")
    return tree


def _predicate(term: list[Any], known: Mapping[str, PropertyType]) -> Predicate:
    name, *parts = term
    match name:
        case "AND":
            return And(terms=tuple(_predicate(part, known) for part in parts))
        case "OR":
            return Or(terms=tuple(_predicate(part, known) for part in parts))
        case "NOT":
            return Not(term=_predicate(parts[0], known))
        case _:
            return _test(name, ColumnRef(name=parts[0], type=known[parts[0]]), parts[1:])


def _test(name: str, column: ColumnRef, values: list[Any]) -> Predicate:
    plain = _value_of(column)
    match name:
        case "IS_NULL":
            return IsNull(column=column)
        case "IS_NOT_NULL":
            return Not(term=IsNull(column=column))
        case "IN":
            return In(column=column, values=tuple(map(plain, values)))
        case "<=>":
            # With a value, never with null: then it is true or false also for a row that has null there.
            equal = Compare(column=column, comparison=Comparison.EQUAL, value=plain(values[0]))
            return And(terms=(Not(term=IsNull(column=column)), equal))
        case "STARTS_WITH" | "CONTAINS":
            return TextMatch(column=column, test=TEXT_TESTS[name], text=values[0])
        case _:
            return Compare(column=column, comparison=COMPARISONS[name], value=plain(values[0]))


def _value_of(column: ColumnRef) -> Callable[[Any], Any]:
    """Return how a value of a column is read: days and microseconds count from 1970."""
    match _scalar(column.type):
        case Scalar.DATE:
            return lambda days: EPOCH_DAY + timedelta(days=days)
        case Scalar.DATETIME:
            return lambda micros: EPOCH + timedelta(microseconds=micros)
        case _:
            return lambda value: value


def _is_of_floats(term: list[Any], known: Mapping[str, PropertyType]) -> bool:
    return isinstance(term[1], str) and term[1] in known and _scalar(known[term[1]]) in FLOATS


def _of_floats(term: list[Any]) -> Expression:
    """Return a test that every row passes which passes it in Spark: there NaN is above all, and all zeros are equal."""
    name, column, number = term[0], compute.field(term[1]), float(term[2])
    zero = number == 0.0
    match name:
        case "=":
            return (column == 0.0) | (column == -0.0) if zero else column == number
        case "<":
            return column < (0.0 if zero else number)
        case "<=":
            return column <= (0.0 if zero else number)
        case ">":
            return (column > (-0.0 if zero else number)) | compute.is_nan(column)
        case _:
            return (column >= (-0.0 if zero else number)) | compute.is_nan(column)
