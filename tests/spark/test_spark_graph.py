"""A graph in the driver: tables as DataFrames, transactions of several DataFrames, our own errors."""

from collections.abc import Iterator

import pytest
from pyspark.sql import DataFrame, SparkSession

import omnigraph as og
from omnigraph.errors import (
    ConstraintError,
    InvalidDataError,
    InvalidOptionError,
    MixedMutationError,
    TypeNotFoundError,
)
from pyspark_omnigraph import SparkGraph


@pytest.fixture
def graph(spark: SparkSession, root: str) -> SparkGraph:
    return SparkGraph.for_path(spark, root, actor="ann")


@pytest.fixture
def people(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([("Ann", 41), ("Bob", 30), ("Cid", 7)], "name string, age int").repartition(3)


@pytest.fixture
def knows(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([("Ann", "Bob"), ("Bob", "Cid")], "src string, dst string").repartition(2)


def test_several_frames_and_plain_rows_are_one_commit_and_two_versions_are_joined(
    graph: SparkGraph, people: DataFrame, knows: DataFrame, spark: SparkSession
) -> None:
    with graph.transaction(message="first") as tx:
        tx.append("Person", people)
        tx.append("Knows", knows)
        tx.append("Company", [{"name": "Acme"}])
    assert tx.receipt.tables["node:Person"].rows_inserted == 3
    assert tx.receipt.version == tx.base.version + 1
    assert [(commit.actor, commit.message) for commit in graph.log(limit=1)] == [("ann", "first")]
    first = tx.receipt.version
    older = graph.table("Person").selectExpr("name", "age + 1 AS age").where("name <> 'Cid'")
    with graph.transaction() as tx:
        tx.upsert("Person", older)
    assert tx.receipt.tables["node:Person"].rows_updated == 2
    now, then = graph.table("Person").alias("now"), graph.table("Person", version=first).alias("then")
    grown = now.join(then, "name").where("now.age > then.age").select("name").collect()
    assert sorted(row.name for row in grown) == ["Ann", "Bob"]
    assert graph.table("Knows", columns=["dst"], where="src = 'Ann'").collect()[0].dst == "Bob"


def test_rows_are_deleted_by_frame_and_by_filter(graph: SparkGraph, people: DataFrame, knows: DataFrame) -> None:
    with graph.transaction() as tx:
        tx.append("Person", people)
        tx.append("Knows", knows)
    with graph.transaction() as tx:
        tx.delete("Person", people.where("age < 10").selectExpr("name AS id"))
    assert tx.receipt.tables["node:Person"].rows_deleted == 1
    assert tx.receipt.tables["edge:Knows"].rows_deleted == 1
    with graph.transaction() as tx:
        tx.delete("Person", where="age > 40")
    assert [row.name for row in graph.table("Person").collect()] == ["Bob"]
    with pytest.raises(InvalidOptionError, match="one of them"), graph.transaction() as tx:
        tx.delete("Person")


def test_a_branch_is_read_and_written_through_its_handle(graph: SparkGraph, people: DataFrame) -> None:
    graph.branches.create("review")
    review = graph.on("review")
    with review.transaction() as tx:
        tx.overwrite("Person", people)
    assert (review.table("Person").count(), graph.table("Person").count()) == (3, 0)
    assert graph.table("Person", branch="review").count() == 3


def test_errors_are_our_own_and_leave_nothing(graph: SparkGraph, people: DataFrame, knows: DataFrame) -> None:
    with graph.transaction() as tx:
        tx.append("Person", people)
    before = graph.refresh().version
    with pytest.raises(InvalidDataError, match="exist already"), graph.transaction() as tx:
        tx.append("Person", people.limit(1))
    with pytest.raises(InvalidDataError, match="more than once"), graph.transaction() as tx:
        tx.upsert("Person", people.union(people).repartition(4))
    with pytest.raises(ConstraintError) as caught, graph.transaction() as tx:
        tx.append("Knows", knows.selectExpr("src", "'Zoe' AS dst"))
    assert caught.value.violations[0]["count"] == 2
    with pytest.raises(InvalidDataError, match="required"), graph.transaction() as tx:
        tx.append("Person", people.selectExpr("IF(name = 'Ann', NULL, concat(name, '2')) AS name"))
    with pytest.raises(MixedMutationError), graph.transaction() as tx:
        tx.upsert("Person", people)
        tx.delete("Person", people.selectExpr("name AS id"))
    with pytest.raises(TypeNotFoundError, match="Person"):
        graph.table("Persn")
    with pytest.raises(InvalidOptionError, match="choose one of fail, quarantine, off"):
        graph.transaction(constraints="maybe")
    assert graph.refresh().version == before


def test_a_rerun_of_a_txn_does_nothing_and_says_so(graph: SparkGraph, people: DataFrame) -> None:
    receipts = []
    for _ in range(2):
        with graph.transaction(txn=("nightly", 1)) as tx:
            tx.append("Person", people)
        receipts.append(tx.receipt)
    assert (receipts[0].commit, receipts[0].rerun) == (receipts[1].commit, not receipts[1].rerun)


@pytest.fixture
def configured(spark: SparkSession, root: str) -> Iterator[SparkGraph]:
    og.open(root).branches.create("review")
    said = {"branch": "review", "actor": "etl@nightly", "message": "by default", "maxRowsPerFile": "1"}
    for name, value in said.items():
        spark.conf.set(f"spark.omnigraph.{name}", value)
    yield SparkGraph.for_path(spark, root)
    for name in said:
        spark.conf.unset(f"spark.omnigraph.{name}")


def test_a_session_says_what_is_meant_by_default(configured: SparkGraph, people: DataFrame) -> None:
    with configured.transaction() as tx:
        tx.append("Person", people.coalesce(1))
    head = configured.refresh()
    assert (configured.branch, head.branch, head.actor, head.message) == (
        "review",
        "review",
        "etl@nightly",
        "by default",
    )
    assert tx.receipt.tables["node:Person"].files == 3


def test_progress_is_shown_under_a_name_and_the_name_is_taken_back(graph: SparkGraph, people: DataFrame) -> None:
    context = graph.spark.sparkContext
    context.setLocalProperty("spark.job.description", "mine")
    with graph.transaction() as tx:
        tx.append("Person", people)
    assert context.getLocalProperty("spark.job.description") == "mine"
    context.setLocalProperty("spark.job.description", None)  # type: ignore[arg-type]  # Spark's way to take it back
    assert repr(graph) == f"<SparkGraph {graph.root} on 'main'>"


def test_history_is_a_frame_with_metrics_by_the_names_of_delta(graph: SparkGraph, people: DataFrame) -> None:
    with graph.transaction(message="first") as tx:
        tx.append("Person", people)
    frame = graph.history(limit=1)
    (row,) = frame.collect()
    assert (row.version, row.actor, row.operation, row.message) == (tx.receipt.version, "ann", "append", "first")
    assert row.operationMetrics["numTargetRowsInserted"] == 3
    assert row.tableMetrics["node:Person"]["numOutputRows"] == 3
    assert row.commit == tx.receipt.commit
    assert ">first</td>" in graph._repr_html_()
    known = {commit.version: commit.operation for commit in graph.log(limit=None)}
    assert {each.version: each.operation for each in graph.history().collect()} == known
