"""Rows staged elsewhere by an order, and taken over by a transaction that began on the same commit."""

import json
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.engine.parts import Begun, Verb, WorkOrder
from omnigraph.engine.repeats import Repeats
from omnigraph.errors import (
    BranchConflictError,
    ConstraintError,
    CorruptGraphError,
    InvalidDataError,
    InvalidOptionError,
    TransactionStateError,
    VersionConflictError,
)

SCHEMA = """
node Person { name: String @key  age: I32?  @range(age, 0..150) }
edge Knows: Person -> Person
"""


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    graph = og.init(tmp_path / "g", SCHEMA)
    with graph.transaction() as tx:
        tx.append("Person", [{"name": name, "age": 1} for name in ("Ann", "Bob", "Cid")])
        tx.append("Knows", [{"src": "Ann", "dst": "Bob"}])
    return graph


def rows(*people: tuple[str | None, int]) -> list[pa.RecordBatch]:
    return [pa.RecordBatch.from_pylist([{"name": name, "age": age}]) for name, age in people]


def ids(*names: str) -> list[pa.RecordBatch]:
    return [pa.RecordBatch.from_pydict({"id": pa.array(names, pa.string())})]


def order(graph: og.Graph, verb: Verb, type: str = "Person", **options: Any) -> WorkOrder:
    # Through a pickle, because that is how an order travels.
    made = graph.snapshot().order(type, verb, **options)
    travelled: WorkOrder = pickle.loads(pickle.dumps(made))
    return travelled


def publish(graph: og.Graph, verb: Verb, *parts: str, begun: Begun | None = None) -> og.Receipt:
    with graph.transaction(begun=begun) as tx:
        tx.staged("Person", verb, parts)
    return tx.receipt


def ages(graph: og.Graph) -> dict[str, int]:
    return {row["name"]: row["age"] for row in graph.snapshot().read("Person").to_pylist()}


def test_parts_of_every_verb_are_one_commit_with_its_receipt(graph: og.Graph) -> None:
    add = order(graph, "append")
    receipt = publish(graph, "append", add.stage(rows(("Dan", 4))), add.stage([]), add.stage(rows(("Eve", 5))))
    assert receipt.tables["node:Person"].rows_inserted == 2
    put = order(graph, "upsert")
    receipt = publish(graph, "upsert", put.stage(rows(("Ann", 9), ("Bob", 1))), put.stage(rows(("Fay", 6))))
    table = receipt.tables["node:Person"]
    assert (table.rows_inserted, table.rows_updated, table.rows_unchanged) == (1, 1, 1)
    take = order(graph, "delete")
    receipt = publish(graph, "delete", take.stage(ids("Ann", "Zoe")), take.stage(ids("Ann", "Dan")), take.stage([]))
    assert receipt.tables["node:Person"].rows_deleted == 2
    assert receipt.tables["edge:Knows"].rows_deleted == 1
    assert ages(graph) == {"Bob": 1, "Cid": 1, "Eve": 5, "Fay": 6}
    with graph.transaction() as tx:
        over = order(graph, "overwrite")
        tx.staged("Person", "overwrite", [over.stage(rows(("Bob", 2)))])
        tx.overwrite("Knows", [])
    assert ages(graph) == {"Bob": 2}


def test_no_parts_change_nothing_but_an_overwrite_empties(graph: og.Graph) -> None:
    verbs: tuple[Verb, ...] = ("append", "upsert", "delete")
    assert [publish(graph, verb).commit for verb in verbs] == [None, None, None]
    with graph.transaction() as tx:
        tx.staged("Person", "overwrite", [order(graph, "overwrite").stage([])])
        tx.overwrite("Knows", [])
    assert (tx.receipt.version, ages(graph)) == (3, {})


def test_a_table_without_rows_is_born_by_whichever_part_has_some(tmp_path: Path) -> None:
    graph = og.init(tmp_path / "new", SCHEMA)
    add = order(graph, "append")
    texts = [add.stage([]), add.stage(rows(("Ann", 1))), add.stage(rows(("Bob", 1)))]
    assert publish(graph, "append", *texts).tables["node:Person"].rows_inserted == 2


@pytest.mark.parametrize(
    ("verb", "parts", "says"),
    [
        ("append", [[("Dan", 1)], [("Dan", 2)]], "more than once"),
        ("append", [[("Dan", 1)], [("Ann", 2)]], "exist already"),
        ("upsert", [[("Dan", 1)], [("Dan", 2)]], "more than once"),
        ("upsert", [[("Ann", 2)], [("Ann", 3)]], "more than once"),
        ("upsert", [[("Ann", 1)], [("Ann", 3)]], "more than once"),
        ("upsert", [[("Ann", 1)], [("Ann", 1)]], "more than once"),
        ("overwrite", [[("Dan", 1)], [("Dan", 2)]], "more than once"),
        ("append", [[("Dan", 1)], [(None, 2)]], "required"),
    ],
)
def test_what_is_wrong_with_any_part_or_between_parts_refuses_all(
    graph: og.Graph, verb: Verb, parts: list[list[tuple[str | None, int]]], says: str
) -> None:
    made = order(graph, verb)
    texts = [made.stage(rows(*part)) for part in parts]
    with pytest.raises(InvalidDataError, match=says):
        publish(graph, verb, *texts)
    assert (graph.refresh().version, ages(graph)) == (2, {"Ann": 1, "Bob": 1, "Cid": 1})


def count_looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Note how often ids of parts are read to look for twins."""
    seen: list[int] = []
    note_all = Repeats.note_all

    def watched(self: Repeats, streams: Any) -> None:
        seen.append(len(streams))
        note_all(self, streams)

    monkeypatch.setattr(Repeats, "note_all", watched)
    return seen


@pytest.mark.parametrize("verb", ["append", "upsert", "overwrite"])
def test_ids_that_come_in_order_and_apart_are_not_read_again(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch, verb: Verb
) -> None:
    looks = count_looks(monkeypatch)
    with graph.transaction() as tx:
        tx.delete("Knows", where="src = 'Ann'")
    parts = [[("p7", 1), ("p8", 1)], [("p10", 1), ("p12", 1)], [("p9", 1)], []]
    publish(graph, verb, *(order(graph, verb).stage(rows(*part)) for part in parts))
    assert looks == []
    assert {"p7", "p8", "p9", "p10", "p12"} <= ages(graph).keys()


@pytest.mark.parametrize(
    ("parts", "is_refused"),
    [
        ([[("p7", 1), ("p9", 1)], [("p8", 1)]], False),
        ([[("p9", 1), ("p7", 1)]], False),
        ([[("p7", 1), ("p9", 1)], [("p9", 1), ("p10", 1)]], True),
        ([[("p7", 1), ("p7", 1)]], True),
    ],
)
def test_ids_that_overlap_or_come_in_any_order_are_read_again(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch, parts: list[list[tuple[str | None, int]]], is_refused: bool
) -> None:
    looks, made = count_looks(monkeypatch), order(graph, "append")
    texts = [made.stage(rows(*part)) for part in parts]
    if is_refused:
        with pytest.raises(InvalidDataError, match="more than once"):
            publish(graph, "append", *texts)
    else:
        publish(graph, "append", *texts)
    assert looks == [len(parts)]


def test_ids_given_here_and_elsewhere_are_compared_though_each_came_in_order(graph: og.Graph) -> None:
    text = order(graph, "append").stage(rows(("p1", 1), ("p2", 1)))
    with pytest.raises(InvalidDataError, match="more than once"), graph.transaction() as tx:
        tx.staged("Person", "append", [text])
        tx.append("Person", [{"name": "p2"}, {"name": "p3"}])
    with pytest.raises(InvalidDataError, match="more than once"), graph.transaction() as tx:
        tx.staged("Person", "append", [text])
        tx.staged("Person", "append", [order(graph, "append").stage(rows(("p2", 1), ("p3", 1)))])


@pytest.mark.parametrize("stretch", [[], ["a"], ["a", "b", "c"], [1, 2], "ab", {}])
def test_a_part_that_says_nonsense_of_its_ids_is_refused(graph: og.Graph, stretch: Any) -> None:
    body = json.loads(order(graph, "append").stage(rows(("Dan", 1)))) | {"stretch": stretch}
    with pytest.raises(CorruptGraphError, match="nothing was applied"):
        publish(graph, "append", json.dumps(body))


def test_rules_broken_in_several_parts_are_counted_together_unless_they_are_off(graph: og.Graph) -> None:
    add = order(graph, "append")
    texts = [add.stage(rows((f"x{number}", 200 + number))) for number in range(30)]
    with pytest.raises(ConstraintError) as caught:
        publish(graph, "append", *texts)
    (found,) = caught.value.violations
    assert (found["constraint"], found["count"], len(found["sample"])) == ("@range(age)", 30, 20)
    unchecked = order(graph, "append", is_checked=False)
    with graph.transaction(constraints="off") as tx:
        tx.staged("Person", "append", [unchecked.stage(rows(("old", 200)))])
    assert ages(graph)["old"] == 200


def test_rules_between_tables_are_checked_like_those_of_rows_given_here(graph: og.Graph) -> None:
    edges = order(graph, "append", "Knows")
    batch = pa.RecordBatch.from_pylist([{"src": "Ann", "dst": "Dan"}])
    with pytest.raises(ConstraintError, match="existing Person"), graph.transaction() as tx:
        tx.staged("Knows", "append", [edges.stage([batch])])
    with graph.transaction() as tx:
        tx.staged("Knows", "append", [edges.stage([batch])])
        tx.append("Person", [{"name": "Dan"}])
    assert graph.snapshot().count("Knows") == 2


def began(graph: og.Graph, branch: str = "main") -> Begun:
    found = graph.branches.get(branch)
    return Begun(base=found.head, incarnation=found.incarnation)


def test_work_begun_before_others_wrote_lands_if_it_commutes(graph: og.Graph) -> None:
    begun, put, take = began(graph), order(graph, "upsert"), order(graph, "delete")
    texts, gone = [put.stage(rows(("Ann", 7), ("Dan", 7)))], [take.stage(ids("Cid"))]
    with graph.transaction() as tx:
        tx.upsert("Person", [{"name": "Ann", "age": 3}, {"name": "Eve", "age": 3}])
    assert publish(graph, "upsert", *texts, begun=begun).version == 4
    assert ages(graph) == {"Ann": 7, "Bob": 1, "Cid": 1, "Dan": 7, "Eve": 3}
    with pytest.raises(VersionConflictError):
        publish(graph, "delete", *gone, begun=begun)


def test_work_that_was_staged_elsewhere_in_history_or_for_another_table_is_refused(graph: og.Graph) -> None:
    begun, put = began(graph), order(graph, "upsert")
    text = put.stage(rows(("Ann", 7)))
    with graph.transaction() as tx:
        tx.upsert("Person", [{"name": "Ann", "age": 3}])
    with pytest.raises(TransactionStateError, match="stage again"):
        publish(graph, "upsert", text)
    with pytest.raises(TransactionStateError, match="stage again"), graph.transaction(begun=begun) as tx:
        tx.staged("Knows", "upsert", [text])
    with pytest.raises(TransactionStateError, match="where 'append' belongs"):
        publish(graph, "append", text, begun=begun)


def test_a_branch_made_again_is_not_the_one_work_began_on(graph: og.Graph) -> None:
    graph.branches.create("review")
    begun = began(graph, "review")
    graph.branches.delete("review")
    graph.branches.create("review")
    with pytest.raises(BranchConflictError, match="created again"):
        graph.transaction("review", begun=begun)
    graph.branches.create("other")
    with graph.on("other").transaction() as tx:
        tx.append("Person", [{"name": "Dan"}])
    elsewhere = Begun(base=graph.branches.get("other").head)
    with pytest.raises(BranchConflictError, match="is not on branch 'main'"):
        graph.transaction("main", begun=elsewhere)


@pytest.mark.parametrize("damage", ["", "{}", "[1]", "nonsense"])
def test_text_that_is_no_part_is_refused(graph: og.Graph, damage: str) -> None:
    with pytest.raises(CorruptGraphError, match="nothing was applied"):
        publish(graph, "append", damage)


def test_a_part_of_a_later_form_is_refused(graph: og.Graph) -> None:
    body = json.loads(order(graph, "append").stage(rows(("Dan", 1)))) | {"part": 3}
    with pytest.raises(CorruptGraphError, match="not of form 2"):
        publish(graph, "append", json.dumps(body))


def test_rows_to_delete_must_name_their_ids(graph: og.Graph) -> None:
    take = order(graph, "delete")
    for batch in (
        rows(("Ann", 1))[0],
        pa.RecordBatch.from_pydict({"id": [1]}),
        pa.RecordBatch.from_pydict({"id": pa.array([None], pa.string())}),
    ):
        with pytest.raises(InvalidDataError, match="id"):
            publish(graph, "delete", take.stage([batch]))


def test_a_rerun_takes_no_parts_and_says_so(graph: og.Graph) -> None:
    add = order(graph, "append")
    for _ in range(2):
        with graph.transaction(txn=("app", 1)) as tx:
            tx.staged("Person", "append", [] if tx.is_rerun else [add.stage(rows(("Dan", 1)))])
    assert (tx.is_rerun, tx.receipt.rerun, len(ages(graph))) == (True, True, 4)


def test_rows_staged_elsewhere_can_not_be_sorted_out(graph: og.Graph) -> None:
    text = order(graph, "append").stage(rows(("Dan", 1)))
    with pytest.raises(InvalidOptionError, match="sorted out"), graph.transaction(constraints="quarantine") as tx:
        tx.staged("Person", "append", [text])
