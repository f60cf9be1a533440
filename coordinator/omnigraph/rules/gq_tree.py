"""Mutation text, taken apart: queries, statements, predicates and values, each with its place."""

from dataclasses import dataclass, field
from datetime import date, datetime
from typing import TypeAlias

from omnigraph.model.mutations import Comparison, TextTest
from omnigraph.model.schema import PropertyType
from omnigraph.rules.schema_source import Mark, Source
from omnigraph.rules.schema_text import Word

Plain: TypeAlias = str | int | float | bool | date | datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Literal:
    """A value written out; a moment is in UTC."""

    value: Plain
    mark: Mark


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """``$name``."""

    name: str
    mark: Mark


@dataclass(frozen=True, slots=True, kw_only=True)
class Now:
    """``now()``."""

    mark: Mark


Single: TypeAlias = Literal | Variable | Now


@dataclass(frozen=True, slots=True, kw_only=True)
class ListText:
    """``[a, b, …]``; a list holds no lists."""

    items: tuple[Single, ...]
    mark: Mark


Value: TypeAlias = Single | ListText


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareText:
    """``property = value``, and the other five."""

    name: Word
    comparison: Comparison
    value: Value


@dataclass(frozen=True, slots=True, kw_only=True)
class InText:
    """``property in [a, b]`` or ``property in $list``."""

    name: Word
    among: ListText | Variable


@dataclass(frozen=True, slots=True, kw_only=True)
class IsNullText:
    """``property is null``."""

    name: Word


@dataclass(frozen=True, slots=True, kw_only=True)
class TextMatchText:
    """``property starts_with "text"`` or ``property contains $text``."""

    name: Word
    test: TextTest
    value: Literal | Variable


@dataclass(frozen=True, slots=True, kw_only=True)
class AllOf:
    """``a and b and …``."""

    terms: "tuple[Condition, ...]"


@dataclass(frozen=True, slots=True, kw_only=True)
class AnyOf:
    """``a or b or …``."""

    terms: "tuple[Condition, ...]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Negated:
    """``not a``; also ``is not null`` and ``not in``."""

    term: "Condition"


Condition: TypeAlias = CompareText | InText | IsNullText | TextMatchText | AllOf | AnyOf | Negated


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """``property: value``."""

    name: Word
    value: Value


@dataclass(frozen=True, slots=True, kw_only=True)
class InsertText:
    """``insert Type { … }``."""

    type: Word
    assignments: tuple[Assignment, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class UpsertText:
    """``upsert Type { … }``."""

    type: Word
    assignments: tuple[Assignment, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateText:
    """``update Type set { … } where …``."""

    type: Word
    assignments: tuple[Assignment, ...]
    where: Condition


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteText:
    """``delete Type where …``."""

    type: Word
    where: Condition


StatementText: TypeAlias = InsertText | UpsertText | UpdateText | DeleteText


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """``$name: Type`` in a query's header; the name is without its ``$``."""

    name: Word
    type: PropertyType
    nullable: bool

    def __str__(self) -> str:
        return f"${self.name.text}: {self.type}{'?' if self.nullable else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryText:
    """One query as written; its source is kept to show the line an error is on."""

    name: Word
    parameters: tuple[Parameter, ...]
    statements: tuple[StatementText, ...]
    description: str | None = None
    instruction: str | None = None
    source: Source = field(repr=False, compare=False)
