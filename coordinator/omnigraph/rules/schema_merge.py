"""Two schemas that come from one, made one again: what a side did not change is what the other side made of it."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from omnigraph.errors import SchemaError
from omnigraph.ids import PropertyId, TypeId
from omnigraph.model.catalog import Catalog
from omnigraph.model.schema import (
    ANY_NUMBER,
    ENDPOINT_COLUMNS,
    Annotation,
    Cardinality,
    Check,
    Constraint,
    EdgeType,
    Index,
    InterfaceType,
    Key,
    NodeType,
    Property,
    Range,
    SchemaType,
    TypeKind,
    Unique,
    columns_of,
    in_canonical_order,
)
from omnigraph.rules.schema_changes import identified, kind_of
from omnigraph.rules.schema_compile import describe_schema
from omnigraph.rules.schema_print import print_schema

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Divergence:
    """Something that both sides changed, each in its own way."""

    subject: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedSchema:
    """What comes of it: a catalog, and all that does not go together; if there is any, the catalog is of no use."""

    catalog: Catalog
    divergences: tuple[Divergence, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shape:
    """A type whose parts are named by their identities: what another type is called does not change it."""

    kind: TypeKind
    id: TypeId
    name: str
    properties: tuple[Property, ...]
    constraints: Mapping[tuple[object, ...], Constraint]
    annotations: tuple[Annotation, ...] = ()
    others: tuple[TypeId, ...] = ()
    """The interfaces of a node, the ends of an edge."""
    cardinality: Cardinality = ANY_NUMBER

    @property
    def by_id(self) -> dict[PropertyId, Property]:
        """Its properties."""
        return {column.id: column for column in self.properties}

    def is_like(self, other: "_Shape | None") -> bool:
        """Tell whether two are the same; the names of columns in constraints are not looked at."""
        return other is not None and _told(self) == _told(other)


def _told(shape: _Shape) -> tuple[object, ...]:
    return (
        shape.name,
        shape.properties,
        frozenset(shape.constraints),
        shape.annotations,
        shape.others,
        shape.cardinality,
    )


def merge_catalogs(base: Catalog, ours: Catalog, theirs: Catalog) -> MergedSchema:
    """Make one catalog of two that come from a third."""
    merging = _Merging()
    shapes = [_shapes(catalog) for catalog in (base, ours, theirs)]
    merged = [merging.type(*(side.get(identity) for side in shapes)) for identity in {**shapes[1], **shapes[2]}]
    found = [shape for shape in merged if shape is not None]
    catalog = _catalog(found, merging)
    if not merging.divergences:
        merging.check(catalog)
    return MergedSchema(catalog=catalog, divergences=tuple(merging.divergences))


@dataclass(slots=True)
class _Merging:
    """Merges parts, and notes what does not go together."""

    divergences: list[Divergence] = field(default_factory=list)

    def clash(self, subject: str, message: str) -> None:
        """Note something."""
        self.divergences.append(Divergence(subject, message))

    def pick(self, base: T, ours: T, theirs: T, subject: str, told: Callable[[T], str]) -> T:
        """Return what one side made of something the other left alone."""
        if ours == theirs or theirs == base:
            return ours
        if ours != base:
            self.clash(subject, f"the target has {told(ours)}, the source {told(theirs)}, and both changed it")
        return theirs

    def type(self, base: _Shape | None, ours: _Shape | None, theirs: _Shape | None) -> _Shape | None:
        """Merge one type, which may be missing anywhere."""
        if ours is None or theirs is None:
            there = ours if ours is not None else theirs
            if base is None or there is None:
                return there  # one side added it
            if not there.is_like(base):
                dropped = "target" if ours is None else "source"
                self.clash(there.name, f"the {dropped} dropped the type, and the other side changed it")
            return None
        if base is None or ours.is_like(theirs) or theirs.is_like(base):
            return ours
        return theirs if ours.is_like(base) else self._both(base, ours, theirs)

    def _both(self, base: _Shape, ours: _Shape, theirs: _Shape) -> _Shape:
        name = ours.name
        sides = (base, ours, theirs)
        order = [*ours.by_id, *(identity for identity in theirs.by_id if identity not in ours.by_id)]
        properties = [self._property(name, *(side.by_id.get(identity) for side in sides)) for identity in order]
        constraints = {**theirs.constraints, **ours.constraints}
        kept = {key for key in constraints if self._is_kept(*(key in side.constraints for side in sides))}
        return replace(
            ours,
            name=self.pick(base.name, ours.name, theirs.name, name, repr),
            properties=tuple(column for column in properties if column is not None),
            constraints={key: constraint for key, constraint in constraints.items() if key in kept},
            annotations=self.pick(base.annotations, ours.annotations, theirs.annotations, name, _annotated),
            others=self.pick(base.others, ours.others, theirs.others, name, lambda _: "other types in its header"),
            cardinality=self.pick(base.cardinality, ours.cardinality, theirs.cardinality, name, str),
        )

    @staticmethod
    def _is_kept(was: bool, ours: bool, theirs: bool) -> bool:
        return (ours and theirs) if was else (ours or theirs)

    def _property(
        self, owner: str, base: Property | None, ours: Property | None, theirs: Property | None
    ) -> Property | None:
        if ours is None or theirs is None:
            there = ours if ours is not None else theirs
            if base is None or there is None:
                return there
            if there != base:
                dropped = "target" if ours is None else "source"
                self.clash(
                    f"{owner}.{there.name}", f"the {dropped} dropped the property, and the other side changed it"
                )
            return None
        if base is None:
            return ours
        subject = f"{owner}.{ours.name}"
        return replace(
            ours,
            name=self.pick(base.name, ours.name, theirs.name, subject, repr),
            type=self.pick(base.type, ours.type, theirs.type, subject, str),
            nullable=self.pick(base.nullable, ours.nullable, theirs.nullable, subject, str),
            annotations=self.pick(base.annotations, ours.annotations, theirs.annotations, subject, _annotated),
        )

    def check(self, catalog: Catalog) -> None:
        """Note it if the whole is no schema: names that meet, two keys, columns that are gone."""
        names: dict[str, str] = {}
        for kind in catalog.types:
            columns = [column.name for column in kind.properties]
            twice = {name for name in columns if columns.count(name) > 1}
            if twice:
                self.clash(kind.name, f"both sides have a property called {min(twice)!r}, and they are not the same")
            if kind.name in names:
                self.clash(kind.name, "both sides have a type of this name, and they are not the same")
            names[kind.name] = kind.name
        if not self.divergences:
            try:
                describe_schema(print_schema(catalog))
            except SchemaError as problem:
                self.clash("", f"what both sides want is no schema: {problem.facts['problem']}")


def _annotated(annotations: tuple[Annotation, ...]) -> str:
    return " ".join(f"@{each.name}" for each in annotations) or "no annotation"


def _shapes(catalog: Catalog) -> dict[TypeId, _Shape]:
    ids = {kind.name: kind.id for kind in catalog.types}
    return {kind.id: _shape(kind, ids) for kind in catalog.types}


def _shape(kind: SchemaType, ids: Mapping[str, TypeId]) -> _Shape:
    shape = _Shape(
        kind=kind_of(kind),
        id=kind.id,
        name=kind.name,
        properties=kind.properties,
        constraints={identified(each, kind): each for each in kind.constraints},
    )
    if isinstance(kind, NodeType):
        return replace(shape, annotations=kind.annotations, others=tuple(ids[name] for name in kind.implements))
    if isinstance(kind, EdgeType):
        ends = (ids[kind.source], ids[kind.target])
        return replace(shape, annotations=kind.annotations, others=ends, cardinality=kind.cardinality)
    return shape


def _catalog(shapes: Iterable[_Shape], merging: _Merging) -> Catalog:
    """Return types whose parts are named by names again."""
    every = list(shapes)
    names = {shape.id: shape.name for shape in every}
    interfaces, nodes, edges = [], [], []
    for shape in every:
        missing = [other for other in shape.others if other not in names]
        if missing:
            merging.clash(shape.name, "it refers to a type that the other side dropped")
            continue
        constraints = _named(shape, merging)
        others = [names[other] for other in shape.others]
        match shape.kind:
            case TypeKind.INTERFACE:
                interfaces.append(
                    InterfaceType(id=shape.id, name=shape.name, properties=shape.properties, constraints=constraints)
                )
            case TypeKind.NODE:
                nodes.append(
                    NodeType(
                        id=shape.id,
                        name=shape.name,
                        properties=shape.properties,
                        constraints=constraints,
                        annotations=shape.annotations,
                        implements=tuple(others),
                    )
                )
            case TypeKind.EDGE:
                edges.append(
                    EdgeType(
                        id=shape.id,
                        name=shape.name,
                        properties=shape.properties,
                        constraints=constraints,
                        annotations=shape.annotations,
                        source=others[0],
                        target=others[1],
                        cardinality=shape.cardinality,
                    )
                )
    return Catalog(interfaces=tuple(interfaces), nodes=tuple(nodes), edges=tuple(edges))


def _named(shape: _Shape, merging: _Merging) -> tuple[Constraint, ...]:
    """Return the constraints of a type by the names its columns have now."""
    names: dict[object, str] = {column.id: column.name for column in shape.properties}
    names |= {name: name for name in ENDPOINT_COLUMNS}
    found: list[Constraint] = []
    for key, constraint in shape.constraints.items():
        columns = [names.get(identity) for identity in key[1 : 1 + len(columns_of(constraint))]]
        if None in columns:
            merging.clash(shape.name, "a constraint speaks of a property that the other side dropped")
            continue
        found.append(_renamed(constraint, tuple(str(name) for name in columns)))
    return in_canonical_order(found)


def _renamed(constraint: Constraint, columns: tuple[str, ...]) -> Constraint:
    match constraint:
        case Range() | Check():
            return replace(constraint, column=columns[0])
        case Key() | Unique() | Index():
            return replace(constraint, columns=columns)
