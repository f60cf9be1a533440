"""What a merge would do: which tables are adopted, which rows come and go, and all that does not go together."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property

from omnigraph.engine.deltas import uri_of
from omnigraph.engine.engines import cluster_for
from omnigraph.engine.integrity import Integrity
from omnigraph.engine.merge_bases import BaseTable, BaseTables, since_base
from omnigraph.engine.row_changes import PinnedTable, RowChanges
from omnigraph.engine.session import Session
from omnigraph.engine.spread_integrity import SpreadIntegrity
from omnigraph.engine.spread_three_way import SpreadThreeWay, broken_alone
from omnigraph.engine.spreading import SpreadChange
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
from omnigraph.storage.relations import ClusterEngine
from omnigraph.storage.spool import Spool
from omnigraph.storage.staging import Ticket

CONFLICTS_SHOWN_MAX = 1_000


class Aside(ExitStack):
    """Where rows are set aside while a merge is worked out: a local file, or wherever an engine keeps them."""

    @cached_property
    def spool(self) -> Spool:
        """The local file."""
        return self.enter_context(Spool())


@dataclass(slots=True)
class Plan:
    """What a merge would do to each table, by the identity of the table."""

    adopted: dict[TableId, Adopted] = field(default_factory=dict)
    merged: "dict[TableId, ThreeWay | SpreadThreeWay]" = field(default_factory=dict)
    violations: list[Violation] = field(default_factory=list)

    @property
    def changes(self) -> "Mapping[TableId, Adopted | ThreeWay | SpreadThreeWay]":
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
            for kind, number in each.conflict_counts.items():
                _count(counts, each.key, kind, number)
        for violation in self.violations:
            _count(counts, violation.table_key, str(kind_of(violation, catalog)), violation.count)
        return counts

    def conflicts(self, catalog: Catalog, most: int | None = None) -> Iterator[Conflict]:
        """Yield what does not go together: rows that both sides changed, and some for each broken constraint.

        Those are all rows, or at most so many of each table.
        """
        for each in self.merged.values():
            for batch in each.conflicts(most):
                yield from (row_conflict(each.table, row) for row in batch.to_pylist())
        for violation in self.violations:
            yield from constraint_conflicts(violation, catalog)


def _counted(table: MergedTable) -> tuple[int, int, int]:
    return table.rows_inserted, table.rows_updated, table.rows_deleted


def _count(counts: dict[str, dict[str, int]], key: str, kind: str, number: int) -> None:
    of_table = counts.setdefault(key, {})
    of_table[kind] = of_table.get(kind, 0) + number


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One table to merge row by row: what the sides have, what to do where they clash, and who works it out."""

    theirs: RowChanges
    base: BaseTable
    policy: Policy
    cluster: ClusterEngine | None


class Planner:
    """Works out one merge of one commit into another; writes nothing but a local file."""

    def __init__(self, session: Session, catalog: Catalog, target: Commit, source: Commit) -> None:
        self._session = session
        self._catalog = catalog
        self._target = target
        self._source = source

    def forward(self, aside: Aside) -> Plan:
        """Plan that the target becomes what the source is."""
        plan = Plan()
        for kind in self._catalog.table_types:
            theirs = self._theirs(kind)
            if theirs.old.pin == theirs.new.pin:
                continue
            if theirs.new.pin is not None:
                plan.adopted[kind.table_id] = Adopted(kind=kind, theirs=theirs)
            else:
                cluster = cluster_for(self._session, theirs.rows)
                work = Work(theirs=theirs, base=BaseTable(pin=theirs.old.pin), policy=Policy.FAIL, cluster=cluster)
                plan.merged[kind.table_id] = self._by_rows(kind, work, aside)
        return plan

    def merge(self, bases: BaseTables, policies: Mapping[str, Policy], aside: Aside) -> Plan:
        """Plan a merge of two sides that both have changed, and check what would come of it."""
        plan = Plan()
        by_rows: list[tuple[TableType, RowChanges, BaseTable]] = []
        for kind in self._catalog.table_types:
            theirs, base = self._theirs(kind), bases.table(kind)
            if theirs.old.pin == theirs.new.pin or self._is_same(kind, base, self._source):
                continue
            if theirs.new.pin is not None and self._is_same(kind, base, self._target):
                plan.adopted[kind.table_id] = Adopted(kind=kind, theirs=theirs)
            else:
                by_rows.append((kind, theirs, base))
        looked_at = [each.theirs for each in plan.adopted.values()] + [theirs for _, theirs, _ in by_rows]
        cluster = cluster_for(self._session, sum(theirs.rows for theirs in looked_at))
        for kind, theirs, base in by_rows:
            work = Work(theirs=theirs, base=base, policy=policies[str(kind.table)], cluster=cluster)
            plan.merged[kind.table_id] = self._by_rows(kind, work, aside)
        if cluster is None:
            plan.violations = [*self._broken_alone(plan), *self._broken_together(plan)]
        else:
            plan.violations = self._broken_elsewhere(plan, cluster)
        return plan

    def _theirs(self, kind: TableType) -> RowChanges:
        return self._between(kind, self._target.pins.get(kind.table_id), self._source.pins.get(kind.table_id))

    def _between(self, kind: TableType, old: Pin | None, new: Pin | None) -> RowChanges:
        return RowChanges(
            session=self._session, old=PinnedTable(kind=kind, pin=old), new=PinnedTable(kind=kind, pin=new)
        )

    def _is_same(self, kind: TableType, base: BaseTable, side: Commit) -> bool:
        """Tell whether a side surely has the rows the base has, without reading any."""
        pin = side.pins.get(kind.table_id)
        return base.is_pin and self._between(kind, base.pin, pin).has_same_files

    def _by_rows(self, kind: TableType, work: Work, aside: Aside) -> ThreeWay | SpreadThreeWay:
        theirs, policy = work.theirs, work.policy
        told = since_base(self._session, self._target, kind, work.base)
        if work.cluster is not None:
            spread = SpreadThreeWay(kind=kind, theirs=theirs, base=told, policy=policy, engine=work.cluster)
            aside.enter_context(work.cluster.kept(spread.heaps))
            return spread
        three = ThreeWay(kind=kind, theirs=theirs, base=told, policy=policy, spool=aside.spool)
        three.sort_out()
        return three

    def _broken_together(self, plan: Plan) -> list[Violation]:
        """Run the rules of the schema over what comes and goes, on the tables of the target."""
        changes = {key: each for key, each in plan.changes.items() if not isinstance(each, SpreadThreeWay)}
        return Integrity(self._session, self._catalog, changes, self._target.pins).violations()

    def _broken_alone(self, plan: Plan) -> Iterator[Violation]:
        """Check the rows that come by themselves: the source may have been written without."""
        for change in plan.changes.values():
            columns = _checked_columns(change.kind)
            checks = RowChecks(change.kind)
            if columns and change.adds and not isinstance(change, SpreadThreeWay):
                for batch in change.rows(["id", *columns]):
                    checks.look(batch)
            yield from checks.violations

    def _broken_elsewhere(self, plan: Plan, cluster: ClusterEngine) -> list[Violation]:
        """Do both of these where the rows are."""
        spread = {key: each for key, each in plan.changes.items() if not isinstance(each, ThreeWay)}
        changes: Mapping[TableId, SpreadChange] = spread
        found: list[Violation] = []
        for change in spread.values():
            columns = _checked_columns(change.kind)
            if columns and change.adds:
                wanted = ["id", *columns]
                ticket = Ticket(uri=uri_of(self._session, change.kind), base_version=None)
                found += broken_alone(cluster, change.kind, change.spread_rows(wanted), wanted, ticket)
        pins = self._target.pins
        return found + SpreadIntegrity(self._session, self._catalog, changes, pins, cluster).violations()


def _checked_columns(kind: TableType) -> list[str]:
    enums = [column.name for column in kind.properties if isinstance(column.type, EnumType)]
    others = [each.column for each in kind.constraints if isinstance(each, Range | Check)]
    return list(dict.fromkeys((*enums, *others)))
