"""How values draw themselves in a notebook."""

import re
from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff\u202a-\u202e\u2066-\u2069]")
"""What no page can carry, and what would turn around the text that follows."""

SHORT_MAX: Final = 24


def printable(text: str) -> str:
    """Return a text that a page can carry: what is no letter, and what turns others around, is a mark."""
    return _CONTROL.sub("\ufffd", text)


def html_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table; whatever is in it is text, never markup. Whole numbers are counts: versions come as texts.

    Every cell says which side it keeps to, because some notebooks send all of them to the right.
    """
    lines = list(rows)
    counts = [_is_count(cell) for cell in lines[0]] if lines else [False] * len(columns)
    head = _tag("tr", [_cell("th", name, is_count) for name, is_count in zip(columns, counts, strict=True)])
    body = [_tag("tr", [_cell("td", cell, _is_count(cell)) for cell in row]) for row in lines]
    caption = f'<caption style="text-align: left; white-space: nowrap">{_text(title)}</caption>'
    return _tag("table", [caption, head, *body])


def _is_count(cell: object) -> bool:
    return isinstance(cell, int) and not isinstance(cell, bool)


def _cell(name: str, cell: object, is_count: bool) -> str:
    text = f"{cell:,}" if _is_count(cell) else str(cell)
    side = "right" if is_count else "left"
    # Not every notebook keeps columns apart, and a time on two lines makes a line of two.
    together = "; white-space: nowrap" if len(text) <= SHORT_MAX else ""
    return f'<{name} style="text-align: {side}; padding: 0.2em 0.5em{together}">{_text(text)}</{name}>'


def _text(cell: object) -> str:
    return escape(printable(str(cell)))


def _tag(name: str, inside: Iterable[str]) -> str:
    return "".join(("<", name, ">", *inside, "</", name, ">"))
