"""Many keys are looked up in shares: every row is found, and once."""

import lance
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from omnigraph.storage import lance_shares
from omnigraph.storage.lance_rows import looked_up
from omnigraph.storage.lance_shares import each_share
from omnigraph.storage.lance_texts import count_where, rows_where
from omnigraph.storage.sought import Sought

ROWS = 20_000


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> lance.LanceDataset:
    ids = [f"é-{number}" for number in range(ROWS)]
    rows = pa.table({"id": ids, "number": range(ROWS)})
    made = lance.write_dataset(rows, tmp_path_factory.mktemp("t") / "t", enable_stable_row_ids=True)
    made.create_scalar_index("id", "BTREE")
    return made


@pytest.fixture(autouse=True)
def small_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lance_shares, "SHARE_KEYS_MIN", 4)
    monkeypatch.setattr(lance_shares, "LOOKUPS_AT_ONCE", 3)


def keys(*numbers: int) -> "pa.StringArray":
    return pa.array([f"é-{number}" for number in numbers])


def texts(found: pa.Table, column: str) -> list[str]:
    return sorted(map(str, found.column(column).to_pylist()))


@pytest.mark.parametrize("count", [1, 4, 5, 12, 13, 37])
def test_all_rows_are_found_by_any_number_of_keys(table: lance.LanceDataset, count: int) -> None:
    numbers = [number * 37 % ROWS for number in range(count)]
    wanted = keys(*numbers, *range(ROWS, ROWS + 3))
    assert texts(looked_up(table, wanted), "id") == sorted(f"é-{number}" for number in numbers)
    assert texts(rows_where(table, "id", wanted, ["number"]), "number") == sorted(map(str, numbers))
    assert count_where(table, "id", Sought(wanted)) == count


def test_a_key_that_is_given_often_finds_its_row_once(table: lance.LanceDataset) -> None:
    wanted = keys(*([7] * 30), 8)
    assert texts(looked_up(table, wanted), "id") == ["é-7", "é-8"]
    assert count_where(table, "id", Sought(wanted)) == 2


def test_neighbours_are_looked_up_together() -> None:
    shares = each_share("id", pa.chunked_array([keys(5, 1, 9, 3), keys(7, 2, 8, 4)]), lambda few: str(few))
    assert len(shares) == 2
    assert "é-1" in shares[0]
    assert "é-9" in shares[1]


def test_what_goes_wrong_in_a_share_is_raised(table: lance.LanceDataset) -> None:
    def look(few: pc.Expression) -> int:
        raise OSError("no")

    with pytest.raises(OSError, match="no"):
        each_share("id", keys(*range(40)), look)
