"""A graph known to the session as a catalog, under a name of its own for every test."""

from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import omnigraph as og
from pyspark_omnigraph import configure

SCHEMA = """
node Person { name: String @key  age: I32?  city: String? }
node Thing { text: String?  flag: Bool?  small: I32?  big: I64?  ratio: F64?  single: F32?  day: Date?  at: DateTime?
             kind: enum(red, green)?  word: U32?  tags: [String]? }
edge Knows: Person -> Person { since: Date? }
"""
NUMBERS = count(1)


@dataclass(frozen=True)
class Sql:
    """A session, a graph, and the catalog's name in that session."""

    spark: SparkSession
    graph: og.Graph
    name: str

    def __call__(self, text: str) -> DataFrame:
        """Run a statement in which ``og`` stands for the catalog."""
        return self.spark.sql(text.replace("og.", self.name + "."))

    def rows(self, text: str) -> list[tuple[Any, ...]]:
        """Return what a query gives, sorted."""
        return sorted((tuple(row) for row in self(text).collect()), key=repr)

    def plan(self, text: str) -> str:
        """Return how a query would be run."""
        return str(self("EXPLAIN " + text).collect()[0][0])

    @property
    def version(self) -> int:
        """The version of main."""
        return self.graph.snapshot("main").commit.version


@pytest.fixture
def sql(spark: SparkSession, tmp_path: Path) -> Sql:
    """A fresh graph with four people and two who know each other."""
    graph = og.init(tmp_path / "sql.omni", SCHEMA)
    name = f"og{next(NUMBERS)}"
    configure(spark, graph.root, name=name)
    with graph.transaction() as tx:
        tx.append("Person", [{"name": n, "age": a, "city": c} for n, a, c in PEOPLE])
        tx.append("Knows", [{"src": "Ann", "dst": "Bob"}, {"src": "Bob", "dst": "Cyd"}])
    return Sql(spark, graph, name)


PEOPLE = [("Ann", 41, "Rome"), ("Bob", 17, "Oslo"), ("Cyd", None, "Rome"), ("Dan", 65, None)]
