"""Mutation text: what it says, what is refused, and the exact place where that is reported.

In the tables ``«`` stands before the offending place; it is taken out before the text is parsed.
"""

import pickle
from datetime import UTC, date, datetime
from typing import Any

import pytest

from omnigraph.errors import MixedMutationError, MutationError
from omnigraph.model.mutations import Comparison, TextTest
from omnigraph.model.schema import ListType, Scalar, ScalarType, VectorType
from omnigraph.rules.gq_text import parse_mutations, select
from omnigraph.rules.gq_tree import (
    AllOf,
    AnyOf,
    CompareText,
    Condition,
    DeleteText,
    InsertText,
    InText,
    IsNullText,
    ListText,
    Literal,
    Negated,
    Now,
    TextMatchText,
    UpdateText,
    UpsertText,
    Variable,
)

MARK = "«"


def refused(marked: str) -> MutationError:
    """Parse a text that must be refused where the mark stands."""
    before, mark, after = marked.partition(MARK)
    assert mark, "the text has no mark"
    with pytest.raises(MutationError) as caught:
        parse_mutations(before + after)
    error = caught.value
    line = before.count("\n") + 1
    assert (error.line, error.column) == (line, len(before) - (before.rfind("\n") + 1) + 1), str(error)
    return error


def in_query(body: str) -> str:
    return f"query q($p: I32) {{\n{body}\n}}"


def where(condition: str) -> str:
    return in_query(f"delete A where {condition}")


def condition_of(text: str) -> Condition:
    (statement,) = select(where(text)).statements
    assert isinstance(statement, DeleteText)
    return statement.where


def plain(value: Any) -> Any:
    """Return a value without its places."""
    match value:
        case Literal(value=inner):
            return inner
        case Variable(name=name):
            return f"${name}"
        case ListText(items=items):
            return [plain(item) for item in items]
        case _:
            return "now()"


def shape(condition: Condition) -> Any:
    """Return a condition as nested tuples, without places."""
    match condition:
        case AllOf(terms=terms):
            return ("and", *map(shape, terms))
        case AnyOf(terms=terms):
            return ("or", *map(shape, terms))
        case Negated(term=term):
            return ("not", shape(term))
        case CompareText(name=name, comparison=comparison, value=value):
            return (name.text, str(comparison), plain(value))
        case InText(name=name, among=among):
            return (name.text, "in", plain(among))
        case IsNullText(name=name):
            return (name.text, "null")
        case TextMatchText(name=name, test=test, value=value):
            return (name.text, str(test), plain(value))


def test_a_whole_file() -> None:
    first, second = parse_mutations(
        """
        // two of them
        query add($name: String, $tags: [String]?, $v: Vector(3)?) @description("adds \\"one\\"") @instruction("x") {
            insert Person { name: $name, tags: $tags v: $v made: now() }  /* commas are optional */
            upsert Person { name: "b" age: -1 }
            update Person set { age: 5, } where name = "a"
        }
        query drop() { delete Person where age < 3 delete Knows where from = "a" }
        """
    )
    assert (first.name.text, first.description, first.instruction) == ("add", 'adds "one"', "x")
    assert [str(parameter) for parameter in first.parameters] == [
        "$name: String",
        "$tags: [String]?",
        "$v: Vector(3)?",
    ]
    assert [type(s) for s in first.statements] == [InsertText, UpsertText, UpdateText]
    assert [type(s) for s in second.statements] == [DeleteText, DeleteText]
    insert = first.statements[0]
    assert isinstance(insert, InsertText)
    assert [(a.name.text, type(a.value)) for a in insert.assignments] == [
        ("name", Variable),
        ("tags", Variable),
        ("v", Variable),
        ("made", Now),
    ]


@pytest.mark.parametrize("scalar", Scalar)
def test_every_plain_type_can_be_a_parameters(scalar: Scalar) -> None:
    (parameter,) = select(f"query q($p: {scalar}?) {{ delete A where id = $p }}").parameters
    assert (parameter.type, parameter.nullable) == (ScalarType(scalar=scalar), True)


def test_lists_and_vectors_can_be_parameters() -> None:
    listed, vector = select("query q($p: [I32], $q: Vector(8)) { insert A {} }").parameters
    assert listed.type == ListType(element=Scalar.I32)
    assert vector.type == VectorType(dimension=8)


VALUES = {
    '"a\\n\\"\\\\"': 'a\n"\\',
    '"é // no comment"': "é // no comment",
    "-12": -12,
    "007": 7,
    "1.5": 1.5,
    "-1.5e3": -1500.0,
    "1e2": 100.0,
    "true": True,
    "false": False,
    "null": None,
    'date("2024-01-31")': date(2024, 1, 31),
    'datetime("2024-01-31T10:00:00Z")': datetime(2024, 1, 31, 10, tzinfo=UTC),
    'datetime("2024-01-31T10:00:00.25+02:00")': datetime(2024, 1, 31, 8, 0, 0, 250_000, tzinfo=UTC),
    'datetime("2024-01-31 10:00")': datetime(2024, 1, 31, 10, tzinfo=UTC),
    "[]": [],
    '[1, null, "x", $p, now()]': [1, None, "x", "$p", "now()"],
    "18446744073709551615": 2**64 - 1,
}


@pytest.mark.parametrize(("text", "value"), VALUES.items(), ids=VALUES)
def test_what_a_value_means(text: str, value: Any) -> None:
    (statement,) = select(in_query(f"insert A {{ a: {text} }}")).statements
    assert isinstance(statement, InsertText)
    found = plain(statement.assignments[0].value)
    assert (found, type(found)) == (value, type(value))


CONDITIONS: dict[str, Any] = {
    "a = 1 or b = 2 and not c = 3": ("or", ("a", "=", 1), ("and", ("b", "=", 2), ("not", ("c", "=", 3)))),
    "(a = 1 or b = 2) and c = 3": ("and", ("or", ("a", "=", 1), ("b", "=", 2)), ("c", "=", 3)),
    "a in [1, 2] and b not in $p": ("and", ("a", "in", [1, 2]), ("not", ("b", "in", "$p"))),
    "a is null or a is not null": ("or", ("a", "null"), ("not", ("a", "null"))),
    'a starts_with "x" and a contains $p': ("and", ("a", "starts_with", "x"), ("a", "contains", "$p")),
    "not not a != 1": ("not", ("not", ("a", "!=", 1))),
    "not = 1": ("not", "=", 1),
    "not not = 1": ("not", ("not", "=", 1)),
    "not in [1]": ("not", "in", [1]),
    "not in in [1]": ("not", ("in", "in", [1])),
    "not in = 1": ("not", ("in", "=", 1)),
    "not not in [1]": ("not", ("not", "in", [1])),
    "not is null": ("not", "null"),
    "not is not null": ("not", ("not", "null")),
    "not is is null": ("not", ("is", "null")),
    "is is not null": ("not", ("is", "null")),
    "not contains contains $p": ("not", ("contains", "contains", "$p")),
    "in not in [1] and and = 1 or or = 2": (
        "or",
        ("and", ("not", ("in", "in", [1])), ("and", "=", 1)),
        ("or", "=", 2),
    ),
    "where = 1 and query = 2 and set = 3 and null = 4 and now = now()": (
        "and",
        ("where", "=", 1),
        ("query", "=", 2),
        ("set", "=", 3),
        ("null", "=", 4),
        ("now", "=", "now()"),
    ),
}


@pytest.mark.parametrize(("text", "expected"), CONDITIONS.items(), ids=CONDITIONS)
def test_what_a_condition_means(text: str, expected: Any) -> None:
    assert shape(condition_of(text)) == expected


@pytest.mark.parametrize("comparison", Comparison)
def test_every_comparison_is_read(comparison: Comparison) -> None:
    assert shape(condition_of(f"a{comparison}$p")) == ("a", str(comparison), "$p")


def test_text_tests_are_words_of_the_language() -> None:
    assert [str(test) for test in TextTest] == ["starts_with", "contains"]


def test_any_keyword_can_be_a_property() -> None:
    words = ["set", "in", "where", "query", "not", "and", "or", "is", "null", "true", "now", "date", "insert", "delete"]
    (statement,) = select(in_query("insert A { " + " ".join(f"{word}: 1" for word in words) + " }")).statements
    assert isinstance(statement, InsertText)
    assert [a.name.text for a in statement.assignments] == words


SYNTAX = {
    "no query": ("«insert A {}", "S1", "'query' was expected", "query name"),
    "a misspelt query": ("«qurey q() {}", "S1", "'query' was expected", "did you mean 'query'?"),
    "no name": ("query «() {}", "S1", "the name of the query", None),
    "no parentheses": ("query q «{}", "S1", "'(' was expected", "query q()"),
    "an empty query": ("query q() «{ }", "S1", "is empty", "insert"),
    "a query left open": ("query q() «{ delete A where a = 1", "S1", "never closed", "'}'"),
    "a misspelt statement": (in_query("«inserts A {}"), "S1", "a statement was expected", "did you mean 'insert'?"),
    "a query that reads": (in_query("«match { $a: A } return { $a }"), "S2", "queries that read", "insert"),
    "no type": (in_query("insert «{ a: 1 }"), "S1", "the type to insert", None),
    "no set": (in_query("update A «{ a: 1 } where a = 1"), "S1", "'set' was expected", "update Type set"),
    "no where": (in_query("update A set { a: 1 }") + "\n", "S1", "'where' was expected", "which rows to update"),
    "delete everything": (in_query("delete A") + "\n", "S1", "'where' was expected", "id is not null"),
    "an update of nothing": (in_query("update «A set {} where a = 1"), "S1", "sets nothing", None),
    "an equals sign for a colon": (in_query("insert A { a «= 1 }"), "S1", "':' was expected", "name: value"),
    "no value": (in_query("insert A { a: «}"), "S1", "a value was expected", None),
    "a bare word": (in_query("insert A { a: «red }"), "S1", "a value was expected", '"red"'),
    "a shouted null": (in_query("insert A { a: «NULL }"), "S1", "a value was expected", "write null"),
    "a list in a list": (in_query("insert A { a: [«[1]] }"), "S1", "a value was expected", "a list can not hold"),
    "a list left open": (in_query("insert A { a: [1 «}"), "S1", "',' or ']'", None),
    "now with an argument": (in_query("insert A { a: now(«1) }"), "S1", "')' was expected", "takes nothing"),
    "a broken date": (in_query('insert A { a: date(«"2024-02-30") }'), "T3", "not a day", None),
    "a broken moment": (in_query('insert A { a: datetime(«"noon") }'), "T3", "not a moment", None),
    "too many decimals": (in_query('insert A { a: datetime(«"2024-01-01T00:00:00.1234567Z") }'), "T3", "6", None),
    "a moment before all": (in_query('insert A { a: datetime(«"0001-01-01T00:00:00+14:00") }'), "T3", "not a m", None),
    "a number too large": (in_query("insert A { a: «1e999 }"), "T3", "too large", None),
    "a number too small": (in_query("insert A { a: «1e-999 }"), "T3", "too small", None),
    "a number too long": (in_query(f"insert A {{ a: «{'9' * 401} }}"), "T3", "400 characters", None),
    "a number with letters": (in_query("insert A { a: «12ab }"), "S1", "'12ab' is not a number", None),
    "a plus sign": (in_query("insert A { a: «+1 }"), "S1", "unexpected '+'", "no sign"),
    "a lone minus": (in_query("insert A { a: «- 1 }"), "S1", "unexpected '-'", "before a digit"),
    "no property": (where("«= 1"), "S1", "a property was expected", None),
    "the value first": (where("«1 = a"), "S1", "a property was expected", "the property comes first"),
    "no operator": (where("a «and b = 1"), "S1", "an operator after 'a'", "starts_with"),
    "two equals signs": (where("a «== 1"), "S1", "unexpected '='", "one '='"),
    "angle brackets": (where("a «<> 1"), "S1", "unexpected '<'", "!="),
    "an ampersand": (where("a = 1 «&& b = 1"), "S1", "unexpected '&'", "'and'"),
    "in without a list": (where("a in «1"), "S1", "a list was expected", "in [1, 2]"),
    "the start of a number": (where("a starts_with «1"), "S1", "a string or a parameter", None),
    "is a value": (where("a is «1"), "S1", "'null' was expected", "'='"),
    "a parenthesis left open": (where("(a = 1 "), "S1", "'and', 'or' or ')'", None),
    "a semicolon": (where("a = 1«;"), "S1", "unexpected ';'", "remove it"),
    "single quotes": (where("a = «'b'"), "S1", "unexpected", "double quotes"),
    "an unclosed string": (where('a = «"b'), "S1", "not closed on its line", None),
    "an unclosed comment": (where("a = 1 «/* b"), "S1", "never closed", "*/"),
    "an unknown escape": (where(r'a = "b«\d"'), "S1", r"'\d' is not an escape", None),
    "a letter outside ASCII": (where("«é = 1"), "S1", "U+00E9", "ASCII"),
    "an emoji": (where("a = «\U0001f600"), "S1", "U+1F600", None),
    "a NUL": (where("a = «\0"), "S1", "U+0000", None),
    "half a surrogate pair": (where('a = "«\ud800"'), "S1", "U+D800", None),
    "a parameter without a type": ("query q($p«) {}", "S1", "':' was expected", "$p: Type"),
    "a parameter without a dollar": ("query q(«p: I32) {}", "S1", "a parameter was expected", "$name"),
    "an unknown type": ("query q($p: «Strng) {}", "P1", "unknown type", "did you mean 'String'?"),
    "an enum": ("query q($p: «enum(a)) {}", "P1", "can not be an enum", "String"),
    "a vector without a dimension": ("query q($p: «Vector) {}", "P1", "no dimension", None),
    "a vector of nothing": ("query q($p: Vector(«0)) {}", "P1", "dimension", None),
    "a list of blobs": ("query q($p: [«Blob]) {}", "P1", "can not hold Blob", None),
    "a nullable element": ("query q($p: [I32«?]) {}", "S1", "']' was expected", "after the ']'"),
    "a parameter declared twice": ("query q($p: I32, «$p: I32) {}", "P1", "declared twice", None),
    "a reserved parameter": ("query q(«$__now: I32) {}", "P1", "reserved", None),
    "an unknown annotation": ('query q() @«descripton("x") {}', "S1", "unknown annotation", "'description'"),
    "an annotation twice": ('query q() @description("x") @«description("x") {}', "S1", "occurs twice", None),
    "two queries of one name": (
        "query q() { insert A {} }\nquery «q() { insert A {} }",
        "Q3",
        "two queries 'q'",
        "line 1",
    ),
    "a long name": (f"query «{'q' * 129}() {{}}", "S3", "129 characters", None),
    "the earliest problem wins": ("query «{ ' \" 12ab", "S1", "the name of the query", None),
}


@pytest.mark.parametrize(("text", "rule", "problem", "hint"), SYNTAX.values(), ids=SYNTAX)
def test_broken_syntax_is_explained_where_it_breaks(text: str, rule: str, problem: str, hint: str | None) -> None:
    if MARK not in text:
        head, _, tail = text.rpartition("}")
        text = f"{head}{MARK}}}{tail}"
    error = refused(text)
    assert error.rule == rule
    assert f": {rule}: " in str(error)
    assert problem in error.problem
    assert (hint or "") in (error.hint or "")


@pytest.mark.parametrize("text", ["", " \n", "// nothing", "\ufeff"])
def test_a_text_may_hold_no_query_but_then_none_can_be_selected(text: str) -> None:
    assert parse_mutations(text) == ()
    with pytest.raises(MutationError, match="Q1: the text holds no query"):
        select(text)


TWO = "query first() { insert A {} }\nquery second() { insert A {} }"


def test_a_query_is_selected_by_its_name() -> None:
    assert select(TWO, "second").name.text == "second"
    assert select("query q() { insert A {} }").name.text == "q"


def test_one_of_several_queries_must_be_named() -> None:
    with pytest.raises(MutationError, match="Q1") as caught:
        select(TWO)
    assert caught.value.hint == "name one: first, second"


def test_an_unknown_query_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(MutationError, match="Q2: there is no query 'secnd'") as caught:
        select(TWO, "secnd")
    assert caught.value.hint == "did you mean 'second'?"


@pytest.mark.parametrize("other", ["insert A {}", "upsert A { id: 1 }", "update A set { a: 1 } where a = 2"])
def test_a_query_that_builds_up_and_deletes_is_refused(other: str) -> None:
    with pytest.raises(MixedMutationError) as caught:
        parse_mutations(f"query fine() {{ insert A {{}} }}\nquery both() {{ {other} delete A where a = 1 }}")
    text = str(caught.value)
    assert "inserts/updates and deletes" in text
    assert "split into separate mutations" in text
    assert "'both'" in text
    assert (caught.value.query, caught.value.line) == ("both", 2)


@pytest.mark.parametrize("depth", [65, 1_000, 100_000])
@pytest.mark.parametrize(("opening", "closing"), [("(", ")"), ("not ", ""), ("not (", ")")])
def test_deep_nesting_is_refused(depth: int, opening: str, closing: str) -> None:
    with pytest.raises(MutationError, match="S3") as caught:
        parse_mutations(where(opening * depth + "a = 1" + closing * depth))
    assert "64 deep" in caught.value.problem


def test_nesting_at_the_limit_is_read() -> None:
    assert shape(condition_of("(" * 64 + "a = 1" + ")" * 64)) == ("a", "=", 1)


def test_too_many_tests_are_refused_where_they_begin() -> None:
    assert shape(condition_of("a = 1 or " * 999 + "a = 1"))[0] == "or"
    error = refused(where("«" + "a = 1 or " * 1000 + "a = 1"))
    assert (error.rule, error.problem[:34]) == ("S3", "this condition asks 1,001 things, ")


@pytest.mark.parametrize(
    "text",
    ['query q() { insert A { a: "' + "x" * 1_048_000 + '" } }', "(" * 1_048_576, "$a" * 500_000, "/*" * 500_001],
    ids=["string", "parentheses", "variables", "comments"],
)
def test_a_megabyte_is_read_or_refused(text: str) -> None:
    try:
        assert len(parse_mutations(text)) == 1
    except MutationError as error:
        assert error.line == 1


def test_a_text_over_the_limit_is_refused() -> None:
    error = refused("//" + "x" * (1_048_576 - 2) + "«x")
    assert (error.rule, "1,048,577 bytes" in error.problem) == ("S3", True)


def test_places_count_lines_that_end_in_a_carriage_return() -> None:
    with pytest.raises(MutationError) as caught:
        parse_mutations("query q() {\r\n  insrt A {}\r\n}\r\n")
    assert (caught.value.line, caught.value.column, caught.value.source_line) == (2, 3, "  insrt A {}")


def test_the_error_survives_pickling_and_shows_a_caret() -> None:
    error = refused("query q() { «insrt A {} }")
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.rule, again.hint) == (str(error), "S1", "did you mean 'insert'?")
    assert str(error).splitlines()[1:3] == ["    query q() { insrt A {} }", "                ^"]
    assert error.to_dict()["code"] == "bad_request"
