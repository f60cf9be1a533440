"""Reading what changed on a branch: planned once, in parts that tasks of Spark's read."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as spark
from pyspark.sql.datasource import DataSourceReader, InputPartition

import omnigraph as og
from omnigraph.errors import BranchConflictError, InvalidOptionError
from omnigraph.ids import Incarnation
from omnigraph.model.schema import TableType
from omnigraph.model.targets import AsOf
from omnigraph.rules.feed import EVERY_TYPE, TOLD_FIELDS
from omnigraph.rules.targets import read_target
from omnigraph.storage.relations import Readable
from pyspark_omnigraph.describing import parallelism_of
from pyspark_omnigraph.errors import ours
from pyspark_omnigraph.options import STORAGE, FeedOptions, as_texts
from pyspark_omnigraph.types import arrow_out, columns_of, spark_schema, to_spark
from pyspark_omnigraph.workers import Unpacked, settle

if TYPE_CHECKING:
    from omnigraph.engine.feed_line import Bound
    from pyspark_omnigraph.graph import SparkGraph

MICROSECOND: Final = timedelta(microseconds=1)
_TYPES: Final[dict[str, spark.DataType]] = {
    "_commit_version": spark.LongType(),
    "_commit_timestamp": spark.TimestampType(),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedFeed:
    """Whose changes are read, as which type, and up to which version unless it is a stream."""

    options: FeedOptions
    branch: str
    incarnation: Incarnation
    until: int
    kind: TableType | None

    @classmethod
    def now(cls, options: FeedOptions) -> "PinnedFeed":
        """Decide which branch is meant, and where it ends."""
        graph = opened(options)
        branch = graph.branches.get(graph.branch if options.branch is None else options.branch)
        last = graph.snapshot(branch.name, version=options.ending_version, timestamp=options.ending_timestamp)
        kind = None if options.type is None else last.catalog.table_type(options.type)
        return cls(options=options, branch=branch.name, incarnation=branch.incarnation, until=last.version, kind=kind)

    def schema(self) -> spark.StructType:
        """Return the columns of a feed as Spark sees them."""
        if self.kind is None:
            return spark.StructType([_field(field.name) for field in EVERY_TYPE])
        own = spark_schema(self.kind).fields
        return spark.StructType([*own, *(_field(field.name) for field in TOLD_FIELDS)])

    def wanted(self, given: spark.StructType) -> pa.Schema:
        """Return the Arrow columns of a schema, which is ours or one a caller gave."""
        ours_ = {field.name: field.dataType.simpleString() for field in self.schema()}
        for field in given:
            if ours_.get(field.name) != field.dataType.simpleString():
                raise InvalidOptionError(
                    f"a change feed has no column {field.name[:100]!r} of type {field.dataType.simpleString()}; it has "
                    + ", ".join(f"{name} {kind}" for name, kind in ours_.items())
                )
        if not given.fields:
            raise InvalidOptionError("the schema for a change feed names no column; name at least one, such as id")
        every = EVERY_TYPE if self.kind is None else _with_told(self.kind)
        return pa.schema([every.field(name) for name in given.names])

    def changes(self, graph: og.Graph, since: "Bound | None", until: int, *, is_net: bool) -> og.Changes:
        """Return the changes of a range of the very branch that was pinned."""
        found = graph.changes(self.branch, since=since, until=until, net=is_net)
        refuse_another(found.branch, self.incarnation)
        return found

    def parts(self, changes: og.Changes) -> tuple[Readable, ...]:
        """Return how the read is divided."""
        return changes.parts(self.kind, parallelism=self.options.parallelism or os.cpu_count() or 1)


def opened(options: FeedOptions) -> og.Graph:
    """Open the graph that is read."""
    return og.open(options.path, read_only=True, storage_options=dict(options.storage) or None)


def moment_of(text: str) -> datetime:
    """Return the moment that a text says."""
    target = read_target("", timestamp=text)
    assert isinstance(target, AsOf)  # noqa: S101  a timestamp means nothing else
    return target.moment


def refuse_another(branch: og.Branch, incarnation: str) -> None:
    """Refuse a branch that was deleted and created again: its changes are not those of the other."""
    if branch.incarnation != incarnation:
        raise BranchConflictError(
            f"branch {branch.name!r} was deleted and created again since this read began, so what follows is not known;"
            " begin anew, a stream with a new checkpoint",
            branch=branch.name,
        )


def _field(name: str) -> spark.StructField:
    return spark.StructField(name, _TYPES.get(name, spark.StringType()), nullable=True)


def _with_told(kind: TableType) -> pa.Schema:
    return pa.schema([*arrow_out(kind, tuple(columns_of(kind))), *TOLD_FIELDS])


@dataclass(frozen=True)
class FeedPartition(InputPartition):
    """One task's part of a feed."""

    part: Readable


def read_part(partition: InputPartition, wanted: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Stream one part; a feed without rows has one partition of Spark's own, and no part."""
    settle()
    if not isinstance(partition, FeedPartition):
        return iter(())
    return (to_spark(batch, wanted) for batch in partition.part.batches() if batch.num_rows)


class FeedReader(Unpacked, DataSourceReader):
    """Streams the changes of a range as Arrow batches."""

    def __init__(self, parts: tuple[Readable, ...], wanted: pa.Schema) -> None:
        self._parts = parts
        self._wanted = wanted

    def __getstate__(self) -> dict[str, object]:
        # Every task gets a copy of the reader, and only its own part.
        return {"_parts": (), "_wanted": self._wanted}

    @classmethod
    def planned(cls, pinned: PinnedFeed, schema: spark.StructType) -> "FeedReader":
        """Divide the read of a range that ends where it was pinned."""
        options = pinned.options
        if options.is_from_latest or options.commits_per_trigger is not None:
            raise InvalidOptionError("startingVersion 'latest' and maxCommitsPerTrigger are for streams: readStream")
        wanted = pinned.wanted(schema)
        changes = pinned.changes(opened(options), _since(options, pinned.until), pinned.until, is_net=options.is_net)
        return cls(pinned.parts(changes), wanted)

    def partitions(self) -> list[InputPartition]:
        """Return the parts, which were decided when the reader was made."""
        return [FeedPartition(part) for part in self._parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Stream one part."""
        return read_part(partition, self._wanted)


def _since(options: FeedOptions, until: int) -> "Bound | None":
    """Return what a range begins after; Delta's options name the first commit that is in it."""
    if options.starting_timestamp is not None:
        return moment_of(options.starting_timestamp) - MICROSECOND
    if options.starting_version is None:
        return None
    if options.starting_version > until + 1:
        raise InvalidOptionError(f"startingVersion is {options.starting_version}, but the range ends with {until}")
    return options.starting_version - 1


def changes_frame(  # noqa: PLR0913  (what a feed can be told is what its options are)
    graph: "SparkGraph",
    branch: str | None,
    *,
    type: str | None,
    since: "Bound | None",
    until: "Bound | None",
    net: bool,
    storage: dict[str, str],
) -> DataFrame:
    """Return the changes of a range as a DataFrame that never sees a later commit."""
    found = graph.graph.changes(branch, since=since, until=until, net=net)
    said: dict[str, Any] = {
        "readChangeFeed": "true",
        "branch": found.branch.name,
        "type": type,
        "startingVersion": found.since + 1,
        "endingVersion": max(found.until, 1),
        "netChanges": "true" if net else None,
        "_parallelism": parallelism_of(graph.spark),
    }
    secrets = {STORAGE + name: value for name, value in storage.items()}
    with ours():
        return graph.spark.read.format("omnigraph").options(**as_texts(said), **secrets).load(graph.graph.root)
