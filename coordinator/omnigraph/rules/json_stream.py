"""JSON values out of a text that arrives in pieces: any whitespace between them, none cut, none repeated.

The standard library's decoder is used because it keeps integers of any size exact and can be told of repeated
names; both would be lost with faster ones.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

RECORD_CHARACTERS_MAX: Final = 256 * 2**20
LITERAL_CHARACTERS_MAX: Final = 12
"""More than the longest word or escape that an end of text can cut in two."""

POSITIVE_INFINITY: Final = float("inf")
NEGATIVE_INFINITY: Final = float("-inf")
"""These very objects stand for the words; a number that is too large becomes another infinity."""

CONSTANTS: Final = {"NaN": float("nan"), "Infinity": POSITIVE_INFINITY, "-Infinity": NEGATIVE_INFINITY}
_SPACE = re.compile(r"[ \t\n\r]*")


class JsonError(ValueError):
    """Text is not JSON; ``line`` is where the record begins, ``number`` says which one it is."""

    def __init__(self, problem: str, number: int, line: int) -> None:
        super().__init__(problem)
        self.number = number
        self.line = line


class RepeatedNameError(ValueError):
    """An object has a name twice."""


class JsonRecord(NamedTuple):
    """One decoded value, which one it is, the line it begins on and how many characters it took."""

    value: Any
    number: int
    line: int
    size: int


class JsonStream:
    """Takes text piece by piece and yields the values that are complete."""

    def __init__(self) -> None:
        self._decode = json.JSONDecoder(object_pairs_hook=object_of, parse_constant=CONSTANTS.__getitem__).raw_decode
        self._rest = ""
        self.line = 1
        self.number = 0

    @property
    def waiting(self) -> int:
        """How many characters of an unfinished value are held."""
        return len(self._rest)

    @property
    def last_line(self) -> int:
        """The line on which the text taken so far ends."""
        return self.line + self._rest.count("\n")

    def pass_over(self, text: str, values: int) -> None:
        """Count text that someone else has read, and the values that were in it."""
        self.number += values
        self.line += text.count("\n")

    def take(self, text: str, *, last: bool) -> Iterator[JsonRecord]:
        """Yield the values that end in this piece; with the last piece, an unfinished one is an error."""
        text = self._rest + text if self._rest else text
        at, end, newline = 0, len(text), "\n"
        while True:
            space = _SPACE.match(text, at)
            start = space.end() if space else at
            self.line += text.count(newline, at, start)
            if start == end:
                self._rest = ""
                return
            self.number += 1
            value, at = self._decoded(text, start, last)
            if at == start:
                self.number -= 1
                self._rest = text[start:]
                return
            yield JsonRecord(value, self.number, self.line, at - start)
            self.line += text.count(newline, start, at)

    def _decoded(self, text: str, start: int, last: bool) -> tuple[Any, int]:
        """Return a value and where it ends: where it begins, if the text ends within it."""
        try:
            return self._decode(text, start)
        except json.JSONDecodeError as problem:
            if last or not _is_cut(problem, len(text)):
                raise self._error(f"invalid JSON: {_place(problem, start)}") from None
            if len(text) - start > RECORD_CHARACTERS_MAX:
                raise self._error(f"a record has more than {RECORD_CHARACTERS_MAX} characters") from None
            return None, start
        except RepeatedNameError as problem:
            raise self._error(str(problem)) from None
        except RecursionError:
            raise self._error("invalid JSON: lists and objects are nested too deeply") from None
        except ValueError as problem:
            raise self._error(f"invalid JSON: {problem}") from None

    def _error(self, problem: str) -> JsonError:
        return JsonError(problem, self.number, self.line)


def decode(text: str) -> Any:
    """Return the one value a text holds, read as strictly as a stream."""
    found = [record.value for record in JsonStream().take(text, last=True)]
    if len(found) != 1:
        raise JsonError("one JSON value was expected", 1, 1)
    return found[0]


def object_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return names and values as an object, or raise RepeatedNameError."""
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        again = next(name for name in names if names.count(name) > 1)
        raise RepeatedNameError(f"an object has {ascii(again)[:60]} twice")
    return found


def _is_cut(problem: json.JSONDecodeError, end: int) -> bool:
    """Tell whether more text could mend it."""
    return problem.msg.startswith("Unterminated string") or problem.pos >= end - LITERAL_CHARACTERS_MAX


def _place(problem: json.JSONDecodeError, start: int) -> str:
    what = problem.msg[:1].lower() + problem.msg[1:]
    what = what.removesuffix(" at").removesuffix(" starting")
    near = ascii(problem.doc[problem.pos : problem.pos + 20])[1:-1]
    return f"{what} at character {problem.pos - start + 1} of the record" + (f", near {near!r}" if near else "")
