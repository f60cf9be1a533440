"""Mutation text cut into tokens, and each token's place."""

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from omnigraph.rules.gq_messages import RefusedError, Rule
from omnigraph.rules.schema_source import TEXT_BYTES_MAX, Mark, Source, without_byte_order_mark
from omnigraph.rules.schema_text import ESCAPES

PATTERN = re.compile(
    r"""(?P<space>[ \t\r\n]+|//[^\n]*|/\*[\s\S]*?\*/)
    |(?P<word>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<variable>\$[A-Za-z_][A-Za-z0-9_]*)
    |(?P<number>-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?(?![A-Za-z0-9_.]))
    |(?P<string>"[^"\\\n]*(?:\\[^\n][^"\\\n]*)*")
    |(?P<sign><=|>=|!=|=(?!=)|<(?!>)|>|[{}()\[\]:,?@])
    |(?P<bad>[0-9][A-Za-z0-9_.]*|[\s\S])""",
    re.VERBOSE,
)

# Controls (other than tab and line ends) and halves of surrogate pairs.
INVISIBLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")


class Kind(StrEnum):
    """What a token is."""

    WORD = "word"
    VARIABLE = "variable"
    NUMBER = "number"
    STRING = "string"
    SIGN = "sign"
    BAD = "bad"
    END = "end"


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of text and where it starts."""

    kind: Kind
    text: str
    offset: int


class Tokens:
    """The tokens of a text. The first bad one is the last, so that what stands before it is reported first."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._line_starts = [0, *(found.end() for found in re.finditer("\n", source.text))]
        self._coming = _cut(without_byte_order_mark(source.text))
        self._tokens = [next(self._coming)]

    def __getitem__(self, index: int) -> Token:
        while index >= len(self._tokens):
            # After the last token comes the last token.
            self._tokens.append(next(self._coming, self._tokens[-1]))
        return self._tokens[index]

    def mark(self, offset: int) -> Mark:
        """Return the place of the character at an offset."""
        line = bisect_right(self._line_starts, offset)
        return Mark(line=line, column=offset - self._line_starts[line - 1] + 1)


def refuse_unreadable(source: Source) -> None:
    """Refuse a text that is too long or holds characters nobody can see."""
    encoded = source.text.encode("utf-8", "surrogatepass")
    if len(encoded) > TEXT_BYTES_MAX:
        fitting = len(encoded[:TEXT_BYTES_MAX].decode("utf-8", "ignore"))
        problem = f"the text is {len(encoded):,} bytes long, and at most {TEXT_BYTES_MAX:,} are read"
        raise RefusedError(source.mark_at(min(fitting, len(source.text))), Rule.LIMIT, problem)
    found = INVISIBLE.search(source.text)
    if found is not None:
        char = ord(found[0])
        name = unicodedata.name(found[0], "a control character")
        hint = "remove it; characters like this can be passed in a parameter"
        raise RefusedError(
            source.mark_at(found.start()), Rule.SYNTAX, f"U+{char:04X} ({name}) is not allowed here", hint
        )


def unescaped(tokens: Tokens, token: Token) -> str:
    """Return what a quoted string means."""
    pieces: list[str] = []
    start, end = 1, len(token.text) - 1
    while (slash := token.text.find("\\", start, end)) >= 0:
        escaped = token.text[slash + 1]
        if escaped not in ESCAPES:
            hint = r"only \" \\ \n \r and \t are known; write \\ for a backslash"
            mark = tokens.mark(token.offset + slash)
            raise RefusedError(mark, Rule.SYNTAX, f"'\\{escaped}' is not an escape in a string", hint)
        pieces += [token.text[start:slash], ESCAPES[escaped]]
        start = slash + 2
    return "".join([*pieces, token.text[start:end]])


def bad_token(tokens: Tokens, token: Token) -> RefusedError:
    """Say what is wrong with a piece of text that is no token."""
    hints = {
        "'": "strings are written in double quotes",
        "`": "names need no quotes",
        "#": "comments start with //",
        ";": "nothing is needed between statements; remove it",
        "&": "write 'and'",
        "|": "write 'or'",
        "!": "write 'not', or '!=' for different values",
        "+": "a positive number has no sign",
        "-": "a sign stands right before a digit",
        "$": "a parameter is written $name",
        "=": "write one '='",
        "<": "write '!=' for different values",
    }
    rest = tokens.source.text[token.offset : token.offset + 2]
    problem, hint = f"unexpected {token.text[:40]!r}", hints.get(token.text)
    if token.text == '"':
        problem, hint = "this string is not closed on its line", "end it with a double quote; write \\n for a line end"
    elif rest == "/*":
        problem, hint = "this comment is never closed", "end it with */"
    elif token.text[0].isdigit():
        problem, hint = f"{token.text[:40]!r} is not a number", "numbers look like 12, -1.5 and 1.5e3"
    elif not token.text.isascii():
        name = unicodedata.name(token.text, "an unnamed character")
        problem = f"unexpected character U+{ord(token.text):04X} ({name})"
        hint = "names are made of ASCII letters, digits and '_'; other characters go into strings and comments"
    return RefusedError(tokens.mark(token.offset), Rule.SYNTAX, problem, hint)


def _cut(text: str) -> Iterator[Token]:
    end = 0
    for found in PATTERN.finditer(text):
        if found.lastgroup == "space":
            continue
        token = Token(Kind(found.lastgroup or "bad"), found[0], found.start())
        end = found.end()
        yield token
        if token.kind is Kind.BAD:
            return
    yield Token(Kind.END, "", end)
