"""Writers that wait for their turn are taken along by the one who has it; each is told of its own commit."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.engine.crowd_kit import crowd

import omnigraph as og
from omnigraph.engine import committer
from omnigraph.engine.committer import Committer
from omnigraph.engine.company import Company
from omnigraph.errors import InvalidDataError
from omnigraph.storage import turns
from omnigraph.storage.sidecars import Sidecars
from omnigraph.testing.places import place

SCHEMA = "node Person { name: String @key  age: I32? }\nnode Event { what: String }"


@pytest.fixture
def graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> og.Graph:
    monkeypatch.setattr(turns, "WAIT_SECONDS_MAX", 30.0)
    made = og.init(tmp_path / "g", SCHEMA)
    with made.transaction() as tx:
        tx.append("Person", [{"name": "first", "age": 1}])
    return made


def people(*names: str) -> Callable[[Any], None]:
    return lambda tx: tx.append("Person", [{"name": name, "age": 2} for name in names])


def names(graph: og.Graph, branch: str = "main") -> list[str]:
    return sorted(str(name) for name in graph.snapshot(branch=branch).read("Person").column("name").to_pylist())


def aged(age: int) -> Callable[[Any], None]:
    return lambda tx: tx.upsert("Person", [{"name": "first", "age": age}])


def manifest_version(graph: og.Graph) -> int:
    return graph._session.publisher.read().at.version


def test_those_who_wait_are_published_together_and_each_has_its_own_commit(graph: og.Graph) -> None:
    before = manifest_version(graph)
    with crowd(graph) as gathered:
        for number in range(5):
            gathered.add(f"w{number}", people(f"p{number}"))
    receipts = {name: told for name, told in gathered.told.items() if isinstance(told, og.Receipt)}
    assert sorted(receipts) == [f"w{number}" for number in range(5)]
    assert manifest_version(graph) - before == 1, "one publish"
    log = {commit.message: commit for commit in graph.log(limit=5)}
    for name, receipt in receipts.items():
        assert log[name].id == receipt.commit
        assert log[name].actor == f"actor-{name}"
        assert receipt.tables["node:Person"].rows_inserted == 1
    assert sorted(commit.version for commit in log.values()) == [3, 4, 5, 6, 7]
    assert names(graph) == ["first", "p0", "p1", "p2", "p3", "p4"]
    for commit in log.values():
        assert graph.snapshot(commit=commit.id).count("Person") == commit.version - 1
    assert gathered.promises == []


def test_the_same_id_from_two_who_wait_lands_once_and_the_other_is_told(graph: og.Graph) -> None:
    with crowd(graph) as gathered:
        gathered.add("a", people("same"))
        gathered.add("b", people("same"))
        gathered.add("c", people("other"))
    refused = [told for told in gathered.told.values() if isinstance(told, InvalidDataError)]
    assert len(refused) == 1
    assert "same" in refused[0].message
    assert names(graph) == ["first", "other", "same"]
    assert gathered.promises == []


def test_upserts_come_along_and_later_ones_see_earlier_ones(graph: og.Graph) -> None:
    with crowd(graph) as gathered:
        for number in range(3):
            gathered.add(f"w{number}", aged(10 + number))
    assert all(isinstance(told, og.Receipt) for told in gathered.told.values())
    assert graph.snapshot().count("Person") == 1
    last = graph.log(limit=1)[0].message
    assert graph.snapshot().read("Person").column("age").to_pylist() == [10 + int(str(last)[1:])]


def test_deletes_and_other_branches_are_left_to_their_owners(graph: og.Graph) -> None:
    graph.branches.create("side")
    before = manifest_version(graph)
    with crowd(graph) as gathered:
        gathered.add("a", people("a"))
        gathered.add("b", people("b"), branch="side")
        gathered.add("c", lambda tx: tx.delete("Person", ids=["first"]))
    told = gathered.told
    assert isinstance(told["a"], og.Receipt)
    assert isinstance(told["b"], og.Receipt)
    assert manifest_version(graph) - before >= 2
    assert names(graph, "side") == ["b", "first"]
    left = set(graph.snapshot().read("Person").column("name").to_pylist())
    assert left == ({"a"} if isinstance(told["c"], og.Receipt) else {"a", "first"})
    assert gathered.promises == []


def test_a_promise_that_is_settled_meanwhile_is_not_finished(graph: og.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sidecars, "exists", lambda self, operation: False)
    before = manifest_version(graph)
    with crowd(graph) as gathered:
        gathered.add("a", people("a"))
        gathered.add("b", people("b"))
    assert all(isinstance(told, og.Receipt) for told in gathered.told.values())
    assert manifest_version(graph) - before == 2, "each published for itself"


def test_a_promise_nobody_can_read_does_not_stop_the_others(graph: og.Graph) -> None:
    with crowd(graph) as gathered:
        gathered.add("a", people("a"))
        gathered.add("b", people("b"))
        (place(graph.root) / "__recovery" / "01K00000000000000000000000.json").write_text("not a promise")
    assert all(isinstance(told, og.Receipt) for told in gathered.told.values())


def test_company_that_fails_halfway_costs_the_writer_nothing(graph: og.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Company, "_waiting", lambda self, ours: [ours])  # sealing our own work twice can not fit
    with crowd(graph) as gathered:
        gathered.add("a", people("a"))
    assert isinstance(gathered.told["a"], og.Receipt)
    assert [commit.message for commit in graph.log(limit=1)] == ["a"]
    assert graph.snapshot().count("Person") == 2


def test_those_taken_along_need_not_read_the_manifest_to_know_it(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[str] = []
    look = Committer._look

    def watched(self: Committer, sidecar: Any) -> Any:
        looked.append(sidecar.commit)
        return look(self, sidecar)

    monkeypatch.setattr(Committer, "_look", watched)
    before = manifest_version(graph)
    with crowd(graph) as gathered:
        for number in range(4):
            gathered.add(f"w{number}", people(f"p{number}"))
    receipts = [told for told in gathered.told.values() if isinstance(told, og.Receipt)]
    assert len(receipts) == 4
    assert len(looked) == manifest_version(graph) - before, "only those who published looked"
    assert len(looked) < 4, "and somebody was taken along"
    for receipt in receipts:
        commit = graph.commit(str(receipt.commit))
        assert (commit.version, commit.branch) == (receipt.version, receipt.branch)
        assert receipt.tables["node:Person"].rows_inserted == 1


@pytest.mark.parametrize("note", ["", "{", "[]", '["x", "y", 1, 2, null, "{}"]', "[1, 2, 3, 1e400, 5, 6]"])
def test_a_note_that_makes_no_sense_is_not_believed(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch, note: str
) -> None:
    def scribble(root: str, notes: dict[str, str]) -> None:
        turns.leave_notes(root, dict.fromkeys(notes, note))

    monkeypatch.setattr(committer, "leave_notes", scribble)
    with crowd(graph) as gathered:
        for number in range(3):
            gathered.add(f"w{number}", people(f"p{number}"))
    log = {commit.message: commit.id for commit in graph.log(limit=3)}
    assert {name: told.commit for name, told in gathered.told.items() if isinstance(told, og.Receipt)} == log


def test_an_id_that_another_process_wrote_meanwhile_is_found_by_whoever_seals(graph: og.Graph) -> None:
    code = "import sys, omnigraph as og\nwith og.open(sys.argv[1]).transaction() as tx:\n"
    code += "    tx.append('Person', [{'name': 'theirs'}])"
    subprocess.run([sys.executable, "-c", code, graph.root], check=True)
    with pytest.raises(InvalidDataError, match="theirs"), graph.transaction() as tx:
        tx.append("Person", [{"name": "theirs"}])
    assert names(graph) == ["first", "theirs"]
    assert list((place(graph.root) / "__recovery").glob("*.json")) == []
    with graph.transaction() as tx:
        tx.append("Person", [{"name": "ours"}])
    assert names(graph) == ["first", "ours", "theirs"]
