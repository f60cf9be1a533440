"""The difference between two commits: counted per table, and read row by row."""

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, Final, TypeAlias

import pyarrow as pa

from omnigraph.engine.history import History
from omnigraph.engine.integrity import ENGINE
from omnigraph.engine.row_changes import RowChanges, TableAt
from omnigraph.engine.session import Session
from omnigraph.engine.snapshot import Snapshot
from omnigraph.errors import TypeNotFoundError
from omnigraph.ids import TableId
from omnigraph.model.diffs import TableDiff
from omnigraph.model.drawing import html_table
from omnigraph.model.lineage import Commit
from omnigraph.model.schema import ENDPOINT_COLUMNS, TableType
from omnigraph.model.tables import Pin
from omnigraph.rules.row_changes import ComparedTable, changed_columns, changes_of, field_of
from omnigraph.rules.values import Column, compute
from omnigraph.storage.lance_diff import blobs_at

BLOB_ROWS_MAX: Final = 64  # blobs may be large, and a batch of them is read whole
Point: TypeAlias = str | Commit | Snapshot
"""A branch, tag or commit id, a branch with a version (``main@12``), a commit or a snapshot."""


def commit_at(history: History, point: Point) -> Commit:
    """Return the commit that is meant."""
    if isinstance(point, Commit):
        return point
    if isinstance(point, Snapshot):
        return point.commit
    return history.named(point)


class Diff:
    """What became of a graph's rows from one commit to another; rows are read when they are asked for."""

    def __init__(self, session: Session, history: History, old: Commit, new: Commit) -> None:
        self._session = session
        self._catalogs = (history.catalog(old), history.catalog(new))
        self.old = old
        self.new = new

    def __repr__(self) -> str:
        return f"<Diff {_named(self.old)} → {_named(self.new)}>"

    @cached_property
    def tables(self) -> Mapping[str, TableDiff]:
        """The tables that differ, by their keys, with the number of rows that were inserted, updated and deleted."""
        counted = {changes.table.key: changes.counted(ENGINE) for changes in self._changes.values()}
        return {key: table for key, table in counted.items() if not table.is_empty}

    @property
    def is_empty(self) -> bool:
        """Whether both commits have the same rows of the same columns."""
        return not self.tables

    def rows(self, type: str) -> pa.RecordBatchReader:
        """Stream the rows of a type that differ: ``change``, ``id``, ends of edges, ``changed``, ``before``, ``after``.

        They come in no order. ``changed`` names the columns of an update that differ; ``before`` is null for an
        insert, ``after`` for a delete.
        """
        changes = self._of(type)
        schema = _rows_schema(changes.table)
        return pa.RecordBatchReader.from_batches(schema, self._rows(changes, schema))

    def to_dict(self) -> dict[str, Any]:
        """Return plain values: both commits, and the counts of every table that differs."""
        return {
            "from": _point(self.old),
            "to": _point(self.new),
            "tables": {key: table.to_dict() for key, table in self.tables.items()},
        }

    def _repr_html_(self) -> str:
        rows = [(key, each.inserted, each.updated, each.deleted) for key, each in self.tables.items()]
        title = f"{_named(self.old)} → {_named(self.new)}"
        return html_table(title, ("table", "inserted", "updated", "deleted"), rows)

    @cached_property
    def _changes(self) -> dict[TableId, RowChanges]:
        """Every table that either commit has, with what became of it."""
        kinds = [{kind.table_id: kind for kind in catalog.table_types} for catalog in self._catalogs]
        return {
            table: RowChanges(
                session=self._session,
                old=TableAt(kind=kinds[0].get(table), pin=_pin(self.old, table, kinds[0])),
                new=TableAt(kind=kinds[1].get(table), pin=_pin(self.new, table, kinds[1])),
            )
            for table in dict.fromkeys((*kinds[1], *kinds[0]))
        }

    def _of(self, type: str) -> RowChanges:
        """Return a table by its name in the new commit, or else in the old one."""
        old, new = self._catalogs
        try:
            return self._changes[new.table_type(type).table_id]
        except TypeNotFoundError:
            return self._changes[old.table_type(type).table_id]

    def _rows(self, changes: RowChanges, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        if changes.is_empty:
            return
        has_blobs = any(column.is_blob for column in changes.table.columns)
        for batch in ENGINE.run(changes.changed.sql, changes.changed.relations):
            step = BLOB_ROWS_MAX if has_blobs else max(1, batch.num_rows)
            for start in range(0, batch.num_rows, step):
                yield self._shown(changes, batch.slice(start, step), schema)

    def _shown(self, changes: RowChanges, rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        table = changes.table
        before = self._image(changes, rows, "old", changes.old.pin)
        after = self._image(changes, rows, "new", changes.new.pin)
        ends: list[Column] = []
        if table.is_edge:
            ends = [
                compute.coalesce(field_of(rows.column("new"), number), field_of(rows.column("old"), number))
                for number in range(len(ENDPOINT_COLUMNS))
            ]
        columns = [changes_of(rows), rows.column("id"), *ends, changed_columns(table, rows), before, after]
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def _image(self, changes: RowChanges, rows: pa.RecordBatch, side: str, pin: Pin | None) -> Column:
        """Return the rows of one side by the names of their columns, blobs as their bytes."""
        structs, parts = rows.column(side), []
        for number, column in enumerate(changes.table.columns):
            part = field_of(structs, number)
            if column.is_blob:
                name = column.old_name if side == "old" else column.new_name
                part = self._blobs(changes, name, rows.column(f"{side}_at"), pin)
            parts.append(part)
        return image(changes.table, parts, structs)

    def _blobs(self, changes: RowChanges, name: str, at: Column, pin: Pin | None) -> Column:
        if pin is None:
            return pa.nulls(len(at), pa.large_binary())
        return blobs_at(changes.uri, pin.lance_version, name, at, self._session.root.options)


def image(table: ComparedTable, parts: list[Column], structs: Column) -> Column:
    """Return columns as a struct of them by their names, null where there is no row."""
    wanted: Any = _image_type(table)
    fitted = [part.cast(field.type) for part, field in zip(parts, wanted, strict=True)]
    if not fitted:
        fitted, wanted = [pa.nulls(len(structs), pa.bool_())], [pa.field("c0", pa.bool_())]
    return pa.StructArray.from_arrays(fitted, fields=list(wanted), mask=compute.is_null(structs))


def _image_type(table: ComparedTable) -> pa.DataType:
    types = [pa.large_binary() if column.is_blob else column.type for column in table.columns]
    return pa.struct([pa.field(column.name, kind) for column, kind in zip(table.columns, types, strict=True)])


def _rows_schema(table: ComparedTable) -> pa.Schema:
    shown = _image_type(table) if table.columns else table.row_type
    ends = [(name, pa.string()) for name in ENDPOINT_COLUMNS] if table.is_edge else []
    changed = pa.list_(pa.string())
    return pa.schema(
        [("change", pa.string()), ("id", pa.string()), *ends, ("changed", changed), ("before", shown), ("after", shown)]
    )


def _pin(commit: Commit, table: TableId, kinds: Mapping[TableId, TableType]) -> Pin | None:
    return commit.pins.get(table) if table in kinds else None


def _named(commit: Commit) -> str:
    return f"{commit.branch}@{commit.version}"


def _point(commit: Commit) -> dict[str, Any]:
    return {"commit": commit.id, "branch": commit.branch, "version": commit.version}
