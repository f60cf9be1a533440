"""omnigraph for Spark: the data source ``omnigraph``, and graphs whose rows are DataFrames.

::

    people = spark.read.format("omnigraph").option("type", "Person").load("people.omni")
    people.write.format("omnigraph").mode("append").option("type", "Person").save("copy.omni")

Spark imports this package by itself, in many processes, and a package that fails to import breaks its search for data
sources. So nothing heavy is imported here: neither Lance nor pyarrow, which the first read or write brings in.
"""

from typing import TYPE_CHECKING

from pyspark_omnigraph.source import OmnigraphDataSource as DefaultSource

if TYPE_CHECKING:
    from pyspark_omnigraph.graph import SparkGraph, SparkTransaction
    from pyspark_omnigraph.session import configure
    from pyspark_omnigraph.views import register_function

__all__ = ["DefaultSource", "SparkGraph", "SparkTransaction", "configure", "register_function"]

_LATE = {
    "SparkGraph": "pyspark_omnigraph.graph",
    "SparkTransaction": "pyspark_omnigraph.graph",
    "configure": "pyspark_omnigraph.session",
    "register_function": "pyspark_omnigraph.views",
}


def __getattr__(name: str) -> object:
    """Import what needs more than Spark only when someone asks for it."""
    if name in _LATE:
        from importlib import import_module

        return getattr(import_module(_LATE[name]), name)
    raise AttributeError(f"module 'pyspark_omnigraph' has no attribute {name!r}")
