"""The command `recover`: what it settles, what it shows, and how it ends when it must refuse."""

import contextlib
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.engine.cli_kit import graph, run, spawn, wide_terminal

import omnigraph as og
from omnigraph.cli.output import Exit
from omnigraph.engine.committer import Committer, Progress
from omnigraph.errors import OmnigraphError, ReadOnlyError
from omnigraph.testing.places import place

__all__ = ["graph", "wide_terminal"]  # fixtures

pytestmark = pytest.mark.crash

WRITER = """
import sys
import omnigraph as og

with og.open(sys.argv[1], actor="cy").transaction() as tx:
    tx.append("Person", [{"name": "Promised"}])
"""
AUDIT_KEYS = {"operation", "kind", "commit", "original_actor", "writer", "branch", "tables", "created_at"}


def promises(graph: og.Graph) -> list[Path]:
    return sorted((place(graph.root) / "__recovery").glob("*.json"))


def killed_writer(graph: og.Graph) -> dict[str, Any]:
    """Kill a writer that has promised a commit and sealed nothing; return its promise."""
    points = {"OMNIGRAPH_ENABLE_FAILPOINTS": "1", "OMNIGRAPH_FAILPOINTS": "commit.after_sidecar=kill"}
    ended = subprocess.run([sys.executable, "-c", WRITER, graph.root], env={**os.environ, **points}, check=False)
    assert ended.returncode == -9
    [promise] = promises(graph)
    return dict(json.loads(promise.read_bytes()))


def silent_writer(graph: og.Graph) -> dict[str, Any]:
    """The same, of a machine we can not look at: politeness leaves it alone for a minute."""
    body = killed_writer(graph) | {"owner": ["another-host", 1]}
    promises(graph)[0].write_text(json.dumps(body))
    return body


def names(graph: og.Graph) -> list[Any]:
    return sorted(graph.snapshot().read("Person").column("name").to_pylist(), key=str)


@pytest.mark.parametrize("form", [[], ["--list"], ["--json"], ["--list", "--json"]])
def test_a_graph_at_rest_has_nothing_to_recover(graph: og.Graph, form: list[str]) -> None:
    head = graph.refresh()
    told = run("recover", graph.root, *form)
    if "--json" in form:
        assert told.json == []
    elif not form:
        assert told.out == "nothing to recover\n"
    assert graph.refresh() == head
    assert graph.recoveries() == []


def test_recover_finishes_a_promise_now_and_tells_machines(graph: og.Graph) -> None:
    promise = silent_writer(graph)
    assert og.open(graph.root).heal() == []
    assert run("recover", graph.root, "--json").json == [
        {
            "operation": promise["operation"],
            "commit": promise["commit"],
            "kind": "RolledForward",
            "branch": "main",
            "reason": None,
        }
    ]
    assert (promises(graph), names(graph)) == ([], ["Ann", "Promised"])
    made = graph.commit(promise["commit"])
    assert (made.id, made.actor, made.operation) == (graph.refresh().id, "omnigraph:recovery", "append")
    assert run("recover", graph.root, "--json").json == []


def test_recover_tells_people_what_was_given_up_and_why(graph: og.Graph) -> None:
    promise = silent_writer(graph)
    for file in place(graph.root).glob("nodes/*/data/*.lance"):
        if file.name in json.dumps(promise):
            file.unlink()
    told = run("recover", graph.root).out
    assert all(word in told for word in ("RolledBack", "main", promise["commit"], "1 of its files are missing"))
    assert (promises(graph), names(graph)) == ([], ["Ann"])


def test_the_list_shows_every_recovery_once_and_writes_nothing(graph: og.Graph) -> None:
    promise = silent_writer(graph)
    assert run("recover", graph.root, "--list", "--json").json == []
    assert len(promises(graph)) == 1, "only looking settles nothing"
    run("recover", graph.root)
    [row] = run("recover", graph.root, "--list", "--json").json
    assert set(row) == AUDIT_KEYS
    assert (row["kind"], row["commit"], row["original_actor"]) == ("RolledForward", promise["commit"], "cy")
    assert (row["operation"], row["writer"], row["branch"]) == (promise["operation"], "append", "main")
    assert row["tables"] == [{"table_key": "node:Person", "from_version": 1, "to_version": 2}]
    shown = run("recover", graph.root, "--list").out
    assert all(word in shown for word in ("RolledForward", promise["commit"], "cy", row["created_at"][:10]))


def test_recover_shows_what_it_settled_also_if_the_writer_was_seen_to_be_dead(graph: og.Graph) -> None:
    promise = killed_writer(graph)
    assert [done["commit"] for done in run("recover", graph.root, "--json").json] == [promise["commit"]]


def test_a_promise_whose_txn_someone_else_has_applied_is_given_up(graph: og.Graph) -> None:
    promise = silent_writer(graph) | {"txn": ["app", 7]}
    promises(graph)[0].write_text(json.dumps(promise))
    with graph.transaction(txn=("app", 7)) as tx:
        tx.append("Person", [{"name": "Other"}])
    assert [done["kind"] for done in run("recover", graph.root, "--json").json] == ["RolledBack"]
    assert names(graph) == ["Ann", "Other"]


def test_a_read_only_handle_heals_nothing(graph: og.Graph) -> None:
    silent_writer(graph)
    body = json.loads(promises(graph)[0].read_bytes()) | {"owner": [platform.node(), 2**22 + 1]}
    promises(graph)[0].write_text(json.dumps(body))
    with pytest.raises(ReadOnlyError):
        og.open(graph.root, read_only=True).heal()
    assert len(promises(graph)) == 1


def test_two_that_finish_one_promise_make_one_commit(graph: og.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    promised: list[Any] = []
    land = Committer.land

    def remember(self: Committer, sidecar: Any, stamp: Any, *rest: Any, **more: Any) -> Any:
        promised.append((self, sidecar, stamp))
        return land(self, sidecar, stamp, *rest, **more)

    monkeypatch.setattr(Committer, "land", remember)
    with graph.transaction() as tx:
        tx.upsert("Person", [{"name": "Bo"}])
    [(committer, sidecar, stamp)] = promised
    with contextlib.suppress(OmnigraphError):
        land(committer, sidecar, stamp, Progress())  # a recoverer that had decided a moment earlier
    assert [commit.id for commit in graph.log() if commit.id == tx.receipt.commit] == [tx.receipt.commit]


@pytest.mark.parametrize("body", ["", "{", '{"sidecar": 1}', '{"sidecar": 99}', "[]"])
def test_a_promise_that_can_not_be_read_ends_with_six_names_the_file_and_is_kept(graph: og.Graph, body: str) -> None:
    operation = silent_writer(graph)["operation"]
    promises(graph)[0].write_text(body)
    for command in (["recover"], ["branch", "create"]):
        arguments = [*command, graph.root, *(["new"] if command != ["recover"] else [])]
        told = run(*arguments, "--json", expect=Exit.RECOVERY_REFUSED)
        assert (told.out, told.problem["kind"], told.problem["operation"]) == ("", "RECOVERY_REFUSED", operation)
        assert f"__recovery/{operation}.json" in told.problem["error"]
    assert promises(graph)[0].read_text() == body
    assert run("branch", "list", graph.root).code == Exit.DONE, "readers are not affected"
    assert run("recover", graph.root, "--list", "--json").json == []
    promises(graph)[0].rename(place(graph.root) / "__recovery" / "set-aside.txt")
    assert run("recover", graph.root).out == "nothing to recover\n"


def test_as_a_program_it_ends_with_six_when_it_must_refuse(graph: og.Graph) -> None:
    silent_writer(graph)
    promises(graph)[0].write_text("{")
    told = spawn("recover", graph.root)
    assert (told.code, told.out) == (6, "")
    assert told.err.startswith("[RECOVERY_REFUSED] ")
