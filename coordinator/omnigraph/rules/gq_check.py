"""Whether a query's statements make sense for a schema: types, properties, required values, literals.

What comes out has the shape of the bound plan, with a ``Hole`` wherever a parameter or ``now()`` goes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from omnigraph.errors import TypeNotFoundError
from omnigraph.model.catalog import Catalog
from omnigraph.model.mutations import (
    And,
    Compare,
    Comparison,
    Delete,
    In,
    Insert,
    IsNull,
    Not,
    Or,
    Predicate,
    Statement,
    TextMatch,
    Update,
    Upsert,
)
from omnigraph.model.schema import EdgeType, EnumType, ListType, Scalar, ScalarType, TableType
from omnigraph.rules.gq_columns import Columns, Target
from omnigraph.rules.gq_fitting import Scope, fitted, membership
from omnigraph.rules.gq_messages import RefusedError, Rule
from omnigraph.rules.gq_tree import (
    AllOf,
    AnyOf,
    Assignment,
    CompareText,
    Condition,
    DeleteText,
    InsertText,
    InText,
    IsNullText,
    Literal,
    Negated,
    QueryText,
    StatementText,
    TextMatchText,
    UpdateText,
    UpsertText,
)
from omnigraph.rules.schema_text import Word

ORDERED = frozenset(Comparison) - {Comparison.EQUAL, Comparison.NOT_EQUAL}


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedQuery:
    """A query that fits a schema; its values may still have holes in them."""

    query: QueryText
    statements: tuple[Statement, ...]


def check(query: QueryText, catalog: Catalog) -> CheckedQuery:
    """Check a query against a schema, or raise a MutationError at the first problem."""
    scope: Scope = {parameter.name.text: parameter for parameter in query.parameters}
    known: dict[str, Columns] = {}
    try:
        statements = tuple(_statement(written, catalog, scope, known) for written in query.statements)
    except RefusedError as problem:
        raise problem.shown_in(query.source) from None
    return CheckedQuery(query=query, statements=statements)


def _statement(written: StatementText, catalog: Catalog, scope: Scope, known: dict[str, Columns]) -> Statement:
    kind = _type(written.type, catalog)
    if kind.name not in known:
        known[kind.name] = Columns.of(kind)
    columns = known[kind.name]
    match written:
        case InsertText(assignments=assignments):
            values = _values(assignments, columns, scope)
            _refuse_missing(written.type, kind, columns, values)
            return Insert(type=kind, values=values)
        case UpsertText(assignments=assignments):
            values = _values(assignments, columns, scope)
            _refuse_unidentified(written.type, kind, columns, values)
            return Upsert(type=kind, values=values)
        case UpdateText(assignments=assignments, where=where):
            _refuse_identity(assignments, kind, columns)
            values = _values(assignments, columns, scope)
            return Update(type=kind, values=values, where=_predicate(where, columns, scope))
        case DeleteText(where=where):
            return Delete(type=kind, where=_predicate(where, columns, scope))


def _type(name: Word, catalog: Catalog) -> TableType:
    try:
        return catalog.type(name.text)
    except TypeNotFoundError as problem:
        text = f"the schema has no node or edge type {name.text!r}"
        raise RefusedError(name.mark, Rule.UNKNOWN_TYPE, text, problem.hint) from None


def _values(assignments: tuple[Assignment, ...], columns: Columns, scope: Scope) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for assignment in assignments:
        target = columns.target(assignment.name)
        if target.column.name in values:
            problem = f"{assignment.name.text!r} is set twice"
            raise RefusedError(assignment.name.mark, Rule.REPEATED, problem, "remove one of the two")
        if isinstance(assignment.value, Literal) and assignment.value.value is None and not target.nullable:
            problem = f"{assignment.name.text!r} is required, so it can not be null"
            raise RefusedError(assignment.value.mark, Rule.REQUIRED, problem)
        values[target.column.name] = fitted(assignment.value, target, scope)
    return values


def _refuse_missing(name: Word, kind: TableType, columns: Columns, values: Mapping[str, Any]) -> None:
    for target in columns.required:
        if target.column.name not in values:
            hint = f"add {target.name}: …" + (", the id of a node" if target.is_end else "")
            raise RefusedError(name.mark, Rule.REQUIRED, f"{kind.name} needs {target.name!r}, which is not set", hint)


def _refuse_unidentified(name: Word, kind: TableType, columns: Columns, values: Mapping[str, Any]) -> None:
    if "id" in values or (kind.key_columns and all(column in values for column in kind.key_columns)):
        return
    if not kind.key_columns:
        problem = f"{kind.name} has no key, so an upsert needs its 'id'"
        raise RefusedError(name.mark, Rule.REQUIRED, problem, "add id: …, or use insert for a new row")
    missing = ", ".join(columns.shown(column) for column in kind.key_columns if column not in values)
    raise RefusedError(name.mark, Rule.REQUIRED, f"an upsert of {kind.name} needs its key, and {missing} is not set")


def _refuse_identity(assignments: tuple[Assignment, ...], kind: TableType, columns: Columns) -> None:
    for assignment in assignments:
        column = columns.target(assignment.name).column.name
        if column == "id" or column in kind.key_columns:
            why = "is the id" if column == "id" else "is part of the key"
            rows = "edges" if isinstance(kind, EdgeType) else "nodes"
            raise RefusedError(
                assignment.name.mark,
                Rule.IDENTITY,
                f"{assignment.name.text!r} {why} of {kind.name}, which stays what it is",
                f"delete the {rows} and insert new ones",
            )


def _predicate(condition: Condition, columns: Columns, scope: Scope) -> Predicate:
    match condition:
        case AllOf(terms=terms):
            return And(terms=tuple([_predicate(term, columns, scope) for term in terms]))
        case AnyOf(terms=terms):
            return Or(terms=tuple([_predicate(term, columns, scope) for term in terms]))
        case Negated(term=term):
            return Not(term=_predicate(term, columns, scope))
        case IsNullText(name=name):
            return IsNull(column=columns.filterable(name).column)
        case InText(name=name, among=among):
            target = _comparable(name, columns)
            return In(column=target.column, values=membership(among, target, scope))
        case CompareText(name=name, comparison=comparison, value=value):
            target = _comparable(name, columns)
            if comparison in ORDERED:
                _refuse_unordered(name, target)
            return Compare(column=target.column, comparison=comparison, value=fitted(value, target, scope, asked=True))
        case TextMatchText(name=name, test=test, value=value):
            target = _comparable(name, columns)
            if target.column.type != ScalarType(scalar=Scalar.STRING):
                problem = (
                    f"{name.text!r} is {target.column.type}, and only a String can be asked what it {_reads(test)}"
                )
                raise RefusedError(name.mark, Rule.LITERAL, problem)
            return TextMatch(column=target.column, test=test, text=fitted(value, target, scope, asked=True))


def _reads(test: str) -> str:
    return test.replace("_", " ")


def _comparable(name: Word, columns: Columns) -> Target:
    target = columns.filterable(name)
    if not isinstance(target.column.type, ScalarType | EnumType):
        what = "lists" if isinstance(target.column.type, ListType) else "vectors"
        problem = f"{name.text!r} is {target.column.type}, and {what} can not be compared"
        raise RefusedError(name.mark, Rule.LITERAL, problem, "only 'is null' and 'is not null' can be asked of it")
    return target


def _refuse_unordered(name: Word, target: Target) -> None:
    kind = target.column.type
    if isinstance(kind, EnumType) or kind == ScalarType(scalar=Scalar.BOOL):
        problem = f"{name.text!r} is {kind}, whose values have no order"
        raise RefusedError(name.mark, Rule.LITERAL, problem, "use '=', '!=' or 'in'")
