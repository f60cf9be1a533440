"""One table that both sides changed: which rows of the source come into the target, which go, and which conflict.

The plan is run once. What it finds is set aside on local disk: rows to put, ids to take out, and conflicts. Nothing is
written to the graph before it is known that there are none of the last.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, Final

import numpy as np
import pyarrow as pa

from omnigraph.engine.integrity import ENGINE
from omnigraph.engine.row_changes import RowChanges, stored_rows
from omnigraph.model.merges import MergedTable, Policy
from omnigraph.model.schema import TableType
from omnigraph.model.staged import RowSet
from omnigraph.rules.arrow_schema import BLOB_STORAGE, arrow_schema
from omnigraph.rules.cells import chosen, merged_cells
from omnigraph.rules.merge_plans import DIVERGENT_UPDATE, TAKEN, THREE_WAY
from omnigraph.rules.row_changes import ComparedTable, field_of
from omnigraph.rules.values import Column, compute
from omnigraph.storage.lance_diff import blobs_at
from omnigraph.storage.lance_rows import PlacesSeen, row_sets
from omnigraph.storage.relations import Relation
from omnigraph.storage.spool import Spool

THEIRS_AT, OURS_AT, OURS_PLACE, IS_OURS = "#theirs_at", "#ours_at", "#ours_place", "#is_ours "
"""Columns no type can have: where a row is in the source, where in the target if it is there, whose each blob is."""
BLOB_ROWS_MAX: Final = 64


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
        for name, schema in self._schemas.items():
            self.spool.open_table(self._name(name), schema)
        relations: dict[str, Relation] = {"theirs": self.theirs.changed, "base": self.base}
        for found in ENGINE.run(THREE_WAY, relations):
            is_taken = compute.equal(found.column("verdict"), TAKEN)
            self._take(found.filter(is_taken))
            self._settle(found.filter(compute.invert(is_taken)))

    @property
    def counts(self) -> MergedTable:
        """How many rows come, change and go."""
        put = self.spool.rows[self._name("put")]
        updated = sum(len(batch.column(OURS_AT).drop_null()) for batch in self._set_aside("put"))
        return MergedTable(
            adopted=False,
            rows_inserted=put - updated,
            rows_updated=updated,
            rows_deleted=self.spool.rows[self._name("gone")],
        )

    def conflicts(self) -> pa.RecordBatchReader:
        """Stream the rows that conflict, as each side has them."""
        return self._set_aside("conflicts")

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
        return self.spool.rows[self._name("gone")] > 0

    @property
    def size(self) -> int:
        """How many rows are added or replaced."""
        return self.spool.rows[self._name("put")]

    def rows(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Stream columns of the rows that come, in their new form; blobs can not be asked for."""
        for batch in self._set_aside("put"):
            yield batch.select(list(columns))

    def gone_ids(self) -> Column:
        """Return the ids of rows that are taken out or replaced."""
        put = (batch.filter(compute.is_valid(batch.column(OURS_AT))) for batch in self._set_aside("put"))
        deleted = self._set_aside("gone")
        return pa.chunked_array([batch.column("id") for batch in chain(put, deleted)], pa.string())

    @property
    def deleted_places(self) -> tuple[RowSet, ...]:
        """Where in the target the rows lie that go and do not come back."""
        places = [np.asarray(batch.column(OURS_PLACE), np.uint64) for batch in self._set_aside("gone")]
        return row_sets(np.concatenate([np.empty(0, np.uint64), *places]))

    def stored(self, seen: PlacesSeen) -> pa.RecordBatchReader:
        """Stream the rows that come as the table stores them, blobs included; note where those lie they replace."""
        schema = arrow_schema(self.kind)
        return pa.RecordBatchReader.from_batches(schema, self._stored(schema, seen))

    def _stored(self, schema: pa.Schema, seen: PlacesSeen) -> Iterator[pa.RecordBatch]:
        for batch in self._set_aside("put"):
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
        theirs, ours = (self._read_blobs(name, rows.column(at), at) for at in (THEIRS_AT, OURS_AT))
        data = chosen(rows.column(IS_OURS + name), ours, theirs)
        parts: Any = [data, pa.nulls(len(data), pa.string())]
        return pa.StructArray.from_arrays(parts, fields=list(BLOB_STORAGE), mask=compute.is_null(data))

    def _read_blobs(self, name: str, at: Column, side: str) -> Column:
        pin = self.theirs.new.pin if side == THEIRS_AT else self.theirs.old.pin
        if pin is None:
            return pa.nulls(len(at), pa.large_binary())
        return blobs_at(self.theirs.uri, pin.lance_version, name, at, self.theirs.session.root.options)

    # -- sorting out ----------------------------------------------------------------------------------

    def _settle(self, found: pa.RecordBatch) -> None:
        """Do what the policy says about rows that both sides changed, each in its own way."""
        if found.num_rows == 0 or self.policy is Policy.OURS:
            return
        if self.policy is Policy.THEIRS:
            self._take(found)
            return
        if self.policy is Policy.CELL:
            found = self._merge_cells(found)
        if found.num_rows:
            self._put_aside("conflicts", [found.column(name) for name in self._schemas["conflicts"].names])

    def _take(self, found: pa.RecordBatch) -> None:
        """Set aside rows that become what the source has."""
        theirs = found.column("theirs")
        come = found.filter(compute.is_valid(theirs))
        columns = [field_of(come.column("theirs"), number) for number in range(len(self.table.columns))]
        self._put(come, columns, [pa.repeat(pa.scalar(False), come.num_rows)] * len(self._blobs))
        gone = found.filter(compute.is_null(theirs))
        self._put_aside("gone", [gone.column("id"), gone.column("ours_place")])

    def _merge_cells(self, found: pa.RecordBatch) -> pa.RecordBatch:
        """Set aside rows that can be merged column by column; return the others."""
        is_update = compute.equal(found.column("verdict"), DIVERGENT_UPDATE)
        mergeable = compute.and_(is_update, compute.is_valid(found.column("base")))
        rest, rows = found.filter(compute.invert(mergeable)), found.filter(mergeable)
        if rows.num_rows == 0:
            return rest
        merged = merged_cells(self.table, rows.column("base"), rows.column("ours"), rows.column("theirs"))
        fits = compute.invert(merged.clash)
        ours = [
            compute.invert(theirs).filter(fits)
            for theirs, column in zip(merged.from_theirs, self.table.columns, strict=True)
            if column.is_blob
        ]
        self._put(rows.filter(fits), [column.filter(fits) for column in merged.columns], ours)
        clashing = rows.filter(merged.clash)
        return pa.Table.from_batches([rest, clashing]).combine_chunks().to_batches()[0] if clashing.num_rows else rest

    def _put(self, rows: pa.RecordBatch, columns: Sequence[Column], ours: Sequence[Column]) -> None:
        """Set rows aside, with the blobs that are the target's told."""
        plain = [part for part, column in zip(columns, self.table.columns, strict=True) if not column.is_blob]
        places = [rows.column(name) for name in ("theirs_at", "ours_at", "ours_place")]
        self._put_aside("put", [rows.column("id"), *plain, *places, *ours])

    def _put_aside(self, name: str, columns: Sequence[Column]) -> None:
        if len(columns[0]):
            schema = self._schemas[name]
            fitted = [part.cast(field.type) for part, field in zip(columns, schema, strict=True)]
            self.spool.add(self._name(name), pa.RecordBatch.from_arrays(fitted, schema=schema))

    @cached_property
    def _schemas(self) -> dict[str, pa.Schema]:
        put: dict[str, pa.DataType] = {"id": pa.string()}
        put |= {column.name: column.type for column in self.table.columns if not column.is_blob}
        put |= {name: pa.int64() for name in (THEIRS_AT, OURS_AT, OURS_PLACE)}
        put |= {IS_OURS + name: pa.bool_() for name in self._blobs}
        gone: dict[str, pa.DataType] = {"id": pa.string(), OURS_PLACE: pa.int64()}
        conflicts: dict[str, pa.DataType] = {"id": pa.string(), "verdict": pa.string()}
        conflicts |= dict.fromkeys(("base", "ours", "theirs"), self.table.row_type)
        types = {"put": put, "gone": gone, "conflicts": conflicts}
        return {name: pa.schema(list(columns.items())) for name, columns in types.items()}

    def _set_aside(self, name: str) -> pa.RecordBatchReader:
        return self.spool.reader(self._name(name))

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
