"""A schema that was understood but has no identities yet: what the planner compares and the compiler numbers."""

from dataclasses import dataclass
from typing import TypeAlias

from omnigraph.model.schema import Annotation, Cardinality, Constraint, PropertyType
from omnigraph.rules.formulas import Formula
from omnigraph.rules.schema_source import Mark, Source


@dataclass(frozen=True, slots=True, kw_only=True)
class PropertyDraft:
    """A property; ``mark`` is its name's place, or its interface's in the list a node implements.

    ``formula`` says what rows that are there get in it.
    """

    name: str
    type: PropertyType
    nullable: bool
    annotations: tuple[Annotation, ...]
    mark: Mark
    formula: Formula | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A constraint and where it was written."""

    constraint: Constraint
    mark: Mark


@dataclass(frozen=True, slots=True, kw_only=True)
class InterfaceDraft:
    """An interface without an identity."""

    name: str
    mark: Mark
    properties: tuple[PropertyDraft, ...]
    constraints: tuple[Placed, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDraft:
    """A node type without an identity, with the properties of its interfaces."""

    name: str
    mark: Mark
    annotations: tuple[Annotation, ...]
    implements: tuple[str, ...]
    properties: tuple[PropertyDraft, ...]
    constraints: tuple[Placed, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeDraft:
    """An edge type without an identity."""

    name: str
    mark: Mark
    source: str
    target: str
    cardinality: Cardinality
    annotations: tuple[Annotation, ...]
    properties: tuple[PropertyDraft, ...]
    constraints: tuple[Placed, ...]


TypeDraft: TypeAlias = InterfaceDraft | NodeDraft | EdgeDraft


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaDraft:
    """Every type of a schema text, each group in declared order, and the text to point into."""

    source: Source
    interfaces: tuple[InterfaceDraft, ...]
    nodes: tuple[NodeDraft, ...]
    edges: tuple[EdgeDraft, ...]
