"""The relational engine on Spark: the coordinator's plans, run over relations that the executors read.

Every plan is the same text as for the engine in the driver. Relations in parts become DataFrames whose tasks read one
part each; of what a plan finds, only what is asked for comes to the driver.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final, assert_never

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql import types as spark_types

from omnigraph.errors import InvalidOptionError
from omnigraph.storage.relations import Found, Made, Readable, Relation, Spread, Values, in_types
from pyspark_omnigraph.describing import described, parallelism_of
from pyspark_omnigraph.errors import ours
from pyspark_omnigraph.workers import begin

MOMENT: Final = pa.timestamp("us", tz="UTC")
ROWS_MIN: Final = 10_000_000
"""From so many rows on a job is worth it: the driver checks a few million in seconds, and without a shuffle."""
TASKS_MIN: Final = 16
"""From so many tasks on a join is worth it: to look through a table costs a task a tenth of its part in a shuffle."""
_PLAIN: Final[tuple[tuple[Callable[[Any], bool], spark_types.DataType, Any], ...]] = (
    (pa.types.is_string, spark_types.StringType(), pa.string()),
    (pa.types.is_boolean, spark_types.BooleanType(), pa.bool_()),
    (pa.types.is_int32, spark_types.IntegerType(), pa.int32()),
    (pa.types.is_int64, spark_types.LongType(), pa.int64()),
    (pa.types.is_uint32, spark_types.LongType(), pa.int64()),
    (pa.types.is_uint64, spark_types.DecimalType(20, 0), pa.decimal128(20, 0)),
    (pa.types.is_float32, spark_types.FloatType(), pa.float32()),
    (pa.types.is_float64, spark_types.DoubleType(), pa.float64()),
    (pa.types.is_date32, spark_types.DateType(), pa.date32()),
    (pa.types.is_timestamp, spark_types.TimestampType(), MOMENT),
    (pa.types.is_binary, spark_types.BinaryType(), pa.binary()),
    (pa.types.is_large_binary, spark_types.BinaryType(), pa.binary()),
)
_FOUND: Final = "count long, rows binary"
NOTHING: Final = pa.table({})


class SparkEngine:
    """Runs plans as Spark jobs."""

    def __init__(self, spark: SparkSession, rows_min: int = ROWS_MIN, tasks_min: int = TASKS_MIN) -> None:
        self._spark = spark
        self._rows_min = rows_min
        self._tasks_min = tasks_min
        self._kept: dict[int, DataFrame] = {}

    @property
    def parallelism(self) -> int:
        """How many parts are read at once."""
        return parallelism_of(self._spark) or shuffle_partitions(self._spark)

    def takes(self, rows: int) -> bool:
        """Tell whether so many rows are worth a job."""
        return rows >= self._rows_min

    def joins(self, rows: int) -> bool:
        """Tell whether rows are better joined with a table of so many than looked for in it by every task."""
        return self.takes(rows) and self.parallelism >= self._tasks_min

    def run(self, sql: str, relations: Mapping[str, Relation], values: Values = ()) -> pa.RecordBatchReader:
        """Run one query; all it finds comes to the driver."""
        with ours(), described(self._spark, "omnigraph: checking"):
            found = self.query(sql, relations, values).toArrow()
        return _as_ours(found).to_reader()

    def sampled(
        self, sql: str, relations: Mapping[str, Relation], values: Values = (), *, most: int
    ) -> tuple[int, pa.Table]:
        """Run one query; return how many rows it finds, and at most so many of them."""
        found = self.query(sql, relations, values)
        with ours(), described(self._spark, "omnigraph: checking"):
            parts = found.mapInArrow(_counter(most), _FOUND).collect()
        tables = [pa.ipc.open_stream(part["rows"]).read_all() for part in parts if part["count"]]
        count = sum(int(part["count"]) for part in parts)
        if not tables:
            return 0, arrow_types(found.schema).empty_table()
        return count, _as_ours(pa.concat_tables(tables).slice(0, most))

    def told(self, tasks: Spread, what: str) -> pa.Table:
        """Let a task read each part, and bring here what they tell."""
        with ours(), described(self._spark, what):
            return _as_ours(self.frame(tasks).toArrow())

    def query(self, sql: str, relations: Mapping[str, Relation], values: Values = ()) -> DataFrame:
        """Return what a query finds as a DataFrame."""
        frames = {name: self.frame(relation) for name, relation in relations.items()}
        bound = values if isinstance(values, Mapping) else {}
        return self._spark.sql(_in_sparks_words(sql, frames, bound), args=dict(bound), **frames)

    @contextmanager
    def kept(self, relation: Relation) -> Iterator[None]:
        """Keep the rows of this very relation on the executors, once they are worked out, until the block ends."""
        frame = self.frame(relation).persist()
        self._kept[id(relation)] = frame
        try:
            yield
        finally:
            del self._kept[id(relation)]
            frame.unpersist()

    def frame(self, relation: Relation) -> DataFrame:
        """Return the rows of a relation as a DataFrame."""
        if id(relation) in self._kept:
            return self._kept[id(relation)]
        match relation:
            case Spread(schema=schema, parts=parts):
                return self._read(schema, parts)
            case Found(sql=sql, relations=relations, values=values):
                return self.query(sql, relations, values)
            case Made():
                return self._made(relation)
            case pa.Table():
                return self._given(relation)
            case _ if callable(relation):
                return self._given(relation().read_all())
            case _:
                assert_never(relation)

    def _read(self, schema: pa.Schema, parts: Sequence[Readable]) -> DataFrame:
        wanted, seen = _as_sparks(schema)
        if not parts:
            return self._nothing(seen)
        numbers = self._spark.range(0, len(parts), 1, len(parts))
        return numbers.mapInArrow(_reading(tuple(parts), wanted), seen)

    def _made(self, made: Made) -> DataFrame:
        rows = self.frame(made.rows)
        if made.dealt_by is not None:
            rows = rows.repartition(fn.col(made.dealt_by))
        wanted, seen = _as_sparks(made.schema)
        # A task is sent what makes the rows, and not what they are made of.
        return rows.mapInArrow(_making(replace(made, rows=NOTHING), wanted), seen)

    def _given(self, table: pa.Table) -> DataFrame:
        wanted, seen = _as_sparks(table.schema)
        if table.num_rows == 0:
            return self._nothing(seen)
        return self._spark.createDataFrame(_cast(table, wanted))

    def _nothing(self, seen: spark_types.StructType) -> DataFrame:
        """Return no rows in a way that Spark's planner understands: it then leaves out what is joined with them."""
        columns = [f"CAST(NULL AS {field.dataType.simpleString()}) AS `{field.name}`" for field in seen]
        return self._spark.range(1).selectExpr(*columns).where("false")


def brought(rows: DataFrame) -> Iterator[pa.RecordBatch]:
    """Bring rows to the driver as Arrow, one partition at a time."""
    for packed in rows.mapInArrow(_packed, "rows binary").toLocalIterator():
        yield from pa.ipc.open_stream(packed["rows"])


def _packed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    begin()
    for batch in batches:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        yield pa.RecordBatch.from_arrays([pa.array([sink.getvalue().to_pybytes()], pa.binary())], names=["rows"])


def _reading(
    parts: tuple[Readable, ...], wanted: pa.Schema
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def read(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        begin()
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                for rows in parts[int(number or 0)].batches():
                    yield in_types(rows, wanted)

    return read


def _making(made: Made, wanted: pa.Schema) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def make(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        begin()
        for rows in made.reader(batches):
            yield in_types(rows, wanted)

    return make


def _counter(most: int) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        begin()
        rows, sample = 0, []
        for batch in batches:
            if rows < most and batch.num_rows:
                sample.append(batch.slice(0, most - rows))
            rows += batch.num_rows
        sink = pa.BufferOutputStream()
        if sample:
            with pa.ipc.new_stream(sink, sample[0].schema) as writer:
                for part in sample:
                    writer.write_batch(part)
        columns: list[Any] = [pa.array([rows], pa.int64()), pa.array([sink.getvalue().to_pybytes()], pa.binary())]
        yield pa.RecordBatch.from_arrays(columns, names=["count", "rows"])

    return count


def _in_sparks_words(sql: str, frames: Mapping[str, Any], values: Mapping[str, Any]) -> str:
    """Return a plan with its relations as references to DataFrames, and its parameters as Spark marks them."""
    for name in frames:
        sql = re.sub(rf"(?<!DISTINCT )\b(FROM|JOIN) {name}\b", rf"\1 {{{name}}}", sql)
    for name in values:
        sql = sql.replace(f"${name}", f":{name}")
    return sql


def _as_sparks(schema: pa.Schema) -> tuple[pa.Schema, spark_types.StructType]:
    """Return columns as Spark takes them from Arrow, and as it calls them."""
    pairs = [(field, *_as_spark(field.type)) for field in schema]
    wanted = pa.schema([pa.field(field.name, arrow, field.nullable) for field, arrow, _ in pairs])
    seen = [spark_types.StructField(field.name, kind, field.nullable) for field, _, kind in pairs]
    return wanted, spark_types.StructType(seen)


def _as_spark(kind: Any) -> tuple[Any, spark_types.DataType]:
    if pa.types.is_struct(kind):
        wanted, seen = _as_sparks(pa.schema(list(kind)))
        return pa.struct(list(wanted)), seen
    for is_it, seen_as, arrow in _PLAIN:
        if is_it(kind):
            return arrow, seen_as
    if pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind):
        arrow, element = _as_spark(kind.value_type)
        return pa.list_(pa.field("element", arrow)), spark_types.ArrayType(element, containsNull=True)
    raise InvalidOptionError(f"Spark can not compare values of type {kind}")


def arrow_types(schema: spark_types.StructType) -> pa.Schema:
    """Return the Arrow types of columns of ours that Spark has read."""
    return pa.schema([pa.field(field.name, _back(field.dataType)) for field in schema])


def _back(kind: spark_types.DataType) -> Any:
    if isinstance(kind, spark_types.StructType):
        return pa.struct([pa.field(field.name, _back(field.dataType)) for field in kind])
    if isinstance(kind, spark_types.ArrayType):
        return pa.list_(pa.field("element", _back(kind.elementType)))
    return next(arrow for _, seen, arrow in _PLAIN if seen == kind)


def _cast(table: pa.Table, wanted: pa.Schema) -> pa.Table:
    columns: list[Any] = [table.column(field.name) for field in wanted]
    fitted = [
        each if each.type == field.type else each.cast(field.type) for each, field in zip(columns, wanted, strict=True)
    ]
    return pa.Table.from_arrays(fitted, schema=wanted)


def _as_ours(table: pa.Table) -> pa.Table:
    """Return moments in UTC, whatever zone the session shows them in, and decimals as the numbers they stand for."""
    return _cast(table, pa.schema([pa.field(field.name, _our_type(field.type)) for field in table.schema]))


def _our_type(kind: Any) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _our_type(field.type)) for field in kind])
    if pa.types.is_decimal(kind):
        return pa.uint64()
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", _our_type(kind.value_type)))
    return MOMENT if pa.types.is_timestamp(kind) else kind


def shuffle_partitions(spark: SparkSession) -> int:
    """Return how many tasks there are after a shuffle."""
    return int(spark.conf.get("spark.sql.shuffle.partitions", "2") or 2)
