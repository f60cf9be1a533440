"""What a mutation does, bound to types and values: the statements in their order, and which rows each is about.

Columns have the names they are stored under: ``from`` and ``to`` of an edge are ``src`` and ``dst``.
Values are plain Python values that fit their columns; lists and vectors are tuples, None is null.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias

from omnigraph.model.schema import PropertyType, TableType


class Comparison(StrEnum):
    """How a column is compared with a value."""

    EQUAL = "="
    NOT_EQUAL = "!="
    LESS = "<"
    AT_MOST = "<="
    GREATER = ">"
    AT_LEAST = ">="


class TextTest(StrEnum):
    """What a text can be asked about another one."""

    STARTS_WITH = "starts_with"
    CONTAINS = "contains"


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnRef:
    """A column as stored, and what it holds."""

    name: str
    type: PropertyType


@dataclass(frozen=True, slots=True, kw_only=True)
class Compare:
    """The column compares like this with a value that is neither null nor NaN."""

    column: ColumnRef
    comparison: Comparison
    value: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class In:
    """The column holds one of these values, none of which is null or NaN."""

    column: ColumnRef
    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class IsNull:
    """The column is null; this is true or false, never unknown."""

    column: ColumnRef


@dataclass(frozen=True, slots=True, kw_only=True)
class TextMatch:
    """The column's text starts with, or contains, another one; letter case counts."""

    column: ColumnRef
    test: TextTest
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class And:
    """All of two or more."""

    terms: "tuple[Predicate, ...]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Or:
    """At least one of two or more."""

    terms: "tuple[Predicate, ...]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Not:
    """The opposite; the opposite of unknown is unknown."""

    term: "Predicate"


Leaf: TypeAlias = Compare | In | IsNull | TextMatch
Predicate: TypeAlias = Leaf | And | Or | Not


@dataclass(frozen=True, slots=True, kw_only=True)
class Insert:
    """Add one row; a column that is not named is null, or the id is derived or minted."""

    type: TableType
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Upsert:
    """Add one row, or change the row of this key or id; a column that is not named keeps what it was."""

    type: TableType
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """Set columns of every row the predicate is true for."""

    type: TableType
    values: Mapping[str, Any]
    where: Predicate


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    """Remove every row the predicate is true for."""

    type: TableType
    where: Predicate


Statement: TypeAlias = Insert | Upsert | Update | Delete


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    """The statements of one query, all of which build up or all of which delete."""

    name: str
    statements: tuple[Statement, ...]
    description: str | None = None
    instruction: str | None = None

    @property
    def deletes(self) -> bool:
        """Tell whether the statements delete; otherwise they insert, upsert and update."""
        return isinstance(self.statements[0], Delete)
