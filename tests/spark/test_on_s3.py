"""Spark on an object store: options reach the executors, and secrets reach nobody else."""

import traceback
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from io import StringIO
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from tests.faults.secret_kit import leaks

import omnigraph as og
from omnigraph.testing.s3_server import SeaweedServer
from pyspark_omnigraph import SparkGraph, configure

pytestmark = pytest.mark.s3

SCHEMA = "node Person { name: String @key  age: I32? }"
KEYS = ("aws_secret_access_key", "aws_access_key_id")
EXPLAINED = ("simple", "extended", "codegen", "cost", "formatted")


def plans_of(frame: DataFrame) -> str:
    """Return all that Spark tells of how it reads something, and what people may print of it."""
    shown = StringIO()
    with redirect_stdout(shown):
        for mode in EXPLAINED:
            frame.explain(mode=mode)
        frame.printSchema()
    execution: Any = frame._jdf.queryExecution()
    parts = (execution.toString(), execution.simpleString(), execution.optimizedPlan().toString())
    tree = execution.executedPlan().treeString()
    return "\n".join((shown.getvalue(), *parts, tree, repr(frame), str(frame.schema)))


def told_by(refused: "pytest.ExceptionInfo[PySparkException]") -> str:
    """Return all that an error of Spark's tells, the JVM's own words included."""
    problem: Any = refused.value
    whole = "".join(traceback.format_exception(problem))
    return "\n".join((str(problem), repr(problem), whole, str(getattr(problem, "_stackTrace", ""))))


def as_storage(options: Mapping[str, str]) -> dict[str, str]:
    return {f"storage.{name}": value for name, value in options.items()}


@pytest.fixture
def options(s3_server: SeaweedServer) -> dict[str, str]:
    return s3_server.storage_options()


@pytest.fixture
def root(s3_root: Callable[[], str], options: dict[str, str]) -> str:
    root = s3_root()
    og.init(root, SCHEMA, storage_options=options)
    return root


def only_keys(options: Mapping[str, str]) -> dict[str, str]:
    return {name: options[name] for name in KEYS}


def test_a_graph_on_s3_is_written_and_read_and_no_plan_shows_a_secret(
    spark: SparkSession, root: str, options: dict[str, str]
) -> None:
    storage = as_storage(options)
    people = spark.createDataFrame([("Ann", 41), ("Bob", 30)], "name string, age int").repartition(2)
    people.write.format("omnigraph").mode("append").options(type="Person", **storage).save(root)
    read = spark.read.format("omnigraph").options(type="Person", **storage).load(root)
    assert sorted(row.name for row in read.collect()) == ["Ann", "Bob"]
    graph = SparkGraph.for_path(spark, root, storage_options=options)
    with graph.transaction() as tx:
        tx.upsert("Person", read.selectExpr("name", "age + 1 AS age"))
    assert tx.receipt.tables["node:Person"].rows_updated == 2
    changes = spark.read.format("omnigraph").options(type="Person", readChangeFeed="true", startingVersion="1")
    shown = plans_of(read) + plans_of(graph.table("Person").where("age > 41"))
    shown += plans_of(changes.options(**storage).load(root)) + repr(graph) + repr(graph.on("main")) + str(graph.graph)
    assert "omnigraph" in shown
    assert leaks(shown.encode(), only_keys(options)) == []
    slip = f"{shown} {options[KEYS[0]]}"
    assert leaks(slip.encode(), only_keys(options)) == [KEYS[0]], "looking finds what is there"


def test_no_plan_of_the_sql_catalog_shows_a_secret(spark: SparkSession, root: str, options: dict[str, str]) -> None:
    configure(spark, root, name="distant", storage_options=options)
    spark.sql("INSERT INTO distant.main.Person VALUES (NULL, 'Ann', 41), (NULL, 'Bob', 17)")
    shown = plans_of(spark.sql("SELECT * FROM distant.main.Person WHERE age > 3"))
    for kind in ("EXTENDED", "FORMATTED", "COST", ""):
        for text in (
            "INSERT INTO distant.main.Person VALUES (NULL, 'Cid', 1)",
            "UPDATE distant.main.Person SET age = 1 WHERE length(name) = 3",
            "DELETE FROM distant.main.Person WHERE age > 100",
        ):
            shown += str(spark.sql(f"EXPLAIN {kind} {text}").collect()[0][0])
    shown += str(spark.sql("DESCRIBE EXTENDED distant.main.Person").collect())
    shown += str(spark.sql("SHOW TABLES IN distant.main").collect())
    assert "distant.main.Person" in shown
    assert leaks(shown.encode(), only_keys(options)) == []


def test_an_error_that_comes_through_spark_shows_no_secret(
    spark: SparkSession, root: str, options: dict[str, str]
) -> None:
    wrong = {**options, "aws_secret_access_key": "wrong/Secret+With=Signs%0001"}
    secrets = {**only_keys(wrong), "good": options["aws_secret_access_key"]}
    people = spark.createDataFrame([("Ann", 41)], "name string, age int")
    with pytest.raises(PySparkException) as unread:
        spark.read.format("omnigraph").options(type="Person", **as_storage(wrong)).load(root).collect()
    wide = people.selectExpr("name", "age", "1 AS nobody")
    with pytest.raises(PySparkException) as unfit:
        wide.write.format("omnigraph").mode("append").options(type="Person", **as_storage(options)).save(root)
    configure(spark, root, name="refusing", storage_options=wrong)
    with pytest.raises(PySparkException) as unanswered:
        spark.sql("SELECT * FROM refusing.main.Person").collect()
    for refused in (unread, unfit, unanswered):
        assert leaks(told_by(refused).encode(), secrets) == []
    assert "could not" in told_by(unread) or "can not" in told_by(unread)
