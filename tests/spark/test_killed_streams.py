"""Streaming queries whose processes are killed (-9) in the middle of a batch, and start again from their checkpoint.

The stream tells what changes in one graph as rows of another, which refuses a row that comes twice. Whatever dies,
afterwards every change is there exactly once, also if commits are cleaned up in between. With `OMNIGRAPH_DEEP=1` it
dies at every failpoint, twice in a row, and whole applications die at every failpoint too.
"""

import os
import signal
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.spark.applications import Application, wait_until
from tests.spark.fault_kit import FAILURES, Fault
from tests.spark.stream_kit import (
    FAULTY_STREAM,
    SINK_SCHEMA,
    SOURCE_SCHEMA,
    FaultyStreamSource,
    events,
    expected,
    landed,
    sink,
    sink_with,
)

import omnigraph as og
from omnigraph.failpoints import Failpoint
from omnigraph.testing.crash_matrix import WRITE_POINTS

pytestmark = [pytest.mark.crash, pytest.mark.spark, pytest.mark.xdist_group("spark")]

DEEP = os.environ.get("OMNIGRAPH_DEEP") == "1"
POINTS = tuple(point for point in Failpoint if point in WRITE_POINTS)
STAGING = (Failpoint.BEFORE_STAGE, Failpoint.AFTER_STAGE)
READING = ("initialOffset", "latestOffset", "partitions", "read.before", "read")
"""Where whoever reads may die: the process that plans batches, and those of tasks before and after their first rows."""
SOME = (Failpoint.AFTER_SIDECAR, Failpoint.AFTER_SWAP)
CHILD = "tests.spark.stream_kit"


@pytest.fixture
def source(tmp_path: Path) -> og.Graph:
    """Four commits: two that insert, one that updates and inserts, one that deletes."""
    graph = og.init(tmp_path / "source", SOURCE_SCHEMA)
    for people in (["Ann", "Ben"], ["Cid"], ["Ben", "Dan"]):
        write(graph, *people)
    with graph.transaction() as tx:
        tx.delete("Person", ids=["Ann"])
    return graph


@pytest.fixture
def target(tmp_path: Path) -> og.Graph:
    return og.init(tmp_path / "target", SINK_SCHEMA)


def write(graph: og.Graph, *people: str) -> None:
    with graph.transaction() as tx:
        tx.upsert("Person", [{"name": name, "age": graph.refresh().version} for name in people])


def fault_at(point: Failpoint, skip: int) -> Fault:
    """A fault that strikes whoever gets there, when so many have passed."""
    plan = f"{point}=kill@{skip}"
    return Fault(tasks=plan) if point in STAGING else Fault(commit=plan)


@pytest.mark.parametrize("point", POINTS if DEEP else SOME)
def test_a_worker_is_killed_in_a_batch_and_every_change_lands_once(
    spark: SparkSession, source: og.Graph, target: og.Graph, tmp_path: Path, point: Failpoint
) -> None:
    checkpoint = tmp_path / "c"
    stream = events(spark, source.root, startingVersion=1, maxCommitsPerTrigger=2)
    for _ in range(2 if DEEP else 1):
        with pytest.raises(FAILURES):
            sink_with(fault_at(point, 0), stream, target.root, checkpoint)
        target.recover()
        target.cleanup(keep=1)
        write(source, f"late-{source.refresh().version}")
    sink_with(Fault(), stream, target.root, checkpoint)
    assert landed(target) == expected(source)
    assert len({commit.message for commit in target.log(limit=None)}) == target.refresh().version


@pytest.mark.parametrize("place", READING if DEEP else READING[-1:])
def test_who_reads_for_a_batch_is_killed_and_nothing_is_missed_or_told_twice(
    spark: SparkSession, source: og.Graph, target: og.Graph, tmp_path: Path, place: str
) -> None:
    spark.dataSource.register(FaultyStreamSource)
    checkpoint, is_killed = tmp_path / "c", tmp_path / "killed"
    told = {"startingVersion": 1, "maxCommitsPerTrigger": 2, "killedAt": f"{place}:{is_killed}"}
    stream = events(spark, source.root, form=FAULTY_STREAM, **told)
    known = set(expected(source))
    for _ in range(2 if DEEP and place != "initialOffset" else 1):  # which a restart does not ask for
        is_killed.touch()
        with pytest.raises(FAILURES):
            sink(stream, target.root, checkpoint)
        is_killed.unlink()
        if DEEP:  # some batches in peace, and what was read is cleaned up
            sink(stream, target.root, checkpoint)
            source.cleanup(keep=1)
        target.cleanup(keep=1)
        before = source.refresh().version
        write(source, f"late-{before}", "Ben")
        known |= set(expected(source, since=before))
    sink(stream, target.root, checkpoint)
    assert landed(target) == sorted(known)


@pytest.mark.skipif(not DEEP, reason="only with OMNIGRAPH_DEEP=1: each needs two Javas of its own")
@pytest.mark.parametrize("point", POINTS)
def test_a_whole_application_is_killed_in_a_batch_and_its_successor_goes_on(
    source: og.Graph, target: og.Graph, tmp_path: Path, point: Failpoint
) -> None:
    arguments = (CHILD, source.root, target.root, str(tmp_path / "c"))
    parked = f"{point}=park:{tmp_path / 'never'}"
    with Application(tmp_path, *arguments, failpoints=parked) as query:
        wait_until((tmp_path / "never.parked").exists, "a batch in the middle of it", query.is_alive)
        query.kill()
        assert query.ended() == -signal.SIGKILL
        query.gone()
    target.recover()
    target.cleanup(keep=1)
    with Application(tmp_path, *arguments) as query:
        assert query.ended() == 0, query.said
        assert query.said.splitlines()[-1] == "done"
    assert landed(target) == expected(source)
