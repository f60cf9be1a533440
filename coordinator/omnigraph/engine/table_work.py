"""What a transaction has done for each of its tables so far."""

from collections.abc import MutableMapping
from dataclasses import dataclass, field

from omnigraph.engine.parts import Verb
from omnigraph.engine.repeats import Repeats
from omnigraph.engine.session import Session
from omnigraph.errors import StorageError
from omnigraph.failpoints import Failpoint, reach
from omnigraph.ids import TableId
from omnigraph.model.schema import TableType
from omnigraph.model.staged import RowSet, Staged
from omnigraph.model.tables import Pin
from omnigraph.rules.ascending import Stretch, are_apart
from omnigraph.rules.constraints import Violation
from omnigraph.rules.row_checks import RowChecks
from omnigraph.rules.values import Column
from omnigraph.storage.layout import table_location
from omnigraph.storage.staging import Ticket


@dataclass(slots=True, kw_only=True)
class TableWork:
    """What has been staged for one table so far."""

    kind: TableType
    verbs: set[Verb]
    ticket: Ticket
    checks: RowChecks
    is_strict: bool = False
    parts: list[Staged] = field(default_factory=list)
    staged_elsewhere: list[Staged] = field(default_factory=list)
    """Those of the parts whose ids have not gone by here."""
    stretches: list[Stretch | None] = field(default_factory=list)
    """The ids of those, if they came in order."""
    repeats: Repeats = field(default_factory=Repeats)
    deleted_ids: list[Column] = field(default_factory=list)
    deleted_rows: list[RowSet] = field(default_factory=list)
    found: list[Violation] = field(default_factory=list)
    predicates: list[str] = field(default_factory=list)

    @property
    def key(self) -> str:
        """Which table it is."""
        return str(self.kind.table)

    @property
    def has_no_twins(self) -> bool:
        """Whether it is known, without a look at them, that no id was given twice: all came elsewhere, and in order."""
        return len(self.parts) == len(self.staged_elsewhere) and are_apart(self.stretches)

    @property
    def violations(self) -> list[Violation]:
        """What its rows break by themselves."""
        return self.checks.violations + self.found


def work_for(
    session: Session, tables: MutableMapping[TableId, TableWork], kind: TableType, pin: Pin | None, verb: Verb
) -> TableWork:
    """Return the work for a table, begun now or before, with one more verb."""
    if kind.table_id not in tables:
        uri = session.root.uri(table_location(kind.table.kind, kind.table_id))
        ticket = Ticket(uri=uri, base_version=None if pin is None else pin.lance_version)
        tables[kind.table_id] = TableWork(kind=kind, verbs=set(), ticket=ticket, checks=RowChecks(kind))
    tables[kind.table_id].verbs.add(verb)
    return tables[kind.table_id]


def step(point: Failpoint) -> None:
    """Pass a place where a test may let storage fail."""
    try:
        reach(point)
    except OSError as problem:
        raise StorageError(f"nothing was applied: {problem}") from problem
