"""What a merge would do: which tables are adopted, which rows come and go, and all that does not go together."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from omnigraph.engine.integrity import Integrity
from omnigraph.engine.merge_bases import Bases, BaseTable, since_base
from omnigraph.engine.row_changes import RowChanges, TableAt
from omnigraph.engine.session import Session
from omnigraph.engine.three_way import Adopted, ThreeWay
from omnigraph.ids import TableId
from omnigraph.model.catalog import Catalog
from omnigraph.model.lineage import Commit
from omnigraph.model.merges import Conflict, MergedTable, Policy
from omnigraph.model.schema import Check, EnumType, Range, TableType
from omnigraph.model.tables import Pin
from omnigraph.rules.constraints import Violation
from omnigraph.rules.merging import constraint_conflicts, kind_of, row_conflict
from omnigraph.rules.row_checks import RowChecks
from omnigraph.rules.values import compute
from omnigraph.storage.spool import Spool

CONFLICTS_SHOWN_MAX = 1_000


@dataclass(slots=True)
class Plan:
    """What a merge would do to each table, by the identity of the table."""

    adopted: dict[TableId, Adopted] = field(default_factory=dict)
    merged: dict[TableId, ThreeWay] = field(default_factory=dict)
    violations: list[Violation] = field(default_factory=list)

    @property
    def changes(self) -> "Mapping[TableId, Adopted | ThreeWay]":
        """What becomes of the tables of the target; none of those whose rows turned out to be right already."""
        return {**self.adopted, **{table: each for table, each in self.merged.items() if each.adds or each.loses}}

    @property
    def tables(self) -> dict[str, MergedTable]:
        """What is done to each table, by its key."""
        rows = {each.key: each.counts for each in self.merged.values()}
        adopted = {str(each.kind.table): MergedTable(adopted=True) for each in self.adopted.values()}
        return dict(sorted((adopted | {key: counts for key, counts in rows.items() if any(_counted(counts))}).items()))

    def conflict_counts(self, catalog: Catalog) -> dict[str, dict[str, int]]:
        """Count what does not go together, by table and kind."""
        counts: dict[str, dict[str, int]] = {}
        for each in self.merged.values():
            for batch in each.conflicts():
                for found in compute.value_counts(batch.column("verdict")).to_pylist():
                    _count(counts, each.key, found["values"], found["counts"])
        for violation in self.violations:
            _count(counts, violation.table_key, str(kind_of(violation, catalog)), violation.count)
        return counts

    def conflicts(self, catalog: Catalog) -> Iterator[Conflict]:
        """Yield what does not go together: every row that both sides changed, and some for each broken constraint."""
        for each in self.merged.values():
            for batch in each.conflicts():
                yield from (row_conflict(each.table, row) for row in batch.to_pylist())
        for violation in self.violations:
            yield from constraint_conflicts(violation, catalog)


def _counted(table: MergedTable) -> tuple[int, int, int]:
    return table.rows_inserted, table.rows_updated, table.rows_deleted


def _count(counts: dict[str, dict[str, int]], key: str, kind: str, number: int) -> None:
    of_table = counts.setdefault(key, {})
    of_table[kind] = of_table.get(kind, 0) + number


class Planner:
    """Works out one merge of one commit into another; writes nothing but a local file."""

    def __init__(self, session: Session, catalog: Catalog, target: Commit, source: Commit) -> None:
        self._session = session
        self._catalog = catalog
        self._target = target
        self._source = source

    def forward(self, spool: Spool) -> Plan:
        """Plan that the target becomes what the source is."""
        plan = Plan()
        for kind in self._catalog.table_types:
            theirs = self._theirs(kind)
            if theirs.old.pin == theirs.new.pin:
                continue
            if theirs.new.pin is not None:
                plan.adopted[kind.table_id] = Adopted(kind=kind, theirs=theirs)
            else:
                plan.merged[kind.table_id] = self._by_rows(
                    theirs, kind, BaseTable(pin=theirs.old.pin), Policy.FAIL, spool
                )
        return plan

    def merge(self, bases: Bases, policies: Mapping[str, Policy], spool: Spool) -> Plan:
        """Plan a merge of two sides that both have changed, and check what would come of it."""
        plan = Plan()
        for kind in self._catalog.table_types:
            theirs, base = self._theirs(kind), bases.table(kind)
            if theirs.old.pin == theirs.new.pin or self._is_same(kind, base, self._source):
                continue
            if theirs.new.pin is not None and self._is_same(kind, base, self._target):
                plan.adopted[kind.table_id] = Adopted(kind=kind, theirs=theirs)
            else:
                policy = policies[str(kind.table)]
                plan.merged[kind.table_id] = self._by_rows(theirs, kind, base, policy, spool)
        plan.violations = [*self._broken_alone(plan), *self._broken_together(plan)]
        return plan

    def _theirs(self, kind: TableType) -> RowChanges:
        return self._between(kind, self._target.pins.get(kind.table_id), self._source.pins.get(kind.table_id))

    def _between(self, kind: TableType, old: Pin | None, new: Pin | None) -> RowChanges:
        return RowChanges(session=self._session, old=TableAt(kind=kind, pin=old), new=TableAt(kind=kind, pin=new))

    def _is_same(self, kind: TableType, base: BaseTable, side: Commit) -> bool:
        """Tell whether a side surely has the rows the base has, without reading any."""
        pin = side.pins.get(kind.table_id)
        return base.is_pin and self._between(kind, base.pin, pin).has_same_files

    def _by_rows(self, theirs: RowChanges, kind: TableType, base: BaseTable, policy: Policy, spool: Spool) -> ThreeWay:
        told = since_base(self._session, self._target, kind, base)
        work = ThreeWay(kind=kind, theirs=theirs, base=told, policy=policy, spool=spool)
        work.sort_out()
        return work

    def _broken_together(self, plan: Plan) -> list[Violation]:
        """Run the rules of the schema over what comes and goes, on the tables of the target."""
        return Integrity(self._session, self._catalog, plan.changes, self._target.pins).violations()

    def _broken_alone(self, plan: Plan) -> Iterator[Violation]:
        """Check the rows that come by themselves: the source may have been written without."""
        for change in plan.changes.values():
            columns = _checked_columns(change.kind)
            checks = RowChecks(change.kind)
            if columns and change.adds:
                for batch in change.rows(["id", *columns]):
                    checks.look(batch)
            yield from checks.violations


def _checked_columns(kind: TableType) -> list[str]:
    enums = [column.name for column in kind.properties if isinstance(column.type, EnumType)]
    others = [each.column for each in kind.constraints if isinstance(each, Range | Check)]
    return list(dict.fromkeys((*enums, *others)))
