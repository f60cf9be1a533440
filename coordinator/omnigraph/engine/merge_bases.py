"""What a table was before two sides changed it: as one commit has it or, where histories crossed, as several do."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from omnigraph.engine.ancestry import CommitGraph
from omnigraph.engine.row_changes import PinnedTable, RowChanges
from omnigraph.engine.session import Session
from omnigraph.ids import CommitId
from omnigraph.model.lineage import Commit
from omnigraph.model.schema import TableType
from omnigraph.model.tables import Pin
from omnigraph.rules.merge_plans import ONE_BASE, TWO_BASES
from omnigraph.storage.relations import Found, Relation


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseTable:
    """A table at the base: exactly as one pin has it, unless it has to be put together row by row."""

    pin: Pin | None
    rows: Relation | None = None
    """What became of rows from the target to the base, if no single pin says it."""

    @property
    def is_pin(self) -> bool:
        """Whether one pin says all."""
        return self.rows is None


class BaseTables(Protocol):
    """Says what every table was before both sides changed it."""

    def table(self, kind: TableType) -> BaseTable:
        """Return what a table was."""


class Bases:
    """The best common ancestors of a source and a target, as one base."""

    def __init__(self, session: Session, graph: CommitGraph, target: Commit, bases: Sequence[CommitId]) -> None:
        self._session = session
        self._graph = graph
        self._target = target
        self.commits = tuple(graph.commit(base) for base in bases)
        self._look_ahead(bases)

    def table(self, kind: TableType) -> BaseTable:
        """Return what a table was."""
        return self._joined([commit.id for commit in self.commits], kind)

    def _look_ahead(self, ids: Sequence[CommitId]) -> None:
        """Read all of history that will be asked about, as long as it can be looked at."""
        for number, other in enumerate(ids[1:], 1):
            self._look_ahead(self._graph.bases(ids[:number], [other]))

    def _joined(self, ids: Sequence[CommitId], kind: TableType) -> BaseTable:
        """Make one base of several: two at a time, each pair seen from what came before both."""
        one = self._at(ids[0], kind)
        for number, other in enumerate(ids[1:], 1):
            older = self._joined(self._graph.bases(ids[:number], [other]), kind)
            one = self._of_two(one, self._at(other, kind), older, kind)
        return one

    def _at(self, id: CommitId, kind: TableType) -> BaseTable:
        return BaseTable(pin=self._graph.commit(id).pins.get(kind.table_id))

    def _of_two(self, one: BaseTable, other: BaseTable, older: BaseTable, kind: TableType) -> BaseTable:
        if one.is_pin and other.is_pin and one.pin == other.pin:
            return one
        if older.is_pin and one.is_pin and one.pin == older.pin:
            return other
        if older.is_pin and other.is_pin and other.pin == older.pin:
            return one
        relations = {"one": one, "other": other, "older": older}
        told = {name: since_base(self._session, self._target, kind, base) for name, base in relations.items()}
        return BaseTable(pin=None, rows=Found(TWO_BASES, told))


def since_base(session: Session, target: Commit, kind: TableType, base: BaseTable) -> Relation:
    """Return what became of the rows of a table from the target back to the base."""
    if base.rows is not None:
        return base.rows
    there = PinnedTable(kind=kind, pin=target.pins.get(kind.table_id))
    changes = RowChanges(session=session, old=there, new=PinnedTable(kind=kind, pin=base.pin))
    return Found(ONE_BASE, changes.relations)
