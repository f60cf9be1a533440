"""Many rows that lie in memory are written side by side, and nobody can tell but by the time it takes."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.engine import row_staging
from omnigraph.engine.graph import Graph
from omnigraph.errors import ConstraintError, InvalidDataError
from omnigraph.storage.lance_written import LIMITS
from omnigraph.testing.places import place

ROWS = 2 * LIMITS.rows_per_file + 1_000
"""Three files, the last of them small."""
SCHEMA = "node Item { name: String @key  size: I32  @range(size, 0..9) }"


@pytest.fixture(autouse=True)
def four_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_staging, "cores", lambda: 4)


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return og.init(tmp_path / "g.omni", SCHEMA)


def items(rows: int = ROWS) -> pa.Table:
    numbers = np.arange(rows, dtype=np.int64)
    return pa.table({"name": pa.array(numbers).cast(pa.string()), "size": (numbers % 10).astype(np.int32)})


@pytest.mark.parametrize("verb", ["append", "overwrite"])
@pytest.mark.parametrize("cores", [2, 3, 4])
def test_rows_in_shares_keep_their_order_and_fill_a_file_each_at_least(
    graph: Graph, verb: str, cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_staging, "cores", lambda: cores)
    with graph.transaction() as tx:
        getattr(tx, verb)("Item", items())
    snapshot = graph.snapshot()
    assert snapshot.read("Item").column("name").combine_chunks().equals(items().column("name").combine_chunks())
    files = sorted(each.stat().st_size for each in place(graph.root).glob("nodes/*/data/*.lance"))
    assert len(files) == max(3, cores)
    assert tx.receipt.tables["node:Item"].rows_inserted == ROWS


def test_a_row_that_is_in_two_shares_is_refused(graph: Graph) -> None:
    twice = pa.concat_tables([items(), items(1)])
    with pytest.raises(InvalidDataError, match="more than once"), graph.transaction() as tx:
        tx.append("Item", twice)
    assert graph.snapshot().count("Item") == 0


def test_rows_that_break_a_rule_are_counted_over_all_shares_and_shown_in_their_order(graph: Graph) -> None:
    size = np.zeros(ROWS, np.int32)
    bad = [5, 6, LIMITS.rows_per_file + 7, ROWS - 1]
    size[bad] = 99
    with pytest.raises(ConstraintError) as refused, graph.transaction() as tx:
        tx.append("Item", items().set_column(1, "size", pa.array(size)))
    (violation,) = refused.value.to_dict()["violations"]
    assert violation["count"] == len(bad)
    assert [row["id"] for row in violation["sample"]] == [str(number) for number in bad]
    assert graph.snapshot().count("Item") == 0


def test_what_can_not_be_taken_in_one_share_is_raised_and_nothing_is_applied(graph: Graph) -> None:
    sizes = pa.chunked_array([items().column("size").combine_chunks().cast(pa.int64())])
    cut = ROWS - 500
    broken = pa.chunked_array([sizes.slice(0, cut).combine_chunks(), pa.nulls(500, pa.int64())])
    told = r"node:Item\.size is required, but 500 rows have none"
    with pytest.raises(InvalidDataError, match=told), graph.transaction() as tx:
        tx.append("Item", items().set_column(1, "size", broken))
    assert graph.snapshot().count("Item") == 0
    with graph.transaction() as tx:
        tx.append("Item", items(3))
    assert graph.snapshot().count("Item") == 3


def test_few_rows_and_streams_are_not_cut() -> None:
    shares = row_staging._shares
    assert not shares(items(10), 100)
    assert shares(items(1_000).to_reader(), 100) == ()
    assert [share.num_rows for share in shares(items(1_001), 100)] == [200, 300, 300, 201]
    assert [share.num_rows for share in shares(items(1_001), 500)] == [500, 500, 1]


def test_rows_of_one_file_are_cut_into_even_shares_if_each_is_worth_a_file() -> None:
    shares, least = row_staging._shares, row_staging.SHARE_ROWS_MIN
    assert not shares(items(2 * least - 1), 2**20)
    assert [share.num_rows for share in shares(items(2 * least), 2**20)] == [least, least]
    assert [share.num_rows for share in shares(items(3 * least + 2), 2**20)] == [least, least + 1, least + 1]
