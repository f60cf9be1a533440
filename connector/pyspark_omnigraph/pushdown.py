"""A scan of the SQL catalog: like any other read, with the columns, filter and limit that Spark pushed."""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from omnigraph.engine.shares import Share
from pyspark_omnigraph.filters import expression
from pyspark_omnigraph.reader import OmnigraphReader, Pinned, SharePartition
from pyspark_omnigraph.types import arrow_out, check_read_schema, to_spark
from pyspark_omnigraph.workers import settle

ROW_ID = "_id"
"""The id of a row under a name that no column has: Spark reads it beside the columns, to name rows in a change."""


class PushedReader(OmnigraphReader):
    """Streams the rows that a filter finds; what it is asked for as ``_id`` is the id."""

    def __init__(self, shares: tuple[Share, ...], wanted: pa.Schema, names: tuple[str, ...]) -> None:
        super().__init__(shares, wanted)
        self._names = names

    def __getstate__(self) -> dict[str, object]:
        return {**super().__getstate__(), "_names": self._names}

    @classmethod
    def pushed(cls, pinned: Pinned, schema: StructType, filter: str) -> "PushedReader":
        """Divide the read of the columns of ``schema``."""
        named = StructType([field for field in schema if field.name != ROW_ID])
        columns = dict.fromkeys(["id"] if len(named) < len(schema) else [])
        columns |= dict.fromkeys(check_read_schema(pinned.kind, named) if len(named) else ())
        shares = pinned.shares(tuple(columns), expression(filter, pinned.kind))
        return cls(shares, arrow_out(pinned.kind, tuple(columns)), tuple(schema.names))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Stream one share."""
        settle()
        if not isinstance(partition, SharePartition):
            return
        for batch in partition.share.batches():
            if batch.num_rows:
                yield self._named(to_spark(batch, self._wanted))

    def _named(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the columns in the order and under the names Spark asked for."""
        columns = [batch.column("id" if name == ROW_ID else name) for name in self._names]
        return pa.RecordBatch.from_arrays(columns, names=list(self._names))
