"""The mutation language's grammar: text in, queries with their places out.

::

    file       = query*
    query      = "query" NAME "(" [ parameter ("," parameter)* ] ")" annotation* "{" statement+ "}"
    parameter  = "$" NAME ":" ( TYPE | "[" TYPE "]" | "Vector" "(" NUMBER ")" ) [ "?" ]
    annotation = ( "@description" | "@instruction" ) "(" STRING ")"
    statement  = "insert" NAME body
               | "upsert" NAME body
               | "update" NAME "set" body "where" condition
               | "delete" NAME "where" condition
    body       = "{" ( NAME ":" value [ "," ] )* "}"
    value      = single | list
    list       = "[" [ single ("," single)* ] "]"
    single     = STRING | NUMBER | "true" | "false" | "null" | "now" "(" ")" | "$" NAME
               | "date" "(" STRING ")" | "datetime" "(" STRING ")"
    condition  = all ( "or" all )*
    all        = term ( "and" term )*
    term       = "(" condition ")" | "not" term | test
    test       = NAME ( "=" | "!=" | "<" | "<=" | ">" | ">=" ) value
               | NAME [ "not" ] "in" ( list | "$" NAME )
               | NAME "is" [ "not" ] "null"
               | NAME ( "starts_with" | "contains" ) ( STRING | "$" NAME )

It is read by hand rather than from tables, because no word is reserved: two or three tokens of
lookahead tell whether ``not`` or ``in`` is an operator or a property.
"""

from collections.abc import Sequence

from omnigraph.errors import MixedMutationError
from omnigraph.model.schema import NAME_CHARS_MAX, did_you_mean
from omnigraph.rules.gq_conditions import read_condition, read_text, read_value
from omnigraph.rules.gq_cursor import Cursor
from omnigraph.rules.gq_messages import RefusedError, Rule, shown
from omnigraph.rules.gq_tokens import Kind, refuse_unreadable
from omnigraph.rules.gq_tree import (
    Assignment,
    DeleteText,
    InsertText,
    Parameter,
    QueryText,
    StatementText,
    UpdateText,
    UpsertText,
)
from omnigraph.rules.schema_checks import resolve_type
from omnigraph.rules.schema_source import Mark, MarkedError, Source
from omnigraph.rules.schema_text import TypeText, Word

QUERY_FORM = "a query is written: query name($p: String) { insert Type { … } }"
VERBS = ("insert", "upsert", "update", "delete")
READING = ("match", "return", "order", "limit")
ANNOTATIONS = ("description", "instruction")
RESERVED_PREFIX = "__"


def parse_mutations(text: str) -> tuple[QueryText, ...]:
    """Return the queries of a text in their order, or raise a MutationError or MixedMutationError."""
    source = Source.of(text)
    try:
        refuse_unreadable(source)
        cursor = Cursor(source)
        queries: list[QueryText] = []
        while not cursor.at_end:
            queries.append(_query(cursor))
        _refuse_repeated_names(queries)
    except RefusedError as problem:
        raise problem.shown_in(source) from None
    for query in queries:
        _refuse_mixed(query)
    return tuple(queries)


def select(text: str, name: str | None = None) -> QueryText:
    """Return the query of this name; without a name, the only one there is."""
    queries = {query.name.text: query for query in parse_mutations(text)}
    start, names = Mark(line=1, column=1), ", ".join(list(queries)[:10])
    if not queries:
        problem = RefusedError(start, Rule.WHICH_QUERY, "the text holds no query", QUERY_FORM)
    elif name is None and len(queries) == 1:
        return next(iter(queries.values()))
    elif name is None:
        mark = list(queries.values())[1].name.mark
        problem = RefusedError(
            mark, Rule.WHICH_QUERY, f"the text holds {len(queries):,} queries, and none was named", f"name one: {names}"
        )
    elif name in queries:
        return queries[name]
    else:
        hint = did_you_mean(name[:NAME_CHARS_MAX], queries) or f"there is {names}"
        problem = RefusedError(start, Rule.UNKNOWN_QUERY, f"there is no query {shown(name)}", hint)
    raise problem.shown_in(Source.of(text))


def _query(cursor: Cursor) -> QueryText:
    cursor.need_word("query", QUERY_FORM)
    name = cursor.need_name("the name of the query", QUERY_FORM)
    cursor.need_sign("(", f"write query {name.text}(), if it has no parameters")
    parameters = _parameters(cursor)
    remarks = _annotations(cursor)
    opened = cursor.mark(cursor.need_sign("{", QUERY_FORM))
    statements: list[StatementText] = []
    while not cursor.take_sign("}"):
        statements.append(_statement(cursor, opened))
    if not statements:
        hint = f"a query has at least one statement: {', '.join(VERBS)}"
        raise RefusedError(opened, Rule.SYNTAX, f"the query {name.text!r} is empty", hint)
    return QueryText(
        name=name,
        parameters=parameters,
        statements=tuple(statements),
        description=remarks.get("description"),
        instruction=remarks.get("instruction"),
        source=cursor.source,
    )


def _parameters(cursor: Cursor) -> tuple[Parameter, ...]:
    found: dict[str, Parameter] = {}
    if cursor.take_sign(")"):
        return ()
    while True:
        parameter = _parameter(cursor)
        name = parameter.name
        if name.text in found:
            raise RefusedError(name.mark, Rule.DECLARATION, f"the parameter '${name.text}' is declared twice")
        found[name.text] = parameter
        if cursor.take_sign(")"):
            return tuple(found.values())
        if not cursor.take_sign(","):
            raise cursor.unexpected("',' or ')'")


def _parameter(cursor: Cursor) -> Parameter:
    if cursor.peek().kind is not Kind.VARIABLE:
        raise cursor.unexpected("a parameter", "a parameter is written $name: Type, or $name: Type? if it may be null")
    name = cursor.take_name()
    if name.text.startswith(RESERVED_PREFIX):
        raise RefusedError(name.mark, Rule.DECLARATION, f"names that start with {RESERVED_PREFIX} are reserved")
    cursor.need_sign(":", f"write ${name.text}: Type")
    written = _type(cursor)
    if written.name.text == "enum":
        hint = "declare it as String; its value is checked against the property's values"
        raise RefusedError(written.name.mark, Rule.DECLARATION, "a parameter can not be an enum", hint)
    try:
        kind = resolve_type(written)
    except MarkedError as problem:
        raise RefusedError(problem.mark, Rule.DECLARATION, problem.problem, problem.hint) from None
    return Parameter(name=name, type=kind, nullable=written.nullable)


def _type(cursor: Cursor) -> TypeText:
    listed = cursor.take_sign("[")
    name = cursor.need_name("a type")
    choices: list[Word] = []
    if cursor.take_sign("("):
        while not cursor.take_sign(")"):
            if cursor.peek().kind not in (Kind.NUMBER, Kind.WORD):
                raise cursor.unexpected("a number or ')'", "write Vector(384)")
            token = cursor.take()
            choices.append(Word(text=token.text, mark=cursor.mark(token)))
            cursor.take_sign(",")
    if listed:
        hint = "elements may always be null; for a list that may itself be null put '?' after the ']'"
        cursor.need_sign("]", hint if cursor.is_sign("?") else None)
    return TypeText(name=name, choices=tuple(choices), listed=listed, nullable=cursor.take_sign("?"))


def _annotations(cursor: Cursor) -> dict[str, str]:
    found: dict[str, str] = {}
    while cursor.take_sign("@"):
        name = cursor.need_name("the name of an annotation")
        if name.text not in ANNOTATIONS:
            hint = did_you_mean(name.text, ANNOTATIONS) or "there are @description and @instruction"
            raise RefusedError(name.mark, Rule.SYNTAX, f"unknown annotation {shown('@' + name.text)}", hint)
        if name.text in found:
            raise RefusedError(name.mark, Rule.SYNTAX, f"'@{name.text}' occurs twice", "remove one of the two")
        cursor.need_sign("(", f'write @{name.text}("…")')
        found[name.text] = read_text(cursor)
        cursor.need_sign(")")
    return found


def _statement(cursor: Cursor, opened: Mark) -> StatementText:
    verb = cursor.peek()
    if verb.kind is Kind.END:
        raise RefusedError(opened, Rule.SYNTAX, "this '{' is never closed", "close it with '}'")
    if verb.kind is Kind.WORD and verb.text in READING:
        hint = f"a query here has the statements {', '.join(VERBS)}"
        problem = f"unexpected {verb.text!r}: queries that read (match … return) are not part of this language yet"
        raise RefusedError(cursor.mark(verb), Rule.READING, problem, hint)
    if verb.kind is not Kind.WORD or verb.text not in VERBS:
        near = did_you_mean(verb.text[:NAME_CHARS_MAX], VERBS) if verb.kind is Kind.WORD else None
        raise cursor.unexpected("a statement", near or f"the statements are {', '.join(VERBS)}")
    cursor.take()
    kind = cursor.need_name(f"the type to {verb.text}")
    match verb.text:
        case "insert":
            return InsertText(type=kind, assignments=_body(cursor))
        case "upsert":
            return UpsertText(type=kind, assignments=_body(cursor))
        case "update":
            cursor.need_word("set", "write update Type set { … } where …")
            assignments = _body(cursor)
            if not assignments:
                raise RefusedError(kind.mark, Rule.SYNTAX, "this update sets nothing", "name a property to set")
        case _:
            assignments = ()
    cursor.need_word("where", f"say which rows to {verb.text}; for all of them write: where id is not null")
    where = read_condition(cursor)
    if verb.text == "update":
        return UpdateText(type=kind, assignments=assignments, where=where)
    return DeleteText(type=kind, where=where)


def _body(cursor: Cursor) -> tuple[Assignment, ...]:
    cursor.need_sign("{")
    assignments: list[Assignment] = []
    while not cursor.take_sign("}"):
        name = cursor.need_name("a property or '}'")
        cursor.need_sign(":", "a property is set like this: name: value")
        assignments.append(Assignment(name=name, value=read_value(cursor)))
        cursor.take_sign(",")
    return tuple(assignments)


def _refuse_repeated_names(queries: Sequence[QueryText]) -> None:
    first: dict[str, Word] = {}
    for query in queries:
        earlier = first.setdefault(query.name.text, query.name)
        if earlier is not query.name:
            problem = f"there are two queries {query.name.text!r}"
            raise RefusedError(
                query.name.mark, Rule.REPEATED_QUERY, problem, f"the other is on line {earlier.mark.line}"
            )


def _refuse_mixed(query: QueryText) -> None:
    deleting = sum(isinstance(statement, DeleteText) for statement in query.statements)
    if 0 < deleting < len(query.statements):
        name = query.name
        raise MixedMutationError(
            f"line {name.mark.line}: the query {name.text!r} mixes inserts/updates and deletes; "
            f"split into separate mutations",
            query=name.text,
            line=name.mark.line,
            column=name.mark.column,
        )
