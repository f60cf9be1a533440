"""Attempts of tasks that fail when they have staged, that lose, or that go on when all is over: they add nothing."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import IntegerType, StringType, StructField, StructType
from tests.spark.applications import Application
from tests.spark.fault_kit import (
    PARTITIONS,
    Fault,
    append_people,
    faulty_tasks,
    people,
    save,
    save_with,
    write_two_tables,
)
from tests.spark.speculating_child import STOPS, WAYS

import omnigraph as og
from omnigraph.testing.crash_oracle import judge_reopening
from omnigraph.testing.crash_writers import new_graph, state_of, with_next, write_next
from omnigraph.testing.places import place
from pyspark_omnigraph.options import WriteOptions
from pyspark_omnigraph.writer import OmnigraphWriter, PartMessage

pytestmark = [pytest.mark.crash, pytest.mark.spark, pytest.mark.xdist_group("spark")]

LOST = 2
"""How many attempts of a task fail; the session of the tests tries a third time."""
COLUMNS = StructType([StructField("name", StringType()), StructField("age", IntegerType())])


@pytest.fixture
def struck(tmp_path: Path) -> Path:
    """A graph that is written with faults in the way."""
    new_graph(tmp_path / "struck")
    return tmp_path / "struck"


@pytest.fixture
def unharmed(tmp_path: Path) -> Path:
    """An equal graph to compare with."""
    new_graph(tmp_path / "unharmed")
    return tmp_path / "unharmed"


def files_of(root: Path) -> int:
    """Count the files that were written for all types."""
    return sum(len(list((place(root) / folder).glob("*/data/*.lance"))) for folder in ("nodes", "edges"))


def lost_attempts(action: str) -> Fault:
    """Return what strikes one task when it has staged, as often as Spark will bear it."""
    return Fault(tasks=f"stage.after={action}", attempts=LOST, partition=PARTITIONS - 1)


def check_files(struck: Path, unharmed: Path, before: int) -> None:
    """See that every attempt of one task, and the one attempt of the other, has left files."""
    each = (files_of(unharmed) - before) // PARTITIONS
    assert each > 0
    assert files_of(struck) - before == each * (PARTITIONS + LOST)


def check(struck: Path, unharmed: Path) -> None:
    """See that the one graph is what the other is, and that life goes on."""
    graph, expected = og.open(struck), og.open(unharmed, read_only=True)
    assert graph.healed == ()
    assert state_of(graph) == state_of(expected)
    assert [commit.metrics for commit in graph.log(limit=None)] == [c.metrics for c in expected.log(limit=None)]
    write_next(graph, "Zoe")
    assert state_of(graph) == with_next(state_of(expected), "Zoe")
    assert judge_reopening(struck) == []


def some_old_some_new(spark: SparkSession) -> DataFrame:
    """Return two people who are there and two who are not, in two partitions."""
    name = "CASE id WHEN 1 THEN 'Ann' WHEN 3 THEN 'Ben' ELSE concat('p', id) END AS name"
    return spark.range(0, 4, 1, PARTITIONS).selectExpr(name, "CAST(50 + id AS int) AS age")


@pytest.mark.parametrize(("operation", "action"), [("insert", "kill"), ("upsert", "raise"), ("overwrite", "enospc")])
def test_tasks_that_fail_when_they_have_staged_are_tried_again_and_add_nothing(
    spark: SparkSession, struck: Path, unharmed: Path, operation: str, action: str
) -> None:
    frame = people(spark) if operation == "insert" else some_old_some_new(spark)
    mode = "overwrite" if operation == "overwrite" else "append"
    before = files_of(unharmed)
    save(frame, unharmed, mode=mode, operation=operation)
    save_with(lost_attempts(action), frame, struck, mode, operation=operation)
    check_files(struck, unharmed, before)
    check(struck, unharmed)


def test_tasks_of_a_transaction_that_die_when_they_have_staged_add_nothing(
    spark: SparkSession, struck: Path, unharmed: Path
) -> None:
    before = files_of(unharmed)
    write_two_tables(spark, unharmed)
    with faulty_tasks(lost_attempts("kill")):
        write_two_tables(spark, struck)
    assert files_of(struck) >= files_of(unharmed) + 2 * LOST > before, "every attempt has left files of both tables"
    check(struck, unharmed)


def test_attempts_that_both_answer_count_once(spark: SparkSession, struck: Path, unharmed: Path) -> None:
    append_people(spark, unharmed)
    options = WriteOptions.parse({"path": str(struck), "type": "Person", "actor": "alice"}, overwrite=False)
    writer = OmnigraphWriter.begun(options, COLUMNS)
    shares = [[("p0", 50), ("p1", 51)], [("p2", 52), ("p3", 53)]]
    answers = [(number, writer._order.stage([batch_of(shares[number])])) for number in (1, 0, 1, 0)]
    assert len({text for _, text in answers}) == len(answers), "each attempt has files of its own"
    writer.commit([PartMessage(number, text) for number, text in answers])
    check(struck, unharmed)


def batch_of(rows: list[tuple[str, int]]) -> pa.RecordBatch:
    names, ages = zip(*rows, strict=True)
    return pa.RecordBatch.from_arrays([pa.array(names), pa.array(ages, pa.int32())], names=["name", "age"])


def test_attempts_that_lose_against_a_rival_or_go_on_when_all_is_over_add_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    cases = {f"{way}-{end}": (way, end) for way in WAYS for end in STOPS}
    for case in (*cases, "source", "transaction"):
        new_graph(tmp_path / case)
    append_people(spark, tmp_path / "source")
    write_two_tables(spark, tmp_path / "transaction")
    with Application(tmp_path, "tests.spark.speculating_child", str(tmp_path)) as application:
        assert application.ended() == 0, application.said
        lines = [line.removeprefix("seen ") for line in application.said.splitlines() if line.startswith("seen ")]
    seen = {fact.pop("case"): fact for fact in map(json.loads, lines)}
    # That a write was published while its first attempt was stopped shows that the rival won.
    assert seen == {
        case: {
            "stopped": True,
            "when published": PARTITIONS + (end == "loser"),
            "in the end": PARTITIONS + 1,
        }
        for case, (_, end) in cases.items()
    }
    for case, (way, _) in cases.items():
        check(tmp_path / case, tmp_path / way)
