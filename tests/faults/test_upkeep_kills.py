"""Cleanup and optimize killed at each of their windows, and everything at once with kills: nothing held is lost."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.engine.upkeep_kit import SCHEMA, aged, content, person, reachable, table_files, units

import omnigraph as og
from omnigraph.errors import CommitExpiredError
from omnigraph.failpoints import ENABLE_VARIABLE, POINTS_VARIABLE, Failpoint, MaintenancePoint
from omnigraph.rules.rollups import FAN

DEEP = os.environ.get("OMNIGRAPH_DEEP") == "1"
SECONDS = 120.0 if DEEP else 5.0
MORE_SECONDS_MAX = 60.0
WRITES_MIN = 3
START_SECONDS_MAX = 120.0
OPTIMIZE_POINTS = [
    MaintenancePoint.OPTIMIZE_REWRITTEN,
    MaintenancePoint.OPTIMIZE_SEALED,
    Failpoint.BEFORE_SWAP,
    Failpoint.AFTER_SWAP,
    MaintenancePoint.OPTIMIZE_PUBLISHED,
]
ROLLUP_POINTS = [MaintenancePoint.ROLLUP_WRITTEN, MaintenancePoint.ROLLUP_SEALED]
CLEANUP_POINTS = [Failpoint.BEFORE_SWAP, MaintenancePoint.CLEANUP_EXPIRED, MaintenancePoint.CLEANUP_DELETED]


def test_every_window_of_upkeep_is_opened() -> None:
    assert {*OPTIMIZE_POINTS, *CLEANUP_POINTS, *ROLLUP_POINTS} >= set(MaintenancePoint)


def grown(root: Path) -> og.Graph:
    graph = og.init(root, SCHEMA)
    for number in range(5):
        with graph.transaction() as tx:
            tx.upsert("Person", [person("Ann", age=number), person(f"p{number}")])
            tx.append("Knows", [{"src": "Ann", "dst": f"p{number}"}])
    graph.ensure_indices()
    aged(root)
    return graph


MANY_WRITES = """
class Many:
    def __init__(self, graph):
        self.graph = graph

    def write(self, act):
        for number in range(200):
            with self.graph.transaction() as tx:
                act(tx, number)
"""


def killed(root: Path, point: str, call: str, before: str = "Many = lambda graph: graph") -> None:
    """Do something in a process that kills itself at a place."""
    code = f"import sys, omnigraph as og\n{before}\nMany(og.open(sys.argv[1])).{call}"
    env = {**os.environ, ENABLE_VARIABLE: "1", POINTS_VARIABLE: f"{point}=kill"}
    done = subprocess.run([sys.executable, "-c", code, str(root)], env=env, capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()


@pytest.mark.parametrize("point", OPTIMIZE_POINTS)
def test_an_optimize_that_is_killed_has_changed_no_row_and_is_done_again(tmp_path: Path, point: str) -> None:
    root = tmp_path / "g"
    graph = grown(root)
    before = content(graph.snapshot())
    killed(root, point, "optimize()")
    assert content(graph.snapshot()) == before
    with graph.transaction() as tx:
        tx.append("Person", [person("next")])
    graph.optimize()
    assert graph.verify(deep=True).findings == ()
    aged(root)
    graph.cleanup(keep=1)
    assert units(table_files(root)) == reachable(graph)
    assert graph.snapshot().count("Person") == len(before["node:Person"]) + 1


@pytest.mark.parametrize("point", ROLLUP_POINTS)
@pytest.mark.parametrize("verb", ["append", "upsert"])
def test_a_write_that_is_killed_while_it_rolls_small_files_up_is_finished_by_the_next(
    tmp_path: Path, point: str, verb: str
) -> None:
    root = tmp_path / "g"
    graph = og.init(root, SCHEMA)
    killed(root, point, f"write(lambda tx, n: tx.{verb}('Person', [{{'name': f'n{{n}}', 'tags': []}}]))", MANY_WRITES)
    there = graph.snapshot().count("Person")
    assert there >= FAN
    last = og.open(root)  # finishes what was promised
    assert last.snapshot().read("Person").column("name").to_pylist() == [f"n{number}" for number in range(there + 1)]
    assert [each.kind for each in last.recoveries()] == ["RolledForward"]
    assert last.verify(deep=True).findings == ()
    aged(root)
    last.cleanup(keep=1)
    assert units(table_files(root)) == reachable(last)


@pytest.mark.parametrize("point", CLEANUP_POINTS)
def test_a_cleanup_that_is_killed_has_taken_nothing_that_is_held_and_the_next_goes_on(
    tmp_path: Path, point: str
) -> None:
    root = tmp_path / "g"
    graph = grown(root)
    kept = {version: content(graph.snapshot(version=version)) for version in (6, 7)}
    killed(root, point, "cleanup(keep=2)")
    assert {version: content(graph.snapshot(version=version)) for version in kept} == kept
    assert graph.verify(deep=True).findings == ()
    aged(root)
    graph.cleanup(keep=2)
    assert units(table_files(root)) == reachable(graph)
    with pytest.raises(CommitExpiredError):
        graph.snapshot(version=5)


WRITER = """
import random, sys
import omnigraph as og
from omnigraph.errors import OmnigraphError
root, seed = sys.argv[1], int(sys.argv[2])
chance, graph, number = random.Random(seed), og.open(root), 0
while True:
    number += 1
    name = f"w{seed}-{number}"
    try:
        with graph.transaction() as tx:
            tx.append("Person", [{"name": name, "tags": []}])
            tx.append("Knows", [{"id": name, "src": "Ann", "dst": name}])
        print(name, flush=True)
        if chance.random() < 0.2:
            branch = f"b{seed}-{number}"
            graph.branches.create(branch)
            with graph.transaction(branch) as tx:
                tx.append("Person", [{"name": branch, "tags": []}])
            graph.branches.merge(branch, delete_source=True)
            print(branch, flush=True)
    except OmnigraphError as refused:
        if not refused.retryable:
            raise
"""
READER = """
import sys
import omnigraph as og
from omnigraph.errors import CommitExpiredError
graph = og.open(sys.argv[1], read_only=True)
while True:
    try:
        kept = graph.snapshot(tag="kept")
        assert kept.read("Person").num_rows == kept.count("Person"), "the tag"
        head = graph.snapshot()
        ids = set(head.read("Person").column("id").to_pylist())
        assert len(ids) == head.count("Person")
        ends = set(head.read("Knows").column("dst").to_pylist())
        assert ends <= ids
    except CommitExpiredError:
        pass
"""
OPTIMIZER = """
import sys
import omnigraph as og
from omnigraph.errors import OmnigraphError
graph = og.open(sys.argv[1])
while True:
    try:
        graph.optimize()
        graph.ensure_indices()
    except OmnigraphError as refused:
        if not refused.retryable:
            raise
"""
CLEANER = """
import sys
import omnigraph as og
from omnigraph.errors import OmnigraphError
graph = og.open(sys.argv[1])
while True:
    try:
        report = graph.cleanup(keep=200, grace="20s")
        assert not report.troubles, report.troubles
    except OmnigraphError as refused:
        if not refused.retryable:
            raise
"""
CAST = [(WRITER, "1"), (WRITER, "2"), (READER, ""), (OPTIMIZER, ""), (CLEANER, "")]
CAST += [(WRITER, "3"), (READER, ""), (CLEANER, "")] if DEEP else []


@contextmanager
def running(root: Path, folder: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes that write, read, compact and clean; those that are killed are started again by the caller."""
    started: list[subprocess.Popen[bytes]] = []
    try:
        for number, _ in enumerate(CAST):
            started.append(start(root, folder, number, 0))
        yield started
    finally:
        for process in started:
            process.kill()
            process.wait()


def start(root: Path, folder: Path, number: int, life: int) -> "subprocess.Popen[bytes]":
    code, seed = CAST[number]
    name = f"{number}-{life}"
    with (folder / f"{name}.out").open("wb") as out, (folder / f"{name}.err").open("wb") as err:
        given = [sys.executable, "-c", code, str(root), f"{seed}{life:03}" if seed else "0"]
        return subprocess.Popen(given, stdout=out, stderr=err)


@pytest.mark.long
def test_all_at_once_with_kills(tmp_path: Path) -> None:
    root, folder, chance = tmp_path / "g", tmp_path, random.Random(3)
    graph = grown(root)
    graph.tags.create("kept")
    kept, lives = content(graph.snapshot(tag="kept")), [0] * len(CAST)
    with running(root, folder) as processes:
        begun = time.monotonic()
        while not told(folder) and time.monotonic() < begun + START_SECONDS_MAX:
            time.sleep(0.1)
        until = time.monotonic() + SECONDS
        latest = until + MORE_SECONDS_MAX  # a machine with much else to do comes to its first writes late
        while time.monotonic() < until or (time.monotonic() < latest and len(told(folder)) <= WRITES_MIN):
            time.sleep(chance.uniform(0.5, 1.5))
            assert [p.poll() for p in processes] == [None] * len(CAST), errors(folder)
            victim = chance.randrange(len(CAST))
            processes[victim].kill()
            processes[victim].wait()
            lives[victim] += 1
            processes[victim] = start(root, folder, victim, lives[victim])
    assert errors(folder) == ""
    last = og.open(root)
    last.recover()
    ids = last.snapshot().read("Person").column("id").to_pylist()
    assert len(ids) == len(set(ids))
    assert len(told(folder)) > WRITES_MIN
    assert told(folder) <= set(ids)
    assert content(last.snapshot(tag="kept")) == kept
    assert last.verify(deep=True).findings == ()
    aged(root)
    last.cleanup(keep=1)
    assert units(table_files(root)) == reachable(last)


def told(folder: Path) -> set[str]:
    """What writers were told has landed; half a line was not said."""
    said = [path.read_text() for path in folder.glob("*.out")]
    return {name for text in said for name in text[: text.rfind("\n") + 1].splitlines()}


def errors(folder: Path) -> str:
    return "".join(path.read_text() for path in sorted(folder.glob("*.err")))
