"""The schema language's grammar: text in, declarations with their places out.

The grammar is kept loose on purpose. It knows the shape of a declaration, not the names of types
and annotations, so that a misspelt one is reported by name instead of as an unexpected token.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias

from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedInput

from omnigraph.rules.schema_messages import explain
from omnigraph.rules.schema_source import Mark, MarkedError, Source, without_byte_order_mark

# Header and body attributes are two rules, and the list of arguments leaves its parentheses to them:
# were either shared, the lexer could not tell the end of an edge's header from a property named `node`.
GRAMMAR = r"""
start: (interface | node | edge)*
interface: INTERFACE WORD attribute* body
node: NODE WORD attribute* (IMPLEMENTS supertypes attribute*)? body
edge: EDGE WORD _COLON WORD _ARROW WORD attribute* body?
supertypes: WORD (_COMMA WORD)*
body: _OPEN (property | member_attribute)* _CLOSE
property: WORD _COLON (list_type | plain_type) QUESTION?
list_type: _LIST_OPEN plain_type _LIST_CLOSE
plain_type: WORD (_PAREN_OPEN CHOICE (_COMMA CHOICE)* PAREN_CLOSE)?
attribute: AT WORD (_PAREN_OPEN arguments? PAREN_CLOSE)?
member_attribute: AT WORD (_PAREN_OPEN arguments? PAREN_CLOSE)?
arguments: argument (_COMMA argument)*
argument: STRING | NUMBER | WORD | named | bounds
named: WORD _EQUAL (STRING | NUMBER | WORD)
bounds: NUMBER DOTS NUMBER? | DOTS NUMBER

INTERFACE: /interface(?![A-Za-z0-9_])/
NODE: /node(?![A-Za-z0-9_])/
EDGE: /edge(?![A-Za-z0-9_])/
IMPLEMENTS: /implements(?![A-Za-z0-9_])/
WORD: /[A-Za-z_][A-Za-z0-9_]*/
CHOICE: /[A-Za-z0-9_-]+/
NUMBER: /-?[0-9]+(\.[0-9]+)?(?![A-Za-z0-9_])/
STRING: /"([^"\\\n]|\\[^\n])*"/
DOTS: ".."
QUESTION: "?"
AT: "@"
PAREN_CLOSE: ")"
_PAREN_OPEN: "("
_LIST_OPEN: "["
_LIST_CLOSE: "]"
_OPEN: "{"
_CLOSE: "}"
_COLON: ":"
_COMMA: ","
_EQUAL: "="
_ARROW: "->"

SPACE: /[ \t\r\n]+/
LINE_COMMENT: /\/\/[^\n]*/
BLOCK_COMMENT: /\/\*[\s\S]*?\*\//
%ignore SPACE
%ignore LINE_COMMENT
%ignore BLOCK_COMMENT
"""

ESCAPES = {'"': '"', "\\": "\\", "n": "\n", "r": "\r", "t": "\t"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """A name, a column or an enum value, as written."""

    text: str
    mark: Mark


@dataclass(frozen=True, slots=True, kw_only=True)
class Quoted:
    """A string; ``text`` is what it means, without quotes and escapes, and ``raw`` how it is written."""

    text: str
    mark: Mark
    raw: str = ""

    def place(self, at: int) -> Mark:
        """Return where a character of its text stands; a string can not contain a line end."""
        column = 1
        for _ in range(at):
            column += 2 if self.raw[column : column + 1] == "\\" else 1
        return Mark(line=self.mark.line, column=self.mark.column + column)


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """Digits, perhaps with a sign and a fraction."""

    text: str
    mark: Mark


Literal: TypeAlias = Word | Quoted | Number


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """``key=value`` among arguments."""

    name: Word
    value: Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """``low..high``; None is an open end."""

    low: Number | None
    high: Number | None
    mark: Mark


Argument: TypeAlias = Literal | Named | Bounds


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribute:
    """``@name`` or, when ``called``, ``@name(…)``; its place is that of the ``@``."""

    name: Word
    arguments: tuple[Argument, ...]
    called: bool
    mark: Mark


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeText:
    """A property's type as written: ``[name(choices)]?``."""

    name: Word
    choices: tuple[Word, ...]
    listed: bool
    nullable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PropertyText:
    """``name: type``; its annotations follow as members of the body."""

    name: Word
    type: TypeText


Member: TypeAlias = PropertyText | Attribute


@dataclass(frozen=True, slots=True, kw_only=True)
class InterfaceText:
    """An interface as written."""

    name: Word
    attributes: tuple[Attribute, ...]
    members: tuple[Member, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeText:
    """A node type as written."""

    name: Word
    attributes: tuple[Attribute, ...]
    implements: tuple[Word, ...]
    members: tuple[Member, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeText:
    """An edge type as written."""

    name: Word
    source: Word
    target: Word
    attributes: tuple[Attribute, ...]
    members: tuple[Member, ...]


Declaration: TypeAlias = InterfaceText | NodeText | EdgeText


def parse_schema(source: Source) -> tuple[Declaration, ...]:
    """Return the declarations of a schema in their order, or raise a MarkedError."""
    text = without_byte_order_mark(source.text)
    try:
        tree = _parser().parse(text)
    except UnexpectedInput as problem:
        # Lark keeps the state it stopped in, which knows what could have come next.
        stopped: Any = problem
        token = getattr(stopped, "token", None)
        offset = None if token is not None and token.type == "$END" else stopped.pos_in_stream
        raise explain(source, offset, frozenset(stopped.interactive_parser.accepts())) from None
    return tuple(_declaration(child) for child in tree.children)


@cache
def _parser() -> Any:
    return Lark(GRAMMAR, parser="lalr", lexer="contextual", propagate_positions=True, maybe_placeholders=False)


def _declaration(tree: Any) -> Declaration:
    words = [_word(child) for child in tree.children if isinstance(child, Token) and child.type == "WORD"]
    attributes = tuple(_attribute(child) for child in _subtrees(tree, "attribute"))
    members = tuple(_member(child) for body in _subtrees(tree, "body") for child in body.children)
    match tree.data:
        case "interface":
            return InterfaceText(name=words[0], attributes=attributes, members=members)
        case "node":
            implements = tuple(_word(child) for each in _subtrees(tree, "supertypes") for child in each.children)
            return NodeText(name=words[0], attributes=attributes, implements=implements, members=members)
        case _:
            name, origin, target = words
            return EdgeText(name=name, source=origin, target=target, attributes=attributes, members=members)


def _subtrees(tree: Any, rule: str) -> list[Any]:
    return [child for child in tree.children if isinstance(child, Tree) and child.data == rule]


def _word(token: Any) -> Word:
    return Word(text=str(token), mark=_mark(token))


def _mark(token: Any) -> Mark:
    return Mark(line=token.line, column=token.column)


def _member(tree: Any) -> Member:
    if tree.data == "member_attribute":
        return _attribute(tree)
    name, written = tree.children[:2]
    listed = written.data == "list_type"
    plain = written.children[0] if listed else written
    word, *choices = plain.children
    kind = TypeText(
        name=_word(word),
        choices=tuple(_word(choice) for choice in choices if choice.type == "CHOICE"),
        listed=listed,
        nullable=len(tree.children) > 2,
    )
    return PropertyText(name=_word(name), type=kind)


def _attribute(tree: Any) -> Attribute:
    at, name = tree.children[:2]
    arguments = tuple(_argument(child.children[0]) for each in _subtrees(tree, "arguments") for child in each.children)
    return Attribute(name=_word(name), arguments=arguments, called=len(tree.children) > 2, mark=_mark(at))


def _argument(node: Any) -> Argument:
    if isinstance(node, Token):
        return _literal(node)
    if node.data == "named":
        name, value = node.children
        return Named(name=_word(name), value=_literal(value))
    dots = next(index for index, child in enumerate(node.children) if child.type == "DOTS")
    low, high = ([_number(child) for child in part] for part in (node.children[:dots], node.children[dots + 1 :]))
    return Bounds(low=low[0] if low else None, high=high[0] if high else None, mark=_mark(node.children[0]))


def _literal(token: Any) -> Literal:
    match token.type:
        case "STRING":
            return Quoted(text=_unescaped(str(token), _mark(token)), mark=_mark(token), raw=str(token))
        case "NUMBER":
            return _number(token)
        case _:
            return _word(token)


def _number(token: Any) -> Number:
    return Number(text=str(token), mark=_mark(token))


def _unescaped(quoted: str, mark: Mark) -> str:
    """Return what a quoted string means; it can not contain a line end, so columns can be counted."""
    pieces: list[str] = []
    offset, end = 1, len(quoted) - 1
    while offset < end:
        if quoted[offset] != "\\":
            pieces.append(quoted[offset])
            offset += 1
            continue
        escaped = quoted[offset + 1]
        if escaped not in ESCAPES:
            place = Mark(line=mark.line, column=mark.column + offset)
            hint = r"only \" \\ \n \r and \t are known; write \\ for a backslash"
            raise MarkedError(place, f"'\\{escaped}' is not an escape in a string", hint)
        pieces.append(ESCAPES[escaped])
        offset += 2
    return "".join(pieces)
