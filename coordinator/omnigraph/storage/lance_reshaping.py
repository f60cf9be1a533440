"""Giving the rows of a version other columns, in files that nothing refers to yet.

A column that is renamed, dropped, reordered, or new and null costs nothing: its rows are not looked at. One whose
values are made from others is written into new files beside those that are there, and nothing else is.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
from lance import LanceDataset
from lance.fragment import FragmentMetadata

from omnigraph.errors import CorruptGraphError
from omnigraph.model.staged import StagedReshape
from omnigraph.rules.arrow_schema import is_blob
from omnigraph.rules.values import Column as Values
from omnigraph.storage.lance_fields import (
    Column,
    Columns,
    new_column,
    numbers_in_use,
    renamed,
    schema_of,
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
from omnigraph.storage.lance_written import LIMITS, WriteLimits, Written, file_names
from omnigraph.storage.roots import StorageOptions

BATCH_ROWS: Final = 65_536
NEW: Final = "__new_{}"
"""What a column is called while it is written: no property can have such a name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapedColumn:
    """A column that rows shall have: one they have, one made from it, or a new one.

    ``make`` gives the values, from rows with the columns it ``reads``; it can be pickled. Without it the column is
    ``source`` under perhaps another name, or new and null.
    """

    field: "pa.Field[Any]"
    source: str | None
    make: Callable[[pa.RecordBatch], Values] | None = None
    reads: tuple[str, ...] = ()


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
    written = write_columns(uri, base_version, columns, options=options)
    staged = shape_columns(uri, base_version, columns, written, options=options)
    if not is_rewrite or not open_at(uri, base_version, options).fragment_ids():
        return staged
    return rewrite(uri, glimpse(uri, staged, options=options), staged, limits=limits, options=options)


def write_columns(
    uri: str,
    base_version: int | None,
    columns: Sequence[ShapedColumn],
    fragments: Sequence[int] | None = None,
    *,
    options: StorageOptions,
) -> StagedReshape | None:
    """Write the columns that have values of their own for some fragments, or all; None if there is nothing to write.

    What comes back says how Lance has numbered the new columns, and is to be shaped.
    """
    made = _made(columns)
    handle = open_at(uri, base_version, options)
    if not made or not handle.fragment_ids():
        return None
    wanted = set(handle.fragment_ids() if fragments is None else fragments)
    with translated(f"other columns for {uri} can not be staged", options):
        written = [_write(fragment, made) for fragment in handle.get_fragments() if fragment.fragment_id in wanted]
    found = [fragment for fragment, _ in written]
    new = [file for fragment in found for file in fragment.files[-1:]]
    return StagedReshape(
        base_version=int(handle.version),
        schema=written[0][1].texts(),
        fragments=tuple(fragment_text(fragment) for fragment in found),
        rows=sum(int(fragment.num_rows) for fragment in found),
        bytes=sum(int(file.file_size_bytes or 0) for file in new),
        files=tuple(f"{DATA}/{file.path}" for file in new),
    )


def shape_columns(
    uri: str,
    base_version: int | None,
    columns: Sequence[ShapedColumn],
    written: StagedReshape | None,
    *,
    options: StorageOptions,
) -> StagedReshape:
    """Say what all columns are, those included that were written."""
    handle = open_at(uri, base_version, options)
    schema = _shaped(handle, columns, None if written is None else Columns.of(schema_of(written.schema)))
    if written is None:
        return StagedReshape(base_version=int(handle.version), schema=schema.texts())
    return replace(written, schema=schema.texts())


def glimpse(uri: str, staged: StagedReshape, *, options: StorageOptions) -> int:
    """Seal a version to read rewritten rows through; nothing ever refers to it."""
    handle = open_at(uri, staged.base_version, options)
    with translated(f"other columns for {uri} can not be staged", options):
        return int(reshaped(handle, staged).version)


def rewrite(
    uri: str,
    version: int,
    staged: StagedReshape,
    fragments: Sequence[int] | None = None,
    *,
    limits: WriteLimits = LIMITS,
    options: StorageOptions,
) -> StagedReshape:
    """Write the rows of some fragments, or all, into new files, so that what they no longer have is in none of those.

    ``version`` is what :func:`glimpse` made of ``staged``.
    """
    handle = open_at(uri, version, options)
    schema = stored_schema(handle)
    with translated(f"the rows of {uri} can not be rewritten", options):
        rows = (as_written(batch, schema) for batch in scan_all(handle, fragments))
        written = Written(handle, limits, options).write(rows)
    return StagedReshape(
        base_version=staged.base_version,
        schema=staged.schema,
        fragments=written.texts,
        is_rewrite=True,
        rows=written.rows,
        bytes=written.bytes,
        files=file_names(handle, written.fragments, options),
    )


def joined(parts: Sequence[StagedReshape]) -> StagedReshape:
    """Make one piece of what several have written for some fragments each."""
    if len({(part.base_version, part.is_rewrite, _numbered(part)) for part in parts}) != 1:
        raise CorruptGraphError("nothing was applied: the parts of a table do not have the same columns")
    return replace(
        parts[0],
        fragments=tuple(sorted((text for part in parts for text in part.fragments), key=_number)),
        rows=sum(part.rows for part in parts),
        bytes=sum(part.bytes for part in parts),
        files=tuple(name for part in parts for name in part.files),
    )


def _numbered(part: StagedReshape) -> tuple[tuple[str, int], ...]:
    """Return the columns of a part with their numbers; the rest of Lance's account is in no order one can rely on."""
    columns = Columns.of(schema_of(part.schema)).columns
    return tuple((field.name, field.number) for column in columns for field in column)


def _number(fragment: str) -> int:
    """Return the number of a fragment; those that are new have none yet, and stay in their order."""
    return int(json.loads(fragment)["id"])


def _made(columns: Sequence[ShapedColumn]) -> list[ShapedColumn]:
    return [column for column in columns if column.make is not None]


def _write(fragment: Any, made: Sequence[ShapedColumn]) -> tuple[FragmentMetadata, Columns]:
    reads = list(dict.fromkeys(name for column in made for name in column.reads))
    schema = pa.schema([column.field.with_name(NEW.format(n)) for n, column in enumerate(made)])

    def values(batch: pa.RecordBatch) -> pa.RecordBatch:
        makers = [column.make for column in made if column.make is not None]
        return pa.RecordBatch.from_arrays([make(batch) for make in makers], schema=schema)

    found, lance_schema = fragment.merge_columns(values, columns=reads or ["id"], batch_size=BATCH_ROWS)
    return found, Columns.of(lance_schema)


def _shaped(handle: LanceDataset, columns: Sequence[ShapedColumn], written: Columns | None) -> Columns:
    """Return all columns in their order, each under the number its values have."""
    there, made = Columns.of(handle.lance_schema), _made(columns)
    free = max(numbers_in_use(handle), max(written.numbers, default=-1) + 1 if written else 0)
    shaped: list[Column] = []
    for column in sorted(columns, key=lambda each: is_blob(each.field)):  # as :func:`blobs_last` has them
        if column.make is not None and written is not None:
            numbers = [field.number for field in written.named(NEW.format(made.index(column)))]
            shaped.append(new_column(column.field, numbers))
        elif column.source is not None and column.make is None:
            shaped.append(renamed(there.named(column.source), column.field.name, nullable=column.field.nullable))
        else:
            numbers = list(range(free, free + width(column.field)))
            shaped.append(new_column(column.field, numbers))
            free += len(numbers)
    return Columns(there.about, tuple(shaped))
