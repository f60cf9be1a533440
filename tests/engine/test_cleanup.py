"""Cleanup: what nobody holds goes, what anyone can reach stays, and whoever asks for what is gone is told so."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.engine.upkeep_kit import LONG_AGO, SCHEMA, aged, content, die_at, person, reachable, table_files, units
from typer.testing import CliRunner

import omnigraph as og
from omnigraph.cli.app import app
from omnigraph.engine.parts import Begun
from omnigraph.errors import (
    CommitExpiredError,
    CorruptGraphError,
    InvalidOptionError,
    ReadOnlyError,
)
from omnigraph.failpoints import FailpointError
from omnigraph.model.intents import Intent
from omnigraph.storage.manifest import Manifest
from omnigraph.testing.places import place
from omnigraph.testing.s3_server import SeaweedServer


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "g"


@pytest.fixture
def graph(root: Path) -> og.Graph:
    made = og.init(root, SCHEMA)
    for number in range(6):
        with made.transaction() as tx:
            tx.upsert("Person", [person("Ann", age=number), person(f"p{number}")])
            tx.upsert("Photo", [{"name": "one", "image": bytes([number]) * 9}])
    return made


def test_a_policy_is_needed_and_must_make_sense(graph: og.Graph) -> None:
    for wrong in ({}, {"keep": 0}, {"keep": True}, {"older_than": "soon"}, {"older_than": timedelta(-1)}):
        with pytest.raises(InvalidOptionError):
            graph.cleanup(**wrong)
    with pytest.raises(InvalidOptionError, match="grace is '1y'"):
        graph.cleanup(keep=1, grace="1y")
    with pytest.raises(ReadOnlyError):
        og.open(graph.root, read_only=True).cleanup(keep=1)


def test_what_a_writer_was_killed_in_the_middle_of_goes_once_it_is_old(graph: og.Graph, root: Path) -> None:
    folder = next(path for path in place(root).glob("nodes/*") if (path / "_versions").exists())
    cut = [folder / "_versions" / "d12345678901234567890.manifest#1", folder / "data" / "0011aa.lance#12"]
    strange = folder / "notes#1"
    for path in (*cut, strange):
        path.write_bytes(b"half")
    graph.cleanup(keep=100)
    assert all(path.exists() for path in cut), "somebody may be at it"
    aged(root)
    would = graph.cleanup(keep=100, dry_run=True)
    assert [(one.files, one.bytes) for one in would.removed if one.kind == "unfinished"] == [(2, 8)]
    assert all(path.exists() for path in cut)
    report = graph.cleanup(keep=100)
    assert [(one.files, one.bytes) for one in report.removed if one.kind == "unfinished"] == [(2, 8)]
    assert not any(path.exists() for path in cut)
    assert strange.exists(), "Lance did not write it"


def test_commits_beyond_those_kept_expire_and_their_files_go(graph: og.Graph, root: Path) -> None:
    kept = {version: content(graph.snapshot(version=version)) for version in (6, 7)}
    before = table_files(root)
    aged(root)
    report = graph.cleanup(keep=2)
    assert len(report.expired) == 5
    assert report.commits_kept == 2
    assert report.troubles == ()
    assert {version: content(graph.snapshot(version=version)) for version in kept} == kept
    gone = sum(one.files for one in report.removed if one.table != "__manifest")
    assert len(before) - len(table_files(root)) == gone > 0
    assert units(table_files(root)) == reachable(graph)
    assert graph.verify(deep=True).findings == ()


def test_an_expired_commit_says_so_and_stays_in_the_log(graph: og.Graph, root: Path) -> None:
    first = graph.log(limit=None)[-2]
    aged(root)
    graph.cleanup(keep=1)
    with pytest.raises(CommitExpiredError, match=f"commit {first.id} was cleaned up at .* tag what must stay"):
        graph.snapshot(commit=first.id)
    with pytest.raises(CommitExpiredError):
        graph.snapshot(version=first.version)
    with pytest.raises(CommitExpiredError):
        graph.snapshot(timestamp=first.created_at)
    with pytest.raises(CommitExpiredError):
        graph.restore("main", to=first.id)
    with pytest.raises(CommitExpiredError):
        graph.branches.create("late", from_=first.id)
    with pytest.raises(CommitExpiredError):
        graph.tags.create("late", at=first.id)
    with pytest.raises(CommitExpiredError):
        list(graph.diff(first.id, "main").rows("Person"))
    logged = graph.log(limit=None)
    assert [commit.version for commit in logged] == [7, 6, 5, 4, 3, 2, 1]
    assert [commit.expired_at is None for commit in logged] == [True, *[False] * 6]
    assert graph.commit(first.id).expired_at is not None


def test_commits_younger_than_the_policy_says_stay(graph: og.Graph, root: Path) -> None:
    aged(root)
    assert graph.cleanup(older_than="1h").expired == ()
    assert graph.cleanup(keep=1, older_than="1h").expired == ()
    assert len(graph.cleanup(keep=3, older_than="0s").expired) == 4


def test_heads_tags_and_where_merges_start_from_are_kept(graph: og.Graph, root: Path) -> None:
    graph.branches.create("side", from_=graph.log(limit=None)[2].id)
    graph.tags.create("old", at=graph.log(limit=None)[4].id)
    with graph.transaction("side") as tx:
        tx.append("Person", [person("Sid")])
    held = {"old": content(graph.snapshot(tag="old")), "side": content(graph.snapshot("side"))}
    aged(root)
    report = graph.cleanup(keep=1)
    assert {one.held_by for one in report.kept} >= {"branch main", "branch side", "tag old"}
    assert "merges of main and side" in {one.held_by for one in report.kept}
    assert content(graph.snapshot(tag="old")) == held["old"]
    assert content(graph.snapshot("side")) == held["side"]
    graph.branches.merge("side")
    assert graph.snapshot().entity("Person", "Sid") is not None
    graph.tags.delete("old")
    graph.branches.delete("side")
    aged(root)
    graph.cleanup(keep=1)
    assert units(table_files(root)) == reachable(graph)


def test_what_a_deleted_branch_alone_held_goes(graph: og.Graph, root: Path) -> None:
    before = content(graph.snapshot())
    graph.cleanup(keep=1)
    aged(root)
    graph.cleanup(keep=1)
    small = len(table_files(root))
    graph.branches.create("side")
    with graph.transaction("side") as tx:
        tx.append("Person", [person(f"s{n}") for n in range(100)])
        tx.append("Knows", [{"src": "s1", "dst": "s2"}])
    graph.branches.delete("side")
    aged(root)
    report = graph.cleanup(keep=1)
    assert "edge:Knows" in {one.table for one in report.removed}
    assert content(graph.snapshot()) == before
    assert len(table_files(root)) <= small + 3  # the empty version that the table of edges was born with
    assert units(table_files(root)) == reachable(graph)


def test_a_dry_run_writes_nothing_and_says_what_the_real_one_does(graph: og.Graph, root: Path) -> None:
    aged(root)
    before = {path: path.stat().st_mtime_ns for path in place(root).rglob("*")}
    told = og.open(root, read_only=True).cleanup(keep=2, dry_run=True)
    assert {path: path.stat().st_mtime_ns for path in place(root).rglob("*")} == before
    done = graph.cleanup(keep=2)
    assert told.dry_run and told.files > 10 and told.expired == done.expired
    tables = [one for one in done.removed if one.table != "__manifest"]
    assert told.removed == tuple(tables)
    assert sum(one.files for one in told.kept) == sum(one.files for one in done.kept) == len(table_files(root))
    again = graph.cleanup(keep=2)
    assert (again.expired, [one for one in again.removed if one.table != "__manifest"]) == ((), [])


def test_what_is_young_stays_and_is_told_to_be(graph: og.Graph, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("engine.sweeping", "storage.manifest"):
        monkeypatch.setattr(f"omnigraph.{module}.CLOCK_GRAIN", timedelta(hours=1))  # no store is as slow as that
    before = table_files(root)
    report = graph.cleanup(keep=1)
    assert len(report.expired) == 6
    assert table_files(root) == before
    assert "their age" in {one.held_by for one in report.kept}
    assert graph.cleanup(keep=1, grace="0s").files == 0  # even then: a moment is left for clocks
    aged(root)
    assert graph.cleanup(keep=1).files > 0


def staged(graph: og.Graph, begun: Begun) -> str:
    import pyarrow as pa

    order = graph.snapshot(commit=begun.base).order("Person", "append")
    rows = pa.Table.from_pylist([{"name": "Late", "tags": ["x"], "age": 1}])
    return order.stage(rows.to_batches())


def test_what_tasks_elsewhere_stage_is_left_alone_as_long_as_they_are_at_it(graph: og.Graph, root: Path) -> None:
    branch = graph.branches.get("main")
    begun = graph.announce(Begun(base=branch.head, incarnation=branch.incarnation), ["Person"])
    part = staged(graph, begun)
    for _ in range(3):
        with graph.transaction() as tx:
            tx.upsert("Person", [person("Ann", age=77)])
        with graph.transaction() as tx:
            tx.upsert("Person", [person("Ann", age=78)])
    aged(root, timedelta(days=3))
    report = graph.cleanup(keep=1, grace="0s")
    assert any(one.held_by.startswith("staging ") for one in report.kept)
    with graph.transaction(begun=begun) as tx:
        tx.staged("Person", "append", [part])
    assert graph.snapshot().entity("Person", "Late") is not None
    assert not list((place(root) / "__staging").rglob("*.json"))


def test_an_intent_that_nobody_ended_lasts_seven_days(graph: og.Graph, root: Path) -> None:
    branch = graph.branches.get("main")
    begun = graph.announce(Begun(base=branch.head, incarnation=branch.incarnation), ["Person"])
    staged(graph, begun)
    aged(root, timedelta(days=6, hours=23))
    graph.cleanup(keep=1)
    assert len(list((place(root) / "__staging").rglob("*.json"))) == 1
    aged(root, timedelta(hours=2))
    graph.cleanup(keep=1)
    assert units(table_files(root)) == reachable(graph)
    assert not [path for path in (place(root) / "__staging").rglob("*") if path.is_file()]


def test_an_intent_that_can_not_be_read_stops_the_cleanup(graph: og.Graph, root: Path) -> None:
    branch = graph.branches.get("main")
    graph.announce(Begun(base=branch.head, incarnation=branch.incarnation), ["Person"])
    (file,) = (place(root) / "__staging").rglob("*.json")
    aged(root)
    before = table_files(root)
    body = json.loads(file.read_text())
    for wrong in ("{", json.dumps({**body, "tables": ["../.."]}), json.dumps({**body, "intent": 2})):
        file.write_text(wrong)
        with pytest.raises((CorruptGraphError, og.OmnigraphError), match=r"intent\.json"):
            graph.cleanup(keep=1)
    assert table_files(root) == before


def test_a_write_that_lasts_says_so_and_a_short_one_does_not(
    graph: og.Graph, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from omnigraph.engine import announcing

    put: list[Intent] = []
    keep = graph._session.intents.put

    def noted(self: object, intent: Intent) -> None:
        put.append(intent)
        keep(intent)

    monkeypatch.setattr(type(graph._session.intents), "put", noted)
    with graph.transaction() as tx:
        tx.append("Person", [person("short")])
    assert put == []
    monkeypatch.setattr(announcing, "SILENT", timedelta(0))
    with graph.transaction() as tx:
        tx.append("Person", [person("long")])
        tx.append("Photo", [{"name": "long"}])
        assert len(list((place(root) / "__staging").rglob("*.json"))) == 1
    assert [len(intent.tables) for intent in put] == [1, 2]
    assert Intent.from_bytes(put[1].to_bytes(), "it") == put[1]
    assert not list((place(root) / "__staging").rglob("*.json"))


@pytest.mark.parametrize("point", ["commit.after_sidecar", "commit.after_first_seal", "commit.after_seals"])
def test_what_is_promised_stays_and_comes_true_later(
    graph: og.Graph, root: Path, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = die_at(monkeypatch, point)
    with pytest.raises(FailpointError), graph.transaction() as tx:
        tx.upsert("Person", [person("Ann", age=99), person("Bob")])
        tx.append("Knows", [{"id": "k", "src": "Ann", "dst": "Bob"}])
    live()
    aged(root)
    report = graph.cleanup(keep=1, grace="0s")
    assert any(one.held_by.startswith("promise ") for one in report.kept)
    assert [one.kind for one in graph.recover()] == ["RolledForward"]
    ann = graph.snapshot().entity("Person", "Ann")
    assert ann is not None and ann["age"] == 99
    assert graph.snapshot().count("Knows") == 1
    assert graph.verify(deep=True).is_sound


def test_trouble_with_one_table_leaves_it_alone_and_the_others_are_cleaned(graph: og.Graph, root: Path) -> None:
    kind = graph.snapshot().catalog.table_type("Photo")
    pin = graph.snapshot().commit.pins[kind.table_id]
    hidden = place(root) / "nodes" / kind.table_id / "_versions" / f"d{pin.lance_version}.manifest"
    away = hidden.rename(place(root) / "away")
    aged(root)
    before = {name for name in table_files(root) if kind.table_id in name}
    report = graph.cleanup(keep=1)
    assert [one.table for one in report.troubles] == ["node:Photo"]
    assert {name for name in table_files(root) if kind.table_id in name} == before
    assert {one.table for one in report.removed} - {"__manifest"} == {"node:Person"}
    away.rename(hidden)
    aged(root)
    report = graph.cleanup(keep=1)
    assert report.troubles == ()
    assert units(table_files(root)) == reachable(graph)


def test_a_file_that_can_not_be_deleted_is_trouble_of_its_table_alone(
    graph: og.Graph, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = graph.snapshot().catalog.table_type("Photo")
    store, keep = type(graph._session.objects), type(graph._session.objects).delete

    def delete(self: object, keys: list[str]) -> None:
        if any(kind.table_id in key for key in keys):
            raise og.OmnigraphError("not today")
        keep(self, keys)  # type: ignore[arg-type]

    aged(root)
    monkeypatch.setattr(store, "delete", delete)
    report = graph.cleanup(keep=1)
    assert [(one.table, "not today" in one.reason) for one in report.troubles] == [("node:Photo", True)]
    assert "node:Person" in {one.table for one in report.removed}
    monkeypatch.undo()
    assert graph.cleanup(keep=1).troubles == ()
    assert units(table_files(root)) == reachable(graph)


def test_whoever_names_a_commit_first_keeps_it(graph: og.Graph, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = graph.log(limit=None)[3]
    before = content(graph.snapshot(commit=wanted.id))
    aged(root)
    keep, late = Manifest.swap, og.open(root)

    def swap(self: Manifest, *given: object) -> object:
        if "late" not in {tag.name for tag in late.tags.list()} and len(given) == 3:
            monkeypatch.setattr(Manifest, "swap", keep)
            late.tags.create("late", at=wanted.id)
        return keep(self, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(Manifest, "swap", swap)
    report = graph.cleanup(keep=1)
    assert len(report.expired) == 5
    assert content(graph.snapshot(tag="late")) == before


def test_what_was_merged_or_restored_meanwhile_from_an_expired_commit_is_refused(
    graph: og.Graph, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = graph.log(limit=None)[3]
    aged(root)
    publisher, keep = type(graph._session.publisher), type(graph._session.publisher).publish

    def publish(self: object, change: object) -> object:
        monkeypatch.setattr(publisher, "publish", keep)
        og.open(root).cleanup(keep=1)
        return keep(self, change)  # type: ignore[arg-type]

    monkeypatch.setattr(publisher, "publish", publish)
    with pytest.raises(CommitExpiredError):
        graph.restore("main", to=old.id)
    assert graph.verify(deep=True).is_sound


def test_a_rerun_of_a_txn_is_still_one_after_its_commit_has_expired(graph: og.Graph, root: Path) -> None:
    with graph.transaction(txn=("nightly", 7)) as tx:
        tx.append("Person", [person("once")])
    first = tx.receipt.commit
    with graph.transaction() as tx:
        tx.append("Person", [person("more")])
    aged(root)
    graph.cleanup(keep=1)
    with graph.transaction(txn=("nightly", 7)) as tx:
        tx.append("Person", [person("once")])
    assert (tx.receipt.rerun, tx.receipt.commit) == (True, first)


def test_history_in_many_files_expires_too_and_the_rest_is_found(root: Path) -> None:
    graph = og.init(root, "node A { x: String @key }")
    for number in range(80):
        with graph.transaction() as tx:
            tx.upsert("A", [{"x": "one"}, {"x": f"{number}"}])
    graph.tags.create("middle", at="main@40")
    aged(root)
    report = graph.cleanup(keep=5)
    assert len(report.expired) == 81 - 5 - 1
    assert graph.snapshot(tag="middle").count("A") == 40
    assert [commit.version for commit in graph.log(limit=None)] == list(range(81, 0, -1))
    assert graph.snapshot(version=78).count("A") == 78
    with pytest.raises(CommitExpiredError):
        graph.snapshot(version=39)
    assert units(table_files(root)) == reachable(graph)
    assert og.open(root).snapshot().count("A") == 81


def test_files_of_others_are_not_touched(graph: og.Graph, root: Path) -> None:
    kind = graph.snapshot().catalog.table_type("Person")
    top = place(root)
    places = [top / "notes.txt", top / "nodes" / "mine.txt", top / "nodes" / kind.table_id / "README"]
    for mine in places:
        mine.write_text("mine")
    probe = top / "__probe" / "x" / "sequence"
    probe.parent.mkdir(parents=True)
    probe.write_text("left")
    aged(root)
    report = graph.cleanup(keep=1)
    assert all(mine.read_text() == "mine" for mine in places)
    assert not probe.exists()
    assert ("__probe", "probe", 1) in {(one.table, one.kind, one.files) for one in report.removed}


def test_a_reader_that_holds_a_kept_snapshot_reads_on(graph: og.Graph, root: Path) -> None:
    held = graph.snapshot(version=6)
    reader = held.scan("Person")
    aged(root)
    graph.cleanup(keep=2)
    assert reader.read_all().num_rows == held.count("Person") == held.read("Person").num_rows


def test_two_cleanups_at_once_leave_what_one_leaves(graph: og.Graph, root: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    aged(root)
    handles = [og.open(root) for _ in range(3)]
    with ThreadPoolExecutor(3) as pool:
        reports = list(pool.map(lambda handle: handle.cleanup(keep=1), handles))
    assert all(report.troubles == () for report in reports)
    assert units(table_files(root)) == reachable(graph)
    assert graph.verify(deep=True).is_sound


def test_the_command_previews_and_does_it_when_confirmed(graph: og.Graph, root: Path) -> None:
    aged(root)
    before = table_files(root)
    run = CliRunner().invoke
    assert run(app, ["cleanup", str(root)]).exit_code == 2
    told = run(app, ["cleanup", str(root), "--keep", "2"])
    assert told.exit_code == 0 and "would remove 5 commits" in told.stdout and "held by branch main" in told.stdout
    assert table_files(root) == before
    done = run(app, ["cleanup", str(root), "--keep", "2", "--older-than", "0s", "--confirm", "--json"])
    assert done.exit_code == 0
    assert len(json.loads(done.stdout)["expired"]) == 5
    assert units(table_files(root)) == reachable(graph)


def test_the_clock_that_counts_is_the_stores(graph: og.Graph, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    late = og.open(root)
    fast = datetime.now(UTC) + LONG_AGO
    sources = type(late._session.sources)(now=lambda: fast)
    object.__setattr__(late._session, "sources", sources)
    before = table_files(root)
    late.cleanup(keep=1)
    assert table_files(root) == before  # a month has gone by for us, and a moment for the files


def test_it_works_on_an_object_store(s3_server: SeaweedServer, s3_root: Callable[[], str]) -> None:
    graph = og.init(s3_root(), SCHEMA, storage_options=s3_server.storage_options())
    for number in range(3):
        with graph.transaction() as tx:
            tx.upsert("Person", [person("Ann", age=number)])
    before = content(graph.snapshot())
    assert graph.cleanup(keep=1).files == 0  # all of it is young
    object.__setattr__(graph._session, "objects", _Aged(graph._session.objects))
    report = graph.cleanup(keep=1, grace="1h")
    assert report.files > 0 and report.troubles == ()
    assert content(og.open(graph.root, storage_options=s3_server.storage_options()).snapshot()) == before
    with pytest.raises(CommitExpiredError):
        graph.snapshot(version=2)
    assert graph.verify(deep=True).findings == ()


class _Aged:
    """A store whose clock says that all it lists was written a day ago; times of an object store can not be set."""

    def __init__(self, store: object) -> None:
        self._store = store

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    def list(self, prefix: str = "") -> object:
        from dataclasses import replace

        for info in self._store.list(prefix):  # type: ignore[attr-defined]
            yield replace(info, modified=info.modified - timedelta(days=1))
