"""One table that both sides changed, merged by an engine with machines of its own: same plan, same answers.

What the plan finds is kept where it was found: rows to put, rows to take out, and conflicts, in one relation. Only
counts, samples and what tasks have staged come back. Nothing is staged before it is known that nothing conflicts.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import pyarrow as pa

from omnigraph.engine.answering import ANSWERS, answer, answers
from omnigraph.engine.merged_rows import MergedRows
from omnigraph.engine.parts import Part, gather
from omnigraph.engine.row_changes import RowChanges
from omnigraph.engine.spreading import Renaming, stored_types
from omnigraph.model.merges import MergedTable, Policy
from omnigraph.model.schema import TableType
from omnigraph.model.staged import RowSet, StagedUpsert
from omnigraph.rules.constraints import Violation
from omnigraph.rules.merge_plans import THREE_WAY
from omnigraph.rules.row_changes import ComparedTable
from omnigraph.rules.row_checks import RowChecks
from omnigraph.rules.settling import (
    COMING,
    CONFLICTING,
    CONFLICTS,
    GOING,
    GONE,
    GONE_IDS,
    HEAPED,
    PUT,
    SOME_CONFLICTING,
    Packing,
    Settling,
)
from omnigraph.storage.lance_rows import PlacesSeen, row_sets
from omnigraph.storage.relations import ClusterEngine, Found, Made, Relation
from omnigraph.storage.staging import Staging, Ticket

GOING_COLUMNS: Final = pa.schema([("ours_place", pa.int64()), ("deal", pa.int64())])


@dataclass(frozen=True, kw_only=True, eq=False)
class SpreadThreeWay:
    """The rows of one table, seen from the target: what the source has instead, and what the base had."""

    kind: TableType
    theirs: RowChanges
    base: Relation
    policy: Policy
    engine: ClusterEngine

    @property
    def table(self) -> ComparedTable:
        """How rows are compared."""
        return self.theirs.table

    @property
    def key(self) -> str:
        """Which table it is."""
        return str(self.kind.table)

    @cached_property
    def heaps(self) -> Made:
        """All that the plan finds, settled; whoever looks at it more than once keeps it."""
        found = Found(THREE_WAY, {"theirs": self.theirs.changed, "base": self.base})
        packing = self._packing
        return Made(rows=found, given=packing.settling.found, make=packing, schema=packing.schema)

    @property
    def counts(self) -> MergedTable:
        """How many rows come, change and go."""
        updated = sum(known for heap, _, _, known in self._counted if heap == PUT)
        return MergedTable(
            adopted=False, rows_inserted=self.size - updated, rows_updated=updated, rows_deleted=self._rows(GONE)
        )

    @property
    def conflict_counts(self) -> dict[str, int]:
        """How many rows conflict, by kind."""
        return {str(verdict): found for heap, verdict, found, _ in self._counted if heap == CONFLICTS}

    def conflicts(self, most: int | None = None) -> Iterator[pa.RecordBatch]:
        """Stream the rows that conflict, as each side has them: all of them, or some."""
        if not self.conflict_counts:
            return
        if most is None:
            yield from self.engine.run(CONFLICTING, {"heaps": self.heaps})
        else:
            yield from self.engine.run(SOME_CONFLICTING, {"heaps": self.heaps}, {"most": most})

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

    def spread_rows(self, columns: Sequence[str]) -> Made:
        """Return columns of the rows that come, in their new form; blobs can not be asked for."""
        packing, schema = self._packing, stored_types(self.kind, columns)
        make = Columns(packing=packing, shape=Renaming(named={name: name for name in columns}, schema=schema))
        return Made(rows=self._coming, given=packing.coming, make=make, schema=schema)

    @property
    def spread_gone(self) -> Found:
        """Return the ids of rows that are taken out or replaced."""
        return Found(GONE_IDS, {"heaps": self.heaps})

    # -- staging --------------------------------------------------------------------------------------

    def staged(self, ticket: Ticket) -> StagedUpsert:
        """Let tasks stage the rows that come, each those of some fragments of the target."""
        packing = self._packing
        make = PuttingRows(packing=packing, rows=MergedRows.of(self.kind, self.theirs), ticket=ticket)
        made = Made(rows=self._coming, given=packing.coming, make=make, schema=ANSWERS, dealt_by="deal")
        parts = gather("upsert", answers(self.engine, made), ticket, self.kind).staged
        upserts = [part for part in parts if isinstance(part, StagedUpsert)]
        return self.theirs.session.staging.united(ticket, upserts)

    def deleted_places(self, ticket: Ticket) -> tuple[RowSet, ...]:
        """Return where in the target the rows lie that go and do not come back."""
        rows = Found(GOING, {"heaps": self.heaps})
        make = FindingPlaces(kind=self.kind, ticket=ticket)
        made = Made(rows=rows, given=GOING_COLUMNS, make=make, schema=ANSWERS, dealt_by="deal")
        return gather("delete", answers(self.engine, made), ticket, self.kind).rows

    @property
    def _coming(self) -> Found:
        return Found(COMING, {"heaps": self.heaps})

    @property
    def settling(self) -> Settling:
        """How its rows are settled."""
        return self._packing.settling

    @cached_property
    def _packing(self) -> Packing:
        return Packing(settling=Settling(table=self.table, policy=self.policy))

    @cached_property
    def _counted(self) -> list[tuple[str, str | None, int, int]]:
        """Each heap by its kind of conflict: how many rows it has, and how many of them the target has too."""
        rows = self.engine.run(HEAPED, {"heaps": self.heaps}).read_all().to_pylist()
        return [(row["heap"], row["verdict"], row["found"], row["known"]) for row in rows]

    def _rows(self, name: str) -> int:
        return sum(found for heap, _, found, _ in self._counted if heap == name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Makes rows to put into some of their columns, as they are stored."""

    packing: Packing
    shape: Renaming

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Make them."""
        return self.shape(self.packing.unpacked(batch) for batch in batches)


@dataclass(frozen=True, slots=True, kw_only=True)
class PuttingRows:
    """Stages rows that come, as a task does its share of an upsert, and says what it staged."""

    packing: Packing
    rows: MergedRows
    ticket: Ticket

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Stage all of them; without any there is nothing to say."""
        seen = PlacesSeen()
        reader = self.rows.reader((self.packing.unpacked(batch) for batch in batches), seen)
        staged = Staging(self.rows.options).upsert(self.ticket, reader, seen)
        if not staged.is_empty or staged.unchanged:
            yield answer(Part(staged=staged).to_text(self.ticket, self.rows.kind))


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingPlaces:
    """Says where rows lie that go."""

    kind: TableType
    ticket: Ticket

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Say it for all of them; without any there is nothing to say."""
        places = [np.asarray(batch.column("ours_place"), np.uint64) for batch in batches]
        rows = row_sets(np.concatenate([np.empty(0, np.uint64), *places]))
        if rows:
            yield answer(Part(rows=rows).to_text(self.ticket, self.kind))


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckingRows:
    """Says which rows break a rule by themselves."""

    kind: TableType
    ticket: Ticket

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Look at all of them; if nothing is wrong there is nothing to say."""
        checks = RowChecks(self.kind)
        for batch in batches:
            checks.look(batch)
        if checks.violations:
            yield answer(Part(violations=tuple(checks.violations)).to_text(self.ticket, self.kind))


def broken_alone(
    engine: ClusterEngine, kind: TableType, rows: Relation, columns: Sequence[str], ticket: Ticket
) -> tuple[Violation, ...]:
    """Let tasks check rows by themselves, and add up what they found."""
    make = CheckingRows(kind=kind, ticket=ticket)
    made = Made(rows=rows, given=stored_types(kind, columns), make=make, schema=ANSWERS)
    return gather("upsert", answers(engine, made), ticket, kind).violations
