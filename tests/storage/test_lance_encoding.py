"""Texts are compressed as it suits them, and nobody can tell but by the time and the room it takes."""

import hashlib
import tempfile
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from lance.file import LanceFileReader

import omnigraph as og
from omnigraph.engine.graph import Graph
from omnigraph.storage import lance_encoding
from omnigraph.storage.lance_encoding import ROWS_MIN, quick_columns
from omnigraph.testing.places import place

ROWS = 2 * ROWS_MIN
SCHEMA = """
node Person { name: String @key  city: String?  token: String?  note: String?  age: I64 }
edge Knows: Person -> Person { how: String? }
"""
SYLLABLES = ("ba", "dor", "en", "fish", "gal", "hum", "is", "ka", "lor", "mi", "nu", "op", "qua", "ri", "st", "tel")


def digest(number: int) -> str:
    return hashlib.md5(str(number).encode(), usedforsecurity=False).hexdigest()


def prose(number: int) -> str:
    chosen = hashlib.sha256(str(number).encode()).digest()
    return " ".join(SYLLABLES[byte % 16] + SYLLABLES[byte // 16] for byte in chosen[:9])


def people(rows: int = ROWS) -> pa.Table:
    numbers = range(rows)
    odd = ["", None, "ünïcødé ☃", "city 7", "\x00"]
    return pa.table(
        {
            "name": [f"person-{number}" for number in numbers],
            "city": [odd[number % 5] if number % 11 == 0 else f"city {number % 1_000}" for number in numbers],
            "token": [None if number % 7 == 0 else digest(number) for number in numbers],
            "note": [prose(number) for number in numbers],
            "age": list(numbers),
        },
        schema=pa.schema(
            [pa.field(name, pa.string(), name != "name") for name in ("name", "city", "token", "note")]
        ).append(pa.field("age", pa.int64(), nullable=False)),
    )


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    made = og.init(tmp_path / "g.omni", SCHEMA)
    with made.transaction() as tx:
        tx.append("Person", people())
    return made


def by_frequent_parts(graph: Graph) -> set[str]:
    """Which columns of the largest file of people are compressed by a table of frequent parts."""
    file = max(place(graph.root).glob("nodes/*/data/*.lance"), key=lambda each: each.stat().st_size)
    reader: Any = LanceFileReader(str(file))
    columns = zip(reader.metadata().schema.names, reader.metadata().columns, strict=True)
    return {name for name, column in columns if "Fsst" in str(column.pages[0].encoding)}


def rows_of(graph: Graph) -> pa.Table:
    """All rows, in the order of their ages, in the form in which they were given."""
    found = graph.snapshot().read("Person").select(people(1).schema.names).sort_by("age")
    return found.replace_schema_metadata(None).cast(people(1).schema).combine_chunks()


def test_ids_that_count_and_digests_get_lz4_and_prose_is_left(graph: Graph) -> None:
    assert by_frequent_parts(graph) == {"note"}


def test_digests_that_rows_are_known_by_stay_small() -> None:
    digests = pa.array([digest(number) for number in range(ROWS_MIN)])
    schema = pa.schema([pa.field(name, pa.string()) for name in ("id", "name", "token")])
    others = pa.array([digest(-number - 1) for number in range(ROWS_MIN)])
    assert quick_columns(pa.RecordBatch.from_arrays([digests, digests, others], schema=schema)) == ("token",)


def test_long_texts_few_rows_and_nothing_are_left_to_lance() -> None:
    long = pa.record_batch({"text": pa.array(["x" * 200 + str(number) for number in range(ROWS_MIN)])})
    assert quick_columns(long) == ()
    few = pa.record_batch({"text": pa.array(["a"] * (ROWS_MIN - 1))})
    rows, quick = lance_encoding.looked_at([few, few])
    assert (list(rows), quick) == ([few, few], ())
    assert [*lance_encoding.looked_at([])[0]] == []


def test_rows_come_back_as_they_were_given(graph: Graph) -> None:
    assert rows_of(graph).equals(people().combine_chunks())


def test_no_version_knows_how_its_files_are_compressed(graph: Graph) -> None:
    (pin,) = graph.snapshot().commit.pins.values()
    table = place(graph.root) / "nodes" / pin.table
    kept = [field.metadata or {} for field in lance.dataset(str(table), version=pin.lance_version).schema]
    assert not [metadata for metadata in kept if lance_encoding.COMPRESSION in metadata]


def test_filters_indexes_upserts_and_deletes_see_the_same_rows(graph: Graph) -> None:
    wanted = ["", "ünïcødé ☃", "city 7", "city 999", "\x00", "no city"]
    before = {city: graph.snapshot().read("Person", where=f"city = '{city}'").num_rows for city in wanted}
    cities = people().column("city").to_pylist()
    assert before == {city: cities.count(city) for city in wanted}
    graph.ensure_indices()
    with graph.transaction() as tx:
        tx.upsert("Person", people().slice(0, 40_000))
    assert tx.receipt.commit is None, "nothing differs from what is there"
    with graph.transaction() as tx:
        tx.upsert("Person", people().slice(0, 40_000).set_column(1, "city", pa.array(["moved"] * 40_000)))
    assert graph.snapshot().read("Person", where="city = 'moved'").num_rows == 40_000
    with graph.transaction() as tx:
        tx.delete("Person", where="city = 'moved'")
    assert rows_of(graph).equals(people().slice(40_000).combine_chunks())


def test_small_files_and_files_with_lz4_become_one(graph: Graph) -> None:
    with graph.transaction() as tx:
        tx.append("Person", people(ROWS + 100).slice(ROWS))
    graph.optimize()
    assert rows_of(graph).equals(people(ROWS + 100).combine_chunks())
    assert graph.verify(deep=True).is_sound


@pytest.mark.parametrize("broken", ["no folder", "no file"])
def test_where_no_sample_can_be_written_the_write_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, broken: str
) -> None:
    graph = og.init(tmp_path / "g.omni", SCHEMA)
    if broken == "no folder":
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    else:
        monkeypatch.setattr(lance_encoding, "STORAGE_VERSION", "0.0")
    with graph.transaction() as tx:
        tx.append("Person", people())
    monkeypatch.undo()
    assert graph.snapshot().count("Person") == ROWS
    assert by_frequent_parts(graph) >= {"id", "name", "token", "note"}
    assert "a sample can not be written" in caplog.text
