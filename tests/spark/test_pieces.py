"""Scans of the SQL catalog come as whole columns: what Python cuts into pieces, Java puts together."""

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from chispa import assert_df_equality
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from tests.spark.sql_kit import Sql
from tests.spark.sql_kit import sql as sql  # a fixture
from tests.spark.test_types import DDL, EVERY_TYPE, FULL, NOTHING

import omnigraph as og
from omnigraph.testing.places import place
from pyspark_omnigraph import configure
from pyspark_omnigraph import pieces as cutting

NAMES: pa.Schema = pa.table({"name": [""], "size": [0]}).schema


def batch(*names: str) -> pa.RecordBatch:
    return pa.record_batch([pa.array(names, pa.string()), pa.array(map(len, names), pa.int64())], schema=NAMES)


def put_together(cut: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
    assert all(each.schema == cutting.PIECES for each in cut)
    values = [bytes(value) for each in cut for value in each.column(0).to_pylist() if value is not None]
    assert all(0 < len(value) <= cutting.PIECE_BYTES for value in values)
    return list(pa.ipc.open_stream(b"".join(values)))


@pytest.mark.parametrize("size", [1, 7, 64, 2**18])
def test_pieces_put_together_are_the_stream_they_were_cut_from(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cutting, "PIECE_BYTES", size)
    given = [batch("a", "bc"), batch(), batch("d" * 1_000), batch("ü").slice(0, 1), batch("x", "y", "z").slice(1)]
    found = put_together(list(cutting.pieces(given, NAMES)))
    assert found == [each for each in given if each.num_rows]


def test_a_batch_that_is_too_large_becomes_several_down_to_single_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cutting, "MESSAGE_BYTES_MAX", 50)
    given = batch("a" * 100, *("b" for _ in range(9)), "c" * 100)
    found = put_together(list(cutting.pieces([given], NAMES)))
    assert pa.Table.from_batches(found).combine_chunks() == pa.Table.from_batches([given])
    assert all(each.nbytes <= 50 or each.num_rows == 1 for each in found)
    assert len(found) > 4


def test_no_rows_are_no_pieces() -> None:
    assert list(cutting.pieces([], NAMES)) == []
    assert list(cutting.pieces([batch(), batch()], NAMES)) == []


def test_every_type_comes_through_the_catalog_in_whole_columns(
    spark: SparkSession, rooted: Callable[[str], str]
) -> None:
    root = rooted(EVERY_TYPE)
    everything = spark.createDataFrame([FULL, NOTHING], DDL)
    everything.write.format("omnigraph").mode("append").option("type", "Thing").save(root)
    configure(spark, root, name="of_all_types")
    back = spark.table("of_all_types.main.Thing")
    assert_df_equality(back.drop("id"), everything, ignore_row_order=True)
    back.createOrReplaceTempView("shown")
    assert "ColumnarToRow" in str(spark.sql("EXPLAIN SELECT * FROM shown").collect()[0][0])


def test_values_that_are_larger_than_a_piece_come_whole(spark: SparkSession, tmp_path: Path) -> None:
    graph = og.init(tmp_path / "g", "node File { name: String @key  body: Blob?  text: String? }")
    sizes = [0, 1, cutting.PIECE_BYTES - 1, cutting.PIECE_BYTES, 3 * cutting.PIECE_BYTES + 5]
    bodies = {f"f{size}": bytes(number % 251 for number in range(size)) for size in sizes}
    with graph.transaction() as tx:
        rows = [{"name": name, "body": body, "text": "ß" * len(body)} for name, body in bodies.items()]
        tx.append("File", [*rows, {"name": "none"}])
    configure(spark, graph.root, name="of_files")
    found = spark.sql("SELECT name, md5(body), length(text), md5(text) FROM of_files.main.File").collect()
    wanted = {name: (_md5(body), len(body), _md5(("ß" * len(body)).encode())) for name, body in bodies.items()} | {
        "none": (None, None, None)
    }
    assert {row[0]: tuple(row)[1:] for row in found} == wanted


def _md5(body: bytes) -> str:
    return hashlib.md5(body, usedforsecurity=False).hexdigest()


@pytest.fixture(scope="module")
def crowd(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A table whose shares have many batches each, known to the session."""
    graph = og.init(tmp_path_factory.mktemp("crowd") / "g", "node Person { name: String @key  city: String  n: I64 }")
    numbers = range(400_000)
    rows = {
        "name": [f"p{n}" for n in numbers],
        "city": [f"city {n % 7}" for n in numbers],
        "n": [n if n % 3 else n - 1 for n in numbers],
    }
    with graph.transaction() as tx:
        tx.append("Person", pa.table(rows))
    configure(spark, graph.root, name="of_crowds")
    return "of_crowds.main.Person"


def test_what_is_computed_of_many_batches_is_what_a_read_row_by_row_gives(spark: SparkSession, crowd: str) -> None:
    root = spark.conf.get("spark.sql.catalog.of_crowds.root")
    plain = spark.read.format("omnigraph").option("type", "Person").load(root)
    whole = spark.table(crowd)
    for one in (whole, whole.cache()):
        grouped = [
            frame.groupBy("city").agg(f.min("name"), f.max("name"), f.sum("n"), f.countDistinct("name"))
            for frame in (one, plain)
        ]
        assert_df_equality(grouped[0], grouped[1], ignore_row_order=True)
        joined = one.alias("a").join(one.alias("b"), f.expr("a.n = b.n AND a.name < b.name"))
        assert joined.count() == 133_333
    whole.unpersist()
    assert spark.sql(f"SELECT count(*), count(name), sum(length(name)) FROM {crowd}").collect() == [
        (400_000, 400_000, sum(len(f"p{n}") for n in range(400_000)))
    ]


def test_who_stops_early_gives_all_memory_back(spark: SparkSession, crowd: str) -> None:
    # An allocator that is closed with memory in use is an error, which would end the task and so the query.
    for limit in (1, 10, 131_073):
        rows = spark.sql(f"SELECT name FROM {crowd} WHERE rand() >= 0 LIMIT {limit}").collect()
        assert len({row[0] for row in rows}) == limit
    assert spark.sql(f"SELECT name FROM {crowd} WHERE rand() < 0").collect() == []


def test_a_file_that_is_gone_ends_the_query_with_its_own_error(sql: Sql) -> None:
    frame = sql("SELECT * FROM og.main.Person")
    assert frame.count() == 4
    for file in list(place(sql.graph.root).glob("nodes/*/data/*.lance")):
        file.unlink()
    with pytest.raises(PySparkException, match=r"(?i)not found|does not exist|no such file"):
        sql("SELECT name, age FROM og.main.Person WHERE age > 0").collect()
