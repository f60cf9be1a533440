"""A scan of the SQL catalog: like any other read, with the columns, filter and limit that Spark pushed."""

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from omnigraph.engine.shares import Share
from pyspark_omnigraph.filters import expression
from pyspark_omnigraph.pieces import pieces
from pyspark_omnigraph.reader import OmnigraphReader, Pinned, SharePartition
from pyspark_omnigraph.types import arrow_out, check_read_schema, to_spark
from pyspark_omnigraph.workers import settle

ROW_ID = "_id"
"""The id of a row under a name that no column has: Spark reads it beside the columns, to name rows in a change."""


class PushedReader(OmnigraphReader):
    """Streams the rows that a filter finds, in pieces; what it is asked for as ``_id`` is the id."""

    def __init__(self, shares: tuple[Share, ...], wanted: pa.Schema, names: tuple[str, ...]) -> None:
        super().__init__(shares, wanted)
        self._names = names

    def __getstate__(self) -> dict[str, object]:
        return {**super().__getstate__(), "_names": self._names}

    @classmethod
    def pushed(cls, pinned: Pinned, read: str, filter: str) -> "PushedReader":
        """Divide the read of the columns of ``read``, a schema as JSON."""
        schema = StructType.fromJson(json.loads(read))
        named = StructType([field for field in schema if field.name != ROW_ID])
        columns = dict.fromkeys(["id"] if len(named) < len(schema) else [])
        columns |= dict.fromkeys(check_read_schema(pinned.kind, named) if len(named) else ())
        shares = pinned.shares(tuple(columns), expression(filter, pinned.kind))
        return cls(shares, arrow_out(pinned.kind, tuple(columns)), tuple(schema.names))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Stream one share."""
        settle()
        if not isinstance(partition, SharePartition):
            return iter(())
        shown = pa.schema([self._wanted.field(_stored(name)).with_name(name) for name in self._names])
        return pieces((self._shown(batch, shown) for batch in partition.share.batches()), shown)

    def _shown(self, batch: pa.RecordBatch, shown: pa.Schema) -> pa.RecordBatch:
        """Return the columns in the order and under the names Spark asked for."""
        fitted = to_spark(batch, self._wanted)
        columns: list[Any] = [fitted.column(_stored(name)) for name in shown.names]
        return pa.RecordBatch.from_arrays(columns, schema=shown)


def _stored(name: str) -> str:
    return "id" if name == ROW_ID else name
