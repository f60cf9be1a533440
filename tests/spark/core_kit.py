"""A session, graphs to try it on, and what the core paths ask of both; only the package and PySpark are needed."""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import omnigraph as og
from omnigraph.errors import OmnigraphError

SCHEMA = """
node Person { name: String @key  age: I32?  city: String? }
edge Knows: Person -> Person { since: Date? }
node Thing {
    name: String @key
    flag: Bool?  small: I32?  big: I64?  plain: U32?  huge: U64?  single: F32?  double: F64?
    day: Date?  moment: DateTime?  blob: Blob?  vector: Vector(3)?  color: enum(red, green)?
    texts: [String]?  numbers: [I32]?  days: [Date]?  moments: [DateTime]?
}
"""
PEOPLE = [("Ann", 41, "Rome"), ("Bob", 17, "Oslo"), ("Cyd", None, "Rome"), ("Dan", 65, None)]


@dataclass(frozen=True)
class Here:
    """A session, and a folder to make graphs in."""

    spark: SparkSession
    folder: Path
    numbers: "count[int]" = field(default_factory=lambda: count(1))

    def graph(self, *people: tuple[str, int | None, str | None]) -> og.Graph:
        """Make a graph of these people; if there are any, they are its version 2."""
        graph = og.init(self.folder / f"graph{next(self.numbers)}.omni", SCHEMA)
        if people:
            with graph.transaction() as tx:
                tx.append("Person", [{"name": name, "age": age, "city": city} for name, age, city in people])
        return graph

    def people(self, *rows: tuple[str, int | None], parts: int = 2) -> DataFrame:
        """Return people as a DataFrame of several partitions."""
        return self.spark.createDataFrame(list(rows), "name string, age int").repartition(parts)

    def read(self, graph: og.Graph, **options: Any) -> DataFrame:
        """Read with the data source."""
        return self.spark.read.format("omnigraph").options(**{"type": "Person"} | options).load(graph.root)

    def catalog(self, graph: og.Graph) -> "Sql":
        """Make the graph a catalog of the session."""
        from pyspark_omnigraph import configure

        name = f"og{next(self.numbers)}"
        configure(self.spark, graph.root, name=name)
        return Sql(self.spark, graph, name)


@dataclass(frozen=True)
class Sql:
    """A graph, and its name as a catalog of a session."""

    spark: SparkSession
    graph: og.Graph
    name: str

    def __call__(self, text: str) -> list[tuple[Any, ...]]:
        """Run a statement in which ``og`` stands for the catalog, and return its rows, sorted."""
        return sorted((tuple(row) for row in self.spark.sql(text.replace("og.", self.name + ".")).collect()), key=repr)


def names(frame: DataFrame) -> list[str]:
    """Return the names in a DataFrame."""
    return sorted(row["name"] for row in frame.select("name").collect())


def ages(graph: og.Graph, branch: str = "main") -> dict[str, int | None]:
    """Return who is how old, read without Spark."""
    return {row["name"]: row["age"] for row in graph.snapshot(branch).read("Person").to_pylist()}


def save(frame: DataFrame, graph: og.Graph, mode: str = "append", **options: Any) -> None:
    """Write with the data source."""
    frame.write.format("omnigraph").mode(mode).options(**{"type": "Person"} | options).save(graph.root)


def refusal(act: Callable[[], object]) -> Exception:
    """Return the error that an act ends with."""
    try:
        act()
    except (PySparkException, OmnigraphError) as refused:
        return refused
    raise AssertionError("it was not refused")
