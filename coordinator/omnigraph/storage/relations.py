"""Rows that plans are run over, and whatever runs plans.

A plan is one query over relations whose names are ours. An engine in this process streams them; one that has other
machines reads the parts of a spread relation there, and nothing but what a plan finds comes back.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import pyarrow as pa

from omnigraph.rules.values import Column, compute

Values: TypeAlias = Mapping[str, Any] | Sequence[Any]
Making: TypeAlias = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""Makes rows of rows, a batch at a time."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """Rows that are made of those of another relation, where those are: what makes them can be pickled."""

    rows: "Relation"
    given: pa.Schema
    """What they are made of, by the names and in the types it is handed over in."""
    make: Making
    schema: pa.Schema
    dealt_by: str | None = None
    """A column of what is given: rows that agree in it are handed over together."""

    def reader(self, rows: Iterable[pa.RecordBatch]) -> pa.RecordBatchReader:
        """Stream what is made of rows, which an engine may hold in types of its own."""
        fitted = (in_types(batch, self.given) for batch in rows)
        return pa.RecordBatchReader.from_batches(self.schema, self.make(fitted))


Relation: TypeAlias = Callable[[], pa.RecordBatchReader] | pa.Table | Spread | Found | Made
"""Rows: a table, a function that starts reading them anew each time it is called, parts, what a plan finds or makes."""


def in_types(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the columns that are named, in the types that are wanted; no value changes."""
    columns = [_in_type(batch.column(field.name), field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _in_type(column: Column, wanted: Any) -> Column:
    if column.type == wanted:
        return column
    if not pa.types.is_struct(wanted):
        return column.cast(wanted)
    parts = [_in_type(compute.struct_field(column, [number]), field.type) for number, field in enumerate(wanted)]
    return pa.StructArray.from_arrays(parts, fields=list(wanted), mask=compute.is_null(column))


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

    def kept(self, relation: Relation) -> AbstractContextManager[None]:
        """Keep the rows of this very relation, once they are worked out, where they are, until the block ends."""

    def told(self, tasks: Spread, what: str) -> pa.Table:
        """Read all parts on its machines, each by a task of its own, and bring here what they tell; say what for."""
