"""Whether a written value is what a column holds, and what is left open until parameters are known."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from omnigraph.model.schema import (
    NUMBERS,
    EnumType,
    ListType,
    PropertyType,
    Scalar,
    ScalarType,
    VectorType,
    did_you_mean,
)
from omnigraph.rules.gq_columns import Target
from omnigraph.rules.gq_messages import RefusedError, Rule, shown
from omnigraph.rules.gq_tree import ListText, Literal, Now, Parameter, Single, Value, Variable
from omnigraph.rules.gq_values import fit_literal
from omnigraph.rules.schema_source import Mark
from omnigraph.rules.values import MisfitError

Scope: TypeAlias = Mapping[str, Parameter]

MOMENT = ScalarType(scalar=Scalar.DATETIME)
USE_IS_NULL = "write: is null, or: is not null"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hole:
    """A value that is known when parameters are: ``name`` None is ``now()``, ``kind`` is what it must be.

    ``asked`` says that it stands in a predicate, where null and NaN have no place; ``listed``, that it is the
    whole list of an ``in``; ``nullable``, that null may be stored where it stands.
    """

    name: str | None
    target: Target
    kind: PropertyType
    nullable: bool
    asked: bool
    mark: Mark
    listed: bool = False

    def __str__(self) -> str:
        return "now()" if self.name is None else f"${self.name}"


def fitted(value: Value, target: Target, scope: Scope, *, asked: bool = False) -> Any:
    """Return a value as its column holds it, or the hole it will fill."""
    kind = target.column.type
    if not isinstance(value, ListText):
        return _fitted_single(value, target, kind, scope, asked)
    if not isinstance(kind, ListType | VectorType):
        raise _misfit(value.mark, Rule.LITERAL, target, "a list was given")
    if isinstance(kind, VectorType) and len(value.items) != kind.dimension:
        raise _misfit(value.mark, Rule.LITERAL, target, f"{len(value.items):,} numbers were given")
    element = ScalarType(scalar=kind.element if isinstance(kind, ListType) else Scalar.F32)
    return tuple([_fitted_single(item, target, element, scope, asked) for item in value.items])


def membership(among: ListText | Variable, target: Target, scope: Scope) -> Any:
    """Return the values of an ``in``, each of them possibly a hole, or the hole of the whole list."""
    if isinstance(among, ListText):
        return tuple([_fitted_single(item, target, target.column.type, scope, True) for item in among.items])
    kind = _declared(among, scope).type
    if not isinstance(kind, ListType):
        hint = f"declare it as a list, or write: in [${among.name}]"
        raise RefusedError(among.mark, Rule.PARAMETER, f"'${among.name}' is {kind}, and 'in' needs a list", hint)
    _refuse_incompatible(among, ScalarType(scalar=kind.element), target.column.type, target)
    hole = _hole(among.name, among.mark, target, target.column.type, True)
    return replace(hole, listed=True)


def _fitted_single(value: Single, target: Target, kind: PropertyType, scope: Scope, asked: bool) -> Any:
    match value:
        case Literal():
            return _fitted_literal(value, target, kind, asked)
        case Now(mark=mark):
            if kind != MOMENT:
                raise _misfit(mark, Rule.PARAMETER, target, "now() is a DateTime")
            return _hole(None, mark, target, kind, asked)
        case Variable(name=name, mark=mark):
            _refuse_incompatible(value, _declared(value, scope).type, kind, target)
            return _hole(name, mark, target, kind, asked)


def _hole(name: str | None, mark: Mark, target: Target, kind: PropertyType, asked: bool) -> Hole:
    # Elements of lists and vectors may be null, whatever the column says of itself.
    nullable = target.nullable or kind != target.column.type
    return Hole(name=name, target=target, kind=kind, nullable=nullable, asked=asked, mark=mark)


def _fitted_literal(literal: Literal, target: Target, kind: PropertyType, asked: bool) -> Any:
    if literal.value is None and asked:
        problem = f"nothing equals null, so {target.name!r} can not be compared with it"
        raise RefusedError(literal.mark, Rule.LITERAL, problem, USE_IS_NULL)
    try:
        return fit_literal(literal.value, kind)
    except MisfitError as problem:
        raise _misfit(literal.mark, Rule.LITERAL, target, str(problem), _literal_hint(literal, kind)) from None


def _literal_hint(literal: Literal, kind: PropertyType) -> str | None:
    if not isinstance(literal.value, str) or not isinstance(kind, ScalarType):
        return None
    return {Scalar.DATE: 'write date("…")', Scalar.DATETIME: 'write datetime("…")'}.get(kind.scalar)


def _declared(variable: Variable, scope: Scope) -> Parameter:
    found = scope.get(variable.name)
    if found is None:
        hint = did_you_mean(variable.name, scope) or "declare it in the query's header"
        raise RefusedError(
            variable.mark, Rule.UNDECLARED, f"{shown('$' + variable.name)} is not a parameter of the query", hint
        )
    return found


def _refuse_incompatible(variable: Variable, given: PropertyType, wanted: PropertyType, target: Target) -> None:
    if not _compatible(given, wanted):
        raise _misfit(
            variable.mark,
            Rule.PARAMETER,
            target,
            f"'${variable.name}' is {given}",
            f"declare it as {_as_parameter(wanted)}",
        )


def _compatible(given: PropertyType, wanted: PropertyType) -> bool:
    """Tell whether values of one type can be values of another; whether each number fits is seen when it is known."""
    match given, wanted:
        case ScalarType(scalar=Scalar.STRING), EnumType():
            return True
        case ScalarType(scalar=one), ScalarType(scalar=other):
            return one is other or (one in NUMBERS and other in NUMBERS)
        case ListType(element=one), ListType(element=other):
            return one is other or (one in NUMBERS and other in NUMBERS)
        case _:
            return given == wanted


def _as_parameter(kind: PropertyType) -> str:
    return str(Scalar.STRING) if isinstance(kind, EnumType) else str(kind)


def _misfit(mark: Mark, rule: Rule, target: Target, problem: str, hint: str | None = None) -> RefusedError:
    kind = "an enum" if isinstance(target.column.type, EnumType) else str(target.column.type)
    return RefusedError(mark, rule, f"{target.name!r} is {kind}, but {problem}", hint)
