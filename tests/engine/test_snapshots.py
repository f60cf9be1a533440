"""Reading one commit: by branch, tag, commit, version and time; rows, counts, single entities; history and restore."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.engine.opening import create_graph, open_graph
from omnigraph.errors import (
    CommitNotFoundError,
    InvalidOptionError,
    OmnigraphError,
    StorageError,
    TagNotFoundError,
    TypeNotFoundError,
)
from omnigraph.ids import Sources
from omnigraph.testing import places
from omnigraph.testing.commits import bare_commit, session_of

SCHEMA = """
node Person { name: String @key  age: I32? }
node Note { text: String  data: Blob? }
edge Knows: Person -> Person { since: Date? }
"""
DAY = timedelta(days=1)
START = datetime(2026, 1, 1, tzinfo=UTC)


class Clock:
    """One day passes with every look."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        found, self.now = self.now, self.now + DAY
        return found


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    return og.init(tmp_path / "g", SCHEMA, actor="ann")


def add(graph: og.Graph, *names: str, branch: str | None = None, actor: str | None = None) -> Any:
    with graph.transaction(branch, actor=actor) as tx:
        tx.append("Person", [{"name": name, "age": len(name)} for name in names])
    return graph.commit(str(tx.receipt.commit))


def people(snapshot: og.Snapshot) -> list[Any]:
    return sorted(snapshot.read("Person").column("id").to_pylist(), key=str)


# -- what to read -------------------------------------------------------------------------------------


def test_a_snapshot_is_found_by_branch_tag_commit_version_and_time(graph: og.Graph) -> None:
    two, three = add(graph, "Ann"), add(graph, "Bob")
    graph.tags.create("old", at=two.id)
    for snapshot in (
        graph.snapshot(tag="old"),
        graph.snapshot(commit=two.id),
        graph.snapshot(commit=two.id.lower()),
        graph.snapshot(version=2),
        graph.snapshot("main", version=2),
        graph.snapshot(timestamp=two.created_at),
        graph.snapshot("main", timestamp=two.created_at.isoformat()),
    ):
        assert snapshot.commit == two
        assert people(snapshot) == ["Ann"]
    assert graph.snapshot().commit == graph.snapshot("main").commit == three
    assert people(graph.snapshot()) == ["Ann", "Bob"]


def test_a_fork_goes_on_counting_and_versions_below_the_fork_are_the_parents(graph: og.Graph) -> None:
    two = add(graph, "Ann")
    graph.branches.create("review")
    main_three, review_three = add(graph, "Main"), add(graph, "Review", branch="review")
    assert review_three.version == main_three.version == 3
    assert review_three.parents == main_three.parents == (two.id,)
    assert graph.snapshot("review", version=2).commit == two
    assert graph.snapshot("review", version=3).commit == review_three
    assert graph.snapshot("main", version=3).commit == main_three
    with pytest.raises(CommitNotFoundError, match="it has 1 to 3"):
        graph.snapshot("review", version=4)


@pytest.mark.parametrize("parent_goes", ["deleted", "renamed", "moved on"])
def test_versions_below_a_fork_stay_when_the_parent_branch_does_not(graph: og.Graph, parent_goes: str) -> None:
    graph.branches.create("parent")
    below = add(graph, "Below", branch="parent")
    graph.branches.create("child", from_="parent")
    add(graph, "Own", branch="child")
    if parent_goes == "deleted":
        graph.branches.delete("parent")
    elif parent_goes == "renamed":
        graph.branches.rename("parent", "elsewhere")
    else:
        add(graph, "Later", branch="parent")
    assert graph.snapshot("child", version=2).commit == below
    assert graph.snapshot("child", timestamp=below.created_at).commit == below
    assert [c.version for c in graph.log("child")] == [3, 2, 1]
    assert people(graph.snapshot("child")) == ["Below", "Own"]


def test_a_moment_means_the_newest_commit_up_to_it(tmp_path: Path) -> None:
    clock = Sources(now=Clock())
    graph = create_graph(tmp_path / "g", SCHEMA, storage_options=None, actor=None, sources=clock)
    graph.branches.create("review")
    commits = [graph.refresh(), *(bare_commit(graph, "review") for _ in range(3))]
    for older, newer in pairwise(commits):
        between = newer.created_at - timedelta(microseconds=1)
        assert older.created_at < between
        assert graph.snapshot("review", timestamp=between).commit == older
        assert graph.snapshot("review", timestamp=newer.created_at).commit == newer
    assert graph.snapshot("review", timestamp=datetime(9000, 1, 1, tzinfo=UTC)).commit == commits[-1]
    assert graph.snapshot("main", timestamp=datetime(9000, 1, 1, tzinfo=UTC)).commit == commits[0]
    with pytest.raises(CommitNotFoundError, match="did not exist yet at 2025"):
        graph.snapshot("review", timestamp="2025-12-31T23:59:59")


def test_what_names_nothing_is_refused_typed(graph: og.Graph) -> None:
    with pytest.raises(TagNotFoundError):
        graph.snapshot(tag="v1")
    with pytest.raises(CommitNotFoundError):
        graph.snapshot(commit="01ARZ3NDEKTSV4RRFFQ69G5FAV")
    with pytest.raises(CommitNotFoundError):
        graph.commit("01ARZ3NDEKTSV4RRFFQ69G5FAV")
    with pytest.raises(InvalidOptionError):
        graph.commit("'; DROP TABLE commits; --")


def test_an_empty_branch_name_is_refused(graph: og.Graph) -> None:
    for use in (graph.snapshot, graph.log, graph.transaction):
        with pytest.raises(OmnigraphError):
            use("")


def test_a_snapshot_stays_as_it_is_while_others_write(graph: og.Graph) -> None:
    add(graph, "Ann")
    snapshot, lazy = graph.snapshot(), graph.snapshot()
    other = og.open(graph.root)
    add(other, "Bob")
    with other.transaction() as tx:
        tx.append("Knows", [{"src": "Ann", "dst": "Bob"}])
    other.branches.create("x")
    for seen in (snapshot, lazy):
        assert (people(seen), seen.count("Person"), seen.count("Knows")) == (["Ann"], 1, 0)
    assert graph.snapshot().count("Knows") == 1


# -- rows ---------------------------------------------------------------------------------------------

ODD_IDS = [
    "it's",
    'a "quoted" one',
    "x' OR '1'='1",
    "'; DROP TABLE Person; --",
    "naïve ☃ 𝄞",
    "a\x00b",
    "line\nbreak",
    "%",
    "_",
    "\\",
    " ",
    "NULL",
    '["a",1]',
    "x" * 4_096,
]


def test_an_entity_is_exactly_the_row_of_that_id_whatever_the_id_is_made_of(graph: og.Graph) -> None:
    add(graph, *ODD_IDS)
    snapshot = graph.snapshot()
    for name in ODD_IDS:
        assert snapshot.entity("Person", name) == {"id": name, "name": name, "age": len(name)}
    for missing in ("", "a", "x' OR 1=1 --", "it''s", "X" * 4_096):
        assert snapshot.entity("Person", missing) is None
    assert snapshot.entity("Knows", "anything") is None


def test_rows_are_counted_filtered_projected_and_limited(graph: og.Graph) -> None:
    add(graph, "A", "Bo", "Cid", "Dora")
    snapshot = graph.snapshot()
    assert snapshot.count("Person") == snapshot.count("node:Person") == 4
    assert snapshot.count("Person", where="age > 2") == 2
    found = snapshot.read("Person", columns=["age", "name"], where="name = 'Cid'")
    assert (found.schema.names, found.to_pylist()) == (["age", "name"], [{"age": 3, "name": "Cid"}])
    assert [snapshot.read("Person", limit=n).num_rows for n in (0, 1, 3, 99)] == [0, 1, 3, 4]
    assert snapshot.scan("Person").read_all() == snapshot.read("Person")


def test_a_blob_comes_back_as_its_bytes(graph: og.Graph) -> None:
    bodies = [b"\x00\xff" * 1_000, b"", None]
    with graph.transaction() as tx:
        tx.append("Note", [{"id": str(n), "text": "t", "data": body} for n, body in enumerate(bodies)])
    snapshot = graph.snapshot()
    assert [snapshot.entity("Note", str(n)) for n in (0, 2)] == [
        {"id": "0", "text": "t", "data": bodies[0]},
        {"id": "2", "text": "t", "data": None},
    ]
    assert snapshot.read("Note", columns=["data"], where="id = '0'").to_pylist() == [{"data": bodies[0]}]


def test_an_empty_table_reads_as_no_rows_with_its_columns(graph: og.Graph) -> None:
    snapshot = graph.snapshot()
    assert [str(key) for key in snapshot.tables] == ["node:Person", "node:Note", "edge:Knows"]
    assert snapshot.count("Knows") == 0
    assert snapshot.count("Knows", where="src = 'x'") == 0
    assert snapshot.read("Knows").schema.names == ["id", "src", "dst", "since"]
    assert snapshot.read("Knows", columns=["since"]).schema.names == ["since"]
    assert snapshot.to_dict()["tables"] == {"node:Person": 0, "node:Note": 0, "edge:Knows": 0}


def test_an_unknown_type_is_refused_with_the_nearest_name(graph: og.Graph) -> None:
    for wrong in ("Persn", "node:Persn"):
        with pytest.raises(TypeNotFoundError, match="did you mean 'Person'"):
            graph.snapshot().read(wrong)
    with pytest.raises(TypeNotFoundError, match="'Person' is 'node:Person'"):
        graph.snapshot().read("edge:Person")


BAD_READS = [
    {"columns": ["nam"]},
    {"columns": ["name", "name"]},
    {"where": "agee > 1"},
    {"where": "age >"},
    {"where": "age = 'x'"},
    {"where": "age"},
    {"where": ""},
    {"where": "age = 1 OR " * 10_000 + "age = 1"},
    {"limit": -1},
]


@pytest.mark.parametrize("bad", BAD_READS, ids=lambda bad: str(bad)[:40])
def test_a_read_that_makes_no_sense_is_refused_typed(graph: og.Graph, bad: dict[str, Any]) -> None:
    add(graph, "Ann")
    with pytest.raises(InvalidOptionError) as refused:
        graph.snapshot().read("Person", **bad)
    assert len(str(refused.value)) < 1_000
    assert ".rs" not in str(refused.value)


def test_a_filter_long_enough_to_kill_the_process_is_refused_for_counts_too(graph: og.Graph) -> None:
    add(graph, "Ann")
    with pytest.raises(InvalidOptionError, match="at most 65536"):
        graph.snapshot().count("Person", where="age = 1 OR " * 10_000 + "age = 1")


def test_an_unknown_column_is_refused_with_a_hint(graph: og.Graph) -> None:
    add(graph, "Ann")
    with pytest.raises(InvalidOptionError, match=r"(?i)did you mean 'name'"):
        graph.snapshot().read("Person", columns=["nmae"])


def test_an_unknown_column_of_an_empty_table_is_refused_with_a_hint_too(graph: og.Graph) -> None:
    with pytest.raises(InvalidOptionError, match="no column 'nmae'; there are id, name, age; did you mean 'name'"):
        graph.snapshot().read("Person", columns=["nmae"])
    with pytest.raises(InvalidOptionError, match="no column 'zzz'; there are id, name, age"):
        graph.snapshot().read("Person", columns=["zzz"])


@pytest.mark.parametrize("where", ["1 / (age - 3) = 1", "CAST(name AS INT) = 1"])
def test_a_filter_that_fails_on_a_row_is_an_error_of_ours(graph: og.Graph, where: str) -> None:
    add(graph, "Ann")
    with pytest.raises(OmnigraphError):
        graph.snapshot().read("Person", where=where)


@pytest.mark.parametrize("where", ["age", "agee > 1", "age >"])
def test_a_bad_filter_is_the_callers_fault_when_counting_too(graph: og.Graph, where: str) -> None:
    add(graph, "Ann")
    with pytest.raises(InvalidOptionError):
        graph.snapshot().count("Person", where=where)


def test_a_bad_filter_is_refused_on_an_empty_table_too(graph: og.Graph) -> None:
    with pytest.raises(InvalidOptionError):
        graph.snapshot().count("Person", where="agee >")


# -- history ------------------------------------------------------------------------------------------


def test_every_publish_of_data_is_one_commit_with_all_its_facts(graph: og.Graph) -> None:
    before = graph.refresh()
    with graph.transaction(message="hello", actor="bob") as tx:
        tx.append("Person", [{"name": "Ann"}])
    made = graph.refresh()
    assert (made.id, made.branch, made.version, made.parents) == (tx.receipt.commit, "main", 2, (before.id,))
    assert (made.actor, made.operation, made.message) == ("bob", "append", "hello")
    assert set(made.metrics) == {"node:Person"}
    counts = dict(made.metrics["node:Person"])
    assert counts.pop("bytes") > 0
    assert counts == {"rows_inserted": 1, "rows_updated": 0, "rows_unchanged": 0, "rows_deleted": 0, "files": 1}
    assert before.created_at < made.created_at <= datetime.now(UTC)
    assert graph.log() == [made, before]


def test_the_log_is_newest_first_limited_and_filtered_by_actor(graph: og.Graph) -> None:
    for number in range(25):
        add(graph, f"p{number}", actor="bob" if number % 5 == 0 else None)
    assert [c.version for c in graph.log()] == list(range(26, 6, -1))
    assert [c.version for c in graph.log(limit=3)] == [26, 25, 24]
    assert [c.version for c in graph.log(limit=None)] == list(range(26, 0, -1))
    assert [c.version for c in graph.log(actor="bob", limit=2)] == [22, 17]
    assert graph.log(actor="nobody") == graph.log(limit=0) == []
    for limit in (-1, 1_000_001):
        with pytest.raises(InvalidOptionError, match="limit"):
            graph.log(limit=limit)


def test_a_commit_of_a_deleted_branch_is_still_found_and_read(graph: og.Graph) -> None:
    graph.branches.create("review")
    made = add(graph, "Ann", branch="review")
    graph.branches.delete("review")
    assert graph.commit(made.id) == made
    assert people(graph.snapshot(commit=made.id)) == ["Ann"]


def test_restore_is_a_new_commit_that_brings_rows_back_and_keeps_history(graph: og.Graph) -> None:
    two = add(graph, "Ann")
    add(graph, "Bob")
    with graph.transaction() as tx:
        tx.append("Knows", [{"src": "Ann", "dst": "Bob"}])
    made = graph.restore("main", to=two.id)
    assert (made.version, made.operation, made.pins) == (5, "restore", two.pins)
    assert (people(graph.snapshot()), graph.snapshot().count("Knows")) == (["Ann"], 0)
    assert [c.version for c in graph.log()] == [5, 4, 3, 2, 1]
    assert people(graph.snapshot(version=4)) == ["Ann", "Bob"]
    assert add(graph, "Bob").version == 6, "what was taken away may be added again"
    graph.tags.create("full", at=graph.snapshot(version=4).commit.id)
    assert people(graph.snapshot(commit=graph.restore("main", to="full").id)) == ["Ann", "Bob"]
    assert graph.restore("main", to=two).pins == two.pins


SMALL = {
    "omnigraph.rules.folding.TAIL_ROWS_MAX": 4,
    "omnigraph.rules.folding.FAN": 3,
    "omnigraph.storage.manifest.ROWS_READ_WHOLE_MAX": 8,
}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SMALL.items():
        monkeypatch.setattr(name, value)


@pytest.mark.usefixtures("small")
def test_history_longer_than_several_folds_is_found_by_every_way(tmp_path: Path) -> None:
    clock = Sources(now=Clock())
    graph = create_graph(tmp_path / "g", SCHEMA, storage_options=None, actor="ann", sources=clock)
    graph.branches.create("side")
    chains: dict[str, list[Any]] = {"main": [graph.refresh()], "side": [graph.refresh()]}
    for number in range(54):
        branch = "side" if number % 3 == 0 else "main"
        chains[branch].append(bare_commit(graph, branch, message=str(number)))
    fresh = open_graph(tmp_path / "g", storage_options=None, actor=None, read_only=True, sources=clock)
    spans = session_of(fresh).publisher.read().state.commit_spans
    assert len({span.tier for span in spans}) >= 3, "the test means to read files of several sizes"
    for branch, chain in chains.items():
        assert fresh.log(branch, limit=None) == chain[::-1]
        for commit in chain:
            assert fresh.commit(commit.id) == commit
            assert fresh.snapshot(branch, version=commit.version).commit == commit
            assert fresh.snapshot(branch, timestamp=commit.created_at).commit == commit
            if commit.version > 1:
                just_before = commit.created_at - timedelta(microseconds=1)
                assert fresh.snapshot(branch, timestamp=just_before).version == commit.version - 1


def test_a_pinned_version_that_is_gone_is_a_storage_error_not_an_empty_table(graph: og.Graph, tmp_path: Path) -> None:
    add(graph, "Ann")
    copy = tmp_path / "copy"  # this process has seen the version at its first place, and versions never change
    places.copy(graph.root, copy)
    for file in list(places.place(copy).glob("nodes/*/_versions/d*.manifest")):
        file.unlink()
    with pytest.raises(StorageError):
        og.open(copy).snapshot().read("Person")
    with pytest.raises(StorageError):
        og.open(copy).snapshot().entity("Person", "Ann")
