"""Reading the change feed through the data source and as a DataFrame: ranges, types, tasks, refusals.

With `OMNIGRAPH_DEEP=1` all of it; otherwise what `tests/spark/test_options.py`, `tests/engine/test_feed.py` and the
guide's own code do not show.
"""

import os
import random
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from tests.engine.feed_kit import TOLD, Rows, fold, rows_at
from tests.engine.merge_kit import KEYS
from tests.properties.test_feed_model import evolved, shown_at, walk
from tests.properties.test_merge_model import begun

import omnigraph as og
from omnigraph.errors import CommitNotFoundError
from pyspark_omnigraph import SparkGraph

DEEP = os.environ.get("OMNIGRAPH_DEEP") == "1"
deep = pytest.mark.skipif(not DEEP, reason="only with OMNIGRAPH_DEEP=1")


@pytest.fixture
def graph(root: str) -> og.Graph:
    """Main: version 2 inserts, 3 updates and inserts, 4 deletes."""
    graph = og.open(root)
    with graph.transaction() as tx:
        tx.append("Person", [{"name": "Ann", "age": 1}, {"name": "Ben", "age": 2}])
        tx.append("Knows", [{"id": "k", "src": "Ann", "dst": "Ben"}])
    with graph.transaction() as tx:
        tx.upsert("Person", [{"name": "Ben", "age": 22}, {"name": "Cid", "age": 3}])
    with graph.transaction() as tx:
        tx.delete("Person", ids=["Ann"])
    return graph


def read(spark: SparkSession, graph: og.Graph, **options: Any) -> DataFrame:
    said = {"readChangeFeed": "true", "type": "Person"} | options
    chosen = {name: value for name, value in said.items() if value is not None}
    return spark.read.format("omnigraph").options(**chosen).load(graph.root)


def dicts(frame: DataFrame) -> list[dict[str, Any]]:
    return sorted((row.asDict() for row in frame.collect()), key=str)


def plain(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same rows with moments as Python has them in a session of UTC."""
    told = [{**row, "_commit_timestamp": row["_commit_timestamp"].replace(tzinfo=None)} for row in rows]
    return sorted(told, key=str)


def test_the_feed_of_a_type_and_of_all_is_what_the_coordinator_tells(spark: SparkSession, graph: og.Graph) -> None:
    frame = read(spark, graph)
    assert frame.columns == ["id", "name", "age", "city", *TOLD]
    assert dicts(frame) == plain(graph.changes().rows("Person").read_all().to_pylist())
    every = read(spark, graph, type=None)
    assert dicts(every) == plain(graph.changes().rows().read_all().to_pylist())
    net = read(spark, graph, startingVersion=3, netChanges="true")
    assert dicts(net) == plain(graph.changes(since=2, net=True).rows("Person").read_all().to_pylist())
    shown = spark.read.format("omnigraph").options(readChangeFeed="true", type="Person").schema("_change_type string")
    assert sorted(row[0] for row in shown.load(graph.root).collect()) == sorted(row[TOLD[0]] for row in dicts(frame))


@deep
def test_ranges_are_named_as_delta_does_and_a_frame_ends_where_it_was_made(
    spark: SparkSession, graph: og.Graph
) -> None:
    def versions(**options: Any) -> set[int]:
        return {row["_commit_version"] for row in dicts(read(spark, graph, **options))}

    made = {each.version: each.created_at.isoformat() for each in graph.log()}
    assert versions(startingVersion=3, endingVersion=3) == {3}
    assert versions(startingTimestamp=made[3], endingTimestamp=made[3]) == {3}
    assert versions(startingTimestamp=made[3]) == {3, 4}
    assert versions(startingVersion=5) == set()
    frame = read(spark, graph)
    with graph.transaction() as tx:
        tx.append("Person", [{"name": "Late"}])
    assert {row["_commit_version"] for row in dicts(frame)} == {2, 3, 4}


@deep
@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ({"startingVersion": 9}, "startingVersion is 9, but the range ends with 4"),
        ({"startingVersion": 3, "startingTimestamp": "2026-11-01"}, "contradict each other"),
        ({"startingVersion": "latest"}, "are for streams"),
        ({"netChanges": "maybe"}, "write true or false"),
        ({"columns": "id"}, "'columns' is for reading tables and for writing only"),
        ({"readChangeFeed": "false", "startingVersion": 1}, "is for change feeds, with readChangeFeed, only"),
        ({"branch": "gone"}, "BRANCH_NOT_FOUND"),
    ],
)
def test_what_can_not_be_read_is_refused(
    spark: SparkSession, graph: og.Graph, said: dict[str, Any], problem: str
) -> None:
    with pytest.raises(AnalysisException, match=problem):
        read(spark, graph, **said).collect()


@deep
def test_a_spark_graph_gives_changes_as_a_frame_that_several_tasks_read(spark: SparkSession, graph: og.Graph) -> None:
    for start in range(0, 40_000, 10_000):
        with graph.transaction() as tx:
            tx.append("Person", [{"name": f"p{number}"} for number in range(start, start + 10_000)])
    on_spark = SparkGraph.for_path(spark, graph.root)
    frame = on_spark.changes("main", type="Person", since=4)
    assert frame.rdd.getNumPartitions() > 1
    counts = sorted(tuple(row) for row in frame.groupBy("_commit_version").count().collect())
    assert counts == [(version, 10_000) for version in (5, 6, 7, 8)]
    assert on_spark.changes(since=8).count() == 0
    with pytest.raises(CommitNotFoundError):
        on_spark.changes(since=99)


@pytest.mark.parametrize("seed", range(8 if DEEP else 1))
def test_folding_the_feed_of_a_random_history_gives_its_snapshots(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    chance = random.Random(11 + seed)
    graph, model = begun(tmp_path)
    walk(graph, model, chance)
    assert any(len(commit.parents) > 1 for commit in graph.log(limit=None)) or seed, "a walk without a merge"
    changed = 0
    for branch in ["main", *chance.sample(list(model.heads), 2 if DEEP else 1)]:
        first, last = _range(graph, branch, chance)
        said = {"branch": branch, "startingVersion": first + 1, "endingVersion": last}
        for type in KEYS:
            start, end = (rows_at(graph, type, version, branch) for version in (first, last))
            changed += _folded(spark, graph, said | {"type": type}, start, end)
    assert changed, "a walk in which nothing changes shows nothing"


@pytest.mark.parametrize("seed", range(8 if DEEP else 1))
def test_folding_a_feed_over_schemas_that_change_gives_the_last_of_them(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    chance = random.Random(600 + seed)
    graph = evolved(tmp_path, chance)
    first, last = _range(graph, "main", chance)
    start, end = shown_at(graph, first, last), rows_at(graph, "Person", last)
    assert _folded(spark, graph, {"startingVersion": first + 1, "endingVersion": last}, start, end)


def _range(graph: og.Graph, branch: str, chance: random.Random) -> tuple[int, int]:
    """Some versions of a branch, and not too few."""
    versions = graph.branches.get(branch).version
    first = chance.randint(0, versions // 2)
    return first, chance.randint(max(first + 1, versions * 3 // 4), versions)


def _folded(spark: SparkSession, graph: og.Graph, said: dict[str, Any], start: Rows, end: Rows) -> int:
    """Fold what Spark reads, and compare it with what the coordinator tells; return how many rows changed."""
    branch, type = said.get("branch", "main"), said.get("type", "Person")
    bounds = {"since": said["startingVersion"] - 1, "until": said["endingVersion"]}
    every = dicts(read(spark, graph, **said))
    assert fold(start, _pre_first(every)) == end, said
    assert every == plain(graph.changes(branch, **bounds).rows(type).read_all().to_pylist()), said
    net = dicts(read(spark, graph, netChanges="true", **said))
    assert fold(start, _pre_first(net)) == end, said
    return len(every)


def _pre_first(feed: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Tasks give rows in no order: what was comes first."""
    return sorted(feed, key=lambda row: row["_change_type"] not in ("update_preimage", "delete"))
