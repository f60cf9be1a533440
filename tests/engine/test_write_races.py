"""First writes that race, and reruns that race: on every branch, whoever comes first, one commit for one intent."""

import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

import pytest

import omnigraph as og
from omnigraph.engine.transaction import Transaction
from omnigraph.errors import OmnigraphError, VersionConflictError
from omnigraph.testing.commits import session_of
from omnigraph.testing.places import place

SCHEMA = "node Person { name: String @key  age: I32? }\nnode Event { what: String }"
BARRIER_SECONDS_MAX = 120.0
TXN = ("loader", 7)

T = TypeVar("T")


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    return og.init(tmp_path / "g", SCHEMA)


def all_at_once(count: int, work: Callable[[int, threading.Barrier], T]) -> list[T]:
    together = threading.Barrier(count, timeout=BARRIER_SECONDS_MAX)
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(lambda number: work(number, together), range(count)))


def names(graph: og.Graph, branch: str = "main") -> list[str]:
    return sorted(str(name) for name in graph.snapshot(branch).read("Person").column("id").to_pylist())


def no_sidecars(graph: og.Graph) -> bool:
    return not list((place(graph.root) / "__recovery").glob("*"))


def add(graph: og.Graph, *given: str, branch: str = "main", txn: tuple[str, int] | None = None) -> og.Receipt:
    with graph.transaction(branch, txn=txn) as tx:
        tx.append("Person", [{"name": name} for name in given])
    return tx.receipt


def first_writes(
    graph: og.Graph, branches: list[str], act: Callable[[Transaction, int], None]
) -> list[og.Receipt | OmnigraphError]:
    """Let one writer per entry plan its branch's first write, then publish all at once."""
    handles = [og.open(graph.root) for _ in branches]

    def work(number: int, together: threading.Barrier) -> og.Receipt | OmnigraphError:
        try:
            with handles[number].transaction(branches[number]) as tx:
                together.wait()
                act(tx, number)
        except OmnigraphError as refused:
            return refused
        return tx.receipt

    return all_at_once(len(branches), work)


# -- first writes -------------------------------------------------------------------------------------


@pytest.mark.parametrize("inherited", [False, True], ids=["empty table", "inherited table"])
def test_first_inserts_into_a_branchs_table_that_race_all_land(graph: og.Graph, inherited: bool) -> None:
    if inherited:
        add(graph, "inherited")
    graph.branches.create("review")
    answers = first_writes(graph, ["review"] * 6, lambda tx, n: tx.append("Person", [{"name": f"p{n}"}]))
    assert sorted(a.version or 0 for a in answers if isinstance(a, og.Receipt)) == [n + 2 + inherited for n in range(6)]
    assert names(graph, "review") == ["inherited"] * inherited + [f"p{n}" for n in range(6)]
    assert graph.refresh().version == 1 + inherited, "main saw nothing of it"
    assert no_sidecars(graph)


@pytest.mark.parametrize("inherited", [False, True], ids=["empty table", "inherited table"])
def test_of_first_overwrites_of_a_branchs_table_that_race_exactly_one_wins(graph: og.Graph, inherited: bool) -> None:
    if inherited:
        add(graph, "inherited")
    graph.branches.create("review")
    answers = first_writes(graph, ["review"] * 6, lambda tx, n: tx.overwrite("Person", [{"name": f"p{n}"}]))
    winners = [n for n, answer in enumerate(answers) if isinstance(answer, og.Receipt)]
    assert len(winners) == 1
    race = {"table_key": "node:Person", "expected": int(inherited), "actual": int(inherited) + 1}
    for answer in answers:
        if not isinstance(answer, og.Receipt):
            assert isinstance(answer, VersionConflictError)
            assert answer.to_dict()["manifest_conflict"] == race
    assert names(graph, "review") == [f"p{winners[0]}"]
    assert no_sidecars(graph)
    assert add(graph, "next", branch="review").version == 3 + inherited


def test_the_first_writes_ever_to_one_table_on_many_branches_do_not_disturb_each_other(graph: og.Graph) -> None:
    branches = ["main", *(f"b{n}" for n in range(5))]
    for branch in branches[1:]:
        graph.branches.create(branch)
    answers = first_writes(graph, branches * 2, lambda tx, n: tx.upsert("Person", [{"name": f"p{n}"}, {"name": "all"}]))
    assert all(isinstance(answer, og.Receipt) for answer in answers)
    for n, branch in enumerate(branches):
        assert names(graph, branch) == sorted(["all", f"p{n}", f"p{n + len(branches)}"])
    assert no_sidecars(graph)


def test_a_first_write_races_with_the_deletion_of_its_branch_and_is_all_there_or_refused(graph: og.Graph) -> None:
    for turn in range(6):
        graph.branches.create("review")
        handles = [og.open(graph.root) for _ in range(2)]

        def work(number: int, together: threading.Barrier, handles: list[og.Graph] = handles) -> str:
            if number == 0:
                together.wait()
                handles[0].branches.delete("review")
                return "deleted"
            try:
                with handles[1].transaction("review") as tx:
                    tx.append("Person", [{"name": "p"}])
                    together.wait()
            except OmnigraphError as refused:
                return refused.code
            return "landed"

        deleted, answer = all_at_once(2, work)
        assert deleted == "deleted"
        assert answer in ("landed", "BRANCH_CONFLICT", "BRANCH_NOT_FOUND")
        assert no_sidecars(graph), f"turn {turn}: {answer}"
        assert graph.refresh().version == 1 + turn
        add(graph, f"turn{turn}")


# -- reruns -------------------------------------------------------------------------------------------


def test_the_same_txn_twice_is_one_commit_and_the_second_receipt_names_the_first(graph: og.Graph) -> None:
    first = add(graph, "Ann", txn=TXN)
    again = add(graph, "Ann", "Bob", txn=TXN)
    assert (again.commit, again.version, again.rerun, first.rerun) == (first.commit, 2, True, False)
    assert add(graph, "Cid", txn=("loader", 3)).rerun, "an older version of the same application has landed too"
    assert not add(graph, "Dan", txn=("other", 7)).rerun
    assert not add(graph, "Eve", txn=("loader", 8)).rerun
    assert (names(graph), graph.refresh().version) == (["Ann", "Dan", "Eve"], 4)


@pytest.mark.parametrize("verb", ["append", "upsert", "overwrite"])
def test_the_same_txn_racing_in_threads_is_one_commit(graph: og.Graph, verb: str) -> None:
    handles = [og.open(graph.root) for _ in range(8)]

    def work(number: int, together: threading.Barrier) -> og.Receipt:
        with handles[number].transaction(txn=TXN) as tx:
            getattr(tx, verb)("Person", [{"name": f"p{number}"}])
            together.wait()
        return tx.receipt

    receipts = all_at_once(8, work)
    assert len({receipt.commit for receipt in receipts}) == 1
    assert [receipt.rerun for receipt in receipts].count(False) == 1
    winner = [receipt.rerun for receipt in receipts].index(False)
    assert (names(graph), graph.refresh().version) == ([f"p{winner}"], 2)
    assert (no_sidecars(graph), graph.recoveries()) == (True, [])


def test_the_same_txn_racing_in_processes_is_one_commit(graph: og.Graph) -> None:
    script = (
        "import sys, omnigraph as og\n"
        "graph = og.open(sys.argv[1])\n"
        "print('ready', flush=True); sys.stdin.readline()\n"
        "for version in range(5):\n"
        "    with graph.transaction(txn=('loader', version)) as tx:\n"
        "        tx.append('Person', [{'name': f'{version}-{sys.argv[2]}'}])\n"
        "    print(tx.receipt.commit, flush=True)\n"
    )
    children = [
        subprocess.Popen(
            [sys.executable, "-c", script, graph.root, str(number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(3)
    ]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    said = [child.communicate(timeout=BARRIER_SECONDS_MAX)[0].split() for child in children]
    assert [child.returncode for child in children] == [0, 0, 0]
    landed = [commit.id for commit in reversed(graph.log(limit=None)[:-1])]
    assert len(landed) == 5
    for told in said:
        # One that comes late is told of the application's newest commit: that is all that is remembered.
        assert all(commit in landed[version:] for version, commit in enumerate(told))
    assert [name[0] for name in names(graph)] == ["0", "1", "2", "3", "4"]
    assert no_sidecars(graph)


def test_a_txn_stays_applied_after_a_restore_that_took_its_rows_away(graph: og.Graph) -> None:
    before = graph.refresh()
    first = add(graph, "Ann", txn=TXN)
    graph.restore("main", before)
    assert names(graph) == []
    again = add(og.open(graph.root), "Ann", txn=TXN)
    assert (again.commit, again.rerun) == (first.commit, True)
    assert (names(graph), graph.refresh().version) == ([], 3)


def test_a_txn_stays_applied_after_its_branch_is_gone_and_the_manifest_was_cleaned(graph: og.Graph) -> None:
    graph.branches.create("review")
    first = add(graph, "Ann", branch="review", txn=TXN)
    graph.branches.delete("review")
    session_of(graph).manifest.cleanup(timedelta(0))
    for handle in (graph, og.open(graph.root)):
        again = add(handle, "Ann", txn=TXN)
        assert (again.commit, again.rerun) == (first.commit, True)
    assert graph.refresh().version == 1


def test_a_rerun_that_began_before_the_first_had_landed_is_told_so_at_the_end(graph: og.Graph) -> None:
    slow = og.open(graph.root).transaction(txn=TXN)
    slow.append("Event", [{"what": "slow"}])
    first = add(graph, "Ann", txn=TXN)
    slow.__exit__(None, None, None)
    assert (slow.receipt.commit, slow.receipt.rerun) == (first.commit, True)
    assert (graph.snapshot().count("Event"), no_sidecars(graph)) == (0, True)


def test_a_txn_that_failed_has_not_landed_and_may_be_tried_again(graph: og.Graph) -> None:
    add(graph, "Ann")
    with pytest.raises(OmnigraphError):
        add(graph, "Ann", txn=TXN)
    again = add(graph, "Bob", txn=TXN)
    assert (again.rerun, again.version, names(graph)) == (False, 3, ["Ann", "Bob"])
