"""One table at two commits: what became of its rows, as relations that plans are run over."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import pyarrow as pa

from omnigraph.engine.session import Session
from omnigraph.model.diffs import TableDiff
from omnigraph.model.schema import TableType
from omnigraph.model.tables import Pin
from omnigraph.rules.row_changes import CHANGED, COUNTED, ComparedTable, compared
from omnigraph.storage.lance_diff import (
    PART_ROWS_MAX,
    SCAN_ROWS,
    Piece,
    SomeRows,
    differing,
    every_row,
    have_same_files,
    in_parts,
)
from omnigraph.storage.layout import table_location
from omnigraph.storage.relations import Found, Relation, RelationalEngine, Spread


class PinnedTable(NamedTuple):
    """A table as one commit has it: a commit that has not the type has no rows of it."""

    kind: TableType | None
    pin: Pin | None


# No slots: what is found out is kept beside the fields.
@dataclass(frozen=True, kw_only=True, eq=False)
class RowChanges:
    """What became of the rows of one table between two commits; nothing is read before it is asked for."""

    session: Session
    old: PinnedTable
    new: PinnedTable

    @cached_property
    def table(self) -> ComparedTable:
        """How rows are compared."""
        return compared(self.old.kind, self.new.kind)

    @cached_property
    def pieces(self) -> tuple[tuple[Piece, ...], tuple[Piece, ...]]:
        """The rows of either side that the other may not have, told from the files alone."""
        before, after, options = self.old.pin, self.new.pin, self.session.root.options
        if before is not None and after is not None:
            if before.lance_version == after.lance_version:
                return (), ()
            return differing(self.uri, before.lance_version, after.lance_version, options)
        every = [() if pin is None else every_row(self.uri, pin.lance_version, options) for pin in (before, after)]
        return every[0], every[1]

    @property
    def rows(self) -> int:
        """How many rows of both sides have to be looked at."""
        return sum(piece.rows for side in self.pieces for piece in side)

    @property
    def is_empty(self) -> bool:
        """Whether no row has to be looked at: both sides have the same."""
        return not any(self.pieces)

    @property
    def has_same_files(self) -> bool:
        """Whether both sides surely have the same rows, told without looking which rows of a file are deleted."""
        before, after = self.old.pin, self.new.pin
        if before is None or after is None or before == after:
            return before == after
        return have_same_files(self.uri, before.lance_version, after.lance_version, self.session.root.options)

    @property
    def uri(self) -> str:
        """Where the table lies."""
        kind = self.new.kind or self.old.kind
        assert kind is not None  # noqa: S101  only a bug can compare nothing
        return self.session.root.uri(table_location(kind.table.kind, kind.table_id))

    @cached_property
    def old_rows(self) -> tuple[SomeRows, ...]:
        """The rows of the old side, in parts."""
        return self._parts(self.old.pin, self.pieces[0], tuple(column.old_name for column in self.table.columns))

    @cached_property
    def new_rows(self) -> tuple[SomeRows, ...]:
        """The rows of the new side, in parts."""
        return self._parts(self.new.pin, self.pieces[1], tuple(column.new_name for column in self.table.columns))

    @property
    def relations(self) -> Mapping[str, Relation]:
        """What the plans are run over."""
        schema = self.table.schema
        return {"old": Spread(schema, self.old_rows), "new": Spread(schema, self.new_rows)}

    @property
    def changed(self) -> Found:
        """The rows that differ, as they were and as they are."""
        return Found(CHANGED, self.relations)

    def counted(self, engine: RelationalEngine) -> TableDiff:
        """Count what became of the rows."""
        counts = self._counts(engine)
        return TableDiff(
            **dict(zip(("inserted", "updated", "deleted"), counts, strict=True)),
            columns_added=self.table.added,
            columns_removed=self.table.removed,
        )

    def _counts(self, engine: RelationalEngine) -> tuple[int, int, int]:
        lost, come = (sum(piece.rows for piece in side) for side in self.pieces)
        if not lost or not come:
            return come, 0, lost  # ids are unique within a version: what only one side has can not meet another
        (found,) = engine.run(COUNTED, self.relations).read_all().to_pylist()
        return found["inserted"], found["updated"], found["deleted"]

    def _parts(self, pin: Pin | None, pieces: Sequence[Piece], names: tuple[str, ...]) -> tuple[SomeRows, ...]:
        if pin is None:
            return ()
        return tuple(self._part(pin, part, names) for part in in_parts(pieces, self._part_rows(pieces)))

    def _part_rows(self, pieces: Sequence[Piece]) -> int:
        """Return how many rows are read together: fewer if there are machines that could read at once."""
        cluster = self.session.cluster
        each = -(-sum(piece.rows for piece in pieces) // (1 if cluster is None else max(1, cluster.parallelism)))
        return min(PART_ROWS_MAX, max(SCAN_ROWS, each))

    def _part(self, pin: Pin, pieces: tuple[Piece, ...], names: tuple[str, ...]) -> SomeRows:
        return SomeRows(
            uri=self.uri,
            version=pin.lance_version,
            options=self.session.root.options,
            table=self.table,
            names=names,
            pieces=pieces,
        )


def stored_rows(parts: Sequence[SomeRows], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Stream columns of rows as they are stored."""
    for part in parts:
        yield from part.stored(columns)
