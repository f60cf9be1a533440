"""Each constraint on each path: what is right is taken, what is wrong is refused and nothing of it is published."""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.engine.constraint_kit import CASES, Rows, edge, filled, person, plays_for
from tests.engine.near_kit import Near

import omnigraph as og
from omnigraph.errors import (
    ConstraintError,
    InvalidInputError,
    VersionConflictError,
)
from omnigraph.rules import constraints, row_checks
from omnigraph.storage.asked import BEFORE_KEEPING
from omnigraph.storage.embedded import EmbeddedEngine
from omnigraph.storage.relations import Relation, Values
from omnigraph.testing.places import beside, place


@pytest.fixture(params=["looked up", "spread"])
def graph(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[og.Graph]:
    """Two people who each play, one team they could lead; checked row by row, or by joining whole columns."""
    made = filled(tmp_path / "g")
    with Near() as engine:
        yield made if request.param == "looked up" else made.with_engine(engine)


# -- what a row alone, and rows together, must satisfy --------------------------------------------------


def by_verb(verb: str) -> Callable[[og.Graph, str, Rows], None]:
    def write(graph: og.Graph, type: str, rows: Rows) -> None:
        with graph.transaction() as tx:
            getattr(tx, verb)(type, rows)
            if plays := plays_for(rows, type):
                tx.append("Plays", plays)

    return write


def by_overwriting(graph: og.Graph, type: str, rows: Rows) -> None:
    """Overwrite with what is there and the new rows."""
    kept = graph.snapshot().read(type).to_pylist()
    by_verb("overwrite")(graph, type, [*kept, *rows])


def by_loading(graph: og.Graph, type: str, rows: Rows) -> None:
    records = [*(record(type, row) for row in rows), *(record("Plays", row) for row in plays_for(rows, type))]
    file = beside(graph.root) / "load.jsonl"
    file.write_text("\n".join(json.dumps(one) for one in records))
    graph.load(file)


def record(type: str, row: dict[str, Any]) -> dict[str, Any]:
    data = {name: value for name, value in row.items() if name not in ("src", "dst")}
    if "src" in row:
        return {"edge": type, "from": row["src"], "to": row["dst"], "data": data}
    return {"type": type, "data": data}


TYPES = {"age": "I32", "score": "F64", "must": "Bool", "since": "I32"}
ENDS = {"src": "from", "dst": "to"}
REFUSED_BY_THE_LANGUAGE = ("type", "required", "enum", "key")
"""What a mutation is refused for before it has rows; there are no plans for these."""


def by_mutating(graph: og.Graph, type: str, rows: Rows) -> None:
    """Insert row by row, every value a parameter."""
    written = [*((type, row) for row in rows), *(("Plays", row) for row in plays_for(rows, type))]
    declared, statements, params = [], [], {}
    for number, (kind, row) in enumerate(written):
        values = []
        for name, value in row.items():
            parameter = f"p{number}_{name}"
            declared.append(f"${parameter}: {TYPES.get(name, 'String')}?")
            params[parameter] = value
            values.append(f"{ENDS.get(name, name)}: ${parameter}")
        statements.append(f"insert {kind} {{ {' '.join(values)} }}")
    graph.mutate(f"query q({', '.join(declared)}) {{ {' '.join(statements)} }}", params)


PATHS: dict[str, Callable[[og.Graph, str, Rows], None]] = {
    "append": by_verb("append"),
    "upsert": by_verb("upsert"),
    "overwrite": by_overwriting,
    "load": by_loading,
    "mutate": by_mutating,
}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("name", CASES)
def test_what_is_right_is_taken(graph: og.Graph, name: str, path: str) -> None:
    case = CASES[name]
    PATHS[path](graph, case.type, case.right)
    assert graph.refresh().version == 3


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("name", CASES)
def test_what_is_wrong_is_refused_and_nothing_is_published(graph: og.Graph, name: str, path: str) -> None:
    case, before = CASES[name], graph.refresh()
    with pytest.raises(InvalidInputError) as refused:
        PATHS[path](graph, case.type, case.wrong)
    if path != "mutate" or name not in REFUSED_BY_THE_LANGUAGE:
        assert isinstance(refused.value, case.error)
        assert case.says in str(refused.value)
    assert graph.refresh() == before
    assert not list((place(graph.root) / "__recovery").glob("*"))
    by_verb("upsert")(graph, "Team", [{"name": "green"}])  # nothing is in the way


# -- what goes away -------------------------------------------------------------------------------------


def test_a_node_that_goes_takes_its_edges_along(graph: og.Graph) -> None:
    with graph.transaction() as tx:
        tx.delete("Person", "name = 'Ann'")
    assert {key: table.rows_deleted for key, table in tx.receipt.tables.items()} == {
        "node:Person": 1,
        "edge:Knows": 1,
        "edge:Leads": 1,
        "edge:Plays": 1,
    }


def test_an_edge_that_must_be_there_can_not_be_deleted_alone(graph: og.Graph) -> None:
    with pytest.raises(ConstraintError, match=r"@card\(1\.\.2\)") as refused, graph.transaction() as tx:
        tx.delete("Plays", ids=["pa"])
    (violation,) = refused.value.to_dict()["violations"]
    assert violation == {
        "constraint": "@card(1..2)",
        "table_key": "edge:Plays",
        "count": 1,
        "sample": [{"src": "Ann", "edges": 0}],
    }


def test_deleting_the_other_end_is_refused_if_a_node_would_be_left_with_too_few(graph: og.Graph) -> None:
    with pytest.raises(ConstraintError, match=r"@card\(1\.\.2\)"), graph.transaction() as tx:
        tx.delete("Team", ids=["red"])
    assert graph.snapshot().count("Plays") == 2


def test_an_edge_that_moves_counts_at_both_ends(graph: og.Graph) -> None:
    with pytest.raises(ConstraintError) as refused, graph.transaction() as tx:
        tx.upsert("Plays", [edge("Ann", "blue", id="pb"), edge("Ann", "blue")])
    (violation,) = refused.value.to_dict()["violations"]
    assert sorted(violation["sample"], key=lambda row: row["src"]) == [
        {"src": "Ann", "edges": 3},
        {"src": "Bob", "edges": 0},
    ]


def test_a_new_node_needs_the_edges_it_must_have_in_the_same_transaction(graph: og.Graph) -> None:
    with pytest.raises(ConstraintError, match=r"@card\(1\.\.2\)"), graph.transaction() as tx:
        tx.append("Person", [person("Cy")])
    with graph.transaction() as tx:
        tx.append("Plays", [edge("Cy", "blue")])
        tx.append("Person", [person("Cy")])
    assert graph.snapshot().count("Person") == 3


def test_overwriting_nodes_may_not_leave_edges_hanging(graph: og.Graph) -> None:
    with pytest.raises(ConstraintError) as refused, graph.transaction() as tx:
        tx.overwrite("Person", [person("Bob")])
    assert {v["constraint"] for v in refused.value.to_dict()["violations"]} == {"from an existing Person"}
    with graph.transaction() as tx:
        tx.overwrite("Person", [person("Bob")])
        tx.overwrite("Knows", [])
        tx.overwrite("Leads", [])
        tx.overwrite("Plays", [edge("Bob", "blue")])
    assert graph.snapshot().count("Person") == 1


def test_overwriting_edges_may_not_leave_a_node_with_too_few(graph: og.Graph) -> None:
    with pytest.raises(ConstraintError, match=r"@card\(1\.\.2\)"), graph.transaction() as tx:
        tx.overwrite("Plays", [edge("Ann", "blue")])


def test_a_unique_value_may_change_hands_within_a_write(graph: og.Graph) -> None:
    with graph.transaction() as tx:
        tx.upsert("Person", [person("Ann", email=None), person("Bob", email="ann@x")])
    assert graph.snapshot().count("Person", "email = 'ann@x'") == 1


# -- errors ---------------------------------------------------------------------------------------------


def test_all_that_is_wrong_is_told_at_once_with_counts_and_samples(graph: og.Graph) -> None:
    wrong = [person(f"P{number}", age=200 + number, mood="ugly") for number in range(50)]
    with pytest.raises(ConstraintError) as refused, graph.transaction() as tx:
        tx.append("Person", wrong)
        tx.append("Plays", [edge(f"P{number}", "red") for number in range(50)])
        tx.append("Knows", [edge("P1", "Nobody")])
    told = {violation["constraint"]: violation for violation in refused.value.to_dict()["violations"]}
    assert told["@range(age)"]["count"] == 50
    assert told["@range(age)"]["sample"][0] == {"id": "P0", "age": 200}
    assert len(told["@range(age)"]["sample"]) == 20
    assert told["mood: enum(bad, good)"]["count"] == 50
    assert told["to an existing Person"]["count"] == 1, "what rows break together is told beside what they break alone"
    assert str(refused.value).startswith("[CONSTRAINT_VIOLATED] nothing was applied: 101 rows break constraints")


def test_trusted_input_is_not_checked_if_the_caller_says_so(graph: og.Graph) -> None:
    with graph.transaction(constraints="off") as tx:
        tx.append("Knows", [edge("Nobody", "Ann", since=1)])
    assert graph.snapshot().count("Knows") == 2
    with pytest.raises(og.OmnigraphError, match="constraints is 'maybe'"):
        graph.transaction(constraints="maybe")


HOSTILE = ["'", '"', "a' OR '1'='1", '"; DROP TABLE new; --', "--", "\0", "\u2028'", "%", "\\", "$least", "''", ""]


@pytest.mark.parametrize("value", HOSTILE)
def test_a_value_is_never_part_of_a_plan(graph: og.Graph, value: str) -> None:
    with graph.transaction() as tx:
        tx.append("Person", [person("Cy", email=value, first=value, last=value)])
        tx.append("Plays", [edge("Cy", "red")])
    with pytest.raises(ConstraintError, match=r"@unique\(email\)"), graph.transaction() as tx:
        tx.append("Person", [person("Di", email=value)])
        tx.append("Plays", [edge("Di", "red")])
    if value:
        with pytest.raises(ConstraintError, match="to an existing Person"), graph.transaction() as tx:
            tx.append("Knows", [edge("Ann", value)])
    assert graph.snapshot().count("Person") == 3


# -- one compiler ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "path"),
    [
        (name, path)
        for name, case in CASES.items()
        for path in PATHS
        if case.error is ConstraintError and (path != "mutate" or name not in REFUSED_BY_THE_LANGUAGE)
    ],
)
def test_a_constraint_the_compiler_forgets_is_checked_on_no_path(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch, name: str, path: str
) -> None:
    monkeypatch.setattr(constraints, "compile_rules", lambda catalog: ())
    monkeypatch.setattr(row_checks, "_checks", lambda kind: ())
    PATHS[path](graph, CASES[name].type, CASES[name].wrong)
    assert graph.refresh().version == 3


# -- races ----------------------------------------------------------------------------------------------


def test_an_edge_to_a_node_that_is_deleted_meanwhile_is_refused(graph: og.Graph) -> None:
    slow = og.open(graph.root).transaction()
    slow.append("Knows", [edge("Ann", "Bob")])
    with graph.transaction() as tx:
        tx.delete("Person", ids=["Bob"])
    with pytest.raises(ConstraintError, match="to an existing Person"):
        slow.__exit__(None, None, None)
    assert graph.snapshot().count("Knows") == 0


def test_an_edge_to_a_deleted_node_is_refused_by_a_process_that_has_often_found_it(graph: og.Graph) -> None:
    def meet(who: str) -> None:
        with graph.transaction() as tx:
            tx.append("Knows", [edge("Ann", who)])

    for _ in range(BEFORE_KEEPING + 2):
        meet("Bob")
    before, knows = graph.log()[0], graph.snapshot().count("Knows")
    with graph.transaction() as tx:
        tx.delete("Person", ids=["Bob"])
    with pytest.raises(ConstraintError, match="to an existing Person"):
        meet("Bob")
    graph.branches.create("earlier", from_=before.id)
    with graph.transaction("earlier") as tx:
        tx.append("Knows", [edge("Ann", "Bob")])
    assert graph.snapshot().count("Knows") == 0
    assert graph.snapshot("earlier").count("Knows") == knows + 1


def test_a_deletion_of_a_node_that_gets_an_edge_meanwhile_is_a_conflict(graph: og.Graph) -> None:
    with graph.transaction() as tx:
        tx.append("Person", [person("Cy")])
        tx.append("Plays", [edge("Cy", "red")])
    slow = og.open(graph.root).transaction()
    slow.delete("Person", ids=["Cy"])
    with graph.transaction() as tx:
        tx.append("Knows", [edge("Ann", "Cy")])
    with pytest.raises(VersionConflictError) as refused:
        slow.__exit__(None, None, None)
    assert refused.value.to_dict()["manifest_conflict"]["table_key"] == "edge:Knows"
    assert graph.snapshot().count("Person") == 3


def test_a_deletion_is_not_stopped_by_edges_that_do_not_concern_it(graph: og.Graph) -> None:
    with graph.transaction() as tx:
        tx.append("Person", [person("Cy")])
        tx.append("Plays", [edge("Cy", "red")])
    slow = og.open(graph.root).transaction()
    slow.delete("Person", ids=["Cy"])
    with graph.transaction() as tx:
        tx.append("Knows", [edge("Bob", "Ann")])
    slow.__exit__(None, None, None)
    assert graph.snapshot().count("Person") == 2


def test_of_two_inserts_of_one_unique_value_one_lands(graph: og.Graph) -> None:
    slow = og.open(graph.root).transaction()
    slow.append("Person", [person("Cy", email="same")])
    slow.append("Plays", [edge("Cy", "red")])
    with graph.transaction() as tx:
        tx.append("Person", [person("Di", email="same")])
        tx.append("Plays", [edge("Di", "red")])
    with pytest.raises(ConstraintError, match=r"@unique\(email\)"):
        slow.__exit__(None, None, None)
    assert graph.snapshot().count("Person", "email = 'same'") == 1


def test_of_two_edges_where_one_may_be_one_lands(graph: og.Graph) -> None:
    slow = og.open(graph.root).transaction()
    slow.append("Leads", [edge("Bob", "blue")])
    with graph.transaction() as tx:
        tx.append("Team", [{"name": "green"}])
        tx.append("Leads", [edge("Bob", "green")])
    with pytest.raises(ConstraintError, match=r"@card\(0\.\.1\)"):
        slow.__exit__(None, None, None)
    assert graph.snapshot().count("Leads", "src = 'Bob'") == 1


def test_writers_that_do_not_disturb_each_other_all_land(graph: og.Graph) -> None:
    slow = og.open(graph.root).transaction()
    slow.append("Knows", [edge("Ann", "Bob")])
    with graph.transaction() as tx:
        tx.append("Person", [person("Cy", email="cy")])
        tx.append("Plays", [edge("Cy", "red")])
    slow.__exit__(None, None, None)
    assert graph.snapshot().count("Knows") == 2


ALIKE = "a beginning that all have {:02} and an ending that all have"


@pytest.mark.parametrize("alike", [False, True])
@pytest.mark.parametrize("together", [1, 7, 2**20])
@pytest.mark.parametrize("indexed", [True, False])
def test_ends_are_found_however_many_they_are_and_however_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, alike: bool, together: int, indexed: bool
) -> None:
    for module in ("integrity", "portions"):
        monkeypatch.setattr(f"omnigraph.engine.{module}.ROWS_TOGETHER_MAX", together)
    graph = og.init(tmp_path / "g", "node P { name: String @key }\nedge K: P -> P")
    # Those that differ in the middle only have one fingerprint, also with nodes that are not there.
    *names, gone = [ALIKE.format(n) if alike else f"{'x' * (n % 50)}{n}" for n in range(41)]
    with graph.transaction() as tx:
        tx.append("P", [{"name": name} for name in names])
    if indexed:
        graph.ensure_indices()
    with graph.transaction() as tx:
        tx.append("P", [{"name": "new"}])
        tx.append("K", [{"src": name, "dst": "new"} for name in names] + [{"src": "new", "dst": names[0]}])
    with pytest.raises(ConstraintError) as refused, graph.transaction() as tx:
        tx.append("K", [{"src": name, "dst": f"{name}?" if n % 10 == 0 else name} for n, name in enumerate(names)])
    (violation,) = refused.value.to_dict()["violations"]
    assert violation["count"] == 4
    assert sorted(row["dst"] for row in violation["sample"]) == sorted(f"{name}?" for name in names[::10])
    for first in (gone, names[0]):
        with pytest.raises(ConstraintError) as refused, graph.transaction() as tx:
            tx.append("K", [{"src": first, "dst": gone}, {"src": gone, "dst": first}])
        assert {
            row[end] for one in refused.value.violations for row in one["sample"] for end in row.keys() & {"src", "dst"}
        } == {gone}
    assert graph.snapshot().count("K") == 41


class Watched(EmbeddedEngine):
    """An engine that notes what it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    def run(self, sql: str, relations: Mapping[str, Relation], values: Values = ()) -> pa.RecordBatchReader:
        self.asked.append(sql)
        return super().run(sql, relations, values)


def test_any_engine_can_run_the_plans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Watched()
    monkeypatch.setattr("omnigraph.engine.integrity.ENGINE", engine)
    graph = og.init(tmp_path / "g", "node P { name: String @key  mail: String? @unique }\nedge K: P -> P @card(0..1)")
    with graph.transaction() as tx:
        tx.append("P", [{"name": "a", "mail": "m"}, {"name": "b"}])
        tx.append("K", [{"src": "a", "dst": "b"}])
    for type, row in (
        ("P", {"name": "c", "mail": "m"}),
        ("K", {"src": "a", "dst": "b"}),
        ("K", {"src": "b", "dst": "x"}),
    ):
        with pytest.raises(ConstraintError), graph.transaction() as tx:
            tx.append(type, [row])
    assert {constraints.TAKEN_VALUES.sql, constraints.CARDINALITY.sql, constraints.MISSING_ENDPOINTS.sql} <= set(
        engine.asked
    )


@pytest.mark.parametrize("near", [False, True])
def test_a_column_that_is_declared_after_a_blob_is_checked_too(tmp_path: Path, near: bool) -> None:
    graph = og.init(
        tmp_path / "g", "node P { name: String @key  picture: Blob?  tags: [String]?  mail: String? @unique }"
    )
    with Near() as engine:
        handle = graph.with_engine(engine) if near else graph
        with handle.transaction() as tx:
            tx.append("P", [{"name": "a", "mail": "m", "picture": b"abc"}])
        with pytest.raises(ConstraintError), handle.transaction() as tx:
            tx.append("P", [{"name": "b", "mail": "m"}])
    assert graph.snapshot().read("P").to_pylist() == [
        {"id": "a", "name": "a", "picture": b"abc", "tags": None, "mail": "m"}
    ]


def test_an_engine_with_machines_is_asked_about_large_writes_only(tmp_path: Path) -> None:
    class Asked(Near, Watched):
        rows_min = 3

    engine = Asked()
    graph = filled(tmp_path / "g").with_engine(engine)
    with graph.transaction() as tx:
        tx.append("Knows", [edge("Ann", "Bob"), edge("Bob", "Ann")])
    assert engine.asked == []
    with graph.transaction() as tx:
        tx.append("Knows", [edge("Ann", "Bob"), edge("Bob", "Ann"), edge("Ann", "Ann")])
    assert engine.asked == [constraints.MISSING_ENDPOINTS.sql] * 2
