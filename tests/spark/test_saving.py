"""Saves that stage for a transaction which is published elsewhere: by the option `transaction`."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from tests.spark.applications import Application
from tests.spark.test_writing import ages, failing, people, save

import omnigraph as og
from pyspark_omnigraph import SparkGraph

PUBLISH = "import sys, omnigraph as og\nwith og.open(sys.argv[1]).transaction(ticket=sys.argv[2]): pass"
REFUSED = (AnalysisException, PySparkException)


def knows(spark: SparkSession, *pairs: tuple[str, str]) -> DataFrame:
    return spark.createDataFrame(list(pairs), "src string, dst string").repartition(2)


def test_saves_of_several_frames_are_one_commit_when_the_block_ends(spark: SparkSession, root: str) -> None:
    graph = SparkGraph.for_path(spark, root, actor="etl")
    save(people(spark, "Ann", "Bob"), root)
    with graph.transaction(message="together") as tx:
        save(people(spark, "Bob", "Cid", age=2), root, operation="upsert", transaction=tx.ticket)
        save(knows(spark, ("Ann", "Cid"), ("Cid", "Eve")), root, type="Knows", branch="main", transaction=tx.ticket)
        tx.append("Person", people(spark, "Eve", age=3))
        assert (ages(root), graph.refresh().version) == ({"Ann": 1, "Bob": 1}, 2)
    assert ages(root) == {"Ann": 1, "Bob": 2, "Cid": 2, "Eve": 3}
    head = graph.refresh()
    assert (head.id, head.version, head.message, head.actor) == (tx.receipt.commit, 3, "together", "etl")
    assert graph.snapshot().count("Knows") == 2


def test_applications_save_for_one_transaction_and_a_process_without_spark_publishes_it(
    spark: SparkSession, root: str, tmp_path: Path
) -> None:
    ticket = og.open(root).transaction().ticket
    with Application(tmp_path, "tests.spark.saving_child", root, ticket, "Dan", "Eve") as other:
        save(people(spark, "Ann", "Bob"), root, transaction=ticket, txnAppId="here", txnVersion=1)
        assert other.ended() == 0, other.said
    assert ages(root) == {}
    subprocess.run([sys.executable, "-c", PUBLISH, root, ticket], check=True, env=dict(os.environ))
    assert sorted(ages(root)) == ["Ann", "Bob", "Dan", "Eve"]
    assert og.open(root).refresh().id == ticket


def test_tasks_and_saves_that_are_tried_again_add_nothing(spark: SparkSession, root: str, tmp_path: Path) -> None:
    (tmp_path / "marks").mkdir()
    save(people(spark, "Ann", "Bob"), root)
    pairs = knows(spark, *[("Ann", "Bob")] * 20)  # these get ids of their own at every try
    ticket = og.open(root).transaction().ticket
    once = pairs.mapInArrow(failing(tmp_path / "marks", times=1), pairs.schema)
    for _ in range(2):
        save(once, root, type="Knows", transaction=ticket, txnAppId="job", txnVersion=1)
    assert sorted(path.name for path in (tmp_path / "marks").iterdir()) == ["0-0", "1-0"]
    always = pairs.mapInArrow(failing(tmp_path / "marks", times=99), pairs.schema)
    with pytest.raises((PySparkException, Py4JError)):
        save(always, root, type="Knows", transaction=ticket, txnAppId="job", txnVersion=2)
    with og.open(root).transaction(ticket=ticket) as tx:
        pass
    assert tx.receipt.tables["edge:Knows"].rows_inserted == 20


def test_what_is_refused_comes_as_our_text_and_is_not_in(
    spark: SparkSession, root: str, rooted: Callable[[str], str]
) -> None:
    graph = SparkGraph.for_path(spark, root)

    def refused(says: str, frame: DataFrame, **options: Any) -> None:
        with pytest.raises(REFUSED, match=says):
            save(frame, root, **options)

    foreign = og.open(rooted("node Person { name: String @key }")).transaction().ticket
    refused(r"\[TRANSACTION_NOT_FOUND\]", people(spark, "Ann"), transaction=foreign)
    refused(r"\[INVALID_OPTION\].*is no ticket", people(spark, "Ann"), transaction="x")
    with graph.transaction() as tx:
        save(people(spark, "Ann"), root, transaction=tx.ticket)
        refused(r"\[ALREADY_APPLIED\].*txnAppId", people(spark, "Bob"), transaction=tx.ticket)
        refused(r"\[INVALID_DATA\]", people(spark, "Cid", "Cid").selectExpr("name AS nam"), transaction=tx.ticket)
        nameless = spark.createDataFrame([(None, 1)], "name string, age int")
        refused(r"\[INVALID_DATA\].*required", nameless, operation="upsert", transaction=tx.ticket)
    refused(r"\[TRANSACTION_STATE\].*has ended", people(spark, "Dan"), operation="upsert", transaction=tx.ticket)
    assert ages(root) == {"Ann": 1}
    graph.transaction(ticket=(ticket := graph.transaction().ticket)).give_up()
    refused(r"\[TRANSACTION_STATE\].*given up", people(spark, "Eve"), transaction=ticket)
