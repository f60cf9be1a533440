"""Recovery, requirement by requirement: what is promised, what is settled, what is said about it, and to whom."""

import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.engine.recovery import DISCARDED, RECOVERY_ACTOR, ROLLED_BACK, ROLLED_FORWARD
from omnigraph.errors import InvalidDataError, ReadOnlyError
from omnigraph.failpoints import Failpoint, FailpointError
from omnigraph.model.sidecar import Sidecar
from omnigraph.model.staged import StagedAppend
from omnigraph.storage.layout import RECOVERY
from omnigraph.storage.staging import Staging
from omnigraph.testing.commits import session_of
from omnigraph.testing.crash_writers import (
    ACTOR,
    SIDE,
    Arrival,
    Order,
    new_graph,
    planned,
    start,
    state_of,
    write,
    write_next,
)
from omnigraph.testing.places import place


@pytest.fixture
def root(tmp_path: Path) -> Path:
    new_graph(tmp_path / "graph")
    return tmp_path / "graph"


def sidecars(root: Path) -> list[Path]:
    return sorted((place(root) / RECOVERY).glob("*.json"))


def promise(root: Path) -> Sidecar:
    (path,) = sidecars(root)
    return Sidecar.from_bytes(path.read_bytes(), path.name)


def crash(root: Path, writer: str = "transaction", at: Failpoint = Failpoint.AFTER_SEALS) -> Sidecar:
    """Leave the sidecar of a write that failed on the way."""
    graph = og.open(root)
    with planned(Arrival(at, 1).plan("raise")), pytest.raises(FailpointError):
        write(graph, writer)
    return promise(root)


def crash_several(root: Path, jobs: list[Callable[[Any], None]]) -> None:
    """Leave the sidecars of several writes that had all begun before any of them failed."""
    with ExitStack() as stack:
        transactions = [og.open(root).transaction(actor=ACTOR) for _ in jobs]
        for transaction, job in zip(transactions, jobs, strict=True):
            stack.enter_context(pytest.raises(FailpointError))
            stack.enter_context(planned(Arrival(Failpoint.AFTER_SIDECAR, 1).plan("raise")))
            stack.enter_context(transaction)
            job(transaction)


def files(root: Path) -> dict[str, tuple[int, int]]:
    """Every file with its size and time."""
    found = (path for path in place(root).rglob("*") if path.is_file())
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in found}


# -- the promise (D1) -----------------------------------------------------------------------------------


def test_the_sidecar_is_there_before_the_first_seal_and_says_what_is_promised(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    promised: list[Sidecar] = []
    seal = Staging.seal

    def watched(self: Staging, *rest: Any, **more: Any) -> Any:
        promised.append(promise(root))
        return seal(self, *rest, **more)

    monkeypatch.setattr(Staging, "seal", watched)
    graph = og.open(root)
    base = graph.refresh()
    commit = write(graph, "transaction")
    assert len(promised) == 2, "one look per table"
    first = promised[0]
    assert promised[1] == first
    assert (first.commit, first.branch, first.writer, first.actor) == (commit, "main", "transaction", ACTOR)
    assert (first.base, first.schema_hash, first.owner.process) == (base.id, base.schema_hash, os.getpid())
    assert [str(table.key) for table in first.tables] == ["node:Person", "edge:Knows"]
    assert [table.expected for table in first.tables] == [base.pins[table.table] for table in first.tables]
    after = graph.refresh().pins
    assert [after[table.table].transaction for table in first.tables] == [table.transaction for table in first.tables]
    assert sidecars(root) == [], "it is forgotten after the publish"


# -- the sweep (D2, D3) ---------------------------------------------------------------------------------


def appends(name: str) -> Callable[[Any], None]:
    return lambda tx: tx.append("Person", [{"name": name}])


def test_several_promises_are_settled_in_the_order_of_their_ids(root: Path) -> None:
    crash_several(root, [appends("P1"), appends("P2"), appends("P3")])
    operations = [path.stem for path in sidecars(root)]
    commits = [Sidecar.from_bytes(path.read_bytes(), path.name).commit for path in sidecars(root)]
    assert len(operations) == 3
    graph = og.open(root)
    assert [row.operation for row in graph.recoveries()] == operations
    assert [commit.id for commit in reversed(graph.log(actor=RECOVERY_ACTOR))] == commits
    assert {row["name"] for row in state_of(graph)["Person"]} == {"Ann", "Ben", "Eve", "P1", "P2", "P3"}


def test_each_promise_is_seen_against_the_state_the_one_before_left(root: Path) -> None:
    crash_several(root, [lambda tx: tx.delete("Person", "name = 'Eve'"), lambda tx: tx.delete("Person", "age > 35")])
    graph = og.open(root)
    assert [row.kind for row in graph.recoveries()] == [ROLLED_FORWARD, ROLLED_BACK]
    assert len(state_of(graph)["Person"]) == 2


def test_an_insert_that_meets_its_id_is_rolled_back(root: Path) -> None:
    crash_several(root, [appends("Kim"), appends("Kim")])
    graph = og.open(root)
    assert [row.kind for row in graph.recoveries()] == [ROLLED_FORWARD, ROLLED_BACK]
    assert [row["name"] for row in state_of(graph)["Person"]].count("Kim") == 1


def test_work_whose_files_are_gone_is_rolled_back_and_life_goes_on(root: Path) -> None:
    sidecar = crash(root)
    staged = sidecar.tables[0].staged
    assert isinstance(staged, StagedAppend)
    (path,) = place(root).glob(f"nodes/*/{staged.files[0]}")
    path.unlink()
    before = state_of(og.open(root, read_only=True))
    graph = og.open(root)
    (row,) = graph.recoveries()
    assert (row.kind, row.commit) == (ROLLED_BACK, sidecar.commit)
    assert state_of(graph) == before
    assert sidecars(root) == []
    write(graph, "transaction")
    assert og.open(root).recover() == []


def test_a_promise_that_was_given_up_is_never_carried_out(root: Path) -> None:
    sidecar = crash(root)
    (path,) = sidecars(root)
    kept = path.read_bytes()
    staged = sidecar.tables[0].staged
    (data,) = place(root).glob(f"nodes/*/{staged.files[0]}")
    aside = data.rename(data.with_suffix(".aside"))
    og.open(root)
    aside.rename(data)
    path.write_bytes(kept)  # as a store might that shows a deleted object once more
    graph = og.open(root)
    assert sidecar.commit not in {commit.id for commit in graph.log()}
    assert [row.kind for row in graph.recoveries()] == [ROLLED_BACK], "and it is audited once"


# -- healing (D4) and the audit (D5) --------------------------------------------------------------------


def test_a_writer_heals_at_entry_without_being_opened_again(root: Path) -> None:
    living = og.open(root)
    sidecar = crash(root)
    write_next(living, "Zoe")
    newest, recovered = living.log()[:2]
    assert (newest.message, recovered.id, recovered.actor) == ("next", sidecar.commit, RECOVERY_ACTOR)
    assert sidecars(root) == []


def test_the_audit_says_what_was_done_for_whom_and_to_which_tables(root: Path) -> None:
    sidecar = crash(root)
    (recovered,) = og.open(root, read_only=False).recoveries()
    graph = og.open(root)
    assert recovered.to_dict() | {"created_at": None} == {
        "operation": sidecar.operation,
        "kind": ROLLED_FORWARD,
        "commit": sidecar.commit,
        "original_actor": ACTOR,
        "writer": "transaction",
        "branch": "main",
        "tables": [
            {"table_key": "node:Person", "from_version": 1, "to_version": 2},
            {"table_key": "edge:Knows", "from_version": 1, "to_version": 2},
        ],
        "created_at": None,
    }
    (commit,) = graph.log(actor=RECOVERY_ACTOR)
    assert (commit.id, commit.message, commit.operation) == (sidecar.commit, "transaction", "transaction")


def test_a_commit_the_writer_published_itself_keeps_its_actor(root: Path) -> None:
    sidecar = crash(root, at=Failpoint.AFTER_SWAP)
    graph = og.open(root)
    assert (graph.refresh().id, graph.refresh().actor) == (sidecar.commit, ACTOR)
    assert graph.log(actor=RECOVERY_ACTOR) == []
    assert [row.kind for row in graph.recoveries()] == [ROLLED_FORWARD]


def test_the_audit_names_the_versions_the_tables_really_went_from_and_to(root: Path) -> None:
    crash_several(root, [appends("P1"), appends("P2")])
    graph = og.open(root)
    for row in graph.recoveries():
        (table,) = row.tables
        commit = graph.commit(row.commit)
        (pin,) = (pin for pin in commit.pins.values() if pin.rows != 1)
        assert (table["from_version"], table["to_version"]) == (pin.version - 1, pin.version)


def test_what_recover_did_is_returned(root: Path) -> None:
    living = og.open(root)
    sidecar = crash(root)
    (recovered,) = living.recover()
    assert recovered.to_dict() == {
        "operation": sidecar.operation,
        "commit": sidecar.commit,
        "kind": ROLLED_FORWARD,
        "branch": "main",
        "reason": None,
    }
    assert living.recover() == []


# -- readers (D7), deleted branches (D8) ----------------------------------------------------------------


def test_a_read_only_open_changes_nothing_while_a_promise_is_pending(root: Path) -> None:
    before = state_of(og.open(root))
    crash(root)
    there = files(root)
    graph = og.open(root, read_only=True)
    assert state_of(graph) == before
    assert graph.recoveries() == []
    for act in (graph.recover, graph.heal, lambda: write_next(graph, "Zoe")):
        with pytest.raises(ReadOnlyError):
            act()
    assert files(root) == there


@pytest.mark.parametrize("again", [False, True], ids=["gone", "made again under its name"])
def test_a_write_to_a_deleted_branch_is_discarded_and_audited(root: Path, again: bool) -> None:
    graph = og.open(root)
    graph.branches.create(SIDE)
    with planned(Arrival(Failpoint.AFTER_SEALS, 1).plan("raise")), pytest.raises(FailpointError):
        write(graph, "transaction", SIDE)
    sidecar = promise(root)
    graph.branches.delete(SIDE)
    if again:
        graph.branches.create(SIDE)
    before = len(graph.log(SIDE if again else "main"))
    (recovered,) = graph.recover()
    assert (recovered.kind, recovered.reason) == (DISCARDED, "its branch is gone")
    (row,) = graph.recoveries()
    assert (row.kind, row.branch, row.commit, row.original_actor) == (DISCARDED, SIDE, sidecar.commit, ACTOR)
    assert all(table["from_version"] == table["to_version"] for table in row.tables)
    assert len(graph.log(SIDE if again else "main")) == before
    assert sidecars(root) == []


# -- owners ---------------------------------------------------------------------------------------------


@pytest.mark.crash
def test_a_living_owner_is_left_alone_until_it_is_helped_and_then_reports_success(root: Path, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    child = start(Order(root=str(root), job="transaction"), f"{Failpoint.AFTER_SEALS}=park:{gate}")
    try:
        parked = gate.with_name("gate.parked")
        give_up_at = time.monotonic() + 60
        while not parked.exists():
            assert time.monotonic() < give_up_at
            time.sleep(0.02)
        sidecar = promise(root)
        graph = og.open(root)
        write_next(graph, "Zoe")
        assert graph.recover(grace=timedelta(hours=1)) == []
        assert sidecars(root) != [], "its owner lives and was heard of a moment ago"
        assert graph.recoveries() == []
        (helped,) = graph.recover()
        assert (helped.commit, helped.kind) == (sidecar.commit, ROLLED_FORWARD)
        gate.touch()
        assert (child.ended(), child.heard) == (0, ["done"])
    finally:
        child.kill()
    assert [commit.id for commit in graph.log()].count(sidecar.commit) == 1
    assert [row.operation for row in graph.recoveries()] == [sidecar.operation]
    assert len(state_of(graph)["Person"]) == 5


def test_a_transaction_of_this_very_process_is_left_alone_while_it_runs(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = og.open(root)
    seal, answers = Staging.seal, []

    def watched(self: Staging, *rest: Any, **more: Any) -> Any:
        answers.append(other.recover())
        return seal(self, *rest, **more)

    monkeypatch.setattr(Staging, "seal", watched)
    graph = og.open(root)
    write(graph, "append")
    assert answers == [[]]
    assert graph.recoveries() == []


def test_a_writer_that_is_refused_leaves_no_promise(root: Path) -> None:
    graph, other = og.open(root), og.open(root)
    with pytest.raises(InvalidDataError), graph.transaction() as tx:
        appends("Kim")(tx)
        write_next(other, "Kim")
    assert sidecars(root) == []
    assert og.open(root).recoveries() == []
    assert session_of(graph).publisher.read().state.abandoned, "and it is recorded that it never will be"
