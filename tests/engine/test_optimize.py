"""Optimize: fewer fragments, the same rows under the same row ids, indexes that cover them, and plain readers."""

import json
import random
import struct
import threading
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.engine.near_kit import Near
from tests.engine.upkeep_kit import SCHEMA, aged, content, die_at, person, reachable, table_files, units
from tests.plain_tables import plain
from typer.testing import CliRunner

import omnigraph as og
from omnigraph.cli.app import app
from omnigraph.engine.upkeep import CONCURRENCY_VARIABLE, concurrency
from omnigraph.errors import ContentionError, InvalidOptionError, ReadOnlyError
from omnigraph.failpoints import FailpointError
from omnigraph.storage.lance_compacting import Compacting
from omnigraph.storage.lance_rows import indexed_fragments, open_at
from omnigraph.testing.places import place

NAN = struct.unpack("<d", struct.pack("<Q", 0x7FF8000000000001))[0]
ODD = ["", "ä", "日本", "a'b", 'q"', "\\", "null", "x" * 300]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "g"


@pytest.fixture
def graph(root: Path) -> og.Graph:
    made = og.init(root, SCHEMA)
    for number in range(12):
        with made.transaction() as tx:
            tx.append("Person", [person(f"p{number}-{n}", age=n, mail=f"{number}-{n}@x") for n in range(20)])
            tx.append("Knows", [{"id": f"k{number}", "src": f"p{number}-0", "dst": f"p{number}-1"}])
    return made


def handle(graph: og.Graph, type: str, branch: str = "main") -> Any:
    snapshot = graph.snapshot(branch)
    kind = snapshot.catalog.table_type(type)
    uri = graph._session.root.uri(f"{kind.table.kind.value}s/{kind.table_id}")
    return open_at(uri, snapshot.commit.pins[kind.table_id].lance_version, graph._session.root.options)


def row_ids(graph: og.Graph, type: str) -> dict[str, int]:
    table = handle(graph, type).scanner(["id"], with_row_id=True).to_table()
    return dict(zip(table.column("id").to_pylist(), table.column("_rowid").to_pylist(), strict=True))


def test_many_fragments_become_one_and_rows_stay_what_they_are(graph: og.Graph) -> None:
    before, numbers = content(graph.snapshot()), row_ids(graph, "Person")
    report = graph.optimize()
    assert (report.tables["node:Person"].fragments_before, report.tables["node:Person"].fragments_after) == (12, 1)
    assert set(report.tables) == {"node:Person", "edge:Knows"}
    assert content(graph.snapshot()) == before
    assert row_ids(graph, "Person") == numbers
    assert graph.log(limit=1)[0].operation == "optimize"
    assert graph.log(limit=1)[0].id == report.commit
    assert not list(graph.diff("main@13", "main").rows("Person"))
    assert graph.verify(deep=True).findings == ()


def test_a_second_run_finds_nothing_to_do(graph: og.Graph) -> None:
    graph.optimize()
    head = graph.refresh()
    again = graph.optimize()
    assert (again.commit, again.tables, again.shown) == (None, {}, ())
    assert graph.refresh() == head


def test_indexes_cover_what_was_rewritten_and_find_the_same(graph: og.Graph) -> None:
    graph.ensure_indices()
    with graph.transaction() as tx:
        tx.upsert("Person", [person("p0-0", mail="other"), person("new", mail="new@x")])
    with graph.transaction() as tx:
        tx.delete("Person", ids=[f"p5-{n}" for n in range(20)])
    report = graph.optimize()
    assert set(report.tables["node:Person"].indexed) == {"id", "name", "mail"}
    for column in ("id", "name", "mail"):
        found = handle(graph, "Person")
        assert set(found.fragment_ids()) == set(indexed_fragments(found, column))
        assert len([one for one in found.describe_indices() if list(one.field_names) == [column]]) == 1
    for where, count in (("id = 'p0-0'", 1), ("mail = 'new@x'", 1), ("id = 'p5-3'", 0), ("mail = '0-0@x'", 0)):
        assert graph.snapshot().count("Person", where) == count
    with graph.transaction() as tx:
        tx.append("Person", [person("later", mail="later@x")])
    assert graph.snapshot().count("Person", "id = 'later'") == 1
    assert graph.ensure_indices().tables["node:Person"]["id"].rows_added == 1


def test_fragments_that_were_indexed_one_by_one_become_one(root: Path) -> None:
    """Lance puts no fragments together of which an index covers some and not the others, or has several segments."""
    graph = og.init(root, SCHEMA.replace("day: Date?", "day: Date?  ok: Bool? @index  bio: String? @index"))
    for number in range(6):
        with graph.transaction() as tx:
            tx.append("Person", [person(f"p{number}-{n}", mail=f"{number}-{n}@x", ok=True) for n in range(5)])
        if number < 5:
            graph.ensure_indices()
    before = content(graph.snapshot())
    report = graph.optimize()
    assert (report.tables["node:Person"].fragments_before, report.tables["node:Person"].fragments_after) == (6, 1)
    found = handle(graph, "Person")
    assert {len(index.segments) for index in found.describe_indices()} == {1}
    assert set(found.fragment_ids()) == set(indexed_fragments(found, "mail"))
    assert content(graph.snapshot()) == before
    aged(root)
    graph.cleanup(keep=1)
    assert units(table_files(root)) == reachable(graph)


def test_nulls_nans_and_odd_texts_survive_walks_of_upserts_and_deletes(root: Path) -> None:
    graph = og.init(root, SCHEMA)
    chance = random.Random(7)
    model: dict[str, dict[str, Any]] = {}
    for step in range(24):
        some = [
            person(
                text or "empty",
                age=chance.choice([None, 0, -1, 2**31 - 1]),
                score=chance.choice([None, NAN, -0.0, float("inf")]),
                tags=chance.choice([[], [""], ["ä", "b"]]),
                day=chance.choice([None, date(2026, 1, 31)]),
            )
            for text in chance.sample(ODD, 4)
        ]
        with graph.transaction() as tx:
            tx.upsert("Person", some)
        model |= {row["name"]: row for row in some}
        if step % 5 == 4:
            gone = chance.choice(sorted(model))
            with graph.transaction() as tx:
                tx.delete("Person", ids=[gone])
            del model[gone]
        if step % 8 == 7:
            graph.ensure_indices()
        if step % 6 == 5:
            before, numbers = content(graph.snapshot()), row_ids(graph, "Person")
            graph.optimize(rows_per_fragment=chance.choice([1, 3, 1_000]))
            assert content(graph.snapshot()) == before
            assert row_ids(graph, "Person") == numbers
        for name in ODD:
            assert graph.snapshot().count("Person", where=None) == len(model)
            found = graph.snapshot().entity("Person", name or "empty")
            assert (found is None) == ((name or "empty") not in model)
    assert graph.verify(deep=True).findings == ()


@pytest.mark.parametrize("size", [0, 1, 100, 70_000, 5_000_000])
def test_blobs_keep_every_byte(root: Path, size: int) -> None:
    graph = og.init(root, SCHEMA)
    images = {f"i{n}": None if n == 2 else random.Random(n).randbytes(size) for n in range(5)}
    for name, image in images.items():
        with graph.transaction() as tx:
            tx.append("Photo", [{"name": name, "image": image}, {"name": f"{name}-empty", "image": b""}])
    with graph.transaction() as tx:
        tx.delete("Photo", ids=["i4"])
    report = graph.optimize()
    assert report.tables["node:Photo"].fragments_after == 1
    aged(root)
    graph.cleanup(keep=1)
    found = {row["name"]: row["image"] for row in graph.snapshot().read("Photo").to_pylist()}
    wanted = {name: image for name, image in images.items() if name != "i4"} | {f"{name}-empty": b"" for name in images}
    assert found == wanted
    assert units(table_files(root)) == reachable(graph)


def test_appends_meanwhile_land_and_are_kept(graph: og.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    graph.ensure_indices()
    keep, landed = Compacting.seal, list[int]()

    def seal(self: Compacting, *given: Any) -> Any:
        if len(landed) < 3:
            landed.append(len(landed))
            with og.open(graph.root).transaction() as tx:
                tx.append("Person", [person(f"meanwhile{len(landed)}")])
        return keep(self, *given)

    monkeypatch.setattr(Compacting, "seal", seal)
    report = graph.optimize()
    assert report.tables["node:Person"].fragments_before in (12 + 1, 12 + 2, 12 + 3)
    assert graph.snapshot().count("Person") == 12 * 20 + 3
    for number in (1, 2, 3):
        assert graph.snapshot().entity("Person", f"meanwhile{number}") is not None
    assert graph.snapshot().entity("Person", "p7-7") is not None
    assert graph.verify(deep=True).findings == ()


def test_an_upsert_meanwhile_wins_and_its_fragments_are_planned_anew(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep, landed = Compacting.seal, list[int]()

    def seal(self: Compacting, *given: Any) -> Any:
        if not landed:
            landed.append(1)
            with og.open(graph.root).transaction() as tx:
                tx.upsert("Person", [person("p3-3", age=-3)])
        return keep(self, *given)

    monkeypatch.setattr(Compacting, "seal", seal)
    graph.optimize()
    found = graph.snapshot().entity("Person", "p3-3")
    assert found is not None and found["age"] == -3
    assert graph.snapshot().count("Person") == 12 * 20
    assert graph.verify(deep=True).findings == ()


def test_it_is_refused_while_a_promise_is_pending(graph: og.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    live = die_at(monkeypatch, "commit.after_seals")
    with pytest.raises(FailpointError), graph.transaction() as tx:
        tx.append("Person", [person("promised")])
    live()
    monkeypatch.setattr("omnigraph.engine.recovery.Recovery.heal", lambda self: [])
    with pytest.raises(ContentionError, match="1 writes are promised"):
        graph.optimize()
    monkeypatch.undo()
    graph.recover()
    assert graph.optimize().commit is not None
    assert graph.snapshot().entity("Person", "promised") is not None


def test_a_promise_made_before_is_kept_after(graph: og.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    """An upsert that was promised on the fragments from before is worked out anew on those that took their place."""
    writer = og.open(graph.root)
    live = die_at(monkeypatch, "commit.after_sidecar")
    monkeypatch.setattr("omnigraph.engine.optimizing.Optimizing._refuse_pending", lambda self: None)
    with pytest.raises(FailpointError), writer.transaction() as tx:
        tx.upsert("Person", [person("p3-3", age=-3), person("new")])
    live()
    monkeypatch.setattr("omnigraph.engine.recovery.Recovery.heal", lambda self: [])
    graph.optimize()
    assert [one.kind for one in graph.recover()] == ["RolledForward"]
    found = graph.snapshot().entity("Person", "p3-3")
    assert found is not None and found["age"] == -3
    assert graph.snapshot().count("Person") == 12 * 20 + 1


def test_plain_readers_see_what_main_is(graph: og.Graph) -> None:
    def there(type: str) -> Any:
        kind = graph.snapshot().catalog.table_type(type)
        return plain(graph.root, f"{kind.table.kind.value}s/{kind.table_id}")

    assert there("Person").count_rows() == 0
    report = graph.optimize()
    assert set(report.shown) == {"node:Person", "edge:Knows"}
    ids = set(graph.snapshot().read("Person").column("id").to_pylist())
    assert set(there("Person").to_table(columns=["id"]).column("id").to_pylist()) == ids
    graph.branches.create("side")
    with graph.transaction("side") as tx:
        tx.append("Person", [person("aside")])
    assert graph.optimize("side").shown == ()
    assert there("Person").count_rows() == len(ids)
    with graph.transaction() as tx:
        tx.append("Photo", [{"name": "one"}])
    assert graph.optimize().shown == ("node:Photo",)
    assert there("Photo").count_rows() == 1
    assert graph.verify().findings == ()


def test_a_branch_is_compacted_and_main_stays(graph: og.Graph) -> None:
    graph.branches.create("side")
    before = content(graph.snapshot())
    graph.optimize("side", types=["Person"])
    assert len(handle(graph, "Person", "side").fragment_ids()) == 1
    assert len(handle(graph, "Knows", "side").fragment_ids()) == 12
    assert len(handle(graph, "Person").fragment_ids()) == 12
    assert content(graph.snapshot()) == content(graph.snapshot("side")) == before
    assert graph.branches.merge("side").to_dict()["outcome"] in ("FastForward", "Merged")
    assert content(graph.snapshot()) == before


def test_trouble_with_one_table_does_not_stop_the_others(graph: og.Graph, root: Path) -> None:
    kind = graph.snapshot().catalog.table_type("Knows")
    for file in (place(root) / "edges" / kind.table_id / "data").iterdir():
        file.rename(file.with_suffix(".away"))
    report = graph.optimize()
    assert [one.table for one in report.troubles] == ["edge:Knows"]
    assert set(report.tables) == {"node:Person"}
    for file in (place(root) / "edges" / kind.table_id / "data").glob("*.away"):
        file.rename(file.with_suffix(".lance"))
    assert set(graph.optimize().tables) == {"edge:Knows"}
    assert graph.verify(deep=True).findings == ()


def test_cleanup_after_it_leaves_nothing_behind(graph: og.Graph, root: Path) -> None:
    graph.ensure_indices()
    for _ in range(2):
        with graph.transaction() as tx:
            tx.upsert("Person", [person("p1-1", age=5)])
        graph.optimize()
    before = content(graph.snapshot())
    aged(root)
    graph.cleanup(keep=1)
    assert units(table_files(root)) == reachable(graph)
    assert len([name for name in table_files(root) if "/data/" in name]) == 2
    assert content(graph.snapshot()) == before


def test_many_optimize_at_once(graph: og.Graph) -> None:
    before, handles = content(graph.snapshot()), [og.open(graph.root) for _ in range(4)]
    problems: list[BaseException] = []

    def run(one: og.Graph) -> None:
        try:
            one.optimize()
        except BaseException as problem:  # noqa: BLE001  whatever it is, the test must see it
            problems.append(problem)

    threads = [threading.Thread(target=run, args=(one,)) for one in handles]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert content(graph.snapshot()) == before
    assert graph.verify(deep=True).is_sound


def test_how_much_is_done_at_once_can_be_said(graph: og.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    assert concurrency() == 8
    monkeypatch.setenv(CONCURRENCY_VARIABLE, "1")
    assert graph.optimize().commit is not None
    monkeypatch.setenv(CONCURRENCY_VARIABLE, "many")
    with pytest.raises(InvalidOptionError, match=CONCURRENCY_VARIABLE):
        graph.verify()
    monkeypatch.undo()
    with pytest.raises(InvalidOptionError, match="rows_per_fragment"):
        graph.optimize(rows_per_fragment=0)
    with pytest.raises(ReadOnlyError):
        og.open(graph.root, read_only=True).optimize()


def test_the_command_tells_what_became_of_each_table(graph: og.Graph) -> None:
    run = CliRunner().invoke
    done = run(app, ["optimize", graph.root, "--json", "--actor", "night"])
    assert done.exit_code == 0
    assert json.loads(done.stdout)["tables"]["node:Person"]["fragments_before"] == 12
    assert graph.log(limit=1)[0].actor == "night"
    assert run(app, ["optimize", graph.root, "--type", "Person"]).stdout.startswith("nothing to compact")


def test_moments_are_kept_to_the_microsecond(root: Path) -> None:
    graph = og.init(root, SCHEMA)
    moment = datetime(2026, 1, 31, 12, 0, 0, 123456, UTC)
    for number in range(3):
        with graph.transaction() as tx:
            tx.upsert("Person", [person("a"), person("b")])
            tx.append("Knows", [{"id": f"k{number}", "src": "a", "dst": "b", "since": moment}])
    graph.optimize()
    assert set(graph.snapshot().read("Knows").column("since").to_pylist()) == {moment}


@pytest.mark.parametrize("engine", [None, Near()])
def test_edges_are_clustered_by_where_they_begin_and_nothing_else_changes(root: Path, engine: Near | None) -> None:
    graph = og.init(root, SCHEMA)
    graph = graph if engine is None else graph.with_engine(engine)
    chance = random.Random(1)
    names = [f"p{number}" for number in range(50)]
    with graph.transaction() as tx:
        tx.append("Person", [person(name) for name in names])
    for step in range(6):
        moment = datetime(2026, 1, 1, step, tzinfo=UTC)
        edges = [{"id": f"k{step}-{n}", "src": chance.choice(names), "dst": chance.choice(names)} for n in range(40)]
        with graph.transaction() as tx:
            tx.append("Knows", [{**edge, "since": chance.choice([None, moment])} for edge in edges])
    with graph.transaction() as tx:
        tx.delete("Knows", ids=[f"k3-{n}" for n in range(0, 40, 3)])
    graph.ensure_indices()
    graph.branches.create("before")
    before = content(graph.snapshot())
    report = graph.optimize(cluster=True, rows_per_fragment=100)
    assert report.troubles == ()
    assert report.tables["edge:Knows"].fragments_after == 3
    table = handle(graph, "Knows")
    ends = table.to_table(columns=["src", "dst"])
    assert ends.column("src").to_pylist() == sorted(ends.column("src").to_pylist())
    assert set(table.fragment_ids()) == set(indexed_fragments(table, "src")) == set(indexed_fragments(table, "dst"))
    assert content(graph.snapshot()) == before
    assert graph.diff("before", "main").is_empty
    assert list(graph.changes(since=graph.refresh().version - 1).rows("Knows")) == []
    assert graph.optimize(cluster=True, rows_per_fragment=100).commit is None
    with graph.transaction() as tx:
        tx.upsert("Knows", [{"id": "k0-0", "src": "p1", "dst": "p2"}])
    with graph.transaction("before") as tx:
        tx.upsert("Knows", [{"id": "k0-1", "src": "p3", "dst": "p4"}])
    graph.branches.merge("before")
    assert graph.snapshot().count("Knows", "src = 'p1' AND id = 'k0-0'") == 1
    assert graph.snapshot().count("Knows", "src = 'p3' AND id = 'k0-1'") == 1
    assert graph.snapshot().count("Knows") == len(before["edge:Knows"])
    assert graph.verify(deep=True).findings == ()


def test_edges_that_come_while_others_are_clustered_are_kept(graph: og.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    graph.ensure_indices()
    keep, landed = Compacting.seal, list[int]()

    def seal(self: Compacting, *given: Any) -> Any:
        if len(landed) < 2:
            landed.append(len(landed))
            with og.open(graph.root).transaction() as tx:
                tx.upsert("Knows", [{"id": f"m{len(landed)}", "src": "p9-0", "dst": "p0-0"}])
                if len(landed) == 2:
                    tx.upsert("Knows", [{"id": "k3", "src": "p0-5", "dst": "p0-0"}])
        return keep(self, *given)

    monkeypatch.setattr(Compacting, "seal", seal)
    graph.optimize(cluster=True)
    found = {row["id"]: row["src"] for row in graph.snapshot().read("Knows").to_pylist()}
    assert found == {f"k{n}": f"p{n}-0" for n in range(12)} | {"m1": "p9-0", "m2": "p9-0", "k3": "p0-5"}
    for id, src in found.items():
        assert graph.snapshot().read("Knows", where=f"src = '{src}'").column("id").to_pylist().count(id) == 1
    assert graph.verify(deep=True).findings == ()
