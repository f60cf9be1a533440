"""Rows that plans are run over, and whatever runs plans.

A plan is one query over relations whose names are ours. An engine in this process streams them; one that has other
machines reads the parts of a spread relation there, and nothing but what a plan finds comes back.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import pyarrow as pa

Values: TypeAlias = Mapping[str, Any] | Sequence[Any]


class Readable(Protocol):
    """Some rows of a relation, which can be read anywhere: it can be pickled, and holds no handle."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Stream the rows."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Rows in parts, in no order; an engine reads them where it likes, and as often."""

    schema: pa.Schema
    parts: tuple[Readable, ...]

    def reader(self) -> pa.RecordBatchReader:
        """Stream all parts here."""
        rows = (batch for part in self.parts for batch in part.batches())
        return pa.RecordBatchReader.from_batches(self.schema, rows)


@dataclass(frozen=True, slots=True)
class Found:
    """The rows another plan finds."""

    sql: str
    relations: "Mapping[str, Relation]"
    values: Values = field(default_factory=dict)


Relation: TypeAlias = Callable[[], pa.RecordBatchReader] | pa.Table | Spread | Found
"""Rows: a table, a function that starts reading them anew each time it is called, parts, or what a plan finds."""


class RelationalEngine(Protocol):
    """Whatever runs plans: one query over relations that are given to it."""

    def run(self, sql: str, relations: Mapping[str, Relation], values: Values = ()) -> pa.RecordBatchReader:
        """Run one query and stream what it finds; relations are names in it, values are bound to its parameters."""

    def sampled(
        self, sql: str, relations: Mapping[str, Relation], values: Values = (), *, most: int
    ) -> tuple[int, pa.Table]:
        """Run one query; return how many rows it finds, and at most so many of them."""


class ClusterEngine(RelationalEngine, Protocol):
    """An engine that reads the parts of relations on machines of its own, so that whole tables can be given to it."""

    @property
    def parallelism(self) -> int:
        """How many parts it reads at once."""

    def takes(self, rows: int) -> bool:
        """Tell whether work on so many rows is worth a job of its own."""

    def joins(self, rows: int) -> bool:
        """Tell whether rows are better joined with a table of so many than looked for in it by every task."""
