"""Writing rows: one commit over any number of tables, or nothing; what is given twice is refused with the facts."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.errors import (
    BranchNotFoundError,
    InvalidDataError,
    InvalidOptionError,
    NotPermittedError,
    TypeNotFoundError,
)
from omnigraph.testing.places import place

SCHEMA = """
node Person { name: String @key  age: I32? }
node Event { what: String }
edge Knows: Person -> Person { since: I32? }
edge Likes: Person -> Person { @key(src, dst) }
"""


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    return og.init(tmp_path / "g", SCHEMA, actor="ann")


def people(*names: str) -> list[dict[str, Any]]:
    return [{"name": name} for name in names]


def add(graph: og.Graph, *names: str) -> og.Receipt:
    with graph.transaction() as tx:
        tx.append("Person", people(*names))
    return tx.receipt


def ids(graph: og.Graph, type_: str = "Person") -> list[Any]:
    return sorted(graph.snapshot().read(type_).column("id").to_pylist(), key=str)


def inserted(rows: int) -> dict[str, int]:
    """What a receipt says of new rows in one file, but for its size."""
    return {"rows_inserted": rows, "rows_updated": 0, "rows_unchanged": 0, "rows_deleted": 0, "files": 1}


def data_files(graph: og.Graph, key: str) -> list[Path]:
    table = graph.catalog(graph.refresh()).table_type(key)
    return sorted(place(graph.root).glob(f"*/{table.table_id}/data/*.lance"))


# -- all or nothing -----------------------------------------------------------------------------------


def test_several_tables_become_visible_in_one_commit(graph: og.Graph) -> None:
    with graph.transaction(message="load", actor="bob") as tx:
        tx.append("Person", people("Ann"))
        tx.append("Knows", [{"src": "Ann", "dst": "Bob"}])
        tx.append("Person", pa.table({"name": ["Bob"], "age": pa.array([7], pa.int32())}))
        assert og.open(graph.root).snapshot().count("Person") == 0
    head = graph.refresh()
    assert (head.version, head.actor, head.message, len(head.pins)) == (2, "bob", "load", 2)
    assert (ids(graph), graph.snapshot().count("Knows")) == (["Ann", "Bob"], 1)
    assert {pin.version for pin in head.pins.values()} == {1}


def test_the_receipt_says_what_was_published(graph: og.Graph) -> None:
    with graph.transaction() as tx:
        tx.append("Person", people("Ann", "Bob"))
        tx.append("Event", [{"what": "x"}])
    head = graph.refresh()
    told = tx.receipt.to_dict()
    spent, tables = told.pop("milliseconds"), told.pop("tables")
    assert told == {"branch": "main", "commit": head.id, "version": 2, "attempts": 1, "rerun": False, "rejected": {}}
    assert set(spent) == {"promise", "seal", "publish", "forget"}
    assert min(spent.values()) > 0
    assert set(tables) == {"node:Person", "node:Event"}
    for key, rows in (("node:Person", 2), ("node:Event", 1)):
        size = tables[key].pop("bytes")
        assert size == sum(file.stat().st_size for file in data_files(graph, key))
        assert tables[key] == inserted(rows)
        assert head.metrics[key] == {**inserted(rows), "bytes": size}


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, InvalidDataError])
def test_an_exception_in_the_block_publishes_nothing_and_comes_through(
    graph: og.Graph, error: type[BaseException]
) -> None:
    before = graph.refresh()
    with pytest.raises(error, match="enough"), graph.transaction() as tx:
        tx.append("Person", people("Ann"))
        raise error("enough")
    assert graph.refresh() == before
    with pytest.raises(NotPermittedError, match="no receipt"):
        _ = tx.receipt
    assert add(graph, "Ann").version == 2, "what was left behind is in nobody's way"


@pytest.mark.parametrize(
    ("type_", "rows"),
    [
        ("Persn", people("Ann")),
        ("Person", [{"nam": "Ann"}]),
        ("Person", [{"name": "Ann", "age": 2**31}]),
        ("Knows", [{"src": "Ann"}]),
    ],
)
def test_rows_that_do_not_fit_end_the_transaction_and_nothing_of_it_is_visible(
    graph: og.Graph, type_: str, rows: list[dict[str, Any]]
) -> None:
    with pytest.raises((InvalidDataError, TypeNotFoundError)), graph.transaction() as tx:
        tx.append("Person", people("Before"))
        tx.append(type_, rows)
    assert (graph.refresh().version, ids(graph)) == (1, [])


def test_a_transaction_that_has_ended_can_not_be_used_again(graph: og.Graph) -> None:
    with graph.transaction() as tx:
        tx.append("Person", people("Ann"))
    with pytest.raises(NotPermittedError, match="has ended"):
        tx.append("Person", people("Bob"))
    assert ids(graph) == ["Ann"]


def test_there_is_no_receipt_while_the_block_is_open(graph: og.Graph) -> None:
    with graph.transaction() as tx, pytest.raises(NotPermittedError, match="no receipt"):
        _ = tx.receipt


def test_an_ended_transaction_is_refused_with_a_code_of_its_own(graph: og.Graph) -> None:
    with graph.transaction() as tx:
        pass
    with pytest.raises(NotPermittedError) as refused:
        tx.append("Person", people("Bob"))
    assert refused.value.code != "OMNIGRAPH"


def test_a_block_can_not_be_entered_a_second_time(graph: og.Graph) -> None:
    tx = graph.transaction()
    with tx:
        tx.append("Event", [{"what": "once"}])
    with pytest.raises(NotPermittedError), tx:
        pass
    assert graph.snapshot().count("Event") == 1


def test_a_transaction_without_rows_makes_no_commit(graph: og.Graph) -> None:
    before = graph.refresh()
    with graph.transaction(message="nothing") as tx:
        tx.append("Person", pa.table({"name": pa.array([], pa.string())}))
    assert graph.refresh() == before
    assert tx.receipt.to_dict() == {
        "branch": "main",
        "commit": None,
        "version": None,
        "tables": {},
        "attempts": 0,
        "milliseconds": {},
        "rerun": False,
        "rejected": {},
    }


@pytest.mark.parametrize("rows", [[], pa.table({"name": pa.array([], pa.string())})])
def test_a_transaction_without_rows_leaves_no_files(graph: og.Graph, rows: Any) -> None:
    with graph.transaction() as tx:
        tx.append("Person", rows)
    assert not (place(graph.root) / "nodes").exists()


def test_an_empty_list_of_rows_is_nothing_to_do(graph: og.Graph) -> None:
    with graph.transaction() as tx:
        tx.append("Person", [])
    assert tx.receipt.commit is None


def test_a_branch_that_is_not_there_is_refused_before_anything_is_written(graph: og.Graph) -> None:
    with pytest.raises(BranchNotFoundError):
        graph.transaction("nowhere")


# -- what exists already ------------------------------------------------------------------------------


def test_an_id_given_twice_is_refused_with_how_many_and_a_sample(graph: og.Graph) -> None:
    names = [f"p{n}" for n in range(7)]
    given_twice = pytest.raises(InvalidDataError, match="7 ids of node:Person occur more than once")
    with given_twice as refused, graph.transaction() as tx:
        tx.append("Person", people(*names, "single"))
        tx.append("Person", people(*names))
    assert (refused.value.count, refused.value.table_key) == (7, "node:Person")
    assert refused.value.sample == ["p0", "p1", "p2", "p3", "p4"]
    assert "'p4', …" in str(refused.value)
    assert graph.refresh().version == 1


def test_an_id_that_is_committed_already_is_refused_with_how_many_and_a_sample(graph: og.Graph) -> None:
    add(graph, "Ann", "Bob")
    there_already = pytest.raises(InvalidDataError, match="nothing was applied: 2 ids of node:Person exist already")
    with there_already as refused, graph.transaction() as tx:
        tx.append("Event", [{"what": "x"}])
        tx.append("Person", people("Bob", "Cid", "Ann"))
    assert (refused.value.count, refused.value.sample) == (2, ["Ann", "Bob"])
    assert (ids(graph), graph.snapshot().count("Event")) == (["Ann", "Bob"], 0)


def test_thousands_of_ids_are_looked_up_in_full(graph: og.Graph) -> None:
    many = [f"p{n:06}" for n in range(20_000)]
    with graph.transaction() as tx:
        tx.append("Person", pa.table({"name": many}))
    with pytest.raises(InvalidDataError) as refused, graph.transaction() as tx:
        tx.append("Person", pa.table({"name": ["new", many[0], many[9_000], many[-1]]}))
    assert refused.value.sample == [many[0], many[9_000], many[-1]]
    assert graph.snapshot().count("Person") == 20_000


def test_the_same_id_may_exist_in_another_table_or_on_another_branch(graph: og.Graph) -> None:
    graph.branches.create("review")
    add(graph, "Ann")
    with graph.transaction("review") as tx:
        tx.append("Person", people("Ann"))
        tx.append("Event", [{"id": "Ann", "what": "x"}])
    assert tx.receipt.version == 2


def test_an_edge_with_a_key_is_the_same_edge_and_one_without_is_another(graph: og.Graph) -> None:
    pair = {"src": "Ann", "dst": "Bob"}
    with graph.transaction() as tx:
        tx.append("Person", people("Ann", "Bob"))
        tx.append("Likes", [pair])
        tx.append("Knows", [pair, pair])
    assert ids(graph, "Likes") == ['["Ann","Bob"]']
    with graph.transaction() as tx:
        tx.append("Knows", [pair])
    assert len(set(ids(graph, "Knows"))) == 3
    with pytest.raises(InvalidDataError, match="1 ids of edge:Likes exist already"), graph.transaction() as tx:
        tx.append("Likes", [pair])


# -- races --------------------------------------------------------------------------------------------


def test_appends_that_race_all_land(graph: og.Graph) -> None:
    handles = [og.open(graph.root) for _ in range(6)]
    together = threading.Barrier(len(handles))

    def work(number: int) -> list[int | None]:
        versions = []
        for turn in range(3):
            with handles[number].transaction() as tx:
                tx.append("Person", people(f"{number}-{turn}"))
                tx.append("Knows", [{"src": f"{number}-{turn}", "dst": f"{number}-{turn}"}])
                if turn == 0:
                    together.wait(60)
            versions.append(tx.receipt.version)
        return versions

    with ThreadPoolExecutor(len(handles)) as pool:
        versions = [version for found in pool.map(work, range(len(handles))) for version in found]
    assert sorted(v for v in versions if v is not None) == list(range(2, 20))
    assert len(set(ids(graph))) == graph.snapshot().count("Person") == 18
    assert graph.snapshot().count("Knows") == 18


def test_an_append_that_was_overtaken_is_sealed_on_the_newer_table(graph: og.Graph) -> None:
    tx = graph.transaction()
    tx.append("Person", people("Slow"))
    add(og.open(graph.root), "Fast")
    tx.__exit__(None, None, None)
    assert tx.receipt.version == 3
    assert ids(graph) == ["Fast", "Slow"]
    assert [pin.version for pin in graph.refresh().pins.values()] == [2]


def test_an_append_that_was_overtaken_by_the_same_id_is_refused(graph: og.Graph) -> None:
    tx = graph.transaction()
    tx.append("Person", people("Ann"))
    add(og.open(graph.root), "Ann")
    with pytest.raises(InvalidDataError, match="exist already"):
        tx.__exit__(None, None, None)
    assert (ids(graph), graph.refresh().version) == (["Ann"], 2)


# -- who and why --------------------------------------------------------------------------------------


def test_the_actor_is_the_handles_unless_the_transaction_names_one(graph: og.Graph) -> None:
    add(graph, "Ann")
    with graph.transaction(actor="bob") as tx:
        tx.append("Person", people("Bob"))
    add(og.open(graph.root), "Cid")
    assert [commit.actor for commit in graph.log()] == [None, "bob", "ann", "ann"]


@pytest.mark.parametrize("actor", ["", "omnigraph:recovery", "omnigraph:", "a\nb", "\x00", "x" * 201])
def test_an_actor_that_is_reserved_or_unprintable_is_refused_before_anything_is_written(
    graph: og.Graph, actor: str
) -> None:
    acts: list[Callable[[], object]] = [
        lambda: graph.transaction(actor=actor),
        lambda: og.open(graph.root, actor=actor),
        lambda: og.open(graph.root, actor=actor, read_only=True),
    ]
    for act in acts:
        with pytest.raises(InvalidOptionError, match="actor"):
            act()
    assert graph.refresh().version == 1


def test_a_message_is_kept_whole_up_to_its_limit_and_refused_beyond(graph: og.Graph) -> None:
    longest = "ü𝄞\n'" * 4_096
    with graph.transaction(message=longest) as tx:
        tx.append("Person", people("Ann"))
    assert og.open(graph.root).refresh().message == longest
    for act in (lambda text: graph.transaction(message=text), lambda text: graph.restore("main", "main", message=text)):
        with pytest.raises(InvalidOptionError, match="16385 characters; at most 16384"):
            act(longest + "x")
    assert graph.refresh().version == 2
