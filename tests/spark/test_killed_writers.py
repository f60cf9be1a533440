"""Processes of a Spark write that are killed: while they stage, and at places of the commit."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import omnigraph as og

CHILD = Path(__file__).with_name("writing_child.py")

pytestmark = [pytest.mark.crash, pytest.mark.spark, pytest.mark.xdist_group("spark")]


def written(root: str, failpoints: str) -> str:
    """Run the application with failpoints in all of its processes, and return how it says that it ended."""
    variables = {
        "OMNIGRAPH_ENABLE_FAILPOINTS": "1",
        "OMNIGRAPH_FAILPOINTS": failpoints,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    done = subprocess.run(
        [sys.executable, str(CHILD), root],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.stdout.strip(), done.stderr[-2_000:]
    return done.stdout.split()[0]


def staged_files(root: str) -> int:
    return len(list(Path(root).rglob("data/*.lance")))


def test_a_worker_killed_when_it_has_staged_leaves_files_and_nothing_to_see(root: str) -> None:
    before = staged_files(root)
    assert written(root, "stage.after=kill") == "failed"
    assert staged_files(root) > before
    graph = og.open(root)
    assert (graph.healed, graph.refresh().version, graph.snapshot().count("Person")) == ((), 1, 0)
    with graph.transaction() as tx:
        tx.append("Person", [{"name": "p1"}])
    assert tx.receipt.version == 2


@pytest.mark.parametrize(
    ("point", "kinds"),
    [("commit.before_sidecar", []), ("commit.after_seals", ["RolledForward"]), ("publish.after_swap", None)],
)
def test_a_commit_that_is_killed_is_all_or_nothing_and_the_next_open_settles_it(
    root: str, point: str, kinds: list[str] | None
) -> None:
    assert written(root, f"{point}=kill") == "failed"
    graph = og.open(root)
    rows = graph.snapshot().count("Person")
    assert rows == (0 if point == "commit.before_sidecar" else 100)
    assert graph.refresh().version == (1 if rows == 0 else 2)
    if kinds is not None:
        assert [settled.kind for settled in graph.healed] == kinds
    assert og.open(root).healed == ()
