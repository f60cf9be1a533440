"""From schema text to a catalog: understand it first, then give everything its identity."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from omnigraph.ids import PropertyId, TypeId
from omnigraph.model.catalog import Catalog
from omnigraph.model.schema import (
    Constraint,
    EdgeType,
    InterfaceType,
    NodeType,
    Property,
    TypeKind,
    did_you_mean,
    in_canonical_order,
)
from omnigraph.rules.schema_bodies import Body, check_embeds, edge_header, interface_header, node_header, read_body
from omnigraph.rules.schema_checks import check_type_name
from omnigraph.rules.schema_constraints import Owner, read_constraint, refuse_conflicting
from omnigraph.rules.schema_draft import (
    EdgeDraft,
    InterfaceDraft,
    NodeDraft,
    Placed,
    PropertyDraft,
    SchemaDraft,
    TypeDraft,
)
from omnigraph.rules.schema_interfaces import inherit
from omnigraph.rules.schema_source import Mark, MarkedError, Source, refuse_unreadable
from omnigraph.rules.schema_text import Declaration, EdgeText, InterfaceText, NodeText, Word, parse_schema

TYPES_MAX = 2_000
# A few bytes of text can give every node the properties of a large interface.
SCHEMA_PROPERTIES_MAX = 100_000

Allocate: TypeAlias = Callable[[], str]


class Identities(Protocol):
    """Says which identity a type or property has; a planner keeps those of an earlier catalog."""

    def type_id(self, kind: TypeKind, name: str) -> TypeId:
        """Return the identity of a type."""
        ...

    def property_id(self, kind: TypeKind, owner: str, name: str) -> PropertyId:
        """Return the identity of a type's property."""
        ...


@dataclass(frozen=True, slots=True)
class FreshIds:
    """Everything is new: each identity is minted."""

    mint: Allocate

    def type_id(self, kind: TypeKind, name: str) -> TypeId:
        """Return an identity nothing has had."""
        return TypeId(self.mint())

    def property_id(self, kind: TypeKind, owner: str, name: str) -> PropertyId:
        """Return an identity nothing has had."""
        return PropertyId(self.mint())


def compile_schema(text: str, ids: Identities) -> Catalog:
    """Compile schema text into a catalog, or raise a SchemaError at the first problem."""
    return assign_ids(describe_schema(text), ids)


def describe_schema(text: str) -> SchemaDraft:
    """Return what a schema text says, free of identities, or raise a SchemaError at the first problem."""
    source = Source.of(text)
    try:
        return _describe(source)
    except MarkedError as problem:
        raise source.error(problem.mark, problem.problem, problem.hint) from None


def assign_ids(draft: SchemaDraft, ids: Identities) -> Catalog:
    """Return the catalog of a draft with the identities it is given."""
    return Catalog(
        interfaces=tuple(_interface(each, ids) for each in draft.interfaces),
        nodes=tuple(_node(each, ids) for each in draft.nodes),
        edges=tuple(_edge(each, ids) for each in draft.edges),
    )


def _describe(source: Source) -> SchemaDraft:
    refuse_unreadable(source)
    declarations = parse_schema(source)
    if not declarations:
        hint = "declare at least one node type, for example: node Person { name: String @key }"
        raise MarkedError(Mark(line=1, column=1), "the schema declares no types", hint)
    if len(declarations) > TYPES_MAX:
        raise MarkedError(declarations[TYPES_MAX].name.mark, f"a schema has at most {TYPES_MAX:,} types")
    _check_names(declarations)
    interfaces = tuple(_describe_interface(each) for each in declarations if isinstance(each, InterfaceText))
    known = _Known(
        interfaces={each.name: each for each in interfaces},
        nodes=frozenset(each.name.text for each in declarations if isinstance(each, NodeText)),
    )
    return SchemaDraft(
        source=source,
        interfaces=interfaces,
        nodes=_describe_nodes([each for each in declarations if isinstance(each, NodeText)], known),
        edges=tuple(_describe_edge(each, known) for each in declarations if isinstance(each, EdgeText)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    interfaces: dict[str, InterfaceDraft]
    nodes: frozenset[str]


def _check_names(declarations: Sequence[Declaration]) -> None:
    first: dict[str, Word] = {}
    for declaration in declarations:
        name = declaration.name
        check_type_name(name)
        earlier = first.setdefault(name.text.lower(), name)
        if earlier is not name:
            problem = f"the type name {name.text!r} is taken"
            hint = f"{earlier.text!r} is declared on line {earlier.mark.line}; letter case does not tell types apart"
            raise MarkedError(name.mark, problem, hint)


def _describe_interface(written: InterfaceText) -> InterfaceDraft:
    interface_header(written)
    body = read_body(written.members, TypeKind.INTERFACE)
    refuse_conflicting(body.placed)
    check_embeds(body.embeds, body.properties, TypeKind.INTERFACE)
    return InterfaceDraft(
        name=written.name.text, mark=written.name.mark, properties=body.properties, constraints=body.placed
    )


def _describe_nodes(written: Sequence[NodeText], known: _Known) -> tuple[NodeDraft, ...]:
    nodes: list[NodeDraft] = []
    properties = 0
    for each in written:
        nodes.append(_describe_node(each, known))
        properties += len(nodes[-1].properties)
        if properties > SCHEMA_PROPERTIES_MAX:
            problem = f"with {each.name.text!r} the nodes have more than {SCHEMA_PROPERTIES_MAX:,} properties"
            raise MarkedError(each.name.mark, problem, "each implemented interface adds its properties to the node")
    return tuple(nodes)


def _describe_node(written: NodeText, known: _Known) -> NodeDraft:
    annotations = node_header(written)
    body = read_body(written.members, TypeKind.NODE)
    inherited = inherit(written, body.properties, known.interfaces, known.nodes)
    properties = (*body.properties, *inherited.properties)
    return NodeDraft(
        name=written.name.text,
        mark=written.name.mark,
        annotations=annotations,
        implements=tuple(word.text for word in written.implements),
        properties=properties,
        constraints=_constraints(body, TypeKind.NODE, properties, inherited.constraints),
    )


def _describe_edge(written: EdgeText, known: _Known) -> EdgeDraft:
    for end in (written.source, written.target):
        _check_endpoint(end, known)
    cardinality, annotations = edge_header(written)
    body = read_body(written.members, TypeKind.EDGE)
    return EdgeDraft(
        name=written.name.text,
        mark=written.name.mark,
        source=written.source.text,
        target=written.target.text,
        cardinality=cardinality,
        annotations=annotations,
        properties=body.properties,
        constraints=_constraints(body, TypeKind.EDGE, body.properties, ()),
    )


def _check_endpoint(end: Word, known: _Known) -> None:
    if end.text in known.nodes:
        return
    if end.text in known.interfaces:
        hint: str | None = "it is an interface; name a node type that implements it"
    else:
        hint = did_you_mean(end.text, known.nodes)
    raise MarkedError(end.mark, f"there is no node type {end.text!r}", hint)


def _constraints(
    body: Body, kind: TypeKind, properties: tuple[PropertyDraft, ...], inherited: tuple[Placed, ...]
) -> tuple[Placed, ...]:
    check_embeds(body.embeds, properties, kind)
    owner = Owner(kind=kind, properties={each.name: each for each in properties})
    own = (*body.placed, *(read_constraint(attribute, owner) for attribute in body.constraints))
    written = {placed.constraint for placed in own}
    # A node may repeat what its interface says of a property; what counts is that it is said.
    constraints = (*own, *(placed for placed in inherited if placed.constraint not in written))
    refuse_conflicting(constraints)
    return constraints


def _interface(draft: InterfaceDraft, ids: Identities) -> InterfaceType:
    return InterfaceType(
        id=ids.type_id(TypeKind.INTERFACE, draft.name),
        name=draft.name,
        properties=_properties(TypeKind.INTERFACE, draft, ids),
        constraints=_sorted(draft.constraints),
    )


def _node(draft: NodeDraft, ids: Identities) -> NodeType:
    return NodeType(
        id=ids.type_id(TypeKind.NODE, draft.name),
        name=draft.name,
        annotations=draft.annotations,
        implements=draft.implements,
        properties=_properties(TypeKind.NODE, draft, ids),
        constraints=_sorted(draft.constraints),
    )


def _edge(draft: EdgeDraft, ids: Identities) -> EdgeType:
    return EdgeType(
        id=ids.type_id(TypeKind.EDGE, draft.name),
        name=draft.name,
        source=draft.source,
        target=draft.target,
        cardinality=draft.cardinality,
        annotations=draft.annotations,
        properties=_properties(TypeKind.EDGE, draft, ids),
        constraints=_sorted(draft.constraints),
    )


def _properties(kind: TypeKind, draft: TypeDraft, ids: Identities) -> tuple[Property, ...]:
    return tuple(
        Property(
            id=ids.property_id(kind, draft.name, each.name),
            name=each.name,
            type=each.type,
            nullable=each.nullable,
            annotations=each.annotations,
        )
        for each in draft.properties
    )


def _sorted(constraints: tuple[Placed, ...]) -> tuple[Constraint, ...]:
    return in_canonical_order(placed.constraint for placed in constraints)
