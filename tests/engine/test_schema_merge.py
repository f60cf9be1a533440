"""Merging branches whose schemas differ: compatible changes go together, the others are named."""

from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.errors import MergeConflictsError

OLD = """node Person { name: String @key  age: I32?  nick: String? }
node City { name: String @key }
edge Knows: Person -> Person"""


def person(*properties: str, more: str = "node City { name: String @key }\nedge Knows: Person -> Person") -> str:
    return "node Person { name: String @key  " + "  ".join(properties) + " }\n" + more


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    made = og.init(tmp_path / "g", OLD)
    with made.transaction() as tx:
        tx.append("Person", [{"name": "Ann", "age": 41, "nick": "A"}, {"name": "Ben", "age": 2}])
        tx.append("Knows", [{"id": "1", "src": "Ann", "dst": "Ben"}])
    made.branches.create("side")
    return made


def write(graph: og.Graph, branch: str, *rows: dict[str, Any], type: str = "Person") -> None:
    with graph.transaction(branch) as tx:
        tx.upsert(type, list(rows))


def people(graph: og.Graph, branch: str = "main") -> list[dict[str, Any]]:
    return sorted(graph.snapshot(branch).read("Person").to_pylist(), key=lambda row: str(row["id"]))


def messages(graph: og.Graph, **more: Any) -> list[str]:
    before = graph.refresh()
    with pytest.raises(MergeConflictsError) as refused:
        graph.branches.merge("side", "main", **more)
    assert graph.refresh() == before
    return [f"{each.kind}: {each.message}" for each in refused.value.conflicts]


def test_a_fast_forward_takes_the_schema_along_and_drops_what_is_dropped(graph: og.Graph) -> None:
    graph.schema.apply('node Person { name: String @key  years: I32? @rename_from("age") }', "side")
    merged = graph.branches.merge("side", "main")
    assert merged.outcome == "FastForward"
    assert graph.schema.show("main") == graph.schema.show("side")
    assert [row["years"] for row in people(graph)] == [41, 2]
    assert set(graph.refresh().pins) == set(graph.snapshot("side").commit.pins)


def test_changes_of_both_sides_that_do_not_meet_are_both_there(graph: og.Graph) -> None:
    graph.schema.apply(person('years: I32? @rename_from("age")', "nick: String?"), "side")
    write(graph, "side", {"name": "Ann", "years": 42, "nick": "A"}, {"name": "Cid", "years": 3})
    graph.schema.apply(person("age: I32?", "nick: String?", "city: String?", more="edge Knows: Person -> Person"))
    write(graph, "main", {"name": "Ben", "age": 2, "city": "Rom"})
    merged = graph.branches.merge("side", "main")
    assert merged.outcome == "Merged"
    assert people(graph) == [
        {"id": "Ann", "name": "Ann", "years": 42, "nick": "A", "city": None},
        {"id": "Ben", "name": "Ben", "years": 2, "nick": None, "city": "Rom"},
        {"id": "Cid", "name": "Cid", "years": 3, "nick": None, "city": None},
    ]
    head = graph.refresh()
    assert (len(head.parents), "City" in graph.schema.show()) == (2, False)
    write(graph, "main", {"name": "Dan", "years": 9, "city": "Ulm"})
    assert graph.branches.merge("side", "main").outcome == "AlreadyUpToDate"
    assert og.open(graph.root).snapshot().count("Knows") == 1


def test_a_side_that_only_changed_the_schema_brings_it_to_rows_of_the_other(graph: og.Graph) -> None:
    graph.schema.apply(person("age: I64?", "nick: String?"), "side")
    write(graph, "main", {"name": "Cid", "age": 7})
    graph.branches.merge("side", "main")
    assert [row["age"] for row in people(graph)] == [41, 2, 7]
    write(graph, "main", {"name": "Dan", "age": 2**40})
    assert people(graph)[-1]["age"] == 2**40


def test_a_type_that_one_side_added_comes_with_its_rows(graph: og.Graph) -> None:
    graph.schema.apply(OLD + "\nnode Dog { name: String @key }", "side")
    write(graph, "side", {"name": "Rex"}, type="Dog")
    graph.schema.apply(OLD + "\nnode Cat { name: String @key }")
    write(graph, "main", {"name": "Tom"}, type="Cat")
    graph.branches.merge("side", "main")
    assert [graph.snapshot().count(name) for name in ("Dog", "Cat", "Person")] == [1, 1, 2]


@pytest.mark.parametrize(
    ("ours", "theirs", "said"),
    [
        (person("age: I64?", "nick: String?"), person("age: F64?", "nick: String?"), "Person.age: the target has I64"),
        (
            person('a: I32? @rename_from("age")', "nick: String?"),
            person('b: I32? @rename_from("age")', "nick: String?"),
            "Person.a: the target has 'a', the source 'b'",
        ),
        (
            person("nick: String?"),
            person("age: I64?", "nick: String?"),
            "the target dropped the property, and the other side changed it",
        ),
        (
            person("age: I32?", "nick: String?", "x: I32?"),
            person("age: I32?", "nick: String?", "x: String?"),
            "both sides have a property called 'x'",
        ),
        (OLD + "\nnode Dog {}", OLD + "\nnode Dog { a: I32? }", "both sides have a type of this name"),
        (
            OLD.replace("-> Person", "-> Person @card(0..1)"),
            OLD.replace("-> Person", "-> Person @card(0..2)"),
            "and both changed it",
        ),
        (
            person("age: I32?"),
            person("age: I32?", "nick: String? @unique"),
            "a constraint speaks of a property that the other side dropped",
        ),
        (
            OLD.replace("node City { name: String @key }\n", ""),
            OLD + "\nedge In: Person -> City",
            "it refers to a type that the other side dropped",
        ),
    ],
)
def test_what_both_changed_in_their_own_way_is_named(graph: og.Graph, ours: str, theirs: str, said: str) -> None:
    graph.schema.apply(theirs, "side")
    graph.schema.apply(ours)
    found = messages(graph)
    assert all(each.startswith("SchemaDivergence") for each in found)
    assert any(said in each for each in found), found
    assert [c.kind for c in graph.branches.merge("side", "main", dry_run=True).conflicts] == ["SchemaDivergence"] * len(
        found
    )


def test_rows_are_held_to_what_the_other_side_asks_for(graph: og.Graph) -> None:
    graph.schema.apply(person("age: I32?", "nick: String? @unique"), "side")
    write(graph, "main", {"name": "Cid", "nick": "A"})
    assert [each.split(":")[0] for each in messages(graph)] == ["UniqueViolation"]


def test_nulls_of_one_side_meet_a_property_that_the_other_requires(graph: og.Graph) -> None:
    graph.schema.apply(person("age: I32", "nick: String?"), "side")
    write(graph, "main", {"name": "Cid", "nick": "c"})
    assert any("age is required" in each for each in messages(graph))


def test_a_type_that_one_side_dropped_and_the_other_wrote_to_is_named(graph: og.Graph) -> None:
    graph.schema.apply(OLD.replace("node City { name: String @key }\n", ""), "side")
    write(graph, "main", {"name": "Rom"}, type="City")
    assert messages(graph) == ["SchemaDivergence: City: one side dropped the type, and the other side wrote rows of it"]


def test_a_required_property_comes_where_no_row_lacks_it(graph: og.Graph) -> None:
    graph.schema.apply(person("age: I32?", "nick: String?", 'land: String @backfill("IT")'), "side")
    write(graph, "main", {"name": "Rom"}, type="City")
    graph.branches.merge("side", "main")
    assert [row["land"] for row in people(graph)] == ["IT", "IT"]
    assert graph.snapshot().count("City") == 1


def test_a_required_property_is_named_where_rows_lack_it(graph: og.Graph) -> None:
    graph.schema.apply(person("age: I32?", "nick: String?", 'land: String @backfill("IT")'), "side")
    write(graph, "main", {"name": "Cid"})
    assert any("Person.land" in each for each in messages(graph, policy="theirs"))


def test_row_conflicts_are_found_under_one_schema(graph: og.Graph) -> None:
    graph.schema.apply(person('years: I32? @rename_from("age")', "nick: String?"), "side")
    write(graph, "side", {"name": "Ann", "years": 1, "nick": "A"})
    write(graph, "main", {"name": "Ann", "age": 2, "nick": "A"})
    assert [each.split(":")[0] for each in messages(graph)] == ["DivergentUpdate"]
    graph.branches.merge("side", "main", policy="theirs")
    assert [row["years"] for row in people(graph)] == [1, 2]
