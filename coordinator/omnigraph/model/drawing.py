"""How values draw themselves in a notebook."""

from collections.abc import Iterable, Sequence
from html import escape


def html_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table; whatever is in it is text, never markup."""
    head = _tag("tr", [_tag("th", [escape(column)]) for column in columns])
    body = [_tag("tr", [_tag("td", [escape(str(cell))]) for cell in row]) for row in rows]
    return _tag("table", [_tag("caption", [escape(title)]), head, *body])


def _tag(name: str, inside: Iterable[str]) -> str:
    return "".join(("<", name, ">", *inside, "</", name, ">"))
