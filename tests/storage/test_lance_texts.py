"""Rows are found by a text: by an index, by a scan, and without opening small files that are known not to have it."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

from omnigraph.storage import lance_texts
from omnigraph.storage.asked import BEFORE_KEEPING
from omnigraph.storage.lance_rows import ROW_ADDRESS
from omnigraph.storage.lance_texts import KnownTexts, count_where, rows_where
from omnigraph.storage.sought import Sought

FILES = 12


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> Iterator[KnownTexts]:
    fresh = KnownTexts()
    monkeypatch.setattr(lance_texts, "KNOWN_TEXTS", fresh)
    yield fresh


def texts(*numbers: int) -> "pa.StringArray":
    return pa.array([f"text-{number}" for number in numbers], pa.string())


def rows(*numbers: int) -> pa.Table:
    return pa.table({"id": pa.array(numbers, pa.int64()), "text": texts(*numbers)})


def made(path: Path, files: int = FILES) -> lance.LanceDataset:
    """Make a table of small files with ten rows each."""
    table = lance.write_dataset(rows(*range(10)), path, enable_stable_row_ids=True)
    for file in range(1, files):
        table = lance.write_dataset(rows(*range(10 * file, 10 * file + 10)), path, mode="append")
    return table


def found(table: lance.LanceDataset, *numbers: int) -> list[int]:
    """Return the ids of the rows with these texts, found in both ways."""
    keys = texts(*numbers)
    there = rows_where(table, "text", keys, ["id"])
    assert there.column_names == ["id", ROW_ADDRESS]
    assert count_where(table, "text", Sought(keys)) == there.num_rows
    return sorted(int(str(number)) for number in there.column("id").to_pylist())


def suspects(known: KnownTexts, table: lance.LanceDataset, *numbers: int) -> int:
    return len(known.suspects(table, "text", texts(*numbers), table.get_fragments()))


def test_rows_are_found_in_small_files_and_no_file_is_opened_that_lacks_them(tmp_path: Path, known: KnownTexts) -> None:
    table = made(tmp_path / "t")
    for _ in range(2):
        assert found(table, 3, 45, 46, 999) == [3, 45, 46]
        assert found(table, 999) == []
    assert suspects(known, table, 999) == 0
    assert suspects(known, table, 3, 45, 46) == 2


def test_files_that_came_later_are_looked_at_too(tmp_path: Path, known: KnownTexts) -> None:
    table = made(tmp_path / "t")
    assert found(table, 777) == []
    table = lance.write_dataset(rows(777), tmp_path / "t", mode="append")
    assert found(table, 777) == [777]
    assert suspects(known, table, 778) == 0


@pytest.mark.parametrize("newer_first", [True, False])
def test_a_row_that_is_deleted_in_one_version_is_found_in_the_other(tmp_path: Path, newer_first: bool) -> None:
    older = made(tmp_path / "t")
    newer = lance.dataset(tmp_path / "t")
    newer.delete("id = 45")
    for table in (newer, older) if newer_first else (older, newer):
        assert found(table, 45, 46) == ([46] if table is newer else [45, 46])
    assert found(newer, 45) == []
    assert found(older, 45) == [45]


def test_a_column_that_takes_over_the_name_of_another_is_another(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    table.add_columns({"other": "concat('x', text)"})
    table = lance.dataset(tmp_path / "t")
    assert found(table, 45) == [45]
    for old, new in (("text", "gone"), ("other", "text")):
        renaming: Any = {"path": old, "name": new}
        table.alter_columns(renaming)
    table = lance.dataset(tmp_path / "t")
    assert found(table, 45) == []
    keys = pa.array(["xtext-45"])
    assert rows_where(table, "text", keys, ["id"]).column("id").to_pylist() == [45]


def test_texts_that_do_not_fit_are_searched_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = KnownTexts(most=25)
    monkeypatch.setattr(lance_texts, "KNOWN_TEXTS", small)
    monkeypatch.setattr(lance_texts, "FILES_READ_AT_ONCE", 1)
    table, another = made(tmp_path / "t"), made(tmp_path / "another")
    for each in (table, another, table):
        assert found(each, 3, 45, 118, 999) == [3, 45, 118]
    assert suspects(small, table, 999) == FILES - 2, "two files fit"


def test_what_an_index_does_not_cover_is_found_too(tmp_path: Path, known: KnownTexts) -> None:
    many = lance.write_dataset(rows(*range(5_000)), tmp_path / "t", enable_stable_row_ids=True)
    many.create_scalar_index("text", "BTREE")
    for file in range(FILES):
        table = lance.write_dataset(rows(10_000 + file), tmp_path / "t", mode="append")
    assert found(table, 7, 10_003, 999_999) == [7, 10_003]
    assert found(table, 10_003) == [10_003]
    assert found(table, 8) == [8]
    assert found(table, 999_999) == []


def counted(table: lance.LanceDataset, *numbers: int) -> int:
    return count_where(table, "text", Sought(texts(*numbers)))


def test_a_few_files_that_are_asked_about_again_and_again_are_not_read_again(tmp_path: Path) -> None:
    table = made(tmp_path / "t", files=2)
    for _ in range(BEFORE_KEEPING + 1):
        assert counted(table, 3, 15, 999) == 2
    for file in (tmp_path / "t" / "data").iterdir():
        file.unlink()
    assert counted(table, 3, 15, 999) == 2
    assert counted(table, 998) == 0


def test_few_files_that_are_asked_about_once_are_not_kept(tmp_path: Path, known: KnownTexts) -> None:
    table = made(tmp_path / "t", files=2)
    assert counted(table, 3) == 1
    assert not any(each.texts for each in known._columns.values())


def test_a_file_that_lost_rows_is_looked_into_for_what_it_had(tmp_path: Path) -> None:
    older = made(tmp_path / "t", files=2)
    for _ in range(BEFORE_KEEPING + 1):
        assert counted(older, 3, 4, 15) == 3
    newer = lance.dataset(tmp_path / "t")
    newer.delete("id = 3")
    for table, there in ((newer, 2), (older, 3), (newer, 2)):
        assert counted(table, 3, 4, 15) == there
        assert counted(table, 3) == there - 2


def test_very_many_texts_are_looked_for_as_few_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lance_texts, "FEW_AT_ONCE_MAX", 2)
    for files in (2, FILES):
        table = made(tmp_path / f"{files}", files=files)
        for _ in range(BEFORE_KEEPING + 2):
            assert found(table, 3, 4, 15, 999) == [3, 4, 15]


def test_any_table_of_few_files_answers_as_one_without_a_memory_does(tmp_path: Path) -> None:
    chance = random.Random(11)
    for number in range(6):
        path = tmp_path / f"{number}"
        table = made(path, files=2)
        versions = [(table, {*range(20)})]
        for step in range(5):
            there = versions[-1][1]
            if chance.random() < 0.5:
                gone = set(chance.sample(sorted(there), 3))
                table = lance.dataset(path)
                table.delete(f"id IN ({', '.join(map(str, gone))})")
                versions.append((lance.dataset(path, version=table.version), there - gone))
            else:
                come = range(100 + step * 10, 105 + step * 10)
                table = lance.write_dataset(rows(*come), path, mode="append")
                versions.append((table, there | {*come}))
            for _ in range(8):
                each, expected = chance.choice(versions)
                asked = set(chance.sample(range(160), 12))
                assert counted(each, *asked) == len(asked & expected)


def test_any_table_answers_as_one_without_a_memory_does(tmp_path: Path) -> None:
    chance = random.Random(7)
    table = made(tmp_path / "t", files=3)
    there, versions = {*range(30)}, [(table, {*range(30)})]
    for number in range(30):
        if chance.random() < 0.3 and there:
            gone = chance.sample(sorted(there), min(3, len(there)))
            table = lance.dataset(tmp_path / "t")
            table.delete(f"id IN ({', '.join(map(str, gone))})")
            there = there - set(gone)
        else:
            come = range(100 + number * 10, 100 + number * 10 + chance.randint(1, 9))
            table = lance.write_dataset(rows(*come), tmp_path / "t", mode="append")
            there = there | set(come)
        versions.append((lance.dataset(tmp_path / "t", version=table.version), there))
        asked = chance.sample(range(450), 40)
        for each, expected in chance.sample(versions, min(3, len(versions))):
            assert found(each, *asked) == sorted(set(asked) & expected)
