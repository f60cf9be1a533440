"""Eight processes at once: nothing lost, nothing twice, one winner where there can be only one."""

from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.testing.s3_server import SeaweedServer
from omnigraph.testing.worker import SCHEMA, Order, Worker, orders, start

PROCESSES = 8
COMMITS_EACH = 50


def run_together(told: list[Order]) -> list[list[dict[str, str]]]:
    workers: list[Worker] = [start(order) for order in told]
    for worker in workers:
        worker.ready()
    for worker in workers:
        worker.go()
    return [worker.acknowledged() for worker in workers]


def new_graph(tmp_path: Path) -> og.Graph:
    return og.init(tmp_path / "g.omni", SCHEMA)


def check_one_linear_history(graph: og.Graph, branch: str, expected: set[str], base: int) -> None:
    log = graph.log(branch, limit=None)
    assert [commit.version for commit in log] == list(range(len(log), 0, -1))
    for newer, older in pairwise(log):
        assert newer.parents == (older.id,)
        assert newer.created_at > older.created_at
    mine = [commit.id for commit in log][: len(log) - base]
    assert Counter(mine) == Counter(expected)


def test_eight_processes_publishing_on_one_branch_lose_nothing_and_repeat_nothing(tmp_path: Path) -> None:
    graph = new_graph(tmp_path)
    said = run_together(orders("publish", graph.root, PROCESSES, times=COMMITS_EACH))
    acknowledged = [line["done"] for lines in said for line in lines]
    assert len(acknowledged) == PROCESSES * COMMITS_EACH == len(set(acknowledged))
    check_one_linear_history(graph, "main", set(acknowledged), base=1)


def test_eight_processes_publishing_on_eight_branches_lose_nothing_and_repeat_nothing(tmp_path: Path) -> None:
    graph = new_graph(tmp_path)
    names = [f"b{number}" for number in range(PROCESSES)]
    for name in names:
        graph.branches.create(name)
    told = [Order(job="publish", root=graph.root, name=name, times=COMMITS_EACH, wait=True) for name in names]
    said = run_together(told)
    for name, lines in zip(names, said, strict=True):
        check_one_linear_history(graph, name, {line["done"] for line in lines}, base=1)
        assert len(lines) == COMMITS_EACH
    assert graph.refresh().version == 1


def test_eight_processes_creating_one_branch_have_one_winner_and_seven_typed_errors(tmp_path: Path) -> None:
    graph = new_graph(tmp_path)
    said = run_together(orders("create-branch", graph.root, PROCESSES, name="review"))
    answers = Counter(next(iter(line)) for lines in said for line in lines)
    assert answers == {"done": 1, "refused": PROCESSES - 1}
    assert {line["refused"] for lines in said for line in lines if "refused" in line} == {"BRANCH_EXISTS"}
    winner = next(line["done"] for lines in said for line in lines if "done" in line)
    assert graph.branches.get("review").incarnation == winner


def test_eight_processes_creating_one_graph_have_one_winner(tmp_path: Path) -> None:
    root = str(tmp_path / "raced.omni")
    said = run_together(orders("init", root, PROCESSES))
    answers = Counter(next(iter(line)) for lines in said for line in lines)
    assert answers == {"done": 1, "refused": PROCESSES - 1}
    assert {line["refused"] for lines in said for line in lines if "refused" in line} == {"GRAPH_EXISTS"}
    winner = next(line["done"] for lines in said for line in lines if "done" in line)
    assert og.open(root).refresh().id == winner


def test_eight_processes_appending_to_one_table_all_land(tmp_path: Path) -> None:
    graph = new_graph(tmp_path)
    said = run_together(orders("append", graph.root, PROCESSES, times=5))
    assert all("done" in line for lines in said for line in lines)
    people = graph.snapshot().read("Person").column("id").to_pylist()
    assert len(people) == len(set(people)) == PROCESSES * 5


def test_eight_processes_deleting_one_branch_have_one_winner(tmp_path: Path) -> None:
    graph = new_graph(tmp_path)
    graph.branches.create("review")
    said = run_together(orders("delete-branch", graph.root, PROCESSES, name="review"))
    answers = Counter(next(iter(line)) for lines in said for line in lines)
    assert answers == {"done": 1, "refused": PROCESSES - 1}
    assert {line["refused"] for lines in said for line in lines if "refused" in line} == {"BRANCH_NOT_FOUND"}


@pytest.mark.s3
def test_four_processes_publishing_on_s3_lose_nothing(s3_root: Callable[[], str], s3_server: SeaweedServer) -> None:
    root, options = s3_root(), s3_server.storage_options()
    graph = og.init(root, SCHEMA, storage_options=options)
    said = run_together(orders("publish", root, 4, times=5, storage_options=options))
    check_one_linear_history(graph, "main", {line["done"] for lines in said for line in lines}, base=1)
