"""A schema change that is killed anywhere is all there or not there at all, and the next writer finds a whole graph."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.failpoints import ENABLE_VARIABLE, POINTS_VARIABLE, Failpoint
from omnigraph.testing.places import place, without_promises

OLD = """
node Person { name: String @key  age: I32?  nick: String? }
node City { name: String @key }
edge Knows: Person -> Person
"""
NEW = """
node Person { name: String @key  years: I64? @rename_from("age")  land: String @backfill("IT") }
node Town @rename_from("City") { name: String @key  zip: I32? }
node Dog { name: String @key }
edge Knows: Person -> Person { since: I32? }
"""
CHILD = """
import sys
import omnigraph as og
og.open(sys.argv[1], actor="child").schema.apply(sys.argv[2])
"""
POINTS = [point for point in Failpoint if not point.startswith("recovery.")]
PROMISED = POINTS[POINTS.index(Failpoint.AFTER_SIDECAR) :]

pytestmark = pytest.mark.crash


def killed(root: Path, point: str, schema: str = NEW) -> None:
    """Apply a schema in a process of its own that dies on the way."""
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(root), schema],
        env={**os.environ, ENABLE_VARIABLE: "1", POINTS_VARIABLE: f"{point}=kill"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr


def told(graph: og.Graph) -> dict[str, Any]:
    """The schema and everything that is there, read from storage alone."""
    snapshot = graph.snapshot()
    names = [kind.name for kind in snapshot.catalog.table_types]
    rows = {name: sorted(snapshot.read(name).to_pylist(), key=lambda row: str(row["id"])) for name in names}
    return {"schema": graph.schema.show(), "rows": rows}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], dict[str, Any]]:
    """What is there before and after, when nothing is in the way."""
    graph = made(tmp_path_factory.mktemp("whole") / "g")
    before = told(graph)
    graph.schema.apply(NEW)
    return before, told(graph)


def made(root: Path) -> og.Graph:
    graph = og.init(root, OLD)
    with graph.transaction() as tx:
        tx.append("Person", [{"name": "Ann", "age": 41, "nick": "A"}, {"name": "Ben"}])
        tx.append("Knows", [{"id": "1", "src": "Ann", "dst": "Ben"}])
    return graph


@pytest.mark.parametrize("point", POINTS)
def test_a_kill_leaves_the_old_graph_or_the_new_one(
    point: Failpoint, whole: tuple[dict[str, Any], dict[str, Any]], tmp_path: Path
) -> None:
    before, after = whole
    root = tmp_path / "g"
    made(root)
    killed(root, point)
    reader = og.open(root, read_only=True)
    assert told(reader) in (before, after), "a reader sees one of the two, also before anything is recovered"
    graph = og.open(root, actor="bob")
    assert told(graph) == (after if point in PROMISED else before)
    assert not [*(place(root) / "__recovery").glob("*.json")]
    assert reader.snapshot(version=2).read("Person").num_rows == 2
    graph.schema.apply(NEW)
    assert told(graph) == after
    with graph.transaction() as tx:
        tx.append("Person", [{"name": "Cid", "years": 2**40, "land": "FR"}])
        tx.append("Dog", [{"name": "Rex"}])
    assert graph.snapshot().count("Person") == 3
    assert [row.kind for row in graph.recoveries()] == (["RolledForward"] if point in PROMISED[:-1] else [])


def test_a_killed_change_whose_table_was_written_meanwhile_is_given_up(tmp_path: Path) -> None:
    root = tmp_path / "g"
    graph = made(root)
    killed(root, Failpoint.AFTER_SEALS)
    with without_promises(root), graph.transaction() as tx:
        tx.append("Person", [{"name": "Cid"}])
    assert [done.kind for done in og.open(root).healed] == ["RolledBack"]
    assert "years" not in graph.schema.show()
    graph.schema.apply(NEW)
    assert graph.snapshot().count("Person", "land = 'IT'") == 3


def test_a_killed_change_of_a_branch_that_is_gone_is_discarded(tmp_path: Path) -> None:
    root = tmp_path / "g"
    graph = made(root)
    graph.branches.create("side")
    child = CHILD.replace("sys.argv[2])", "sys.argv[2], 'side')")
    done = subprocess.run(
        [sys.executable, "-c", child, str(root), NEW],
        env={**os.environ, ENABLE_VARIABLE: "1", POINTS_VARIABLE: f"{Failpoint.AFTER_SEALS}=kill"},
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL
    with without_promises(root):
        graph.branches.delete("side")
    assert [done.kind for done in og.open(root).healed] == ["OrphanedBranchDiscarded"]
