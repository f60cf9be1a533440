"""Mutations against a schema: what each statement becomes, what is refused under which code, which rows match."""

import re
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from omnigraph.errors import MutationError
from omnigraph.model.catalog import Catalog
from omnigraph.model.mutations import Delete, Insert, Mutation, Predicate, Update, Upsert
from omnigraph.rules import gq_text
from omnigraph.rules.arrow_schema import arrow_schema
from omnigraph.rules.gq_bind import plan_mutation
from omnigraph.rules.gq_check import check
from omnigraph.rules.gq_messages import Rule
from omnigraph.rules.gq_predicates import columns_of, to_arrow
from omnigraph.rules.gq_text import parse_mutations
from omnigraph.rules.schema_compile import FreshIds, compile_schema

MARK = "«"
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)

SCHEMA = """
interface Named { name: String }
node Person implements Named {
    name: String @key   age: I32?   big: U64?   score: F32?   exact: F64?   tags: [String]?   marks: [I32]?
    vec: Vector(2)?   photo: Blob?   colour: enum(red, dark_green)?   born: Date?   seen: DateTime?   ok: Bool?
    in: I32?   set: String?
}
node Note { text: String }
node Plot { country: String  number: I32  owner: String?  @key(country, number) }
edge Knows: Person -> Person { since: Date?  weight: F64? }
edge Owns: Person -> Plot { share: F64  @key(src, dst) }
"""


def catalog() -> Catalog:
    numbers: Iterator[int] = iter(range(1_000))
    return compile_schema(SCHEMA, FreshIds(lambda: f"{next(numbers):026}"))


CATALOG = catalog()
PARAMETERS = (
    "$s: String, $i: I32, $f: F64, $b: Bool, $d: Date, $t: DateTime, $l: [String], $n: [I32], $v: Vector(2), $x: Blob"
)
GIVEN = {
    "s": "a",
    "i": 7,
    "f": 2.0,
    "b": True,
    "d": date(2024, 1, 1),
    "t": NOW,
    "l": ["a"],
    "n": [1, 2],
    "v": [1, 2],
    "x": b"\0",
}


def planned(body: str) -> Mutation:
    return plan_mutation(f"query q({PARAMETERS}) {{\n{body}\n}}", CATALOG, GIVEN, now=NOW)


def refused(marked: str) -> MutationError:
    """Plan a body that must be refused where the mark stands."""
    before, mark, after = marked.partition(MARK)
    assert mark, "the text has no mark"
    with pytest.raises(MutationError) as caught:
        planned(before + after)
    assert (caught.value.line, caught.value.column) == (2, len(before) + 1), str(caught.value)
    return caught.value


def values_of(body: str) -> dict[str, Any]:
    (statement,) = planned(body).statements
    assert not isinstance(statement, Delete)
    return dict(statement.values)


def where_of(kind: str, condition: str) -> Predicate:
    (statement,) = planned(f"delete {kind} where {condition}").statements
    assert isinstance(statement, Delete)
    return statement.where


def test_each_statement_becomes_what_it_says() -> None:
    plan = planned(
        """insert Person { name: "ann" age: 3 seen: now() }
        upsert Person { name: "bob", age: null }
        update Knows set { since: $d, to: "cid" } where from = "ann" and weight >= 1
        upsert Owns { from: "ann" to: "p" }
        upsert Note { id: "n1" text: "x" }"""
    )
    insert, upsert, update, edge, keyless = plan.statements
    assert isinstance(insert, Insert)
    assert insert.type is CATALOG.type("Person")
    assert insert.values == {"name": "ann", "age": 3, "seen": NOW}
    assert isinstance(upsert, Upsert)
    assert upsert.values == {"name": "bob", "age": None}
    assert isinstance(update, Update)
    assert update.values == {"since": date(2024, 1, 1), "dst": "cid"}
    assert columns_of(update.where) == {"src", "weight"}
    assert isinstance(edge, Upsert)
    assert edge.values == {"src": "ann", "dst": "p"}
    assert isinstance(keyless, Upsert)
    assert (plan.name, plan.deletes) == ("q", False)
    assert planned('delete Note where id = "a"').deletes


VALUES: dict[str, Any] = {
    "age: 2147483647": 2147483647,
    "age: $i": 7,
    "age: $f": 2,
    "big: 18446744073709551615": 2**64 - 1,
    "score: 1": 1.0,
    "score: 0.1": 0.10000000149011612,
    "exact: 9007199254740992": 2.0**53,
    "exact: -1.5e3": -1500.0,
    'tags: ["a", null, $s]': ("a", None, "a"),
    "tags: $l": ("a",),
    "tags: []": (),
    "marks: [1, 2]": (1, 2),
    "marks: $n": (1, 2),
    "vec: [1, 2.5]": (1.0, 2.5),
    "vec: [$f, null]": (2.0, None),
    "vec: $v": (1.0, 2.0),
    "photo: $x": b"\0",
    "photo: null": None,
    'colour: "red"': "red",
    'born: date("2024-02-29")': date(2024, 2, 29),
    'seen: datetime("2024-01-31T10:00:00+01:00")': datetime(2024, 1, 31, 9, tzinfo=UTC),
    "seen: $t": NOW,
    "ok: false": False,
    "in: 1": 1,
    'set: "x"': "x",
}


@pytest.mark.parametrize(("assignment", "value"), VALUES.items(), ids=VALUES)
def test_values_become_what_their_columns_hold(assignment: str, value: Any) -> None:
    found = values_of(f'insert Person {{ name: "a" {assignment} }}')[assignment.split(":")[0]]
    assert (found, type(found)) == (value, type(value))


REFUSED = {
    "an unknown type": ("insert «Persn {}", "T10", "did you mean 'Person'?"),
    "a type in other letter case": ("delete «knows where id = $s", "T10", "did you mean 'Knows'?"),
    "an interface": ("insert «Named {}", "T10", "interface"),
    "an unknown property": ('insert Person { name: "a" «agee: 1 }', "T11", "did you mean 'age'?"),
    "an unknown property asked": ("delete Person where «agee = 1", "T11", "did you mean 'age'?"),
    "ends of a node": ('delete Person where «from = "a"', "T11", None),
    "a stored name of an end": ('delete Knows where «src = "a"', "T11", "write from"),
    "a blob asked": ("delete Person where «photo is null", "T11", None),
    "a required property": ("insert «Note {}", "T12", "add text"),
    "an end": ('insert «Knows { from: "a" }', "T12", "add to"),
    "part of a key": ('insert «Plot { country: "a" }', "T12", "add number"),
    "null for a required property": ("update Note set { text: «null } where id = $s", "T12", None),
    "null for an end": ("update Knows set { to: «null } where id = $s", "T12", None),
    "null for an id": ('insert Note { id: «null text: "a" }', "T12", None),
    "an upsert without a key": ("upsert «Person { age: 1 }", "T12", None),
    "an upsert with half a key": ("upsert «Plot { number: 1 }", "T12", None),
    "an upsert of a keyless type": ('upsert «Note { text: "a" }', "T12", "insert"),
    "an upsert of a keyless edge": ('upsert «Knows { from: "a" to: "b" }', "T12", "insert"),
    "an upsert of a keyed edge": ('upsert «Owns { from: "a" }', "T12", None),
    "a property set twice": ('insert Person { name: "a" age: 1 «age: 1 }', "T13", None),
    "an end set twice": ('insert Knows { from: "a" to: "b" «to: "b" }', "T13", None),
    "an undeclared parameter": ("delete Person where age = «$j", "T14", None),
    "a key in an update": ('update Person set { «name: "b" } where id = $s', "T16", "insert new ones"),
    "an id in an update": ('update Note set { «id: "b" } where id = $s', "T16", None),
    "an end that is a key": ('update Owns set { «from: "b" } where id = $s', "T16", None),
    "a text for a number": ('insert Person { name: "a" age: «"1" }', "T3", None),
    "a number for a text": ("insert Person { name: «1 }", "T3", None),
    "a fraction for a whole number": ('insert Person { name: "a" age: «1.0 }', "T3", None),
    "a fraction in a list": ('insert Person { name: "a" marks: [1, «2.0] }', "T3", None),
    "a number too large": ('insert Person { name: "a" age: «2147483648 }', "T3", None),
    "a negative number without sign": ('insert Person { name: "a" big: «-1 }', "T3", None),
    "a huge number": ('insert Person { name: "a" big: «' + "9" * 300 + " }", "T3", None),
    "a number that is not exact": ('insert Person { name: "a" score: «16777217 }', "T3", None),
    "a number too large for a float": ('insert Person { name: "a" score: «1e300 }', "T3", None),
    "a truth value for a number": ('insert Person { name: "a" age: «true }', "T3", None),
    "a number for a truth value": ('insert Person { name: "a" ok: «1 }', "T3", None),
    "a text for a day": ('insert Person { name: "a" born: «"2024-01-31" }', "T3", "date("),
    "a text for a moment": ('insert Person { name: "a" seen: «"2024-01-31" }', "T3", "datetime("),
    "a day for a moment": ('insert Person { name: "a" seen: «date("2024-01-31") }', "T3", None),
    "a moment for a day": ('insert Person { name: "a" born: «datetime("2024-01-31T00:00:00Z") }', "T3", None),
    "an unknown enum value": ('insert Person { name: "a" colour: «"darkgreen" }', "T3", None),
    "a list for a text": ('insert Person { name: «["a"] }', "T3", None),
    "a text for a list": ('insert Person { name: "a" tags: «"a" }', "T3", None),
    "a vector too short": ('insert Person { name: "a" vec: «[1] }', "T3", None),
    "a text in a vector": ('insert Person { name: "a" vec: [1, «"2"] }', "T3", None),
    "bytes written out": ('insert Person { name: "a" photo: «"base64:AA==" }', "T3", None),
    "equal to null": ("delete Person where age = «null", "T3", "is null"),
    "null in a list": ("delete Person where age in [1, «null]", "T3", "is null"),
    "a list compared": ("delete Person where «tags = $s", "T3", "is null"),
    "a vector compared": ("delete Person where «vec in [1]", "T3", "is null"),
    "an enum ordered": ('delete Person where «colour < "red"', "T3", "'in'"),
    "a truth value ordered": ("delete Person where «ok >= true", "T3", "'in'"),
    "the start of a number": ('delete Person where «age starts_with "1"', "T3", None),
    "an unknown enum value asked": ('delete Person where colour in ["red", «"blue"]', "T3", None),
    "a number out of range asked": ("delete Person where age < «3000000000", "T3", None),
    "an id that is a number": ("delete Person where id = «1", "T3", None),
    "a text parameter for a number": ('insert Person { name: "a" age: «$s }', "T7", "declare it as I32"),
    "a number parameter for a text": ("insert Person { name: «$i }", "T7", "declare it as String"),
    "a number parameter for an enum": ('insert Person { name: "a" colour: «$i }', "T7", "declare it as String"),
    "a list parameter for a text": ("insert Person { name: «$l }", "T7", None),
    "a list parameter for a vector": ('insert Person { name: "a" vec: «$n }', "T7", "declare it as Vector(2)"),
    "a list of the wrong kind": ('insert Person { name: "a" tags: «$n }', "T7", "declare it as [String]"),
    "a day parameter for a moment": ('insert Person { name: "a" seen: «$d }', "T7", None),
    "now for a day": ('insert Person { name: "a" born: «now() }', "T7", None),
    "now for a text": ("insert Person { name: «now() }", "T7", None),
    "now asked of a number": ("delete Person where age = «now()", "T7", None),
    "a plain parameter for in": ("delete Person where age in «$i", "T7", "in [$i]"),
    "a list of texts for numbers": ("delete Person where age in «$l", "T7", None),
    "a list parameter compared": ("delete Person where age = «$n", "T7", None),
    "a parameter not in an enum": ("delete Person where colour = «$s", "T7", None),
}


@pytest.mark.parametrize(("body", "rule", "hint"), REFUSED.values(), ids=REFUSED)
def test_what_does_not_fit_the_schema_is_refused_under_its_code(body: str, rule: str, hint: str | None) -> None:
    error = refused(body)
    assert error.rule == rule
    assert f": {rule}: " in str(error)
    assert (hint or "") in (error.hint or "")


def test_an_enum_value_nearly_right_is_named() -> None:
    assert "did you mean 'dark_green'?" in str(refused('insert Person { name: "a" colour: «"darkgreen" }'))


def test_a_parameter_that_is_never_used_is_fine() -> None:
    assert values_of('insert Note { text: "a" }') == {"text": "a"}


def test_what_is_not_set_is_not_in_the_plan() -> None:
    assert values_of('upsert Person { name: "a" }') == {"name": "a"}
    assert values_of('insert Note { id: "n" text: "a" }') == {"id": "n", "text": "a"}
    assert values_of('upsert Person { id: "a" age: 1 }') == {"id": "a", "age": 1}


ROWS: list[dict[str, Any]] = [
    {"id": "1", "name": "ann", "age": 1, "exact": 1.0, "colour": "red", "ok": True, "born": date(2024, 1, 1)},
    {"id": "2", "name": "bob", "age": 2, "exact": float("nan"), "colour": "dark_green", "ok": False, "seen": NOW},
    {"id": "3", "name": "Ann", "age": None, "exact": None},
    {"id": "4", "name": "'; --", "age": 4, "exact": 4.0, "score": 0.1, "in": 5, "tags": ["x"], "big": 2**64 - 1},
]

MATCHES = {
    "age = 1": "1",
    "age != 1": "24",
    "not (age = 1)": "24",
    "not age = 1 or age is null": "234",
    "age < 4 and age >= 2": "2",
    "age in [1, 4]": "14",
    "age not in [1, 4]": "2",
    "not (age in [1, 4])": "2",
    "age in []": "",
    "age not in []": "124",
    "age in $n": "12",
    "age is null": "3",
    "age is not null": "124",
    "not (age = 1 and exact = 5)": "124",
    "age = 1 or exact = 4": "14",
    "exact > 0": "14",
    "exact >= 4": "4",
    "not (exact > 0)": "2",
    "exact < 100": "14",
    "exact != 1": "24",
    "exact in [1, 4]": "14",
    "exact not in [1]": "24",
    "score = 0.1": "4",
    'name starts_with "a"': "1",
    'name contains "n"': "13",
    'name contains ""': "1234",
    'not (name contains "n")': "24",
    'name = "\'; --"': "4",
    'name in ["ann", "bob"] and not ok = true': "2",
    'colour = "red"': "1",
    'colour != "red"': "2",
    'colour in ["red", "dark_green"]': "12",
    'born = date("2024-01-01")': "1",
    "born <= $d": "1",
    "seen = now()": "2",
    "seen < now()": "",
    "ok = false": "2",
    "ok in [true, $b]": "1",
    "seen in [$t, now()]": "2",
    'born not in [date("2024-01-01")]': "",
    "score in [0.1]": "4",
    "score > 0.1": "",
    "score >= 0.1": "4",
    "in = 5": "4",
    "big = 18446744073709551615": "4",
    "tags is not null": "4",
    "vec is null": "1234",
    'id = "3"': "3",
    'id > "2" and id <= "4"': "34",
}


@pytest.mark.parametrize(("condition", "ids"), MATCHES.items(), ids=MATCHES)
def test_a_row_matches_only_if_the_predicate_is_true_of_it(condition: str, ids: str) -> None:
    schema = arrow_schema(CATALOG.type("Person")).remove_metadata()
    table = pa.Table.from_pylist(ROWS, schema=schema)
    found = table.filter(to_arrow(where_of("Person", condition))).column("id").to_pylist()
    assert sorted(str(each) for each in found) == sorted(ids)


def test_a_thousand_tests_and_thousands_of_values_can_be_asked() -> None:
    table = pa.table({"age": pa.array([1, 2, None], pa.int32())})
    many = where_of("Person", " or ".join(["age = 1"] * 1_000))
    assert table.filter(to_arrow(many)).num_rows == 1
    wide = plan_mutation(
        "query q($n: [I64]) { delete Person where age in $n }", CATALOG, {"n": list(range(20_000))}, now=NOW
    ).statements[0]
    assert isinstance(wide, Delete)
    assert table.filter(to_arrow(wide.where)).num_rows == 2


def test_the_columns_of_a_predicate_have_their_stored_names() -> None:
    where = where_of("Knows", '(from = "a" or not to in ["b"]) and since is null and weight > 1 and id = "e"')
    assert columns_of(where) == {"src", "dst", "since", "weight", "id"}


# -- the reference ----------------------------------------------------------------------------------------

GUIDE = (Path(__file__).parents[2] / "docs" / "reference" / "mutations.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", GUIDE, re.DOTALL)


def guide_catalog() -> Catalog:
    numbers: Iterator[int] = iter(range(1_000))
    return compile_schema(blocks("pg")[0], FreshIds(lambda: f"{next(numbers):026}"))


def test_every_query_in_the_reference_fits_its_schema() -> None:
    queries = [query for block in blocks("gq") for query in parse_mutations(block)]
    assert len(queries) == 3
    for query in queries:
        check(query, guide_catalog())


def test_every_rule_is_in_the_reference() -> None:
    assert [rule for rule in Rule if f"| `{rule}` |" not in GUIDE] == []


def test_the_error_shown_in_the_reference_is_the_one_that_is_raised() -> None:
    with pytest.raises(MutationError) as caught:
        plan_mutation("query q() { update Person set { age: 1 } where agee = 2 }", guide_catalog(), now=NOW)
    assert f"```text\n{caught.value}\n```" in GUIDE


def test_the_grammar_in_the_reference_is_the_parsers() -> None:
    assert gq_text.__doc__ is not None
    wanted = [line.strip() for line in gq_text.__doc__.splitlines() if re.match(r"    \w+ += |     +\| ", line)]
    assert len(wanted) > 15
    assert [line for line in wanted if line not in GUIDE] == []
