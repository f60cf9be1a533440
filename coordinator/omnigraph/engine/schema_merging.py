"""Merging branches whose schemas differ: both sides and their base are given one schema, and then merged as ever.

What the tables need for that is sealed into versions that nothing refers to. If the merge is published, it adopts those
of them that are its result; all of it is one commit, and a merge that is refused leaves nothing but such versions.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from omnigraph.engine.evolving import schema_promise
from omnigraph.engine.history import History
from omnigraph.engine.merge_bases import BaseTable
from omnigraph.engine.merge_planning import Plan
from omnigraph.engine.merge_staging import staged_promises
from omnigraph.engine.reshaping import reshapes, sealed_pin, staged_reshape
from omnigraph.engine.schema_checking import SchemaChecks
from omnigraph.engine.schema_looks import LookForNulls, looked_elsewhere
from omnigraph.engine.session import Session
from omnigraph.engine.spread_three_way import SpreadThreeWay
from omnigraph.ids import TableId
from omnigraph.model.catalog import Catalog
from omnigraph.model.lineage import Commit
from omnigraph.model.merge_promise import Adoption
from omnigraph.model.merges import Conflict, ConflictKind
from omnigraph.model.schema import TableType
from omnigraph.model.schema_promise import SchemaPromise
from omnigraph.model.tables import Pin
from omnigraph.rules.constraints import Violation
from omnigraph.rules.merging import constraint_conflicts
from omnigraph.rules.schema_merge import Divergence, merge_catalogs
from omnigraph.rules.schema_print import print_schema


@dataclass(frozen=True, kw_only=True)
class Aligned:
    """Both sides of a merge and their base, as one schema has them; or why there is no such schema."""

    catalog: Catalog
    target: Commit
    source: Commit
    base: Commit
    conflicts: tuple[Conflict, ...] = ()
    required: Mapping[TableId, tuple[str, ...]] = field(default_factory=dict)
    """Properties that the source has no values for, although they are required."""

    def table(self, kind: TableType) -> BaseTable:
        """Return what a table was before both sides changed it."""
        return BaseTable(pin=self.base.pins.get(kind.table_id))


class Alignment:
    """Gives the commits of one graph one schema."""

    def __init__(self, session: Session, history: History) -> None:
        self._session = session
        self._history = history

    def align(self, bases: tuple[Commit, ...], target: Commit, source: Commit) -> Aligned:
        """Return both sides and their base under a schema that has what both sides wanted."""
        base = bases[0]
        old, ours, theirs = (self._history.catalog(commit) for commit in (base, target, source))
        if len({commit.schema_hash for commit in bases}) > 1:
            crossed = Divergence("", "histories have crossed with different schemas; merge the other way round first")
            return Aligned(catalog=ours, target=target, source=source, base=base, conflicts=_told([crossed]))
        merged = merge_catalogs(old, ours, theirs)
        wrong = [*merged.divergences, *_dropped_rows(merged.catalog, base, ((ours, target), (theirs, source)))]
        if wrong:
            return Aligned(catalog=ours, target=target, source=source, base=base, conflicts=_told(wrong))
        return self._aligned(merged.catalog, (old, base), (ours, target), (theirs, source))

    def _aligned(
        self,
        catalog: Catalog,
        base: tuple[Catalog, Commit],
        ours: tuple[Catalog, Commit],
        theirs: tuple[Catalog, Commit],
    ) -> Aligned:
        broken = self._broken(catalog, ours, theirs)
        pinned = [side[1] for side in (base, ours, theirs)]
        if not broken:
            pinned = [self._under(_loosened(catalog, old), old, commit) for old, commit in (ours, theirs)]
            pinned.insert(0, self._under(_loosened(catalog, base[0], keeps_nulls=True), *base))
        if not broken:
            broken = self._broken_after(catalog, (ours[0], pinned[1]), (theirs[0], pinned[2]))
        return Aligned(
            catalog=catalog,
            base=pinned[0],
            target=pinned[1],
            source=pinned[2],
            conflicts=tuple(each for violation in broken for each in constraint_conflicts(violation, catalog)),
            required=_lacking(catalog, theirs[0]),
        )

    def _under(self, catalog: Catalog, old: Catalog, commit: Commit) -> Commit:
        """Return a commit whose tables have the columns of another schema."""
        pins = dict(commit.pins)
        for each in reshapes(old, catalog, {}):
            promise = staged_reshape(self._session, each, pins.get(each.new.table_id))
            pins[promise.table] = sealed_pin(self._session, promise)
        return replace(commit, pins=pins)

    def _broken(self, catalog: Catalog, *sides: tuple[Catalog, Commit]) -> list[Violation]:
        return [
            each for old, commit in sides for each in SchemaChecks(self._session, old, catalog, commit.pins).unfitting()
        ]

    def _broken_after(self, catalog: Catalog, *sides: tuple[Catalog, Commit]) -> list[Violation]:
        return [
            each
            for old, commit in sides
            for each in SchemaChecks(self._session, old, catalog, commit.pins).violations()
        ]

    # -- publishing -----------------------------------------------------------------------------------

    def adoptions(self, aligned: Aligned, plan: Plan, target: Commit) -> tuple[Adoption, ...]:
        """Seal what comes of each table, and return what the target is to adopt."""
        pins: dict[TableId, Pin] = dict(aligned.target.pins)
        pins |= {table: aligned.source.pins[table] for table in plan.adopted}
        for promise in staged_promises(self._session, plan, aligned.target):
            pins[promise.table] = sealed_pin(self._session, promise)
        return tuple(
            Adoption(
                table=kind.table_id, key=kind.table, expected=target.pins.get(kind.table_id), pin=pins[kind.table_id]
            )
            for kind in aligned.catalog.table_types
            if kind.table_id in pins and pins[kind.table_id] != target.pins.get(kind.table_id)
        )

    def promise(self, aligned: Aligned, target: Commit) -> SchemaPromise:
        """Return what is promised about the schema."""
        return schema_promise(self._history.catalog(target), aligned.catalog, print_schema(aligned.catalog))


def missing_values(aligned: Aligned, plan: Plan) -> Iterator[Violation]:
    """Find rows that would come without a value that is required, or stay without one."""
    for table, change in plan.changes.items():
        for name in aligned.required.get(table, ()) if change.adds else ():
            look = LookForNulls(kind=change.kind, name=name)
            if isinstance(change, SpreadThreeWay):
                yield from looked_elsewhere(change.engine, look, change.kind, change.spread_rows(["id", name]))
            else:
                yield from look.violations(change.rows(["id", name]))


def lacking_target(aligned: Aligned, plan: Plan, ours: Catalog) -> Iterator[Divergence]:
    """Find tables of the target whose rows have no value in a property that the source made and requires."""
    for table, names in _lacking(aligned.catalog, ours).items():
        pin = aligned.target.pins.get(table)
        if table not in plan.adopted and pin is not None and pin.rows:
            name = aligned.catalog.by_table_id(table).name
            message = (
                "the source requires it, and rows that the target changed have no value; add it to the target first"
            )
            yield Divergence(f"{name}.{names[0]}", message)


def divergence_conflicts(divergences: Iterator[Divergence]) -> tuple[Conflict, ...]:
    """Return what does not go together in two schemas, as conflicts."""
    return _told(list(divergences))


def divergent_counts(conflicts: tuple[Conflict, ...]) -> dict[str, dict[str, int]]:
    """Count conflicts by table and kind."""
    counts: dict[str, dict[str, int]] = {}
    for each in conflicts:
        of_table = counts.setdefault(each.table_key, {})
        of_table[str(each.kind)] = of_table.get(str(each.kind), 0) + 1
    return counts


def _told(divergences: list[Divergence]) -> tuple[Conflict, ...]:
    return tuple(
        Conflict(
            table_key="",
            row_id=None,
            kind=ConflictKind.SCHEMA_DIVERGENCE,
            message=f"{each.subject}: {each.message}" if each.subject else each.message,
        )
        for each in divergences
    )


def _dropped_rows(catalog: Catalog, base: Commit, sides: tuple[tuple[Catalog, Commit], ...]) -> Iterator[Divergence]:
    """Find types that one side dropped and the other side has written to since."""
    kept = {kind.table_id for kind in catalog.table_types}
    for schema, commit in sides:
        for kind in schema.table_types:
            if kind.table_id not in kept and commit.pins.get(kind.table_id) != base.pins.get(kind.table_id):
                yield Divergence(kind.name, "one side dropped the type, and the other side wrote rows of it")


def _lacking(catalog: Catalog, side: Catalog) -> dict[TableId, tuple[str, ...]]:
    """Return the required properties of types that a side has without them."""
    known = {kind.table_id: {column.id for column in kind.properties} for kind in side.table_types}
    found = {
        kind.table_id: tuple(c.name for c in kind.properties if not c.nullable and c.id not in known[kind.table_id])
        for kind in catalog.table_types
        if kind.table_id in known
    }
    return {table: names for table, names in found.items() if names}


def _loosened(catalog: Catalog, side: Catalog, *, keeps_nulls: bool = False) -> Catalog:
    """Return a catalog in which what a side has no values for may be null: it is asked about once rows are known."""
    lacking = _lacking(catalog, side)
    nullable = {c.id for kind in side.table_types for c in kind.properties if c.nullable and keeps_nulls}

    def loose(kind: TableType) -> TableType:
        names = lacking.get(kind.table_id, ())
        columns = [replace(c, nullable=True) if c.name in names or c.id in nullable else c for c in kind.properties]
        return replace(kind, properties=tuple(columns))

    nodes, edges = ([loose(kind) for kind in kinds] for kinds in (catalog.nodes, catalog.edges))
    return replace(catalog, nodes=tuple(nodes), edges=tuple(edges))  # type: ignore[arg-type]  # each stays what it is
