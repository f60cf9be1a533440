"""Processes that write over three tables and two branches, a third of them killed (-9) again and again.

Afterwards the graph is what its commit log says, the log has everything that was acknowledged and nothing
that was refused, and one open tidies up.
"""

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.failpoints import ENABLE_VARIABLE, POINTS_VARIABLE, Failpoint
from omnigraph.model.lineage import Commit
from omnigraph.storage.layout import RECOVERY
from omnigraph.testing.commits import session_of
from omnigraph.testing.s3_server import SeaweedServer
from omnigraph.testing.storm import (
    BRANCHES,
    SCHEMA,
    STORAGE_VARIABLE,
    TABLES,
    Account,
    Content,
    Operation,
    Step,
    Storm,
    carry_out,
    fold,
)

pytestmark = pytest.mark.crash

DEEP = os.environ.get("OMNIGRAPH_DEEP") == "1"
PROCESSES, TRANSACTIONS, KILLS_EACH = (8, 200, 8) if DEEP else (6, 25, 3)
EXPECTED_REFUSALS = {"VERSION_CONFLICT", "INVALID_DATA"}
EVERY = 25

Recorder = Callable[[str, object], None]


def sidecars(graph: og.Graph) -> list[str]:
    return sorted(info.key for info in session_of(graph).objects.list(RECOVERY))


def new_graph(root: Path | str, options: Mapping[str, str] | None = None) -> og.Graph:
    """A graph with some rows in every table, and a branch that has them too."""
    graph = og.init(root, SCHEMA, storage_options=options)
    steps = tuple(Step(verb="append", table=table, rows={f"s{n}": n for n in range(20)}) for table in TABLES)
    carry_out(graph, Operation(name="first", branch="main", steps=steps))
    graph.branches.create("side")
    return graph


def content_at(graph: og.Graph, commit: Commit) -> Content:
    snapshot = graph.snapshot(commit=commit.id)
    found: Content = {}
    for table in TABLES:
        rows = snapshot.read(table).to_pylist()
        found[table] = {row["id"]: row["value"] for row in rows}
        assert len(found[table]) == len(rows) == snapshot.count(table), f"{table} has an id twice"
    return found


def check_branch(graph: og.Graph, branch: str) -> list[Commit]:
    """Fold the branch's log and compare: metrics at every commit, content at some of them and at the head."""
    log = list(reversed(graph.log(branch, limit=None)))
    assert [commit.version for commit in log] == list(range(1, len(log) + 1))
    for number, (commit, content, expected) in enumerate(fold(log)):
        counted = {key: {what: found[what] for what in expected[key]} for key, found in commit.metrics.items()}
        assert counted == {key: value for key, value in expected.items() if key in commit.metrics}
        idle = set(expected) - set(commit.metrics)
        assert all(not any(expected[key].values()) for key in idle), f"{commit.id} says nothing of {idle}"
        if number % EVERY == 0 or commit is log[-1]:
            assert content_at(graph, commit) == content, f"{branch} at {commit.version}"
    return log


def check_word(said: Account, commits: dict[str, list[Commit]]) -> None:
    """Compare what the processes were told with the log: nothing acknowledged is missing, nothing refused is there."""
    assert all(len(found) == 1 for found in commits.values()), "an operation is one commit"
    for name, commit in said.acknowledged.items():
        found = [one.id for one in commits.get(name, [])]
        assert found == ([] if commit is None else [commit]), f"{name} was acknowledged as {commit}"
    for name, kind in said.refused.items():
        assert name not in commits, f"{name} was refused with {kind}, and is there"
    for name, [landed] in commits.items():
        intended = said.intended.get(name)
        assert landed.version == 2 if intended is None else landed.branch == intended.branch


def by_operation(logs: dict[str, list[Commit]]) -> dict[str, list[Commit]]:
    """Return the commits of each operation; those before the branch was made are on both."""
    every = {commit.id: commit for log in logs.values() for commit in log}
    found: dict[str, list[Commit]] = {}
    for commit in every.values():
        if commit.user_metadata is not None:
            found.setdefault(Operation.from_json(commit.user_metadata).name, []).append(commit)
    return found


LAST_WORDS = """
import json, os, sys, omnigraph
from omnigraph.testing.storm import STORAGE_VARIABLE, Operation, Step, carry_out
graph = omnigraph.open(sys.argv[1], storage_options=json.loads(os.environ[STORAGE_VARIABLE]))
carry_out(graph, Operation(name="dying", branch="main", steps=(Step(verb="append", table="Ant", rows={"dying": 1}),)))
"""


def die_with_a_promise(root: str, options: Mapping[str, str] | None = None) -> None:
    """Have a process die between sealing and publishing."""
    points = {ENABLE_VARIABLE: "1", POINTS_VARIABLE: f"{Failpoint.AFTER_SEALS}=kill"}
    environment = {**os.environ, **points, STORAGE_VARIABLE: json.dumps(options)}
    ended = subprocess.run([sys.executable, "-c", LAST_WORDS, root], env=environment, check=False)
    assert ended.returncode == -9


def test_the_graph_is_what_its_log_says_after_a_third_of_the_processes_were_killed(
    tmp_path: Path, record_property: Recorder
) -> None:
    graph = new_graph(tmp_path / "g")
    logs = tmp_path / "logs"
    logs.mkdir()
    seed = random.SystemRandom().randrange(10**9)
    storm = Storm(
        root=graph.root,
        folder=logs,
        processes=PROCESSES,
        transactions=TRANSACTIONS,
        victims=PROCESSES // 3,
        kills_each=KILLS_EACH,
        seed=seed,
    )
    begun = time.monotonic()
    said = storm.blow()
    seconds = time.monotonic() - begun
    die_with_a_promise(graph.root)
    left = sidecars(graph)
    assert left, "the last one to die left a promise, and nobody is there to keep it"

    graph = og.open(graph.root)
    assert sidecars(graph) == [], "one open leaves no promise behind"
    logs_of = {branch: check_branch(graph, branch) for branch in BRANCHES}
    commits = by_operation(logs_of)
    dying = commits.pop("dying")
    assert len(dying) == 1, "what was promised last was finished by whoever came"
    check_word(said, commits)
    assert set(said.refused.values()) <= EXPECTED_REFUSALS, Counter(said.refused.values())
    assert said.unknown == {}, "on a disk that answers, outcomes are known"
    assert len(said.unanswered) <= storm.kills
    check_audit(graph, {**commits, "dying": dying})

    heads = {branch: logs_of[branch][-1].id for branch in BRANCHES}
    audited = len(graph.recoveries())
    again = og.open(graph.root)
    assert ({b: again.on(b).refresh().id for b in BRANCHES}, len(again.recoveries())) == (heads, audited)
    for branch in BRANCHES:
        last = Operation(name=f"last-{branch}", branch=branch, steps=(Step(verb="append", table="Ant", rows={"z": 1}),))
        assert carry_out(again, last) is not None, "life goes on"

    figures = {
        "seed": seed,
        "transactions": len(said.intended),
        "acknowledged": len(said.acknowledged),
        "refused": dict(Counter(said.refused.values())),
        "unanswered": len(said.unanswered),
        "kills": storm.kills,
        "sidecars before the open": len(left),
        "recoveries": audited,
        "commits": len(commits),
        "seconds": round(seconds, 1),
    }
    print(figures)
    for name, value in figures.items():
        record_property(name, value)
    assert storm.kills >= PROCESSES // 3
    assert len(said.acknowledged) > len(said.intended) // 3, "the storm was about writes that land"


def check_audit(graph: og.Graph, commits: dict[str, list[Commit]]) -> None:
    """Each recovery is told once, and tells the truth."""
    landed = {commit.id for found in commits.values() for commit in found}
    rows = graph.recoveries()
    assert max(Counter(row.operation for row in rows).values(), default=1) == 1
    for row in rows:
        assert (row.kind == "RolledForward") == (row.commit in landed), row


@pytest.mark.s3
def test_eight_processes_write_on_s3_and_two_are_killed_and_the_log_tells_what_is_there(
    tmp_path: Path, s3_root: Callable[[], str], s3_server: SeaweedServer
) -> None:
    options = s3_server.storage_options()
    graph = new_graph(s3_root(), options)
    seed = random.SystemRandom().randrange(10**9)
    print({"seed": seed})
    storm = Storm(
        root=graph.root,
        folder=tmp_path,
        processes=8,
        transactions=5,
        victims=2,
        kills_each=1,
        seed=seed,
        storage_options=options,
    )
    said = storm.blow()
    die_with_a_promise(graph.root, options)
    graph = og.open(graph.root, storage_options=options, read_only=True)
    assert sidecars(graph), "the last one to die left a promise, and nobody is there to keep it"

    graph = og.open(graph.root, storage_options=options)
    assert sidecars(graph) == [], "one open leaves no promise behind"
    logs_of = {branch: check_branch(graph, branch) for branch in BRANCHES}
    commits = by_operation(logs_of)
    check_audit(graph, commits)
    assert len(commits.pop("dying")) == 1, "what was promised last was finished by whoever came"
    check_word(said, commits)
    assert len(set(said.acknowledged.values()) - {None}) == sum(each is not None for each in said.acknowledged.values())
    assert set(said.refused.values()) <= EXPECTED_REFUSALS, Counter(said.refused.values())
    assert said.unknown == {}, "a server that answers leaves no outcome open"
    assert storm.kills == 2 and len(said.unanswered) <= 2
    assert len(said.acknowledged) > len(said.intended) // 3, "the storm was about writes that land"
