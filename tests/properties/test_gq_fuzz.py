"""Mutation text of every kind: what comes out is a plan whose predicates run, or an error at a place."""

import os
import random
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.properties.fuzz_kit import mutated

from omnigraph.errors import MixedMutationError, MutationError
from omnigraph.model.mutations import Comparison, Delete, Mutation, TextTest, Update
from omnigraph.model.schema import ListType, Scalar, ScalarType, VectorType
from omnigraph.rules.arrow_schema import arrow_schema
from omnigraph.rules.gq_bind import plan_mutation
from omnigraph.rules.gq_predicates import columns_of, to_arrow
from omnigraph.rules.gq_text import parse_mutations
from omnigraph.rules.gq_tree import (
    AllOf,
    AnyOf,
    Assignment,
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
    Parameter,
    QueryText,
    StatementText,
    TextMatchText,
    UpdateText,
    UpsertText,
    Value,
    Variable,
)
from omnigraph.rules.schema_compile import FreshIds, compile_schema
from omnigraph.rules.schema_source import Mark, Source
from omnigraph.rules.schema_text import Word

EFFORT = 10 if os.environ.get("OMNIGRAPH_DEEP") == "1" else 1
TEXTS = 300 * EFFORT
TOKEN_SOUPS = 1_500 * EFFORT
MUTANTS = 3_000 * EFFORT
SHRINKABLE_MUTANTS = 150 * EFFORT
TREES = 150 * EFFORT
PARAMETERS = 300 * EFFORT

quickly = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])

NOW = datetime(2026, 1, 2, tzinfo=UTC)
NUMBERS: Iterator[int] = iter(range(1_000))
CATALOG = compile_schema(
    """node Person { name: String @key  age: I32?  score: F64?  tags: [String]?  vec: Vector(2)?  raw: Blob?
        kind: enum(a, b)?  born: Date?  seen: DateTime?  ok: Bool?  in: I32?  not: I32? }
    edge Knows: Person -> Person { since: Date? }""",
    FreshIds(lambda: f"{next(NUMBERS):026}"),
)
GIVEN = {"s": "x", "i": 1, "l": [1, 2]}

SEEDS = (
    'query add($s: String, $i: I32?) @description("adds") { insert Person { name: $s, age: $i seen: now() ok: true } }',
    """query change($s: String, $l: [I32]) {
    upsert Person { name: "a" tags: ["x", null] vec: [1, -2.5e0] kind: "a" }  // one
    update Knows set { to: $s, since: date("2024-01-31") } where (from = $s or not to in ["a"]) and since is not null
    update Person set { age: null } where age in $l and not (in >= 3 or not not in [1]) or name starts_with "x"
}
""",
    """query drop($i: I32) { delete Person where not is null and age != $i or seen < datetime("2024-01-31T10:00:00Z")
    /* more */ delete Knows where id = "k\\n" or not (since > date("2024-01-01")) }
""",
)
TOKENS = (
    *("query", "insert", "upsert", "update", "delete", "set", "where", "and", "or", "not", "in", "is", "null", "match"),
    *("Person", "Knows", "name", "age", "score", "raw", "from", "to", "id", "vec", "tags", "kind", "starts_with"),
    *("$s", "$i", "$l", "$", "$__x", "now()", "date(", "datetime(", '"2024-01-31"', "true", "false", "String", "I32"),
    *("{", "}", "(", ")", "[", "]", ":", ",", "?", "=", "!=", "<", "<=", ">", ">=", "==", "<>", "-", "+", "@", "."),
    *('"x"', '"', "'", "\\", "0", "1", "-1", "1.5", "1e999", "9" * 30, "9" * 500, "//", "/*", "*/"),
    *("\n", "\r\n", "\t", " ", "é", "\ufeff", "\0", "\ud800", "not " * 70, "(" * 70),
)
TOKEN = re.compile(r'"[^"\n]*"|\$?\w+|\s+|.', re.DOTALL)
ROWS = {
    name: pa.Table.from_pylist(
        [{"id": "1", "src": "a", "dst": "b", "name": "x"}],
        schema=pa.schema([field for field in arrow_schema(CATALOG.type(name)) if field.name != "raw"]),
    )
    for name in ("Person", "Knows")
}


def outcome(text: str) -> Mutation | MutationError | MixedMutationError:
    """Plan the first query of a text; whatever is raised but our two errors fails the test."""
    try:
        queries = parse_mutations(text)
        name = queries[0].name.text if queries else None
        declared = [parameter.name.text for query in queries[:1] for parameter in query.parameters]
        given = {key: GIVEN[key] for key in declared if key in GIVEN}
        return plan_mutation(text, CATALOG, given, now=NOW, name=name)
    except (MutationError, MixedMutationError) as error:
        return error


def check_outcome(text: str) -> bool:
    """Accepted text gives predicates that run; refused text is refused at a place in it."""
    result = outcome(text)
    lines = text.split("\n")
    match result:
        case Mutation(statements=statements):
            for statement in statements:
                if isinstance(statement, Update | Delete):
                    rows = ROWS[statement.type.name]
                    assert columns_of(statement.where) <= set(rows.column_names)
                    assert rows.filter(to_arrow(statement.where)).num_rows <= 1
            return True
        case MutationError():
            assert result.source_line == lines[result.line - 1].removesuffix("\r")
            assert 1 <= result.column <= len(lines[result.line - 1]) + 1
            assert f": {result.rule}: " in str(result)
        case MixedMutationError():
            assert 1 <= result.line <= len(lines)
    return False


@settings(quickly, max_examples=TEXTS)
@given(st.text())
def test_any_text_is_a_plan_or_an_error_at_a_place(text: str) -> None:
    check_outcome(text)


@settings(quickly, max_examples=SHRINKABLE_MUTANTS)
@given(st.lists(st.sampled_from(TOKENS), max_size=40), st.sampled_from(["", " "]), st.sampled_from(SEEDS))
def test_any_tail_of_tokens_is_a_plan_or_an_error_at_a_place(tokens: list[str], glue: str, seed: str) -> None:
    check_outcome(seed[: len(seed) * 2 // 3] + glue.join(tokens))


def test_many_token_soups_are_plans_or_errors_at_places() -> None:
    dice = random.Random(20_261_105)
    heads = ["query q($i: I32) {", "query q() { delete Person where ", "query q() { insert Person {", ""]
    for _ in range(TOKEN_SOUPS):
        pieces = dice.choices(TOKENS, k=dice.randint(1, 30))
        check_outcome(dice.choice(heads) + dice.choice(["", " "]).join(pieces))


def test_many_mutated_texts_are_plans_or_errors_at_places() -> None:
    dice = random.Random(20_261_106)
    accepted = 0
    for _ in range(MUTANTS):
        text = dice.choice(SEEDS)
        for _ in range(dice.choice([1, 1, 1, 2, 3])):
            text = mutated(text, dice, TOKEN, TOKENS) or "query"
        accepted += check_outcome(text)
    assert MUTANTS // 50 < accepted < MUTANTS * 3 // 4, "the mutations are too wild, or too tame, to be worth anything"


@pytest.mark.parametrize("seed", SEEDS)
def test_every_beginning_of_a_text_is_a_plan_or_an_error_at_a_place(seed: str) -> None:
    assert check_outcome(seed)
    for end in range(len(seed)):
        check_outcome(seed[:end])


@settings(quickly, max_examples=SHRINKABLE_MUTANTS)
@given(st.sampled_from(SEEDS), st.randoms(use_true_random=False))
def test_a_mutated_text_is_a_plan_or_an_error_at_a_place(seed: str, dice: random.Random) -> None:
    check_outcome(mutated(seed, dice, TOKEN, TOKENS))


ANY_TEXT = st.text(st.characters() | st.sampled_from("\0\ud800\udfff"), max_size=10)
ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(2**31 - 2, 2**64 + 2)
    | st.sampled_from([10**400, -(10**4_000)])
    | st.floats()
    | st.complex_numbers()
    | ANY_TEXT
    | st.binary(max_size=5)
    | st.dates()
    | st.datetimes(timezones=st.none() | st.timezones())
    | st.decimals()
    | st.fractions(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(ANY_TEXT, inner, max_size=2),
    max_leaves=6,
)
TYPES = [*(str(scalar) for scalar in Scalar), *(f"[{scalar}]" for scalar in Scalar if scalar is not Scalar.BLOB)]


@settings(quickly, max_examples=PARAMETERS)
@given(st.sampled_from([*TYPES, "Vector(2)"]), st.sampled_from(["", "?"]), ANYTHING, st.booleans())
def test_any_parameter_is_taken_or_refused(kind: str, mark: str, value: Any, from_json: bool) -> None:
    for column in ("name", "age", "score", "tags", "vec", "raw", "kind", "born", "seen", "ok"):
        fixed = "" if column == "name" else 'name: "a" '
        text = f"query q($p: {kind}{mark}) {{ insert Person {{ {fixed}{column}: $p }} }}"
        try:
            plan_mutation(text, CATALOG, {"p": value}, now=NOW, from_json=from_json)
        except MutationError as error:
            assert error.rule in ("P2", "P4", "T7", "T12")
            str(error).encode()


# -- what is printed is read back -----------------------------------------------------------------------

NOWHERE = Mark(line=1, column=1)
SOURCE = Source.of("")
WORDS = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,4}", fullmatch=True) | st.sampled_from(
    [
        "not",
        "in",
        "is",
        "null",
        "and",
        "or",
        "where",
        "set",
        "query",
        "now",
        "date",
        "contains",
        "starts_with",
        "insert",
    ]
)
NAMES = st.builds(Word, text=WORDS, mark=st.just(NOWHERE))
VARIABLES = st.builds(Variable, name=WORDS, mark=st.just(NOWHERE))
STRINGS = st.text(st.characters(exclude_categories=["Cc", "Cs"]) | st.sampled_from('"\\\n\r\t'), max_size=8)
LITERALS = st.builds(
    Literal,
    value=st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(allow_nan=False, allow_infinity=False),
        STRINGS,
        st.dates(),
        st.datetimes(timezones=st.just(UTC)).map(lambda moment: moment.replace(fold=0)),
    ),
    mark=st.just(NOWHERE),
)
TEXTS_ASKED = VARIABLES | st.builds(Literal, value=STRINGS, mark=st.just(NOWHERE))
SINGLES = LITERALS | VARIABLES | st.builds(Now, mark=st.just(NOWHERE))
LISTS = st.builds(ListText, items=st.lists(SINGLES, max_size=3).map(tuple), mark=st.just(NOWHERE))
VALUES = SINGLES | LISTS
TESTS: st.SearchStrategy[Condition] = st.one_of(
    st.builds(CompareText, name=NAMES, comparison=st.sampled_from(Comparison), value=VALUES),
    st.builds(InText, name=NAMES, among=LISTS | VARIABLES),
    st.builds(IsNullText, name=NAMES),
    st.builds(TextMatchText, name=NAMES, test=st.sampled_from(TextTest), value=TEXTS_ASKED),
)
CONDITIONS: st.SearchStrategy[Condition] = st.recursive(
    TESTS,
    lambda inner: st.one_of(
        st.builds(AllOf, terms=st.lists(inner, min_size=2, max_size=3).map(tuple)),
        st.builds(AnyOf, terms=st.lists(inner, min_size=2, max_size=3).map(tuple)),
        st.builds(Negated, term=inner),
    ),
    max_leaves=8,
)
BODIES = st.lists(st.builds(Assignment, name=NAMES, value=VALUES), min_size=1, max_size=3).map(tuple)
BUILDING: st.SearchStrategy[StatementText] = st.one_of(
    st.builds(InsertText, type=NAMES, assignments=BODIES),
    st.builds(UpsertText, type=NAMES, assignments=BODIES),
    st.builds(UpdateText, type=NAMES, assignments=BODIES, where=CONDITIONS),
)
DELETING: st.SearchStrategy[StatementText] = st.builds(DeleteText, type=NAMES, where=CONDITIONS)
PARAMETER_TYPES = st.one_of(
    st.builds(ScalarType, scalar=st.sampled_from(Scalar)),
    st.builds(ListType, element=st.sampled_from([scalar for scalar in Scalar if scalar is not Scalar.BLOB])),
    st.builds(VectorType, dimension=st.integers(1, 2**31 - 1)),
)
DECLARED = st.builds(
    Parameter, name=NAMES.filter(lambda n: not n.text.startswith("__")), type=PARAMETER_TYPES, nullable=st.booleans()
)
QUERIES = st.builds(
    QueryText,
    name=NAMES,
    parameters=st.lists(DECLARED, max_size=3, unique_by=lambda p: p.name.text).map(tuple),
    statements=(st.lists(BUILDING, min_size=1, max_size=2) | st.lists(DELETING, min_size=1, max_size=2)).map(tuple),
    description=st.none() | STRINGS,
    instruction=st.none() | STRINGS,
    source=st.just(SOURCE),
)


def quoted(text: str) -> str:
    for char, escape in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t")):
        text = text.replace(char, escape)
    return f'"{text}"'


def printed_value(value: Value) -> str:
    match value:
        case ListText(items=items):
            return f"[{', '.join(map(printed_value, items))}]"
        case Variable(name=name):
            return f"${name}"
        case Now():
            return "now()"
        case Literal(value=str(text)):
            return quoted(text)
        case Literal(value=datetime() as moment):
            return f"datetime({quoted(moment.isoformat())})"
        case Literal(value=date() as day):
            return f"date({quoted(day.isoformat())})"
        case Literal(value=None):
            return "null"
        case Literal(value=bool(truth)):
            return str(truth).lower()
        case Literal(value=number):
            return repr(number)


def printed_condition(condition: Condition) -> str:
    match condition:
        case AllOf(terms=terms):
            return " and ".join(f"({printed_condition(term)})" for term in terms)
        case AnyOf(terms=terms):
            return " or ".join(f"({printed_condition(term)})" for term in terms)
        case Negated(term=InText(name=name, among=among)):
            return f"{name.text} not in {printed_value(among)}"
        case Negated(term=IsNullText(name=name)):
            return f"{name.text} is not null"
        case Negated(term=term):
            return f"not ({printed_condition(term)})"
        case CompareText(name=name, comparison=comparison, value=value):
            return f"{name.text}{comparison}{printed_value(value)}"
        case InText(name=name, among=among):
            return f"{name.text} in {printed_value(among)}"
        case IsNullText(name=name):
            return f"{name.text} is null"
        case TextMatchText(name=name, test=test, value=value):
            return f"{name.text} {test} {printed_value(value)}"


def printed_statement(statement: StatementText, comma: str) -> str:
    if isinstance(statement, DeleteText):
        return f"delete {statement.type.text} where {printed_condition(statement.where)}"
    body = comma.join(f"{each.name.text}: {printed_value(each.value)}" for each in statement.assignments)
    match statement:
        case InsertText(type=kind):
            return f"insert {kind.text} {{{body}}}"
        case UpsertText(type=kind):
            return f"upsert {kind.text} {{{body}}}"
        case UpdateText(type=kind, where=where):
            return f"update {kind.text} set {{{body}}} where {printed_condition(where)}"


def printed(query: QueryText, comma: str) -> str:
    remarks = "".join(
        f" @{name}({quoted(text)})"
        for name, text in (("description", query.description), ("instruction", query.instruction))
        if text is not None
    )
    body = "\n".join(printed_statement(statement, comma) for statement in query.statements)
    return f"query {query.name.text}({', '.join(map(str, query.parameters))}){remarks} {{\n{body}\n}}\n"


def without_places(query: QueryText) -> str:
    """Return everything a query says; its text tells 1 from 1.0 and from true, which Python calls equal."""
    return re.sub(r"Mark\(line=\d+, column=\d+\)", "", repr(replace(query, source=SOURCE)))


@settings(quickly, max_examples=TREES)
@given(st.lists(QUERIES, max_size=2, unique_by=lambda q: q.name.text), st.sampled_from([", ", " ", " ,\n"]))
def test_what_is_printed_is_read_back(queries: list[QueryText], comma: str) -> None:
    text = "".join(printed(query, comma) for query in queries)
    assert [without_places(query) for query in parse_mutations(text)] == [without_places(query) for query in queries]
