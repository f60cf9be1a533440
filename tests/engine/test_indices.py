"""Indexes of what writes look up: built once, extended by what came later, and never another answer than without."""

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import omnigraph as og
from omnigraph.cli.app import app
from omnigraph.errors import ConstraintError, InvalidDataError, NotFoundError, OmnigraphError, ReadOnlyError
from omnigraph.failpoints import ENABLE_VARIABLE, POINTS_VARIABLE
from omnigraph.storage import lance_sealing
from omnigraph.storage.lance_index_building import Build
from omnigraph.storage.lance_indexing import Indexes
from omnigraph.storage.lance_rows import indexed_fragments, open_at

SCHEMA = """
    node Person { name: String @key  mail: String? @unique  age: I32? }
    node Empty { name: String @key }
    edge Knows: Person -> Person @card(0..3)
"""
ODD = ["", "ä", "日本", "a'b", 'q"', "--", "\\", "NaN", "null", "x" * 500]


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    made = og.init(tmp_path / "g", SCHEMA)
    with made.transaction() as tx:
        tx.append("Person", [{"name": f"p{n}", "mail": f"m{n}"} for n in range(2_000)])
        tx.append("Person", [{"name": f"odd {text}", "mail": text or None} for text in ODD])
        tx.append("Knows", [{"src": f"p{n}", "dst": f"p{n + 1}"} for n in range(100)])
    return made


def covered(graph: og.Graph, type: str, column: str) -> bool:
    """Tell whether every fragment of a table can be looked up."""
    snapshot = graph.snapshot()
    kind = snapshot.catalog.table_type(type)
    uri = graph._session.root.uri(f"{kind.table.kind.value}s/{kind.table_id}")
    handle = open_at(uri, snapshot.commit.pins[kind.table_id].lance_version, graph._session.root.options)
    return set(handle.fragment_ids()) <= indexed_fragments(handle, column)


def outcomes(graph: og.Graph, branch: str) -> list[str]:
    """Try each write on a branch of its own; return what came of it, sizes aside."""
    found = []
    for verb, type, row in TRIALS:
        graph.branches.create("trial", from_=branch)
        try:
            with graph.transaction("trial") as tx:
                getattr(tx, verb)(type, [row])
            counted = [one.to_dict() for one in tx.receipt.tables.values()]
            found.append(str([{k: v for k, v in one.items() if k.startswith("rows")} for one in counted]))
        except OmnigraphError as refused:
            found.append(str(refused))
        graph.branches.delete("trial")
    return found


TRIALS = [
    ("append", "Person", {"name": "p7"}),
    ("append", "Person", {"name": "nobody yet"}),
    ("append", "Person", {"name": "later"}),
    ("append", "Person", {"name": "other", "mail": "m3"}),
    ("append", "Person", {"name": "other", "mail": "later@x"}),
    ("upsert", "Person", {"name": "p8", "mail": "m9"}),
    ("upsert", "Person", {"name": "p8", "mail": "m8", "age": 3}),
    ("append", "Knows", {"id": "e", "src": "p1", "dst": "nobody"}),
    ("append", "Knows", {"src": "later", "dst": "p5"}),
    ("append", "Knows", {"id": "e", "src": "gone", "dst": "p5"}),
    *[("append", "Person", {"name": f"odd {text}"}) for text in ODD],
    *[("append", "Knows", {"id": "e", "src": f"odd {text}", "dst": "p1"}) for text in ODD],
    *[("append", "Person", {"name": "other", "mail": text}) for text in ODD if text],
]


def test_every_write_has_the_same_outcome_with_and_without_indexes(graph: og.Graph) -> None:
    with graph.transaction() as tx:
        tx.append("Person", [{"name": "gone"}])

    graph.branches.create("plain")
    graph.ensure_indices()
    for branch in ("main", "plain"):
        with graph.transaction(branch) as tx:
            tx.append("Person", [{"name": "later", "mail": "later@x"}])
        with graph.transaction(branch) as tx:
            tx.delete("Person", ids=["gone"])
    indexed = outcomes(graph, "main")
    assert indexed == outcomes(graph, "plain")
    assert any("CONSTRAINT_VIOLATED" in text for text in indexed)
    assert any("exist already" in text for text in indexed)


def test_the_report_says_what_is_covered_and_a_second_run_has_nothing_to_do(graph: og.Graph) -> None:
    before = graph.refresh()
    report = graph.ensure_indices(actor="night")
    rows = graph.snapshot().count("Person")
    facts = {"kind": "BTREE", "rows": rows, "rows_covered": rows, "rows_added": rows, "share": 1.0, "pending": None}
    assert report.tables["node:Person"]["id"].to_dict() == facts
    assert sorted(report.tables["node:Person"]) == ["id", "mail", "name"]
    assert sorted(report.tables["edge:Knows"]) == ["dst", "id", "src"]
    assert "node:Empty" not in report.tables, "a type without rows has nothing to index"
    head = graph.refresh()
    assert (head.id, head.operation, head.actor, head.version) == (
        report.commit,
        "ensure_indices",
        "night",
        before.version + 1,
    )
    assert covered(graph, "Person", "id")
    assert covered(graph, "Person", "mail")
    assert covered(graph, "Knows", "src")
    again = graph.ensure_indices()
    assert (again.commit, again.version) == (None, None)
    assert again.tables["node:Person"]["id"].to_dict() == facts | {"rows_added": 0}
    assert graph.refresh() == head


def test_later_rows_are_added_and_nothing_else_is_built_again(graph: og.Graph) -> None:
    graph.ensure_indices()
    with graph.transaction() as tx:
        tx.append("Person", [{"name": f"late{n}"} for n in range(3)])
    assert not covered(graph, "Person", "id")
    report = graph.ensure_indices(types=["Person"])
    assert report.tables["node:Person"]["id"].rows_added == 3
    assert list(report.tables) == ["node:Person"]
    assert covered(graph, "Person", "id")


@pytest.mark.parametrize("most", [lance_sealing.ROWS_IN_ONE_MAX, -1])
def test_indexes_follow_upserts_deletes_and_overwrites(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(lance_sealing, "ROWS_IN_ONE_MAX", most)
    expected = {f"p{n}": f"m{n}" for n in range(2_000)} | {f"odd {text}": text or None for text in ODD}
    for step in range(6):
        graph.ensure_indices()
        with graph.transaction() as tx:
            if step == 4:
                expected = {f"q{n}": f"n{n}" for n in range(50)}
                tx.overwrite("Knows", [])
                tx.overwrite("Person", [{"name": name, "mail": mail} for name, mail in expected.items()])
            elif step % 2:
                gone = sorted(expected)[step::97]
                tx.delete("Person", ids=gone)
                expected = {name: mail for name, mail in expected.items() if name not in gone}
            else:
                changed = {name: f"{step} {name}" for name in sorted(expected)[step::89]}
                tx.upsert("Person", [{"name": name, "mail": mail} for name, mail in changed.items()])
                expected |= changed
        found = graph.snapshot().read("Person", columns=["name", "mail"])
        assert dict(zip(found["name"].to_pylist(), found["mail"].to_pylist(), strict=True)) == expected
        some = sorted(expected)[::7]
        for name in some[:20]:
            row = graph.snapshot().entity("Person", name)
            assert row is not None
            assert row["mail"] == expected[name]
        with pytest.raises(InvalidDataError, match="exist already"), graph.transaction() as tx:
            tx.append("Person", [{"name": some[0]}])


def test_writers_during_a_build_lose_nothing_and_are_indexed_too(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    build, other = Build.do, og.open(graph.root)
    written = threading.Lock()

    def slow(self: Build) -> Any:
        made = build(self)
        if written.acquire(blocking=False):
            with other.transaction() as tx:
                tx.append("Person", [{"name": "meanwhile"}])
            with other.transaction() as tx:
                tx.delete("Person", ids=["p3"])
        return made

    monkeypatch.setattr(Build, "do", slow)
    report = graph.ensure_indices()
    assert report.commit == graph.refresh().id
    assert covered(graph, "Person", "id")
    names = set(graph.snapshot().read("Person")["name"].to_pylist())
    assert "meanwhile" in names
    assert "p3" not in names
    for name in ("meanwhile", "p5"):
        with pytest.raises(InvalidDataError, match=name), graph.transaction() as tx:
            tx.append("Person", [{"name": name}])
    with graph.transaction() as tx:
        tx.append("Person", [{"name": "p3"}])


def test_a_table_rewritten_during_a_build_is_built_again(graph: og.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    seal, other = Indexes.seal, og.open(graph.root)
    done: list[bool] = []

    def overtaken(self: Indexes, *args: Any) -> Any:
        if not done:
            done.append(True)
            with other.transaction() as tx:
                tx.overwrite("Knows", [])
                tx.overwrite("Person", [{"name": "only"}])
        return seal(self, *args)

    monkeypatch.setattr(Indexes, "seal", overtaken)
    graph.ensure_indices()
    assert graph.snapshot().read("Person")["name"].to_pylist() == ["only"]
    assert covered(graph, "Person", "id")


@pytest.mark.crash
@pytest.mark.parametrize("point", ["publish.before_swap", "publish.after_swap"])
def test_a_build_that_is_killed_is_visible_whole_or_not_at_all(graph: og.Graph, point: str) -> None:
    before = graph.refresh()
    code = "import sys, omnigraph as og; og.open(sys.argv[1]).ensure_indices()"
    environment = {**os.environ, ENABLE_VARIABLE: "1", POINTS_VARIABLE: f"{point}=kill"}
    ended = subprocess.run([sys.executable, "-c", code, graph.root], env=environment, check=False)
    assert ended.returncode == -9
    head = graph.refresh()
    assert (head.id == before.id) == (point == "publish.before_swap")
    assert covered(graph, "Person", "id") == covered(graph, "Knows", "src") == (point == "publish.after_swap")
    with graph.transaction() as tx:
        tx.append("Person", [{"name": "next"}])
    graph.ensure_indices()
    assert covered(graph, "Person", "id")
    assert graph.snapshot().count("Person") == 2_000 + len(ODD) + 1


def test_a_branch_has_its_own_indexes(graph: og.Graph) -> None:
    graph.branches.create("side")
    report = graph.ensure_indices("side")
    assert report.branch == "side"
    assert not covered(graph, "Person", "id")
    assert covered(graph.on("side"), "Person", "id")
    assert graph.ensure_indices("side").commit is None


def test_what_can_not_be_indexed_is_said(graph: og.Graph) -> None:
    with pytest.raises(NotFoundError, match="Persn"):
        graph.ensure_indices(types=["Persn"])
    with pytest.raises(NotFoundError, match="elsewhere"):
        graph.ensure_indices("elsewhere")
    with pytest.raises(ReadOnlyError):
        og.open(graph.root, read_only=True).ensure_indices()


def test_the_command_line_shows_a_table_and_json(graph: og.Graph) -> None:
    shown = CliRunner().invoke(app, ["index", graph.root, "--type", "Person", "--actor", "me"])
    assert shown.exit_code == 0, shown.output
    assert "node:Person" in shown.output
    told = CliRunner().invoke(app, ["index", graph.root, "--json"])
    assert '"edge:Knows"' in told.output
    assert graph.log(limit=2)[1].actor == "me"


def test_constraints_use_the_index_and_still_refuse(graph: og.Graph) -> None:
    graph.ensure_indices()
    with pytest.raises(ConstraintError, match="nobody"), graph.transaction() as tx:
        tx.append("Knows", [{"src": "nobody", "dst": "p1"}])
    with pytest.raises(ConstraintError, match="@card"), graph.transaction() as tx:
        tx.append("Knows", [{"src": "p1", "dst": f"p{n}"} for n in range(10, 14)])
