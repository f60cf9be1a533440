"""The steps from one catalog to another, told by the identities of what both have."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from omnigraph.ids import PropertyId, TableId, TypeId
from omnigraph.model.catalog import Catalog
from omnigraph.model.schema import (
    ENDPOINT_COLUMNS,
    Annotation,
    Cardinality,
    Check,
    Constraint,
    DeclaredType,
    EdgeType,
    Index,
    InterfaceType,
    Key,
    NodeType,
    Property,
    Range,
    SchemaType,
    StoredType,
    TypeKind,
    Unique,
)
from omnigraph.model.schema_plan import Cost, DropMode, Problem, Step, StepKind, Support
from omnigraph.rules.formula_types import check_formula, columns_there
from omnigraph.rules.formulas import Formula
from omnigraph.rules.schema_pairs import Backfill, lasting
from omnigraph.rules.schema_print import print_constraint, print_property
from omnigraph.rules.schema_source import MarkedError
from omnigraph.rules.schema_values import Change, change_of, misfit_of

ORDER = (
    StepKind.DROP_CONSTRAINT,
    StepKind.ADD_TYPE,
    StepKind.RENAME_TYPE,
    StepKind.RENAME_PROPERTY,
    StepKind.DROP_PROPERTY,
    StepKind.ADD_PROPERTY,
    StepKind.CHANGE_TYPE,
    StepKind.RELAX_PROPERTY,
    StepKind.REQUIRE_PROPERTY,
    StepKind.ADD_CONSTRAINT,
    StepKind.CHANGE_ENDPOINTS,
    StepKind.CHANGE_CARDINALITY,
    StepKind.CHANGE_INTERFACES,
    StepKind.UPDATE_METADATA,
    StepKind.REORDER_PROPERTIES,
    StepKind.DROP_TYPE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What is known about a change beside the two schemas."""

    rows: Mapping[TableId, int] = field(default_factory=dict)
    backfills: Mapping[PropertyId, Backfill] = field(default_factory=dict)
    may_lose: bool = False

    @property
    def drop(self) -> DropMode:
        """How things are dropped."""
        return DropMode.HARD if self.may_lose else DropMode.SOFT


def steps_between(old: Catalog, new: Catalog, given: Given) -> tuple[Step, ...]:
    """Return the steps from one catalog to another, in the order they are to be thought of."""
    steps = [step for each in _type_pairs(old, new) for step in _Between(old, new, given, *each).steps()]
    return tuple(sorted(steps, key=lambda step: ORDER.index(step.kind)))


def _type_pairs(old: Catalog, new: Catalog) -> Iterator[tuple[SchemaType | None, SchemaType | None]]:
    before = {kind.id: kind for kind in old.types}
    after = {kind.id: kind for kind in new.types}
    for identity in {**after, **before}:
        yield before.get(identity), after.get(identity)


def kind_of(kind: DeclaredType) -> TypeKind:
    """Return what a type is."""
    if isinstance(kind, InterfaceType):
        return TypeKind.INTERFACE
    return TypeKind.NODE if isinstance(kind, NodeType) else TypeKind.EDGE


@dataclass(frozen=True, slots=True)
class _Between:
    """One type in two catalogs; it may be missing from either."""

    old_catalog: Catalog
    new_catalog: Catalog
    given: Given
    old: SchemaType | None
    new: SchemaType | None

    @property
    def _rows(self) -> int:
        kind = self.new if self.new is not None else self.old
        return self.given.rows.get(TableId(kind.id), 0) if isinstance(kind, StoredType) else 0

    def steps(self) -> Iterator[Step]:
        """Yield what becomes of it."""
        if self.old is None:
            yield self._step(StepKind.ADD_TYPE)
        elif self.new is None:
            mode = None if isinstance(self.old, InterfaceType) else self.given.drop
            yield self._step(StepKind.DROP_TYPE, mode=mode)
        else:
            yield from self._changed(self.old, self.new)

    def _step(self, kind: StepKind, column: str | None = None, **more: object) -> Step:
        about = self.new if self.new is not None else self.old
        assert about is not None  # noqa: S101  one of both is there
        table = TableId(about.id) if isinstance(about, StoredType) else None
        step = Step(kind=kind, type_kind=kind_of(about), type=about.name, column=column, table=table)
        step = replace(step, **more)  # type: ignore[arg-type]  # the callers below say what they change
        return replace(step, rows=0 if step.cost is Cost.METADATA else self._rows)

    def _changed(self, old: SchemaType, new: SchemaType) -> Iterator[Step]:
        if old.name != new.name:
            yield self._step(StepKind.RENAME_TYPE, before=old.name, after=new.name)
        yield from self._properties(old, new)
        yield from self._constraints(old, new)
        if isinstance(old, EdgeType) and isinstance(new, EdgeType):
            yield from self._edge(old, new)
        if isinstance(old, NodeType) and isinstance(new, NodeType):
            yield from self._node(old, new)
        if _lasting(old) != _lasting(new):
            yield self._step(StepKind.UPDATE_METADATA)

    # -- properties -----------------------------------------------------------------------------------

    def _properties(self, old: SchemaType, new: SchemaType) -> Iterator[Step]:
        before = {column.id: column for column in old.properties}
        after = {column.id: column for column in new.properties}
        for identity, column in before.items():
            if identity not in after:
                yield self._dropped(column)
        for identity, column in after.items():
            if identity in before:
                yield from self._kept(before[identity], column)
            else:
                yield self._added(column)
        shared = [identity for identity in after if identity in before]
        if shared != [identity for identity in before if identity in after]:
            yield self._step(StepKind.REORDER_PROPERTIES)

    def _dropped(self, column: Property) -> Step:
        if self._is_interface:
            return self._step(StepKind.DROP_PROPERTY, column.name)
        is_hard = self.given.drop is DropMode.HARD and self._rows
        cost = Cost.REWRITE if is_hard else Cost.METADATA
        return self._step(StepKind.DROP_PROPERTY, column.name, mode=self.given.drop, cost=cost)

    @property
    def _is_interface(self) -> bool:
        return isinstance(self.new, InterfaceType)

    def _added(self, column: Property) -> Step:
        told = {"after": print_property(column)}
        if self._is_interface:
            return self._step(StepKind.ADD_PROPERTY, column.name, **told)
        value = self.given.backfills.get(column.id)
        if value is None and (column.nullable or not self._rows):
            return self._step(StepKind.ADD_PROPERTY, column.name, **told)
        if value is None:
            problem = Problem(
                code="REQUIRED_WITHOUT_VALUE",
                reason=f"{self._rows} rows would have no value in {column.name!r}, which is required",
                instead='say it with @backfill("value"), or @backfill(expr="…"), or write "?" after the type',
            )
            return self._refused(StepKind.ADD_PROPERTY, column.name, problem, **told)
        misfit = self._misfit(column, value)
        if misfit is not None:
            return self._refused(StepKind.ADD_PROPERTY, column.name, misfit, **told)
        return self._step(StepKind.ADD_PROPERTY, column.name, cost=Cost.COLUMN, **told)

    def _misfit(self, column: Property, value: Backfill) -> Problem | None:
        """Say why rows can not get this in a property; None if they can."""
        if isinstance(value, str):
            wrong, instead = misfit_of(column.type, value), "write a value of the property's type"
            reason = f"@backfill({value!r}) is no {column.type}: {wrong}"
        else:
            wrong, instead = self._wrong_formula(column, value)
            reason = f"the expression is not one for {column.name!r}: {wrong}"
        return None if wrong is None else Problem(code="BACKFILL_MISFIT", reason=reason, instead=instead)

    def _wrong_formula(self, column: Property, formula: Formula) -> tuple[str | None, str]:
        old = self.old
        columns = columns_there(old) if isinstance(old, StoredType) else {}
        try:
            check_formula(formula, columns, column.type)
        except MarkedError as problem:
            place = f"line {problem.mark.line}, column {problem.mark.column}"
            return f"{place}: {problem.problem}", problem.hint or "write an expression over what rows have before"
        return None, ""

    def _refused(self, kind: StepKind, column: str | None, problem: Problem, **told: object) -> Step:
        return self._step(kind, column, support=Support.UNSUPPORTED, problem=problem, **told)

    def _kept(self, old: Property, new: Property) -> Iterator[Step]:
        if old.name != new.name:
            yield self._step(StepKind.RENAME_PROPERTY, new.name, before=old.name, after=new.name)
        if old.type != new.type:
            yield self._retyped(old, new)
        if old.nullable and not new.nullable:
            cost = Cost.METADATA if self._is_interface else Cost.VALIDATION
            yield self._step(StepKind.REQUIRE_PROPERTY, new.name, cost=cost)
        elif new.nullable and not old.nullable:
            yield self._step(StepKind.RELAX_PROPERTY, new.name)
        if lasting(old.annotations) != lasting(new.annotations):
            yield self._step(StepKind.UPDATE_METADATA, new.name)

    def _retyped(self, old: Property, new: Property) -> Step:
        told = {"before": str(old.type), "after": str(new.type)}
        if self._is_interface:
            return self._step(StepKind.CHANGE_TYPE, new.name, **told)
        match change_of(old.type, new.type):
            case Change.NOTHING:
                return self._step(StepKind.CHANGE_TYPE, new.name, **told)
            case Change.CHECKED:
                return self._step(StepKind.CHANGE_TYPE, new.name, cost=Cost.VALIDATION, **told)
            case Change.WIDENED:
                return self._step(StepKind.CHANGE_TYPE, new.name, cost=Cost.COLUMN, **told)
            case Change.NARROWED:
                return self._narrowed(new, told)
            case Change.IMPOSSIBLE:
                problem = Problem(
                    code="TYPE_CHANGED",
                    reason=f"values of type {old.type} do not become values of type {new.type} by themselves",
                    instead="add a property of the new type, fill it, and drop the old one",
                )
                return self._refused(StepKind.CHANGE_TYPE, new.name, problem, **told)

    def _narrowed(self, new: Property, told: Mapping[str, str]) -> Step:
        step = self._step(StepKind.CHANGE_TYPE, new.name, cost=Cost.COLUMN, **told)
        if self.given.may_lose or not self._rows:
            return step
        problem = Problem(
            code="VALUES_MAY_NOT_FIT",
            reason=f"values may not fit into {new.type}",
            instead="allow data loss: values that do not fit become null",
        )
        return replace(step, support=Support.NEEDS_DATA_LOSS, problem=problem)

    # -- constraints ----------------------------------------------------------------------------------

    def _constraints(self, old: SchemaType, new: SchemaType) -> Iterator[Step]:
        before = {identified(each, old): each for each in old.constraints}
        after = {identified(each, new): each for each in new.constraints}
        for key, constraint in before.items():
            if key not in after:
                yield self._step(StepKind.DROP_CONSTRAINT, before=print_constraint(constraint))
        for key, constraint in after.items():
            if key not in before:
                is_checked = not isinstance(constraint, Index) and not self._is_interface
                cost = Cost.VALIDATION if is_checked else Cost.METADATA
                yield self._step(StepKind.ADD_CONSTRAINT, after=print_constraint(constraint), cost=cost)

    # -- nodes and edges ------------------------------------------------------------------------------

    def _node(self, old: NodeType, new: NodeType) -> Iterator[Step]:
        before, after = (
            [_id_of(catalog.interfaces, name) for name in kind.implements]
            for kind, catalog in ((old, self.old_catalog), (new, self.new_catalog))
        )
        if before != after:
            told = {"before": ", ".join(old.implements) or None, "after": ", ".join(new.implements) or None}
            yield self._step(StepKind.CHANGE_INTERFACES, **told)

    def _edge(self, old: EdgeType, new: EdgeType) -> Iterator[Step]:
        if self._ends(old, self.old_catalog) != self._ends(new, self.new_catalog):
            told = {"before": f"{old.source} -> {old.target}", "after": f"{new.source} -> {new.target}"}
            yield self._step(StepKind.CHANGE_ENDPOINTS, cost=Cost.VALIDATION, **told)
        if old.cardinality != new.cardinality:
            cost = Cost.VALIDATION if is_tighter(old.cardinality, new.cardinality) else Cost.METADATA
            told = {"before": _card(old.cardinality), "after": _card(new.cardinality)}
            yield self._step(StepKind.CHANGE_CARDINALITY, cost=cost, **told)

    @staticmethod
    def _ends(edge: EdgeType, catalog: Catalog) -> list[TypeId | None]:
        return [_id_of(catalog.nodes, name) for name in (edge.source, edge.target)]


def _lasting(kind: SchemaType) -> tuple[Annotation, ...]:
    return () if isinstance(kind, InterfaceType) else lasting(kind.annotations)


def _id_of(kinds: Iterable[DeclaredType], name: str) -> TypeId | None:
    return next((kind.id for kind in kinds if kind.name == name), None)


def is_tighter(old: Cardinality, new: Cardinality) -> bool:
    """Tell whether numbers of edges that were allowed no longer are."""
    if new.minimum > old.minimum:
        return True
    return new.maximum is not None and (old.maximum is None or new.maximum < old.maximum)


def _card(cardinality: Cardinality) -> str:
    return f"{cardinality.minimum}..{'*' if cardinality.maximum is None else cardinality.maximum}"


def identified(constraint: Constraint, kind: DeclaredType) -> tuple[object, ...]:
    """Return a constraint with the identities of its columns in place of their names: equal if it is the same."""
    ids: dict[str, str] = {column.name: column.id for column in kind.properties}
    ids |= {name: name for name in ENDPOINT_COLUMNS}
    match constraint:
        case Range(column=column, minimum=minimum, maximum=maximum):
            return "range", ids[column], minimum, maximum
        case Check(column=column, pattern=pattern):
            return "check", ids[column], pattern
        case Key(columns=columns) | Unique(columns=columns) | Index(columns=columns):
            return type(constraint).__name__.lower(), *(ids[name] for name in columns)
