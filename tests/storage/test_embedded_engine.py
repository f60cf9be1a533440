"""The relational engine in this process: right answers, out of core, and cleaned up."""

import datetime as dt
import gc
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.storage.engine_kit import answer, engine, scratch, streamed

from omnigraph.errors import OmnigraphError, StorageError
from omnigraph.storage.embedded import EmbeddedEngine
from omnigraph.storage.relations import Found, Made

NAN = float("nan")
UTC = dt.UTC

__all__ = ["engine", "scratch"]  # fixtures


def opener(batches: Callable[[], Iterator[pa.RecordBatch]]) -> Callable[[], pa.RecordBatchReader]:
    return lambda: pa.RecordBatchReader.from_batches(pa.schema([("x", pa.int64())]), batches())


def numbers(
    batches: int, rows: int = 10_000, *, end: BaseException | None = None
) -> Callable[[], pa.RecordBatchReader]:
    def made() -> Iterator[pa.RecordBatch]:
        for batch in range(batches):
            yield pa.record_batch({"x": pa.array(range(batch * rows, (batch + 1) * rows))})
        if end is not None:
            raise end

    return opener(made)


# -- answers ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [lambda table: table, streamed], ids=["table", "reader"])
def test_an_anti_join_finds_what_is_missing_and_null_is_no_id(engine: EmbeddedEngine, kind: Any) -> None:
    delta = kind(pa.table({"src": ["a", "b", None, "", "é", "e\u0301", "日本"]}))
    base = kind(pa.table({"id": ["a", "", "é", None]}))
    sql = "SELECT src FROM delta WHERE NOT EXISTS (SELECT 1 FROM base WHERE base.id = delta.src)"
    # the two ways to write é are two texts
    assert sorted(answer(engine, sql, {"delta": delta, "base": base}), key=str) == sorted(
        [("b",), (None,), ("e\u0301",), ("日本",)], key=str
    )


def test_nan_equals_nan_and_the_zeros_are_one(engine: EmbeddedEngine) -> None:
    left, right = pa.table({"x": [NAN, 0.0, None, 1.5]}), pa.table({"y": [NAN, -0.0, None]})
    rows = answer(engine, "SELECT l.x FROM l JOIN r ON l.x = r.y", {"l": left, "r": right})
    assert sorted(map(str, rows)) == ["(0.0,)", "(nan,)"], "and NaN comes out as NaN"


def test_relations_without_rows(engine: EmbeddedEngine) -> None:
    empty = pa.schema([("id", pa.string())]).empty_table()
    some = pa.table({"id": ["a"]})
    sql = "SELECT l.id FROM l ANTI JOIN r ON l.id = r.id"
    assert answer(engine, sql, {"l": some, "r": streamed(empty)}) == [("a",)]
    assert answer(engine, sql, {"l": streamed(empty), "r": some}) == []
    assert engine.run(sql, {"l": empty, "r": some}).schema == empty.schema


def test_a_relation_may_be_used_more_than_once(engine: EmbeddedEngine) -> None:
    opened = []

    def source() -> pa.RecordBatchReader:
        opened.append(1)
        return pa.table({"id": ["a", "b", "b"]}).to_reader()

    sql = "SELECT id FROM t WHERE id IN (SELECT id FROM t GROUP BY id HAVING count(*) > 1)"
    assert answer(engine, sql, {"t": source}) == [("b",), ("b",)]
    assert len(opened) == 2, "once per use, and not once more for its columns"


def test_rows_can_be_made_of_what_another_plan_finds(engine: EmbeddedEngine) -> None:
    row = pa.struct([pa.field("n", pa.uint64()), pa.field("v", pa.list_(pa.float32(), 2))])
    rows = pa.table({"id": ["a", "b", "c"], "row": pa.array([{"n": 2**64 - 1, "v": [1.0, 2.0]}, None, {}], row)})
    seen: list[pa.RecordBatch] = []

    def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            seen.append(batch)
            yield pa.record_batch({"n": [batch.num_rows]})

    made = Made(
        rows=Found("SELECT row, id, 1 AS more FROM rows WHERE id <> 'c'", {"rows": rows}),
        given=rows.schema,
        make=count,
        schema=pa.schema([("n", pa.int64())]),
    )
    assert answer(engine, "SELECT sum(n) FROM made", {"made": made}) == [(2,)]
    assert [batch.schema for batch in seen] == [rows.schema], "by the names and in the types that were asked for"
    assert seen[0].to_pylist() == rows.to_pylist()[:2]


def test_a_relation_that_is_not_used_is_not_read(engine: EmbeddedEngine) -> None:
    read = []

    def batches() -> Iterator[pa.RecordBatch]:
        read.append(1)
        yield pa.record_batch({"x": [1]})

    assert answer(engine, "SELECT 1 AS one", {"t": opener(batches)}) == [(1,)]
    assert read == []


UNCHANGED = {
    "utf8": pa.array(["é", "", None, "a\0b"]),
    "bool": pa.array([True, None, False, True]),
    "int32": pa.array([2**31 - 1, None, -(2**31), 0], pa.int32()),
    "int64": pa.array([2**63 - 1, None, -(2**63), 0], pa.int64()),
    "uint32": pa.array([2**32 - 1, None, 0, 1], pa.uint32()),
    "uint64": pa.array([2**64 - 1, None, 0, 1], pa.uint64()),
    "float32": pa.array([1.5, None, float("inf"), -0.0], pa.float32()),
    "float64": pa.array([1e308, None, float("-inf"), -0.0], pa.float64()),
    "date": pa.array([dt.date(1, 1, 1), None, dt.date(9999, 12, 31), dt.date(1970, 1, 1)], pa.date32()),
    "moment": pa.array(
        [dt.datetime(1, 1, 1, tzinfo=UTC), None, dt.datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC), None],
        pa.timestamp("us", "UTC"),
    ),
    "list": pa.array([["a", None, ""], [], None, ["é"]], pa.list_(pa.string())),
    "vector": pa.array([[1.0, 2.0], None, [0.5, -0.0], [1.0, 1.0]], pa.list_(pa.float32(), 2)),
    "binary": pa.array([b"\x00\xff", None, b"", b"x"], pa.binary()),
    "struct": pa.array([{"data": b"1", "uri": None}, None, {"data": None, "uri": "x"}, {"data": b"", "uri": ""}]),
}


@pytest.mark.parametrize("kind", [lambda table: table, streamed], ids=["table", "reader"])
@pytest.mark.parametrize("name", UNCHANGED)
def test_types_and_values_pass_unchanged(engine: EmbeddedEngine, name: str, kind: Any) -> None:
    given = pa.table({"n": pa.array(range(4)), "v": UNCHANGED[name]})
    got = engine.run("SELECT v FROM t ORDER BY n", {"t": kind(given)}).read_all()
    assert got.schema.field("v").type == given.schema.field("v").type
    assert got.column("v").to_pylist() == given.column("v").to_pylist()


@pytest.mark.parametrize(
    ("given", "plain"),
    [
        (pa.large_binary(), pa.binary()),
        (pa.large_string(), pa.string()),
        (pa.large_list(pa.int32()), pa.list_(pa.int32())),
        (pa.dictionary(pa.int32(), pa.string()), pa.string()),
        (pa.list_(pa.field("item", pa.int32(), nullable=False)), pa.list_(pa.int32())),
    ],
    ids=str,
)
def test_types_that_come_out_as_their_plain_kind(engine: EmbeddedEngine, given: Any, plain: Any) -> None:
    empty = pa.schema([("v", given)]).empty_table()
    assert engine.run("SELECT v FROM t", {"t": empty}).schema.field("v").type == plain


def test_moments_are_utc_wherever_the_process_lives() -> None:
    code = (
        "import pyarrow as pa, datetime as dt\n"
        "from omnigraph.storage.embedded import EmbeddedEngine\n"
        "t = pa.table({'t': pa.array([dt.datetime(2020, 1, 1, tzinfo=dt.UTC)], pa.timestamp('us', 'UTC'))})\n"
        "with EmbeddedEngine() as e:\n"
        "    out = e.run('SELECT t, CAST(t AS DATE) AS d FROM t', {'t': t}).read_all()\n"
        "print(out.schema.field('t').type, out.column('d')[0])\n"
    )
    assert run_python(code, TZ="America/New_York").stdout == "timestamp[us, tz=UTC] 2020-01-01\n"


def test_columns_or_relations_that_differ_only_in_case_are_refused(engine: EmbeddedEngine) -> None:
    twins = pa.table({"Name": [1], "name": [2]})
    for kind in (twins, streamed(twins)):
        with pytest.raises(OmnigraphError, match="differ only in their case"):
            engine.run("SELECT * FROM t", {"t": kind})
    with pytest.raises(OmnigraphError, match="differ only in their case"):
        engine.run("SELECT 1", {"T": twins, "t": twins})


# -- out of core --------------------------------------------------------------------------------------


def texts(count: int) -> Callable[[], pa.RecordBatchReader]:
    schema = pa.schema([("id", pa.string())])
    step = 50_000

    def made() -> Iterator[pa.RecordBatch]:
        for start in range(0, count, step):
            ids = [f"person-with-a-rather-long-id-{number:012}" for number in range(start, start + step)]
            yield pa.record_batch([pa.array(ids)], schema=schema)

    return lambda: pa.RecordBatchReader.from_batches(schema, made())


def test_a_join_larger_than_the_memory_spills_and_is_right(engine: EmbeddedEngine, scratch: Path) -> None:
    rows = 1_500_000  # 60 MB of text on each side, and as much again for a hash table, in 64 MB
    sql = "SELECT a.id FROM a JOIN b ON a.id = b.id"
    spilled, found = 0, 0
    for batch in engine.run(sql, {"a": texts(rows), "b": texts(rows)}):
        spilled = max(spilled, sum(path.stat().st_size for path in scratch.rglob("*") if path.is_file()))
        found += batch.num_rows
    assert found == rows
    assert spilled > 0, "if it did not spill, the test is too small"


def test_a_group_larger_than_the_memory_is_right(engine: EmbeddedEngine) -> None:
    rows = 1_500_000
    sql = "SELECT id FROM (SELECT id FROM t UNION ALL SELECT $twice) GROUP BY id HAVING count(*) > 1"
    twice = f"person-with-a-rather-long-id-{rows - 1:012}"
    assert answer(engine, sql, {"t": texts(rows)}, {"twice": twice}) == [(twice,)]


def test_rows_are_streamed_not_gathered(engine: EmbeddedEngine) -> None:
    made = []

    def batches() -> Iterator[pa.RecordBatch]:
        for number in range(2_000):
            made.append(number)
            yield pa.record_batch({"x": pa.array(range(10_000))})

    reader = engine.run("SELECT x + 1 AS y FROM t", {"t": opener(batches)})
    reader.read_next_batch()
    assert len(made) < 1_000


# -- errors -------------------------------------------------------------------------------------------


class BrokenSourceError(Exception):
    """What a source of rows raises."""


@pytest.mark.parametrize("batches", [0, 1, 300])
@pytest.mark.parametrize("sql", ["SELECT x FROM t", "SELECT count(*) AS n FROM t", "SELECT x FROM t ORDER BY x"])
def test_what_a_reader_raises_comes_out_as_it_is(engine: EmbeddedEngine, scratch: Path, sql: str, batches: int) -> None:
    broken = BrokenSourceError("the source broke")
    with pytest.raises(BrokenSourceError) as caught:
        engine.run(sql, {"t": numbers(batches, end=broken)}).read_all()
    assert caught.value is broken
    assert answer(engine, "SELECT 1 AS one", {}) == [(1,)], "the engine goes on"


def test_what_opening_a_relation_raises_comes_out_as_it_is(engine: EmbeddedEngine) -> None:
    def closed() -> pa.RecordBatchReader:
        raise BrokenSourceError("can not be opened")

    with pytest.raises(BrokenSourceError, match="can not be opened"):
        engine.run("SELECT * FROM t", {"t": closed})


def test_an_error_of_ours_comes_out_as_it_is(engine: EmbeddedEngine) -> None:
    with pytest.raises(StorageError, match="the store is away"):
        engine.run("SELECT x FROM t", {"t": numbers(300, end=StorageError("the store is away"))}).read_all()


@pytest.mark.parametrize("sql", ["SELEC 1", "SELECT nothing FROM t", "SELECT * FROM nowhere", "SELECT $1 + x FROM t"])
def test_a_wrong_plan_is_an_internal_error(engine: EmbeddedEngine, sql: str) -> None:
    with pytest.raises(OmnigraphError, match="internal error") as caught:
        engine.run(sql, {"t": numbers(1)}).read_all()
    assert type(caught.value) is OmnigraphError


def test_a_plan_that_fails_on_a_late_row_is_an_internal_error(engine: EmbeddedEngine) -> None:
    sql = "SELECT CASE WHEN x = 2999999 THEN CAST('q' || x AS INT) ELSE x END AS y FROM t"
    with pytest.raises(OmnigraphError, match="Conversion Error"):
        engine.run(sql, {"t": numbers(300)}).read_all()


def test_too_little_memory_says_what_to_do(engine: EmbeddedEngine) -> None:
    with pytest.raises(StorageError, match="more memory, or a scratch folder"):
        engine.run("SELECT list(x) AS everything FROM t", {"t": numbers(3_000)}).read_all()


def test_a_scratch_folder_that_is_full_says_what_to_do(scratch: Path) -> None:
    code = (
        "import resource, pyarrow as pa\n"
        "from omnigraph.errors import StorageError\n"
        "from omnigraph.storage.embedded import MEMORY_BYTES_MIN, EmbeddedEngine\n"
        "t = pa.table({'id': [f'person-with-a-rather-long-id-{n:012}' for n in range(1_500_000)]})\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))\n"
        f"with EmbeddedEngine(MEMORY_BYTES_MIN, {str(scratch)!r}, threads=2) as engine:\n"
        "    try:\n"
        "        relations = {'a': t.to_reader, 'b': t.to_reader}\n"
        "        engine.run('SELECT a.id FROM a JOIN b ON a.id = b.id', relations).read_all()\n"
        "    except StorageError as problem:\n"
        "        print(problem)\n"
    )
    said = run_python(code).stdout
    assert "scratch" in said
    assert list(scratch.iterdir()) == []


def test_a_scratch_folder_that_is_not_there(tmp_path: Path) -> None:
    engine = EmbeddedEngine(scratch_folder=str(tmp_path / "missing"))
    with pytest.raises(StorageError, match="scratch folder"):
        engine.run("SELECT 1", {})


def test_an_engine_needs_some_memory() -> None:
    with pytest.raises(OmnigraphError, match="can not work in less"):
        EmbeddedEngine(1_000_000)


# -- cleaning up --------------------------------------------------------------------------------------


def test_nothing_is_made_before_the_first_plan(scratch: Path) -> None:
    with EmbeddedEngine(scratch_folder=str(scratch)):
        assert list(scratch.iterdir()) == []


def test_the_scratch_folder_goes_after_success(scratch: Path) -> None:
    with EmbeddedEngine(scratch_folder=str(scratch)) as engine:
        assert answer(engine, "SELECT x FROM t", {"t": numbers(1, 1)}) == [(0,)]
        assert len(list(scratch.iterdir())) == 1
    assert list(scratch.iterdir()) == []


def test_the_scratch_folder_goes_after_an_error(scratch: Path) -> None:
    with pytest.raises(BrokenSourceError), EmbeddedEngine(scratch_folder=str(scratch)) as engine:
        engine.run("SELECT x FROM t", {"t": numbers(300, end=BrokenSourceError())}).read_all()
    assert list(scratch.iterdir()) == []


def test_the_scratch_folder_goes_with_an_engine_and_a_result_that_are_dropped(scratch: Path) -> None:
    reader = EmbeddedEngine(scratch_folder=str(scratch)).run("SELECT x FROM t", {"t": numbers(2_000)})
    reader.read_next_batch()
    gc.collect()
    assert len(list(scratch.iterdir())) == 1, "a result keeps its engine"
    del reader
    gc.collect()
    assert list(scratch.iterdir()) == []


@pytest.mark.parametrize("batches", [0, 1])
def test_closing_ends_results_that_are_open(scratch: Path, batches: int) -> None:
    engine = EmbeddedEngine(scratch_folder=str(scratch))
    reader = engine.run("SELECT x FROM t", {"t": numbers(2_000)})
    for _ in range(batches):
        reader.read_next_batch()
    engine.close()
    engine.close()
    assert list(scratch.iterdir()) == []
    with pytest.raises(OmnigraphError, match="closed before the result"):
        reader.read_all()
    with pytest.raises(OmnigraphError, match="the engine is closed"):
        engine.run("SELECT 1", {})


def test_a_result_that_was_read_stays_at_its_end(engine: EmbeddedEngine) -> None:
    reader = engine.run("SELECT 1 AS one", {})
    assert reader.read_all().num_rows == 1
    assert reader.read_all().num_rows == 0


def test_sources_are_let_go_when_a_result_is_dropped(engine: EmbeddedEngine) -> None:
    ended = threading.Event()

    def batches() -> Iterator[pa.RecordBatch]:
        try:
            while True:
                yield pa.record_batch({"x": pa.array(range(10_000))})
        finally:
            ended.set()

    reader = engine.run("SELECT x FROM t", {"t": opener(batches)})
    reader.read_next_batch()
    del reader
    gc.collect()
    assert ended.wait(10)


def run_python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={**os.environ, **environment}
    )


def test_nothing_is_imported_until_the_first_plan() -> None:
    code = (
        "import sys, omnigraph, omnigraph.storage.embedded as e\n"
        "e.EmbeddedEngine()\nprint('duckdb' in sys.modules, '_duckdb' in sys.modules)"
    )
    assert run_python(code).stdout == "False False\n"


@pytest.mark.parametrize("ending", ["", "del engine", "del reader", "engine.close()", "raise SystemExit(0)"])
def test_a_process_that_ends_with_an_open_result_ends_quietly(scratch: Path, ending: str) -> None:
    code = (
        "import pyarrow as pa\n"
        "from omnigraph.storage.embedded import EmbeddedEngine\n"
        f"engine = EmbeddedEngine(scratch_folder={str(scratch)!r})\n"
        "t = pa.table({'x': range(1_000_000)})\n"
        "reader = engine.run('SELECT x FROM t', {'t': t.to_reader})\n"
        f"reader.read_next_batch()\n{ending}\n"
    )
    done = run_python(code)
    assert (done.stdout, done.stderr) == ("", "")
    assert list(scratch.iterdir()) == []


# -- threads ------------------------------------------------------------------------------------------


def test_threads_may_share_an_engine(engine: EmbeddedEngine) -> None:
    def count(number: int) -> int:
        mine = pa.table({"x": range(number)})
        rows = answer(engine, "SELECT count(*) AS n FROM t a JOIN t b USING (x)", {"t": streamed(mine)})
        return int(rows[0][0])

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(count, range(1, 41))) == list(range(1, 41))


def test_results_may_be_open_side_by_side(engine: EmbeddedEngine) -> None:
    one = engine.run("SELECT x FROM t", {"t": numbers(100)})
    one.read_next_batch()
    two = engine.run("SELECT count(*) AS n FROM t", {"t": numbers(3)})
    assert two.read_all().to_pylist() == [{"n": 30_000}]
    assert sum(batch.num_rows for batch in one) > 0
