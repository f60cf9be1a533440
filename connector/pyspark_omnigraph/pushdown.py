"""A scan of the SQL catalog: like any other read, with the columns, filter and limit that Spark pushed.

It goes on from the source that told the catalog of the table, which knows what is read. What this scan is to read of it
comes with the schema it is planned for: so Python is asked once, and not for a source of its own first.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from omnigraph.engine.shares import Share
from omnigraph.engine.table_at import TableAt
from omnigraph.errors import InvalidOptionError
from pyspark_omnigraph.filters import expression
from pyspark_omnigraph.options import INTERNAL, ReadOptions
from pyspark_omnigraph.pieces import pieces
from pyspark_omnigraph.reader import OmnigraphReader, Pinned, SharePartition
from pyspark_omnigraph.types import arrow_out, check_read_schema, to_spark
from pyspark_omnigraph.workers import settle

ASKED: Final = "asked"
READ: Final = "_read"
"""Which columns a scan is to read: its own schema is one of pieces."""
FILTER: Final = "_filter"
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
    def pushed(cls, at: TableAt | None, known: Mapping[str, str], pieces: StructType) -> "PushedReader":
        """Divide a read of what the catalog was told of; ``pieces`` carries what is asked for."""
        asked = _asked(pieces)
        if at is None or asked is None:
            raise InvalidOptionError("option '_op' is set by the SQL catalog only; leave it away")
        schema, where = StructType.fromJson(json.loads(asked.pop(READ))), expression(asked.pop(FILTER), at.kind)
        options = ReadOptions.parse({"path": known["path"], "type": known["type"], **asked})
        _refuse_given(asked)
        pinned = Pinned(options=options, at=at)
        named = StructType([field for field in schema if field.name != ROW_ID])
        columns = dict.fromkeys(["id"] if len(named) < len(schema) else [])
        columns |= dict.fromkeys(check_read_schema(pinned.kind, named) if len(named) else ())
        shares = pinned.shares(tuple(columns), where)
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


def _asked(pieces: StructType) -> dict[str, str] | None:
    """Return what the catalog's Java put beside the one column of pieces."""
    found = pieces.fields[0].metadata.get(ASKED) if len(pieces) == 1 else None
    return {str(name): str(value) for name, value in found.items()} if isinstance(found, dict) else None


def _refuse_given(asked: Mapping[str, str]) -> None:
    """Refuse what a caller wrote beside the name of a table: that says all there is to say."""
    for name in asked:
        if name not in INTERNAL:
            raise InvalidOptionError(
                f"option {name[:60]!r} has no place in a read by SQL: which table, branch and version are said in the "
                "statement, and how to reach the storage where the catalog is configured; or use the data source",
                option=name[:60],
            )


def _stored(name: str) -> str:
    return "id" if name == ROW_ID else name
