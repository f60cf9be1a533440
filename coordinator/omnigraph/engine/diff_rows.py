"""What becomes of rows that differ: shown by the names of their columns, or told as text for all types alike."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from omnigraph.engine.row_changes import RowChanges
from omnigraph.model.schema import ENDPOINT_COLUMNS
from omnigraph.rules.row_changes import ComparedTable, changed_columns, changes_of, field_of
from omnigraph.rules.row_texts import row_texts
from omnigraph.rules.values import Column, compute
from omnigraph.storage.lance_diff import blobs_at
from omnigraph.storage.relations import Made
from omnigraph.storage.roots import StorageOptions

BLOB_ROWS_MAX: Final = 64  # blobs may be large, and a batch of them is read whole
CHANGED_NAMES: Final = pa.list_(pa.string())
TOLD: Final = pa.schema(
    [
        *((name, pa.string()) for name in ("type", "change", "id", *ENDPOINT_COLUMNS)),
        ("changed", CHANGED_NAMES),
        *((name, pa.string()) for name in ("before", "after")),
    ]
)


def shown(changes: RowChanges) -> Made:
    """Return the rows of a table that differ, with both images by the names of their columns."""
    make = ShowingRows.of(changes)
    return Made(rows=changes.changed, given=changed_schema(changes.table), make=make, schema=make.schema)


def told(changes: RowChanges) -> Made:
    """Return the rows of a table that differ in the form that all types have, images as JSON."""
    make = TellingRows(table=changes.table)
    return Made(rows=changes.changed, given=changed_schema(changes.table), make=make, schema=TOLD)


def changed_schema(table: ComparedTable) -> pa.Schema:
    """Return the columns of what :data:`omnigraph.rules.row_changes.CHANGED` finds."""
    row = table.row_type
    types: dict[str, pa.DataType] = {"id": pa.string(), "old": row, "new": row}
    return pa.schema([*types.items(), *((name, pa.int64()) for name in ("old_at", "old_place", "new_at"))])


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowingRows:
    """Makes rows that differ into what people ask for; blobs are read again, by where they are."""

    table: ComparedTable
    uri: str
    old: int | None
    new: int | None
    """The versions that are compared; none where there are no rows."""
    options: StorageOptions

    @classmethod
    def of(cls, changes: RowChanges) -> "ShowingRows":
        """Return how the rows of a table are shown."""
        old, new = (None if at.pin is None else at.pin.lance_version for at in (changes.old, changes.new))
        return cls(table=changes.table, uri=changes.uri, old=old, new=new, options=changes.session.root.options)

    @property
    def schema(self) -> pa.Schema:
        """The columns: ``change``, ``id``, ends of edges, ``changed``, ``before``, ``after``."""
        table = self.table
        image = self._image_type if table.columns else table.row_type
        ends = [(name, pa.string()) for name in ENDPOINT_COLUMNS] if table.is_edge else []
        named = [("change", pa.string()), ("id", pa.string()), *ends, ("changed", CHANGED_NAMES)]
        return pa.schema([*named, ("before", image), ("after", image)])

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Show all of them."""
        has_blobs = any(column.is_blob for column in self.table.columns)
        for batch in batches:
            step = BLOB_ROWS_MAX if has_blobs else max(1, batch.num_rows)
            for start in range(0, batch.num_rows, step):
                yield self._shown(batch.slice(start, step))

    def _shown(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        images = self._image(rows, "old", self.old), self._image(rows, "new", self.new)
        columns = [changes_of(rows), rows.column("id"), *_ends(self.table, rows), changed_columns(self.table, rows)]
        return pa.RecordBatch.from_arrays([*columns, *images], schema=self.schema)

    def _image(self, rows: pa.RecordBatch, side: str, version: int | None) -> Column:
        """Return the rows of one side by the names of their columns, blobs as their bytes."""
        structs, parts = rows.column(side), []
        for number, column in enumerate(self.table.columns):
            part = field_of(structs, number)
            if column.is_blob:
                name = column.old_name if side == "old" else column.new_name
                part = self._blobs(name, rows.column(f"{side}_at"), version)
            parts.append(part)
        wanted: Any = self._image_type
        fitted = [part.cast(field.type) for part, field in zip(parts, wanted, strict=True)]
        if not fitted:
            fitted, wanted = [pa.nulls(len(structs), pa.bool_())], [pa.field("c0", pa.bool_())]
        return pa.StructArray.from_arrays(fitted, fields=list(wanted), mask=compute.is_null(structs))

    def _blobs(self, name: str, at: Column, version: int | None) -> Column:
        if version is None:
            return pa.nulls(len(at), pa.large_binary())
        return blobs_at(self.uri, version, name, at, self.options)

    @property
    def _image_type(self) -> pa.DataType:
        columns = self.table.columns
        types = [pa.large_binary() if column.is_blob else column.type for column in columns]
        return pa.struct([pa.field(column.name, kind) for column, kind in zip(columns, types, strict=True)])


@dataclass(frozen=True, slots=True, kw_only=True)
class TellingRows:
    """Makes rows that differ into the form that all types have; a blob is told by its digest."""

    table: ComparedTable

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Tell all of them."""
        for rows in batches:
            count = rows.num_rows
            type: Column = pa.repeat(pa.scalar(self.table.key.partition(":")[2]), count)
            ends = _ends(self.table, rows) or [pa.nulls(count, pa.string())] * len(ENDPOINT_COLUMNS)
            images = [row_texts(self.table, rows.column(side)) for side in ("old", "new")]
            columns = [type, changes_of(rows), rows.column("id"), *ends, changed_columns(self.table, rows), *images]
            yield pa.RecordBatch.from_arrays(columns, schema=TOLD)


def _ends(table: ComparedTable, rows: pa.RecordBatch) -> list[Column]:
    """Return the ends of edges: as they are, or of a deleted edge as they were."""
    if not table.is_edge:
        return []
    return [
        compute.coalesce(field_of(rows.column("new"), number), field_of(rows.column("old"), number))
        for number in range(len(ENDPOINT_COLUMNS))
    ]
