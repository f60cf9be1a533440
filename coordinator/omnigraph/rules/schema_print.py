"""A catalog as schema text that compiles to the same catalog again."""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

from omnigraph.model.catalog import Catalog
from omnigraph.model.schema import (
    ANY_NUMBER,
    Annotation,
    Bound,
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
    Unique,
    columns_of,
)

INDENT = "    "
ESCAPES = str.maketrans({'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"})


def print_schema(catalog: Catalog) -> str:
    """Return the schema as text: interfaces, nodes, edges, each in declared order, without comments."""
    interfaces = {interface.name: interface for interface in catalog.interfaces}
    printed = [_interface(each) for each in catalog.interfaces]
    printed += [_node(each, interfaces) for each in catalog.nodes]
    printed += [_edge(each) for each in catalog.edges]
    return "\n\n".join(printed) + "\n"


def _interface(kind: InterfaceType) -> str:
    return _block(f"interface {kind.name}", _members(kind, kind.properties, frozenset()))


def _node(kind: NodeType, interfaces: Mapping[str, InterfaceType]) -> str:
    supplied, count = _supplied(kind, [interfaces[name] for name in kind.implements])
    implements = f" implements {', '.join(kind.implements)}" if kind.implements else ""
    header = f"node {kind.name}{_annotations(kind.annotations)}{implements}"
    return _block(header, _members(kind, kind.properties[: len(kind.properties) - count], supplied))


def _edge(kind: EdgeType) -> str:
    header = (
        f"edge {kind.name}: {kind.source} -> {kind.target}{_card(kind.cardinality)}{_annotations(kind.annotations)}"
    )
    members = _members(kind, kind.properties, frozenset())
    return _block(header, members) if members else header


def _block(header: str, members: list[str]) -> str:
    if not members:
        return f"{header} {{}}"
    return "\n".join([f"{header} {{", *(INDENT + member for member in members), "}"])


def _members(kind: SchemaType, properties: tuple[Property, ...], supplied: frozenset[Constraint]) -> list[str]:
    """Return the lines of a body; a constraint on one printed property stands behind that property."""
    names = {column.name for column in properties}
    beside: dict[str, list[str]] = {}
    below: list[str] = []
    for constraint in kind.constraints:
        first, *others = columns_of(constraint)
        if constraint in supplied:
            continue
        if isinstance(constraint, Key | Unique | Index) and not others and first in names:
            beside.setdefault(first, []).append(f" @{_word(constraint)}")
        else:
            below.append(print_constraint(constraint))
    lines = [f"{print_property(p)}{''.join(beside.get(p.name, ()))}{_annotations(p.annotations)}" for p in properties]
    return lines + below


@dataclass(frozen=True, slots=True, kw_only=True)
class _Offer:
    """A property as an interface would add it to a node: ``rank`` is its turn."""

    rank: int
    annotations: tuple[Annotation, ...]
    constraints: frozenset[Constraint]


def _offers(interfaces: list[InterfaceType]) -> dict[str, _Offer]:
    offers: dict[str, _Offer] = {}
    for interface in interfaces:
        for column in interface.properties:
            constraints = frozenset(c for c in interface.constraints if columns_of(c) == (column.name,))
            offer = _Offer(rank=len(offers), annotations=column.annotations, constraints=constraints)
            offers.setdefault(column.name, offer)
    return offers


def _supplied(kind: NodeType, interfaces: list[InterfaceType]) -> tuple[frozenset[Constraint], int]:
    """Return which constraints, and how many trailing properties, the interfaces would add by themselves."""
    offers = _offers(interfaces)
    supplied: set[Constraint] = set()
    count, rank = 0, len(offers)
    for column in reversed(kind.properties):
        offer = offers.get(column.name)
        if offer is None or offer.rank >= rank or offer.annotations != column.annotations:
            break
        if not offer.constraints <= set(kind.constraints):
            break
        supplied |= offer.constraints
        count, rank = count + 1, offer.rank
    return frozenset(supplied), count


def print_property(column: Property) -> str:
    """Return a property as it is written, without what follows its type."""
    return f"{column.name}: {column.type}{'?' if column.nullable else ''}"


def _annotations(annotations: tuple[Annotation, ...]) -> str:
    return "".join(f" {_annotation(annotation)}" for annotation in annotations)


def _annotation(annotation: Annotation) -> str:
    if annotation.value is None:
        return f"@{annotation.name}"
    options = [f"{key}={_quoted(value)}" for key, value in annotation.options]
    return f"@{annotation.name}({', '.join([_quoted(annotation.value), *options])})"


def _quoted(text: str) -> str:
    return f'"{text.translate(ESCAPES)}"'


def _card(cardinality: Cardinality) -> str:
    if cardinality == ANY_NUMBER:
        return ""
    return f" @card({cardinality.minimum}..{'' if cardinality.maximum is None else cardinality.maximum})"


def _word(constraint: Constraint) -> str:
    return type(constraint).__name__.lower()


def print_constraint(constraint: Constraint) -> str:
    """Return a constraint as it is written in a body."""
    match constraint:
        case Range(column=column, minimum=minimum, maximum=maximum):
            return f"@range({column}, {_bound(minimum)}..{_bound(maximum)})"
        case Check(column=column, pattern=pattern):
            return f"@check({column}, {_quoted(pattern)})"
        case Key(columns=columns) | Unique(columns=columns) | Index(columns=columns):
            return f"@{_word(constraint)}({', '.join(columns)})"


def _bound(bound: Bound | None) -> str:
    """Write a number without an exponent, which the language does not have."""
    if bound is None:
        return ""
    if isinstance(bound, int):
        return str(bound)
    plain = format(Decimal(repr(bound)), "f")
    return plain if "." in plain else f"{plain}.0"
