"""The parts of a change feed: each can be read anywhere, and holds no handle.

Most commits only insert rows. What they inserted is the last rows of the version they made, so a stretch of such
commits is read like a table, from the last of their versions alone. Commits that put rows are told many at a time, if
they can be (:mod:`omnigraph.engine.feed_steps`). Every other commit is compared with the one before.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from omnigraph.engine.diff_rows import BLOB_ROWS_MAX
from omnigraph.engine.feed_steps import FEW_ROWS_MAX, Again, Numbers, PutRows, Step, put_by, runs_of
from omnigraph.engine.integrity import ENGINE
from omnigraph.engine.row_changes import PinnedTable
from omnigraph.engine.shares import Share
from omnigraph.errors import CorruptGraphError
from omnigraph.model.schema import TableType
from omnigraph.rules.feed import (
    DELETE,
    INSERT,
    POSTIMAGE,
    PREIMAGE,
    Told,
    changed_among,
    feed_schema,
    names_in,
    of_every_type,
    shown,
    shown_table,
    told_of,
)
from omnigraph.rules.records import plain_schema
from omnigraph.rules.row_changes import CHANGED, field_of
from omnigraph.rules.values import Column, compute
from omnigraph.storage.lance_diff import Piece, SomeRows, blobs_at, differing, every_row, in_parts
from omnigraph.storage.relations import Readable, Spread
from omnigraph.storage.roots import StorageOptions

ROWS_TOGETHER: Final = 8_192
ROWS_ALONE: Final = 1_024
"""So many rows are worth a batch; to copy them takes longer than to pass one more batch on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Insertions:
    """Rows that came, in the order of their commits: some fragments of one version."""

    kind: TableType
    names: tuple[str | None, ...]
    share: Share
    told: tuple[Told, ...]
    ends: tuple[int, ...]
    """Where the rows of each commit end."""
    skipped: int = 0
    """How many rows come before them in the same file, of commits that are not told of."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Stream the rows."""
        schema, ends, done = feed_schema(self.kind), np.asarray(self.ends, np.int64), 0
        rows = _after(self.share.batches(), self.skipped)
        for batch in _together(rows, self.share.batch_rows or ROWS_TOGETHER):
            places = np.arange(done, done + batch.num_rows)
            done += batch.num_rows
            if done > self.ends[-1]:
                break
            first, last = np.searchsorted(ends, places[[0, -1]], side="right")
            which = np.searchsorted(ends[first : last + 1], places, side="right")
            change = pa.repeat(pa.scalar(INSERT), batch.num_rows)
            columns = [*shown(schema, self.names, batch), change, *told_of(self.told[first : last + 1], which)]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)
        if done != self.ends[-1]:
            raise CorruptGraphError(
                f"version {self.share.version} of {self.share.uri} has other rows than its commits told of"
            )


def _after(batches: Iterable[pa.RecordBatch], skipped: int) -> Iterator[pa.RecordBatch]:
    """Yield rows without the first so many."""
    for batch in batches:
        if skipped < batch.num_rows:
            yield batch.slice(skipped)
        skipped = max(skipped - batch.num_rows, 0)


def _together(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """Make few batches of many small ones, since a fragment may have a hundred rows; others are left as they are."""
    waiting: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        is_large = batch.num_rows >= min(rows, ROWS_ALONE)
        if waiting and (is_large or count >= rows):
            yield from pa.Table.from_batches(waiting).combine_chunks().to_batches()
            waiting, count = [], 0
        if is_large:
            yield batch
        else:
            waiting.append(batch)
            count += batch.num_rows
    if count:
        yield from pa.Table.from_batches(waiting).combine_chunks().to_batches()


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparisons:
    """Commits that changed rows of one table, each compared with the one before."""

    kind: TableType
    uri: str
    options: StorageOptions
    steps: tuple[Step, ...]

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Stream the rows, in the order of the commits; what was comes before what is."""
        has_blobs = any(column.is_blob for column in shown_table(self.kind).columns)
        for steps in [[step] for step in self.steps] if has_blobs else runs_of(self.steps):
            yield from self._run(steps)

    def _run(self, steps: Sequence[Step]) -> Iterator[pa.RecordBatch]:
        """Stream what some commits did: of all at once, or if that can not be told of one after the other."""
        if len(steps) == 1:
            yield from self._step(steps[0])
            return
        if not any(step.rows_put for step in steps):
            return
        put = put_by(steps, self._some(steps[0].old, ()), self._some(steps[-1].new, ()))
        if isinstance(put, PutRows):
            yield self._all_of(steps, put)
            return
        each = len(steps) // 2 if put is Again.SOME else 1
        for start in range(0, len(steps), each):
            yield from self._run(steps[start : start + each])

    def _step(self, step: Step) -> Iterator[pa.RecordBatch]:
        lost, come = self._pieces(step)
        before, after = self._rows(step.old, lost), self._rows(step.new, come)
        if lost and come:
            yield from self._changed(step, before, after)
        else:  # ids are unique within a version: what only one side has can not meet another
            yield from self._stored(step, before, DELETE)
            yield from self._stored(step, after, INSERT)

    def _all_of(self, steps: Sequence[Step], put: PutRows) -> pa.RecordBatch:
        """Return what several commits did: of each what was, and then what is."""
        told = [step.told for step in steps]
        images = [
            self._image(steps[0].old, put.rows, "old", told, put.which),
            self._image(steps[-1].new, put.rows, "new", told, put.which),
        ]
        was = put.which[np.asarray(compute.is_valid(put.rows.column("old")), np.bool_)]
        order = np.argsort(np.concatenate([2 * was, 2 * put.which + 1]), kind="stable")
        (every,) = pa.Table.from_batches(images).combine_chunks().to_batches()
        return every.take(pa.array(order, pa.int64()))

    def _pieces(self, step: Step) -> tuple[tuple[Piece, ...], tuple[Piece, ...]]:
        old, new = step.old.pin, step.new.pin
        if old is not None and new is not None:
            return differing(self.uri, old.lance_version, new.lance_version, self.options)
        every = [() if pin is None else every_row(self.uri, pin.lance_version, self.options) for pin in (old, new)]
        return every[0], every[1]

    def _rows(self, at: PinnedTable, pieces: tuple[Piece, ...]) -> tuple[SomeRows, ...]:
        return () if at.pin is None else tuple(self._some(at, part) for part in in_parts(pieces))

    def _some(self, at: PinnedTable, pieces: tuple[Piece, ...]) -> SomeRows:
        """Return how some rows of a commit are read."""
        assert at.pin is not None  # noqa: S101  what has rows has one
        table = shown_table(self.kind)
        return SomeRows(
            uri=self.uri,
            version=at.pin.lance_version,
            options=self.options,
            table=table,
            names=names_in(self.kind, at.kind),
            pieces=pieces,
            needs_row_ids=any(column.is_blob for column in table.columns),  # which are fetched by row ids
        )

    def _stored(self, step: Step, parts: tuple[SomeRows, ...], change: str) -> Iterator[pa.RecordBatch]:
        has_blobs = any(column.is_blob for column in shown_table(self.kind).columns)
        for part in parts:
            wanted = ["id", *(name for name in part.names if name is not None)]
            for rows in part.stored(wanted, has_blobs=has_blobs):
                changes = pa.repeat(pa.scalar(change), rows.num_rows)
                columns = shown(feed_schema(self.kind), part.names, rows)
                yield self._told(columns, changes, [step.told], np.zeros(rows.num_rows, np.int64))

    def _changed(
        self, step: Step, before: tuple[SomeRows, ...], after: tuple[SomeRows, ...]
    ) -> Iterator[pa.RecordBatch]:
        table = shown_table(self.kind)
        relations = {"old": Spread(table.schema, before), "new": Spread(table.schema, after)}
        has_blobs = any(column.is_blob for column in table.columns)
        for batch in self._found(relations):
            size = BLOB_ROWS_MAX if has_blobs else max(1, batch.num_rows)
            for start in range(0, batch.num_rows, size):
                rows = batch.slice(start, size)
                which = np.zeros(rows.num_rows, np.int64)
                yield self._image(step.old, rows, "old", [step.told], which)
                yield self._image(step.new, rows, "new", [step.told], which)

    def _found(self, relations: dict[str, Spread]) -> Iterable[pa.RecordBatch]:
        rows = sum(part.rows for side in relations.values() for part in side.parts if isinstance(part, SomeRows))
        if rows > FEW_ROWS_MAX:
            return ENGINE.run(CHANGED, relations)
        return changed_among(*(relations[name].reader().read_all() for name in ("old", "new")))

    def _image(
        self, at: PinnedTable, rows: pa.RecordBatch, side: str, told: Sequence[Told], which: Numbers
    ) -> pa.RecordBatch:
        """Return the rows of one side as they are shown, with what became of them, and of which commits they are."""
        is_old = side == "old"
        alone, both = (DELETE, PREIMAGE) if is_old else (INSERT, POSTIMAGE)
        is_there = compute.is_valid(rows.column(side))
        there: Any = rows.filter(is_there)
        change = compute.if_else(compute.is_null(there.column("new" if is_old else "old")), alone, both)
        structs, names = there.column(side), names_in(self.kind, at.kind)
        columns: list[Column] = [there.column("id")]
        for number, column in enumerate(shown_table(self.kind).columns):
            part = field_of(structs, number)
            if column.is_blob:
                part = self._blobs(at, names[number], there.column(f"{side}_at"))
            columns.append(part)
        wanted = plain_schema(self.kind)
        fitted = [
            part if part.type == field.type else part.cast(field.type)
            for part, field in zip(columns, wanted, strict=True)
        ]
        return self._told(fitted, change, told, which[np.asarray(is_there, np.bool_)])

    def _blobs(self, at: PinnedTable, name: str | None, places: Column) -> Column:
        if at.pin is None or name is None:
            return pa.nulls(len(places), pa.large_binary())
        return blobs_at(self.uri, at.pin.lance_version, name, places, self.options)

    def _told(self, columns: list[Column], change: Column, told: Sequence[Told], which: Numbers) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([*columns, change, *told_of(told, which)], schema=feed_schema(self.kind))


@dataclass(frozen=True, slots=True, kw_only=True)
class OfEveryType:
    """A part of a feed of one type, as part of a feed of all."""

    kind: TableType
    part: Readable

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Stream the rows."""
        return (of_every_type(self.kind, rows) for rows in self.part.batches())
