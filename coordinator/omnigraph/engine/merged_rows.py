"""Rows that a merge brings into a table, as the table stores them: blobs are read from the side each is of."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import pyarrow as pa

from omnigraph.engine.row_changes import RowChanges
from omnigraph.model.schema import TableType
from omnigraph.rules.arrow_schema import BLOB_STORAGE, arrow_schema
from omnigraph.rules.cells import chosen
from omnigraph.rules.row_changes import ComparedTable
from omnigraph.rules.settling import IS_OURS, OURS_AT, OURS_PLACE, THEIRS_AT
from omnigraph.rules.values import Column, compute
from omnigraph.storage.lance_diff import blobs_at
from omnigraph.storage.lance_rows import PlacesSeen
from omnigraph.storage.roots import StorageOptions

BLOB_ROWS_MAX: Final = 64  # blobs may be large, and a batch of them is read whole


@dataclass(frozen=True, kw_only=True)
class MergedRows:
    """Makes rows to put into rows to store; it can be pickled."""

    kind: TableType
    table: ComparedTable
    uri: str
    ours: int | None
    theirs: int | None
    """The versions that blobs are read from; none if a side has no rows."""
    options: StorageOptions

    @classmethod
    def of(cls, kind: TableType, theirs: RowChanges) -> "MergedRows":
        """Return how the rows of a table are made that come from the source of a merge."""
        pins = [None if pin is None else pin.lance_version for pin in (theirs.old.pin, theirs.new.pin)]
        options = theirs.session.root.options
        return cls(kind=kind, table=theirs.table, uri=theirs.uri, ours=pins[0], theirs=pins[1], options=options)

    def reader(self, rows: Iterable[pa.RecordBatch], seen: PlacesSeen) -> pa.RecordBatchReader:
        """Stream the rows, and note where those lie that they replace."""
        return pa.RecordBatchReader.from_batches(arrow_schema(self.kind), self._stored(rows, seen))

    def _stored(self, batches: Iterable[pa.RecordBatch], seen: PlacesSeen) -> Iterator[pa.RecordBatch]:
        schema = arrow_schema(self.kind)
        for batch in batches:
            step = BLOB_ROWS_MAX if self._blobs else max(1, batch.num_rows)
            for start in range(0, batch.num_rows, step):
                rows = batch.slice(start, step)
                seen.note(rows.column(OURS_AT), rows.column(OURS_PLACE))
                blobs = {name: self._blob(rows, name) for name in self._blobs}
                columns = [blobs[name] if name in blobs else rows.column(name) for name in schema.names]
                yield pa.RecordBatch.from_arrays(columns, schema=schema)

    @cached_property
    def _blobs(self) -> list[str]:
        return [column.name for column in self.table.columns if column.is_blob]

    def _blob(self, rows: pa.RecordBatch, name: str) -> Column:
        """Read a column of blobs from the side each row has it of."""
        theirs = self._read_blobs(name, rows.column(THEIRS_AT), self.theirs)
        ours = self._read_blobs(name, rows.column(OURS_AT), self.ours)
        data = chosen(rows.column(IS_OURS + name), ours, theirs)
        parts: Any = [data, pa.nulls(len(data), pa.string())]
        return pa.StructArray.from_arrays(parts, fields=list(BLOB_STORAGE), mask=compute.is_null(data))

    def _read_blobs(self, name: str, at: Column, version: int | None) -> Column:
        if version is None:
            return pa.nulls(len(at), pa.large_binary())
        return blobs_at(self.uri, version, name, at, self.options)
