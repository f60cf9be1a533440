"""Many small commits leave few small files: what was written one by one becomes one file on the way."""

import threading
from pathlib import Path

import lance
import pytest
from tests.engine.upkeep_kit import aged
from tests.plain_tables import plain

import omnigraph as og
from omnigraph.engine.graph import Graph
from omnigraph.engine.snapshot import Snapshot
from omnigraph.errors import InvalidDataError, StorageError
from omnigraph.rules.rollups import FAN, LOOK_EVERY, TIERS, is_due, rolled_up
from omnigraph.storage import lance_rollups
from omnigraph.testing.places import place

SCHEMA = """
node Person { name: String @key  age: I32? }
node Picture { name: String @key  bytes: Blob }
"""
MANY = 3 * FAN


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return og.init(tmp_path / "g.omni", SCHEMA)


def write(graph: Graph, count: int, start: int = 0, *, verb: str = "append", branch: str = "main") -> None:
    for number in range(start, start + count):
        with graph.transaction(branch) as tx:
            getattr(tx, verb)("Person", [{"name": f"p{number}", "age": number}])


def dataset(graph: Graph, type: str = "Person") -> lance.LanceDataset:
    snapshot = graph.snapshot()
    kind = snapshot.catalog.table_type(type)
    pin = snapshot.commit.pins[kind.table_id]
    return plain(graph.root, f"nodes/{kind.table_id}", pin.lance_version)


def fragments(graph: Graph, type: str = "Person") -> list[int]:
    return [each.count_rows() for each in dataset(graph, type).get_fragments()]


def names(snapshot: Snapshot) -> list[str]:
    return [str(name) for name in snapshot.read("Person").column("name").to_pylist()]


# -- the rule -------------------------------------------------------------------------------------------


def test_nothing_is_rolled_up_before_there_are_many() -> None:
    assert rolled_up([]) == 0
    assert rolled_up([1] * (FAN - 1)) == 0
    assert rolled_up([1] * FAN) == FAN
    assert rolled_up([TIERS[0]] * (FAN - 1) + [1] * (FAN - 1)) == 0


def test_those_of_one_tier_take_along_what_is_smaller_and_after_them() -> None:
    assert rolled_up([TIERS[1], *[1] * FAN]) == FAN
    assert rolled_up([TIERS[1], *[TIERS[0]] * FAN, 1, 1]) == FAN + 2
    assert rolled_up([*[TIERS[0]] * FAN, TIERS[1]]) == 0
    assert rolled_up([1, TIERS[0]] * FAN) == 2 * FAN


def test_a_row_is_written_anew_once_a_tier_and_small_files_stay_few() -> None:
    sizes: list[int] = []
    written = most = 0
    for _ in range(5_000):
        count = rolled_up(sizes) if is_due(len(sizes), 1) else 0
        if count:
            written += sum(sizes[-count:])
            sizes[-count:] = [sum(sizes[-count:])]
        sizes.append(1)
        most = max(most, len(sizes))
    assert written <= 5_000 * (len(TIERS) + 1)
    assert most <= (FAN + LOOK_EVERY) * (len(TIERS) + 1)


@pytest.mark.parametrize("added", [1, 3, LOOK_EVERY, 5 * LOOK_EVERY])
def test_however_many_fragments_a_commit_adds_the_end_is_looked_at_in_time(added: int) -> None:
    missed, fragments = 0, FAN
    while not is_due(fragments, added):
        fragments += added
        missed += added
    assert missed < LOOK_EVERY


# -- tables ---------------------------------------------------------------------------------------------


def test_many_small_commits_leave_few_files_and_every_row_in_its_place(graph: Graph) -> None:
    write(graph, MANY)
    assert len(fragments(graph)) < FAN + LOOK_EVERY
    assert names(graph.snapshot()) == [f"p{number}" for number in range(MANY)]
    assert graph.snapshot().count("Person") == MANY
    report = graph.verify(deep=True)
    assert report.is_sound, report.to_dict()


def test_every_commit_on_the_way_reads_as_it_did(graph: Graph) -> None:
    write(graph, MANY)
    for version in range(1, MANY + 2):
        assert names(graph.snapshot(version=version)) == [f"p{number}" for number in range(version - 1)]


def test_row_ids_stay_what_they_were(graph: Graph) -> None:
    write(graph, FAN - 1)
    before = dataset(graph).scanner(["name"], with_row_id=True).to_table().to_pylist()
    write(graph, 2 * FAN, FAN - 1)
    assert len(fragments(graph)) < FAN + LOOK_EVERY
    after = dataset(graph).scanner(["name"], with_row_id=True).to_table().to_pylist()
    assert after[: len(before)] == before
    assert len({row["_rowid"] for row in after}) == len(after)


def test_ids_that_were_rolled_up_are_still_there_to_be_met(graph: Graph) -> None:
    write(graph, MANY)
    for number in (0, FAN, MANY - 1):
        with pytest.raises(InvalidDataError, match="exist already"), graph.transaction() as tx:
            tx.append("Person", [{"name": f"p{number}"}])
    fresh = og.open(graph.root)
    with pytest.raises(InvalidDataError, match="exist already"), fresh.transaction() as tx:
        tx.append("Person", [{"name": "p1"}])


def test_upserts_are_rolled_up_too_and_what_they_replace_is_gone(graph: Graph) -> None:
    write(graph, FAN)
    write(graph, MANY, verb="upsert")
    for number in range(MANY):
        with graph.transaction() as tx:
            tx.upsert("Person", [{"name": f"p{number}", "age": -number}])
    found = {row["name"]: row["age"] for row in graph.snapshot().read("Person").to_pylist()}
    assert found == {f"p{number}": -number for number in range(MANY)}
    assert len(fragments(graph)) < 2 * (FAN + LOOK_EVERY)
    assert graph.verify(deep=True).is_sound


def test_a_feed_over_what_was_rolled_up_tells_each_commit_its_rows(graph: Graph) -> None:
    write(graph, MANY)
    told = graph.changes(since=1).rows("Person").read_all().select(["name", "_commit_version"]).to_pylist()
    assert told == [{"name": f"p{number}", "_commit_version": number + 2} for number in range(MANY)]
    part = graph.changes(since=5, until=MANY - 2).rows("Person").read_all()
    assert part.column("name").to_pylist() == [f"p{number}" for number in range(4, MANY - 3)]
    parts = graph.changes(since=3).parts("Person", parallelism=8)
    rows = [row for each in parts for batch in each.batches() for row in batch.column("name").to_pylist()]
    assert rows == [f"p{number}" for number in range(2, MANY)]


def test_what_branches_share_is_rolled_up_by_each_for_itself(graph: Graph) -> None:
    write(graph, FAN + 2)
    graph.branches.create("side")
    write(graph, MANY, 1_000, branch="side")
    write(graph, MANY, 2_000)
    shared = [f"p{number}" for number in range(FAN + 2)]
    assert names(graph.snapshot("side")) == shared + [f"p{1_000 + number}" for number in range(MANY)]
    assert names(graph.snapshot()) == shared + [f"p{2_000 + number}" for number in range(MANY)]
    assert {key: each.inserted for key, each in graph.diff("main", "side").tables.items()} == {"node:Person": MANY}
    graph.branches.merge("side")
    assert sorted(names(graph.snapshot())) == sorted({*names(graph.snapshot("side")), *names(graph.snapshot())})
    assert graph.snapshot().count("Person") == FAN + 2 + 2 * MANY


def test_indexed_fragments_are_left_to_optimize_and_blobs_too(graph: Graph) -> None:
    write(graph, FAN - 1)
    graph.ensure_indices()
    write(graph, FAN + LOOK_EVERY, FAN - 1)
    sizes = fragments(graph)
    assert sizes[: FAN - 1] == [1] * (FAN - 1)
    assert max(sizes) > 1
    for number in range(FAN + LOOK_EVERY):
        with graph.transaction() as tx:
            tx.append("Picture", [{"name": f"p{number}", "bytes": b"x"}])
    assert fragments(graph, "Picture") == [1] * (FAN + LOOK_EVERY)
    graph.optimize()
    assert len(fragments(graph)) == 1


def test_what_a_rollup_leaves_behind_goes_with_a_cleanup(graph: Graph) -> None:
    write(graph, MANY)
    aged(graph.root)
    graph.cleanup(keep=1)
    kind = graph.snapshot().catalog.table_type("Person")
    data = list((place(graph.root) / "nodes" / kind.table_id / "data").glob("*.lance"))
    assert len(data) == len(fragments(graph))
    assert names(graph.snapshot()) == [f"p{number}" for number in range(MANY)]


def test_a_rollup_that_can_not_be_done_is_no_reason_not_to_write(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> None:
        raise StorageError("no space left")

    monkeypatch.setattr(lance_rollups, "_rolled_up", refuse)
    write(graph, MANY)
    assert fragments(graph) == [1] * MANY
    assert "no space left; the write goes on without" in caplog.text


def test_writers_at_once_roll_up_and_lose_nothing(graph: Graph) -> None:
    def many(thread: int) -> None:
        own = og.open(graph.root)
        write(own, MANY, thread * 1_000)

    threads = [threading.Thread(target=many, args=(thread,)) for thread in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert sorted(names(graph.snapshot())) == sorted(f"p{t * 1_000 + n}" for t in range(4) for n in range(MANY))
    assert len(fragments(graph)) < 3 * FAN
    assert graph.verify(deep=True).is_sound
