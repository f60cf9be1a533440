"""Dates and times as text: RFC 3339, exact, and for every year that the columns can hold."""

import re
from datetime import date
from functools import lru_cache
from typing import Any, Final

import numpy as np

from omnigraph.rules.values import Column, MisfitError

_DATE = r"([+-]?\d{4,7})-(\d\d)-(\d\d)"
_DAY = re.compile(_DATE, re.ASCII)
_MOMENT = re.compile(
    _DATE + r"[Tt ]([01]\d|2[0-3]):([0-5]\d)(?::([0-5]\d)(?:\.(\d+))?)?([Zz]|[+-](?:[01]\d|2[0-3]):[0-5]\d)?", re.ASCII
)
_EPOCH: Final = date(1970, 1, 1).toordinal()
_CYCLE_YEARS: Final = 400
_CYCLE_DAYS: Final = 146_097
DAY_MICROSECONDS: Final = 86_400_000_000

_EARLIEST: Final = -(2**63)
_EARLIEST_TEXT: Final = "-290308-12-21T19:59:05.224192Z"
"""The one moment that numpy takes for no moment at all."""


def days_of(value: Any) -> int:
    """Return days since 1970 from ``YYYY-MM-DD``, or from a whole number, which is days already."""
    if type(value) is int:
        return value
    found = _DAY.fullmatch(value) if type(value) is str else None
    if found is None:
        raise MisfitError(f"{_shown(value)} is not a date; write it as 2026-01-31")
    return _days(*found.groups())


def microseconds_of(value: Any) -> int:
    """Return microseconds since 1970 from an RFC 3339 text, or from a whole number of milliseconds.

    A text without a zone is UTC, as it is everywhere in omnigraph. The seconds may be left away.
    """
    if type(value) is int:
        return value * 1_000
    found = _MOMENT.fullmatch(value) if type(value) is str else None
    if found is None:
        raise MisfitError(f"{_shown(value)} is not a time; write it as 2026-01-31T12:00:00Z")
    year, month, day, hours, minutes, seconds, fraction, zone = found.groups()
    if fraction is not None and fraction[6:].strip("0"):
        raise MisfitError(f"{_shown(value)} is more exact than a microsecond")
    clock = (int(hours) * 60 + int(minutes) - _offset_minutes(zone)) * 60 + int(seconds or 0)
    part = int(fraction[:6].ljust(6, "0")) if fraction else 0
    return _days(year, month, day) * DAY_MICROSECONDS + clock * 1_000_000 + part


def day_texts(days: Column) -> list[str]:
    """Return dates as text; ``days`` has no nulls."""
    whole = days.cast("int32").to_numpy(zero_copy_only=False).astype("datetime64[D]")
    return [_padded(text) for text in np.datetime_as_string(whole).tolist()]


def moment_texts(moments: Column) -> list[str]:
    """Return times as text, in UTC, to the microsecond where there is one; ``moments`` has no nulls."""
    numbers = moments.cast("int64").to_numpy(zero_copy_only=False)
    texts = np.datetime_as_string(numbers.astype("datetime64[us]"), unit="us").tolist()
    return [
        _EARLIEST_TEXT if number == _EARLIEST else f"{_padded(text).removesuffix('.000000')}Z"
        for number, text in zip(numbers.tolist(), texts, strict=True)
    ]


def _padded(text: str) -> str:
    """Give a year before 0 its four digits: numpy counts the sign as one."""
    if not text.startswith("-"):
        return text
    year, rest = text[1:].split("-", 1)
    return f"-{year.zfill(4)}-{rest}"


@lru_cache(maxsize=16_384)
def _days(year: str, month: str, day: str) -> int:
    """Return days since 1970; the calendar repeats every 400 years, so any year is one that Python knows."""
    cycles, shifted = divmod(int(year) - 2000, _CYCLE_YEARS)
    try:
        known = date(2000 + shifted, int(month), int(day))
    except ValueError as problem:
        raise MisfitError(f"{year}-{month}-{day} is not in the calendar: {problem}") from None
    return known.toordinal() - _EPOCH + cycles * _CYCLE_DAYS


def _offset_minutes(zone: str | None) -> int:
    if zone is None or zone in "Zz":
        return 0
    minutes = int(zone[1:3]) * 60 + int(zone[4:6])
    return -minutes if zone[0] == "-" else minutes


def _shown(value: Any) -> str:
    text = ascii(value)
    return text if len(text) <= 60 else text[:57] + "..."
