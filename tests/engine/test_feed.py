"""The change feed of a branch: which rows each commit changed, in which form, and how few files are looked at."""

import pickle
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.engine.cli_kit import run, wide_terminal
from tests.engine.feed_kit import TOLD, fold, of_all, rows_at, told

import omnigraph as og
from omnigraph.cli.output import Exit
from omnigraph.engine import feed_parts
from omnigraph.engine.feed_parts import Comparisons, Insertions
from omnigraph.errors import (
    BranchNotFoundError,
    CommitExpiredError,
    CommitNotFoundError,
    InvalidOptionError,
    TypeNotFoundError,
)
from omnigraph.storage import lance_door

__all__ = ["wide_terminal"]  # a fixture

SCHEMA = """
node Person { name: String @key  age: I32?  bio: String? }
edge Knows: Person -> Person { since: I32? }
"""
EVERYTHING = """
node Thing {
  name: String @key  b: Bool?  i: I32?  l: I64?  u: U32?  ul: U64?  f: F32?  d: F64?  day: Date?  at: DateTime?
  tags: [String]?  way: Vector(2)?  kind: enum(a, b)?  data: Blob?
}
"""


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    """Main: version 2 inserts three people and an edge, 3 updates and inserts, 4 deletes a person and her edge."""
    graph = og.init(tmp_path / "g", SCHEMA, actor="ann")
    with graph.transaction() as tx:
        tx.append("Person", [{"name": name, "age": age} for name, age in (("Ann", 1), ("Ben", 2), ("Cid", 3))])
        tx.append("Knows", [{"id": "k", "src": "Ann", "dst": "Ben", "since": 2000}])
    upsert(graph, {"name": "Ben", "age": 22}, {"name": "Dan", "age": 4})
    with graph.transaction() as tx:
        tx.delete("Person", ids=["Ann"])
    return graph


def upsert(graph: og.Graph, *people: dict[str, Any], branch: str = "main") -> None:
    with graph.transaction(branch) as tx:
        tx.upsert("Person", list(people))


def short(changes: og.Changes, type: str = "Person") -> list[tuple[int, str, str, Any]]:
    rows = told(changes, type)
    value = "since" if type == "Knows" else "age"
    return [(row["_commit_version"], row["_change_type"], row["id"], row[value]) for row in rows]


def test_each_commit_tells_what_it_inserted_updated_and_deleted(graph: og.Graph) -> None:
    changes = graph.changes()
    assert (changes.since, changes.until, [each.version for each in changes.commits]) == (0, 4, [1, 2, 3, 4])
    found = short(changes)
    assert sorted(found[:3]) == [(2, "insert", "Ann", 1), (2, "insert", "Ben", 2), (2, "insert", "Cid", 3)]
    assert sorted(found[3:6]) == [
        (3, "insert", "Dan", 4),
        (3, "update_postimage", "Ben", 22),
        (3, "update_preimage", "Ben", 2),
    ]
    assert found[6:] == [(4, "delete", "Ann", 1)]
    assert short(changes, "Knows") == [(2, "insert", "k", 2000), (4, "delete", "k", 2000)]
    commits = {each.version: each for each in graph.log()}
    for row in told(changes):
        commit = commits[row["_commit_version"]]
        assert (row["_commit_id"], row["_commit_timestamp"]) == (commit.id, commit.created_at)
    assert changes.rows("Person").schema.names == ["id", "name", "age", "bio", *TOLD]


def test_a_range_begins_after_a_version_or_moment_and_ends_with_one(graph: og.Graph) -> None:
    versions = {each.version: each.created_at for each in graph.log()}
    assert {one for one, *_ in short(graph.changes(since=2, until=3))} == {3}
    assert {one for one, *_ in short(graph.changes(since=versions[2], until=versions[3]))} == {3}
    assert {one for one, *_ in short(graph.changes(since=versions[2].isoformat()))} == {3, 4}
    just_before = versions[3] - timedelta(microseconds=1)
    assert {one for one, *_ in short(graph.changes(since=just_before, until=3))} == {3}
    assert graph.changes(since=4).rows("Person").read_all().num_rows == 0
    assert graph.changes(until=versions[1] - timedelta(days=1)).commits == ()
    with pytest.raises(CommitNotFoundError, match="has no version 9; it has 1 to 4"):
        graph.changes(since=9)
    with pytest.raises(CommitNotFoundError, match="has no version 5"):
        graph.changes(until=5)
    with pytest.raises(InvalidOptionError, match="ends after it begins"):
        graph.changes(since=3, until=2)
    with pytest.raises(InvalidOptionError, match="not a time"):
        graph.changes(since="soon")
    for wrong in (-1, True, 1.5):
        with pytest.raises(InvalidOptionError, match="give a version"):
            graph.changes(since=wrong)  # type: ignore[arg-type]  # on purpose


def test_a_feed_of_all_types_has_records_that_load_takes_back(graph: og.Graph, tmp_path: Path) -> None:
    changes = graph.changes()
    every = told(changes, None)
    for type, key in (("Person", "node:Person"), ("Knows", "edge:Knows")):
        wanted = sorted(told(changes, type), key=str)
        assert sorted(of_all(every, key), key=str) == [{**row} for row in wanted]
    lines = [row["row"] for row in every if row["_change_type"] == "insert" and row["_commit_version"] == 2]
    (tmp_path / "back.jsonl").write_text("\n".join(lines), encoding="utf-8")
    other = og.init(tmp_path / "other", SCHEMA)
    other.load(tmp_path / "back.jsonl")
    assert rows_at(other, "Knows", 2) == rows_at(graph, "Knows", 2)


def test_net_changes_tell_what_the_range_amounts_to(graph: og.Graph) -> None:
    upsert(graph, {"name": "Ben", "age": 2}, {"name": "Ann", "age": 1})
    net = graph.changes(since=2, net=True)
    assert short(net) == [(5, "insert", "Dan", 4)]
    assert short(net, "Knows") == [(5, "delete", "k", 2000)]
    assert fold(rows_at(graph, "Person", 2), told(net)) == rows_at(graph, "Person", 5)
    snapshot = graph.changes(net=True)
    assert fold({}, told(snapshot)) == rows_at(graph, "Person", 5)


def test_a_merge_is_told_as_what_it_did_to_the_branch_and_a_restore_as_what_it_took_back(graph: og.Graph) -> None:
    graph.branches.create("review")
    upsert(graph, {"name": "Cid", "age": 33}, {"name": "Eve"}, branch="review")
    upsert(graph, {"name": "Fay"})
    graph.branches.merge("review")
    assert sorted(short(graph.changes(since=5)), key=str) == [
        (6, "insert", "Eve", None),
        (6, "update_postimage", "Cid", 33),
        (6, "update_preimage", "Cid", 3),
    ]
    graph.restore("main", to="main@4")
    assert sorted(short(graph.changes(since=6)), key=str) == [
        (7, "delete", "Eve", None),
        (7, "delete", "Fay", None),
        (7, "update_postimage", "Cid", 3),
        (7, "update_preimage", "Cid", 33),
    ]
    graph.branches.create("fresh", from_="main@2")
    upsert(graph, {"name": "Gus"}, branch="fresh")
    forward = graph.changes("fresh", since=1)
    assert [each.version for each in forward.commits] == [2, 3]
    assert fold({}, told(forward)) == rows_at(graph, "Person", 3, "fresh")


def test_commits_that_only_change_how_rows_are_stored_tell_nothing(graph: og.Graph) -> None:
    graph.ensure_indices()
    assert graph.refresh().version == 5
    assert short(graph.changes(since=4)) == []
    upsert(graph, {"name": "Ben", "age": 22})  # as it is
    assert short(graph.changes(since=4)) == []


def test_a_branch_that_is_gone_or_never_was_is_refused(graph: og.Graph) -> None:
    graph.branches.create("review")
    graph.branches.delete("review")
    with pytest.raises(BranchNotFoundError, match="review"):
        graph.changes("review")
    with pytest.raises(TypeNotFoundError, match="did you mean"):
        graph.changes().rows("Persn")


def test_what_was_before_may_be_gone_if_only_rows_were_added_since(graph: og.Graph) -> None:
    upsert(graph, {"name": "Eve", "age": 5})
    graph.optimize()
    upsert(graph, {"name": "Fay", "age": 6})
    upsert(graph, {"name": "Fay", "age": 66})
    kept = {each.version: each.operation for each in graph.log()}
    graph.cleanup(keep=2)  # the last two, 5 and older are history only
    assert kept[6] == "optimize"
    fay = (7, "insert", "Fay", 6)
    assert short(graph.changes(since=6, until=7)) == [fay]
    assert short(graph.changes(since=5, until=7)) == [fay]  # version 6 only moved rows
    for gone in (4, 3):
        with pytest.raises(CommitExpiredError, match="was cleaned up"):
            short(graph.changes(since=gone, until=7))
    with pytest.raises(CommitExpiredError, match="was cleaned up"):
        short(graph.changes(since=5, until=7, net=True))


def test_values_of_every_type_are_told_as_they_are(tmp_path: Path) -> None:
    graph = og.init(tmp_path / "g", EVERYTHING)
    full = {
        "name": "full",
        "b": True,
        "i": -1,
        "l": 2**40,
        "u": 7,
        "ul": 2**63,
        "f": 1.5,
        "d": float("inf"),
        "day": date(2026, 11, 1),
        "at": datetime(2026, 11, 1, 12, 30, 0, 1, UTC),
        "tags": ["x", None],
        "way": [1.0, 2.0],
        "kind": "a",
        "data": bytes(range(256)),
    }
    with graph.transaction() as tx:
        tx.append("Thing", [full, {"name": "empty", "data": b""}, {"name": "null"}])
    with graph.transaction() as tx:
        tx.upsert("Thing", [{**full, "data": b"other"}, {"name": "empty"}, {"name": "null", "way": [0.0, -0.0]}])
    with graph.transaction() as tx:
        tx.delete("Thing", ids=["full", "null"])
    rows: dict[str, Any] = {}
    for version in range(1, 5):
        rows = fold(rows, told(graph.changes(since=version - 1, until=version), "Thing"))
        assert rows == rows_at(graph, "Thing", version)
    assert fold({}, told(graph.changes(), "Thing")) == rows
    lines = told(graph.changes(), None)
    assert len(lines) == len(told(graph.changes(), "Thing"))


def test_commits_that_only_insert_are_read_from_the_last_of_their_versions_alone(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = graph.refresh().version
    for number in range(20):
        upsert(graph, {"name": f"p{number}", "age": number}, {"name": f"q{number}", "age": number})
    changes = graph.changes(since=first)
    (part,) = changes.parts("Person")
    assert isinstance(part, Insertions)
    opened = versions_opened(monkeypatch)
    found = short(changes)
    assert [(version, age) for version, _, _, age in found] == [(first + 1 + n // 2, n // 2) for n in range(40)]
    assert len(opened) == 1
    upsert(graph, {"name": "p3", "age": 333}, {"name": "new"})
    upsert(graph, {"name": "last"})
    kinds = [type(part) for part in graph.changes(since=first).parts("Person")]
    assert kinds == [Insertions, Comparisons]
    rows = fold(rows_at(graph, "Person", first), told(graph.changes(since=first)))
    assert rows == rows_at(graph, "Person", graph.refresh().version)


def versions_opened(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """Note which versions of tables are opened."""
    opened: set[int] = set()
    at = lance_door.VERSIONS.at

    def watched(uri: str, version: int, options: Any) -> Any:
        opened.add(version)
        return at(uri, version, options)

    monkeypatch.setattr(lance_door.VERSIONS, "at", watched)
    return opened


def populated(graph: og.Graph, count: int) -> int:
    with graph.transaction() as tx:
        tx.append("Person", [{"name": f"p{number}", "age": 0} for number in range(count)])
    return graph.refresh().version


def test_commits_that_put_different_rows_are_told_from_two_versions(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = populated(graph, 200)
    for number in range(40):
        upsert(graph, *({"name": f"p{number * 5 + n}", "age": number + 1} for n in range(3)), {"name": f"new{number}"})
        if number % 3 == 0:
            upsert(graph, {"name": f"only new{number}"})
    changes = graph.changes(since=first)
    opened = versions_opened(monkeypatch)
    found = short(changes)
    assert len(opened) == 2, "the one before, and the last"
    assert [version for version, *_ in found] == sorted(version for version, *_ in found)
    by_commit = [row for row in found if row[0] == first + 1]
    assert [row[1] for row in by_commit] == ["update_preimage"] * 3 + ["update_postimage"] * 3 + ["insert"]
    assert [(row[2], row[3]) for row in by_commit[:3]] == [("p0", 0), ("p1", 0), ("p2", 0)]
    rows = fold(rows_at(graph, "Person", first), told(changes))
    assert rows == rows_at(graph, "Person", graph.refresh().version)


@pytest.mark.parametrize("again", [1, 2, 7, 40])
def test_rows_that_were_put_again_are_told_each_time(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch, again: int
) -> None:
    first = populated(graph, 60)
    for number in range(40):
        upsert(graph, {"name": f"p{number % again}", "age": number + 1}, {"name": f"p{number + 20}", "age": number % 3})
    found = short(graph.changes(since=first))
    monkeypatch.setattr(feed_parts, "runs_of", lambda steps: [[step] for step in steps])
    assert sorted(found) == sorted(short(graph.changes(since=first)))
    rows = fold(rows_at(graph, "Person", first), told(graph.changes(since=first)))
    assert rows == rows_at(graph, "Person", graph.refresh().version)


def test_a_row_that_was_changed_and_changed_back_is_told_twice(graph: og.Graph) -> None:
    first = populated(graph, 3)
    for age in (1, 0):
        upsert(graph, {"name": "p1", "age": age})
    kinds = ["update_preimage", "update_postimage"]
    assert short(graph.changes(since=first)) == [
        (first + 1, kinds[0], "p1", 0),
        (first + 1, kinds[1], "p1", 1),
        (first + 2, kinds[0], "p1", 1),
        (first + 2, kinds[1], "p1", 0),
    ]


def test_commits_that_put_a_table_anew_that_has_no_rows_tell_nothing(graph: og.Graph) -> None:
    with graph.transaction() as tx:
        tx.overwrite("Person", [])
    first = graph.refresh().version
    for _ in range(3):
        with graph.transaction() as tx:
            tx.overwrite("Person", [])
    assert graph.refresh().version == first + 3
    assert short(graph.changes(since=first)) == []
    upsert(graph, {"name": "p", "age": 1})
    assert short(graph.changes(since=first)) == [(first + 4, "insert", "p", 1)]


def test_parts_can_be_pickled_and_are_dealt_out_to_several_readers(graph: og.Graph) -> None:
    rows = pa.table({"name": [f"p{n}" for n in range(40_000)], "age": pa.array(range(40_000), pa.int32())})
    for start in range(0, 40_000, 10_000):
        with graph.transaction() as tx:
            tx.append("Person", rows.slice(start, 10_000))
    changes = graph.changes(since=4)
    parts = changes.parts("Person", parallelism=4)
    assert len(parts) >= 3
    read = [batch for part in parts for batch in pickle.loads(pickle.dumps(part)).batches()]
    assert pa.Table.from_batches(read).sort_by("id").equals(changes.rows("Person").read_all().sort_by("id"))


# -- on the command line --------------------------------------------------------------------------------------


def test_the_command_shows_rows_of_one_type_and_of_all(graph: og.Graph) -> None:
    lines = run("changes", graph.root, "--type", "Person", "--since", "3").out.splitlines()
    assert lines[0].split() == ["version", "change", "table", "id", "row"]
    assert lines[1].split()[:3] == ["4", "delete", "Ann"]
    facts = run("changes", graph.root, "--since", "3", "--json").json
    assert (facts["since"], facts["until"], len(facts["commits"])) == (3, 4, 1)
    assert {row["table_key"] for row in facts["rows"]} == {"node:Person", "edge:Knows"}
    assert len(run("changes", graph.root, "--limit", "2", "--json").json["rows"]) == 2
    net = run("changes", graph.root, "--net", "--since", "2", "--type", "Knows", "--branch", "main", "--json").json
    assert [row["_change_type"] for row in net["rows"]] == ["delete"]
    moment = graph.commit(graph.refresh().id).created_at.isoformat()
    assert run("changes", graph.root, "--since-time", moment).out.strip() == "nothing changed"
    assert run("changes", graph.root, "--until", "1", "--json").json["rows"] == []
    said = run("changes", graph.root, "--until", "1", "--until-time", moment, expect=Exit.USAGE)
    assert "choose one" in said.err
    assert run("changes", graph.root, "--branch", "no", expect=Exit.NOT_FOUND).code == Exit.NOT_FOUND
