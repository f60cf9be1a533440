"""Spark on an object store: options reach the executors, and secrets reach nobody else."""

from collections.abc import Callable
from contextlib import redirect_stdout
from io import StringIO

import pytest
from pyspark.sql import DataFrame, SparkSession

import omnigraph as og
from omnigraph.testing.s3_server import SeaweedServer
from pyspark_omnigraph import SparkGraph

pytestmark = pytest.mark.s3


def plan_of(frame: DataFrame) -> str:
    shown = StringIO()
    with redirect_stdout(shown):
        frame.explain(extended=True)
    return shown.getvalue()


def test_a_graph_on_s3_is_written_and_read_and_no_plan_shows_a_secret(
    spark: SparkSession, s3_server: SeaweedServer, s3_root: Callable[[], str]
) -> None:
    root, options = s3_root(), s3_server.storage_options()
    og.init(root, "node Person { name: String @key  age: I32? }", storage_options=options)
    storage = {f"storage.{name}": value for name, value in options.items()}
    people = spark.createDataFrame([("Ann", 41), ("Bob", 30)], "name string, age int").repartition(2)
    people.write.format("omnigraph").mode("append").options(type="Person", **storage).save(root)
    read = spark.read.format("omnigraph").options(type="Person", **storage).load(root)
    assert sorted(row.name for row in read.collect()) == ["Ann", "Bob"]
    graph = SparkGraph.for_path(spark, root, storage_options=options)
    with graph.transaction() as tx:
        tx.upsert("Person", read.selectExpr("name", "age + 1 AS age"))
    assert tx.receipt.tables["node:Person"].rows_updated == 2
    shown = plan_of(read) + plan_of(graph.table("Person").where("age > 41")) + repr(graph)
    assert "Person" in repr(graph.table("Person")) or "omnigraph" in shown
    for name in ("aws_secret_access_key", "aws_access_key_id"):
        assert options[name] not in shown
