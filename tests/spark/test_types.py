"""Every type of the schema language, through Spark and back, and the types that are refused."""

from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from chispa import assert_df_equality
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as t

import omnigraph as og
from omnigraph.errors import InvalidDataError, InvalidOptionError
from omnigraph.model.catalog import Catalog
from omnigraph.rules.schema_compile import FreshIds, compile_schema
from pyspark_omnigraph.types import check_read_schema, check_write_schema, from_spark, spark_schema

EVERY_TYPE = """
node Thing {
    name: String @key
    flag: Bool?
    small: I32?  big: I64?  plain: U32?  huge: U64?
    single: F32?  double: F64?
    day: Date?  moment: DateTime?
    blob: Blob?
    vector: Vector(3)?
    color: enum(red, green)?
    texts: [String]?  flags: [Bool]?  numbers: [I32]?  bigs: [I64]?  plains: [U32]?  huges: [U64]?
    singles: [F32]?  doubles: [F64]?  days: [Date]?  moments: [DateTime]?
}
"""
DDL = (
    "name string, flag boolean, small int, big bigint, plain bigint, huge decimal(20,0), single float, double double, "
    "day date, moment timestamp, blob binary, vector array<float>, color string, texts array<string>, "
    "flags array<boolean>, numbers array<int>, bigs array<bigint>, plains array<bigint>, huges array<decimal(20,0)>, "
    "singles array<float>, doubles array<double>, days array<date>, moments array<timestamp>"
)
DAY, NOON = date(2026, 11, 1), datetime(2026, 11, 1, 12, 30, 15, 123456, tzinfo=UTC)
FULL: tuple[Any, ...] = (
    "Ann",
    True,
    -(2**31),
    -(2**63),
    2**32 - 1,
    Decimal(2**64 - 1),
    0.5,
    1e300,
    DAY,
    NOON,
    b"\x00\xff bytes",
    [1.0, 2.0, -0.5],
    "red",
    ["a", None, "ü"],
    [True, None],
    [1, None],
    [2**62],
    [2**32 - 1, None],
    [Decimal(2**64 - 1), None],
    [0.25],
    [],
    [DAY, None],
    [NOON],
)
NOTHING: tuple[Any, ...] = ("Bob", *([None] * 22))


def kind(schema: str) -> Any:
    numbers = iter(range(10_000))
    catalog: Catalog = compile_schema(schema, FreshIds(lambda: f"{next(numbers):026}"))
    return catalog.table_types[0]


@pytest.fixture
def everything(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([FULL, NOTHING], DDL)


def test_every_type_comes_back_as_it_was_written(
    spark: SparkSession, rooted: Callable[[str], str], everything: DataFrame
) -> None:
    root = rooted(EVERY_TYPE)
    everything.write.format("omnigraph").mode("append").option("type", "Thing").save(root)
    back = spark.read.format("omnigraph").option("type", "Thing").load(root)
    assert back.columns == ["id", *everything.columns]
    assert_df_equality(back.drop("id"), everything, ignore_row_order=True)
    (stored,) = og.open(root, read_only=True).snapshot().read("Thing", where="name = 'Ann'").to_pylist()
    assert stored["huge"] == 2**64 - 1
    assert stored["moment"] == NOON
    assert stored["vector"] == [1.0, 2.0, -0.5]
    assert stored["blob"] == b"\x00\xff bytes"


def test_lists_without_a_single_text_are_taken_though_spark_4_0_sends_no_offsets_for_the_texts(tmp_path: Path) -> None:
    # A vector of no texts needs no offsets, says Spark 4.0; what lies at their place is no offset either.
    nowhere = pa.py_buffer(b"\xff" * 16).slice(0, 0)
    texts = pa.Array.from_buffers(pa.string(), 0, [None, nowhere, nowhere])
    nulls, offsets = pa.py_buffer(b"\x01"), pa.py_buffer(bytes(12))
    lists = pa.Array.from_buffers(pa.list_(pa.string()), 2, [nulls, offsets], children=[texts])
    graph = og.init(tmp_path / "g", "node A { x: String @key  texts: [String]? }")
    batch = pa.record_batch([pa.array(["a", "b"]), lists], names=["x", "texts"])
    with graph.transaction() as tx:
        tx.append("A", pa.Table.from_batches(from_spark(graph.snapshot().catalog.table_type("A"), [batch])))
    stored = graph.snapshot().read("A").to_pylist()
    assert {row["x"]: row["texts"] for row in stored} == {"a": [], "b": None}


def test_timestamps_are_moments_whatever_zone_the_session_is_in(
    spark: SparkSession, rooted: Callable[[str], str]
) -> None:
    root = rooted("node A { x: String @key  at: DateTime }")
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        frame = spark.sql("SELECT 'a' AS x, TIMESTAMP '2026-01-01 00:00:00' AS at")
        frame.write.format("omnigraph").mode("append").option("type", "A").save(root)
        shown = spark.read.format("omnigraph").option("type", "A").load(root).selectExpr("CAST(at AS string)")
        assert shown.collect()[0][0] == "2026-01-01 00:00:00"
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(before))
    stored = og.open(root, read_only=True).snapshot().read("A").to_pylist()
    assert stored[0]["at"] == datetime(2026, 1, 1, 5, tzinfo=UTC)


def test_numbers_that_fit_are_taken_in_any_width_and_those_that_do_not_are_refused(
    spark: SparkSession, rooted: Callable[[str], str]
) -> None:
    root = rooted("node A { x: String @key  small: I32  huge: U64 }")
    good = spark.createDataFrame([("a", 5, 7)], "x string, small bigint, huge int")
    good.write.format("omnigraph").mode("append").option("type", "A").save(root)
    assert og.open(root).snapshot().read("A").to_pylist() == [{"id": "a", "x": "a", "small": 5, "huge": 7}]
    for bad in (("b", 2**31, 1), ("b", 1, -1)):
        frame = spark.createDataFrame([bad], "x string, small bigint, huge int")
        with pytest.raises(AnalysisException, match=r"\[INVALID_DATA\] node:A"):
            frame.write.format("omnigraph").mode("append").option("type", "A").save(root)
    assert og.open(root).snapshot().count("A") == 1


def test_the_columns_of_an_edge_are_its_ids_and_its_properties() -> None:
    schema = "node P { x: String @key } edge K: P -> P { since: Date? }"
    numbers = iter(range(10_000))
    edge = compile_schema(schema, FreshIds(lambda: f"{next(numbers):026}")).edges[0]
    assert spark_schema(edge).simpleString() == "struct<id:string,src:string,dst:string,since:date>"


@pytest.mark.parametrize(
    ("column", "given", "says"),
    [
        ("small", t.DecimalType(10, 2), "decimals are not stored: cast it to int"),
        ("huge", t.DecimalType(20, 2), "decimals are not stored"),
        ("double", t.DecimalType(20, 0), "cast it to double"),
        ("moment", t.TimestampNTZType(), "it has no time zone"),
        ("moment", t.DateType(), "cast it to timestamp"),
        ("small", t.StringType(), "cast it to int"),
        ("texts", t.StringType(), "cast it to array<string>"),
        ("vector", t.ArrayType(t.StringType()), "cast it to array<float>"),
        ("name", t.StructType([]), "cast it to string"),
        ("name", t.MapType(t.StringType(), t.StringType()), "cast it to string"),
        ("nmae", t.StringType(), "did you mean 'name'"),
    ],
)
def test_types_that_can_not_be_stored_are_refused_before_any_task(column: str, given: t.DataType, says: str) -> None:
    with pytest.raises(InvalidDataError, match=says):
        check_write_schema(kind(EVERY_TYPE), t.StructType([t.StructField(column, given)]))


def test_a_null_type_and_whole_decimals_for_u64_are_taken() -> None:
    given = t.StructType([t.StructField("huge", t.DecimalType(20, 0)), t.StructField("day", t.NullType())])
    check_write_schema(kind(EVERY_TYPE), given)


def test_a_schema_for_reading_names_some_columns_with_their_types() -> None:
    thing = kind(EVERY_TYPE)
    fine = t.StructType(
        [t.StructField("vector", t.ArrayType(t.FloatType(), False)), t.StructField("id", t.StringType())]
    )
    assert check_read_schema(thing, fine) == ("vector", "id")
    with pytest.raises(InvalidOptionError, match="names no column"):
        check_read_schema(thing, t.StructType([]))
    with pytest.raises(InvalidOptionError, match="has no column"):
        check_read_schema(thing, t.StructType([t.StructField("nothing", t.StringType())]))
