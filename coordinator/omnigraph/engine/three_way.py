"""One table that both sides changed: which rows of the source come into the target, which go, and which conflict.

The plan is run once. What it finds is set aside on local disk: rows to put, ids to take out, and conflicts. Nothing is
written to the graph before it is known that there are none of the last.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import numpy as np
import pyarrow as pa

from omnigraph.engine.integrity import ENGINE
from omnigraph.engine.merged_rows import MergedRows
from omnigraph.engine.row_changes import RowChanges, stored_rows
from omnigraph.engine.spreading import StoredRows, stored_types
from omnigraph.model.merges import MergedTable, Policy
from omnigraph.model.schema import TableType
from omnigraph.model.staged import RowSet
from omnigraph.rules.merge_plans import THREE_WAY
from omnigraph.rules.row_changes import ComparedTable
from omnigraph.rules.settling import CONFLICTS, GONE, OURS_AT, OURS_PLACE, PUT, Settling
from omnigraph.rules.values import Column, compute
from omnigraph.storage.lance_diff import SomeRows
from omnigraph.storage.lance_rows import PlacesSeen, row_sets
from omnigraph.storage.relations import Relation, Spread
from omnigraph.storage.spool import Spool


@dataclass(frozen=True, kw_only=True, eq=False)
class ThreeWay:
    """The rows of one table, seen from the target: what the source has instead, and what the base had."""

    kind: TableType
    theirs: RowChanges
    base: Relation
    policy: Policy
    spool: Spool

    @property
    def table(self) -> ComparedTable:
        """How rows are compared."""
        return self.theirs.table

    @property
    def key(self) -> str:
        """Which table it is."""
        return str(self.kind.table)

    def sort_out(self) -> None:
        """Run the plan and set aside what it finds."""
        settling = self._settling
        for name, schema in settling.heaps.items():
            self.spool.open_table(self._name(name), schema)
        relations: dict[str, Relation] = {"theirs": self.theirs.changed, "base": self.base}
        for found in ENGINE.run(THREE_WAY, relations):
            for name, rows in settling.settled(found):
                self.spool.add(self._name(name), rows)

    @property
    def counts(self) -> MergedTable:
        """How many rows come, change and go."""
        updated = sum(len(batch.column(OURS_AT).drop_null()) for batch in self._set_aside(PUT))
        return MergedTable(
            adopted=False, rows_inserted=self.size - updated, rows_updated=updated, rows_deleted=self._rows(GONE)
        )

    @property
    def conflict_counts(self) -> dict[str, int]:
        """How many rows conflict, by kind."""
        counts: dict[str, int] = {}
        for batch in self._set_aside(CONFLICTS):
            for found in compute.value_counts(batch.column("verdict")).to_pylist():
                counts[found["values"]] = counts.get(found["values"], 0) + found["counts"]
        return counts

    def conflicts(self, most: int | None = None) -> Iterator[pa.RecordBatch]:
        """Stream the rows that conflict, as each side has them: all of them, or the first."""
        left = most
        for batch in self._set_aside(CONFLICTS):
            yield batch if left is None else batch.slice(0, left)
            left = None if left is None else max(0, left - batch.num_rows)

    # -- what comes and goes, also before it is staged ------------------------------------------------

    @property
    def adds(self) -> bool:
        """Whether rows are added or replaced."""
        return self.size > 0

    @property
    def is_overwrite(self) -> bool:
        """Whether nothing stays of what is there."""
        return False

    @property
    def loses(self) -> bool:
        """Whether ids are gone afterwards."""
        return self._rows(GONE) > 0

    @property
    def size(self) -> int:
        """How many rows are added or replaced."""
        return self._rows(PUT)

    def rows(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Stream columns of the rows that come, in their new form; blobs can not be asked for."""
        for batch in self._set_aside(PUT):
            yield batch.select(list(columns))

    def gone_ids(self) -> Column:
        """Return the ids of rows that are taken out or replaced."""
        put = (batch.filter(compute.is_valid(batch.column(OURS_AT))) for batch in self._set_aside(PUT))
        deleted = self._set_aside(GONE)
        return pa.chunked_array([batch.column("id") for batch in chain(put, deleted)], pa.string())

    @property
    def deleted_places(self) -> tuple[RowSet, ...]:
        """Where in the target the rows lie that go and do not come back."""
        places = [np.asarray(batch.column(OURS_PLACE), np.uint64) for batch in self._set_aside(GONE)]
        return row_sets(np.concatenate([np.empty(0, np.uint64), *places]))

    def stored(self, seen: PlacesSeen) -> pa.RecordBatchReader:
        """Stream the rows that come as the table stores them, blobs included; note where those lie they replace."""
        return MergedRows.of(self.kind, self.theirs).reader(self._set_aside(PUT), seen)

    @cached_property
    def _settling(self) -> Settling:
        return Settling(table=self.table, policy=self.policy)

    def _set_aside(self, name: str) -> pa.RecordBatchReader:
        return self.spool.reader(self._name(name))

    def _rows(self, name: str) -> int:
        return self.spool.rows[self._name(name)]

    def _name(self, name: str) -> str:
        return f"{name} {self.key}"


@dataclass(frozen=True, kw_only=True, eq=False)
class Adopted:
    """A table that becomes what the source has, as a change of the target: rows of files they share are not read."""

    kind: TableType
    theirs: RowChanges

    @property
    def adds(self) -> bool:
        """Whether rows are added or replaced."""
        return self.size > 0

    @property
    def is_overwrite(self) -> bool:
        """Whether nothing stays of what is there."""
        return False

    @property
    def loses(self) -> bool:
        """Whether ids may be gone afterwards."""
        return bool(self.theirs.pieces[0])

    @property
    def size(self) -> int:
        """How many rows are added or replaced, at most."""
        return sum(piece.rows for piece in self.theirs.pieces[1])

    def rows(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Stream columns of the rows that come."""
        return stored_rows(self.theirs.new_rows, columns)

    def gone_ids(self) -> Column:
        """Return the ids of rows that are taken out or replaced."""
        ids = [batch.column("id") for batch in stored_rows(self.theirs.old_rows, ["id"])]
        return pa.chunked_array(ids, pa.string())

    @property
    def touched(self) -> int:
        """How many rows of both sides are looked at."""
        return self.theirs.rows

    def spread_rows(self, columns: Sequence[str]) -> Spread:
        """Return columns of the rows that come, in parts."""
        return self._spread(self.theirs.new_rows, columns)

    @property
    def spread_gone(self) -> Spread:
        """Return the ids of rows that are taken out or replaced, in parts."""
        return self._spread(self.theirs.old_rows, ["id"])

    def _spread(self, parts: Sequence[SomeRows], columns: Sequence[str]) -> Spread:
        schema = stored_types(self.kind, columns)
        return Spread(schema, tuple(StoredRows(rows=part, columns=tuple(columns)) for part in parts))
