"""Tables with a caption, heads that say what they head, and a frame of their own to scroll in."""

from collections.abc import Iterable, Sequence
from typing import Final

from omnigraph.report.markup import Markup, Part, tag

NUMBER: Final = "number"
BAR_WIDTH: Final = 120


def table(
    caption: str, columns: Sequence[str], rows: Iterable[Sequence[Part]], numbers: Sequence[str] = (), kind: str = ""
) -> Markup:
    """Return a table whose first column heads its rows; ``numbers`` are columns that stand to the right."""
    right = [column in numbers for column in columns]
    head = tag(
        "tr",
        [tag("th", column, scope="col", class_=_class(is_it)) for column, is_it in zip(columns, right, strict=True)],
    )
    body = [tag("tr", _cells(row, right)) for row in rows]
    made = tag("table", tag("caption", caption), tag("thead", head), tag("tbody", body), class_=kind or None)
    return tag("div", made, class_="scroll", tabindex=0, role="group", aria_label=caption)


def bar(share: float, kind: str = "") -> Markup:
    """Return a bar that is filled to a share; what is more than nothing is seen."""
    filled = max(2.0, BAR_WIDTH * min(1.0, share)) if share > 0 else 0.0
    return stacked([(filled, kind or "c0")])


def stacked(parts: Sequence[tuple[float, str]]) -> Markup:
    """Return a bar of parts, each with its width and its colour."""
    drawn, left = [], 0.0
    for width, colour in parts:
        if width > 0:
            drawn.append(tag("rect", x=left, y=0, width=width, height=8, rx=2, class_=f"fill {colour}"))
            left += width + 1
    ground = tag("rect", x=0, y=0, width=BAR_WIDTH, height=8, rx=2, class_="ground")
    return tag(
        "svg", ground, *drawn, width=BAR_WIDTH, height=8, viewBox=f"0 0 {BAR_WIDTH} 8", class_="bar", aria_hidden="true"
    )


def pill(text: str, kind: str) -> Markup:
    """Return a word in a frame."""
    return tag("span", text, class_=f"pill {kind}")


def _class(is_number: bool) -> str | None:
    return NUMBER if is_number else None


def _cells(row: Sequence[Part], right: Sequence[bool]) -> Iterable[Markup]:
    for number, (cell, is_number) in enumerate(zip(row, right, strict=True)):
        if number == 0:
            yield tag("th", cell, scope="row", class_=_class(is_number))
        else:
            yield tag("td", cell, class_=_class(is_number))
