"""Values and conditions of the mutation language: tokens in, trees out.

A word is a keyword only where it is needed as one, so that a property may be called ``in`` or ``not``.
``not`` is the hard case: it is a property if what follows it reads as an operator.
"""

from omnigraph.model.mutations import Comparison, TextTest
from omnigraph.rules.gq_cursor import Cursor
from omnigraph.rules.gq_messages import RefusedError, Rule
from omnigraph.rules.gq_tokens import Kind, Token, unescaped
from omnigraph.rules.gq_tree import (
    AllOf,
    AnyOf,
    CompareText,
    Condition,
    InText,
    IsNullText,
    ListText,
    Literal,
    Negated,
    Now,
    Single,
    TextMatchText,
    Value,
    Variable,
)
from omnigraph.rules.gq_values import date_of, datetime_of, number_of
from omnigraph.rules.schema_text import Word
from omnigraph.rules.values import MisfitError

NESTING_MAX = 64
# Arrow folds a chain of 'or' into an expression as deep as it is long, and walks it by recursion.
TESTS_MAX = 1_000

COMPARISONS = frozenset(Comparison)
TEXT_TESTS = frozenset(TextTest)
CONSTANTS: dict[str, bool | None] = {"true": True, "false": False, "null": None}
MOMENTS = {"date": date_of, "datetime": datetime_of}

OPERATORS = "'=', '!=', '<', '<=', '>', '>=', 'in', 'not in', 'is', 'starts_with' or 'contains'"
VALUE = "a value"


def read_value(cursor: Cursor) -> Value:
    """Read a literal, a parameter, ``now()`` or a list of these."""
    return read_list(cursor) if cursor.is_sign("[") else _single(cursor)


def read_list(cursor: Cursor) -> ListText:
    """Read a list, whose bracket comes next."""
    mark = cursor.mark(cursor.take())
    items: list[Single] = []
    if not cursor.take_sign("]"):
        items.append(_single(cursor))
        while cursor.take_sign(","):
            items.append(_single(cursor))
        if not cursor.take_sign("]"):
            raise cursor.unexpected("',' or ']'")
    return ListText(items=tuple(items), mark=mark)


def read_text(cursor: Cursor) -> str:
    """Read a string."""
    if cursor.peek().kind is not Kind.STRING:
        raise cursor.unexpected("a string in double quotes")
    return unescaped(cursor.tokens, cursor.take())


def read_condition(cursor: Cursor) -> Condition:
    """Read what stands after ``where``: ``not`` binds tighter than ``and``, and ``and`` tighter than ``or``."""
    mark = cursor.mark()
    condition = _any_of(cursor, 0)
    tests = _tests(condition)
    if tests > TESTS_MAX:
        problem = f"this condition asks {tests:,} things, and at most {TESTS_MAX:,} are allowed"
        raise RefusedError(mark, Rule.LIMIT, problem, "use 'in' with a list, which may be longer")
    return condition


def _tests(condition: Condition) -> int:
    match condition:
        case AllOf(terms=terms) | AnyOf(terms=terms):
            return sum([_tests(term) for term in terms])
        case Negated(term=term):
            return _tests(term)
        case _:
            return 1


def _any_of(cursor: Cursor, depth: int) -> Condition:
    terms = [_all_of(cursor, depth)]
    while cursor.take_word("or"):
        terms.append(_all_of(cursor, depth))
    return AnyOf(terms=tuple(terms)) if len(terms) > 1 else terms[0]


def _all_of(cursor: Cursor, depth: int) -> Condition:
    terms = [_term(cursor, depth)]
    while cursor.take_word("and"):
        terms.append(_term(cursor, depth))
    return AllOf(terms=tuple(terms)) if len(terms) > 1 else terms[0]


def _term(cursor: Cursor, depth: int) -> Condition:
    if depth > NESTING_MAX:
        problem = f"this condition is nested more than {NESTING_MAX} deep"
        raise RefusedError(cursor.mark(), Rule.LIMIT, problem, "remove parentheses, or use 'in' instead of many 'or'")
    if cursor.take_sign("("):
        inner = _any_of(cursor, depth + 1)
        if not cursor.take_sign(")"):
            raise cursor.unexpected("'and', 'or' or ')'")
        return inner
    if cursor.is_word("not") and not _operator_follows(cursor, 1):
        cursor.take()
        return Negated(term=_term(cursor, depth + 1))
    return _test(cursor)


def _operator_follows(cursor: Cursor, ahead: int) -> bool:
    """Tell whether an operator and the beginning of its operand come next."""
    token, after = cursor.peek(ahead), cursor.peek(ahead + 1)
    if token.kind is Kind.SIGN:
        return token.text in COMPARISONS
    if token.kind is not Kind.WORD:
        return False
    match token.text:
        case "in":
            return after.text == "[" or after.kind is Kind.VARIABLE
        case "not":
            return cursor.is_word("in", ahead + 1) and _operator_follows(cursor, ahead + 1)
        case "is":
            return after.text == "null" or (after.text == "not" and cursor.is_word("null", ahead + 2))
        case "starts_with" | "contains":
            return after.kind in (Kind.STRING, Kind.VARIABLE)
        case _:
            return False


def _test(cursor: Cursor) -> Condition:
    name = cursor.need_name("a property", _turn_round(cursor.peek()))
    token = cursor.peek()
    if token.kind is Kind.SIGN and token.text in COMPARISONS:
        cursor.take()
        return CompareText(name=name, comparison=Comparison(token.text), value=read_value(cursor))
    if token.kind is not Kind.WORD:
        raise cursor.unexpected(f"an operator after {name.text!r}", f"the operators are {OPERATORS}")
    if token.text in TEXT_TESTS:
        cursor.take()
        return TextMatchText(name=name, test=TextTest(token.text), value=_text_or_variable(cursor))
    match token.text:
        case "in":
            return _membership(cursor, name)
        case "not" if cursor.is_word("in", 1):
            cursor.take()
            return Negated(term=_membership(cursor, name))
        case "is":
            return _nullness(cursor, name)
        case _:
            raise cursor.unexpected(f"an operator after {name.text!r}", f"the operators are {OPERATORS}")


def _turn_round(found: Token) -> str | None:
    is_value = found.kind in (Kind.STRING, Kind.NUMBER, Kind.VARIABLE)
    return "the property comes first, then the operator, then the value" if is_value else None


def _membership(cursor: Cursor, name: Word) -> InText:
    cursor.take()
    if not cursor.is_sign("[") and cursor.peek().kind is not Kind.VARIABLE:
        raise cursor.unexpected("a list", "write in [1, 2], or in $parameter")
    return InText(name=name, among=read_list(cursor) if cursor.is_sign("[") else _variable(cursor))


def _nullness(cursor: Cursor, name: Word) -> Condition:
    cursor.take()
    negated = cursor.take_word("not")
    cursor.need_word("null", "'is' asks for null only; other values are compared with '='")
    return Negated(term=IsNullText(name=name)) if negated else IsNullText(name=name)


def _single(cursor: Cursor) -> Single:
    token = cursor.peek()
    mark = cursor.mark(token)
    match token.kind:
        case Kind.VARIABLE:
            return _variable(cursor)
        case Kind.STRING:
            return Literal(value=read_text(cursor), mark=mark)
        case Kind.NUMBER:
            cursor.take()
            try:
                return Literal(value=number_of(token.text), mark=mark)
            except MisfitError as problem:
                raise RefusedError(mark, Rule.LITERAL, str(problem)) from None
        case Kind.WORD:
            return _named_value(cursor, token)
        case _:
            raise cursor.unexpected(VALUE, "a list can not hold a list" if token.text == "[" else None)


def _text_or_variable(cursor: Cursor) -> Literal | Variable:
    if cursor.peek().kind is Kind.VARIABLE:
        return _variable(cursor)
    if cursor.peek().kind is not Kind.STRING:
        raise cursor.unexpected("a string or a parameter")
    mark = cursor.mark()
    return Literal(value=read_text(cursor), mark=mark)


def _variable(cursor: Cursor) -> Variable:
    name = cursor.take_name()
    return Variable(name=name.text, mark=name.mark)


def _named_value(cursor: Cursor, token: Token) -> Single:
    mark = cursor.mark(token)
    if token.text in CONSTANTS:
        cursor.take()
        return Literal(value=CONSTANTS[token.text], mark=mark)
    if token.text == "now":
        cursor.take()
        cursor.need_sign("(", "write now()")
        cursor.need_sign(")", "now() takes nothing")
        return Now(mark=mark)
    if token.text not in MOMENTS:
        raise cursor.unexpected(VALUE, _value_hint(token.text))
    cursor.take()
    cursor.need_sign("(", f'write {token.text}("…")')
    place = cursor.mark()
    text = read_text(cursor)
    cursor.need_sign(")")
    try:
        return Literal(value=MOMENTS[token.text](text), mark=mark)
    except MisfitError as problem:
        raise RefusedError(place, Rule.LITERAL, str(problem)) from None


def _value_hint(word: str) -> str:
    if word.lower() in CONSTANTS:
        return f"write {word.lower()}"
    short = word if len(word) <= 40 else "text"
    return f'strings are written in double quotes: "{short}"; parameters begin with $: ${short}'
