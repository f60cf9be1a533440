"""Writers that race: what commutes all lands, of two strict ones exactly one wins, and the loser is told the facts."""

import random
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import pytest

import omnigraph as og
from omnigraph.engine.transaction import Transaction
from omnigraph.errors import InvalidDataError, OmnigraphError, VersionConflictError
from omnigraph.testing.places import place
from omnigraph.testing.worker import SCHEMA as WORKER_SCHEMA
from omnigraph.testing.worker import orders, start

SCHEMA = """
node Person { name: String @key  age: I32? }
node Event { what: String }
edge Knows: Person -> Person
"""
WRITERS = 16
BARRIER_SECONDS_MAX = 120.0

T = TypeVar("T")
Act = Callable[[Transaction], None]


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    return og.init(tmp_path / "g", SCHEMA)


@pytest.fixture
def peopled(graph: og.Graph) -> og.Graph:
    """A graph with ten people of age 0."""
    write(graph, lambda tx: tx.append("Person", aged(range(10), 0)))
    return graph


def aged(numbers: Sequence[int], age: int) -> list[dict[str, Any]]:
    return [{"name": f"p{number}", "age": age} for number in numbers]


def write(graph: og.Graph, act: Act, branch: str = "main", **more: Any) -> og.Receipt:
    with graph.transaction(branch, **more) as tx:
        act(tx)
    return tx.receipt


def ages(graph: og.Graph, branch: str = "main") -> dict[str, int]:
    found = graph.snapshot(branch).read("Person").to_pylist()
    assert len({row["id"] for row in found}) == len(found), "no id twice"
    return {row["id"]: row["age"] for row in found}


def sidecars(graph: og.Graph) -> list[str]:
    return sorted(path.name for path in (place(graph.root) / "__recovery").glob("*"))


def all_at_once(count: int, work: Callable[[int, threading.Barrier], T]) -> list[T]:
    """Do the same in several threads, which meet at a barrier wherever ``work`` waits for it."""
    together = threading.Barrier(count, timeout=BARRIER_SECONDS_MAX)
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(lambda number: work(number, together), range(count)))


def race(graph: og.Graph, acts: Sequence[Act], branch: str = "main") -> list[og.Receipt | OmnigraphError]:
    """Let each act plan on the same version with a handle of its own, then publish all at the same moment."""
    handles = [og.open(graph.root) for _ in acts]

    def work(number: int, together: threading.Barrier) -> og.Receipt | OmnigraphError:
        try:
            with handles[number].transaction(branch) as tx:
                acts[number](tx)
                together.wait()
        except OmnigraphError as refused:
            return refused
        return tx.receipt

    return all_at_once(len(acts), work)


def check_nothing_in_the_way(graph: og.Graph, branch: str = "main") -> None:
    """No promise is left, nobody had to recover anything, and the very next write lands."""
    assert sidecars(graph) == []
    assert graph.recoveries() == []
    version = graph.refresh().version if branch == "main" else graph.on(branch).refresh().version
    assert write(graph, lambda tx: tx.upsert("Person", aged([99], 99)), branch).version == version + 1
    assert ages(graph, branch)["p99"] == 99


def check_lost(refused: object, expected: int, actual: int) -> None:
    assert isinstance(refused, VersionConflictError)
    told = refused.to_dict()
    assert told["manifest_conflict"] == {"table_key": "node:Person", "expected": expected, "actual": actual}
    assert (told["kind"], told["code"], told["retryable"]) == ("VERSION_CONFLICT", "conflict", True)
    assert "refresh and retry" in told["error"]
    assert not {"table_key", "expected", "actual"} & set(told), "said once, in one place"


# -- what commutes ------------------------------------------------------------------------------------


def test_sixteen_writers_inserting_into_one_table_all_land_and_none_hears_of_a_conflict(graph: og.Graph) -> None:
    handles = [og.open(graph.root) for _ in range(WRITERS)]

    def work(number: int, together: threading.Barrier) -> list[int | None]:
        versions = []
        for turn in range(3):
            with handles[number].transaction() as tx:
                tx.append("Person", [{"name": f"{number}-{turn}"}])
                together.wait()
            versions.append(tx.receipt.version)
        return versions

    versions = [version for found in all_at_once(WRITERS, work) for version in found]
    assert sorted(versions, key=lambda v: v or 0) == list(range(2, 2 + 3 * WRITERS))
    assert set(ages(graph)) == {f"{number}-{turn}" for number in range(WRITERS) for turn in range(3)}
    check_nothing_in_the_way(graph)


def test_sixteen_processes_and_threads_may_mix_and_all_rows_land(tmp_path: Path) -> None:
    graph = og.init(tmp_path / "w", WORKER_SCHEMA)
    workers = [start(order) for order in orders("append", graph.root, 8, times=3)]
    for worker in workers:
        worker.ready()
    for worker in workers:
        worker.go()
    mine = all_at_once(8, lambda n, _: write(og.open(graph.root), lambda tx: tx.append("Person", [{"name": f"t{n}"}])))
    said = [line for worker in workers for line in worker.acknowledged()]
    commits = [line["done"] for line in said] + [receipt.commit for receipt in mine]
    assert Counter(commits) == Counter(commit.id for commit in graph.log(limit=None)[:-1])
    assert graph.snapshot().count("Person") == len(commits) == 8 * 3 + 8
    assert (sidecars(graph), graph.recoveries()) == ([], [])


def test_upserts_of_overlapping_ids_all_land_and_the_result_is_one_serial_order(peopled: og.Graph) -> None:
    chosen = {n: random.Random(n).sample(range(20), 8) for n in range(WRITERS)}
    handles = [og.open(peopled.root) for _ in range(WRITERS)]

    def work(number: int, together: threading.Barrier) -> og.Receipt:
        together.wait()
        rows = aged(chosen[number], number + 1)
        return write(handles[number], lambda tx: tx.upsert("Person", rows), user_metadata=str(number))

    receipts = all_at_once(WRITERS, work)
    assert len({receipt.commit for receipt in receipts}) == WRITERS
    model = {f"p{number}": 0 for number in range(10)}
    for commit in reversed(peopled.log(limit=WRITERS)):
        assert commit.user_metadata is not None
        number = int(commit.user_metadata)
        rows = aged(chosen[number], number + 1)
        new = sum(row["name"] not in model for row in rows)
        counted = commit.metrics["node:Person"]
        assert (counted.get("rows_inserted", 0), counted.get("rows_updated", 0)) == (new, 8 - new)
        model |= {row["name"]: row["age"] for row in rows}
        assert ages_at(peopled, commit.id) == model, "every commit is its predecessor and its own rows"
    assert ages(peopled) == model
    check_nothing_in_the_way(peopled)


def ages_at(graph: og.Graph, commit: str) -> dict[str, int]:
    return {row["id"]: row["age"] for row in graph.snapshot(commit=commit).read("Person").to_pylist()}


def test_an_insert_of_a_key_someone_else_has_just_inserted_is_refused_with_the_id(graph: og.Graph) -> None:
    for turn in range(4):
        name = f"same{turn}"

        def insert(tx: Transaction, name: str = name) -> None:
            tx.append("Person", [{"name": name}, {"name": f"{name}-{threading.get_ident()}"}])

        answers = race(graph, [insert] * 4)
        lost = [answer for answer in answers if isinstance(answer, OmnigraphError)]
        assert [type(answer) for answer in lost] == [InvalidDataError] * 3
        assert {tuple(answer.to_dict()["sample"]) for answer in lost} == {(name,)}
        assert all(answer.to_dict()["table_key"] == "node:Person" for answer in lost)
        assert len([found for found in ages(graph) if found.startswith(name)]) == 2, "nothing of the losers"
    assert graph.refresh().version == 5
    check_nothing_in_the_way(graph)


# -- what does not ------------------------------------------------------------------------------------

STRICT: dict[str, tuple[Act, dict[str, int]]] = {
    "overwrite": (lambda tx: tx.overwrite("Person", aged(range(3), 7)), {"p0": 7, "p1": 7, "p2": 7}),
    "overwrite to nothing": (lambda tx: tx.overwrite("Person", []), {}),
    "delete by filter": (lambda tx: tx.delete("Person", "age = 0"), {}),
    "delete by id": (
        lambda tx: tx.delete("Person", ids=["p0", "p5"]),
        {f"p{n}": 0 for n in range(10) if n not in (0, 5)},
    ),
}
PLIANT: dict[str, tuple[Act, dict[str, int]]] = {
    "append": (lambda tx: tx.append("Person", aged([50, 51], 1)), {"p50": 1, "p51": 1}),
    "upsert": (lambda tx: tx.upsert("Person", aged([0, 50], 1)), {"p0": 1, "p50": 1}),
}


@pytest.mark.parametrize("second", STRICT)
@pytest.mark.parametrize("first", STRICT)
def test_of_two_strict_writers_exactly_one_wins_and_nothing_of_the_other_is_seen(
    peopled: og.Graph, first: str, second: str
) -> None:
    answers = race(peopled, [STRICT[first][0], STRICT[second][0]])
    won = [isinstance(answer, og.Receipt) for answer in answers]
    assert sorted(won) == [False, True]
    check_lost(answers[won.index(False)], expected=1, actual=2)
    assert ages(peopled) == STRICT[(first, second)[won.index(True)]][1]
    assert peopled.refresh().version == 3
    check_nothing_in_the_way(peopled)


@pytest.mark.parametrize("pliant", PLIANT)
@pytest.mark.parametrize("strict", STRICT)
def test_a_strict_writer_that_was_overtaken_loses_and_one_that_was_first_is_built_upon(
    peopled: og.Graph, strict: str, pliant: str
) -> None:
    answers = race(peopled, [STRICT[strict][0], PLIANT[pliant][0]])
    assert isinstance(answers[1], og.Receipt), "what commutes lands in any case"
    before = {f"p{n}": 0 for n in range(10)}
    if isinstance(answers[0], og.Receipt):
        assert (answers[0].version, answers[1].version) == (3, 4)
        assert ages(peopled) == STRICT[strict][1] | PLIANT[pliant][1]
    else:
        check_lost(answers[0], expected=1, actual=2)
        assert ages(peopled) == before | PLIANT[pliant][1]
    check_nothing_in_the_way(peopled)


@pytest.mark.parametrize("pliant", PLIANT)
@pytest.mark.parametrize("strict", STRICT)
def test_a_strict_writer_that_publishes_after_a_whole_other_write_loses(
    peopled: og.Graph, strict: str, pliant: str
) -> None:
    slow = og.open(peopled.root).transaction()
    STRICT[strict][0](slow)
    write(peopled, PLIANT[pliant][0])
    with pytest.raises(VersionConflictError) as refused:
        slow.__exit__(None, None, None)
    check_lost(refused.value, expected=1, actual=2)
    assert ages(peopled) == {f"p{n}": 0 for n in range(10)} | PLIANT[pliant][1]
    check_nothing_in_the_way(peopled)


@pytest.mark.parametrize("pliant", PLIANT)
@pytest.mark.parametrize("strict", STRICT)
def test_what_commutes_is_worked_out_anew_on_what_a_strict_writer_left(
    peopled: og.Graph, strict: str, pliant: str
) -> None:
    slow = og.open(peopled.root).transaction()
    PLIANT[pliant][0](slow)
    write(peopled, STRICT[strict][0])
    slow.__exit__(None, None, None)
    assert ages(peopled) == STRICT[strict][1] | PLIANT[pliant][1]
    check_nothing_in_the_way(peopled)


def test_of_many_strict_writers_at_once_exactly_one_wins(peopled: og.Graph) -> None:
    acts: list[Act] = [lambda tx, n=n: tx.overwrite("Person", aged([n], n)) for n in range(8)]  # type: ignore[misc]
    answers = race(peopled, acts)
    winners = [number for number, answer in enumerate(answers) if isinstance(answer, og.Receipt)]
    assert len(winners) == 1
    for number, answer in enumerate(answers):
        if number not in winners:
            check_lost(answer, expected=1, actual=2)
    assert ages(peopled) == {f"p{winners[0]}": winners[0]}
    check_nothing_in_the_way(peopled)


def test_a_conflict_on_one_table_takes_the_whole_transaction_with_it(peopled: og.Graph) -> None:
    slow = og.open(peopled.root).transaction()
    slow.append("Event", [{"what": "of the loser"}])
    slow.append("Knows", [{"src": "p1", "dst": "p1"}])
    slow.overwrite("Person", aged([1], 1))
    write(peopled, lambda tx: tx.upsert("Person", aged([1], 2)))
    with pytest.raises(VersionConflictError) as refused:
        slow.__exit__(None, None, None)
    check_lost(refused.value, expected=1, actual=2)
    snapshot = peopled.snapshot()
    assert (snapshot.count("Event"), snapshot.count("Knows"), snapshot.count("Person")) == (0, 0, 10)
    check_nothing_in_the_way(peopled)


def test_a_loser_that_does_as_it_is_told_lands_the_second_time(peopled: og.Graph) -> None:
    handles = [og.open(peopled.root) for _ in range(6)]
    lost: list[int] = []

    def work(number: int, together: threading.Barrier) -> None:
        together.wait()
        while True:
            try:
                write(handles[number], lambda tx: tx.delete("Person", ids=[f"p{number}"]))
            except VersionConflictError as refused:
                assert refused.retryable
                lost.append(number)
            else:
                return

    all_at_once(6, work)
    assert set(ages(peopled)) == {"p6", "p7", "p8", "p9"}
    assert [commit.metrics["node:Person"]["rows_deleted"] for commit in peopled.log(limit=6)] == [1] * 6
    assert lost, "they did race"


def test_writers_of_different_tables_and_branches_never_conflict(peopled: og.Graph) -> None:
    peopled.branches.create("review")
    acts = [
        lambda g: write(g, lambda tx: tx.overwrite("Person", [])),
        lambda g: write(g, lambda tx: tx.overwrite("Event", [{"what": "x"}])),
        lambda g: write(g, lambda tx: tx.overwrite("Knows", [])),
        lambda g: write(g, lambda tx: tx.delete("Person", "age = 0"), "review"),
    ]
    handles = [og.open(peopled.root) for _ in acts]
    write(peopled, lambda tx: tx.append("Knows", [{"src": "p1", "dst": "p1"}]), "review")
    receipts = all_at_once(len(acts), lambda number, _: acts[number](handles[number]))
    assert [receipt.branch for receipt in receipts] == ["main", "main", "main", "review"]
    assert (ages(peopled), ages(peopled, "review")) == ({}, {})
    assert (peopled.snapshot().count("Event"), peopled.snapshot().count("Knows")) == (1, 0)
