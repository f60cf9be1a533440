"""Streams that read what changes, and streams that write: where they begin, what a batch is, and what is refused.

With `OMNIGRAPH_DEEP=1` all of it; otherwise what `tests/spark/test_feed_offsets.py` and the guide's own code do not
show.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from tests.spark.stream_kit import SINK_SCHEMA, SOURCE_SCHEMA, events, expected, feed, landed, sink

import omnigraph as og
from pyspark_omnigraph import SparkGraph

deep = pytest.mark.skipif(os.environ.get("OMNIGRAPH_DEEP") != "1", reason="only with OMNIGRAPH_DEEP=1")


@pytest.fixture
def source(tmp_path: Path) -> og.Graph:
    """Version 2 inserts two people, 3 updates one of them."""
    graph = og.init(tmp_path / "source", SOURCE_SCHEMA)
    write(graph, Ann=1, Ben=2)
    write(graph, Ben=22)
    return graph


@pytest.fixture
def target(tmp_path: Path) -> og.Graph:
    return og.init(tmp_path / "target", SINK_SCHEMA)


def write(graph: og.Graph, **people: int) -> None:
    with graph.transaction() as tx:
        tx.upsert("Person", [{"name": name, "age": age} for name, age in people.items()])


def batches(frame: DataFrame, checkpoint: Path) -> list[list[tuple[int, str, str]]]:
    """Run a stream over all that is there, and return the rows of each of its batches."""
    found: dict[int, list[tuple[int, str, str]]] = {}

    def take(rows: DataFrame, number: int) -> None:
        told = rows.select("_commit_version", "_change_type", "id").collect()
        found[number] = sorted((row[0], row[1], row[2]) for row in told)

    chosen = frame.writeStream.foreachBatch(take).option("checkpointLocation", str(checkpoint))
    chosen.trigger(availableNow=True).start().awaitTermination()
    return [found[number] for number in sorted(found) if found[number]]  # a stream may begin with a batch of nothing


INSERTED = [(2, "insert", "Ann"), (2, "insert", "Ben")]
UPDATED = [(3, "update_postimage", "Ben"), (3, "update_preimage", "Ben")]


@deep
def test_a_stream_begins_with_what_is_there_and_goes_on_where_it_stopped(
    spark: SparkSession, source: og.Graph, tmp_path: Path
) -> None:
    now = [(3, "insert", "Ann"), (3, "insert", "Ben")]
    assert batches(feed(spark, source.root), tmp_path / "c") == [now]
    assert batches(feed(spark, source.root), tmp_path / "c") == []
    write(source, Cid=3)
    assert batches(feed(spark, source.root), tmp_path / "c") == [[(4, "insert", "Cid")]]


@deep
def test_a_stream_begins_with_a_version_a_time_or_what_comes_next(
    spark: SparkSession, source: og.Graph, tmp_path: Path
) -> None:
    third = source.refresh().created_at.isoformat()
    assert batches(feed(spark, source.root, startingVersion=1), tmp_path / "v") == [[*INSERTED, *UPDATED]]
    assert batches(feed(spark, source.root, startingTimestamp=third), tmp_path / "t") == [UPDATED]
    assert batches(feed(spark, source.root, startingVersion="latest"), tmp_path / "l") == []
    write(source, Cid=3)
    limited = feed(spark, source.root, startingVersion=1, maxCommitsPerTrigger=1)
    assert batches(limited, tmp_path / "m") == [INSERTED, UPDATED, [(4, "insert", "Cid")]]


@deep
def test_a_branch_that_was_made_anew_is_refused_and_so_is_history_that_was_cleaned_up(
    spark: SparkSession, source: og.Graph, tmp_path: Path
) -> None:
    source.branches.create("review")
    assert len(batches(feed(spark, source.root, branch="review", startingVersion=1), tmp_path / "c")) == 1
    source.branches.delete("review")
    source.branches.create("review")
    with pytest.raises(StreamingQueryException, match=r"BRANCH_CONFLICT.*deleted and created again"):
        batches(feed(spark, source.root, branch="review", startingVersion=1), tmp_path / "c")
    source.branches.delete("review")
    assert len(batches(feed(spark, source.root, startingVersion=3), tmp_path / "d")) == 1
    write(source, Cid=3)
    write(source, Dan=4)
    source.cleanup(keep=2)  # the commit that was read last goes, those that were not read stay
    assert batches(feed(spark, source.root), tmp_path / "d") == [[(4, "insert", "Cid"), (5, "insert", "Dan")]]
    with pytest.raises(StreamingQueryException, match="COMMIT_EXPIRED"):
        batches(feed(spark, source.root, startingVersion=2), tmp_path / "e")


@deep
def test_what_a_stream_can_not_read_is_refused(spark: SparkSession, source: og.Graph, tmp_path: Path) -> None:
    def attempt(**options: Any) -> None:
        batches(feed(spark, source.root, **options), tmp_path / json.dumps(options).replace("/", ""))

    refused = (AnalysisException, StreamingQueryException)
    with pytest.raises(refused, match="set readChangeFeed to true"):
        attempt(readChangeFeed="false")
    with pytest.raises(refused, match="a stream has no end"):
        attempt(endingVersion=3)
    with pytest.raises(refused, match="COMMIT_NOT_FOUND"):
        attempt(startingVersion=9)
    with pytest.raises(refused, match="lies in the future"):
        attempt(startingTimestamp="2999-01-01")


# -- sinks --------------------------------------------------------------------------------------------------


def test_each_batch_is_one_commit_and_a_restart_writes_nothing_twice(
    spark: SparkSession, source: og.Graph, target: og.Graph, tmp_path: Path
) -> None:
    stream = events(spark, source.root, startingVersion=1, maxCommitsPerTrigger=1)
    sink(stream, target.root, tmp_path / "c", actor="etl")
    assert landed(target) == expected(source)
    log = target.log()
    assert [(each.version, each.actor) for each in log[:2]] == [(3, "etl"), (2, "etl")]
    assert all(str(each.message).startswith("batch ") for each in log[:2])
    last = forget_the_last_batch(tmp_path / "c")
    sink(stream, target.root, tmp_path / "c")
    assert (landed(target), target.refresh().version) == (expected(source), 3)
    query = json.loads((tmp_path / "c" / "metadata").read_text(encoding="utf-8"))["id"]
    txn = target.last_txn(f"spark-stream:{query}")
    assert txn is not None and (txn.version, txn.commit) == (last, target.refresh().id)
    write(source, Cid=3)
    sink(events(spark, source.root), target.root, tmp_path / "c")
    assert (landed(target), target.refresh().version) == (expected(source), 4)


def forget_the_last_batch(checkpoint: Path) -> int:
    """Make a checkpoint look as if Spark had died before it noted that its last batch was done."""
    number = max(int(file.name) for file in (checkpoint / "commits").iterdir() if file.name.isdecimal())
    for file in (f"{number}", f".{number}.crc"):
        (checkpoint / "commits" / file).unlink(missing_ok=True)
    return number


@deep
def test_several_streams_write_one_branch_with_their_own_operations(
    spark: SparkSession, source: og.Graph, target: og.Graph, tmp_path: Path
) -> None:
    first = events(spark, source.root, startingVersion=1, maxCommitsPerTrigger=1)
    second = feed(spark, source.root, startingVersion=1, maxCommitsPerTrigger=1).where(
        "_change_type IN ('insert', 'update_postimage')"
    )
    newest = second.selectExpr("id AS key", "'now' AS what", "age")
    said = [("a", first, "insert"), ("b", newest, "upsert")]
    queries = [
        frame.writeStream.format("omnigraph")
        .options(type="Event", operation=operation, checkpointLocation=str(tmp_path / name))
        .trigger(availableNow=True)
        .start(target.root)
        for name, frame, operation in said
    ]
    for query in queries:
        query.awaitTermination()
    now = [("Ann", "now", 1), ("Ben", "now", 22)]
    assert landed(target) == sorted([*expected(source), *now])
    assert target.refresh().version == 5


@deep
def test_a_batch_of_several_types_is_one_commit_through_foreach_batch(
    spark: SparkSession, source: og.Graph, root: str, tmp_path: Path
) -> None:
    graph = SparkGraph.for_path(spark, root)

    def publish(rows: DataFrame, number: int) -> None:
        people = rows.where("_change_type = 'insert'").selectExpr("name", "age")
        with graph.transaction(txn=("pipeline", number)) as tx:
            tx.append("Person", people)
            tx.append("Knows", people.selectExpr("name AS src", "name AS dst"))

    frame = feed(spark, source.root, startingVersion=2).writeStream.foreachBatch(publish)
    for _ in range(2):
        frame.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start().awaitTermination()
    assert graph.refresh().version == 2
    publish(spark.read.format("omnigraph").options(readChangeFeed="true", type="Person").load(source.root), 0)
    assert (graph.refresh().version, graph.snapshot().count("Person"), graph.snapshot().count("Knows")) == (2, 2, 2)


@deep
def test_rows_that_can_not_be_taken_end_the_query_and_nothing_is_applied(
    spark: SparkSession, source: og.Graph, target: og.Graph, tmp_path: Path
) -> None:
    same = feed(spark, source.root).selectExpr("'same' AS key", "'x' AS what", "age")
    with pytest.raises(StreamingQueryException, match="INVALID_DATA"):
        sink(same, target.root, tmp_path / "a")
    wrong = feed(spark, source.root).selectExpr("id AS key", "'x' AS what", "'old' AS age")
    with pytest.raises(StreamingQueryException, match=r"INVALID_DATA.*cast it to int"):
        sink(wrong, target.root, tmp_path / "b")
    with pytest.raises(StreamingQueryException, match="known by its own id"):
        sink(events(spark, source.root), target.root, tmp_path / "c", txnAppId="me", txnVersion=1)
    with pytest.raises(StreamingQueryException, match="BRANCH_NOT_FOUND"):
        sink(events(spark, source.root), target.root, tmp_path / "d", branch="nowhere")
    assert target.refresh().version == 1
    sink(events(spark, source.root), target.root, tmp_path / "e", branch="side", createBranchFrom="main")
    assert (target.refresh().version, target.snapshot("side").count("Event")) == (1, 2)
