"""Processes of a Spark write that are killed (-9), at every failpoint, judged by the oracle of the crash matrix.

What is staged is staged by tasks in Python workers; what is written through the data source is committed in a worker
beside the driver, and a transaction in the driver itself. Where only a worker dies, the session of the tests goes on.
A driver that dies in one place of each phase has a Java process of its own, which must die with it; in the other places
it shares the Java process of the tests. With `OMNIGRAPH_DEEP=1` it does both in every place.
"""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.spark.applications import Application, java_of, wait_until
from tests.spark.fault_kit import (
    FAILURES,
    STAGING,
    Fault,
    append_story,
    faulty_tasks,
    people,
    save_with,
    transaction_story,
    write_two_tables,
)

import omnigraph as og
from omnigraph.failpoints import Failpoint
from omnigraph.testing.crash_matrix import WHO, WRITE_POINTS, Bench, Story
from omnigraph.testing.crash_page import Cell
from omnigraph.testing.crash_writers import Arrival, Said
from omnigraph.testing.crash_writers import Fault as Kind
from omnigraph.testing.places import place

pytestmark = [pytest.mark.crash, pytest.mark.spark, pytest.mark.xdist_group("spark")]

DEEP = os.environ.get("OMNIGRAPH_DEEP") == "1"
POINTS = tuple(point for point in Failpoint if point in WRITE_POINTS)
COMMITTING = tuple(point for point in POINTS if point not in STAGING)
ONE_OF_EACH_PHASE = (
    Failpoint.AFTER_SIDECAR,  # A: promise
    Failpoint.AFTER_FIRST_SEAL,  # B: effect
    Failpoint.BEFORE_SWAP,  # C: visibility
    Failpoint.BEFORE_FORGET,  # D: forget
)
ATTEMPTS = 3
"""How often the session of the tests tries a task."""
CHILD = "tests.spark.writing_child"


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(tmp_path_factory.mktemp("graphs"))


@pytest.fixture(scope="module")
def append(spark: SparkSession, bench: Bench, tmp_path_factory: pytest.TempPathFactory) -> Story:
    return append_story(bench, spark, tmp_path_factory.mktemp("append"))


@pytest.fixture(scope="module")
def transaction(spark: SparkSession, bench: Bench, tmp_path_factory: pytest.TempPathFactory) -> Story:
    return transaction_story(bench, spark, tmp_path_factory.mktemp("transaction"))


def crashed(bench: Bench, story: Story, point: Failpoint, disturb: Callable[[Path, str], None]) -> list[Cell]:
    """Let something die at a place, recover in every way, and return the cells that are wrong."""

    def act(story: Story, root: Path, living: og.Graph, arrival: Arrival, kind: Kind) -> Said:
        disturb(root, arrival.plan(kind))
        return "unknown"

    cells = list(bench.crash(story, Arrival(point, 1), "kill", act))
    assert [cell.who for cell in cells] == list(WHO)
    return [cell for cell in cells if cell.wrong]


def staged_files(root: Path) -> int:
    return len(list(place(root).glob("*/*/data/*.lance")))


# -- a worker dies, and the application goes on ---------------------------------------------------------


@pytest.mark.parametrize("point", POINTS)
def test_a_worker_of_the_data_source_is_killed_and_the_write_is_all_or_nothing(
    spark: SparkSession, bench: Bench, append: Story, point: Failpoint
) -> None:
    def disturb(root: Path, plan: str) -> None:
        before = staged_files(root)
        with pytest.raises(FAILURES, match="crashed"):
            save_with(Fault.at(point, plan), people(spark), root)
        if point == Failpoint.AFTER_STAGE:
            assert staged_files(root) - before >= ATTEMPTS, "each attempt has left a file"

    assert crashed(bench, append, point, disturb) == []


@pytest.mark.parametrize("point", STAGING)
def test_a_worker_that_stages_for_a_transaction_is_killed_and_nothing_is_seen(
    spark: SparkSession, bench: Bench, transaction: Story, point: Failpoint
) -> None:
    def disturb(root: Path, plan: str) -> None:
        with faulty_tasks(Fault.at(point, plan)), pytest.raises(FAILURES, match="crashed"):
            write_two_tables(spark, root)

    assert crashed(bench, transaction, point, disturb) == []


# -- the driver dies ------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", [point for point in COMMITTING if DEEP or point not in ONE_OF_EACH_PHASE])
def test_a_driver_is_killed_while_it_commits_and_the_write_is_all_or_nothing(
    spark: SparkSession, bench: Bench, transaction: Story, tmp_path: Path, point: Failpoint
) -> None:
    def disturb(root: Path, plan: str) -> None:
        with Application(tmp_path, CHILD, "transaction", str(root), failpoints=plan, java=java_of(spark)) as driver:
            assert driver.ended() == -signal.SIGKILL, driver.said
            assert "published" not in driver.said

    assert crashed(bench, transaction, point, disturb) == []


@pytest.mark.parametrize("point", COMMITTING if DEEP else ONE_OF_EACH_PHASE)
def test_a_driver_that_is_killed_takes_its_java_and_its_workers_along(
    bench: Bench, transaction: Story, tmp_path: Path, point: Failpoint
) -> None:
    def disturb(root: Path, plan: str) -> None:
        with Application(tmp_path, CHILD, "transaction", str(root), failpoints=plan) as driver:
            assert driver.ended() == -signal.SIGKILL, driver.said
            assert "published" not in driver.said
            driver.gone()

    assert crashed(bench, transaction, point, disturb) == []


@pytest.mark.parametrize(("job", "point"), [("append", Failpoint.AFTER_STAGE), ("transaction", Failpoint.BEFORE_STAGE)])
def test_a_whole_application_is_killed_while_its_tasks_stage_and_nothing_is_seen(
    bench: Bench, append: Story, transaction: Story, tmp_path: Path, job: str, point: Failpoint
) -> None:
    def disturb(root: Path, _: str) -> None:
        before = staged_files(root)
        with Application(tmp_path, CHILD, job, str(root), failpoints=f"{point}=park:{tmp_path / 'never'}") as driver:
            wait_until((tmp_path / "never.parked").exists, "a task that stages", driver.is_alive)
            driver.kill()
            assert driver.ended() == -signal.SIGKILL
            driver.gone()
        assert (staged_files(root) > before) == (point == Failpoint.AFTER_STAGE)

    story = {"append": append, "transaction": transaction}[job]
    assert crashed(bench, story, point, disturb) == []


@pytest.mark.parametrize("point", POINTS if DEEP else [Failpoint.AFTER_SEALS])
def test_an_application_whose_workers_are_killed_says_that_it_failed(
    bench: Bench, append: Story, tmp_path: Path, point: Failpoint
) -> None:
    def disturb(root: Path, plan: str) -> None:
        with Application(tmp_path, CHILD, "append", str(root), failpoints=plan) as driver:
            assert driver.ended() == 0, driver.said
            assert driver.said.splitlines()[-1].startswith("failed"), driver.said
            driver.gone()

    assert crashed(bench, append, point, disturb) == []
