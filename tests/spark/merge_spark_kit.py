"""Merges and differences that are worked out by Spark's jobs, however few rows there are."""

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import omnigraph as og
from omnigraph.engine.three_way import ThreeWay
from pyspark_omnigraph import SparkGraph
from pyspark_omnigraph.engine import SparkEngine
from pyspark_omnigraph.graph import JOB_ROWS_MIN


def by_jobs(spark: SparkSession, graph: og.Graph) -> SparkGraph:
    """Return a handle for which one row is worth a job."""
    spark.conf.set(JOB_ROWS_MIN, "0")
    try:
        return SparkGraph(spark, graph)
    finally:
        spark.conf.unset(JOB_ROWS_MIN)


@contextmanager
def nothing_in_the_driver() -> Iterator[list[int]]:
    """Let the driver work out nothing row by row; give the number of rows of each answer that came to it."""
    came: list[int] = []
    run = SparkEngine.run

    def sort_out(self: ThreeWay) -> None:
        pytest.fail(f"{self.key} was sorted out in the driver")

    def counted(self: SparkEngine, *args: object, **more: object) -> pa.RecordBatchReader:
        found = run(self, *args, **more).read_all()  # type: ignore[arg-type]
        came.append(found.num_rows)
        return found.to_reader()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ThreeWay, "sort_out", sort_out)
        patch.setattr(SparkEngine, "run", counted)
        yield came
