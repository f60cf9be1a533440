"""Schema text as a thing with places in it, and the error that names one."""

import unicodedata
from dataclasses import dataclass

from omnigraph.errors import SchemaError

TEXT_BYTES_MAX = 1_048_576
BYTE_ORDER_MARK = "\ufeff"


@dataclass(frozen=True, slots=True, order=True)
class Mark:
    """A place in schema text: line and column, both counted from 1."""

    line: int
    column: int


class MarkedError(Exception):
    """A problem at a place, on its way to the :class:`Source` that turns it into a SchemaError."""

    def __init__(self, mark: Mark, problem: str, hint: str | None = None) -> None:
        super().__init__(problem)
        self.mark = mark
        self.problem = problem
        self.hint = hint


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Schema text and its lines."""

    text: str
    lines: tuple[str, ...]

    @classmethod
    def of(cls, text: str) -> "Source":
        """Wrap a text; lines end with a line feed, with or without a carriage return."""
        return cls(text=text, lines=tuple(line.removesuffix("\r") for line in text.split("\n")))

    def mark_at(self, offset: int) -> Mark:
        """Return the place of the character at an offset."""
        start = self.text.rfind("\n", 0, offset) + 1
        return Mark(line=self.text.count("\n", 0, offset) + 1, column=offset - start + 1)

    def error(self, mark: Mark, problem: str, hint: str | None = None) -> SchemaError:
        """Build the error that shows the line and points at the place."""
        return SchemaError.at(
            problem, line=mark.line, column=mark.column, source_line=self.lines[mark.line - 1], hint=hint
        )


def refuse_unreadable(source: Source) -> None:
    """Refuse a text that is too long or holds characters nobody can see."""
    encoded = source.text.encode("utf-8", "surrogatepass")
    if len(encoded) > TEXT_BYTES_MAX:
        fitting = len(encoded[:TEXT_BYTES_MAX].decode("utf-8", "ignore"))
        problem = f"the schema is {len(encoded):,} bytes long, and at most {TEXT_BYTES_MAX:,} are read"
        raise MarkedError(source.mark_at(fitting), problem)
    for offset, char in enumerate(source.text):
        if _is_invisible(char):
            name = unicodedata.name(char, "a control character")
            hint = "remove it; was this file really written as text?"
            raise MarkedError(source.mark_at(offset), f"U+{ord(char):04X} ({name}) is not allowed in a schema", hint)


def without_byte_order_mark(text: str) -> str:
    """Blank the mark some editors put first, so that every place stays where it was."""
    return " " + text[1:] if text.startswith(BYTE_ORDER_MARK) else text


def _is_invisible(char: str) -> bool:
    """Tell whether a character is a control (other than tab and line ends) or half of a surrogate pair."""
    if " " <= char <= "~" or char in "\t\n\r":
        return False
    return unicodedata.category(char) in ("Cc", "Cs")
