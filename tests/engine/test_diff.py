"""The difference between two commits: which rows, what became of them, and how few of the others are looked at."""

import math
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.engine.diff_kit import EVERYTHING, VALUES

import omnigraph as og
from omnigraph.engine.diffing import Diff
from omnigraph.errors import CommitNotFoundError, RefNotFoundError, TypeNotFoundError
from omnigraph.model.schema import NodeType
from omnigraph.rules.row_changes import compared
from omnigraph.rules.schema_compile import FreshIds, compile_schema
from omnigraph.testing.places import place

SCHEMA = """
node Person { name: String @key  age: I32?  score: F64?  bio: String? }
edge Knows: Person -> Person { since: I32? }
"""


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    """Main at version 2 with ten people, two of whom know each other."""
    graph = og.init(tmp_path / "g", SCHEMA)
    with graph.transaction() as tx:
        tx.append("Person", [{"name": f"p{n}", "age": n} for n in range(10)])
        tx.append("Knows", [{"id": "k1", "src": "p1", "dst": "p2", "since": 2000}])
    return graph


def rows(diff: Diff, type: str = "Person") -> dict[str, dict[str, Any]]:
    return {row["id"]: row for row in diff.rows(type).read_all().to_pylist()}


def looked_at(diff: Diff, type: str = "Person") -> tuple[int, int]:
    """How many rows of either side are read at all."""
    old, new = diff._of(type).pieces
    return sum(piece.rows for piece in old), sum(piece.rows for piece in new)


def upsert(graph: og.Graph, *people: dict[str, Any], branch: str = "main") -> None:
    with graph.transaction(branch) as tx:
        tx.upsert("Person", list(people))


def test_inserts_updates_and_deletes_come_with_both_images_and_what_changed(graph: og.Graph) -> None:
    graph.branches.create("review")
    upsert(graph, {"name": "p3", "age": 33}, {"name": "new", "bio": "x"}, branch="review")
    with graph.transaction("review") as tx:
        tx.delete("Person", ids=["p1"])
    diff = graph.diff("main", "review")
    assert {key: each.to_dict() for key, each in diff.tables.items()} == {
        "node:Person": {"inserted": 1, "updated": 1, "deleted": 1},
        "edge:Knows": {"inserted": 0, "updated": 0, "deleted": 1},
    }
    people = rows(diff)
    assert set(people) == {"p3", "new", "p1"}
    assert people["p3"] == {
        "change": "update",
        "id": "p3",
        "changed": ["age"],
        "before": {"name": "p3", "age": 3, "score": None, "bio": None},
        "after": {"name": "p3", "age": 33, "score": None, "bio": None},
    }
    assert (people["new"]["change"], people["new"]["changed"], people["new"]["before"]) == ("insert", None, None)
    assert people["new"]["after"]["bio"] == "x"
    assert (people["p1"]["change"], people["p1"]["before"]["age"], people["p1"]["after"]) == ("delete", 1, None)
    (edge,) = diff.rows("Knows").read_all().to_pylist()
    assert (edge["change"], edge["src"], edge["dst"], edge["before"]["since"]) == ("delete", "p1", "p2", 2000)


def test_the_other_way_round_inserts_are_deletes_and_images_change_places(graph: og.Graph) -> None:
    upsert(graph, {"name": "p3", "age": 33}, {"name": "new"})
    there, back = graph.diff("main@2", "main@3"), graph.diff("main@3", "main@2")
    turned = {"insert": "delete", "delete": "insert", "update": "update"}
    for id, row in rows(there).items():
        other = rows(back)[id]
        assert (turned[row["change"]], row["before"], row["after"]) == (
            other["change"],
            other["after"],
            other["before"],
        )
    assert back.tables["node:Person"].to_dict() == {"inserted": 0, "updated": 1, "deleted": 1}


def test_an_edge_that_is_led_elsewhere_is_an_update_with_its_new_ends(graph: og.Graph) -> None:
    with graph.transaction() as tx:
        tx.upsert("Knows", [{"id": "k1", "src": "p1", "dst": "p9", "since": 2000}])
    (edge,) = graph.diff("main@2", "main").rows("Knows").read_all().to_pylist()
    assert (edge["change"], edge["src"], edge["dst"], edge["changed"]) == ("update", "p1", "p9", ["dst"])
    assert edge["before"]["dst"] == "p2"


def test_a_commit_can_be_named_in_every_way(graph: og.Graph) -> None:
    graph.tags.create("before")
    old = graph.refresh()
    upsert(graph, {"name": "new"})
    snapshot = graph.snapshot()
    for first in ("before", "main@2", old.id, old, graph.snapshot(version=2)):
        for second in ("main", "main@3", snapshot, snapshot.commit):
            assert list(rows(graph.diff(first, second))) == ["new"]
    with pytest.raises(RefNotFoundError, match="did you mean 'main'"):
        graph.diff("mian", "main")
    with pytest.raises(CommitNotFoundError, match="has no version 9"):
        graph.diff("main@9", "main")
    with pytest.raises(TypeNotFoundError, match="did you mean 'Person'"):
        graph.diff("before", "main").rows("Persn")


def test_a_commit_and_itself_and_commits_without_rows_do_not_differ(graph: og.Graph) -> None:
    upsert(graph, {"name": "x"})
    graph.restore("main", "main@2")
    graph.ensure_indices()
    for old, new in (("main", "main"), ("main@2", "main"), ("main@1", "main@1")):
        diff = graph.diff(old, new)
        assert diff.is_empty
        assert diff.tables == {}
        assert diff.rows("Person").read_all().num_rows == 0
    everything = graph.diff("main@1", "main")
    assert everything.tables["node:Person"].to_dict() == {"inserted": 10, "updated": 0, "deleted": 0}
    assert len(rows(everything)) == 10


def test_rows_that_are_written_again_as_they_are_do_not_differ(graph: og.Graph) -> None:
    with graph.transaction() as tx:
        tx.overwrite("Person", [{"name": f"p{n}", "age": n} for n in range(10)])
    diff = graph.diff("main@2", "main")
    assert looked_at(diff) == (10, 10)
    assert diff.is_empty
    assert rows(diff) == {}


def test_a_row_that_goes_and_comes_back_the_same_does_not_differ(graph: og.Graph) -> None:
    with graph.transaction() as tx:
        tx.delete("Person", ids=["p7", "p8"])
    upsert(graph, {"name": "p7", "age": 7}, {"name": "p8", "age": 88})
    diff = graph.diff("main@2", "main")
    assert diff.tables["node:Person"].to_dict() == {"inserted": 0, "updated": 1, "deleted": 0}
    assert list(rows(diff)) == ["p8"]


def test_only_rows_of_files_that_differ_are_looked_at(graph: og.Graph) -> None:
    upsert(graph, *({"name": f"q{n}"} for n in range(5_000)))
    upsert(graph, {"name": "p3", "age": 33}, {"name": "q44", "age": 1})
    assert looked_at(graph.diff("main@3", "main@4")) == (2, 2)
    with graph.transaction() as tx:
        tx.delete("Person", "name = 'q7'")
    assert looked_at(graph.diff("main@4", "main@5")) == (1, 0)
    upsert(graph, {"name": "r1"})
    assert looked_at(graph.diff("main@5", "main@6")) == (0, 1)
    assert looked_at(graph.diff("main@3", "main@6")) == (3, 3)


@pytest.mark.parametrize("count", [1, 1_000, 6_000], ids=["one", "a list", "a bitmap"])
def test_rows_that_either_side_deleted_from_a_shared_file_are_found(graph: og.Graph, count: int) -> None:
    upsert(graph, *({"name": f"q{n}"} for n in range(20_000)))
    graph.branches.create("other")
    gone = {"main": {f"q{n}" for n in range(0, 2 * count, 2)}, "other": {f"q{n}" for n in range(0, 3 * count, 3)}}
    for branch, ids in gone.items():
        with graph.transaction(branch) as tx:
            tx.delete("Person", ids=sorted(ids))
    diff = graph.diff("main", "other")
    assert looked_at(diff) == (len(gone["other"] - gone["main"]), len(gone["main"] - gone["other"]))
    changes = {id: row["change"] for id, row in rows(diff).items()}
    assert {id for id, change in changes.items() if change == "delete"} == gone["other"] - gone["main"]
    assert {id for id, change in changes.items() if change == "insert"} == gone["main"] - gone["other"]


def test_deletions_in_a_form_nobody_knows_are_found_by_looking_at_all_rows(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("omnigraph.storage.lance_diff.numbers_of", lambda data: None)
    monkeypatch.setattr("omnigraph.storage.lance_diff.FEW_DELETED", "nothing")
    upsert(graph, *({"name": f"q{n}"} for n in range(1_000)))
    with graph.transaction() as tx:
        tx.delete("Person", ids=["q0", "q7", "q8", "q999"])
    diff = graph.diff("main@3", "main")
    assert looked_at(diff) == (4, 0)
    assert set(rows(diff)) == {"q0", "q7", "q8", "q999"}


def test_branches_that_wrote_files_of_the_same_number_are_not_mistaken_for_each_other(graph: og.Graph) -> None:
    graph.branches.create("left")
    graph.branches.create("right")
    upsert(graph, {"name": "l"}, branch="left")
    upsert(graph, {"name": "r"}, branch="right")
    diff = graph.diff("left", "right")
    assert {id: row["change"] for id, row in rows(diff).items()} == {"l": "delete", "r": "insert"}
    assert looked_at(diff) == (1, 1)


def test_the_rows_of_a_difference_can_be_read_in_parts_by_other_processes(graph: og.Graph) -> None:
    upsert(graph, {"name": "p3", "age": 33}, {"name": "new", "age": 1})
    changes = graph.diff("main@2", "main")._of("Person")
    for parts, wanted in ((changes.old_rows, {"p3": 3}), (changes.new_rows, {"p3": 33, "new": 1})):
        sent = [pickle.loads(pickle.dumps(part)) for part in parts]
        rows = [row for part in sent for batch in part.batches() for row in batch.to_pylist()]
        assert {row["id"]: row["row"]["c1"] for row in rows} == wanted


def test_null_nan_zero_and_the_empty_text_are_what_they_are(graph: og.Graph) -> None:
    upsert(graph, {"name": "a", "bio": None}, {"name": "b", "score": math.nan}, {"name": "c", "score": 0.0})
    with graph.transaction() as tx:
        tx.delete("Person", ids=["a", "b", "c"])
    upsert(graph, {"name": "a", "bio": ""}, {"name": "b", "score": -math.nan}, {"name": "c", "score": -0.0})
    diff = graph.diff("main@3", "main")
    assert {id: row["changed"] for id, row in rows(diff).items()} == {"a": ["bio"]}


@pytest.mark.parametrize("column", VALUES)
def test_every_type_is_compared_and_comes_back_as_it_is(tmp_path: Path, column: str) -> None:
    graph = og.init(tmp_path / "g", EVERYTHING)
    one, other = VALUES[column]
    first = {name: values[0] for name, values in VALUES.items()}
    with graph.transaction() as tx:
        tx.append(
            "Thing", [{"name": "x", **first}, {"name": "same", **first}, {"name": "none"}, {"name": "to none", **first}]
        )
    with graph.transaction() as tx:
        changed = [{"name": "x", **first, column: other}, {"name": "none", column: one}]
        tx.overwrite("Thing", [*changed, {"name": "same", **first}, {"name": "to none", **first, column: None}])
    diff = graph.diff("main@2", "main")
    found = rows(diff, "Thing")
    assert {id: row["changed"] for id, row in found.items()} == {"x": [column], "none": [column], "to none": [column]}
    assert [found["x"][side][column] for side in ("before", "after")] == [one, other]
    assert [found["none"][side][column] for side in ("before", "after")] == [None, one]
    assert [found["to none"][side][column] for side in ("before", "after")] == [one, None]
    assert diff.tables["node:Thing"].updated == 3


def test_a_type_without_columns_has_inserts_and_deletes_only(tmp_path: Path) -> None:
    graph = og.init(tmp_path / "g", "node A { }\nedge E: A -> A")
    for ids in (["a", "b"], ["b", "c"]):
        with graph.transaction() as tx:
            tx.overwrite("A", [{"id": id} for id in ids])
    diff = graph.diff("main@2", "main")
    assert {id: row["change"] for id, row in rows(diff, "A").items()} == {"a": "delete", "c": "insert"}


def test_a_difference_of_many_rows_is_streamed_in_batches(graph: og.Graph) -> None:
    many = pa.table({"name": [f"n{number:06}" for number in range(150_000)]})
    with graph.transaction() as tx:
        tx.append("Person", many)
    reader = graph.diff("main@2", "main").rows("Person")
    sizes = [batch.num_rows for batch in reader]
    assert sum(sizes) == 150_000
    assert max(sizes) < 150_000


def test_a_difference_says_what_it_is_in_plain_values_and_in_a_notebook(graph: og.Graph) -> None:
    upsert(graph, {"name": "new"})
    diff = graph.diff("main@2", "main")
    said = diff.to_dict()
    assert said["from"] == {"commit": graph.snapshot(version=2).commit.id, "branch": "main", "version": 2}
    assert said["to"]["version"] == 3
    assert said["tables"] == {"node:Person": {"inserted": 1, "updated": 0, "deleted": 0}}
    assert repr(diff) == "<Diff main@2 → main@3>"
    assert (
        '>node:Person</td><td style="text-align: right; padding: 0.2em 0.5em; white-space: nowrap">1</td>'
        in diff._repr_html_()
    )


def test_a_read_only_graph_can_be_compared(graph: og.Graph) -> None:
    upsert(graph, {"name": "new"})
    files = sorted(place(graph.root).rglob("*"))
    assert list(rows(og.open(graph.root, read_only=True).diff("main@2", "main"))) == ["new"]
    assert sorted(place(graph.root).rglob("*")) == files


# -- schemas that differ --------------------------------------------------------------------------------


def node(text: str, ids: FreshIds) -> NodeType:
    return compile_schema(text, ids).nodes[0]


def test_columns_are_compared_by_their_identity_and_those_of_one_side_are_named() -> None:
    numbers = iter(range(1_000))
    ids = FreshIds(lambda: f"{next(numbers):026}")
    old = node("node A { a: String  b: I32?  c: I32? }", ids)
    later = node("node A { a: String  b: I32?  c: I32? }", ids)
    a, _, c = old.properties

    renamed = replace(a, name="z")
    retyped = replace(c, type=later.properties[0].type)
    new = replace(old, properties=(retyped, renamed, later.properties[1]))
    table = compared(old, new)
    assert [(column.name, column.old_name, column.new_name) for column in table.columns] == [("z", "a", "z")]
    assert (table.added, table.removed) == (("c", "b"), ("b", "c"))
    alone = compared(None, new)
    assert [column.name for column in alone.columns] == ["c", "z", "b"]
    assert (alone.added, alone.removed) == ((), ())
