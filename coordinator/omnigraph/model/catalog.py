"""The compiled schema of a graph: its types with their identities, and how they are stored."""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import isfinite
from typing import Any, TypeVar

from omnigraph.errors import CorruptGraphError, TypeNotFoundError
from omnigraph.ids import PropertyId, TableId, TypeId
from omnigraph.model.schema import (
    ENDPOINT_COLUMNS,
    Annotation,
    Cardinality,
    Check,
    Constraint,
    EdgeType,
    EnumType,
    Index,
    InterfaceType,
    Key,
    ListType,
    NodeType,
    Property,
    PropertyType,
    Range,
    Scalar,
    ScalarType,
    SchemaType,
    TableType,
    Unique,
    VectorType,
    columns_of,
    did_you_mean,
)
from omnigraph.model.tables import TableKey

CATALOG_NUMBER = 1

T = TypeVar("T")


# No slots: the lookups below are computed once and kept beside the fields.
@dataclass(frozen=True, kw_only=True)
class Catalog:
    """Every type of one schema, each group in declared order."""

    interfaces: tuple[InterfaceType, ...]
    nodes: tuple[NodeType, ...]
    edges: tuple[EdgeType, ...]

    def type(self, name: str) -> TableType:
        """Return the node or edge type of this name; the error suggests the nearest one."""
        found = self._by_name.get(name)
        if found is None:
            raise self._unknown(name)
        return found

    def table_type(self, name: str) -> TableType:
        """Return a type by its name or by its table key: ``Person`` or ``node:Person``."""
        if ":" not in name:
            return self.type(name)
        key = TableKey.parse(name)
        found = self.type(key.name)
        if found.table != key:
            raise TypeNotFoundError(f"there is no {name!r}; {key.name!r} is {str(found.table)!r}", name=name)
        return found

    def by_table_id(self, table: TableId) -> TableType:
        """Return the node or edge type whose table has this identity."""
        found = self._by_table_id.get(table)
        if found is None:
            raise TypeNotFoundError(f"the schema has no type with the table id {table!r}", table=table)
        return found

    @cached_property
    def types(self) -> tuple[SchemaType, ...]:
        """Everything declared: interfaces, nodes, edges, each group in declared order."""
        return (*self.interfaces, *self.nodes, *self.edges)

    @cached_property
    def table_types(self) -> tuple[TableType, ...]:
        """Everything that has a table: nodes, then edges, each group in declared order."""
        return (*self.nodes, *self.edges)

    @cached_property
    def tables(self) -> tuple[TableKey, ...]:
        """The keys of all tables, in the order of ``table_types``."""
        return tuple(kind.table for kind in self.table_types)

    @cached_property
    def hash(self) -> str:
        """``sha256:`` and the digest of the stored form; identities count, layout and comments do not."""
        compact = json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return "sha256:" + hashlib.sha256(compact.encode()).hexdigest()

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "catalog": CATALOG_NUMBER,
            "interfaces": [_interface_to_json(kind) for kind in self.interfaces],
            "nodes": [_node_to_json(kind) for kind in self.nodes],
            "edges": [_edge_to_json(kind) for kind in self.edges],
        }

    @classmethod
    def from_json(cls, body: Any) -> "Catalog":
        """Read a catalog back; an unknown number, key, or reference is a CorruptGraphError."""
        number = body.get("catalog") if isinstance(body, Mapping) else None
        if type(number) is not int or number != CATALOG_NUMBER:
            raise CorruptGraphError(f"the stored schema is not of form {CATALOG_NUMBER}, the only one known here")
        _, interfaces, nodes, edges = _fields(body, "schema", "catalog", "interfaces", "nodes", "edges")
        catalog = cls(
            interfaces=_each(interfaces, _interface_from_json),
            nodes=_each(nodes, _node_from_json),
            edges=_each(edges, _edge_from_json),
        )
        _refuse_repeated_names(catalog)
        _refuse_dangling_references(catalog)
        return catalog

    @cached_property
    def _by_name(self) -> dict[str, TableType]:
        return {kind.name: kind for kind in self.table_types}

    @cached_property
    def _by_table_id(self) -> dict[TableId, TableType]:
        return {kind.table_id: kind for kind in self.table_types}

    def _unknown(self, name: str) -> TypeNotFoundError:
        if any(interface.name == name for interface in self.interfaces):
            hint: str | None = "it is an interface, which has no table; name a node type that implements it"
        else:
            hint = did_you_mean(name, self._by_name)
        message = f"the schema has no node or edge type {name!r}" + (f"; {hint}" if hint else "")
        return TypeNotFoundError(message, name=name, hint=hint)


def _interface_to_json(kind: InterfaceType) -> dict[str, Any]:
    return {
        "id": kind.id,
        "name": kind.name,
        "properties": [_property_to_json(p) for p in kind.properties],
        "constraints": [_constraint_to_json(c) for c in kind.constraints],
    }


def _node_to_json(kind: NodeType) -> dict[str, Any]:
    return {
        "id": kind.id,
        "name": kind.name,
        "annotations": [_annotation_to_json(a) for a in kind.annotations],
        "implements": list(kind.implements),
        "properties": [_property_to_json(p) for p in kind.properties],
        "constraints": [_constraint_to_json(c) for c in kind.constraints],
    }


def _edge_to_json(kind: EdgeType) -> dict[str, Any]:
    return {
        "id": kind.id,
        "name": kind.name,
        "source": kind.source,
        "target": kind.target,
        "card": {"min": kind.cardinality.minimum, "max": kind.cardinality.maximum},
        "annotations": [_annotation_to_json(a) for a in kind.annotations],
        "properties": [_property_to_json(p) for p in kind.properties],
        "constraints": [_constraint_to_json(c) for c in kind.constraints],
    }


def _property_to_json(column: Property) -> dict[str, Any]:
    return {
        "id": column.id,
        "name": column.name,
        "type": _type_to_json(column.type),
        "nullable": column.nullable,
        "annotations": [_annotation_to_json(a) for a in column.annotations],
    }


def _annotation_to_json(annotation: Annotation) -> dict[str, Any]:
    return {"name": annotation.name, "value": annotation.value, "options": dict(annotation.options)}


def _type_to_json(kind: PropertyType) -> dict[str, Any]:
    match kind:
        case ScalarType(scalar=scalar):
            return {"scalar": str(scalar)}
        case ListType(element=element):
            return {"list": str(element)}
        case VectorType(dimension=dimension):
            return {"vector": dimension}
        case EnumType(values=values):
            return {"enum": list(values)}


def _constraint_to_json(constraint: Constraint) -> dict[str, Any]:
    match constraint:
        case Key(columns=columns):
            return {"key": list(columns)}
        case Unique(columns=columns):
            return {"unique": list(columns)}
        case Index(columns=columns):
            return {"index": list(columns)}
        case Range(column=column, minimum=minimum, maximum=maximum):
            return {"range": {"column": column, "min": minimum, "max": maximum}}
        case Check(column=column, pattern=pattern):
            return {"check": {"column": column, "pattern": pattern}}


def _corrupt(problem: str) -> CorruptGraphError:
    return CorruptGraphError(f"the stored schema can not be read: {problem}")


def _fields(body: Any, what: str, *names: str) -> tuple[Any, ...]:
    """Return the named values of an object that has exactly these keys."""
    if not isinstance(body, Mapping) or set(body) != set(names):
        raise _corrupt(f"the {what} must have the keys {', '.join(names)}, and only those")
    return tuple(body[name] for name in names)


def _of_type(value: Any, wanted: type[T]) -> T:
    # Not isinstance: True is an int to Python, and no number to us.
    if type(value) is not wanted:
        raise _corrupt(f"{value!r} is not a {wanted.__name__}")
    return value


def _each(values: Any, read: Callable[[Any], T]) -> tuple[T, ...]:
    return tuple(read(value) for value in _of_type(values, list))


def _text(value: Any) -> str:
    return _of_type(value, str)


def _optional_text(value: Any) -> str | None:
    return None if value is None else _text(value)


def _number_or_open(value: Any) -> int | float | None:
    if value is None or (type(value) is float and isfinite(value)):
        return value
    return _of_type(value, int)


def _interface_from_json(body: Any) -> InterfaceType:
    identity, name, properties, constraints = _fields(body, "interface", "id", "name", "properties", "constraints")
    return InterfaceType(
        id=TypeId(_text(identity)),
        name=_text(name),
        properties=_each(properties, _property_from_json),
        constraints=_each(constraints, _constraint_from_json),
    )


def _node_from_json(body: Any) -> NodeType:
    names = ("id", "name", "annotations", "implements", "properties", "constraints")
    identity, name, annotations, implements, properties, constraints = _fields(body, "node", *names)
    return NodeType(
        id=TypeId(_text(identity)),
        name=_text(name),
        annotations=_each(annotations, _annotation_from_json),
        implements=_each(implements, _text),
        properties=_each(properties, _property_from_json),
        constraints=_each(constraints, _constraint_from_json),
    )


def _edge_from_json(body: Any) -> EdgeType:
    names = ("id", "name", "source", "target", "card", "annotations", "properties", "constraints")
    identity, name, source, target, card, annotations, properties, constraints = _fields(body, "edge", *names)
    minimum, maximum = _fields(card, "cardinality", "min", "max")
    most = None if maximum is None else _of_type(maximum, int)
    return EdgeType(
        id=TypeId(_text(identity)),
        name=_text(name),
        source=_text(source),
        target=_text(target),
        cardinality=Cardinality(minimum=_of_type(minimum, int), maximum=most),
        annotations=_each(annotations, _annotation_from_json),
        properties=_each(properties, _property_from_json),
        constraints=_each(constraints, _constraint_from_json),
    )


def _property_from_json(body: Any) -> Property:
    identity, name, kind, nullable, annotations = _fields(
        body, "property", "id", "name", "type", "nullable", "annotations"
    )
    return Property(
        id=PropertyId(_text(identity)),
        name=_text(name),
        type=_type_from_json(kind),
        nullable=_of_type(nullable, bool),
        annotations=_each(annotations, _annotation_from_json),
    )


def _annotation_from_json(body: Any) -> Annotation:
    name, value, options = _fields(body, "annotation", "name", "value", "options")
    pairs = sorted((_text(key), _text(option)) for key, option in _of_type(options, dict).items())
    return Annotation(name=_text(name), value=_optional_text(value), options=tuple(pairs))


def _only_entry(body: Any, what: str) -> tuple[str, Any]:
    if not isinstance(body, Mapping) or len(body) != 1:
        raise _corrupt(f"the {what} must be an object with one key")
    return next(iter(body.items()))


def _scalar(value: Any) -> Scalar:
    if value not in tuple(Scalar):
        raise _corrupt(f"{value!r} is not a known type")
    return Scalar(value)


def _type_from_json(body: Any) -> PropertyType:
    match _only_entry(body, "property type"):
        case "scalar", scalar:
            return ScalarType(scalar=_scalar(scalar))
        case "list", element:
            return ListType(element=_scalar(element))
        case "vector", dimension:
            return VectorType(dimension=_of_type(dimension, int))
        case "enum", values:
            return EnumType(values=_each(values, _text))
        case other, _:
            raise _corrupt(f"{other!r} is not a known kind of property type")


def _constraint_from_json(body: Any) -> Constraint:
    match _only_entry(body, "constraint"):
        case "key", columns:
            return Key(columns=_each(columns, _text))
        case "unique", columns:
            return Unique(columns=_each(columns, _text))
        case "index", columns:
            return Index(columns=_each(columns, _text))
        case "range", inner:
            column, low, high = _fields(inner, "range", "column", "min", "max")
            return Range(column=_text(column), minimum=_number_or_open(low), maximum=_number_or_open(high))
        case "check", inner:
            column, pattern = _fields(inner, "check", "column", "pattern")
            return Check(column=_text(column), pattern=_text(pattern))
        case other, _:
            raise _corrupt(f"{other!r} is not a known kind of constraint")


def _refuse_repeats(what: str, values: Iterable[str]) -> None:
    seen: set[str] = set()
    for value in values:
        if value in seen:
            raise _corrupt(f"the {what} {value!r} occurs twice")
        seen.add(value)


def _refuse_repeated_names(catalog: Catalog) -> None:
    kinds = catalog.types
    _refuse_repeats("type name", (kind.name for kind in kinds))
    _refuse_repeats(
        "identity", (identity for kind in kinds for identity in (kind.id, *(p.id for p in kind.properties)))
    )
    for kind in kinds:
        _refuse_repeats(f"property name of {kind.name}", (p.name for p in kind.properties))


def _refuse_dangling_references(catalog: Catalog) -> None:
    interfaces = {interface.name for interface in catalog.interfaces}
    nodes = {node.name for node in catalog.nodes}
    for node in catalog.nodes:
        _refuse_absent(node.name, node.implements, interfaces)
    for edge in catalog.edges:
        _refuse_absent(edge.name, (edge.source, edge.target), nodes)
    for kind in catalog.types:
        columns = {p.name for p in kind.properties} | (set(ENDPOINT_COLUMNS) if isinstance(kind, EdgeType) else set())
        for constraint in kind.constraints:
            _refuse_absent(kind.name, columns_of(constraint), columns)


def _refuse_absent(owner: str, wanted: Iterable[str], known: set[str]) -> None:
    absent = [name for name in wanted if name not in known]
    if absent:
        raise _corrupt(f"{owner} names {absent[0]!r}, which does not exist")
