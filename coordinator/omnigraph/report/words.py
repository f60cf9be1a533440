"""Numbers, sizes, times and values as people read them, never longer than there is room for."""

import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from omnigraph.report.markup import Markup, tag

VALUE_CHARACTERS_MAX: Final = 160
BYTES_STEP: Final = 1024
ELLIPSIS: Final = "…"


def short(text: str, most: int) -> str:
    """Return a text cut to at most so many characters."""
    return text if len(text) <= most else text[: max(1, most - 1)].rstrip() + ELLIPSIS


def size(number: int) -> str:
    """Return bytes as people say them."""
    if number < BYTES_STEP:
        return f"{number} B"
    power = min(4, int(math.log(number, BYTES_STEP)))
    amount = number / BYTES_STEP**power
    return f"{amount:,.{0 if amount >= 100 else 1}f} {('B', 'KiB', 'MiB', 'GiB', 'TiB')[power]}"


def moment(value: datetime) -> str:
    """Return a time to the second, in UTC."""
    return value.strftime("%Y-%m-%d %H:%M:%S")


def stamp(value: datetime) -> Markup:
    """Return a time for a table."""
    return tag("time", moment(value), datetime=value.isoformat())


def minute(value: datetime) -> str:
    """Return a time to the minute, in UTC."""
    return value.strftime("%Y-%m-%d %H:%M")


def counted(number: int, one: str, many: str | None = None) -> str:
    """Return a number with its noun."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def percent(share: float) -> str:
    """Return a share; all of it only if it is all of it, and nothing only if it is nothing."""
    if 0 < share < 1:
        return f"{min(99.9, max(0.1, share * 100)):.1f} %"
    return f"{share * 100:.0f} %"


def value(given: Any, most: int = VALUE_CHARACTERS_MAX) -> Markup:
    """Return a value of a row: what is no text is told from a text that looks like it."""
    if given is None:
        return tag("span", "null", class_="null")
    if isinstance(given, bytes):
        return tag("span", f"{size(len(given))} of bytes", class_="null")
    text = given if isinstance(given, str) else _told(given)
    if text == "":
        return tag("span", "empty text", class_="null")
    cut = short(text, most)
    title = f"{counted(len(text), 'character')}, of which {len(cut)} are shown" if cut != text else None
    return tag("bdi", cut, title=title)


def name(text: str, most: int = 60) -> Markup:
    """Return a name, whichever way it is written."""
    cut = short(text, most)
    return tag("bdi", cut, title=text[:1000] if cut != text else None)


def commit_id(text: str) -> Markup:
    """Return the id of a commit: all of it, so that it can be copied, though little is shown."""
    return tag("code", text, class_="id")


def _told(given: Any) -> str:
    if isinstance(given, bool):
        return "true" if given else "false"
    if isinstance(given, datetime):
        return given.isoformat()
    if isinstance(given, Mapping):
        return ", ".join(f"{key}: {_told(each)}" for key, each in given.items())
    if isinstance(given, list | tuple):
        shown = ", ".join("null" if each is None else str(each) for each in given[:32])
        return f"[{shown}{', …' if len(given) > 32 else ''}]"
    return str(given)
