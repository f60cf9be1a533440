"""Rows that were just written are checked without reading them, and are what reading them gives."""

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.storage.staging_kit import OPTIONS, Table, numbered

from omnigraph.model.staged import Staged
from omnigraph.rules.arrow_schema import arrow_schema
from omnigraph.storage import lance_fresh, lance_staged, lance_written
from omnigraph.storage.lance_fresh import FreshRows
from omnigraph.storage.lance_rows import file_session
from omnigraph.storage.lance_staged import read_staged
from omnigraph.storage.lance_staging import stage_append

PLAIN = """node N { k: String @key  s: String?  e: enum(x, y)?  b: Bool?  i: I32?  u: U64?  f: F32?  d: F64?
                     day: Date?  at: DateTime?  ints: [I32]?  texts: [String]?  days: [Date]?  v: Vector(3)? }"""
FULL: dict[str, Any] = {
    "s": "ü𝄞\n'\"",
    "e": "x",
    "b": True,
    "i": -(2**31),
    "u": 2**64 - 1,
    "f": 1.5,
    "d": -0.0,
    "day": date(2026, 1, 1),
    "at": datetime(2026, 1, 1, 12, tzinfo=UTC),
    "ints": [1, None],
    "texts": ["a", "", None, "𝄞"],
    "days": [date(1, 1, 1)],
    "v": [1.0, -2.0, 0.5],
}


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> FreshRows:
    """Begin with nothing kept."""
    return keeping(monkeypatch, FreshRows())


def keeping(monkeypatch: pytest.MonkeyPatch, rows: FreshRows) -> FreshRows:
    """Have everything keep rows here."""
    for module in (lance_staged, lance_written):
        monkeypatch.setattr(module, "FRESH_ROWS", rows)
    return rows


def read(table: Table, staged: Staged, *columns: str) -> pa.Table:
    wanted = columns or arrow_schema(table.kind).names
    return pa.Table.from_batches(read_staged(table.uri, staged, wanted, options=OPTIONS))


class Reads:
    """How often a file of a table was opened to read what was staged."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0

        def counted(*given: Any) -> Any:
            self.count += 1
            return file_session(*given)

        monkeypatch.setattr(lance_staged, "file_session", counted)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    return Reads(monkeypatch)


@pytest.mark.parametrize("work", ["append", "upsert"])
def test_few_rows_are_not_read_again_and_are_what_the_file_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh: FreshRows, reads: Reads, work: str
) -> None:
    table = Table(str(tmp_path / "t"), PLAIN)
    table.seal(table.append([{"k": "there"}]))
    staged = getattr(table, work)([{"k": "full", **FULL}, {"k": "none"}])
    known = read(table, staged)
    assert (reads.count, known.num_rows) == (0, 2)
    keeping(monkeypatch, FreshRows())
    stored = read(table, staged)
    assert reads.count == 1
    assert known.equals(stored)
    assert known.schema.types == stored.schema.types
    assert read(table, staged, "i", "k").column_names == ["i", "k"]


def test_an_upsert_that_replaces_and_inserts_is_kept_whole(tmp_path: Path, fresh: FreshRows, reads: Reads) -> None:
    table = Table(str(tmp_path / "t"))
    table.seal(table.append(numbered(1, 2)))
    rows = read(table, table.upsert(numbered(2, 3, n=7)), "k", "n").to_pylist()
    assert sorted(row["k"] for row in rows) == ["k2", "k3"]
    assert {row["n"] for row in rows} == {7}
    assert reads.count == 0


def test_what_is_kept_of_a_part_of_many_rows_is_that_part_alone(tmp_path: Path, fresh: FreshRows) -> None:
    table = Table(str(tmp_path / "t"))
    many = table.rows(numbered(*range(100_000))).read_all().combine_chunks()
    staged = stage_append(table.uri, many.slice(50_000, 10).to_reader(), options=OPTIONS)
    assert read(table, staged, "n").column("n").to_pylist() == list(range(50_000, 50_010))
    (kept,) = fresh._files.values()
    assert kept.get_total_buffer_size() < 2_000


@pytest.mark.parametrize("limit", ["ROWS_MAX", "BYTES_MAX"])
def test_more_than_a_few_rows_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh: FreshRows, reads: Reads, limit: str
) -> None:
    monkeypatch.setattr(lance_fresh, limit, 9)
    table = Table(str(tmp_path / "t"))
    assert read(table, table.append(numbered(*range(10))), "n").num_rows == 10
    assert (reads.count, len(fresh._files)) == (1, 0)


def test_rows_with_blobs_are_read(tmp_path: Path, fresh: FreshRows, reads: Reads) -> None:
    table = Table(str(tmp_path / "t"), "node N { k: String @key  blob: Blob? }")
    assert read(table, table.append([{"k": "a", "blob": b"\x00"}]), "k").to_pylist() == [{"k": "a"}]
    assert (reads.count, len(fresh._files)) == (1, 0)


def test_only_the_files_written_last_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reads: Reads) -> None:
    fresh = keeping(monkeypatch, FreshRows(most=2))
    table = Table(str(tmp_path / "t"))
    staged = [table.append(numbered(number)) for number in range(3)]
    assert len(fresh._files) == 2
    for number, each in enumerate(staged):
        assert read(table, each, "n").column("n").to_pylist() == [number]
    assert reads.count == 1
