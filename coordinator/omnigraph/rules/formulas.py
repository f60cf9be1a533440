"""Expressions over the columns of one row, as ``@backfill(expr="…")`` has them: text in, a tree with places out.

The grammar is all there is: what it does not know is refused at its place, and nothing of the text ever reaches an
engine. Operators and functions are both calls.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any, Final, TypeAlias

from lark import Lark, Token
from lark.exceptions import UnexpectedInput

from omnigraph.rules.schema_source import Mark, MarkedError
from omnigraph.rules.schema_text import Quoted

CHARS_MAX: Final = 2_000
DEPTH_MAX: Final = 40

GRAMMAR = r"""
?start: either
?either: both | either OR both -> call
?both: denied | both AND denied -> call
?denied: tested | NOT denied -> prefix
?tested: sum | sum COMPARED sum -> call | sum IS NULL -> is_null | sum IS NOT NULL -> is_not_null
?sum: product | sum ADDED product -> call | sum MINUS product -> call
?product: signed | product TIMES signed -> call
?signed: atom | MINUS signed -> prefix
?atom: WORD -> name | FUNCTION (either ("," either)*)? ")" -> function | NUMBER -> number | TEXT -> text
    | TRUTH -> truth | NULL -> null | "(" either ")"

FUNCTION.2: /[A-Za-z_][A-Za-z0-9_]*[ \t]*\(/
OR.4: /or(?![A-Za-z0-9_])/i
AND.4: /and(?![A-Za-z0-9_])/i
NOT.4: /not(?![A-Za-z0-9_])/i
IS.4: /is(?![A-Za-z0-9_])/i
NULL.4: /null(?![A-Za-z0-9_])/i
TRUTH.4: /(true|false)(?![A-Za-z0-9_])/i
WORD: /[A-Za-z_][A-Za-z0-9_]*/
NUMBER: /[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?(?![A-Za-z0-9_.])/
TEXT: /'([^']|'')*'/
COMPARED: "=" | "!=" | "<>" | "<=" | ">=" | "<" | ">"
ADDED: "||" | "+"
MINUS: "-"
TIMES: "*" | "/"
SPACE: /[ \t\r\n]+/
%ignore SPACE
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """The value a row has in a column."""

    name: str
    mark: Mark


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    """A value that is written out."""

    value: str | int | float | bool | None
    mark: Mark


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A function or an operator with what it is given."""

    name: str
    given: "tuple[Formula, ...]"
    mark: Mark


Formula: TypeAlias = Named | Constant | Call


def parse_formula(written: Quoted) -> Formula:
    """Return what a quoted expression says, or raise a MarkedError at the place inside it."""
    text = written.text
    if len(text) > CHARS_MAX:
        raise MarkedError(written.mark, f"this expression is longer than {CHARS_MAX:,} characters")
    if not text.strip():
        raise MarkedError(written.mark, "this expression is empty", "write expr=\"first || ' ' || last\"")
    try:
        tree = _parser().parse(text)
    except UnexpectedInput as problem:
        raise _unexpected(written, problem) from None
    return _Reader(written).read(tree, 1)


def columns_of(formula: Formula) -> tuple[str, ...]:
    """Return the columns an expression reads, each once."""
    match formula:
        case Named(name=name):
            return (name,)
        case Constant():
            return ()
        case Call(given=given):
            return tuple(dict.fromkeys(name for each in given for name in columns_of(each)))


@cache
def _parser() -> Any:
    return Lark(GRAMMAR, parser="lalr", lexer="contextual", propagate_positions=True, maybe_placeholders=False)


def _unexpected(written: Quoted, problem: UnexpectedInput) -> MarkedError:
    stopped: Any = problem
    token = getattr(stopped, "token", None)
    at: int = len(written.text) if token is not None and token.type == "$END" else stopped.pos_in_stream
    mark, rest = written.place(at), written.text[at:]
    if not rest.strip():
        return MarkedError(mark, "this expression ends too early", "something is to follow its last word")
    if rest.startswith("'"):
        return MarkedError(mark, "this text has no end", "end it with '; a ' inside a text is written ''")
    shown = rest.split()[0][:20]
    return MarkedError(mark, f"{shown!r} is not expected here", "an expression has columns, 'texts', numbers, calls")


class _Reader:
    """Makes our tree of the parser's."""

    def __init__(self, written: Quoted) -> None:
        self._written = written

    def read(self, tree: Any, depth: int) -> Formula:
        children = [each for each in tree.children if not isinstance(each, Token)]
        tokens = [each for each in tree.children if isinstance(each, Token)]
        mark = self._written.place(int(tokens[0].start_pos or 0))
        if depth > DEPTH_MAX:
            raise MarkedError(mark, f"this expression is nested deeper than {DEPTH_MAX}")
        first = str(tokens[0])
        match tree.data:
            case "name":
                return Named(name=first, mark=mark)
            case "number":
                return Constant(value=self._number(first, mark), mark=mark)
            case "text":
                return Constant(value=first[1:-1].replace("''", "'"), mark=mark)
            case "truth":
                return Constant(value=first.lower() == "true", mark=mark)
            case "null":
                return Constant(value=None, mark=mark)
            case _:
                return self._call(tree.data, first, children, mark, depth)

    def _call(self, rule: str, first: str, children: list[Any], mark: Mark, depth: int) -> Call:
        given = tuple(self.read(each, depth + 1) for each in children)
        return Call(name=_called(rule, first), given=given, mark=mark)

    @staticmethod
    def _number(text: str, mark: Mark) -> int | float:
        if not text.isdigit():
            found = float(text)
            if found == float("inf"):
                raise MarkedError(mark, f"{text[:40]} is too large for a number")
            return found
        if len(text) > 20 or int(text) >= 2**63:
            raise MarkedError(mark, f"{text[:40]} is too large for a whole number", "at most 9223372036854775807 fits")
        return int(text)


def _called(rule: str, word: str) -> str:
    if rule in ("is_null", "is_not_null"):
        return rule.replace("_", " ")
    if rule == "prefix" and word == "-":
        return "negative"
    name = word.rstrip("( \t").lower()
    return "!=" if name == "<>" else name
