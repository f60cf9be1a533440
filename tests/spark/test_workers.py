"""Spark's workers are not kept busy by what they have loaded."""

import gc
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import SparkSession

from pyspark_omnigraph import workers


def freezing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Settle more often than there is anything to load; tell how many objects the collector no longer looks at."""
    import gc

    from pyspark_omnigraph.workers import LOADS_MAX, settle

    assert sum(batch.num_rows for batch in batches) == 1
    frozen = []
    for _ in range(LOADS_MAX + 2):
        kept = [[] for _ in range(100)]  # type: ignore[var-annotated]
        settle()
        frozen.append(gc.get_freeze_count())
        del kept
    yield pa.RecordBatch.from_pydict({"frozen": pa.array(frozen, pa.int64())})


def test_a_worker_no_longer_looks_for_garbage_among_its_modules(spark: SparkSession) -> None:
    found = [row.frozen for row in spark.range(1).coalesce(1).mapInArrow(freezing, "frozen long").collect()]
    assert found[0] > 10_000, "modules have many objects"
    assert found[-1] == found[-2], "what comes later is ordinary again"


def test_a_driver_is_left_alone() -> None:
    before = gc.get_freeze_count()
    workers.settle()
    assert gc.get_freeze_count() == before
