"""The rules for constraints: which columns they may name, and what they may say about them."""

import math
import re
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from omnigraph.model.schema import (
    BOUND_INTEGER_MAX,
    BOUND_INTEGER_MIN,
    ENDPOINT_COLUMNS,
    INTEGERS,
    NUMBERS,
    Bound,
    Check,
    ColumnConstraint,
    Index,
    Key,
    ListType,
    PropertyType,
    Range,
    Scalar,
    ScalarType,
    TypeKind,
    Unique,
    VectorType,
    did_you_mean,
)
from omnigraph.rules.schema_checks import refuse_repeats
from omnigraph.rules.schema_draft import Placed, PropertyDraft
from omnigraph.rules.schema_source import Mark, MarkedError
from omnigraph.rules.schema_text import Attribute, Bounds, Number, Quoted, Word

COLUMN_CONSTRAINT_KINDS: Mapping[str, type[ColumnConstraint]] = {"key": Key, "unique": Unique, "index": Index}
BOUND_DIGITS_MAX = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The type a constraint belongs to, as far as constraints care."""

    kind: TypeKind
    properties: Mapping[str, PropertyDraft]

    @property
    def columns(self) -> tuple[str, ...]:
        """Everything a key, unique or index constraint can name."""
        return (*self.properties, *(ENDPOINT_COLUMNS if self.kind is TypeKind.EDGE else ()))


def read_constraint(attribute: Attribute, owner: Owner) -> Placed:
    """Return the constraint written in a body, checked against the type it stands in."""
    match attribute.name.text:
        case "range":
            return Placed(constraint=_range(attribute, owner), mark=attribute.mark)
        case "check":
            return Placed(constraint=_check(attribute, owner), mark=attribute.mark)
        case kind:
            return Placed(constraint=_over_columns(kind, attribute, owner), mark=attribute.mark)


def refuse_conflicting(constraints: Iterable[Placed]) -> None:
    """Refuse a constraint that was written before, and a second key."""
    seen: set[object] = set()
    keyed = False
    for placed in constraints:
        kind = type(placed.constraint).__name__.lower()
        if placed.constraint in seen:
            raise MarkedError(placed.mark, f"this @{kind} was declared before", "remove one of the two")
        if isinstance(placed.constraint, Key):
            if keyed:
                hint = "list all key columns in one constraint: @key(first, second)"
                raise MarkedError(placed.mark, "a type has at most one key", hint)
            keyed = True
        seen.add(placed.constraint)


def check_column(kind: str, column: PropertyDraft, mark: Mark) -> None:
    """Refuse a column whose type can not carry a key, unique or index constraint."""
    label = _unsuitable(kind, column.type)
    if label is not None:
        raise MarkedError(mark, f"@{kind} can not use {column.name!r}, which is {label}")
    if kind == "key" and column.nullable:
        raise MarkedError(mark, f"the key column {column.name!r} can be null", "remove the '?' after its type")


def _unsuitable(kind: str, column: PropertyType) -> str | None:
    """Say what is wrong with a type for this kind of constraint, if anything."""
    if isinstance(column, ListType):
        return "a list"
    if isinstance(column, ScalarType) and column.scalar is Scalar.BLOB:
        return "a blob"
    if isinstance(column, VectorType) and kind != "index":
        return "a vector"
    return None


def _over_columns(kind: str, attribute: Attribute, owner: Owner) -> ColumnConstraint:
    columns = _column_words(attribute)
    for word in columns:
        _check_column_word(kind, word, owner)
    refuse_repeats(columns, "the column")
    names = tuple(word.text for word in columns)
    if kind == "key" and owner.kind is TypeKind.EDGE and not set(ENDPOINT_COLUMNS) <= set(names):
        problem = "an edge's key must name both src and dst"
        raise MarkedError(
            attribute.mark, problem, f"write @key({', '.join(dict.fromkeys((*ENDPOINT_COLUMNS, *names)))})"
        )
    return COLUMN_CONSTRAINT_KINDS[kind](columns=names)


def _column_words(attribute: Attribute) -> tuple[Word, ...]:
    kind = attribute.name.text
    words = tuple(argument for argument in attribute.arguments if isinstance(argument, Word))
    if not words or len(words) != len(attribute.arguments):
        raise MarkedError(attribute.mark, f"@{kind} lists the names of columns", f"write @{kind}(first, second)")
    return words


def _check_column_word(kind: str, word: Word, owner: Owner) -> None:
    if owner.kind is TypeKind.EDGE and word.text in ENDPOINT_COLUMNS:
        return
    check_column(kind, _column(word, owner, owner.columns), word.mark)


def _column(word: Word, owner: Owner, candidates: Iterable[str]) -> PropertyDraft:
    found = owner.properties.get(word.text)
    if found is not None:
        return found
    if word.text == "id":
        hint: str | None = "the id needs no constraint: it is unique and indexed in every table"
    else:
        hint = did_you_mean(word.text, candidates)
    raise MarkedError(word.mark, f"there is no property {word.text!r} in this {owner.kind}", hint)


def _range(attribute: Attribute, owner: Owner) -> Range:
    match attribute.arguments:
        case (Word() as word, Bounds() as bounds):
            column = _column(word, owner, owner.properties)
        case (Bounds(), *_):
            raise MarkedError(attribute.mark, "@range does not say which property", "write @range(property, 0..100)")
        case _:
            problem = "@range takes a property and a range"
            raise MarkedError(attribute.mark, problem, "write @range(property, 0..100), or leave one end open: 0..")
    if not isinstance(column.type, ScalarType) or column.type.scalar not in NUMBERS:
        raise MarkedError(word.mark, f"@range needs a number, and {word.text!r} is {column.type}")
    whole = column.type.scalar in INTEGERS
    low, high = (None if end is None else _bound(end, whole=whole) for end in (bounds.low, bounds.high))
    if low is not None and high is not None and low > high:
        raise MarkedError(bounds.mark, "this range is empty: its lower end is above its upper end", "swap the two ends")
    return Range(column=word.text, minimum=low, maximum=high)


def _bound(number: Number, *, whole: bool) -> Bound:
    """Return a bound as the property's own kind of number, so that equal ranges are equal values."""
    if whole and "." in number.text:
        raise MarkedError(number.mark, f"{number.text} is not a whole number, and the property is one")
    if len(number.text) > BOUND_DIGITS_MAX:
        raise MarkedError(number.mark, f"this number has more than {BOUND_DIGITS_MAX} digits")
    if not whole:
        value = float(number.text)
        if math.isinf(value):
            raise MarkedError(number.mark, "this number is too large for a 64-bit float")
        return value + 0.0  # makes -0.0 and 0.0 the same bound
    bound = int(number.text)
    if not BOUND_INTEGER_MIN <= bound <= BOUND_INTEGER_MAX:
        raise MarkedError(number.mark, "this number does not fit into 64 bits")
    return bound


def _check(attribute: Attribute, owner: Owner) -> Check:
    match attribute.arguments:
        case (Word() as word, Quoted() as pattern):
            column = _column(word, owner, owner.properties)
        case (Quoted(), *_):
            raise MarkedError(
                attribute.mark, "@check does not say which property", 'write @check(property, "^[a-z]+$")'
            )
        case _:
            problem = "@check takes a property and a regular expression"
            raise MarkedError(attribute.mark, problem, 'write @check(property, "^[a-z]+$")')
    if column.type != ScalarType(scalar=Scalar.STRING):
        raise MarkedError(word.mark, f"@check needs a String, and {word.text!r} is {column.type}")
    _refuse_bad_pattern(pattern)
    return Check(column=word.text, pattern=pattern.text)


def _refuse_bad_pattern(pattern: Quoted) -> None:
    hint = "patterns are Python regular expressions; in a string a backslash is written \\\\"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            re.compile(pattern.text)
    except re.error as problem:
        raise MarkedError(pattern.mark, f"this is not a regular expression: {problem}", hint) from None
    except (RecursionError, OverflowError):
        raise MarkedError(pattern.mark, "this regular expression is too deep or too large", hint) from None
