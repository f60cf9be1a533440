"""Every kind of change to a schema, on an empty table, on rows that fit and on rows that do not, and their page."""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import omnigraph as og
from omnigraph.errors import ConstraintError, OmnigraphError, SchemaChangeError
from omnigraph.model.schema_plan import Cost

Rows: TypeAlias = Sequence[Mapping[str, Any]]
Given: TypeAlias = Mapping[str, Rows]
SIDE = "side"
EMPTY, FITS, VIOLATES = "empty table", "rows that fit", "rows that do not"
PAGE = Path("docs/reference/schema-changes.md")
HEAD = """# What becomes of a change to a schema

Every row of this table is run by `tests/engine/test_schema_matrix.py`, on `main` and on a branch. `metadata` touches
no row; `validation` reads rows; `column` writes one column beside the others; `rewrite` writes the table anew. A change
that is refused leaves everything as it was; the [guide](../guides/schema-evolution.md) says what to do about it.

`python3 -m tests.engine.schema_cases` writes this page.

| change | empty table | rows that fit | rows that do not |
|---|---|---|---|
"""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One change, and what is there before it; rows are by type, and ``then`` is what rows that fit become."""

    name: str
    old: str
    new: str
    fits: Given
    then: Given
    violates: Given | None = None
    allow_data_loss: bool = False
    extra: Given = field(default_factory=dict)
    """Rows that are there in any case, of types the change is not about."""


PERSON = "node Person { name: String @key  age: I32? }"
ANN: dict[str, Any] = {"id": "Ann", "name": "Ann", "age": 41}
BEN: dict[str, Any] = {"id": "Ben", "name": "Ben", "age": None}
PEOPLE: Given = {"Person": [ANN, BEN]}
NODES: Given = {"Person": [{"id": "Ann", "name": "Ann"}, {"id": "Ben", "name": "Ben"}]}
CITIES: Given = {"City": [{"id": "Rom", "name": "Rom"}]}
TWO = "node Person { name: String @key }\nnode City { name: String @key }\n"


def knows(*pairs: tuple[str, str, str]) -> Given:
    return {"Knows": [{"id": id, "src": src, "dst": dst} for id, src, dst in pairs]}


def _without(rows: Rows, *names: str) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name not in names} for row in rows]


CASES: tuple[Case, ...] = (
    Case(
        name="add a nullable property",
        old=PERSON,
        new="node Person { name: String @key  age: I32?  city: String? }",
        fits=PEOPLE,
        then={"Person": [{**ANN, "city": None}, {**BEN, "city": None}]},
    ),
    Case(
        name="add a required property",
        old=PERSON,
        new="node Person { name: String @key  age: I32?  city: String }",
        fits={},
        then={},
        violates=PEOPLE,
    ),
    Case(
        name='add a required property with `@backfill("Rom")`',
        old=PERSON,
        new='node Person { name: String @key  age: I32?  city: String @backfill("Rom") }',
        fits=PEOPLE,
        then={"Person": [{**ANN, "city": "Rom"}, {**BEN, "city": "Rom"}]},
    ),
    Case(
        name="drop a property (soft)",
        old=PERSON,
        new="node Person { name: String @key }",
        fits=PEOPLE,
        then={"Person": _without([ANN, BEN], "age")},
    ),
    Case(
        name="drop a property (hard)",
        old=PERSON,
        new="node Person { name: String @key }",
        fits=PEOPLE,
        then={"Person": _without([ANN, BEN], "age")},
        allow_data_loss=True,
    ),
    Case(
        name="rename a property",
        old=PERSON,
        new='node Person { name: String @key  years: I32? @rename_from("age") }',
        fits=PEOPLE,
        then={"Person": [{"id": "Ann", "name": "Ann", "years": 41}, {"id": "Ben", "name": "Ben", "years": None}]},
    ),
    Case(
        name="rename a key",
        old=PERSON,
        new='node Person { called: String @key @rename_from("name")  age: I32? }',
        fits=PEOPLE,
        then={"Person": [{"id": "Ann", "called": "Ann", "age": 41}, {"id": "Ben", "called": "Ben", "age": None}]},
    ),
    Case(
        name="reorder properties",
        old=PERSON,
        new="node Person { age: I32?  name: String @key }",
        fits=PEOPLE,
        then={"Person": [{"id": "Ann", "age": 41, "name": "Ann"}, {"id": "Ben", "age": None, "name": "Ben"}]},
    ),
    Case(
        name="widen a number: I32 to I64",
        old=PERSON,
        new="node Person { name: String @key  age: I64? }",
        fits=PEOPLE,
        then=PEOPLE,
    ),
    Case(
        name="narrow a number: I32 to U32",
        old=PERSON,
        new="node Person { name: String @key  age: U32? }",
        fits={},
        then={},
        violates=PEOPLE,
    ),
    Case(
        name="narrow a number: I32 to U32, data loss allowed",
        old=PERSON,
        new="node Person { name: String @key  age: U32? }",
        fits={"Person": [ANN, {**BEN, "age": -1}]},
        then=PEOPLE,
        allow_data_loss=True,
    ),
    Case(
        name="narrow a required number, data loss allowed",
        old="node Person { name: String @key  age: I32 }",
        new="node Person { name: String @key  age: U32 }",
        fits={"Person": [ANN]},
        then={"Person": [ANN]},
        violates={"Person": [{**ANN, "age": -1}]},
        allow_data_loss=True,
    ),
    Case(
        name="widen an enum",
        old="node Person { name: String @key  mood: enum(good)? }",
        new="node Person { name: String @key  mood: enum(bad, good)? }",
        fits={"Person": [{"id": "Ann", "name": "Ann", "mood": "good"}]},
        then={"Person": [{"id": "Ann", "name": "Ann", "mood": "good"}]},
    ),
    Case(
        name="narrow an enum",
        old="node Person { name: String @key  mood: enum(bad, good)? }",
        new="node Person { name: String @key  mood: enum(good)? }",
        fits={"Person": [{"id": "Ann", "name": "Ann", "mood": "good"}]},
        then={"Person": [{"id": "Ann", "name": "Ann", "mood": "good"}]},
        violates={"Person": [{"id": "Ann", "name": "Ann", "mood": "bad"}]},
    ),
    Case(
        name="String to enum",
        old="node Person { name: String @key  mood: String? }",
        new="node Person { name: String @key  mood: enum(bad, good)? }",
        fits={"Person": [{"id": "Ann", "name": "Ann", "mood": "good"}]},
        then={"Person": [{"id": "Ann", "name": "Ann", "mood": "good"}]},
        violates={"Person": [{"id": "Ann", "name": "Ann", "mood": "odd"}]},
    ),
    Case(
        name="any other change of type: I32 to String",
        old=PERSON,
        new="node Person { name: String @key  age: String? }",
        fits={},
        then={},
        violates=PEOPLE,
    ),
    Case(
        name="make a property nullable",
        old="node Person { name: String @key  age: I32 }",
        new=PERSON,
        fits={"Person": [ANN]},
        then={"Person": [ANN]},
    ),
    Case(
        name="make a property required",
        old=PERSON,
        new="node Person { name: String @key  age: I32 }",
        fits={"Person": [ANN]},
        then={"Person": [ANN]},
        violates=PEOPLE,
    ),
    Case(
        name="add `@unique`",
        old=PERSON,
        new="node Person { name: String @key  age: I32? @unique }",
        fits=PEOPLE,
        then=PEOPLE,
        violates={"Person": [ANN, {**BEN, "age": 41}]},
    ),
    Case(
        name="remove `@unique`",
        old="node Person { name: String @key  age: I32? @unique }",
        new=PERSON,
        fits=PEOPLE,
        then=PEOPLE,
    ),
    Case(
        name="add `@range`",
        old=PERSON,
        new="node Person { name: String @key  age: I32?  @range(age, 0..40) }",
        fits={"Person": [{**ANN, "age": 40}, BEN]},
        then={"Person": [{**ANN, "age": 40}, BEN]},
        violates=PEOPLE,
    ),
    Case(
        name="add `@check`",
        old=PERSON,
        new='node Person { name: String @key  age: I32?  @check(name, "^A") }',
        fits={"Person": [ANN]},
        then={"Person": [ANN]},
        violates=PEOPLE,
    ),
    Case(
        name="add `@key`",
        old="node Person { name: String }",
        new="node Person { name: String @key }",
        fits=NODES,
        then=NODES,
        violates={"Person": [{"id": "1", "name": "Ann"}]},
    ),
    Case(
        name="remove `@key`",
        old="node Person { name: String @key }",
        new="node Person { name: String }",
        fits=NODES,
        then=NODES,
    ),
    Case(
        name="add or remove `@index`",
        old=PERSON,
        new="node Person { name: String @key  age: I32? @index }",
        fits=PEOPLE,
        then=PEOPLE,
    ),
    Case(
        name="implement an interface that adds a nullable property",
        old=PERSON,
        new="interface Placed { city: String? }\nnode Person implements Placed { name: String @key  age: I32? }",
        fits=PEOPLE,
        then={"Person": [{**ANN, "city": None}, {**BEN, "city": None}]},
    ),
    Case(
        name="lead an edge to another type",
        old=TWO + "edge Knows: Person -> Person",
        new=TWO + "edge Knows: Person -> City",
        fits=knows(),
        then=knows(),
        violates=knows(("1", "Ann", "Ben")),
        extra={**NODES, **CITIES},
    ),
    Case(
        name="raise the least number of edges",
        old=TWO + "edge Knows: Person -> Person",
        new=TWO + "edge Knows: Person -> Person @card(1..)",
        fits={**NODES, **knows(("1", "Ann", "Ben"), ("2", "Ben", "Ann"))},
        then={**NODES, **knows(("1", "Ann", "Ben"), ("2", "Ben", "Ann"))},
        violates={**NODES, **knows(("1", "Ann", "Ben"))},
    ),
    Case(
        name="lower the greatest number of edges",
        old=TWO + "edge Knows: Person -> Person",
        new=TWO + "edge Knows: Person -> Person @card(0..1)",
        fits=knows(("1", "Ann", "Ben")),
        then=knows(("1", "Ann", "Ben")),
        violates=knows(("1", "Ann", "Ben"), ("2", "Ann", "Ann")),
        extra=NODES,
    ),
    Case(
        name="allow any number of edges",
        old=TWO + "edge Knows: Person -> Person @card(0..1)",
        new=TWO + "edge Knows: Person -> Person",
        fits=knows(("1", "Ann", "Ben")),
        then=knows(("1", "Ann", "Ben")),
        extra=NODES,
    ),
    Case(
        name="add a type",
        old=PERSON,
        new=PERSON + "\nnode City { name: String @key }",
        fits=PEOPLE,
        then={**PEOPLE, "City": []},
    ),
    Case(
        name="drop a type (soft)",
        old=PERSON + "\nnode City { name: String @key }",
        new="node City { name: String @key }",
        fits=PEOPLE,
        then={"City": []},
    ),
    Case(
        name="rename a type",
        old=PERSON,
        new='node Human @rename_from("Person") { name: String @key  age: I32? }',
        fits=PEOPLE,
        then={"Human": [ANN, BEN]},
    ),
    Case(
        name="`@rename_from` of something that is not there",
        old=PERSON,
        new='node Person { name: String @key  age: I32?  x: I32? @rename_from("y") }',
        fits={},
        then={},
        violates=PEOPLE,
    ),
)


def rows_of(snapshot: og.Snapshot, types: Mapping[str, object]) -> dict[str, list[dict[str, Any]]]:
    """Everything some types hold, by id."""
    return {name: sorted(snapshot.read(name).to_pylist(), key=lambda row: str(row["id"])) for name in types}


def put(graph: og.Graph, given: Given) -> None:
    """Write rows of several types as one commit."""
    if any(given.values()):
        with graph.transaction(constraints="off") as tx:
            for name, rows in given.items():
                if rows:
                    tx.append(name, list(rows))


def outcome(root: Path, case: Case, given: Given) -> str:
    """Apply a change to `main` and to a branch, look at every snapshot, and say what became of it."""
    graph = og.init(root, case.old)
    put(graph, {**case.extra, **given})
    graph.branches.create(SIDE)
    before = graph.snapshot()
    old = dict.fromkeys((*case.extra, *given))
    was = rows_of(before, old)
    said = {_applied(graph, case, branch, given) for branch in ("main", SIDE)}
    assert len(said) == 1, "a branch is no other than main"
    assert rows_of(graph.snapshot(commit=before.commit.id), old) == was, "an old snapshot shows what it showed"
    assert rows_of(og.open(root, read_only=True).snapshot(version=before.version), old) == was
    return said.pop()


def _applied(graph: og.Graph, case: Case, branch: str, given: Given) -> str:
    head = graph.snapshot(branch)
    plan = graph.schema.plan(case.new, branch, allow_data_loss=case.allow_data_loss)
    try:
        done = graph.schema.apply(case.new, branch, allow_data_loss=case.allow_data_loss)
    except OmnigraphError as refused:
        assert graph.snapshot(branch).commit == head.commit, "a refused change changes nothing"
        assert isinstance(refused, ConstraintError | SchemaChangeError), refused
        codes = [step.problem.code for step in plan.steps if step.problem is not None]
        return f"refused: `{', '.join(codes) or refused.code}`"
    assert (done.commit, done.version) == (graph.snapshot(branch).commit.id, head.version + 1)
    assert done.plan.steps and [step.kind for step in done.plan.steps] == [step.kind for step in plan.steps]
    if given == case.fits or not any(given.values()):
        wanted = case.then if given == case.fits else {name: [] for name in case.then}
        found = rows_of(graph.snapshot(branch), wanted)
        assert found == {name: sorted(rows, key=lambda row: str(row["id"])) for name, rows in wanted.items()}
        for name, rows in wanted.items():
            assert all(list(row) == list(rows[0]) for row in found[name]), "columns are in the order of the schema"
    assert not graph.schema.plan(case.new, branch).steps, "what was applied is what is there"
    return f"applied: {max((step.cost for step in done.plan.steps), key=list(Cost).index)}"


def outcomes(folder: Path, case: Case) -> dict[str, str]:
    """Run one change over everything it can meet."""
    given = {EMPTY: {name: [] for name in case.fits or case.violates or {}}, FITS: case.fits, VIOLATES: case.violates}
    told: dict[str, str] = {}
    for number, (name, rows) in enumerate(given.items()):
        if rows is not None and (name == EMPTY or any(rows.values()) or (name == FITS and case.extra)):
            told[name] = outcome(folder / f"{number}", case, rows)
    return told


def page_row(case: Case, told: Mapping[str, str]) -> str:
    """Return the row of the page."""
    return f"| {case.name} | " + " | ".join(told.get(name, "-") for name in (EMPTY, FITS, VIOLATES)) + " |"


def main() -> None:
    """Write the page."""
    with tempfile.TemporaryDirectory() as folder:
        rows = [page_row(case, outcomes(Path(folder) / str(n), case)) for n, case in enumerate(CASES)]
    PAGE.write_text(HEAD + "\n".join(rows) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
