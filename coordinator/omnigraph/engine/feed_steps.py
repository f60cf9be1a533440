"""What commits did to a table, and how many that put rows are told at once.

A commit that puts rows writes each of them at the end of its table, with the row id of the row it replaces. So, if some
commits follow each other and each row was put by one of them, the last rows of their last version are what they put, in
their order, and the version before the first of them has what was there. Two scans tell what all of them did, where
comparing each with the one before it opens files for every one.

A row that was put twice is written twice and there once. Then one of the last rows was put by none of these commits,
and is what it was before. That is looked for, so nothing is taken for granted; such commits are told in two halves.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.engine.row_changes import PinnedTable
from omnigraph.model.lineage import Commit
from omnigraph.rules.feed import Told
from omnigraph.rules.same_rows import same_values
from omnigraph.rules.values import compute
from omnigraph.storage.lance_diff import SomeRows, last_rows

Numbers: TypeAlias = npt.NDArray[np.int64]

FEW_ROWS_MAX: Final = 20_000
"""So many changed rows are held at once."""


class Step(NamedTuple):
    """What one commit did to a table: it was one way before and is another way now."""

    told: Told
    old: PinnedTable
    new: PinnedTable
    inserted: int | None = None
    """How many rows came, if nothing else was done."""
    put: tuple[int, int] | None = None
    """How many rows came and how many were replaced, if nothing else was done."""
    touched: int | None = None
    """How many rows were changed in any way, if that is known."""
    expired: Commit | None = None
    """The commit before, if what it held is gone: then only what was inserted can be told."""

    @property
    def rows_put(self) -> int:
        """How many rows came or were replaced."""
        return sum(self.put or (0, 0))


class Again(Enum):
    """Why some commits can not be told at once: rows were put twice, a few or most of them."""

    SOME = "some"
    MOST = "most"


@dataclass(frozen=True, slots=True)
class PutRows:
    """What some commits put, in their order, beside what was there, and which of the commits did."""

    rows: pa.RecordBatch
    which: Numbers


def follows(last: Step, step: Step) -> bool:
    """Tell whether two commits both only put rows, one on top of the other."""
    is_next = last.new.pin is not None and last.new.pin == step.old.pin
    return is_next and last.put is not None and step.put is not None and last.new.kind == step.old.kind


def runs_of(steps: Sequence[Step]) -> Iterator[list[Step]]:
    """Yield commits that may be told at once, and each of the others alone."""
    run: list[Step] = []
    rows = 0
    for step in steps:
        if run and (not follows(run[-1], step) or rows + step.rows_put > FEW_ROWS_MAX):
            yield run
            run, rows = [], 0
        run.append(step)
        rows += step.rows_put
    if run:
        yield run


def put_by(steps: Sequence[Step], old: SomeRows, new: SomeRows) -> PutRows | Again:
    """Return what commits put that follow each other, given how the versions before and after them are read."""
    counts = np.array([step.rows_put for step in steps])
    total = int(counts.sum())
    tail = last_rows(new, old.version, total)
    if tail is None:
        return Again.SOME if last_rows(new, old.version, total // 2) is not None else Again.MOST
    after = _table(tail.batches(), new).slice(tail.rows - total)
    at = np.asarray(after.column("at"), np.int64)
    before = _table(old.known_by(np.sort(at).astype(np.uint64)), old).sort_by("at")
    found, is_there = _places(np.asarray(before.column("at"), np.int64), at)
    which: Numbers = np.repeat(np.arange(len(steps)), counts)
    replaced = np.bincount(which[is_there], minlength=len(steps)).tolist()
    was, now = before.take(pa.array(found[is_there], pa.int64())), after.filter(pa.array(is_there))
    is_put = replaced == [step.put and step.put[1] for step in steps] and was.column("id").equals(now.column("id"))
    if not is_put or compute.any(same_values(was.column("row"), now.column("row"))).as_py():
        return Again.SOME
    rows = before.take(pa.array(found, pa.int64(), mask=~is_there))
    paired = {"id": after.column("id"), "old": rows.column("row"), "new": after.column("row")}
    both: Any = pa.table(paired).append_column("old_at", rows.column("at")).append_column("new_at", after.column("at"))
    (batch,) = both.combine_chunks().to_batches()
    return PutRows(batch, which)


def _table(batches: Iterator[pa.RecordBatch], some: SomeRows) -> pa.Table:
    return pa.Table.from_batches(list(batches), some.table.schema)


def _places(ascending: Numbers, wanted: Numbers) -> tuple[Numbers, npt.NDArray[np.bool_]]:
    """Return where numbers stand among others, and which of them are there."""
    if not len(ascending):
        return np.zeros(len(wanted), np.int64), np.zeros(len(wanted), np.bool_)
    found = np.minimum(np.searchsorted(ascending, wanted), len(ascending) - 1)
    return found, ascending[found] == wanted
