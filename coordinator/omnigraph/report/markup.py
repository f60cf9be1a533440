"""HTML and SVG made of parts: a text is always text, and only what was made here is markup."""

import re
from collections.abc import Iterable
from html import escape
from typing import Final, TypeAlias

from omnigraph.model.drawing import printable

_NAME: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9:-]*")
VOID: Final = frozenset({"meta", "br", "input", "col"})


class Markup(str):
    """Text that is markup already."""

    __slots__ = ()


Part: TypeAlias = "str | int | Markup | Iterable[Part] | None"
"""Something that can stand between tags; a plain text is escaped, None is nothing."""


def tag(name: str, /, *inside: Part, **attributes: str | int | float | bool | None) -> Markup:
    """Return an element; an underscore in the name of an attribute is a hyphen, ``class_`` is ``class``.

    An attribute that is None or False is left out, one that is True stands by itself.
    """
    said = "".join(_attribute(key, value) for key, value in attributes.items())
    if name in VOID:
        return Markup(f"<{name}{said}>")
    return Markup(f"<{name}{said}>{joined(inside)}</{name}>")


def joined(parts: Part) -> Markup:
    """Return parts one after the other."""
    return Markup("".join(_texts(parts)))


def _texts(part: Part) -> Iterable[str]:
    if part is None:
        return
    if isinstance(part, Markup):
        yield str(part)
    elif isinstance(part, str):
        yield escape(printable(part))
    elif isinstance(part, int):
        yield f"{part:,}"
    else:
        for each in part:
            yield from _texts(each)


def _attribute(key: str, value: str | float | bool | None) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    if not _NAME.fullmatch(name):
        raise ValueError(f"{key!r} names no attribute")
    if value is True:
        return f" {name}"
    return f' {name}="{escape(printable(_number(value) if isinstance(value, float) else str(value)))}"'


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
