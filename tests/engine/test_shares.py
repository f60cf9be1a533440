"""Reading a table in shares: every row once, about equal sizes, one version whatever happens meanwhile."""

import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import omnigraph as og
from omnigraph.engine.shares import (
    SHARE_BYTES_MAX,
    SHARE_BYTES_MIN,
    Share,
    balanced,
    enough_for,
    part_read,
    rows_at_once,
    shares_wanted,
)
from omnigraph.errors import InvalidOptionError
from omnigraph.storage.lance_door import FragmentSize
from omnigraph.testing.places import place


def sized(*sizes: int) -> list[FragmentSize]:
    return [FragmentSize(number=number, rows=10, bytes=size) for number, size in enumerate(sizes)]


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    graph = og.init(tmp_path / "g", "node Person { name: String @key  age: I32 }")
    for part in range(4):
        with graph.transaction() as tx:
            rows = [{"name": f"{part}-{number:06}" + "x" * 100, "age": number} for number in range(10_000)]
            tx.append("Person", rows)
    return graph


def names(shares: tuple[Share, ...]) -> list[str]:
    travelled = [pickle.loads(pickle.dumps(share)) for share in shares]
    return [name for share in travelled for batch in share.batches() for name in batch.column("name").to_pylist()]


def test_shares_have_every_row_once_and_stay_at_their_version(graph: og.Graph) -> None:
    shares = graph.snapshot().shares("Person", columns=["age", "name"], parallelism=2)
    assert len(shares) == 2
    with graph.transaction() as tx:
        tx.delete("Person", "true")
    found = names(shares)
    assert (len(found), len(set(found))) == (40_000, 40_000)
    assert next(shares[0].batches()).schema.names == ["age", "name"]


def test_a_filter_and_a_limit_reach_every_share(graph: og.Graph) -> None:
    snapshot = graph.snapshot()
    assert len(names(snapshot.shares("Person", columns=["name"], where="age < 5", parallelism=4))) == 20
    few = snapshot.shares("Person", columns=["name"], limit=7, parallelism=4)
    assert (len(few), len(names(few))) == (1, 7)


def test_a_read_that_was_pinned_is_planned_without_a_look_at_the_manifest(graph: og.Graph) -> None:
    at = pickle.loads(pickle.dumps(graph.snapshot().table_at("Person")))
    (place(graph.root) / "__manifest").rename(place(graph.root) / "elsewhere")
    assert len(names(at.shares(columns=["name"], where="age < 5", parallelism=4))) == 20
    with pytest.raises(og.OmnigraphError):
        og.open(graph.root, read_only=True)


def test_a_type_without_rows_has_no_shares_and_mistakes_are_told_all_the_same(tmp_path: Path, graph: og.Graph) -> None:
    empty = og.init(tmp_path / "empty", "node Person { name: String @key  age: I32 }").snapshot()
    assert empty.shares("Person") == ()
    for snapshot in (empty, graph.snapshot()):
        with pytest.raises(InvalidOptionError, match="agee"):
            snapshot.shares("Person", where="agee > 1")
        with pytest.raises(InvalidOptionError, match="has no column"):
            snapshot.shares("Person", columns=["nmae"])


@given(st.lists(st.integers(0, 2**40), max_size=40), st.integers(1, 10))
def test_dealing_gives_every_fragment_to_one_and_no_one_much_more_than_another(sizes: list[int], wanted: int) -> None:
    fragments = sized(*sizes)
    groups = balanced(fragments, wanted)
    assert sorted(number for group in groups for number in group) == list(range(len(sizes)))
    assert len(groups) == min(wanted, len(sizes))
    loads = [sum(max(sizes[number], 80) for number in group) for group in groups]
    if loads:
        assert max(loads) - min(loads) <= max(max(sizes), 80)


def test_rows_are_read_in_large_batches_unless_they_are_large() -> None:
    small, middling, large = (FragmentSize(number=0, rows=1_000, bytes=1_000 * each) for each in (8, 2_000, 2**24))
    assert rows_at_once([small]) > 100_000
    assert rows_at_once([small]) > rows_at_once([small, middling]) > rows_at_once([middling]) > rows_at_once([large])
    assert rows_at_once([large]) > 0
    assert rows_at_once([]) > 0


def test_a_small_table_is_one_share_and_a_large_one_has_as_many_as_it_needs() -> None:
    assert shares_wanted(sized(1_000, 1_000), 8) == 1
    assert shares_wanted(sized(*[SHARE_BYTES_MIN] * 8), 4) == 4
    assert shares_wanted(sized(*[SHARE_BYTES_MAX] * 8), 4) == 8
    assert shares_wanted(sized(*[SHARE_BYTES_MAX] * 9), 4) == 12, "a whole number of rounds"
    assert shares_wanted([], 4) == 0


def test_a_read_of_few_columns_or_of_rows_that_a_filter_keeps_has_fewer_shares() -> None:
    table = sized(*[SHARE_BYTES_MAX] * 16)
    assert shares_wanted(table, 4) == 16
    assert shares_wanted(table, 4, part_read(2, 8, is_filtered=False)) == 4
    assert shares_wanted(table, 4, part_read(8, 8, is_filtered=True)) == 4
    assert shares_wanted(table, 4, part_read(0, 8, is_filtered=True)) == 4, "never fewer than can work at once"
    assert shares_wanted(table * 16, 4, part_read(0, 8, is_filtered=True)) == 8, "a guess is not trusted far"


def test_a_table_without_rows_has_no_shares() -> None:
    assert balanced([], 1) == []


def test_a_limit_needs_only_the_first_fragments() -> None:
    fragments = sized(1, 1, 1)
    assert [len(enough_for(fragments, limit)) for limit in (None, 0, 10, 11, 99)] == [3, 1, 1, 2, 3]
