"""What a plan says about two schemas, without a graph."""

from itertools import count
from typing import Any

import pytest

from omnigraph.ids import TableId
from omnigraph.model.catalog import Catalog
from omnigraph.model.schema_plan import Cost, DropMode, StepKind, Support
from omnigraph.rules.schema_compile import FreshIds, compile_schema
from omnigraph.rules.schema_plan import Planned, plan_schema

NUMBERS = count(1)


def mint() -> str:
    return f"id-{next(NUMBERS)}"


def catalog(text: str) -> Catalog:
    return compile_schema(text, FreshIds(mint))


def planned(old: str | Catalog, new: str, rows: int = 10, **more: Any) -> Planned:
    before = catalog(old) if isinstance(old, str) else old
    sizes = {TableId(kind.id): rows for kind in before.table_types}
    return plan_schema(before, new, sizes, mint, **more)


def told(old: str, new: str, rows: int = 10, **more: Any) -> list[tuple[str, str, str, int]]:
    steps = planned(old, new, rows, **more).plan.steps
    return [(str(step.kind), step.subject, str(step.cost), step.rows) for step in steps]


def node(body: str, more: str = "") -> str:
    return f"node A {{ {body} }}\n{more}"


def test_the_same_text_is_an_empty_plan() -> None:
    text = node("a: I32 @key  b: String? @unique  @range(a, 0..5)", "edge E: A -> A @card(0..1)")
    found = planned(text, "// again\n" + text)
    assert (found.plan.is_empty, found.new.hash, found.old.hash) == (True, found.old.hash, found.old.hash)


def test_identity_is_kept_by_name_and_by_an_earlier_name() -> None:
    old = catalog(node("a: I32?  b: I32?", "node B {}"))
    found = planned(old, 'node C @rename_from("A") { b: I32?  c: I32? @rename_from("a")  a: I32? }\nnode B {}').new
    before, after = old.type("A"), found.type("C")
    assert after.id == before.id
    ids = {column.name: column.id for column in after.properties}
    was = {column.name: column.id for column in before.properties}
    assert (ids["c"], ids["b"]) == (was["a"], was["b"])
    assert ids["a"] not in was.values()
    assert not any(column.annotations for column in after.properties), "what speaks of the change is not kept"


def test_a_text_that_still_says_what_was_renamed_changes_nothing() -> None:
    first = planned(node("a: I32?"), node('b: I32? @rename_from("a")'))
    assert planned(first.new, node('b: I32? @rename_from("a")')).plan.is_empty


@pytest.mark.parametrize(
    ("old", "new", "steps"),
    [
        ("a: I32?", "a: I32?  b: I32?", [("add_property", "A.b", "metadata", 0)]),
        ("a: I32?", 'a: I32?  b: I32 @backfill("1")', [("add_property", "A.b", "column", 10)]),
        ("a: I32?  b: I32?", "a: I32?", [("drop_property", "A.b", "metadata", 0)]),
        ("a: I32?", 'b: I32? @rename_from("a")', [("rename_property", "A.b", "metadata", 0)]),
        ("a: I32?", "a: I64?", [("change_type", "A.a", "column", 10)]),
        ("a: enum(x)?", "a: enum(x, y)?", [("change_type", "A.a", "metadata", 0)]),
        ("a: enum(x, y)?", "a: enum(x)?", [("change_type", "A.a", "validation", 10)]),
        ("a: enum(x, y)?", "a: String?", [("change_type", "A.a", "metadata", 0)]),
        ("a: I32?", "a: I32", [("require_property", "A.a", "validation", 10)]),
        ("a: I32", "a: I32?", [("relax_property", "A.a", "metadata", 0)]),
        ("a: I32?", "a: I32? @unique", [("add_constraint", "A", "validation", 10)]),
        ("a: I32? @unique", "a: I32?", [("drop_constraint", "A", "metadata", 0)]),
        ("a: I32?", "a: I32? @index", [("add_constraint", "A", "metadata", 0)]),
        ("a: I32?  b: I32?", "b: I32?  a: I32?", [("reorder_properties", "A", "metadata", 0)]),
        ("a: I32?", 'a: I32? @description("x")', [("update_metadata", "A.a", "metadata", 0)]),
    ],
)
def test_a_step_says_what_it_costs(old: str, new: str, steps: list[tuple[str, str, str, int]]) -> None:
    assert told(node(old), node(new)) == steps


def test_a_constraint_on_a_renamed_property_is_the_same_constraint() -> None:
    steps = told(node("a: I32? @unique  @range(a, 0..9)"), node('b: I32? @unique @rename_from("a")  @range(b, 0..9)'))
    assert [kind for kind, *_ in steps] == ["rename_property"]


def test_edges_follow_a_renamed_node_and_tell_other_ends() -> None:
    old = node("", "node B {}\nedge E: A -> B @card(0..2)")
    renamed = 'node C @rename_from("A") {}\nnode B {}\nedge E: C -> B @card(0..2)'
    assert [kind for kind, *_ in told(old, renamed)] == ["rename_type"]
    changed = node("", "node B {}\nedge E: A -> A @card(0..1)")
    assert told(old, changed) == [
        ("change_endpoints", "E", "validation", 10),
        ("change_cardinality", "E", "validation", 10),
    ]
    looser = node("", "node B {}\nedge E: A -> B")
    assert told(old, looser) == [("change_cardinality", "E", "metadata", 0)]


def test_interfaces_change_the_nodes_that_implement_them() -> None:
    old = "interface I { a: I32? }\nnode A implements I {}"
    new = "interface I { a: I32?  b: I32? }\nnode A implements I {}\nnode B implements I {}"
    assert told(old, new) == [
        ("add_type", "B", "metadata", 0),
        ("add_property", "I.b", "metadata", 0),
        ("add_property", "A.b", "metadata", 0),
    ]
    assert [kind for kind, *_ in told(old, "node A { a: I32? }")] == ["change_interfaces", "drop_type"]


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("a: I32?", "a: I32?  b: I32", "REQUIRED_WITHOUT_VALUE"),
        ("a: I32?", 'a: I32?  b: I32 @backfill("x")', "BACKFILL_MISFIT"),
        ("a: I32?", 'a: I32?  b: enum(x) @backfill("y")', "BACKFILL_MISFIT"),
        ("a: I32?", 'a: I32?  b: Blob @backfill("y")', "BACKFILL_MISFIT"),
        ("a: I32?", "a: String?", "TYPE_CHANGED"),
        ("a: I32?", "a: [I32]?", "TYPE_CHANGED"),
        ("a: Vector(2)?", "a: Vector(3)?", "TYPE_CHANGED"),
        ("a: I32?", 'b: I32? @rename_from("x")', "RENAME_SOURCE_MISSING"),
        ("a: I32?", 'b: I32? @rename_from("a")  c: I32? @rename_from("a")', "RENAME_SOURCE_MISSING"),
    ],
)
def test_what_can_not_be_done_has_a_code_a_reason_and_another_way(old: str, new: str, code: str) -> None:
    plan = planned(node(old), node(new)).plan
    (refused,) = plan.refused
    assert refused.problem is not None
    assert (refused.problem.code, plan.is_supported, refused.support) == (code, False, Support.UNSUPPORTED)
    assert refused.problem.reason and refused.problem.instead
    assert refused.to_dict()["code"] == code


def test_an_empty_table_takes_a_required_property_and_any_number() -> None:
    assert planned(node("a: I64?"), node("a: I32?  b: I32"), rows=0).plan.is_supported
    assert not planned(node("a: I64?"), node("a: I32?"), rows=0).plan.losing


def test_numbers_that_may_not_fit_need_a_word() -> None:
    (step,) = planned(node("a: I64?"), node("a: I32?")).plan.losing
    assert (step.support, step.problem.code if step.problem else "") == (Support.NEEDS_DATA_LOSS, "VALUES_MAY_NOT_FIT")
    assert planned(node("a: I64?"), node("a: I32?"), may_lose=True).plan.losing == ()


def test_a_drop_is_soft_unless_loss_is_allowed() -> None:
    def modes(**more: Any) -> list[tuple[StepKind, DropMode | None, Cost]]:
        steps = planned(node("a: I32?", "node B {}"), "node A {}", **more).plan.steps
        return [(step.kind, step.mode, step.cost) for step in steps]

    assert modes() == [
        (StepKind.DROP_PROPERTY, DropMode.SOFT, Cost.METADATA),
        (StepKind.DROP_TYPE, DropMode.SOFT, Cost.METADATA),
    ]
    assert modes(may_lose=True) == [
        (StepKind.DROP_PROPERTY, DropMode.HARD, Cost.REWRITE),
        (StepKind.DROP_TYPE, DropMode.HARD, Cost.METADATA),
    ]


def test_a_table_is_counted_once_however_many_steps_touch_it() -> None:
    plan = planned(node("a: I32?  b: I32?"), node('a: I64?  b: I32  c: I32 @backfill("1")')).plan
    assert ([step.rows for step in plan.steps], plan.rows_touched) == ([10, 10, 10], 10)
    assert plan.to_dict()["rows_touched"] == 10
    assert "add property A.c" in plan._repr_html_()
