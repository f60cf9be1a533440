"""Conflicts of a merge: all of them told, none of them leaving a trace, and policies that settle them."""

from pathlib import Path
from typing import Any

import pytest
from tests.engine.merge_kit import knows, person
from tests.engine.two_branches_kit import ages, clash, delete, files, graph, upsert

import omnigraph as og
from omnigraph.errors import MergeConflictsError
from omnigraph.model.merges import Outcome

__all__ = ["graph"]  # a fixture


# -- conflicts ------------------------------------------------------------------------------------------


def test_all_conflicts_of_all_tables_are_told_together(graph: og.Graph) -> None:
    clash(graph)
    with pytest.raises(MergeConflictsError, match="have 6 conflicts") as refused:
        graph.branches.merge("review")
    assert refused.value.conflict_counts == {
        "node:Person": {"DivergentUpdate": 1, "DeleteVsUpdate": 1, "DivergentInsert": 1, "UniqueViolation": 1},
        "edge:Boss": {"CardinalityViolation": 1},
        "edge:Knows": {"OrphanEdge": 1},
    }
    told = {(each["table_key"], each["row_id"], each["kind"]) for each in refused.value.to_dict()["merge_conflicts"]}
    assert told >= {
        ("node:Person", "Ann", "DivergentUpdate"),
        ("node:Person", "Cid", "DeleteVsUpdate"),
        ("node:Person", "New", "DivergentInsert"),
        ("edge:Knows", "k9", "OrphanEdge"),
        ("edge:Boss", "Dan", "CardinalityViolation"),
    }
    assert refused.value.to_dict()["code"] == "conflict"
    assert not refused.value.retryable


def test_a_conflict_shows_the_row_as_base_target_and_source_have_it(graph: og.Graph) -> None:
    clash(graph)
    with pytest.raises(MergeConflictsError) as refused:
        graph.branches.merge("review")
    by_id = {each.row_id: each for each in refused.value.conflicts}
    ann, cid, new = by_id["Ann"], by_id["Cid"], by_id["New"]
    assert [side["age"] for side in (ann.base, ann.ours, ann.theirs)] == [0, 91, 90]
    assert ann.message == "both sides changed it: age is 91 here and 90 there"
    assert (cid.base["age"], cid.ours, cid.theirs["age"]) == (2, None, 80)
    assert cid.message == "the target deleted it, and the source changed it"
    assert (new.base, new.ours["age"], new.theirs["age"]) == (None, 2, 1)


def test_a_conflict_leaves_the_graph_byte_for_byte_as_it_was(graph: og.Graph) -> None:
    clash(graph)
    before, head = files(graph), graph.refresh()
    with pytest.raises(MergeConflictsError):
        graph.branches.merge("review", delete_source=True)
    assert files(graph) == before
    assert graph.refresh() == head
    assert graph.branches.get("review").head


def test_a_dry_run_says_all_of_it_and_writes_nothing(graph: og.Graph) -> None:
    clash(graph)
    before = files(graph)
    result = og.open(graph.root, read_only=True).branches.merge("review", dry_run=True)
    assert (result.outcome, result.commit, result.dry_run) == (Outcome.CONFLICTS, None, True)
    assert sum(sum(kinds.values()) for kinds in result.conflict_counts.values()) == 6
    settled = graph.branches.merge("review", dry_run=True, policy="theirs", delete_source=True)
    assert settled.conflict_counts == {
        "node:Person": {"UniqueViolation": 1},
        "edge:Boss": {"CardinalityViolation": 1},
        "edge:Knows": {"OrphanEdge": 1},
    }
    assert files(graph) == before
    assert ">edge:Boss</td>" in result._repr_html_()


def test_a_dry_run_of_a_merge_that_would_go_well_counts_what_would_come(graph: og.Graph) -> None:
    upsert(graph, "review", person("Ann", age=90))
    upsert(graph, "main", person("Dan", age=93))
    before = files(graph)
    result = graph.branches.merge("review", dry_run=True)
    assert (result.outcome, result.commit) == (Outcome.MERGED, None)
    assert result.tables["node:Person"].rows_updated == 1
    assert files(graph) == before


def test_every_conflict_can_be_read_with_both_sides_as_json(graph: og.Graph) -> None:
    upsert(graph, "review", *(person(f"n{n}", age=1) for n in range(1_500)))
    upsert(graph, "main", *(person(f"n{n}", age=2) for n in range(1_500)))
    found = graph.branches.conflicts("review").read_all()
    assert found.num_rows == 1_500
    assert set(found.column("kind").to_pylist()) == {"DivergentInsert"}
    assert '"age": 2' in found.column("ours")[0].as_py()
    with pytest.raises(MergeConflictsError) as refused:
        graph.branches.merge("review")
    assert (refused.value.conflict_counts["node:Person"]["DivergentInsert"], len(refused.value.conflicts)) == (
        1_500,
        1_000,
    )
    assert graph.branches.conflicts("review", policy="ours").read_all().num_rows == 0


# -- policies -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("policy", "age"), [("ours", 91), ("theirs", 90)])
def test_a_policy_settles_rows_that_both_changed_and_takes_the_rest_as_ever(
    graph: og.Graph, policy: str, age: int
) -> None:
    upsert(graph, "review", person("Ann", age=90), person("Ben", age=70))
    delete(graph, "review", "Cid")
    upsert(graph, "main", person("Ann", age=91), person("Cid", age=80))
    assert graph.branches.merge("review", policy=policy).outcome is Outcome.MERGED
    found = ages(graph)
    assert (found["Ann"], found["Ben"]) == (age, 70)
    assert found.get("Cid") == (80 if policy == "ours" else None)


def test_a_policy_can_be_chosen_by_type(graph: og.Graph) -> None:
    upsert(graph, "review", person("Ann", age=90))
    upsert(graph, "review", knows("k1", "Ann", "Ben", 1990), type="Knows")
    upsert(graph, "main", person("Ann", age=91))
    upsert(graph, "main", knows("k1", "Ann", "Ben", 1991), type="Knows")
    with pytest.raises(MergeConflictsError) as refused:
        graph.branches.merge("review", policy={"Person": "theirs"})
    assert refused.value.conflict_counts == {"edge:Knows": {"DivergentUpdate": 1}}
    graph.branches.merge("review", policy={"node:Person": "theirs", "*": "ours"})
    assert ages(graph)["Ann"] == 90
    assert graph.snapshot().read("Knows").to_pylist()[0]["since"] == 1991


def test_cells_of_different_columns_merge_and_those_of_one_column_conflict(graph: og.Graph) -> None:
    upsert(graph, "review", person("Ann", age=90), person("Ben", age=1, city="Ulm"), person("Cid", age=2, mail="c@x"))
    upsert(graph, "main", person("Ann", age=91), person("Ben", age=91), person("Cid", age=2, city="Bonn", mail="c@x"))
    with pytest.raises(MergeConflictsError) as refused:
        graph.branches.merge("review", policy="cell")
    assert [each.row_id for each in refused.value.conflicts] == ["Ann"]
    upsert(graph, "main", person("Ann", age=90))
    graph.branches.merge("review", policy="cell")
    assert graph.snapshot().entity("Person", "Ben") == person("Ben", age=91, city="Ulm")
    assert graph.snapshot().entity("Person", "Cid") == person("Cid", age=2, city="Bonn", mail="c@x")


def test_blobs_are_merged_with_their_rows_and_cell_by_cell(tmp_path: Path) -> None:
    graph = og.init(tmp_path / "g", "node Doc { name: String @key  n: I32?  one: Blob?  two: Blob? }")

    def put(branch: str, *rows: dict[str, Any]) -> None:
        upsert(graph, branch, *rows, type="Doc")

    put("main", *({"name": name, "n": 0, "one": b"1" * 9, "two": b"2" * 9} for name in ("a", "b", "c", "d")))
    graph.branches.create("review")
    put("review", {"name": "a", "n": 1, "one": b"theirs" * 20_000, "two": b"2" * 9}, {"name": "new", "two": b"n"})
    put("review", {"name": "b", "n": 0, "one": b"1" * 9, "two": None})
    put("main", {"name": "a", "n": 0, "one": b"1" * 9, "two": b"ours" * 20_000}, {"name": "c", "n": 5})
    with pytest.raises(MergeConflictsError, match="blob") as refused:
        graph.branches.merge("review")
    assert refused.value.conflict_counts == {"node:Doc": {"DivergentUpdate": 1}}
    graph.branches.merge("review", policy="cell")
    found = {row["id"]: (row["n"], row["one"], row["two"]) for row in graph.snapshot().read("Doc").to_pylist()}
    assert found == {
        "a": (1, b"theirs" * 20_000, b"ours" * 20_000),
        "b": (0, b"1" * 9, None),
        "c": (5, None, None),
        "d": (0, b"1" * 9, b"2" * 9),
        "new": (None, None, b"n"),
    }


# -- constraints ----------------------------------------------------------------------------------------


def test_an_adopted_table_counts_when_constraints_are_checked(graph: og.Graph) -> None:
    delete(graph, "review", "Eve")
    upsert(graph, "main", knows("k9", "Ann", "Eve"), type="Knows")
    with pytest.raises(MergeConflictsError) as refused:
        graph.branches.merge("review")
    assert refused.value.conflict_counts == {"edge:Knows": {"OrphanEdge": 1}}
    delete(graph, "main", "k9", type="Knows")
    assert graph.branches.merge("review").outcome is Outcome.MERGED


def test_values_that_were_never_checked_are_conflicts_when_they_are_merged(tmp_path: Path) -> None:
    graph = og.init(
        tmp_path / "g",
        "node A { k: String @key  n: I32? @range(n, 0..9)\n c: enum(red, green)? }\nnode B { k: String @key }",
    )
    graph.branches.create("review")
    with graph.transaction("review", constraints="off") as tx:
        tx.append("A", [{"k": "x", "n": 10, "c": "blue"}, {"k": "y", "n": 9, "c": "red"}])
    upsert(graph, "main", {"k": "z"}, type="B")
    with pytest.raises(MergeConflictsError) as refused:
        graph.branches.merge("review")
    assert refused.value.conflict_counts == {"node:A": {"ValueConstraintViolation": 2}}
    assert {each.row_id for each in refused.value.conflicts} == {"x"}
