"""Working an expression out over many rows at once. A row whose value can not be had is told, never guessed.

Nulls make null, as in SQL. What has no right answer (a whole number beyond 64 bits, a division by zero, a text that is
no number) is *wrong*: such a row has no value, and whoever asked refuses the change.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final

import pyarrow as pa

from omnigraph.model.schema import EnumType, PropertyType, Scalar, ScalarType
from omnigraph.rules.arrow_schema import arrow_type
from omnigraph.rules.formulas import Call, Constant, Formula, Named
from omnigraph.rules.schema_values import fits
from omnigraph.rules.values import Column, compute

WHOLE: Any = pa.int64()
FLOAT: Any = pa.float64()
TEXT: Any = pa.string()
TRUTH: Any = pa.bool_()
LEAST: Final = -(2**63)
WHOLE_TEXT: Final = r"^[+-]?[0-9]{1,37}$"
FLOAT_TEXT: Final = r"^[+-]?([0-9]+([.][0-9]*)?|[.][0-9]+)([eE][+-]?[0-9]{1,4})?$"
MOMENT_TEXT: Final = "%Y-%m-%dT%H:%M:%SZ"


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """What an expression makes of rows, and which of them have no right answer; those are null."""

    values: Column
    wrong: Column

    def also(self, *others: Column) -> "Outcome":
        """Return it with more rows that are wrong, which then have no value."""
        wrong = reduce(compute.or_, (compute.fill_null(each, False) for each in others), self.wrong)
        return Outcome(compute.if_else(wrong, pa.scalar(None, self.values.type), self.values), wrong)


def worked_out(formula: Formula, rows: pa.RecordBatch, wanted: PropertyType) -> Outcome:
    """Return the values of a property of this type that an expression makes of rows."""
    if isinstance(formula, Named) and rows.column(formula.name).type == arrow_type(wanted):
        made = Outcome(rows.column(formula.name), _none(rows))  # as it is, whatever its type holds
    else:
        made = _Rows(rows).outcome(formula)
    if isinstance(wanted, EnumType):
        known = compute.is_in(made.values, value_set=pa.array(wanted.values, TEXT))
        return made.also(compute.and_(compute.is_valid(made.values), compute.invert(known)))
    return _stored(made, wanted)


def _stored(made: Outcome, wanted: PropertyType) -> Outcome:
    kind = arrow_type(wanted)
    if made.values.type == kind:
        return made
    if isinstance(wanted, ScalarType) and made.values.type == WHOLE:
        return _recast(made, Scalar.I64, wanted.scalar)
    if kind == pa.float32() and made.values.type == FLOAT:
        values = made.values.cast(kind, safe=False)
        return Outcome(values, made.wrong).also(_new_infinities(values, made.values))
    return Outcome(made.values.cast(kind), made.wrong)  # nulls alone


def _recast(made: Outcome, old: Scalar, new: Scalar) -> Outcome:
    """Return whole numbers in another type that has the very same ones."""
    beyond = compute.and_(compute.is_valid(made.values), compute.invert(fits(made.values, old, new)))
    kept = made.also(beyond)
    return Outcome(kept.values.cast(arrow_type(ScalarType(scalar=new)), safe=False), kept.wrong)


def _none(rows: pa.RecordBatch) -> Column:
    return pa.repeat(pa.scalar(False), rows.num_rows)


def _new_infinities(values: Column, *given: Column) -> Column:
    """Tell where a float has become one that no number is, although none was given."""
    plain = reduce(compute.and_, (compute.is_finite(each) for each in given))
    return compute.and_(plain, compute.invert(compute.is_finite(values)))


class _Rows:
    """Some rows, and what expressions make of them."""

    def __init__(self, rows: pa.RecordBatch) -> None:
        self._rows = rows
        self._fine = _none(rows)

    def outcome(self, formula: Formula) -> Outcome:
        match formula:
            case Constant(value=value):
                return Outcome(pa.repeat(_scalar(value), self._rows.num_rows), self._fine)
            case Named(name=name):
                return self._column(self._rows.column(name))
            case Call(name=name, given=given):
                return CALLS[name](*(self.outcome(each) for each in given))

    def _column(self, values: Column) -> Outcome:
        there = Outcome(values, self._fine)
        if values.type == pa.uint64():
            return _recast(there, Scalar.U64, Scalar.I64)
        if pa.types.is_integer(values.type):
            return Outcome(values.cast(WHOLE), self._fine)
        return Outcome(values.cast(FLOAT), self._fine) if values.type == pa.float32() else there


def _scalar(value: Any) -> Any:
    kinds: dict[type, Any] = {type(None): pa.null(), bool: TRUTH, str: TEXT, int: WHOLE, float: FLOAT}
    return pa.scalar(value, kinds[type(value)])


def _float(given: Outcome) -> Outcome:
    """Return numbers as floats; a whole number that no float is, is wrong."""
    if given.values.type != WHOLE:
        return Outcome(given.values.cast(FLOAT), given.wrong)
    return _recast(given, Scalar.I64, Scalar.F64)


def _alike(*given: Outcome) -> tuple[Outcome, ...]:
    """Return values in the one type they go together in."""
    types = {each.values.type for each in given} - {pa.null()}
    if types == {WHOLE, FLOAT}:
        return tuple(_float(each) for each in given)
    kind = next(iter(types), FLOAT)  # of nulls alone, any will do
    return tuple(Outcome(each.values.cast(kind), each.wrong) for each in given)


def _simple(function: Callable[..., Column], kind: Any = None) -> Callable[..., Outcome]:
    """Return a call that can not go wrong by itself; if it is for one type, nulls are taken for that."""

    def call(*given: Outcome) -> Outcome:
        same = _alike(*given)
        values = [each.values if kind is None else each.values.cast(kind) for each in same]
        wrong = reduce(compute.or_, (each.wrong for each in same))
        return Outcome(function(*values), wrong).also()

    return call


def _arithmetic(
    function: Callable[..., Column], is_beyond: Callable[[Column, Column, Column], Column]
) -> Callable[[Outcome, Outcome], Outcome]:
    """Return a call on two numbers: floats as they come, whole numbers only if 64 bits hold the result."""

    def call(one: Outcome, other: Outcome) -> Outcome:
        left, right = _alike(one, other)
        values = function(left.values, right.values)
        tell = is_beyond if left.values.type == WHOLE else _float_beyond
        wrong = compute.or_(left.wrong, right.wrong)
        return Outcome(values, wrong).also(tell(left.values, right.values, values))

    return call


def _float_beyond(left: Column, right: Column, made: Column) -> Column:
    return _new_infinities(made, left, right)


def _xor_sign(one: Column, other: Column, made: Column) -> Column:
    """Tell where the sign of a result differs from both that it should have."""
    signs = compute.bit_wise_and(compute.bit_wise_xor(one, made), compute.bit_wise_xor(other, made))
    return compute.less(signs, 0)


def _sum_beyond(left: Column, right: Column, made: Column) -> Column:
    return _xor_sign(left, right, made)


def _difference_beyond(left: Column, right: Column, made: Column) -> Column:
    return _xor_sign(left, compute.bit_wise_not(right), made)


def _product_beyond(left: Column, right: Column, made: Column) -> Column:
    turned = compute.and_(compute.equal(left, -1), compute.equal(right, LEAST))
    plain = compute.or_(compute.equal(left, 0), compute.equal(left, -1))
    divided = compute.divide(made, compute.if_else(plain, 1, left))  # neither by zero nor of what has no negative
    return compute.or_(turned, compute.and_(compute.invert(plain), compute.not_equal(divided, right)))


def _quotient(one: Outcome, other: Outcome) -> Outcome:
    left, right = _float(one), _float(other)
    values = compute.divide(left.values, right.values)
    found = Outcome(values, compute.or_(left.wrong, right.wrong))
    return found.also(compute.equal(right.values, 0.0), _float_beyond(left.values, right.values, values))


def _negative(given: Outcome) -> Outcome:
    if given.values.type != WHOLE:
        return Outcome(compute.negate(given.values.cast(FLOAT)), given.wrong)
    return Outcome(compute.negate(given.values), given.wrong).also(compute.equal(given.values, LEAST))


def _coalesced(*given: Outcome) -> Outcome:
    """Return the first value there is; what is wrong further behind does not matter."""

    def first(one: Outcome, other: Outcome) -> Outcome:
        open_ = compute.and_(compute.is_null(one.values), compute.invert(one.wrong))
        wrong = compute.or_(one.wrong, compute.and_(open_, other.wrong))
        return Outcome(compute.coalesce(one.values, other.values), wrong).also()

    return reduce(first, _alike(*given))


def _chosen(asked: Outcome, yes: Outcome, no: Outcome) -> Outcome:
    """Return one of two values; a condition that is null does not hold, as in SQL."""
    holds = compute.fill_null(asked.values.cast(TRUTH), False)
    left, right = _alike(yes, no)
    wrong = compute.or_(asked.wrong, compute.if_else(holds, left.wrong, right.wrong))
    return Outcome(compute.if_else(holds, left.values, right.values), wrong).also()


def _is_null(given: Outcome) -> Outcome:
    return Outcome(compute.is_null(given.values), given.wrong).also()


def _is_not_null(given: Outcome) -> Outcome:
    return Outcome(compute.is_valid(given.values), given.wrong).also()


def _string(given: Outcome) -> Outcome:
    if pa.types.is_timestamp(given.values.type):
        return Outcome(compute.strftime(given.values, format=MOMENT_TEXT), given.wrong)
    return Outcome(given.values.cast(TEXT), given.wrong)


def _int(given: Outcome) -> Outcome:
    if given.values.type == FLOAT:
        return _recast(given, Scalar.F64, Scalar.I64)
    if given.values.type != TEXT:
        return Outcome(given.values.cast(WHOLE), given.wrong)
    read = _read(given, WHOLE_TEXT)
    numbers = Outcome(read.values.cast(pa.decimal128(38, 0)), read.wrong)
    least, most = (pa.scalar(bound, pa.decimal128(38, 0)) for bound in (LEAST, -LEAST - 1))
    inside = numbers.also(compute.less(numbers.values, least), compute.greater(numbers.values, most))
    return Outcome(inside.values.cast(WHOLE), inside.wrong)


def _to_float(given: Outcome) -> Outcome:
    if given.values.type != TEXT:
        return _float(given)
    read = _read(given, FLOAT_TEXT)
    values = compute.ascii_ltrim(read.values, characters="+").cast(FLOAT)
    return Outcome(values, read.wrong).also(compute.is_inf(values))


def _read(given: Outcome, pattern: str) -> Outcome:
    """Return texts of a form, without what is around them; one of another form is wrong."""
    texts = compute.utf8_trim_whitespace(given.values)
    return Outcome(texts, given.wrong).also(compute.invert(compute.match_substring_regex(texts, pattern)))


CALLS: Final[Mapping[str, Callable[..., Outcome]]] = {
    "||": _simple(lambda one, other: compute.binary_join_element_wise(one, other, ""), TEXT),
    "+": _arithmetic(compute.add, _sum_beyond),
    "-": _arithmetic(compute.subtract, _difference_beyond),
    "*": _arithmetic(compute.multiply, _product_beyond),
    "/": _quotient,
    "negative": _negative,
    "=": _simple(compute.equal),
    "!=": _simple(compute.not_equal),
    "<": _simple(compute.less),
    "<=": _simple(compute.less_equal),
    ">": _simple(compute.greater),
    ">=": _simple(compute.greater_equal),
    "and": _simple(compute.and_kleene, TRUTH),
    "or": _simple(compute.or_kleene, TRUTH),
    "not": _simple(compute.invert, TRUTH),
    "is null": _is_null,
    "is not null": _is_not_null,
    "coalesce": _coalesced,
    "if": _chosen,
    "lower": _simple(compute.utf8_lower, TEXT),
    "upper": _simple(compute.utf8_upper, TEXT),
    "trim": _simple(compute.utf8_trim_whitespace, TEXT),
    "length": _simple(lambda text: compute.utf8_length(text).cast(WHOLE), TEXT),
    "string": _string,
    "int": _int,
    "float": _to_float,
}
