"""Values in mutations: numbers and moments from text, and whether a value is what a type holds."""

import base64
import binascii
import re
from datetime import UTC, date, datetime, timedelta
from math import isinf, isnan
from typing import Any

import pyarrow as pa

from omnigraph.model.schema import (
    INTEGERS,
    EnumType,
    ListType,
    PropertyType,
    Scalar,
    ScalarType,
    VectorType,
    did_you_mean,
)
from omnigraph.rules.arrow_schema import arrow_type
from omnigraph.rules.gq_messages import shown
from omnigraph.rules.moments import days_of, microseconds_of
from omnigraph.rules.values import MisfitError, column_of

NUMBER_CHARACTERS_MAX = 400
BLOB_PREFIX = "base64:"

FIRST_MOMENT = datetime(1970, 1, 1, tzinfo=UTC)


def number_of(text: str) -> int | float:
    """Return the number a text means; what has neither a point nor an exponent is whole."""
    if len(text) > NUMBER_CHARACTERS_MAX:
        raise MisfitError(f"a number has at most {NUMBER_CHARACTERS_MAX} characters")
    digits = text.lstrip("-")
    if digits.isdigit():
        return int(text)
    number = float(text)
    if isinf(number):
        raise MisfitError("the number is too large")
    if number == 0 and re.search(r"[1-9]", re.split("[eE]", digits)[0]):
        raise MisfitError("the number is too small to be told from zero")
    return number


def date_of(text: str) -> date:
    """Return the day a text means: ``2024-01-31``."""
    try:
        return FIRST_MOMENT.date() + timedelta(days=days_of(text))
    except (MisfitError, OverflowError) as problem:
        raise MisfitError(f"{shown(text)} is not a day like 2024-01-31: {problem}") from problem


def datetime_of(text: str) -> datetime:
    """Return the moment a text means, in UTC: ``2024-01-31T10:00:00Z``; without a zone it is UTC already."""
    try:
        return FIRST_MOMENT + timedelta(microseconds=microseconds_of(text))
    except (MisfitError, OverflowError) as problem:
        what = "a moment like 2024-01-31T10:00:00Z, with at most 6 decimals"
        raise MisfitError(f"{shown(text)} is not {what}: {problem}") from problem


def from_json_form(value: Any, kind: PropertyType) -> Any:
    """Return a JSON value as what it stands for: days, moments and bytes are texts in JSON."""
    if value is None:
        return None
    match kind:
        case ListType(element=element) if isinstance(value, list):
            return [from_json_form(item, ScalarType(scalar=element)) for item in value]
        case ScalarType(scalar=Scalar.DATE):
            return date_of(_text(value, "a day"))
        case ScalarType(scalar=Scalar.DATETIME):
            return datetime_of(_text(value, "a moment"))
        case ScalarType(scalar=Scalar.BLOB):
            return _blob_of(_text(value, "a blob"))
        case _:
            return value


def fit(value: Any, kind: PropertyType) -> Any:
    """Return a value as a type holds it, or raise a MisfitError; nothing is cut, wrapped or reinterpreted."""
    if value is None:
        return None
    if isinstance(kind, EnumType):
        return _fit_enum(value, kind)
    if isinstance(kind, VectorType) and isinstance(value, list | tuple) and len(value) != kind.dimension:
        raise MisfitError(f"it has {len(value):,} components, and {kind} has {kind.dimension:,}")
    is_blob = kind == ScalarType(scalar=Scalar.BLOB)
    try:
        fitted = column_of([value], pa.large_binary() if is_blob else arrow_type(kind))[0].as_py()
        return _plain(fitted)
    except (ValueError, TypeError, OverflowError, RecursionError) as problem:
        raise MisfitError(_reason(value, kind)) from problem


def fit_literal(value: Any, kind: PropertyType) -> Any:
    """Return a value written in a text as a type holds it; unlike elsewhere, 1.0 is no whole number."""
    scalar = kind.scalar if isinstance(kind, ScalarType) else kind.element if isinstance(kind, ListType) else None
    items = value if isinstance(value, tuple) else (value,)
    if scalar in INTEGERS and any(isinstance(item, float) for item in items):
        raise MisfitError(f"{shown(next(i for i in items if isinstance(i, float)))} is not a whole number")
    if scalar is Scalar.BLOB and value is not None:
        raise MisfitError("bytes can not be written out; pass them in a parameter")
    return fit(value, kind)


def is_nan(value: Any) -> bool:
    """Tell whether a value is a number that equals nothing, not even itself."""
    return isinstance(value, float) and isnan(value)


def _fit_enum(value: Any, kind: EnumType) -> str:
    if not isinstance(value, str):
        raise MisfitError(f"{shown(value)} is not a text")
    if value not in kind.values:
        hint = did_you_mean(value[:100], kind.values) or f"the values are {', '.join(kind.values[:10])}"
        raise MisfitError(f"{shown(value)} is not one of its values; {hint}")
    return str(value)


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_plain(item) for item in value)
    return value.astimezone(UTC) if isinstance(value, datetime) else value


def _reason(value: Any, kind: PropertyType) -> str:
    """Say why a value does not fit, in the language's own words."""
    if isinstance(kind, ListType | VectorType) and isinstance(value, list | tuple):
        element = ScalarType(scalar=kind.element if isinstance(kind, ListType) else Scalar.F32)
        for number, item in enumerate(value, 1):
            try:
                fit(item, element)
            except MisfitError as problem:
                return f"element {number}: {problem}"
    return f"{shown(value)} is not a value of {kind}"


def _text(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise MisfitError(f"{shown(value)} is not a text, and {what} is written as one")
    return value


def _blob_of(text: str) -> bytes:
    if not text.startswith(BLOB_PREFIX):
        raise MisfitError(f'a blob is written "{BLOB_PREFIX}…", with its bytes in base64')
    try:
        return base64.b64decode(text.removeprefix(BLOB_PREFIX), validate=True)
    except (binascii.Error, ValueError) as problem:
        raise MisfitError(f"the base64 is broken: {problem}") from problem
