"""The difference between two commits: counted per table, and read row by row."""

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, TypeAlias

import pyarrow as pa

from omnigraph.engine.diff_rows import shown, told
from omnigraph.engine.engines import engine_for
from omnigraph.engine.history import History
from omnigraph.engine.integrity import ENGINE
from omnigraph.engine.row_changes import PinnedTable, RowChanges
from omnigraph.engine.session import Session
from omnigraph.engine.snapshot import Snapshot
from omnigraph.errors import TypeNotFoundError
from omnigraph.ids import TableId
from omnigraph.model.diffs import TableDiff
from omnigraph.model.drawing import html_table
from omnigraph.model.lineage import Commit
from omnigraph.model.schema import TableType
from omnigraph.model.tables import Pin
from omnigraph.rules.row_changes import CHANGED
from omnigraph.storage.relations import Made

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
        every = self._changes.values()
        counted = {changes.table.key: changes.counted(engine_for(self._session, changes.rows)) for changes in every}
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
        made = shown(changes)
        return pa.RecordBatchReader.from_batches(made.schema, made.make(_found(changes)))

    def shown(self, type: str) -> Made:
        """Return the same as a relation, for an engine with machines of its own."""
        return shown(self._of(type))

    def told(self) -> tuple[Made, ...]:
        """Return the rows of every type that may differ as relations of one form, images as JSON."""
        return tuple(told(changes) for changes in self._changes.values() if not changes.is_empty)

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
                old=PinnedTable(kind=kinds[0].get(table), pin=_pin(self.old, table, kinds[0])),
                new=PinnedTable(kind=kinds[1].get(table), pin=_pin(self.new, table, kinds[1])),
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


def _found(changes: RowChanges) -> Iterator[pa.RecordBatch]:
    if not changes.is_empty:
        yield from ENGINE.run(CHANGED, changes.relations)


def _pin(commit: Commit, table: TableId, kinds: Mapping[TableId, TableType]) -> Pin | None:
    return commit.pins.get(table) if table in kinds else None


def _named(commit: Commit) -> str:
    return f"{commit.branch}@{commit.version}"


def _point(commit: Commit) -> dict[str, Any]:
    return {"commit": commit.id, "branch": commit.branch, "version": commit.version}
