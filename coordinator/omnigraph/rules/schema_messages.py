"""What to say about schema text that does not parse: what stands there, what could stand there, and why."""

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from omnigraph.model.schema import did_you_mean
from omnigraph.rules.schema_source import MarkedError, Source, without_byte_order_mark

KEYWORDS = ("node", "edge", "interface")
CLOSERS = {"{": "}", "(": ")", "[": "]"}

EDGE_FORM = "an edge is written: edge Name: FromType -> ToType"

TOKEN = re.compile(r'//[^\n]*|/\*[\s\S]*?\*/|"(?:[^"\\\n]|\\[^\n])*"|[A-Za-z0-9_]+|->|\.\.|[^ \t\r\n]')

PLAIN_WORDS = {
    "NODE": "'node'",
    "EDGE": "'edge'",
    "INTERFACE": "'interface'",
    "IMPLEMENTS": "'implements'",
    "CHOICE": "a value made of letters, digits, '_' or '-'",
    "STRING": "a string in double quotes",
    "NUMBER": "a number",
    "DOTS": "'..'",
    "QUESTION": "'?'",
    "AT": "an annotation",
    "_PAREN_OPEN": "'('",
    "PAREN_CLOSE": "')'",
    "_LIST_OPEN": "'['",
    "_LIST_CLOSE": "']'",
    "_COLON": "':'",
    "_COMMA": "','",
    "_EQUAL": "'='",
    "_ARROW": "'->'",
    "_OPEN": "'{'",
    "_CLOSE": "'}'",
    "$END": "the end of the schema",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A piece of text between spaces and comments, and where it starts."""

    text: str
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """Where the parser stopped: what it had read, what stands there, and what it could have gone on with."""

    source: Source
    before: tuple[Piece, ...]
    found: Piece
    accepts: frozenset[str]

    @property
    def at_end(self) -> bool:
        """Tell whether the text ended there."""
        return not self.found.text

    @property
    def previous(self) -> str:
        """The piece just before, or nothing."""
        return self.before[-1].text if self.before else ""

    @property
    def open_brackets(self) -> tuple[Piece, ...]:
        """The brackets that are still open there, outermost first."""
        stack: list[Piece] = []
        for piece in self.before:
            if piece.text in CLOSERS:
                stack.append(piece)
            elif stack and piece.text == CLOSERS[stack[-1].text]:
                stack.pop()
        return tuple(stack)

    @property
    def in_body(self) -> bool:
        """Tell whether the innermost open bracket is a body's."""
        return bool(self.open_brackets) and self.open_brackets[-1].text == "{"

    def error(self, problem: str, hint: str | None = None, at: Piece | None = None) -> MarkedError:
        """Build the error for the place, or for an earlier piece that caused it."""
        return MarkedError(self.source.mark_at((at or self.found).offset), problem, hint)


Explanation: TypeAlias = Callable[[Stop], MarkedError | None]


def explain(source: Source, offset: int | None, accepts: frozenset[str]) -> MarkedError:
    """Return the most helpful error for the place where parsing stopped; ``offset`` None is the end."""
    stop = _stop(source, offset, accepts)
    for explanation in EXPLANATIONS:
        error = explanation(stop)
        if error is not None:
            return error
    return _unexpected(stop)


def _stop(source: Source, offset: int | None, accepts: frozenset[str]) -> Stop:
    limit = len(source.text) if offset is None else offset
    matches = TOKEN.finditer(without_byte_order_mark(source.text), 0, limit)
    before = [Piece(text=m[0], offset=m.start()) for m in matches if not m[0].startswith(("//", "/*"))]
    here = TOKEN.match(source.text, limit)
    if here is not None:
        found = Piece(text=here[0], offset=limit)
    else:
        last = before[-1] if before else Piece(text="", offset=0)
        found = Piece(text="", offset=last.offset + len(last.text))
    return Stop(source=source, before=tuple(before), found=found, accepts=accepts)


def _never_closed(stop: Stop) -> MarkedError | None:
    rest = stop.source.text[stop.found.offset :]
    if stop.found.text == '"':
        return stop.error(
            "this string is not closed on its line", "end it with a double quote; write \\n for a line end"
        )
    if stop.found.text == "/" and rest.startswith("/*"):
        return stop.error("this comment is never closed", "end it with */")
    return None


def _foreign_character(stop: Stop) -> MarkedError | None:
    hints = {
        "'": "strings are written in double quotes",
        "`": "strings are written in double quotes; names need no quotes",
        "#": "comments start with //",
        ";": "nothing is needed between declarations or properties; remove it",
        "/": "comments start with // or /*",
    }
    char = stop.found.text
    if char in ("-", "=") and "_ARROW" in stop.accepts:
        return stop.error(f"unexpected {char!r} where '->' was expected", EDGE_FORM)
    if char in hints:
        return stop.error(f"unexpected {char!r}", hints[char])
    if len(char) == 1 and not char.isascii():
        name = unicodedata.name(char, "an unnamed character")
        hint = "names are made of ASCII letters, digits and '_'; other characters go into strings and comments"
        if char.isspace() or not char.isprintable():
            hint = "it can not be seen, or looks like an ordinary space; remove it or type a space"
        return stop.error(f"unexpected character U+{ord(char):04X} ({name})", hint)
    return None


def _missing_bracket(stop: Stop) -> MarkedError | None:
    if not stop.at_end or not stop.open_brackets:
        return None
    opened = stop.open_brackets[-1]
    closer = CLOSERS[opened.text]
    return stop.error(f"this {opened.text!r} is never closed", f"close it with {closer!r}", at=opened)


def _body_left_open(stop: Stop) -> MarkedError | None:
    if not stop.in_body or stop.previous not in KEYWORDS or not stop.found.text[:1].isalpha():
        return None
    line = stop.source.mark_at(stop.open_brackets[-1].offset).line
    problem = f"{stop.previous!r} starts a new type, but the body opened on line {line} is not closed"
    return stop.error(problem, "close the body with '}' before this", at=stop.before[-1])


def _closes_nothing(stop: Stop) -> MarkedError | None:
    if stop.found.text in CLOSERS.values() and not stop.open_brackets:
        return stop.error(f"this {stop.found.text!r} closes nothing", "remove it, or open a body with '{' before it")
    return None


def _missing_colon(stop: Stop) -> MarkedError | None:
    if stop.accepts != {"_COLON"}:
        return None
    if not stop.in_body:
        return stop.error(f"{_shown(stop)} where ':' was expected after the edge's name", EDGE_FORM)
    problem = f"{_shown(stop)} where ':' was expected after the property name {stop.previous!r}"
    return stop.error(problem, f"a property is written: {stop.previous}: Type")


def _comma_in_body(stop: Stop) -> MarkedError | None:
    if stop.found.text == "," and stop.in_body:
        return stop.error("unexpected ',' in a body", "properties follow one another without commas; remove it")
    return None


def _no_body(stop: Stop) -> MarkedError | None:
    if "_OPEN" not in stop.accepts or "IMPLEMENTS" not in stop.accepts:
        return None
    if not stop.at_end and stop.found.text not in KEYWORDS:
        return None
    return stop.error(
        f"{_shown(stop)} where '{{' was expected", "a node needs a body, if only an empty one: node Name {}"
    )


def _no_choices(stop: Stop) -> MarkedError | None:
    if stop.found.text == ")" and stop.accepts == {"CHOICE"} and stop.previous == "(":
        return stop.error("these parentheses are empty", "write enum(first, second) or Vector(384)")
    return None


def _nullable_element(stop: Stop) -> MarkedError | None:
    if stop.found.text == "?" and "_LIST_CLOSE" in stop.accepts:
        hint = "elements may always be null; for a list that may itself be null put '?' after the ']'"
        return stop.error("a '?' can not stand inside '[ ]'", hint)
    return None


def _declaration_keyword(stop: Stop) -> MarkedError | None:
    if "NODE" not in stop.accepts or stop.at_end or stop.open_brackets:
        return None
    problem = f"{_shown(stop)} where a declaration was expected: 'node', 'edge' or 'interface'"
    return stop.error(problem, did_you_mean(stop.found.text, KEYWORDS))


def _unexpected(stop: Stop) -> MarkedError:
    words = [PLAIN_WORDS[name] for name in PLAIN_WORDS if name in stop.accepts]
    if "WORD" in stop.accepts:
        words.insert(0, _name_expected(stop))
    keywords = [word.strip("'") for word in words if word.strip("'").isalpha()]
    hint = did_you_mean(stop.found.text, keywords) if stop.found.text else None
    return stop.error(f"{_shown(stop)} where {_either(words)} was expected", hint)


def _shown(stop: Stop) -> str:
    if stop.at_end:
        return "the schema ends"
    text = stop.found.text
    return f"unexpected {text if len(text) <= 40 else text[:40] + '…'!r}"


def _either(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def _name_expected(stop: Stop) -> str:
    """Say what kind of name belongs after the previous piece."""
    by_previous = {
        "@": "the name of an annotation",
        "implements": "the name of an interface",
        "->": "the node type the edge leads to",
        "[": "the type of the elements",
        "=": "true, false",
    }
    if stop.previous in by_previous:
        return by_previous[stop.previous]
    if stop.previous in KEYWORDS:
        return f"the name of the {stop.previous}"
    if stop.previous == ":":
        return "a type" if stop.in_body else "the node type the edge starts from"
    return "a property" if stop.in_body else "a name"


EXPLANATIONS: tuple[Explanation, ...] = (
    _never_closed,
    _missing_bracket,
    _body_left_open,
    _closes_nothing,
    _missing_colon,
    _comma_in_body,
    _no_body,
    _no_choices,
    _nullable_element,
    _foreign_character,
    _declaration_keyword,
)
