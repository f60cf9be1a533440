"""Lengths of time as people write them."""

import re
from datetime import timedelta
from typing import Final

from omnigraph.errors import InvalidOptionError

_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_DURATION = re.compile(r"(\d{1,9})([smhdw])", re.ASCII)


def duration(value: object, what: str) -> timedelta:
    """Return a length of time from a text like ``7d``: whole seconds, minutes, hours, days or weeks."""
    if isinstance(value, timedelta):
        if value < timedelta(0):
            raise InvalidOptionError(f"{what} is {value}; it may not be negative")
        return value
    found = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise InvalidOptionError(f"{what} is {value!r}; write a number and s, m, h, d or w, like 7d")
    try:
        return timedelta(**{_UNITS[found[2]]: int(found[1])})
    except OverflowError:
        raise InvalidOptionError(f"{what} is {value!r}, which is longer than time is counted") from None
