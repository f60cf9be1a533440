"""Two Spark applications that write one table at the same time, one of them another table too."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.spark.applications import Application
from tests.spark.rounds import ONE, ROUNDS, TWO, Ages, Edges, ages_of, edges_of, message_of, take_part

import omnigraph as og
from omnigraph.model.lineage import Commit
from omnigraph.testing.crash_oracle import judge_reopening, look
from omnigraph.testing.crash_writers import new_graph, state_of

pytestmark = [pytest.mark.crash, pytest.mark.spark, pytest.mark.xdist_group("spark")]


def folded(log: list[Commit], ages: Ages, edges: Edges) -> None:
    """Do what the commits say, one after another."""
    for commit in log:
        assert commit.message is not None
        who, number = commit.message.split()
        assert commit.actor == who
        ages |= ages_of(who, int(number))
        edges |= edges_of(who, int(number))


def test_two_applications_write_one_table_at_once_and_all_of_it_lands_once(spark: SparkSession, tmp_path: Path) -> None:
    root, meeting = tmp_path / "g", tmp_path / "meeting"
    new_graph(root)
    meeting.mkdir()
    graph = og.open(root)
    first = graph.refresh().version
    before = state_of(graph)
    with Application(tmp_path, "tests.spark.writing_child", "rounds", str(root), str(meeting)) as other:
        take_part(spark, root, meeting, ONE, other.is_alive)
        assert other.ended() == 0, other.said
    log = [commit for commit in reversed(graph.log(limit=None)) if commit.version > first]
    assert [commit.version for commit in log] == list(range(first + 1, first + 1 + 2 * ROUNDS))
    for number in range(ROUNDS):
        raced = {commit.message for commit in log[2 * number : 2 * number + 2]}
        assert raced == {message_of(ONE, number), message_of(TWO, number)}
    ages = {row["name"]: row["age"] for row in before["Person"]}
    edges = {(row["src"], row["dst"]): row["since"] for row in before["Knows"]}
    folded(log, ages, edges)
    found = state_of(graph)
    assert sorted((row["id"], row["age"]) for row in found["Person"]) == sorted(ages.items())
    assert sorted((row["src"], row["dst"], row["since"]) for row in found["Knows"]) == sorted(
        (*ends, since) for ends, since in edges.items()
    )
    assert (look(root).promises, look(root).audit) == ((), ())
    assert judge_reopening(root) == []
