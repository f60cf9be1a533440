"""What a graph's types are made of: properties, constraints, interfaces, nodes and edges."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum
from typing import ClassVar, TypeAlias

from omnigraph.ids import PropertyId, TableId, TypeId
from omnigraph.model.tables import TableKey, TableKind

NAME_CHARS_MAX = 128
VECTOR_DIMENSION_MAX = 2**31 - 1
CARDINALITY_MAX = 2**32 - 1
BOUND_INTEGER_MIN = -(2**63)
BOUND_INTEGER_MAX = 2**64 - 1

TYPE_NAME = re.compile(r"[A-Z][A-Za-z0-9_]*")
IDENTIFIER = re.compile(r"[a-z_][A-Za-z0-9_]*")

ENDPOINT_COLUMNS = ("src", "dst")
RESERVED_COLUMNS = frozenset({"id", "src", "dst", "_distance", "_score", "_relevance_score", "_reasons"})
RESERVED_COLUMN_PREFIXES = ("__", "_row", "_commit", "_change", "_omni")


class TypeKind(StrEnum):
    """What a declaration declares."""

    INTERFACE = "interface"
    NODE = "node"
    EDGE = "edge"


class Scalar(StrEnum):
    """The plain types a property may have, as the schema language spells them."""

    STRING = "String"
    BLOB = "Blob"
    BOOL = "Bool"
    I32 = "I32"
    I64 = "I64"
    U32 = "U32"
    U64 = "U64"
    F32 = "F32"
    F64 = "F64"
    DATETIME = "DateTime"
    DATE = "Date"


INTEGERS = frozenset({Scalar.I32, Scalar.I64, Scalar.U32, Scalar.U64})
FLOATS = frozenset({Scalar.F32, Scalar.F64})
NUMBERS = INTEGERS | FLOATS
BUILTIN_TYPE_WORDS = (*(str(scalar) for scalar in Scalar), "Vector", "enum")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalarType:
    """One plain value."""

    scalar: Scalar

    def __str__(self) -> str:
        return str(self.scalar)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListType:
    """Any number of plain values, each of which may be null."""

    element: Scalar

    def __str__(self) -> str:
        return f"[{self.element}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorType:
    """Exactly ``dimension`` 32-bit floats."""

    dimension: int

    def __str__(self) -> str:
        return f"Vector({self.dimension})"


@dataclass(frozen=True, slots=True, kw_only=True)
class EnumType:
    """One of a set of words; the set is kept sorted, because its order means nothing."""

    values: tuple[str, ...]

    def __str__(self) -> str:
        return f"enum({', '.join(self.values)})"


PropertyType: TypeAlias = ScalarType | ListType | VectorType | EnumType


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotation:
    """A remark on a type or property: ``@name``, ``@name("value")`` or ``@name("value", key="value")``.

    ``value`` is None for the bare form; ``options`` are sorted by key.
    """

    name: str
    value: str | None = None
    options: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Property:
    """A named column of a type."""

    id: PropertyId
    name: str
    type: PropertyType
    nullable: bool
    annotations: tuple[Annotation, ...] = ()


Bound: TypeAlias = int | float


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """The columns a row's id is made from, in this order."""

    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unique:
    """No two rows agree on all of these columns."""

    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """Rows are looked up by these columns."""

    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """A number lies between two inclusive bounds; None is an open end."""

    column: str
    minimum: Bound | None
    maximum: Bound | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A text contains a match of a Python regular expression."""

    column: str
    pattern: str


Constraint: TypeAlias = Key | Unique | Index | Range | Check
ColumnConstraint: TypeAlias = Key | Unique | Index


def columns_of(constraint: Constraint) -> tuple[str, ...]:
    """Return the columns a constraint speaks about."""
    if isinstance(constraint, Range | Check):
        return (constraint.column,)
    return constraint.columns


def in_canonical_order(constraints: Iterable[Constraint]) -> tuple[Constraint, ...]:
    """Return the constraints sorted by kind and columns: the order they were written in means nothing."""
    kinds = (Key, Unique, Index, Range, Check)
    return tuple(sorted(constraints, key=lambda c: (kinds.index(type(c)), columns_of(c), repr(c))))


@dataclass(frozen=True, slots=True, kw_only=True)
class Cardinality:
    """How many edges of a type may leave one node; ``maximum`` None is any number."""

    minimum: int = 0
    maximum: int | None = None


ANY_NUMBER = Cardinality()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredType:
    """What interfaces, nodes and edges have in common."""

    id: TypeId
    name: str
    properties: tuple[Property, ...] = ()
    constraints: tuple[Constraint, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class InterfaceType(DeclaredType):
    """Properties that nodes can promise to have; it has no table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredType(DeclaredType):
    """What nodes and edges have in common: a table."""

    kind: ClassVar[TableKind]

    annotations: tuple[Annotation, ...] = ()

    @property
    def table(self) -> TableKey:
        """Return the key of the table that holds the rows."""
        return TableKey(kind=self.kind, name=self.name)

    @property
    def table_id(self) -> TableId:
        """Return the identity of that table, which outlives a rename."""
        return TableId(self.id)

    @property
    def key_columns(self) -> tuple[str, ...]:
        """Return the columns of the key; none means that ids are given or minted."""
        return next((c.columns for c in self.constraints if isinstance(c, Key)), ())


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeType(StoredType):
    """A table of nodes; the properties of its interfaces are among its own."""

    kind: ClassVar[TableKind] = TableKind.NODE

    implements: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeType(StoredType):
    """A table of edges that lead from one node type to another."""

    kind: ClassVar[TableKind] = TableKind.EDGE

    source: str
    target: str
    cardinality: Cardinality = ANY_NUMBER


TableType: TypeAlias = NodeType | EdgeType
SchemaType: TypeAlias = InterfaceType | NodeType | EdgeType


def is_reserved_column(name: str) -> bool:
    """Tell whether a property may not be called this, whatever its letter case."""
    lowered = name.lower()
    return lowered in RESERVED_COLUMNS or lowered.startswith(RESERVED_COLUMN_PREFIXES)


def did_you_mean(name: str, candidates: Iterable[str]) -> str | None:
    """Return ``did you mean 'X'?`` for the candidate nearest to a misspelt name, if one is near."""
    by_folded = {candidate.casefold(): candidate for candidate in candidates}
    near = get_close_matches(name.casefold(), by_folded, n=1)
    return f"did you mean {by_folded[near[0]]!r}?" if near else None
