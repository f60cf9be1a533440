"""What becomes of rows that a three-way plan has found: some come, some go, and some are conflicts.

Each of these is a heap with columns of its own. Where all of them have to travel as one relation, they are packed into
columns that every heap has, most of them null.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa

from omnigraph.model.merges import Policy
from omnigraph.rules.cells import merged_cells
from omnigraph.rules.fingerprints import fingerprints
from omnigraph.rules.merge_plans import DIVERGENT_UPDATE, TAKEN
from omnigraph.rules.row_changes import ComparedColumn, ComparedTable, field_of
from omnigraph.rules.values import Column, compute

PUT, GONE, CONFLICTS = "put", "gone", "conflicts"
THEIRS_AT, OURS_AT, OURS_PLACE, IS_OURS = "#theirs_at", "#ours_at", "#ours_place", "#is_ours "
"""Columns no type can have: where a row is in the source, where in the target if it is there, whose each blob is."""
SIDES: Final = ("base", "ours", "theirs")
FRAGMENT_BITS: Final = 32
NEW_HEAPS: Final = 1_024
"""Into so many heaps new rows are dealt, by nothing that could be different if they were dealt again."""

CONFLICTING: Final = "SELECT id, verdict, base, ours, theirs FROM heaps WHERE heap = 'conflicts'"
SOME_CONFLICTING: Final = "SELECT id, verdict, base, ours, theirs FROM heaps WHERE heap = 'conflicts' LIMIT $most"
COMING: Final = "SELECT id, deal, theirs_at, ours_at, ours_place, is_ours, held FROM heaps WHERE heap = 'put'"
GOING: Final = "SELECT ours_place, deal FROM heaps WHERE heap = 'gone'"
GONE_IDS: Final = "SELECT id FROM heaps WHERE heap = 'gone' OR (heap = 'put' AND ours_at IS NOT NULL)"
HEAPED: Final = """
SELECT heap, verdict, CAST(count(*) AS BIGINT) AS found, CAST(count(ours_at) AS BIGINT) AS known
FROM heaps GROUP BY heap, verdict
"""


@dataclass(frozen=True, kw_only=True)
class Settling:
    """How the rows of one table are settled; it can be pickled."""

    table: ComparedTable
    policy: Policy

    @property
    def found(self) -> pa.Schema:
        """The columns of what a three-way plan finds."""
        rows = self.table.row_type
        types: dict[str, pa.DataType] = {"id": pa.string(), "theirs": rows, "theirs_at": pa.int64()}
        types |= {"ours_at": pa.int64(), "ours_place": pa.int64(), "ours": rows, "base": rows, "verdict": pa.string()}
        return pa.schema(list(types.items()))

    @cached_property
    def heaps(self) -> dict[str, pa.Schema]:
        """The columns of each heap."""
        put: dict[str, pa.DataType] = {"id": pa.string()}
        put |= {column.name: column.type for column in self.plain}
        put |= {name: pa.int64() for name in (THEIRS_AT, OURS_AT, OURS_PLACE)}
        put |= {IS_OURS + column.name: pa.bool_() for column in self.blobs}
        gone: dict[str, pa.DataType] = {"id": pa.string(), OURS_PLACE: pa.int64()}
        conflicts: dict[str, pa.DataType] = {"id": pa.string(), "verdict": pa.string()}
        conflicts |= dict.fromkeys(SIDES, self.table.row_type)
        types = {PUT: put, GONE: gone, CONFLICTS: conflicts}
        return {name: pa.schema(list(columns.items())) for name, columns in types.items()}

    def settled(self, found: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield rows with the heap they belong to."""
        is_taken = compute.equal(found.column("verdict"), TAKEN)
        heaps = [*self._taken(found.filter(is_taken)), *self._clashing(found.filter(compute.invert(is_taken)))]
        yield from ((heap, rows) for heap, rows in heaps if rows.num_rows)

    def _clashing(self, found: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Do what the policy says about rows that both sides changed, each in its own way."""
        if found.num_rows == 0 or self.policy is Policy.OURS:
            return
        if self.policy is Policy.THEIRS:
            yield from self._taken(found)
            return
        if self.policy is Policy.CELL:
            yield from self._by_cells(found)
            return
        yield CONFLICTS, self._conflicts(found)

    def _taken(self, found: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield rows that become what the source has."""
        theirs = found.column("theirs")
        come = found.filter(compute.is_valid(theirs))
        columns = [field_of(come.column("theirs"), number) for number in range(len(self.table.columns))]
        yield PUT, self._put(come, columns, [pa.repeat(pa.scalar(False), come.num_rows)] * len(self.blobs))
        gone = found.filter(compute.is_null(theirs))
        yield GONE, self._heap(GONE, [gone.column("id"), gone.column("ours_place")])

    def _by_cells(self, found: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield rows merged column by column, and as conflicts those that can not be."""
        is_update = compute.equal(found.column("verdict"), DIVERGENT_UPDATE)
        mergeable = compute.and_(is_update, compute.is_valid(found.column("base")))
        rest, rows = [found.filter(compute.invert(mergeable))], found.filter(mergeable)
        if rows.num_rows:
            merged = merged_cells(self.table, *(rows.column(side) for side in SIDES))
            fits = compute.invert(merged.clash)
            sources = zip(merged.from_theirs, self.table.columns, strict=True)
            ours = [compute.invert(theirs).filter(fits) for theirs, column in sources if column.is_blob]
            yield PUT, self._put(rows.filter(fits), [column.filter(fits) for column in merged.columns], ours)
            rest.append(rows.filter(merged.clash))
        yield from ((CONFLICTS, self._conflicts(each)) for each in rest)

    def _conflicts(self, found: pa.RecordBatch) -> pa.RecordBatch:
        return self._heap(CONFLICTS, [found.column(name) for name in self.heaps[CONFLICTS].names])

    def _put(self, rows: pa.RecordBatch, columns: Sequence[Column], ours: Sequence[Column]) -> pa.RecordBatch:
        """Return rows to put, with the blobs that are the target's told."""
        plain = [part for part, column in zip(columns, self.table.columns, strict=True) if not column.is_blob]
        places = [rows.column(name) for name in ("theirs_at", "ours_at", "ours_place")]
        return self._heap(PUT, [rows.column("id"), *plain, *places, *ours])

    def _heap(self, heap: str, columns: Sequence[Column]) -> pa.RecordBatch:
        schema = self.heaps[heap]
        fitted = [part.cast(field.type) for part, field in zip(columns, schema, strict=True)]
        return pa.RecordBatch.from_arrays(fitted, schema=schema)

    @cached_property
    def plain(self) -> tuple[ComparedColumn, ...]:
        """The columns whose values are at hand."""
        return tuple(column for column in self.table.columns if not column.is_blob)

    @cached_property
    def blobs(self) -> tuple[ComparedColumn, ...]:
        """The columns whose values are read when they are written."""
        return tuple(column for column in self.table.columns if column.is_blob)


@dataclass(frozen=True, kw_only=True)
class Packing:
    """All heaps of a table as one relation, whose columns have names of ours; it can be pickled."""

    settling: Settling

    @property
    def schema(self) -> pa.Schema:
        """The columns that every heap has."""
        rows = self.settling.table.row_type
        named = pa.field("heap", pa.string(), nullable=False), pa.field("id", pa.string(), nullable=False)
        types: dict[str, pa.DataType] = {"deal": pa.int64()}
        types |= {"theirs_at": pa.int64(), "ours_at": pa.int64(), "ours_place": pa.int64()}
        types |= {"is_ours": pa.list_(pa.bool_()), "held": self.held_type, "verdict": pa.string()}
        types |= dict.fromkeys(SIDES, rows)
        return pa.schema([*named, *(pa.field(name, kind) for name, kind in types.items())])

    @property
    def coming(self) -> pa.Schema:
        """The columns of the rows that come."""
        names = ("id", "deal", "theirs_at", "ours_at", "ours_place", "is_ours", "held")
        return pa.schema([self.schema.field(name) for name in names])

    @property
    def held_type(self) -> pa.DataType:
        """The struct of what rows to put hold, blobs aside."""
        fields = [pa.field(f"c{number}", column.type) for number, column in enumerate(self.settling.plain)]
        return pa.struct(fields or [pa.field("c0", pa.bool_())])

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield what is found, settled and packed."""
        for found in batches:
            for heap, rows in self.settling.settled(found):
                yield self._packed(heap, rows)

    def unpacked(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return packed rows to put as the heap they came from has them."""
        schema = self.settling.heaps[PUT]
        plain = [field_of(rows.column("held"), number) for number in range(len(self.settling.plain))]
        places = [rows.column(name) for name in ("theirs_at", "ours_at", "ours_place")]
        ours = [compute.list_element(rows.column("is_ours"), number) for number in range(len(self.settling.blobs))]
        return pa.RecordBatch.from_arrays([rows.column("id"), *plain, *places, *ours], schema=schema)

    def _packed(self, heap: str, rows: pa.RecordBatch) -> pa.RecordBatch:
        count = rows.num_rows
        known: dict[str, Column] = {"heap": pa.repeat(pa.scalar(heap), count), "id": rows.column("id")}
        if heap == CONFLICTS:
            known |= {name: rows.column(name) for name in ("verdict", *SIDES)}
        else:
            known["ours_place"] = rows.column(OURS_PLACE)
            known["deal"] = _dealt(known["ours_place"], known["id"])
        if heap == PUT:
            known |= {"theirs_at": rows.column(THEIRS_AT), "ours_at": rows.column(OURS_AT)}
            known |= {"held": self._held(rows), "is_ours": _listed(rows)}
        columns = [known[each.name] if each.name in known else pa.nulls(count, each.type) for each in self.schema]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _held(self, rows: pa.RecordBatch) -> Column:
        wanted: Any = self.held_type
        columns = [rows.column(column.name) for column in self.settling.plain]
        return pa.StructArray.from_arrays(columns or [pa.nulls(rows.num_rows, pa.bool_())], fields=list(wanted))


def _dealt(places: Column, ids: Column) -> Column:
    """Return a number for each row: the fragment it lies in, or if it is new, where its id leads it."""
    heaps = (fingerprints(ids) % np.uint64(NEW_HEAPS)).astype(np.int64)
    return compute.coalesce(compute.shift_right(places, FRAGMENT_BITS), pa.array(-1 - heaps, pa.int64()))


def _listed(rows: pa.RecordBatch) -> Column:
    """Return for each row a list of whose its blobs are; null if it has none."""
    flags = [rows.column(name).to_pylist() for name in rows.schema.names if name.startswith(IS_OURS)]
    kind = pa.list_(pa.bool_())
    return pa.array([list(each) for each in zip(*flags, strict=True)], kind) if flags else pa.nulls(rows.num_rows, kind)
