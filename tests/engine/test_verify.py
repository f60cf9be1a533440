"""Verify: what is whole is sound, every kind of damage is found and named, and what others wrote is told apart."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from tests.engine.upkeep_kit import SCHEMA, aged, content, person, table_files
from tests.plain_tables import plain
from typer.testing import CliRunner

import omnigraph as og
from omnigraph.cli.app import app
from omnigraph.engine.changes import AddCommit
from omnigraph.ids import CommitId
from omnigraph.model.verifying import Problem
from omnigraph.rules.refs import Draft
from omnigraph.testing.places import place


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "g"


@pytest.fixture
def graph(root: Path) -> og.Graph:
    made = og.init(root, SCHEMA)
    with made.transaction() as tx:
        tx.append("Person", [person(name, mail=f"{name}@x") for name in ("Ann", "Bob", "Cid")])
        tx.append("Photo", [{"name": "one", "image": b"x" * 100}])
        tx.append("Knows", [{"src": "Ann", "dst": "Bob"}, {"src": "Bob", "dst": "Cid"}])
    with made.transaction() as tx:
        tx.delete("Person", ids=["Cid"])
    made.ensure_indices()
    return made


def folder(graph: og.Graph, type: str) -> Any:
    kind = graph.snapshot().catalog.table_type(type)
    return place(graph.root) / f"{kind.table.kind.value}s" / kind.table_id


def problems(graph: og.Graph, *, deep: bool = False) -> set[tuple[str, str]]:
    return {(one.problem, one.table) for one in og.open(graph.root, read_only=True).verify(deep=deep).findings}


def test_a_whole_graph_is_sound_and_nothing_is_written(graph: og.Graph, root: Path) -> None:
    graph.branches.create("side")
    graph.tags.create("now")
    before = {path: path.stat().st_mtime_ns for path in place(root).rglob("*")}
    report = og.open(root, read_only=True).verify(deep=True)
    assert {path: path.stat().st_mtime_ns for path in place(root).rglob("*")} == before
    assert (report.is_sound, report.findings) == (True, ())
    assert report.commits == 4
    assert report.versions == 8  # three tables, two that lost rows, three that were indexed
    assert report.rows == 2 + 1 + 1
    assert 0 < report.files <= len(table_files(root))


@pytest.mark.parametrize("place", ["data", "_deletions", "_indices", "_versions"])
def test_a_missing_file_is_found_whatever_it_is(graph: og.Graph, place: str) -> None:
    lost = 0
    for file in (folder(graph, "Person") / place).rglob("*"):
        if file.is_file() and not (place == "_versions" and not file.name.startswith("d")):
            file.unlink()
            lost += 1
    assert lost
    wanted = Problem.UNREADABLE if place == "_versions" else Problem.MISSING_FILE
    assert (wanted, "node:Person") in problems(graph)
    assert not {one for one in problems(graph) if one[1] != "node:Person"}


def test_rows_that_can_not_be_read_are_found_when_they_are_read(graph: og.Graph) -> None:
    for file in (folder(graph, "Photo") / "data").glob("*.lance"):
        body = bytearray(file.read_bytes())
        body[: len(body) // 2] = bytes(len(body) // 2)
        file.write_bytes(bytes(body))
    assert problems(graph) == set()
    assert (Problem.UNREADABLE, "node:Photo") in problems(graph, deep=True)


def test_a_version_that_is_not_what_was_published_is_found(graph: og.Graph) -> None:
    head = graph.refresh()
    table = graph.snapshot().catalog.table_type("Person").table_id
    pins = {**head.pins, table: replace(head.pins[table], rows=7)}
    session = graph._session
    draft = Draft(
        id=CommitId(session.sources.mint()),
        branch="main",
        incarnation=head.incarnation,
        operation="broken",
        schema_hash=head.schema_hash,
        pins=pins,
    )
    session.publisher.publish(AddCommit(manifest=session.manifest, draft=draft, stamp=session.stamp()))
    (found,) = graph.verify().findings
    assert (found.problem, found.table, found.held_by) == (Problem.WRONG_VERSION, "node:Person", "branch main")
    assert "has 2 rows" in found.message and "7 rows" in found.message
    assert (Problem.UNREADABLE, "node:Person") in problems(graph, deep=True)


def test_rows_that_break_the_schema_are_found_when_they_are_read(graph: og.Graph) -> None:
    with graph.transaction(constraints="off") as tx:
        tx.append("Knows", [{"src": "Ann", "dst": "Nobody"}])
        tx.append("Person", [person("Dan", mail="Ann@x")])
    assert problems(graph) == set()
    assert problems(graph, deep=True) == {
        (Problem.DANGLING_ENDS, "edge:Knows"),
        (Problem.DUPLICATE_VALUES, "node:Person"),
    }


def test_ids_that_occur_twice_are_found(graph: og.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    from omnigraph.storage.staging import Staging

    monkeypatch.setattr(Staging, "present", lambda *given: [])
    monkeypatch.setattr("omnigraph.engine.promising.Promising._refuse_existing", lambda *given: None)
    with graph.transaction(constraints="off") as tx:
        tx.append("Person", [person("Ann")])
    monkeypatch.undo()
    assert (Problem.DUPLICATE_IDS, "node:Person") in problems(graph, deep=True)


def test_what_others_write_to_a_folder_changes_nothing_and_is_told(graph: og.Graph, root: Path) -> None:
    before = content(graph.snapshot())
    table = f"nodes/{graph.snapshot().catalog.table_type('Person').table_id}"
    theirs = plain(root, table)
    rows = pa.Table.from_pylist([{"id": "evil", **person("evil")}], theirs.schema)
    lance.write_dataset(rows, theirs, mode="append")
    assert content(graph.snapshot()) == before
    assert problems(graph, deep=True) == {(Problem.FOREIGN_VERSION, "node:Person")}
    assert graph.verify().is_sound
    with graph.transaction() as tx:
        tx.append("Person", [person("Eve")])
    assert graph.snapshot().entity("Person", "evil") is None
    aged(root)
    graph.cleanup(keep=1)
    assert plain(root, table).count_rows() == 1  # it is theirs, and not in anyone's way
    assert graph.snapshot().count("Person") == 3


def test_the_command_ends_with_one_if_something_is_damaged(graph: og.Graph, root: Path) -> None:
    run = CliRunner().invoke
    whole = run(app, ["verify", str(root), "--deep", "--json"])
    assert (whole.exit_code, json.loads(whole.stdout)["sound"]) == (0, True)
    assert run(app, ["verify", str(root)]).stdout.startswith("sound: 4 commits")
    for file in (folder(graph, "Photo") / "data").iterdir():
        file.unlink()
    broken = run(app, ["verify", str(root)])
    assert broken.exit_code == 1
    assert "missing_file" in broken.stdout and "branch main" in broken.stdout
