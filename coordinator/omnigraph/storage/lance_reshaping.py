"""Giving the rows of a version other columns, in files that nothing refers to yet.

A column that is renamed, dropped, reordered, or new and null costs nothing: its rows are not looked at. One whose
values are made from others is written into new files beside those that are there, and nothing else is.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from lance import LanceDataset
from lance.fragment import FragmentMetadata

from omnigraph.model.staged import StagedReshape
from omnigraph.rules.values import Column as Values
from omnigraph.storage.lance_door import BIRTH_VERSION
from omnigraph.storage.lance_fields import (
    Column,
    Columns,
    new_column,
    numbers_in_use,
    renamed,
    width,
)
from omnigraph.storage.lance_rows import (
    DATA,
    as_written,
    fragment_text,
    open_at,
    scan_all,
    stored_schema,
    translated,
)
from omnigraph.storage.lance_sealing import reshaped
from omnigraph.storage.lance_staging import LIMITS, WriteLimits, Written, file_names
from omnigraph.storage.roots import StorageOptions

BATCH_ROWS: Final = 65_536
NEW: Final = "__new_{}"
"""What a column is called while it is written: no property can have such a name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapedColumn:
    """A column that rows shall have: one they have, one made from it, or a new one.

    ``make`` gives the values: from those of ``source``, or so many new ones if there is none. Without it the column is
    ``source`` under perhaps another name, or new and null.
    """

    field: "pa.Field[Any]"
    source: str | None
    make: Callable[[Values, int], Values] | None = None


def stage_reshape(
    uri: str,
    base_version: int | None,
    columns: Sequence[ShapedColumn],
    *,
    is_rewrite: bool = False,
    limits: WriteLimits = LIMITS,
    options: StorageOptions,
) -> StagedReshape:
    """Write what has to be written to give the rows of exactly ``base_version`` these columns."""
    handle = open_at(uri, BIRTH_VERSION if base_version is None else base_version, options)
    with translated(f"other columns for {uri} can not be staged", options):
        staged = _Reshape(handle, columns, options).staged()
        return _rewritten(handle, staged, limits, options) if is_rewrite and handle.fragment_ids() else staged


class _Reshape:
    """One version, and the columns its rows shall have."""

    def __init__(self, handle: LanceDataset, columns: Sequence[ShapedColumn], options: StorageOptions) -> None:
        self._handle = handle
        self._columns = columns
        self._options = options
        self._there = Columns.of(handle.lance_schema)
        self._made = [column for column in columns if column.make is not None] if handle.fragment_ids() else []

    def staged(self) -> StagedReshape:
        """Write the columns that have values of their own, and say what all columns are."""
        written = [self._write(fragment) for fragment in self._handle.get_fragments()] if self._made else []
        fragments = [fragment for fragment, _ in written]
        schema = self._shaped(written[0][1] if written else None)
        new = [file for fragment in fragments for file in fragment.files[-1:]]
        return StagedReshape(
            base_version=int(self._handle.version),
            schema=schema.texts(),
            fragments=tuple(fragment_text(fragment) for fragment in fragments),
            rows=sum(int(fragment.num_rows) for fragment in fragments),
            bytes=sum(int(file.file_size_bytes or 0) for file in new),
            files=tuple(f"{DATA}/{file.path}" for file in new),
        )

    def _write(self, fragment: Any) -> tuple[FragmentMetadata, Columns]:
        sources = list(dict.fromkeys(column.source for column in self._made if column.source is not None))
        schema = pa.schema([column.field.with_name(NEW.format(n)) for n, column in enumerate(self._made)])

        def values(batch: pa.RecordBatch) -> pa.RecordBatch:
            made = [self._values(column, batch) for column in self._made]
            return pa.RecordBatch.from_arrays(made, schema=schema)

        found, lance_schema = fragment.merge_columns(values, columns=sources or ["id"], batch_size=BATCH_ROWS)
        return found, Columns.of(lance_schema)

    @staticmethod
    def _values(column: ShapedColumn, batch: pa.RecordBatch) -> Values:
        assert column.make is not None  # noqa: S101  only such columns are written
        given = None if column.source is None else batch.column(column.source)
        return column.make(given, batch.num_rows)

    def _shaped(self, written: Columns | None) -> Columns:
        """Return all columns in their order, each under the number its values have."""
        free = max(numbers_in_use(self._handle), max(written.numbers, default=-1) + 1 if written else 0)
        shaped: list[Column] = []
        for column in self._columns:
            if column in self._made and written is not None:
                numbers = [field.number for field in written.named(NEW.format(self._made.index(column)))]
                shaped.append(new_column(column.field, numbers))
            elif column.source is not None and column.make is None:
                there = self._there.named(column.source)
                shaped.append(renamed(there, column.field.name, nullable=column.field.nullable))
            else:
                numbers = list(range(free, free + width(column.field)))
                shaped.append(new_column(column.field, numbers))
                free += len(numbers)
        return Columns(self._there.about, tuple(shaped))


def _rewritten(
    handle: LanceDataset, staged: StagedReshape, limits: WriteLimits, options: StorageOptions
) -> StagedReshape:
    """Write all rows into new files, so that what they no longer have is in none of those."""
    glimpse = reshaped(handle, staged)  # a version to read through; nothing ever refers to it
    schema = stored_schema(glimpse)
    written = Written(glimpse, limits, options).write(as_written(batch, schema) for batch in scan_all(glimpse))
    return StagedReshape(
        base_version=staged.base_version,
        schema=staged.schema,
        fragments=written.texts,
        is_rewrite=True,
        rows=written.rows,
        bytes=written.bytes,
        files=file_names(glimpse, written.fragments, options),
    )
