"""Bringing rows together with the rows of a table that they replace or take out, by a join.

Where a large table has no index, each task would look for its rows in all of it. Joined once, rows come with the place
of the row they stand for, and are dealt out by place: so a task reads only the parts of the table its rows lie in.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as fn
from pyspark.sql.types import StringType, StructField, StructType

from omnigraph.engine.parts import NUMBER, PLACE, WorkOrder
from omnigraph.model.schema import TableType
from omnigraph.rules.conform import ids_given
from omnigraph.storage.relations import Spread
from pyspark_omnigraph.engine import SparkEngine
from pyspark_omnigraph.types import from_spark
from pyspark_omnigraph.workers import begin

ID: Final = "#id"
FRAGMENT_BITS: Final = 32


def placed(engine: SparkEngine, rows: DataFrame, order: WorkOrder, places: Spread) -> DataFrame:
    """Return rows with the columns NUMBER and PLACE; of rows to delete, only the places of those that are there."""
    there = engine.frame(places).select(
        fn.col("id").alias("#there"), fn.col("number").alias(NUMBER), fn.col("place").alias(PLACE)
    )
    fragment = fn.shiftright(_column(PLACE), FRAGMENT_BITS)
    if order.verb == "delete":
        asked = rows.select(fn.col("id").alias(ID)).distinct()
        return there.join(asked, _column("#there") == _column(ID), "inner").select(_column(PLACE)).repartition(fragment)
    known = _with_ids(rows, order.kind).join(there, _column(ID) == _column("#there"), "left")
    # Rows that are new go wherever their id leads them: by nothing that could be different if a task ran again.
    by_id = fn.when(_column(ID).isNotNull(), fn.xxhash64(_column(ID)))
    by_all = fn.xxhash64(*map(_column, rows.columns))
    spread = fn.coalesce(fragment, by_id, by_all)
    return known.repartition(spread).select(*map(_column, [*rows.columns, NUMBER, PLACE]))


def _with_ids(rows: DataFrame, kind: TableType) -> DataFrame:
    """Return rows with the ids their table will know them by."""
    schema = StructType([*rows.schema.fields, StructField(ID, StringType())])
    return rows.mapInArrow(_identify(kind), schema)


def _identify(kind: TableType) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def identify(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        begin()
        for batch in batches:
            (plain,) = from_spark(kind, [batch])
            yield batch.append_column(ID, ids_given(kind, plain))

    return identify


def _column(name: str) -> Any:
    """Return a column by its name, whatever characters are in it."""
    return fn.col("`" + name.replace("`", "``") + "`")
