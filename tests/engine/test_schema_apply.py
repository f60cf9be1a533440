"""Changing a schema: one commit of schema and data, lifetimes of properties, and what stays as it was."""

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.engine.near_kit import Near
from tests.plain_tables import plain

import omnigraph as og
from omnigraph.errors import (
    BranchConflictError,
    ConstraintError,
    InvalidDataError,
    ReadOnlyError,
    SchemaChangeError,
    SchemaError,
    TypeNotFoundError,
)
from omnigraph.model.schema_plan import Cost, StepKind
from omnigraph.testing.places import place

PERSON = "node Person { name: String @key  age: I32? }"


def people(graph: og.Graph, branch: str = "main") -> list[dict[str, Any]]:
    return sorted(graph.snapshot(branch).read("Person").to_pylist(), key=lambda row: str(row["id"]))


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    made = og.init(tmp_path / "g", PERSON, actor="ann")
    with made.transaction() as tx:
        tx.append("Person", [{"name": "Ann", "age": 41}, {"name": "Ben"}])
    return made


def body(*properties: str) -> str:
    return "node Person { name: String @key  " + "  ".join(properties) + " }"


def test_a_change_is_one_commit_with_its_steps_as_message(graph: og.Graph) -> None:
    done = graph.schema.apply(body("age: I32?", "city: String?"), actor="ben")
    (newest, *_) = graph.log(limit=1)
    assert (newest.id, newest.operation, newest.actor) == (done.commit, "schema", "ben")
    assert newest.message == "add property Person.city · → city: String?"
    assert graph.recoveries() == [] and graph.heal() == []


def test_the_same_schema_again_is_no_commit(graph: og.Graph) -> None:
    before = graph.refresh()
    done = graph.schema.apply("// only a remark\n" + PERSON)
    assert (done.applied, done.commit) == (False, None)
    assert graph.refresh() == before


def test_a_property_that_is_named_as_a_dropped_one_is_another_one(graph: og.Graph) -> None:
    with_age = graph.refresh()
    graph.schema.apply(body())
    graph.schema.apply(PERSON)
    assert [row["age"] for row in people(graph)] == [None, None]
    with graph.transaction() as tx:
        tx.upsert("Person", [{"name": "Ben", "age": 7}])
    assert [row["age"] for row in people(graph)] == [None, 7]
    assert {row["age"] for row in graph.snapshot(commit=with_age.id).read("Person").to_pylist()} == {41, None}


def test_a_renamed_property_is_written_and_found_under_its_new_name(graph: og.Graph) -> None:
    graph.schema.apply(body('years: I32? @rename_from("age")'))
    with graph.transaction() as tx:
        tx.upsert("Person", [{"name": "Ben", "years": 5}, {"name": "Cid", "years": 6}])
    assert graph.snapshot().count("Person", "years < 40") == 2
    with pytest.raises(InvalidDataError, match="age"), graph.transaction() as tx:
        tx.append("Person", [{"name": "Dan", "age": 1}])
    assert [row["years"] for row in people(graph)] == [41, 5, 6]


def test_a_freed_name_can_be_taken_in_the_same_change(graph: og.Graph) -> None:
    graph.schema.apply(body('years: I32? @rename_from("age")', 'age: String? @backfill("old")'))
    assert people(graph)[0] == {"id": "Ann", "name": "Ann", "years": 41, "age": "old"}


def test_renames_and_nullable_properties_write_no_data_file(graph: og.Graph, tmp_path: Path) -> None:
    data = [*(tmp_path / "g" / "nodes").glob("*/data/*")]
    graph.schema.apply(body('years: I32? @rename_from("age")', "city: String?", "tags: [String]?", "v: Vector(3)?"))
    assert [*(tmp_path / "g" / "nodes").glob("*/data/*")] == data
    assert people(graph)[1] == {"id": "Ben", "name": "Ben", "years": None, "city": None, "tags": None, "v": None}


def test_every_type_can_be_added_filled_dropped_and_written(graph: og.Graph) -> None:
    values = {
        "a": ("String", "x", "x"),
        "b": ("Bool", "true", True),
        "c": ("I64", "-5", -5),
        "d": ("F64", "0.5", 0.5),
        "e": ("[I32]", "[1,null]", [1, None]),
        "f": ("Vector(2)", "[1,2]", [1.0, 2.0]),
        "g": ("enum(hot, cold)", "hot", "hot"),
        "h": ("U64", "7", 7),
    }
    graph.schema.apply(body(*(f'{name}: {kind} @backfill("{text}")' for name, (kind, text, _) in values.items())))
    filled = {name: value for name, (_, _, value) in values.items()}
    assert people(graph)[0] == {"id": "Ann", "name": "Ann", **filled}
    with graph.transaction() as tx:
        tx.upsert("Person", [{"name": "Cid", **filled}])
    graph.schema.apply(body("picture: Blob?", *(f"{name}: {kind}" for name, (kind, _, _) in values.items())))
    with graph.transaction() as tx:
        tx.upsert("Person", [{"name": "Cid", "picture": b"abc", **filled}])
    assert [row["picture"] for row in people(graph)] == [None, None, b"abc"]


@pytest.mark.parametrize("near", [False, True])
@pytest.mark.parametrize(
    ("kind", "value"),
    [("[String]", ["a"]), ("Vector(2)", [1.0, 2.0]), ("Blob", b"abc"), ("Date", dt.date(2026, 1, 2)), ("Bool", False)],
)
def test_a_property_of_any_type_is_required_if_every_row_has_it(
    graph: og.Graph, kind: str, value: Any, near: bool
) -> None:
    with Near() as engine:
        handle = graph.with_engine(engine) if near else graph
        handle.schema.apply(body(f"isThere: {kind}?"))
        with handle.transaction() as tx:
            tx.upsert("Person", [{"name": "Ann", "isThere": value}])
        with pytest.raises(ConstraintError) as refused:
            handle.schema.apply(body(f"isThere: {kind}"))
        assert refused.value.facts["violations"][0]["sample"] == [{"id": "Ben", "isThere": None}]
        with handle.transaction() as tx:
            tx.upsert("Person", [{"name": "Ben", "isThere": value}])
        handle.schema.apply(body(f"isThere: {kind}"))
    assert [row["isThere"] for row in people(graph)] == [value, value]


def test_numbers_get_wider_beside_rows_that_were_deleted(graph: og.Graph) -> None:
    with graph.transaction() as tx:
        tx.append("Person", [{"name": name, "age": 2} for name in ("Cid", "Dan", "Eve")])
    with graph.transaction() as tx:
        tx.delete("Person", ids=["Ann", "Dan"])
    graph.schema.apply(body("age: I64?"))
    assert graph.snapshot().read("Person").schema.field("age").type == pa.int64()
    with graph.transaction() as tx:
        tx.append("Person", [{"name": "Fay", "age": 2**40}])
    assert [row["age"] for row in people(graph)] == [None, 2, 2, 2**40]


def test_a_hard_drop_leaves_the_values_in_no_file_of_the_new_commit(graph: og.Graph) -> None:
    graph.schema.apply(body("age: I32?", 'secret: String @backfill("hush-hush-hush")'))
    graph.schema.apply(body("age: I32?"), allow_data_loss=True)
    pin = next(iter(graph.refresh().pins.values()))
    (table,) = (place(graph.root) / "nodes").iterdir()
    files = [
        file.path
        for part in plain(graph.root, f"nodes/{table.name}", pin.lance_version).get_fragments()
        for file in part.metadata.files
    ]
    assert files and all(b"hush-hush" not in (table / "data" / name).read_bytes() for name in files)
    assert [row["age"] for row in people(graph)] == [41, None]


def test_indexes_follow_a_renamed_column_and_a_new_one_of_the_old_name_gets_its_own(graph: og.Graph) -> None:
    graph.schema.apply(body("mail: String? @unique"))
    with graph.transaction() as tx:
        tx.upsert("Person", [{"name": "Ann", "mail": "a"}])
    graph.ensure_indices()
    graph.schema.apply(body('post: String? @unique @rename_from("mail")', "mail: String? @unique"))
    report = graph.ensure_indices().to_dict()["tables"]["node:Person"]
    assert {name: one["rows_added"] for name, one in report.items()} == {"id": 0, "name": 0, "post": 0, "mail": 2}
    with graph.transaction() as tx:
        tx.upsert("Person", [{"name": "Ben", "mail": "a", "post": "b"}])
    graph.ensure_indices()
    with pytest.raises(ConstraintError), graph.transaction() as tx:
        tx.append("Person", [{"name": "Cid", "post": "b"}])
    assert graph.snapshot().count("Person", "mail = 'a'") == 1


def test_a_branch_has_its_own_schema(graph: og.Graph) -> None:
    graph.branches.create("side")
    graph.schema.apply(body("city: String?"), "side")
    assert "city" in graph.schema.show("side") and "city" not in graph.schema.show("main")
    with graph.transaction("side") as tx:
        tx.append("Person", [{"name": "Cid", "city": "Rom"}])
    with graph.transaction() as tx:
        tx.append("Person", [{"name": "Dan", "age": 3}])
    assert [row.get("city", "-") for row in people(graph, "side")] == [None, None, "Rom"]
    assert [row.get("age", "-") for row in people(graph)] == [41, None, 3]


def test_a_type_that_nobody_wrote_to_may_change_on_two_branches(tmp_path: Path) -> None:
    graph = og.init(tmp_path / "g", PERSON)
    graph.branches.create("side")
    graph.schema.apply(body("city: String?"), "side")
    graph.schema.apply(body("zip: I32"))
    for branch, row in (("main", {"name": "Ann", "zip": 1}), ("side", {"name": "Ben", "city": "Rom"})):
        with graph.transaction(branch) as tx:
            tx.append("Person", [row])
        assert people(graph, branch) == [{"id": row["name"], **row}]
    assert graph.snapshot(version=1).read("Person").to_pylist() == []


def test_a_type_added_and_changed_before_its_first_row(graph: og.Graph) -> None:
    graph.schema.apply(PERSON + "\nnode City { name: String @key }")
    graph.branches.create("side")
    graph.schema.apply(PERSON + "\nnode City { name: String @key  zip: I32 }", "side")
    for branch, row in (("side", {"name": "Rom", "zip": 1}), ("main", {"name": "Ulm"})):
        with graph.transaction(branch) as tx:
            tx.append("City", [row])
        assert graph.snapshot(branch).read("City").to_pylist() == [{"id": row["name"], **row}]


def test_a_dropped_type_is_gone_from_the_head_and_not_from_history(graph: og.Graph) -> None:
    before = graph.refresh()
    graph.schema.apply("node City { name: String @key }")
    assert graph.refresh().pins == {}
    with pytest.raises(TypeNotFoundError):
        graph.snapshot().read("Person")
    graph.schema.apply(PERSON)
    assert people(graph) == []
    assert graph.snapshot(commit=before.id).count("Person") == 2
    graph.restore("main", to=before)
    assert [row["age"] for row in people(graph)] == [41, None]


def test_a_writer_that_began_under_another_schema_is_refused(graph: og.Graph) -> None:
    with pytest.raises(BranchConflictError, match="schema"), graph.transaction() as tx:
        tx.append("Person", [{"name": "Cid", "age": 1}])
        graph.schema.apply(body("age: I64?"))
    assert [row["name"] for row in people(graph)] == ["Ann", "Ben"]


def test_a_writer_is_not_fooled_by_a_column_that_was_rewritten_there_and_back(graph: og.Graph) -> None:
    """The schema is the same again, but the number under which files hold the column is not."""
    with pytest.raises(og.OmnigraphError, match="rewritten"), graph.transaction() as tx:
        tx.append("Person", [{"name": "Cid", "age": 1}])
        graph.schema.apply(body("age: I64?"))
        graph.schema.apply(PERSON, allow_data_loss=True)
    assert [row["age"] for row in people(graph)] == [41, None]


def test_a_plan_says_what_it_costs_and_changes_nothing(graph: og.Graph) -> None:
    plan = graph.schema.plan(body('years: I64? @rename_from("age")', "city: String?"))
    assert [(step.kind, step.cost, step.rows) for step in plan.steps] == [
        (StepKind.RENAME_PROPERTY, Cost.METADATA, 0),
        (StepKind.ADD_PROPERTY, Cost.METADATA, 0),
        (StepKind.CHANGE_TYPE, Cost.COLUMN, 2),
    ]
    assert (plan.is_supported, plan.rows_touched) == (True, 2)
    assert graph.schema.show().count("years") == 0


def test_what_can_not_be_done_is_said_with_what_to_do_instead(graph: og.Graph) -> None:
    with pytest.raises(SchemaChangeError) as refused:
        graph.schema.apply(body("age: String?", "city: String"))
    assert {step["code"] for step in refused.value.facts["plan"]["steps"] if "code" in step} == {
        "TYPE_CHANGED",
        "REQUIRED_WITHOUT_VALUE",
    }
    assert "@backfill" in str(refused.value) and "fill it, and drop the old one" in str(refused.value)


def test_violations_name_the_rows(graph: og.Graph) -> None:
    with pytest.raises(ConstraintError) as refused:
        graph.schema.apply(body("age: I32"))
    (violation,) = refused.value.facts["violations"]
    assert (violation["count"], violation["sample"]) == (1, [{"id": "Ben", "age": None}])


def test_a_reader_may_not_apply_and_bad_text_is_told_at_its_place(graph: og.Graph) -> None:
    with pytest.raises(ReadOnlyError):
        og.open(graph.root, read_only=True).schema.apply(body("x: I32?"))
    with pytest.raises(SchemaError, match="line 1"):
        graph.schema.plan("node person {}")
    assert og.open(graph.root, read_only=True).schema.plan(body("x: I32?")).is_supported is True


def test_schemas_of_two_branches_are_compared(graph: og.Graph) -> None:
    graph.branches.create("side")
    graph.schema.apply(body('years: I32? @rename_from("age")'), "side")
    (step,) = graph.schema.diff("main", "side").steps
    assert (step.kind, step.before, step.after) == (StepKind.RENAME_PROPERTY, "age", "years")
    assert graph.schema.diff("side", "side").is_empty


def test_a_schema_can_be_applied_many_times_and_the_manifest_stays_small(graph: og.Graph) -> None:
    for number in range(12):
        graph.schema.apply(body(f'p{number}: I32? @rename_from("{"age" if not number else f"p{number - 1}"}")'))
    graph.schema.apply(body("p11: I32?", "last: I32?"))
    assert [row["p11"] for row in people(graph)] == [41, None]
    fresh = og.open(graph.root, read_only=True)
    assert [list(fresh.snapshot(version=n).read("Person").schema.names)[-1] for n in (2, 3, 14, 15)] == [
        "age",
        "p0",
        "p11",
        "last",
    ]
