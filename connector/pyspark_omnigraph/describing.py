"""Telling Spark what its jobs are for, where there is a place to tell it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from pyspark.sql import SparkSession

DESCRIPTION: Final = "spark.job.description"


@contextmanager
def described(spark: SparkSession, what: str) -> Iterator[None]:
    """Let Spark's progress bar and its pages say what is being done; over Spark Connect there is no such place."""
    context = context_of(spark)
    before = None if context is None else context.getLocalProperty(DESCRIPTION)
    if context is not None:
        context.setLocalProperty(DESCRIPTION, what)
    try:
        yield
    finally:
        if context is not None:
            context.setLocalProperty(DESCRIPTION, before)


def context_of(spark: SparkSession) -> Any:
    """Return the session's context, or None where there is only a connection."""
    return None if type(spark).__module__.startswith("pyspark.sql.connect") else spark.sparkContext


def parallelism_of(spark: SparkSession) -> int | None:
    """Return how many tasks run at once, or None where only the server knows."""
    context = context_of(spark)
    return None if context is None else int(context.defaultParallelism)
