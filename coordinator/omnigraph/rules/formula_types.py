"""What an expression makes of a row's columns: its type, or why it has none, told before a row is read."""

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Final

from omnigraph.model.schema import (
    ENDPOINT_COLUMNS,
    FLOATS,
    INTEGERS,
    EdgeType,
    EnumType,
    PropertyType,
    Scalar,
    ScalarType,
    TableType,
    did_you_mean,
)
from omnigraph.rules.formulas import Call, Constant, Formula, Named
from omnigraph.rules.schema_source import MarkedError


class Kind(StrEnum):
    """What a value is while it is worked with."""

    TEXT = "text"
    WHOLE = "a whole number"
    FLOAT = "a float"
    TRUTH = "true or false"
    DAY = "a date"
    MOMENT = "a moment"
    NOTHING = "null"


NUMERIC: Final = (Kind.WHOLE, Kind.FLOAT)
ORDERED: Final = (*NUMERIC, Kind.TEXT, Kind.DAY, Kind.MOMENT)
EVERY: Final = tuple(kind for kind in Kind if kind is not Kind.NOTHING)
_SCALARS: Final = {
    Scalar.STRING: Kind.TEXT,
    Scalar.BOOL: Kind.TRUTH,
    Scalar.DATE: Kind.DAY,
    Scalar.DATETIME: Kind.MOMENT,
    **dict.fromkeys(INTEGERS, Kind.WHOLE),
    **dict.fromkeys(FLOATS, Kind.FLOAT),
}


def kind_of(kind: PropertyType) -> Kind | None:
    """Return what values of a type are; None if no expression can have them."""
    if isinstance(kind, EnumType):
        return Kind.TEXT
    return _SCALARS.get(kind.scalar) if isinstance(kind, ScalarType) else None


def columns_there(kind: TableType) -> dict[str, PropertyType]:
    """Return the columns that the rows of a type have, ids included, by name."""
    ids = ("id", *ENDPOINT_COLUMNS) if isinstance(kind, EdgeType) else ("id",)
    text = ScalarType(scalar=Scalar.STRING)
    return {**dict.fromkeys(ids, text), **{column.name: column.type for column in kind.properties}}


def check_formula(formula: Formula, columns: Mapping[str, PropertyType], wanted: PropertyType) -> None:
    """Raise a MarkedError where an expression makes no value of a type out of these columns."""
    target = kind_of(wanted)
    if target is None:
        raise MarkedError(formula.mark, f"an expression can not make {wanted}", 'give a value with @backfill("…")')
    if isinstance(formula, Constant) and formula.value is None:
        raise MarkedError(formula.mark, "null is no value to fill a property with")
    made = _made(formula, columns)
    if made not in (target, Kind.NOTHING) and (made, target) != (Kind.WHOLE, Kind.FLOAT):
        hint = {Kind.TEXT: "string(…) makes it text", Kind.WHOLE: "int(…) makes it whole"}.get(target)
        raise MarkedError(formula.mark, f"this is {made}, and {wanted} is wanted", hint)


def _made(formula: Formula, columns: Mapping[str, PropertyType]) -> Kind:
    match formula:
        case Constant(value=value):
            return _constant(value)
        case Named():
            return _column(formula, columns)
        case Call():
            return _call(formula, columns)


def _constant(value: object) -> Kind:
    if value is None:
        return Kind.NOTHING
    if isinstance(value, bool):
        return Kind.TRUTH
    return {str: Kind.TEXT, int: Kind.WHOLE, float: Kind.FLOAT}[type(value)]


def _column(named: Named, columns: Mapping[str, PropertyType]) -> Kind:
    found = columns.get(named.name)
    if found is None:
        problem = f"rows have no column {named.name!r} before the change"
        hint = did_you_mean(named.name, columns) or f"they have {', '.join(list(columns)[:12])}"
        raise MarkedError(named.mark, problem, hint)
    kind = kind_of(found)
    if kind is None:
        raise MarkedError(named.mark, f"{named.name!r} is {found}, which an expression can not read")
    return kind


def _call(call: Call, columns: Mapping[str, PropertyType]) -> Kind:
    rule = SIGNATURES.get(call.name)
    if rule is None:
        hint = did_you_mean(call.name, FUNCTIONS) or f"there are {', '.join(FUNCTIONS)}"
        raise MarkedError(call.mark, f"there is no function {call.name!r}", hint)
    return rule(call, [_made(each, columns) for each in call.given])


Signature = Callable[[Call, Sequence[Kind]], Kind]


def _taking(*wanted: tuple[Kind, ...], makes: Kind) -> Signature:
    """Return the signature of a call that takes so many values of these kinds."""

    def sign(call: Call, given: Sequence[Kind]) -> Kind:
        _count(call, len(wanted), len(wanted))
        for each, kind, fine in zip(call.given, given, wanted, strict=True):
            if kind not in (*fine, Kind.NOTHING):
                raise MarkedError(each.mark, f"{call.name!r} takes {' or '.join(fine)}, and this is {kind}")
        return makes

    return sign


def _alike(makes: Kind | None, fine: tuple[Kind, ...], least: int, most: int | None = None) -> Signature:
    """Return the signature of a call whose values are all of one kind; whole numbers become floats beside floats."""

    def sign(call: Call, given: Sequence[Kind]) -> Kind:
        _count(call, least, most)
        found = Kind.NOTHING
        for each, kind in zip(call.given, given, strict=True):
            if kind not in (*fine, Kind.NOTHING):
                raise MarkedError(each.mark, f"{call.name!r} takes {' or '.join(fine)}, and this is {kind}")
            found = _both(found, kind, each, call)
        return makes or found

    return sign


def _both(one: Kind, other: Kind, where: Formula, call: Call) -> Kind:
    if Kind.NOTHING in (one, other) or one is other:
        return other if one is Kind.NOTHING else one
    if one in NUMERIC and other in NUMERIC:
        return Kind.FLOAT
    raise MarkedError(where.mark, f"{call.name!r} takes values of one type, and these are {one} and {other}")


def _choice(call: Call, given: Sequence[Kind]) -> Kind:
    _count(call, 3, 3)
    if given[0] not in (Kind.TRUTH, Kind.NOTHING):
        raise MarkedError(call.given[0].mark, f"'if' asks for {Kind.TRUTH} first, and this is {given[0]}")
    return _both(given[1], given[2], call.given[2], call)


def _count(call: Call, least: int, most: int | None) -> None:
    if len(call.given) < least or (most is not None and len(call.given) > most):
        wanted = f"{least}" if most == least else f"at least {least}"
        raise MarkedError(call.mark, f"{call.name!r} takes {wanted} values, and {len(call.given)} are given")


_TEXT, _TRUTH = (Kind.TEXT,), (Kind.TRUTH,)
FUNCTIONS: Final[dict[str, Signature]] = {
    "coalesce": _alike(None, EVERY, 2),
    "if": _choice,
    "lower": _taking(_TEXT, makes=Kind.TEXT),
    "upper": _taking(_TEXT, makes=Kind.TEXT),
    "trim": _taking(_TEXT, makes=Kind.TEXT),
    "length": _taking(_TEXT, makes=Kind.WHOLE),
    "string": _taking(EVERY, makes=Kind.TEXT),
    "int": _taking((*NUMERIC, Kind.TEXT), makes=Kind.WHOLE),
    "float": _taking((*NUMERIC, Kind.TEXT), makes=Kind.FLOAT),
}
SIGNATURES: Final[dict[str, Signature]] = {
    **FUNCTIONS,
    "||": _taking(_TEXT, _TEXT, makes=Kind.TEXT),
    **dict.fromkeys(("+", "-", "*"), _alike(None, NUMERIC, 2, 2)),
    "/": _alike(Kind.FLOAT, NUMERIC, 2, 2),
    "negative": _alike(None, NUMERIC, 1, 1),
    **dict.fromkeys(("=", "!="), _alike(Kind.TRUTH, EVERY, 2, 2)),
    **dict.fromkeys(("<", "<=", ">", ">="), _alike(Kind.TRUTH, ORDERED, 2, 2)),
    "and": _taking(_TRUTH, _TRUTH, makes=Kind.TRUTH),
    "or": _taking(_TRUTH, _TRUTH, makes=Kind.TRUTH),
    "not": _taking(_TRUTH, makes=Kind.TRUTH),
    "is null": _taking(EVERY, makes=Kind.TRUTH),
    "is not null": _taking(EVERY, makes=Kind.TRUTH),
}
