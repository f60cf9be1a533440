"""Writing through the data source: the four operations, reruns, refusals, and tasks that fail or die."""

import os
import signal
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JError
from pyspark import TaskContext
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

import omnigraph as og
from omnigraph.errors import TransactionStateError
from pyspark_omnigraph import SparkGraph
from pyspark_omnigraph.writer import PartMessage, part_texts


def people(spark: SparkSession, *names: str, age: int = 1, parts: int = 3) -> DataFrame:
    return spark.createDataFrame([(name, age) for name in names], "name string, age int").repartition(parts)


def save(frame: DataFrame, root: str, mode: str = "append", **options: Any) -> None:
    frame.write.format("omnigraph").mode(mode).options(**{"type": "Person"} | options).save(root)


def ages(root: str, branch: str = "main") -> dict[str, int]:
    rows = og.open(root, read_only=True).snapshot(branch).read("Person").to_pylist()
    return {row["name"]: row["age"] for row in rows}


def test_the_four_operations_over_several_partitions_are_one_commit_each(spark: SparkSession, root: str) -> None:
    graph = og.open(root)
    before = graph.refresh().version
    save(people(spark, "Ann", "Bob", "Cid", "Dan", "Eve", "Fay"), root, actor="etl", message="first", userMetadata="u")
    assert ages(root) == dict.fromkeys(["Ann", "Bob", "Cid", "Dan", "Eve", "Fay"], 1)
    head = graph.refresh()
    assert (head.actor, head.message, head.user_metadata, head.operation) == ("etl", "first", "u", "append")
    save(people(spark, "Bob", "Cid", "Gus", age=2), root, operation="upsert")
    assert ages(root) == {"Ann": 1, "Bob": 2, "Cid": 2, "Dan": 1, "Eve": 1, "Fay": 1, "Gus": 2}
    metrics = graph.refresh().metrics["node:Person"]
    assert (metrics["rows_inserted"], metrics["rows_updated"]) == (1, 2)
    gone = spark.createDataFrame([("Ann",), ("Gus",), ("Gus",), ("Zoe",)], "id string").repartition(3)
    save(gone, root, operation="delete")
    assert sorted(ages(root)) == ["Bob", "Cid", "Dan", "Eve", "Fay"]
    assert graph.refresh().metrics["node:Person"]["rows_deleted"] == 2
    save(people(spark, "New", age=9), root, mode="overwrite")
    assert ages(root) == {"New": 9}
    assert graph.refresh().version == before + 4


def test_a_deleted_node_takes_its_edges_along(spark: SparkSession, root: str) -> None:
    save(people(spark, "Ann", "Bob", "Cid"), root)
    knows = spark.createDataFrame(
        [("Ann", "Bob", date(2020, 1, 1)), ("Bob", "Cid", None)], "src string, dst string, since date"
    )
    save(knows, root, type="Knows")
    save(spark.createDataFrame([("Ann",)], "id string"), root, operation="delete")
    left = og.open(root).snapshot().read("Knows").to_pylist()
    assert [(row["src"], row["dst"]) for row in left] == [("Bob", "Cid")]


def test_no_rows_change_nothing_but_an_overwrite_empties(spark: SparkSession, root: str) -> None:
    save(people(spark), root)
    save(people(spark), root, mode="overwrite")
    assert og.open(root).refresh().version == 1
    save(people(spark, "Ann", parts=1), root)
    save(people(spark, parts=4), root, operation="upsert")
    save(spark.createDataFrame([], "id string"), root, operation="delete")
    assert ages(root) == {"Ann": 1}
    save(people(spark), root, mode="overwrite")
    assert ages(root) == {}


def test_a_skewed_write_with_small_files_keeps_every_row_once(spark: SparkSession, root: str) -> None:
    frame = spark.range(0, 20_000, 1, 3).selectExpr(
        "concat('p', id) AS name", "CAST(id % 100 AS int) AS age", "IF(id < 100, 'few', 'many') AS city"
    )
    save(frame.repartition(4, "city"), root, maxRowsPerFile=1_000)
    graph = og.open(root)
    assert graph.snapshot().count("Person") == 20_000
    assert graph.refresh().metrics["node:Person"]["files"] >= 20


def test_rows_for_a_branch_that_is_missing_fork_it_once_they_are_there(spark: SparkSession, root: str) -> None:
    save(people(spark, "Ann"), root)
    save(people(spark, "Bob"), root, branch="review", createBranchFrom="main")
    save(people(spark, "Cid"), root, branch="review", createBranchFrom="main")
    assert (sorted(ages(root)), sorted(ages(root, "review"))) == (["Ann"], ["Ann", "Bob", "Cid"])
    with pytest.raises(AnalysisException, match=r"\[REF_NOT_FOUND\] createBranchFrom"):
        save(people(spark, "Eve"), root, branch="other", createBranchFrom="nowhere")
    with pytest.raises(AnalysisException, match=r"\[INVALID_DATA\]"):
        save(spark.createDataFrame([(None, 1)], "name string, age int"), root, branch="bad", createBranchFrom="main")
    assert [branch.name for branch in og.open(root).branches.list()] == ["main", "review"]


def test_a_rerun_of_a_txn_adds_nothing(spark: SparkSession, root: str) -> None:
    for _ in range(2):
        save(people(spark, "Ann", "Bob"), root, txnAppId="nightly", txnVersion=7)
    assert og.open(root).refresh().version == 2
    save(people(spark, "Cid"), root, txnAppId="nightly", txnVersion=8)
    assert sorted(ages(root)) == ["Ann", "Bob", "Cid"]


@pytest.mark.parametrize(
    ("rows", "columns", "options", "code", "says"),
    [
        ([("Ann", 1), ("Bob", 1)], "name string, age int", {}, "INVALID_DATA", "exist already"),
        ([("Cid", 1), ("Cid", 2)], "name string, age int", {}, "INVALID_DATA", "more than once"),
        ([("Cid", 1), ("Cid", 2)], "name string, age int", {"operation": "upsert"}, "INVALID_DATA", "more than once"),
        ([("Ann", 1), ("Ann", 5)], "name string, age int", {"operation": "upsert"}, "INVALID_DATA", "more than once"),
        ([(None, 1)], "name string, age int", {}, "INVALID_DATA", "required"),
        ([("Cid", "x")], "name string, age string", {}, "INVALID_DATA", "cast it to int"),
        ([("Cid", 1)], "name string, agee int", {}, "INVALID_DATA", "did you mean 'age'"),
        ([("Ann",)], "name string", {"operation": "delete"}, "INVALID_DATA", "column 'id'"),
        ([("Ann", "Zoe")], "src string, dst string", {"type": "Knows"}, "CONSTRAINT_VIOLATED", "existing Person"),
    ],
)
def test_rows_that_can_not_be_taken_are_refused_with_our_code_and_nothing_is_applied(
    spark: SparkSession, root: str, rows: list[Any], columns: str, options: dict[str, str], code: str, says: str
) -> None:
    save(people(spark, "Ann"), root)
    with pytest.raises(AnalysisException) as caught:
        save(spark.createDataFrame(rows, columns).repartition(2), root, **options)
    assert f"[{code}] " in str(caught.value)
    assert says in str(caught.value)
    assert (og.open(root).refresh().version, ages(root)) == (2, {"Ann": 1})


def test_rows_that_break_rules_in_several_partitions_are_counted_together(spark: SparkSession, tmp_path: Path) -> None:
    root = str(tmp_path / "ruled")
    og.init(root, "node A { x: String @key  n: I32  @range(n, 0..9) }")
    frame = spark.range(0, 40, 1, 4).selectExpr("concat('r', id) AS x", "CAST(id AS int) AS n")
    with pytest.raises(AnalysisException, match=r"\[CONSTRAINT_VIOLATED\] nothing was applied: 30 rows break"):
        save(frame, root, type="A")
    save(frame, root, type="A", constraints="off")
    assert og.open(root).snapshot().count("A") == 40


Step = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def failing(marks: Path, *, times: int) -> Step:
    """Return a step that passes rows on and then fails, so often per partition; every second one kills its worker."""

    def step(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        yield from batches
        before = len(list(marks.glob(f"{context.partitionId()}-*")))
        if before < times:
            (marks / f"{context.partitionId()}-{before}").touch()
            if context.partitionId() % 2:
                os.kill(os.getpid(), signal.SIGKILL)
            raise OSError("a task that fails")

    return step


@pytest.fixture
def marks(tmp_path: Path) -> Path:
    (tmp_path / "marks").mkdir()
    return tmp_path / "marks"


@pytest.mark.parametrize("operation", ["insert", "upsert"])
def test_tasks_that_fail_and_are_tried_again_add_nothing(
    spark: SparkSession, root: str, marks: Path, operation: str
) -> None:
    frame = people(spark, *(f"p{number}" for number in range(100)), parts=2)
    save(frame.mapInArrow(failing(marks, times=1), frame.schema), root, operation=operation)
    assert sorted(path.name for path in marks.iterdir()) == ["0-0", "1-0"]
    graph = og.open(root)
    assert (graph.refresh().version, graph.snapshot().count("Person"), len(ages(root))) == (2, 100, 100)


def test_a_frame_in_a_transaction_survives_tasks_that_are_tried_again(
    spark: SparkSession, root: str, marks: Path
) -> None:
    frame = people(spark, *(f"p{number}" for number in range(100)), parts=2)
    with SparkGraph.for_path(spark, root).transaction() as tx:
        tx.append("Person", frame.mapInArrow(failing(marks, times=1), frame.schema))
    assert sorted(path.name for path in marks.iterdir()) == ["0-0", "1-0"]
    assert tx.receipt.tables["node:Person"].rows_inserted == len(ages(root)) == 100


def test_a_task_that_never_ends_well_leaves_nothing_to_see(spark: SparkSession, root: str, marks: Path) -> None:
    frame = people(spark, *(f"p{number}" for number in range(100)), parts=2)
    with pytest.raises((PySparkException, Py4JError)):
        save(frame.mapInArrow(failing(marks, times=9), frame.schema), root)
    graph = og.open(root)
    assert (graph.refresh().version, ages(root), graph.healed) == (1, {}, ())
    save(frame, root)
    assert len(ages(root)) == 100


def test_a_partition_without_an_answer_is_refused_and_one_that_answers_twice_counts_once() -> None:
    with pytest.raises(TransactionStateError, match="without an answer"):
        part_texts([PartMessage(0, "a"), None])
    assert part_texts([PartMessage(1, "b"), PartMessage(0, "a"), PartMessage(1, "c")]) == ["a", "b"]
