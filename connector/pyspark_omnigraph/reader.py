"""Reading a type of one snapshot: planned once, in shares of about equal size, each read by a task of Spark's."""

import os
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

import omnigraph as og
from omnigraph.engine.shares import Share
from omnigraph.engine.table_at import TableAt
from omnigraph.model.schema import TableType
from omnigraph.rules.gq_predicates import Expression
from pyspark_omnigraph.options import ReadOptions
from pyspark_omnigraph.types import arrow_out, check_read_schema, spark_schema, to_spark
from pyspark_omnigraph.workers import Unpacked, settle


@dataclass(frozen=True, slots=True, kw_only=True)
class Pinned:
    """What is read: a type as one commit left it. Planning from it looks at no manifest, so at no newer state."""

    options: ReadOptions
    at: TableAt

    @classmethod
    def now(cls, options: ReadOptions) -> "Pinned":
        """Decide which commit is meant."""
        graph = og.open(options.path, read_only=True, storage_options=dict(options.storage) or None)
        snapshot = graph.snapshot(
            options.branch,
            tag=options.tag,
            commit=options.commit,
            version=options.version,
            timestamp=options.timestamp,
        )
        at = snapshot.table_at(options.type)
        spark_schema(at.kind, options.columns)
        return cls(options=options, at=at)

    @property
    def kind(self) -> TableType:
        """The type that is read."""
        return self.at.kind

    def schema(self) -> StructType:
        """Return the columns of the type."""
        return spark_schema(self.kind, self.options.columns)

    def shares(self, columns: tuple[str, ...], where: Expression | None = None) -> tuple[Share, ...]:
        """Return how the read is divided; what Spark pushed comes in the place of what a caller wrote."""
        return self.at.shares(
            columns=columns,
            where=self.options.filter if where is None else where,
            limit=self.options.limit,
            parallelism=self.options.parallelism or os.cpu_count() or 1,
        )


@dataclass(frozen=True)
class SharePartition(InputPartition):
    """One task's share of a read."""

    share: Share


class OmnigraphReader(Unpacked, DataSourceReader):
    """Streams Arrow batches; it has no ``pushFilters``, because Spark shares its answer between queries."""

    def __init__(self, shares: tuple[Share, ...], wanted: pa.Schema) -> None:
        self._shares = shares
        self._wanted = wanted

    def __getstate__(self) -> dict[str, object]:
        # Every task gets a copy of the reader, and only its own share.
        return {"_shares": (), "_wanted": self._wanted}

    @classmethod
    def planned(cls, pinned: Pinned, schema: StructType) -> "OmnigraphReader":
        """Divide the read of the columns of ``schema``, which is ours or one a caller gave."""
        columns = check_read_schema(pinned.kind, schema)
        return cls(pinned.shares(columns), arrow_out(pinned.kind, columns))

    def partitions(self) -> list[InputPartition]:
        """Return the shares, which were decided when the reader was made."""
        return [SharePartition(share) for share in self._shares]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Stream one share; a table without rows has one partition of Spark's own, and no share."""
        settle()
        if not isinstance(partition, SharePartition):
            return iter(())
        return (to_spark(batch, self._wanted) for batch in partition.share.batches() if batch.num_rows)
