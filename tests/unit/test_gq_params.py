"""Parameters of a mutation: what they may be, in Python and in JSON, and what is refused."""

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from fractions import Fraction
from math import inf, isnan, nan
from typing import Any

import pyarrow as pa
import pytest

from omnigraph.errors import MutationError
from omnigraph.model.mutations import Compare, Delete, In, Insert, TextMatch
from omnigraph.rules.gq_bind import bind, plan_mutation
from omnigraph.rules.gq_check import check
from omnigraph.rules.gq_predicates import to_arrow
from omnigraph.rules.gq_text import select
from omnigraph.rules.schema_compile import FreshIds, compile_schema

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
NUMBERS: Iterator[int] = iter(range(1_000))
CATALOG = compile_schema(
    """node Thing {
        name: String @key   i32: I32?  i64: I64?  u32: U32?  u64: U64?  f32: F32?  f64: F64?   flag: Bool?
        day: Date?   at: DateTime?   blob: Blob?   words: [String]?   ints: [I32]?   days: [Date]?
        vec: Vector(3)?   colour: enum(red, blue)?
    }
    node Event { title: String  at: DateTime  started: DateTime? }""",
    FreshIds(lambda: f"{next(NUMBERS):026}"),
)
COLUMNS = {
    "String": "name",
    "I32": "i32",
    "I64": "i64",
    "U32": "u32",
    "U64": "u64",
    "F32": "f32",
    "F64": "f64",
    "Bool": "flag",
    "Date": "day",
    "DateTime": "at",
    "Blob": "blob",
    "[String]": "words",
    "[I32]": "ints",
    "[Date]": "days",
    "Vector(3)": "vec",
}


def stored(kind: str, value: Any, *, column: str | None = None, from_json: bool = False) -> Any:
    """Return what is stored if a parameter of this type has this value."""
    into = column or COLUMNS[kind]
    name = "" if into == "name" else 'name: "a" '
    text = f"query q($p: {kind}) {{ insert Thing {{ {name}{into}: $p }} }}"
    (statement,) = plan_mutation(text, CATALOG, {"p": value}, now=NOW, from_json=from_json).statements
    assert isinstance(statement, Insert)
    return statement.values[into]


def refused(text: str, given: Any, **more: Any) -> MutationError:
    with pytest.raises(MutationError) as caught:
        plan_mutation(text, CATALOG, given, now=NOW, **more)
    str(caught.value).encode()  # nothing that can not be printed
    return caught.value


TAKEN: list[tuple[str, Any, Any]] = [
    ("String", "é\0\n'; DROP", "é\0\n'; DROP"),
    ("I32", -(2**31), -(2**31)),
    ("I32", 5.0, 5),
    ("I64", 2**63 - 1, 2**63 - 1),
    ("U32", 2**32 - 1, 2**32 - 1),
    ("U64", 2**64 - 1, 2**64 - 1),
    ("F32", 0.5, 0.5),
    ("F32", 1, 1.0),
    ("F64", 0.1, 0.1),
    ("F64", inf, inf),
    ("Bool", False, False),
    ("Date", date(2024, 2, 29), date(2024, 2, 29)),
    ("DateTime", datetime(2024, 1, 1), datetime(2024, 1, 1, tzinfo=UTC)),  # noqa: DTZ001  # no zone is UTC
    ("DateTime", datetime(2024, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))), datetime(2024, 1, 1, tzinfo=UTC)),
    ("Blob", b"\0\xff", b"\0\xff"),
    ("Blob", bytearray(b"x"), b"x"),
    ("[String]", ["a", None], ("a", None)),
    ("[I32]", (1, 2), (1, 2)),
    ("[Date]", [date(2024, 1, 1)], (date(2024, 1, 1),)),
    ("Vector(3)", [1, 2.5, -3], (1.0, 2.5, -3.0)),
]


@pytest.mark.parametrize(("kind", "value", "expected"), TAKEN, ids=str)
def test_a_parameter_becomes_what_its_column_holds(kind: str, value: Any, expected: Any) -> None:
    found = stored(kind, value)
    assert (found, type(found)) == (expected, type(expected))


def test_nan_can_be_stored_but_not_compared_with() -> None:
    assert isnan(stored("F64", nan))
    assert isnan(stored("Vector(3)", [nan, 1, 2])[0])
    for text in ("f64 = $p", "f32 > $p", "f64 in [1, $p]"):
        error = refused(f"query q($p: F64) {{ delete Thing where {text} }}", {"p": nan})
        assert (error.rule, "NaN" in error.problem) == ("T7", True)
    assert refused("query q($p: [F64]) { delete Thing where f64 in $p }", {"p": [1.0, nan]}).rule == "T7"


def deep_list() -> list[Any]:
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    return value


MISFITS: list[tuple[str, Any]] = [
    ("String", 1),
    ("String", b"a"),
    ("String", "\ud800"),
    ("String", 10**10_000),
    ("I32", 2**31),
    ("I32", -(2**31) - 1),
    ("I32", 1.5),
    ("I32", True),
    ("I32", "1"),
    ("I32", nan),
    ("I32", inf),
    ("I64", 2**63),
    ("I64", 10**10_000),
    ("U32", -1),
    ("U64", 2**64),
    ("U64", -1),
    ("F32", 2**24 + 1),
    ("F32", 1e300),
    ("F64", 2**53 + 1),
    ("F64", 10**10_000),
    ("F64", Fraction(10**10_000)),
    ("F64", "1"),
    ("F64", True),
    ("F64", 1j),
    ("Bool", 1),
    ("Bool", "true"),
    ("Date", "2024-01-01"),
    ("Date", NOW),
    ("DateTime", date(2024, 1, 1)),
    ("DateTime", datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14)))),
    ("Blob", "base64:AA=="),
    ("Blob", [1]),
    ("[String]", "ab"),
    ("[String]", [1]),
    ("[String]", ["\udfff"]),
    ("[String]", {"a": 1}),
    ("[String]", deep_list()),
    ("[I32]", [1, 2**31]),
    ("[I32]", 1),
    ("Vector(3)", [1, 2]),
    ("Vector(3)", [1, 2, 3, 4]),
    ("Vector(3)", [1, 2, "3"]),
    ("Vector(3)", [1, 2, 1e300]),
    ("Vector(3)", "abc"),
    ("Vector(3)", 1),
    ("I32", object()),
]


@pytest.mark.parametrize(("kind", "value"), MISFITS, ids=[f"{kind}-{n}" for n, (kind, _) in enumerate(MISFITS)])
def test_a_value_that_is_not_of_the_declared_type_is_refused_at_the_declaration(kind: str, value: Any) -> None:
    error = refused(f'query q($p: {kind}) {{ insert Thing {{ name: "a" }} }}', {"p": value})
    assert (error.rule, error.line, error.column) == ("P4", 1, 9)
    assert error.problem.startswith(f"'$p' is {kind}, but ")
    assert len(error.problem) < 300


def test_the_misfit_in_a_list_is_counted() -> None:
    error = refused('query q($p: [I32]) { insert Thing { name: "a" ints: $p } }', {"p": [1, None, 2**31]})
    assert "element 3" in error.problem


@pytest.mark.parametrize(
    ("kind", "column", "value", "fits"),
    [
        ("I64", "i32", 2**31 - 1, True),
        ("I64", "i32", 2**31, False),
        ("I32", "u64", 1, True),
        ("I32", "u64", -1, False),
        ("F64", "i32", 3.0, True),
        ("F64", "i32", 3.5, False),
        ("I64", "f32", 2**24, True),
        ("I64", "f32", 2**24 + 1, False),
        ("F64", "f32", 1e300, False),
        ("String", "colour", "red", True),
        ("String", "colour", "green", False),
    ],
)
def test_a_number_may_come_in_another_width_if_it_stays_the_same(
    kind: str, column: str, value: Any, fits: bool
) -> None:
    if fits:
        assert stored(kind, value, column=column) == value
        return
    with pytest.raises(MutationError, match=r"T7: '\$p' does not fit"):
        stored(kind, value, column=column)


JSON_FORMS: list[tuple[str, str, Any]] = [
    ("Date", '"2024-02-29"', date(2024, 2, 29)),
    ("DateTime", '"2024-01-31T10:00:00Z"', datetime(2024, 1, 31, 10, tzinfo=UTC)),
    ("DateTime", '"2024-01-31T10:00:00.000001-01:30"', datetime(2024, 1, 31, 11, 30, 0, 1, tzinfo=UTC)),
    ("Blob", '"base64:aGk="', b"hi"),
    ("Blob", '"base64:"', b""),
    ("[Date]", '["2024-01-01", null]', (date(2024, 1, 1), None)),
    ("Vector(3)", "[1, 2, 3.5]", (1.0, 2.0, 3.5)),
    ("String", '"2024-01-01"', "2024-01-01"),
    ("I64", "9007199254740993", 9007199254740993),
]


@pytest.mark.parametrize(("kind", "value", "expected"), JSON_FORMS)
def test_json_gives_days_moments_and_bytes_as_text(kind: str, value: str, expected: Any) -> None:
    assert stored(kind, json.loads(value), from_json=True) == expected


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("Date", '"2024-2-1"'),
        ("Date", '"2023-02-29"'),
        ("Date", "19000"),
        ("Date", '"\\uff12024-01-01"'),
        ("DateTime", '"2024-01-31T10:00:00.1234567Z"'),
        ("DateTime", '"2024-01-31"'),
        ("DateTime", '"2024-01-31T25:00:00Z"'),
        ("DateTime", "1700000000"),
        ("Blob", '"aGk="'),
        ("Blob", '"base64:a"'),
        ("Blob", '"base64:é"'),
        ("Blob", '"file:///etc/passwd"'),
        ("Blob", "[104]"),
        ("[Date]", '["today"]'),
        ("[Date]", '"2024-01-01"'),
        ("I32", '"1"'),
        ("String", '"\\ud800"'),
        ("Vector(3)", '{"0": 1}'),
    ],
)
def test_what_json_can_not_mean_is_refused(kind: str, value: str) -> None:
    error = refused(f'query q($p: {kind}) {{ insert Thing {{ name: "a" }} }}', {"p": json.loads(value)}, from_json=True)
    assert error.rule == "P4"


TWO = "query q($name: String, $age: I32?) { insert Thing { name: $name i32: $age } }"


@pytest.mark.parametrize("given", [{"name": "a"}, {"name": "a", "age": None}])
def test_an_omitted_nullable_parameter_is_null(given: dict[str, Any]) -> None:
    (statement,) = plan_mutation(TWO, CATALOG, given, now=NOW).statements
    assert isinstance(statement, Insert)
    assert statement.values == {"name": "a", "i32": None}


@pytest.mark.parametrize(
    ("given", "rule", "problem"),
    [
        ({}, "P2", "'$name' is missing"),
        (None, "P2", "'$name' is missing"),
        ({"name": None}, "P2", "'$name' is null"),
        ({"name": "a", "agee": 1}, "P3", "'agee'"),
        ({"name": "a", "$age": 1}, "P3", "'$age'"),
        ({"name": "a", "\ud800": 1}, "P3", "no parameter"),
        ({"name": "a", 1: 1}, "P3", "no parameter 1"),
        (["name"], "P4", "mapping"),
        ("name", "P4", "mapping"),
    ],
)
def test_parameters_are_those_that_were_declared(given: Any, rule: str, problem: str) -> None:
    error = refused(TWO, given)
    assert error.rule == rule
    assert problem in error.problem


def test_an_unknown_parameter_is_refused_with_the_nearest_name() -> None:
    assert refused(TWO, {"name": "a", "agee": 1}).hint == "did you mean 'age'?"
    assert refused(TWO, {"name": "a", "$age": 1}).hint == "give the name without its $"
    assert refused('query q() { insert Thing { name: "a" } }', {"x": 1}).hint == "it has none"


def test_null_for_a_required_property_is_refused_where_it_is_used() -> None:
    error = refused("query q($p: String?) { insert Thing { name: $p } }", {})
    assert (error.rule, error.column) == ("T12", 45)


@pytest.mark.parametrize("test", ["i32 = $p", "i32 != $p", "i32 in [1, $p]"])
def test_null_is_not_compared_with(test: str) -> None:
    error = refused(f"query q($p: I32?) {{ delete Thing where {test} }}", {})
    assert (error.rule, "is null" in (error.hint or "")) == ("T7", True)


@pytest.mark.parametrize("given", [None, [1, None]])
def test_a_list_to_look_in_has_no_nulls(given: Any) -> None:
    error = refused("query q($p: [I32]?) { delete Thing where i32 in $p }", {"p": given})
    assert error.rule == "T7"


def test_parameters_reach_predicates_as_typed_values() -> None:
    text = """query q($a: I64, $l: [String], $s: String) {
        delete Thing where f32 < $a
        delete Thing where colour in $l
        delete Thing where name starts_with $s
    }"""
    plan = plan_mutation(text, CATALOG, {"a": 3, "l": ["red"], "s": "x' or 1=1"}, now=NOW)
    wheres = [statement.where for statement in plan.statements if isinstance(statement, Delete)]
    less, among, starts = wheres
    assert isinstance(less, Compare)
    assert (less.value, type(less.value)) == (3.0, float)
    assert isinstance(among, In)
    assert among.values == ("red",)
    assert isinstance(starts, TextMatch)
    assert starts.text == "x' or 1=1"


@pytest.mark.parametrize("test", ["f32 = 0.0", "f32 in [0.0]", "f32 in [-0.0, 5.0]"])
def test_a_zero_is_found_whatever_its_sign(test: str) -> None:
    (statement,) = plan_mutation(f"query q() {{ delete Thing where {test} }}", CATALOG, now=NOW).statements
    assert isinstance(statement, Delete)
    numbers = pa.table({"f32": pa.array([0.0, -0.0, 1.0, None], pa.float32())})
    assert numbers.filter(to_arrow(statement.where)).num_rows == 2


@pytest.mark.parametrize("now", [NOW, NOW.replace(tzinfo=None), NOW.astimezone(timezone(timedelta(hours=5)))])
def test_now_is_one_instant(now: datetime) -> None:
    text = 'query q() { insert Event { title: "a" at: now() started: now() } insert Event { title: "b" at: now() } }'
    plan = plan_mutation(text, CATALOG, now=now)
    moments = [
        value
        for statement in plan.statements
        if isinstance(statement, Insert)
        for column, value in statement.values.items()
        if column != "title"
    ]
    assert moments == [NOW, NOW, NOW]
    assert {moment.tzinfo for moment in moments} == {UTC}


def test_a_checked_query_can_be_bound_again_and_again() -> None:
    checked = check(select(TWO), CATALOG)
    plans = [bind(checked, {"name": name}, now=NOW) for name in ("a", "b", "a")]
    assert plans[0] == plans[2] != plans[1]


def test_a_plan_keeps_what_the_query_says_of_itself() -> None:
    text = 'query q() @instruction("do") @description("say") { insert Thing { name: "a" } }'
    plan = plan_mutation(text, CATALOG, now=NOW)
    assert (plan.name, plan.description, plan.instruction) == ("q", "say", "do")
