"""The difference between two commits as DataFrames: rows are compared by Spark when they are asked for."""

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame

from omnigraph.engine.diff_rows import TOLD
from omnigraph.engine.diffing import Diff
from omnigraph.model.diffs import TableDiff
from omnigraph.model.lineage import Commit
from omnigraph.storage.relations import Relation
from pyspark_omnigraph.engine import SparkEngine


class SparkDiff:
    """What became of a graph's rows from one commit to another."""

    def __init__(self, engine: SparkEngine, diff: Diff) -> None:
        self._engine = engine
        self._diff = diff

    def __repr__(self) -> str:
        return f"<SparkDiff {self._diff!r}>"

    @property
    def old(self) -> Commit:
        """The commit that rows were at."""
        return self._diff.old

    @property
    def new(self) -> Commit:
        """The commit that rows are at."""
        return self._diff.new

    @property
    def tables(self) -> Mapping[str, TableDiff]:
        """The tables that differ, by their keys, with the number of rows that were inserted, updated and deleted."""
        return self._diff.tables

    @property
    def is_empty(self) -> bool:
        """Whether both commits have the same rows of the same columns."""
        return self._diff.is_empty

    def rows(self, type: str | None = None) -> DataFrame:
        """Return the rows of a type that differ, ``before`` and ``after`` as structs; without one those of all types.

        Types have different columns, so for all types ``before`` and ``after`` are JSON, and a blob in them is told by
        a digest. Nothing is compared before the DataFrame is used.
        """
        if type is not None:
            return self._engine.frame(self._diff.shown(type))
        return every(self._engine, self._diff.told() or (TOLD.empty_table(),))

    def to_dict(self) -> dict[str, Any]:
        """Return plain values: both commits, and the counts of every table that differs."""
        return self._diff.to_dict()

    def _repr_html_(self) -> str:
        return self._diff._repr_html_()


def every(engine: SparkEngine, relations: Sequence[Relation]) -> DataFrame:
    """Return the rows of several relations of one form."""
    return reduce(lambda one, other: one.unionByName(other), map(engine.frame, relations))
