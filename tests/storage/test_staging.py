"""Staged writes: bounded, exact, and invisible; what is unchanged is left alone."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from random import Random
from typing import Any

import lance
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from lance import LanceDataset, LanceOperation
from lance.dataset import Transaction
from tests.storage.staging_kit import OPTIONS, Table, mint, numbered

from omnigraph.errors import CorruptGraphError, InvalidDataError, InvalidOptionError
from omnigraph.model.staged import StagedUpsert
from omnigraph.rules.arrow_schema import arrow_schema
from omnigraph.rules.conform import conform
from omnigraph.storage import lance_rows, lance_sealing
from omnigraph.storage.lance_door import Tables
from omnigraph.storage.lance_staging import stage_append, stage_overwrite, stage_upsert
from omnigraph.storage.lance_written import WriteLimits
from omnigraph.storage.row_scratch import gathered

EVERYTHING = """node N { k: String @key  s: String?  e: enum(x, y)?  b: Bool?  i: I32?  u: U64?  f: F32?  d: F64?
                         day: Date?  at: DateTime?  ints: [I32]?  texts: [String]?  days: [Date]?  v: Vector(3)?
                         blob: Blob? }"""
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
FULL: dict[str, Any] = {
    "s": "ü𝄞\n'\"",
    "e": "x",
    "b": True,
    "i": -(2**31),
    "u": 2**64 - 1,
    "f": 1.5,
    "d": 0.1,
    "day": date(2026, 1, 1),
    "at": NOON,
    "ints": [1, None],
    "texts": ["a", "", None, "𝄞"],
    "days": [date(1, 1, 1)],
    "v": [1.0, -2.0, 0.5],
    "blob": b"\x00\xff",
}
OTHER: dict[str, Any] = {
    "s": "",
    "e": "y",
    "b": False,
    "i": 0,
    "u": 0,
    "f": -1.5,
    "d": float("inf"),
    "day": date(1970, 1, 1),
    "at": datetime(1, 1, 1, tzinfo=UTC),
    "ints": [],
    "texts": ["a", "", None],
    "days": [None],
    "v": [1.0, -2.0, float("nan")],
    "blob": b"\x00\xfe",
}


def comparable(row: dict[str, Any]) -> dict[str, Any]:
    """The values of a row, with NaN as something that equals itself."""

    def plain(value: Any) -> Any:
        if isinstance(value, list):
            return [plain(item) for item in value]
        return "NaN" if value != value else value

    return {name: plain(row[name]) for name in FULL}


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(str(tmp_path / "t"))


@pytest.fixture
def filled(table: Table) -> Table:
    table.seal(table.append(numbered(*range(10))))
    return table


# -- append and overwrite -----------------------------------------------------------------------------


def test_an_append_is_invisible_until_it_is_sealed_and_head_never_moves(table: Table) -> None:
    staged = table.append(numbered(1, 2))
    assert table.numbers == {}
    assert (staged.rows, len(staged.fragments), staged.bytes > 0) == (2, 1, True)
    sealed = table.seal(staged)
    assert sealed.rows == 2
    assert table.numbers == {"k1": 1, "k2": 2}
    assert len(lance.dataset(table.uri).versions()) == 1
    table.handle.validate()


def test_a_seal_keeps_the_chosen_transaction_and_properties(filled: Table) -> None:
    base = filled.version
    filled.seal(filled.append(numbered(11)))
    landed = filled.handle.read_transaction(filled.version)
    assert (landed.uuid, landed.read_version) == ("t1", base)
    assert landed.transaction_properties == {"why": "test"}


def test_files_are_cut_by_rows_and_by_bytes(table: Table) -> None:
    by_rows = table.append(numbered(*range(10)), limits=WriteLimits(rows_per_file=4))
    assert [json.loads(text)["physical_rows"] for text in by_rows.fragments] == [4, 4, 2]
    text = Table(table.uri + "s", "node N { k: String @key  s: String }")
    rows = [{"k": str(number), "s": Random(number).randbytes(1_000_000).hex()} for number in range(24)]
    by_bytes = text.append(rows, limits=WriteLimits(bytes_per_file=10_000_000))
    assert len(by_bytes.fragments) > 1
    text.seal(by_bytes)
    assert text.content["11"]["s"] == rows[11]["s"]


@pytest.mark.parametrize("limit", ["rows_per_file", "bytes_per_file"])
def test_a_limit_of_nothing_is_refused(limit: str) -> None:
    with pytest.raises(InvalidOptionError, match=limit):
        WriteLimits(rows_per_file=int(limit != "rows_per_file"), bytes_per_file=int(limit != "bytes_per_file"))


def test_no_rows_are_no_append_and_can_not_be_sealed(table: Table) -> None:
    staged = stage_append(table.uri, arrow_schema(table.kind).empty_table().to_reader(), options=OPTIONS)
    assert staged.is_empty
    with pytest.raises(InvalidOptionError, match="nothing to seal"):
        table.seal(staged)


def test_an_overwrite_replaces_everything_and_keeps_schema_and_stable_row_ids(filled: Table) -> None:
    before, rows = filled.handle.schema, filled.rows(numbered(3, 77))
    staged = stage_overwrite(filled.uri, rows, base_version=filled.version, options=OPTIONS)
    assert filled.seal(staged).rows == 2
    assert filled.numbers == {"k3": 3, "k77": 77}
    assert filled.handle.schema.equals(before, check_metadata=True)
    assert filled.handle.has_stable_row_ids
    assert min(filled.row_ids.values()) >= 10


def test_an_overwrite_by_nothing_empties_the_table_which_can_grow_again(filled: Table) -> None:
    nothing = arrow_schema(filled.kind).empty_table().to_reader()
    assert filled.seal(stage_overwrite(filled.uri, nothing, options=OPTIONS)).rows == 0
    filled.seal(filled.upsert(numbered(1)))
    assert filled.numbers == {"k1": 1}


def test_a_reader_that_raises_half_way_raises_its_own_error_and_leaves_nothing_visible(filled: Table) -> None:
    def half() -> Iterator[pa.RecordBatch]:
        yield from filled.rows(numbered(50))
        raise KeyError("the source is gone")

    def reader() -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(arrow_schema(filled.kind), half())

    for stage in (
        lambda: stage_append(filled.uri, reader(), options=OPTIONS),
        lambda: stage_overwrite(filled.uri, reader(), options=OPTIONS),
        lambda: stage_upsert(filled.uri, filled.version, reader(), options=OPTIONS),
    ):
        with pytest.raises(KeyError, match="the source is gone"):
            stage()
    assert filled.numbers == {f"k{n}": n for n in range(10)}


@pytest.mark.parametrize("stage", [stage_append, stage_overwrite])
def test_rows_of_other_columns_are_refused_by_name(filled: Table, stage: Callable[..., Any]) -> None:
    wrong = pa.table({"id": ["a"], "k": ["a"], "n": ["text"]}).to_reader()
    with pytest.raises(InvalidDataError, match="column 'n' is int64, but string was given"):
        stage(filled.uri, wrong, options=OPTIONS)
    with pytest.raises(InvalidDataError, match="the table has"):
        stage(filled.uri, pa.table({"id": ["a"]}).to_reader(), options=OPTIONS)


def test_batches_are_pulled_as_they_are_written_and_not_collected(table: Table) -> None:
    pulled: list[int] = []
    written: list[int] = []

    def batches() -> Iterator[pa.RecordBatch]:
        for number in range(60):
            pulled.append(number)
            if number == 40:
                written.extend(path.stat().st_size for path in Path(table.uri, "data").iterdir())
            yield from table.rows([{"k": f"{number}-{k}", "n": k} for k in range(2_000)])

    reader = pa.RecordBatchReader.from_batches(arrow_schema(table.kind), batches())
    staged = stage_append(table.uri, reader, limits=WriteLimits(rows_per_file=10_000), options=OPTIONS)
    assert (len(pulled), staged.rows) == (60, 120_000)
    assert len(written) >= 5, "files were finished while rows were still to come"


def test_small_batches_are_put_together_in_their_order_and_large_ones_left_alone() -> None:
    whole = pa.table({"n": range(100_000), "t": [str(n) for n in range(100_000)]}).combine_chunks()
    small = list(gathered(whole.to_batches(max_chunksize=1_000)))
    assert pa.Table.from_batches(small).equals(whole)
    assert [batch.num_rows for batch in small] == [33_000, 33_000, 33_000, 1_000]
    large = whole.to_batches(max_chunksize=50_000)
    assert all(one is other for one, other in zip(gathered(large), large, strict=True))
    wide = pa.table({"t": ["x" * 100_000] * 100}).to_batches(max_chunksize=1)
    assert max(batch.num_rows for batch in gathered(wide)) < 50
    assert list(gathered([])) == []


MEMORY = """
import sys, threading
import pyarrow as pa
from omnigraph.storage.lance_staging import stage_append, stage_upsert
from omnigraph.storage.lance_written import WriteLimits
from omnigraph.storage.roots import StorageOptions
schema = pa.schema([pa.field("id", pa.string(), nullable=False), pa.field("s", pa.string())])
def batches(count):
    for number in range(count):
        text = [f"{number}-{k}-" + "x" * 100_000 for k in range(50)]
        yield pa.record_batch([pa.array([f"{number}-{k}" for k in range(50)]), pa.array(text)], schema=schema)
def run(count):
    reader = pa.RecordBatchReader.from_batches(schema, batches(count))
    if sys.argv[2] == "append":
        return stage_append(sys.argv[1], reader, options=StorageOptions()).rows
    limits = WriteLimits(scratch_memory_bytes=int(sys.argv[4]), scratch_folder=sys.argv[3])
    return stage_upsert(sys.argv[1], None, reader, limits=limits, options=StorageOptions()).rows
def own_megabytes():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) // 1024 for line in status if line.startswith("RssAnon"))
def watch():
    global peak
    while not done.wait(0.002):
        peak = max(peak, own_megabytes())
run(2)
before = peak = own_megabytes()
done = threading.Event()
watcher = threading.Thread(target=watch)
watcher.start()
rows = run(120)
done.set()
watcher.join()
print(rows, peak - before)
"""


def megabytes_to_stage_six_hundred(folder: Path, what: str, held: int) -> int:
    """Memory of the child's own, sampled; pages of a mapped scratch file are the system's to drop and not in it."""
    schema = pa.schema([pa.field("id", pa.string(), nullable=False), pa.field("s", pa.string())])
    Tables(OPTIONS).ensure(str(folder / "t"), schema)
    arguments = [sys.executable, "-c", MEMORY, str(folder / "t"), what, str(folder), str(held)]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True, timeout=120)
    rows, grown = map(int, done.stdout.split())
    assert rows == 6_000
    assert [path.name for path in folder.iterdir()] == ["t"], "the scratch file is gone"
    return grown


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("what", ["append", "upsert"])
def test_six_hundred_megabytes_are_staged_in_half_of_that(tmp_path: Path, what: str) -> None:
    assert megabytes_to_stage_six_hundred(tmp_path, what, held=1_000_000) < 300


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_and_the_measurement_notices_when_they_are_held_after_all(tmp_path: Path) -> None:
    assert megabytes_to_stage_six_hundred(tmp_path, "upsert", held=2**40) > 500


# -- all types ----------------------------------------------------------------------------------------


def test_every_type_survives_append_and_upsert_and_is_recognised_as_unchanged(tmp_path: Path) -> None:
    table = Table(str(tmp_path / "t"), EVERYTHING)
    rows: list[dict[str, Any]] = [{"k": "full", **FULL}, {"k": "none"}, {"k": "other", **OTHER}]
    table.seal(table.append(rows))
    same = table.upsert(rows)
    assert (same.is_empty, same.rows_unchanged, same.files) == (True, 3, ())
    table.seal(table.upsert([{"k": "none", **FULL}, {"k": "full"}]))
    content = table.content
    assert comparable(content["none"]) == comparable(FULL)
    assert comparable(content["other"]) == comparable(OTHER)
    assert all(content["full"][name] is None for name in FULL)


@pytest.mark.parametrize("column", list(FULL))
@pytest.mark.parametrize("to_null", [False, True])
def test_a_change_of_any_one_column_is_a_change(tmp_path: Path, column: str, to_null: bool) -> None:
    table = Table(str(tmp_path / "t"), EVERYTHING)
    table.seal(table.append([{"k": "a", **FULL}, {"k": "b", **FULL}]))
    changed = {**FULL, column: None if to_null else OTHER[column]}
    staged = table.upsert([{"k": "a", **changed}, {"k": "b", **FULL}])
    assert (staged.rows_updated, staged.rows_unchanged, staged.rows_inserted) == (1, 1, 0)
    table.seal(staged)
    assert comparable(table.content["a"]) == comparable(changed)


def test_nan_equals_nan_and_minus_zero_equals_zero_but_null_equals_nothing_else(tmp_path: Path) -> None:
    table = Table(str(tmp_path / "t"), "node N { k: String @key  d: F64?  v: Vector(2)?  s: String? }")
    nan = float("nan")
    table.seal(table.append([{"k": "a", "d": nan, "v": [nan, 0.0], "s": ""}, {"k": "b", "d": 0.0}, {"k": "c"}]))
    same: list[dict[str, Any]] = [{"k": "a", "d": nan, "v": [nan, -0.0], "s": ""}, {"k": "b", "d": -0.0}, {"k": "c"}]
    assert table.upsert(same).rows_unchanged == 3
    other: list[dict[str, Any]] = [{"k": "a", "d": nan, "v": [nan, 0.0]}, {"k": "b", "d": nan}, {"k": "c", "s": ""}]
    assert table.upsert(other).rows_updated == 3


def test_huge_strings_and_blobs_are_compared_and_replaced(tmp_path: Path) -> None:
    table = Table(str(tmp_path / "t"), "node N { k: String @key  s: String?  b: Blob? }")
    rows: list[dict[str, Any]] = [{"k": str(n), "s": f"{n}" * 3_000_000, "b": bytes([n]) * 5_000_000} for n in range(6)]
    table.seal(table.append(rows))
    small = WriteLimits(scratch_memory_bytes=1_000)
    assert table.upsert(rows, limits=small).is_empty
    rows[3]["b"] = bytes([3]) * 4_999_999 + b"!"
    rows[4]["s"] += "!"
    staged = table.upsert(rows, limits=small)
    assert (staged.rows_updated, sorted(table.ids_staged(staged))) == (2, ["3", "4"])
    table.seal(staged)
    assert {k: (v["s"], v["b"]) for k, v in table.content.items()} == {r["k"]: (r["s"], r["b"]) for r in rows}


# -- upsert -------------------------------------------------------------------------------------------


def test_an_upsert_inserts_replaces_and_skips_and_says_how_many(filled: Table) -> None:
    staged = filled.upsert([*numbered(1, 2, n=0), *numbered(3), *numbered(20, 21)])
    assert (staged.rows_inserted, staged.rows_updated, staged.rows_unchanged) == (2, 2, 1)
    assert sorted(filled.ids_staged(staged)) == ["k1", "k2", "k20", "k21"]
    assert filled.seal(staged).rows == 12
    assert filled.numbers == {f"k{n}": n for n in range(10)} | {"k1": 0, "k2": 0, "k20": 20, "k21": 21}
    filled.handle.validate()


@pytest.mark.parametrize("most", [lance_sealing.ROWS_IN_ONE_MAX, -1])
def test_row_ids_survive_upserts_however_the_input_is_ordered(
    filled: Table, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(lance_sealing, "ROWS_IN_ONE_MAX", most)
    for turn in range(4):
        before = filled.row_ids
        filled.seal(filled.upsert(numbered(9, 3, 100 + turn, 7, 0, n=turn - 50)))
        after = filled.row_ids
        assert {name: after[name] for name in before} == before
        assert len(set(after.values())) == len(after)
    filled.handle.validate()
    assert filled.numbers["k9"] == -47


def test_replacements_are_written_in_the_order_of_row_ids(filled: Table) -> None:
    staged = filled.upsert(numbered(9, 2, 5, n=0))
    assert filled.ids_staged(staged) == ["k2", "k5", "k9"]


def test_rows_already_there_are_neither_written_nor_sealed(filled: Table) -> None:
    staged = filled.upsert(numbered(*range(10)))
    assert (staged.is_empty, staged.rows_unchanged, staged.fragments, staged.bytes) == (True, 10, (), 0)
    with pytest.raises(InvalidOptionError, match="nothing to seal"):
        filled.seal(staged)


def test_ids_given_twice_are_counted_and_shown(filled: Table) -> None:
    twice = pa.concat_tables([conform(filled.kind, numbered(*range(7), 8), mint)] * 2)
    with pytest.raises(InvalidDataError, match="8 ids occur more than once") as refused:
        stage_upsert(filled.uri, filled.version, twice.to_reader(), options=OPTIONS)
    assert (refused.value.count, refused.value.sample) == (8, ["k0", "k1", "k2", "k3", "k4"])


def test_a_row_without_an_id_is_refused(filled: Table) -> None:
    columns: Any = [pa.array([None], pa.string()), pa.array(["x"]), pa.array([1])]
    bare = pa.Table.from_arrays(columns, schema=arrow_schema(filled.kind))
    with pytest.raises(InvalidDataError, match="1 rows have no id"):
        stage_upsert(filled.uri, filled.version, bare.to_reader(), options=OPTIONS)


@pytest.mark.parametrize("most", [lance_sealing.ROWS_IN_ONE_MAX, -1])
def test_an_upsert_that_replaces_a_whole_fragment_removes_it(
    filled: Table, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(lance_sealing, "ROWS_IN_ONE_MAX", most)
    staged = filled.upsert(numbered(*range(10), n=-5))
    assert [deletion.file for deletion in staged.deletions] == [None]
    assert filled.seal(staged).rows == 10
    assert len(filled.handle.get_fragments()) == 1


def test_staging_twice_gives_the_same_but_for_the_names_of_files(filled: Table) -> None:
    def shape(staged: StagedUpsert) -> Any:
        return (
            [(json.loads(r.fragment)["physical_rows"], r.row_ids) for r in staged.replacements],
            [json.loads(text)["physical_rows"] for text in staged.insertions],
            [deletion.out for deletion in staged.deletions],
            (staged.unchanged, staged.rows, filled.ids_staged(staged)),
        )

    rows = [*numbered(8, 1, n=0), *numbered(2, 30, 31)]
    limits = WriteLimits(rows_per_file=1)
    one, two = filled.upsert(rows, limits=limits), filled.upsert(rows, limits=limits)
    assert shape(one) == shape(two)
    assert not set(one.files) & set(two.files)
    filled.seal(two)
    used = {file.path for fragment in filled.handle.get_fragments() for file in fragment.metadata.files}
    assert not used & {Path(name).name for name in one.files}


def test_rows_are_found_through_an_index_as_well_as_without_one(filled: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    filled.seal(filled.append(numbered(*range(10, 3_000))))
    base = filled.handle
    built = base.create_index_uncommitted("id", "BTREE", name="id", fragment_ids=[0, 1])
    indexed = LanceDataset.commit(
        base, Transaction(base.version, LanceOperation.CreateIndex([built], [])), detached=True, max_retries=3
    )
    filled.version = int(indexed.version)
    looked_up: list[int] = []
    original = lance_rows.looked_up

    def watched(handle: Any, ids: Any) -> Any:
        looked_up.append(len(ids))
        return original(handle, ids)

    monkeypatch.setattr(lance_rows, "looked_up", watched)
    few = filled.upsert([*numbered(7, 2_999, n=0), *numbered(9_999)])
    many = filled.upsert(numbered(*range(500), n=-1))
    assert (few.rows_updated, few.rows_inserted, many.rows_updated) == (2, 1, 500)
    assert looked_up == [3]
    filled.seal(few)
    assert filled.handle.to_table(filter=pc.field("id") == "k7").column("n").to_pylist() == [0]
    assert filled.numbers["k2999"] == 0


def test_a_table_that_holds_an_id_twice_is_called_corrupt(filled: Table) -> None:
    filled.seal(filled.append(numbered(1)))
    with pytest.raises(CorruptGraphError, match="'k1' more than once"):
        filled.upsert(numbered(1, n=0))


# -- delete -------------------------------------------------------------------------------------------


def test_rows_are_deleted_by_predicate_and_their_ids_told(filled: Table) -> None:
    staged = filled.delete(where="n >= 7")
    assert (staged.deleted, sorted(filled.ids_staged(staged))) == (3, ["k7", "k8", "k9"])
    assert filled.seal(staged).rows == 7
    assert filled.seal(filled.delete(where=pc.field("n") < 2)).rows == 5
    assert list(filled.numbers) == ["k2", "k3", "k4", "k5", "k6"]
    filled.handle.validate()


def test_rows_are_deleted_by_id_and_unknown_or_repeated_ids_do_no_harm(filled: Table) -> None:
    staged = filled.delete(ids=["k1", "k1", "nobody", "k2"])
    assert filled.ids_staged(staged) == ["k1", "k2"]
    filled.seal(staged)
    assert filled.delete(ids=pa.array(["k1", "k2"])).is_empty
    assert filled.seal(filled.delete(where="true")).rows == 0


def test_a_deletion_of_nothing_says_so_and_stages_nothing(filled: Table) -> None:
    before = sorted(Path(filled.uri).rglob("*"))
    staged = filled.delete(where="n > 100")
    assert (staged.is_empty, staged.deleted, filled.ids_staged(staged)) == (True, 0, [])
    assert sorted(Path(filled.uri).rglob("*")) == before
    with pytest.raises(InvalidOptionError, match="nothing to seal"):
        filled.seal(staged)


def test_a_deletion_says_which_rows(filled: Table) -> None:
    with pytest.raises(InvalidOptionError, match="which rows"):
        filled.delete()


def test_a_row_that_matches_in_several_ways_goes_once(filled: Table) -> None:
    names = pa.array(["k1", "k2", "nobody"])
    staged = filled.delete(where="n = 1", ids=["k1", "k3"], among={"k": names})
    assert sorted(filled.ids_staged(staged)) == ["k1", "k2", "k3"]
    assert staged.deleted == 3


@pytest.mark.parametrize("where", ["nonsense = 1", "n = ", "n = 'a' AND " + "n = 1 OR " * 9_000 + "n = 1"])
def test_a_filter_that_makes_no_sense_or_no_end_is_refused(filled: Table, where: str) -> None:
    with pytest.raises(InvalidOptionError):
        filled.delete(where=where)
