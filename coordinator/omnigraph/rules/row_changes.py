"""What became of rows between two versions of a table, said as plans.

Relations ``old`` and ``new`` hold the rows of each version that the other may not have: all that differ, and perhaps
some that do not. Their columns are ours: ``id``; ``at`` and ``place``, the row id and the row address by which storage
finds the row again; ``row``, a struct of the columns that are compared. Two rows are the same if no value of one is
distinct from that of the other: null is null and nothing else, NaN is NaN, -0.0 is 0.0. That is what
:mod:`omnigraph.rules.same_rows` says too.

``CHANGED`` makes of them the relation that everything else is made of: ``id``, the row as it was (``old``, null if
there was none) and as it is (``new``), and where both are found.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from omnigraph.model.schema import ENDPOINT_COLUMNS, EdgeType, Property, TableType
from omnigraph.rules.arrow_schema import arrow_field, is_blob
from omnigraph.rules.same_rows import same_values
from omnigraph.rules.values import Column, compute

CHANGED: Final = """
SELECT coalesce(n.id, o.id) AS id, o.row AS old, n.row AS new, o.at AS old_at, o.place AS old_place, n.at AS new_at
FROM old o FULL OUTER JOIN new n ON o.id = n.id
WHERE o.id IS NULL OR n.id IS NULL OR o.row IS DISTINCT FROM n.row
"""

COUNTED: Final = """
SELECT CAST(coalesce(sum(CASE WHEN o.id IS NULL THEN 1 ELSE 0 END), 0) AS BIGINT) AS inserted,
  CAST(coalesce(sum(CASE WHEN o.id IS NOT NULL AND n.id IS NOT NULL THEN 1 ELSE 0 END), 0) AS BIGINT) AS updated,
  CAST(coalesce(sum(CASE WHEN n.id IS NULL THEN 1 ELSE 0 END), 0) AS BIGINT) AS deleted
FROM old o FULL OUTER JOIN new n ON o.id = n.id
WHERE o.id IS NULL OR n.id IS NULL OR o.row IS DISTINCT FROM n.row
"""

INSERT, UPDATE, DELETE = "insert", "update", "delete"
DIGEST_SHOWN: Final = 16
DIGEST: Final = pa.binary()
"""A blob is compared by its digest: it is not held, and equal digests are equal bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedColumn:
    """A column that both versions have: what it is called in each, and the type its values are compared in."""

    name: str
    old_name: str
    new_name: str
    type: pa.DataType
    is_blob: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedTable:
    """Which columns of a table are compared, and which only one of the versions has."""

    key: str
    is_edge: bool
    columns: tuple[ComparedColumn, ...]
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()

    @property
    def row_type(self) -> pa.DataType:
        """The struct that rows are compared as; a type without columns has one that is always null."""
        fields = [pa.field(f"c{number}", column.type) for number, column in enumerate(self.columns)]
        return pa.struct(fields or [pa.field("c0", pa.bool_())])

    @property
    def schema(self) -> pa.Schema:
        """The columns of ``old`` and ``new``."""
        types: dict[str, pa.DataType] = {"id": pa.string(), "at": pa.int64(), "place": pa.int64(), "row": self.row_type}
        return pa.schema(list(types.items()))

    def struct(self, columns: Sequence[Column], rows: int) -> Column:
        """Return columns as the struct that is compared."""
        wanted: Any = self.row_type
        parts = list(columns) or [pa.nulls(rows, pa.bool_())]
        return pa.StructArray.from_arrays(parts, fields=list(wanted))


def compared(old: TableType | None, new: TableType | None) -> ComparedTable:
    """Return how two versions of a type are compared: by what both have, which a renaming does not change."""
    kind = new if new is not None else old
    if kind is None:
        raise ValueError("there is nothing to compare")
    before = {column.id: column for column in (old or kind).properties}
    after = {column.id: column for column in (new or kind).properties}
    both = [key for key in after if key in before and _fits(before[key], after[key])]
    ends = [_end(name) for name in ENDPOINT_COLUMNS] if isinstance(kind, EdgeType) else []
    return ComparedTable(
        key=str(kind.table),
        is_edge=isinstance(kind, EdgeType),
        columns=(*ends, *(_column(before[key], after[key]) for key in both)),
        added=tuple(column.name for key, column in after.items() if key not in both),
        removed=tuple(column.name for key, column in before.items() if key not in both),
    )


def _fits(old: Property, new: Property) -> bool:
    return bool(arrow_field(old).type == arrow_field(new).type)


def _end(name: str) -> ComparedColumn:
    return ComparedColumn(name=name, old_name=name, new_name=name, type=pa.string(), is_blob=False)


def _column(old: Property, new: Property) -> ComparedColumn:
    field = arrow_field(new)
    kind = DIGEST if is_blob(field) else field.type
    return ComparedColumn(name=new.name, old_name=old.name, new_name=new.name, type=kind, is_blob=is_blob(field))


def changes_of(rows: pa.RecordBatch) -> Column:
    """Return for each row what became of it: ``insert``, ``update`` or ``delete``."""
    was, is_now = compute.is_valid(rows.column("old")), compute.is_valid(rows.column("new"))
    return compute.if_else(compute.and_(was, is_now), UPDATE, compute.if_else(is_now, INSERT, DELETE))


def changed_columns(table: ComparedTable, rows: pa.RecordBatch) -> Column:
    """Return for each row that was updated the names of the columns that differ; null for the others."""
    old, new = rows.column("old"), rows.column("new")
    is_update = compute.and_(compute.is_valid(old), compute.is_valid(new))
    differs = np.zeros((len(old), len(table.columns)), np.bool_)
    for number in range(len(table.columns)):
        same = same_values(field_of(old, number), field_of(new, number))
        differs[:, number] = np.asarray(compute.and_(is_update, compute.invert(same)))
    names = pa.array([column.name for column in table.columns], pa.string())
    ends: Column = pa.array(np.cumsum([0, *differs.sum(axis=1)]), pa.int32())
    told: Column = names.take(pa.array(np.nonzero(differs)[1], pa.int64()))
    return pa.ListArray.from_arrays(ends, told, mask=compute.invert(is_update))


def field_of(rows: Column, number: int) -> Column:
    """Return one column of a struct; null where there is no row."""
    return compute.struct_field(rows, [number])


def plain_row(table: ComparedTable, row: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return one struct as a dictionary by the names people know; a blob is shown by its digest."""
    if row is None:
        return None
    values = {column.name: row[f"c{number}"] for number, column in enumerate(table.columns)}
    blobs = [column.name for column in table.columns if column.is_blob and values[column.name] is not None]
    return values | {name: f"blob {values[name].hex()[:DIGEST_SHOWN]}" for name in blobs}
