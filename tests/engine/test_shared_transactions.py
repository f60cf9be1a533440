"""Transactions that several processes stage for by a ticket, and one of them publishes as one commit."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.engine.upkeep_kit import aged, die_at, table_files

import omnigraph as og
from omnigraph.engine.parts import Verb
from omnigraph.engine.shared import Shared
from omnigraph.errors import (
    AlreadyAppliedError,
    BranchConflictError,
    ConstraintError,
    CorruptGraphError,
    InvalidDataError,
    InvalidOptionError,
    MixedMutationError,
    OmnigraphError,
    StorageError,
    TransactionNotFoundError,
    TransactionStateError,
    UnsupportedFormatError,
    VersionConflictError,
)
from omnigraph.failpoints import Failpoint, FailpointError
from omnigraph.ids import CommitId
from omnigraph.model.shared import Closing
from omnigraph.testing.crash_matrix import WRITE_POINTS
from omnigraph.testing.places import place

SCHEMA = """
node Person { name: String @key  age: I32?  @range(age, 0..150) }
edge Knows: Person -> Person
"""
PUBLISHING = tuple(point for point in Failpoint if point in WRITE_POINTS and not point.startswith("stage."))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "g"


@pytest.fixture
def graph(root: Path) -> og.Graph:
    graph = og.init(root, SCHEMA, actor="maker")
    with graph.transaction() as tx:
        tx.append("Person", [{"name": name, "age": 1} for name in ("Ann", "Bob", "Cid")])
    return graph


def save(
    root: Path, ticket: str, rows: list[dict[str, Any]], type: str = "Person", verb: Verb = "append", **more: Any
) -> None:
    """Save rows as a process does that has nothing but the root and the ticket, in two parts."""
    graph = og.open(root)
    name: tuple[str, int] | None = more.pop("name", None)
    saving = graph.saving(ticket, **more)
    if saving.is_saved(type, verb, name):
        return
    order = saving.order(type, verb)
    halves = [order.stage([pa.RecordBatch.from_pylist([row])]) for row in rows] or [order.stage([])]
    graph.saving(ticket).keep(type, verb, halves, name)


def people(*names: str, age: int = 1) -> list[dict[str, Any]]:
    return [{"name": name, "age": age} for name in names]


def ages(graph: og.Graph, branch: str = "main") -> dict[str, int]:
    return {row["name"]: row["age"] for row in graph.snapshot(branch).read("Person").to_pylist()}


def staging(root: Path) -> list[str]:
    return sorted(path.name for path in (place(root) / "__staging").rglob("*") if path.is_file())


def test_saves_of_several_types_and_rows_of_its_own_are_one_commit_whose_id_is_the_ticket(
    graph: og.Graph, root: Path
) -> None:
    graph.branches.create("review")
    with graph.transaction("review", message="together", user_metadata="u", actor="etl") as tx:
        ticket = tx.ticket
        save(root, ticket, people("Dan", "Eve"))
        save(root, ticket, [{"src": "Dan", "dst": "Fay"}], "Knows")
        save(root, ticket, people("Ann", age=9), verb="upsert", branch="review")
        assert ages(graph, "review") == {"Ann": 1, "Bob": 1, "Cid": 1}
        tx.append("Person", people("Fay"))
    assert tx.receipt.commit == ticket
    assert ages(graph, "review") == {"Ann": 9, "Bob": 1, "Cid": 1, "Dan": 1, "Eve": 1, "Fay": 1}
    head = graph.snapshot("review").commit
    assert (head.id, head.version, head.message, head.user_metadata, head.actor) == (ticket, 3, "together", "u", "etl")
    assert tx.receipt.tables["node:Person"].rows_inserted == 3
    assert graph.snapshot("review").count("Knows") == 1
    assert staging(root) == ["ended.json", "transaction.json"]


def test_a_transaction_is_handed_on_and_published_by_another_process(graph: og.Graph, root: Path) -> None:
    ticket = og.open(root, actor="begins").transaction(message="handed on").ticket
    save(root, ticket, people("Dan"))
    with graph.transaction() as other:  # the branch may move meanwhile
        other.append("Person", people("Zoe"))
    with og.open(root, actor="ends").transaction(ticket=ticket.lower()) as tx:
        pass
    assert (tx.receipt.commit, tx.receipt.rerun) == (ticket, False)
    assert (graph.refresh().actor, graph.refresh().message) == ("begins", "handed on")
    assert sorted(ages(graph)) == ["Ann", "Bob", "Cid", "Dan", "Zoe"]


def test_publishing_again_is_a_rerun_for_ever(graph: og.Graph, root: Path) -> None:
    ticket = graph.transaction().ticket
    save(root, ticket, people("Dan"))
    for rerun in (False, True):
        with graph.transaction(ticket=ticket) as tx:
            pass
        assert (tx.receipt.commit, tx.receipt.rerun) == (ticket, rerun)
    aged(root)
    graph.cleanup(keep=1)
    assert staging(root) == []
    with og.open(root).transaction(ticket=ticket) as tx:
        pass
    assert (tx.receipt.rerun, graph.refresh().version) == (True, 3)


@pytest.mark.parametrize("verb", ["append", "upsert"])
def test_a_save_that_is_tried_again_adds_nothing(graph: og.Graph, root: Path, verb: Verb) -> None:
    edges = [{"src": "Ann", "dst": "Bob"}]  # ids are made anew at every try, so twice would be two
    ticket = graph.transaction().ticket
    for _ in range(2):
        save(root, ticket, edges, "Knows", verb, name=("nightly", 1))
    save(root, ticket, edges, "Knows", verb, name=("nightly", 2))
    with graph.transaction(ticket=ticket):
        pass
    save(root, ticket, edges, "Knows", verb, name=("nightly", 2))  # also when all is over
    assert graph.snapshot().count("Knows") == 2
    with pytest.raises(TransactionStateError, match="has ended"):
        save(root, ticket, edges, "Knows", verb, name=("nightly", 3))


def test_two_saves_without_a_name_in_one_place_are_refused_and_never_guessed_about(graph: og.Graph, root: Path) -> None:
    ticket = graph.transaction().ticket
    late = og.open(root).saving(ticket)
    part = late.order("Person", "append").stage([pa.RecordBatch.from_pylist(people("Eve"))])
    save(root, ticket, people("Dan"))
    with pytest.raises(AlreadyAppliedError, match="name saves by txnAppId"):
        save(root, ticket, people("Eve"))
    with pytest.raises(AlreadyAppliedError):
        late.keep("Person", "append", [part])
    save(root, ticket, people("Fay"), name=("more", 1))
    with graph.transaction(ticket=ticket):
        pass
    assert sorted(ages(graph)) == ["Ann", "Bob", "Cid", "Dan", "Fay"]


def test_a_save_that_comes_while_saves_are_counted_is_in_or_is_told_that_it_is_not(graph: og.Graph, root: Path) -> None:
    ticket = graph.transaction().ticket
    save(root, ticket, people("Dan"))
    late = og.open(root).saving(ticket)
    part = late.order("Knows", "append").stage([pa.RecordBatch.from_pylist([{"src": "Ann", "dst": "Bob"}])])
    with graph.transaction(ticket=ticket):
        pass
    with pytest.raises(TransactionStateError, match="has ended"):
        late.keep("Knows", "append", [part])
    assert graph.snapshot().count("Knows") == 0
    # Someone who said that they count, and died: whoever comes next counts for them.
    other = graph.transaction().ticket
    session = graph._session
    session.shared.close(CommitId(other), Closing(alone=None))
    save(root, other, people("Eve"))
    assert session.shared.ending(CommitId(other)) is not None
    with pytest.raises(TransactionStateError, match="has ended"):
        save(root, other, [{"src": "Ann", "dst": "Bob"}], "Knows")
    with graph.transaction(ticket=other):
        pass
    assert sorted(ages(graph)) == ["Ann", "Bob", "Cid", "Dan", "Eve"]


def test_many_save_and_several_publish_at_once_and_all_that_was_saved_is_there_once(
    graph: og.Graph, root: Path
) -> None:
    ticket = graph.transaction().ticket
    for number in range(4):
        save(root, ticket, people(f"sure-{number}"), name=("sure", number))

    def act(number: int) -> str | None:
        try:
            if number % 4 == 3:
                with og.open(root).transaction(ticket=ticket):
                    pass
                return None
            save(root, ticket, people(f"p{number}"), name=("crowd", number))
        except TransactionStateError:
            return None
        return f"p{number}"

    with ThreadPoolExecutor(6) as pool:
        saved = {name for name in pool.map(act, range(24)) if name is not None}
    sure = {f"sure-{number}" for number in range(4)}
    assert set(ages(graph)) == {"Ann", "Bob", "Cid"} | sure | saved
    assert graph.refresh().version == 3
    assert graph.verify(deep=True).findings == ()


def test_rows_that_only_the_one_who_began_has_are_never_left_out(graph: og.Graph, root: Path) -> None:
    with pytest.raises(TransactionStateError, match="without the rows that were given here"), graph.transaction() as tx:
        save(root, tx.ticket, people("Dan"))
        tx.append("Person", people("Own"))
        with og.open(root).transaction(ticket=tx.ticket):
            pass
    assert sorted(ages(graph)) == ["Ann", "Bob", "Cid", "Dan"]
    with graph.transaction() as tx:
        ticket = tx.ticket
        tx.append("Person", people("Own"))
    with graph.transaction(ticket=ticket) as again:
        pass
    assert (again.receipt.commit, again.receipt.rerun) == (ticket, True)


def test_whatever_is_no_ticket_here_is_refused_by_name(graph: og.Graph, root: Path, tmp_path: Path) -> None:
    other = og.init(tmp_path / "other", SCHEMA)
    uses: tuple[Callable[[Any], object], ...] = (graph.saving, lambda text: graph.transaction(ticket=text))
    for use in uses:
        for wrong in ("", "nonsense", "../../etc", 7):
            with pytest.raises(InvalidOptionError, match="is no ticket"):
                use(wrong)
        with pytest.raises(TransactionNotFoundError, match=r"\[TRANSACTION_NOT_FOUND\] no transaction of this graph"):
            use(other.transaction().ticket)
    ticket = graph.transaction().ticket
    with pytest.raises(InvalidOptionError, match="is for branch 'main', not for 'review'"):
        graph.saving(ticket, "review")
    with pytest.raises(InvalidOptionError, match="give nothing else"):
        graph.transaction(ticket=ticket, message="another")
    with pytest.raises(InvalidOptionError, match="can not be sorted out"):
        _ = graph.transaction(constraints="quarantine").ticket


def test_a_ticket_expires_before_anything_that_it_stands_for_can_be_cleaned_up(graph: og.Graph, root: Path) -> None:
    ticket = graph.transaction().ticket
    save(root, ticket, people("Dan"))
    aged(root, timedelta(days=5))
    before = table_files(root)
    graph.cleanup(keep=1, grace="1s")
    assert table_files(root) >= {name for name in before if "/data/" in name}
    aged(root, timedelta(days=1))
    uses: tuple[Callable[[Any], object], ...] = (graph.saving, lambda text: graph.transaction(ticket=text))
    for use in uses:
        with pytest.raises(TransactionNotFoundError, match="has expired: a ticket lasts 6 days"):
            use(ticket)
    aged(root, timedelta(days=1, seconds=1))  # more than a day also for a store that counts whole seconds
    graph.cleanup(keep=1)
    assert staging(root) == []
    assert len(table_files(root)) < len(before)
    with pytest.raises(TransactionNotFoundError):
        graph.saving(ticket)


def test_what_is_given_up_is_gone_and_in_nobodys_way(graph: og.Graph, root: Path) -> None:
    begin = len(table_files(root))
    tickets = []
    with pytest.raises(ZeroDivisionError), graph.transaction() as tx:
        tickets.append(tx.ticket)
        save(root, tx.ticket, people("Dan"))
        raise ZeroDivisionError
    tickets.append(graph.transaction().ticket)
    save(root, tickets[1], people("Eve"))
    graph.transaction(ticket=tickets[1]).give_up()
    for ticket in tickets:
        with pytest.raises(TransactionStateError, match="was given up"):
            save(root, ticket, people("Fay"), name=("late", 1))
        with pytest.raises(TransactionStateError, match="was given up"), graph.transaction(ticket=ticket):
            pass
    with graph.transaction() as tx:
        tx.append("Person", people("Gus"))
    assert sorted(ages(graph)) == ["Ann", "Bob", "Cid", "Gus"]
    aged(root)
    graph.cleanup(keep=9)
    assert staging(root) == []
    assert len(table_files(root)) <= begin + 3


def test_a_transaction_that_was_given_up_is_not_published_when_its_block_ends(graph: og.Graph, root: Path) -> None:
    with pytest.raises(TransactionStateError, match="given up"), graph.transaction() as tx:
        save(root, tx.ticket, people("Dan"))
        tx.give_up()
    assert graph.refresh().version == 2


@pytest.mark.parametrize(
    ("saves", "error"),
    [
        ([("Person", "append", people("Ann"))], InvalidDataError),
        ([("Person", "append", people("Dan")), ("Person", "upsert", people("Dan"))], InvalidDataError),
        ([("Knows", "append", [{"src": "Ann", "dst": "Nobody"}])], ConstraintError),
    ],
)
def test_what_is_wrong_with_all_of_it_refuses_all_of_it_and_ends_it(
    graph: og.Graph, root: Path, saves: list[tuple[str, Verb, list[dict[str, Any]]]], error: type[OmnigraphError]
) -> None:
    ticket = graph.transaction().ticket
    for type, verb, rows in saves:
        save(root, ticket, rows, type, verb)
    save(root, ticket, people("Zoe"), name=("good", 1))
    with pytest.raises(error), graph.transaction(ticket=ticket):
        pass
    assert sorted(ages(graph)) == ["Ann", "Bob", "Cid"]
    with pytest.raises(OmnigraphError), graph.transaction(ticket=ticket):
        pass
    assert sorted(ages(graph)) == ["Ann", "Bob", "Cid"]


def test_what_is_wrong_with_a_save_by_itself_is_said_when_it_is_made(graph: og.Graph, root: Path) -> None:
    ticket = graph.transaction().ticket
    with pytest.raises(ConstraintError, match="@range"):
        save(root, ticket, people("Old", age=200))
    with pytest.raises(InvalidDataError, match="required"):
        save(root, ticket, [{"name": None, "age": 1}])
    save(root, ticket, people("Dan"))
    with pytest.raises(MixedMutationError, match="never both"):
        save(root, ticket, [{"id": "Ann"}], verb="delete")
    with pytest.raises(InvalidOptionError, match="an overwrite goes alone"):
        save(root, ticket, people("Eve"), verb="overwrite")
    with graph.transaction(ticket=ticket):
        pass
    assert sorted(ages(graph)) == ["Ann", "Bob", "Cid", "Dan"]


def test_deletes_and_overwrites_are_saved_too_and_conflict_with_what_came_meanwhile(
    graph: og.Graph, root: Path
) -> None:
    with graph.transaction() as tx:
        save(root, tx.ticket, [{"id": "Ann"}, {"id": "Zoe"}], verb="delete")
    assert sorted(ages(graph)) == ["Bob", "Cid"]
    with graph.transaction() as tx:
        save(root, tx.ticket, people("Dan", age=4), verb="overwrite")
    assert ages(graph) == {"Dan": 4}
    with graph.transaction() as tx:
        save(root, tx.ticket, [], verb="overwrite")
    assert ages(graph) == {}
    with pytest.raises(VersionConflictError), graph.transaction() as tx:
        save(root, tx.ticket, people("Eve"), verb="overwrite")
        with graph.transaction() as other:
            other.append("Person", people("Fay"))
    assert sorted(ages(graph)) == ["Fay"]


def test_a_txn_that_has_landed_makes_saves_and_publish_do_nothing(graph: og.Graph, root: Path) -> None:
    for rerun in (False, True):
        with graph.transaction(txn=("nightly", 7)) as tx:
            save(root, tx.ticket, [{"src": "Ann", "dst": "Bob"}], "Knows")
        assert tx.receipt.rerun is rerun
    assert graph.snapshot().count("Knows") == 1


def test_a_branch_that_was_made_anew_is_another_one(graph: og.Graph, root: Path) -> None:
    graph.branches.create("review")
    ticket = graph.transaction("review").ticket
    save(root, ticket, people("Dan"))
    graph.branches.delete("review")
    graph.branches.create("review")
    with pytest.raises(BranchConflictError), graph.transaction(ticket=ticket):
        pass
    assert sorted(ages(graph, "review")) == ["Ann", "Bob", "Cid"]


def test_a_commit_that_a_transaction_began_on_is_kept_for_it(graph: og.Graph, root: Path) -> None:
    ticket = graph.transaction().ticket
    for number in range(3):
        with graph.transaction() as tx:
            tx.upsert("Person", people(f"more-{number}"))
    graph.cleanup(keep=1)
    save(root, ticket, people("Ann", age=5), verb="upsert")
    with graph.transaction(ticket=ticket):
        pass
    assert ages(graph)["Ann"] == 5


@pytest.mark.parametrize("point", PUBLISHING)
def test_who_dies_while_publishing_is_followed_by_another_who_does_it_once(
    graph: og.Graph, root: Path, point: Failpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticket = graph.transaction().ticket
    save(root, ticket, people("Dan"))
    save(root, ticket, [{"src": "Dan", "dst": "Ann"}], "Knows")
    live = die_at(monkeypatch, point)
    with pytest.raises(FailpointError), graph.transaction(ticket=ticket):
        pass
    live()
    graph.recover()
    try:
        with og.open(root).transaction(ticket=ticket) as tx:
            pass
        assert tx.receipt.commit == ticket
    except OmnigraphError as refused:  # recovery may have given the commit up: then nothing of it is there
        assert refused.code == "ABANDONED"
        assert (sorted(ages(graph)), graph.snapshot().count("Knows")) == (["Ann", "Bob", "Cid"], 0)
    else:
        assert (sorted(ages(graph)), graph.snapshot().count("Knows")) == (["Ann", "Bob", "Cid", "Dan"], 1)
    assert sum(commit.id == ticket for commit in graph.log(limit=None)) <= 1
    assert graph.verify(deep=True).findings == ()


def test_storage_that_fails_leaves_it_to_be_published_later(
    graph: og.Graph, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticket = graph.transaction().ticket
    save(root, ticket, people("Dan"))

    def fail(self: Shared, alone: str | None) -> Any:
        raise StorageError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(Shared, "taken", fail)
        with pytest.raises(StorageError), graph.transaction(ticket=ticket):
            pass
    with graph.transaction(ticket=ticket) as tx:
        pass
    assert (tx.receipt.commit, sorted(ages(graph))) == (ticket, ["Ann", "Bob", "Cid", "Dan"])


def test_a_process_that_is_killed_after_its_save_has_saved_it(graph: og.Graph, root: Path) -> None:
    ticket = graph.transaction().ticket
    program = (
        "import os, signal, sys; from pathlib import Path; from tests.engine.test_shared_transactions import save\n"
        "save(Path(sys.argv[1]), sys.argv[2], [{'src': 'Ann', 'dst': 'Bob'}], 'Knows', name=('job', 1))\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    for _ in range(2):  # whoever started it starts it again
        house = str(Path(__file__).parents[2])
        path = os.pathsep.join(filter(None, [house, os.environ.get("PYTHONPATH", "")]))
        done = subprocess.run(
            [sys.executable, "-c", program, str(root), ticket], env=os.environ | {"PYTHONPATH": path}, check=False
        )
        assert done.returncode == -9
    with graph.transaction(ticket=ticket):
        pass
    assert graph.snapshot().count("Knows") == 1


def test_files_that_are_newer_or_broken_are_refused_by_name(graph: og.Graph, root: Path) -> None:
    ticket = graph.transaction().ticket
    file = place(root) / "__staging" / ticket / "transaction.json"
    body = json.loads(file.read_text())
    for change, error in (
        ({"transaction": 2}, UnsupportedFormatError),
        ({"transaction": True}, CorruptGraphError),
        ({"base": "../x"}, CorruptGraphError),
        ({"branch": 7}, CorruptGraphError),
    ):
        file.write_text(json.dumps(body | change))
        with pytest.raises(error, match=r"transaction\.json"):
            graph.saving(ticket)
    file.write_bytes(b"{")
    with pytest.raises(CorruptGraphError):
        graph.saving(ticket)
