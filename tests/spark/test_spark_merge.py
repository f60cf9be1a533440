"""Merges on Spark: the cases of the embedded engine, worked out by jobs, with the same answers."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.engine.diff_kit import EVERYTHING, VALUES
from tests.engine.merge_kit import SCHEMA as PEOPLE
from tests.engine.merge_kit import content, person
from tests.engine.truth_kit import IS_DEEP, ON_SPARK, SETTLED, check_pair, check_policy, truth_graph
from tests.engine.two_branches_kit import ages, clash, crossed, files, graph, upsert
from tests.spark.merge_spark_kit import by_jobs, nothing_in_the_driver

import omnigraph as og
from omnigraph.engine.integrity import ENGINE
from omnigraph.errors import MergeConflictsError
from omnigraph.model.merges import Outcome
from omnigraph.rules.merge_plans import TWO_BASES
from omnigraph.storage.relations import Relation
from pyspark_omnigraph import SparkGraph
from pyspark_omnigraph.engine import SparkEngine

__all__ = ["graph"]  # a fixture

ROW = pa.struct([pa.field("c0", pa.int32()), pa.field("c1", pa.list_(pa.float64()))])


@pytest.fixture(scope="module")
def truth(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> SparkGraph:
    """The graph of the truth table, whose merges are jobs."""
    return by_jobs(spark, truth_graph(tmp_path_factory.mktemp("truth")))


@pytest.mark.parametrize(("source", "target"), ON_SPARK)
def test_the_truth_table_of_merges_holds_on_spark(truth: SparkGraph, source: str, target: str) -> None:
    with nothing_in_the_driver():
        check_pair(truth.graph, source, target)


@pytest.mark.parametrize(("source", "target", "policy"), SETTLED if IS_DEEP else SETTLED[:1])
def test_policies_settle_on_spark_what_they_settle_elsewhere(
    truth: SparkGraph, source: str, target: str, policy: str
) -> None:
    with nothing_in_the_driver():
        check_policy(truth.graph, source, target, policy)


def rows_of(conflicts: "pa.Table | DataFrame") -> list[tuple[Any, ...]]:
    told = conflicts if isinstance(conflicts, pa.Table) else conflicts.toArrow()
    return sorted((tuple(row.values()) for row in told.to_pylist()), key=repr)


def test_every_kind_of_conflict_comes_as_a_dataframe_and_none_leaves_a_trace(
    spark: SparkSession, graph: og.Graph
) -> None:
    clash(graph)
    before = files(graph)
    with nothing_in_the_driver():
        found = by_jobs(spark, graph).conflicts("review", "main")
    assert found.columns == ["table_key", "row_id", "kind", "message", "base", "ours", "theirs"]
    assert rows_of(found) == rows_of(graph.branches.conflicts("review").read_all())
    assert found.where("kind = 'DivergentUpdate'").selectExpr("get_json_object(ours, '$.age')").first()[0] == "91"  # type: ignore[index]
    assert files(graph) == before


def test_few_rows_are_merged_in_the_driver_and_conflicts_are_a_dataframe_all_the_same(
    spark: SparkSession, graph: og.Graph
) -> None:
    clash(graph)
    small = SparkGraph(spark, graph)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(small.engine), "kept", lambda *_: pytest.fail("so few rows are not worth a job"))
        assert small.merge("review", "main", dry_run=True).outcome is Outcome.CONFLICTS
        assert rows_of(small.conflicts("review")) == rows_of(graph.branches.conflicts("review").read_all())


KNOWN = pa.schema([("id", pa.string()), ("old", ROW), ("new", ROW), ("torn", pa.bool_())])


def told(place: int) -> pa.Table:
    """What became of rows since a base: every way that three bases can have them, in one place of a number's digits."""
    rows = []
    for number in range(5**3):
        way = number // 5**place % 5
        image = {"c0": None if way == 2 else way, "c1": [math.nan, None]}
        if way < 4:
            new = None if way == 3 else image
            rows.append({"id": str(number), "old": {"c0": 9, "c1": []}, "new": new, "torn": way == 0 and place == 1})
    return pa.Table.from_pylist(rows, KNOWN)


def test_bases_of_histories_that_crossed_are_made_one_on_spark_as_they_are_elsewhere(spark: SparkSession) -> None:
    relations: dict[str, Relation] = {"one": told(0), "other": told(1), "older": told(2)}
    here = ENGINE.run(TWO_BASES, relations).read_all()
    assert set(here.column("torn").to_pylist()) == {True, False}
    there = SparkEngine(spark, 0).run(TWO_BASES, relations).read_all()
    assert repr(rows_of(there)) == repr(rows_of(here)), "as text, because a NaN is no other"


@pytest.mark.skipif(not IS_DEEP, reason="its plan is run above, and all the rest by every other merge")
def test_histories_that_crossed_are_told_apart_on_spark(spark: SparkSession, graph: og.Graph) -> None:
    crossed(graph)
    upsert(graph, "review", person("Ann", age=0))
    upsert(graph, "main", person("Ben", age=1))
    with nothing_in_the_driver():
        assert len(by_jobs(spark, graph).merge("review").bases) == 2
    assert (ages(graph)["Ann"], ages(graph)["Ben"]) == (0, 1), "a change that was taken back is not lost"


# -- all types, many rows -------------------------------------------------------------------------------


def things(side: int, *names: str, **more: Any) -> list[dict[str, Any]]:
    values = {column: pair[side] for column, pair in VALUES.items()}
    return [{"name": name, **values, **more} for name in names]


def put(graph: og.Graph, branch: str, rows: list[dict[str, Any]], type: str = "Thing") -> None:
    upsert(graph, branch, *rows, type=type)


def twins(graph: og.Graph) -> tuple[str, str]:
    """Two branches at the head of main."""
    for name in ("here", "there"):
        graph.branches.create(name)
    return "here", "there"


def test_values_of_every_type_are_merged_on_spark_as_they_are_elsewhere(spark: SparkSession, tmp_path: Path) -> None:
    graph = og.init(tmp_path / "g", EVERYTHING)
    put(graph, "main", [*things(0, "a", "b", "c", "d", "e"), {"name": "none"}])
    graph.branches.create("review")
    put(graph, "review", [*things(1, "a", "new"), *things(0, "b", picture=b"theirs"), *things(1, "none")])
    put(graph, "main", [*things(0, "b", text="ours"), *things(0, "c", i32=7), {"name": "d"}])
    here, there = twins(graph)
    for branch, merge in ((here, graph.branches.merge), (there, by_jobs(spark, graph).merge)):
        result = merge("review", branch, policy="cell")
        counts = result.tables["node:Thing"]
        assert (counts.rows_inserted, counts.rows_updated, counts.rows_deleted) == (1, 3, 0)
    merged = {row["id"]: row for row in graph.snapshot(there).read("Thing").to_pylist()}
    assert merged == {row["id"]: row for row in graph.snapshot(here).read("Thing").to_pylist()}
    assert (merged["b"]["text"], merged["b"]["picture"]) == ("ours", b"theirs")
    assert merged["new"]["u64"] == VALUES["u64"][1]


def many(first: int, last: int, **more: Any) -> list[dict[str, Any]]:
    return [person(f"p{number:05}", **more) for number in range(first, last)]


def test_only_counts_and_what_tasks_staged_come_to_the_driver(spark: SparkSession, tmp_path: Path) -> None:
    graph = og.init(tmp_path / "g", PEOPLE)
    for first in (0, 2_000, 4_000):
        put(graph, "main", many(first, first + 2_000, age=1), type="Person")
    graph.branches.create("review")
    put(graph, "review", many(1_500, 4_500, age=2) + many(9_000, 9_500, age=2), type="Person")
    with graph.transaction("review") as tx:
        tx.delete("Person", "name < 'p00400'")
    put(graph, "main", many(4_500, 5_000, city="Ulm"), type="Person")
    here, there = twins(graph)
    expected = graph.branches.merge("review", here)
    with nothing_in_the_driver() as came:
        result = by_jobs(spark, graph).merge("review", there)
    assert result.tables == expected.tables
    assert result.tables["node:Person"].rows_updated == 3_000
    assert content(graph, there) == content(graph, here)
    assert came, "jobs have answered"
    assert max(came) <= 4, "what comes back are heaps that were counted, and tasks that staged"
    assert len(graph.commit(str(result.commit)).parents) == 2


def test_values_that_were_never_checked_are_found_where_they_are(
    spark: SparkSession, rooted: Callable[[str], str]
) -> None:
    graph = og.open(rooted("node A { k: String @key  n: I32? @range(n, 0..9)\n c: enum(red, green)? }"))
    put(graph, "main", [{"k": "z", "n": 1}], type="A")
    graph.branches.create("review")
    with graph.transaction("review", constraints="off") as tx:
        tx.append("A", [{"k": "x", "n": 10, "c": "blue"}, {"k": "y", "n": 9, "c": "red"}])
    put(graph, "main", [{"k": "z", "n": 2}], type="A")
    with nothing_in_the_driver(), pytest.raises(MergeConflictsError) as refused:
        by_jobs(spark, graph).merge("review")
    assert refused.value.conflict_counts == {"node:A": {"ValueConstraintViolation": 2}}
    assert {each.row_id for each in refused.value.conflicts} == {"x"}
