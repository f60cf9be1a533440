"""Parameters into a checked query: what comes out is the plan, every value known and typed."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from omnigraph.model.catalog import Catalog
from omnigraph.model.mutations import (
    And,
    Compare,
    Delete,
    In,
    IsNull,
    Mutation,
    Not,
    Or,
    Predicate,
    Statement,
    TextMatch,
    Update,
)
from omnigraph.model.schema import did_you_mean
from omnigraph.rules.gq_check import CheckedQuery, check
from omnigraph.rules.gq_fitting import USE_IS_NULL, Hole
from omnigraph.rules.gq_messages import RefusedError, Rule, shown
from omnigraph.rules.gq_text import select
from omnigraph.rules.gq_tree import Parameter, QueryText
from omnigraph.rules.gq_values import fit, from_json_form, is_nan
from omnigraph.rules.values import MisfitError

Fill = Callable[[Any], Any]


def plan_mutation(
    text: str,
    catalog: Catalog,
    parameters: Mapping[str, Any] | None = None,
    *,
    now: datetime,
    name: str | None = None,
    from_json: bool = False,
) -> Mutation:
    """Return the plan of one query of a text: parse it, check it against a schema, give it its parameters."""
    return bind(check(select(text, name), catalog), parameters, now=now, from_json=from_json)


def bind(
    checked: CheckedQuery, parameters: Mapping[str, Any] | None = None, *, now: datetime, from_json: bool = False
) -> Mutation:
    """Return the plan of a checked query, or raise a MutationError for a parameter that does not fit.

    ``now`` is the one instant every ``now()`` means; without a zone it is UTC. With ``from_json``, days,
    moments and bytes are given as JSON gives them: as texts.
    """
    query = checked.query
    moment = now.replace(tzinfo=UTC) if now.tzinfo is None else now.astimezone(UTC)
    try:
        known = _parameter_values(query, {} if parameters is None else parameters, from_json)
        filler = _filler(known, moment)
        statements = tuple(_bound(statement, filler) for statement in checked.statements)
    except RefusedError as problem:
        raise problem.shown_in(query.source) from None
    return Mutation(
        name=query.name.text,
        statements=statements,
        description=query.description,
        instruction=query.instruction,
    )


def _parameter_values(query: QueryText, given: Any, from_json: bool) -> dict[str, Any]:
    if not isinstance(given, Mapping):
        problem = f"parameters are a mapping of names to values, not {shown(given)}"
        raise RefusedError(query.name.mark, Rule.PARAMETER_VALUE, problem)
    declared = {parameter.name.text: parameter for parameter in query.parameters}
    for name in given:
        if name not in declared:
            raise _unknown(query, name, declared)
    return {name: _parameter_value(parameter, given, from_json) for name, parameter in declared.items()}


def _unknown(query: QueryText, name: Any, declared: Mapping[str, Parameter]) -> RefusedError:
    if isinstance(name, str) and name.removeprefix("$") in declared:
        hint: str | None = "give the name without its $"
    else:
        near = did_you_mean(name[:200], declared) if isinstance(name, str) else None
        hint = near or ("there is " + ", ".join(map(str, declared.values())) if declared else "it has none")
    problem = f"the query {query.name.text!r} has no parameter {shown(name)}"
    return RefusedError(query.name.mark, Rule.UNKNOWN_PARAMETER, problem, hint)


def _parameter_value(parameter: Parameter, given: Mapping[str, Any], from_json: bool) -> Any:
    name = parameter.name
    value = given.get(name.text)
    if value is None:
        if parameter.nullable:
            return None
        what = "is null" if name.text in given else "is missing"
        hint = f"give it, or declare it as {parameter.type}?"
        raise RefusedError(name.mark, Rule.MISSING_PARAMETER, f"the parameter '${name.text}' {what}", hint)
    try:
        return fit(from_json_form(value, parameter.type) if from_json else value, parameter.type)
    except MisfitError as problem:
        text = f"'${name.text}' is {parameter.type}, but {problem}"
        raise RefusedError(name.mark, Rule.PARAMETER_VALUE, text) from None


def _filler(known: Mapping[str, Any], now: datetime) -> Fill:
    """Return what turns a value with holes into one without."""

    def fill(value: Any) -> Any:
        if isinstance(value, Hole):
            return _filled(value, now if value.name is None else known[value.name])
        if isinstance(value, tuple):
            return tuple([fill(item) for item in value])
        return value

    return fill


def _filled(hole: Hole, value: Any) -> Any:
    if hole.listed:
        _refuse_null(hole, value)
        return tuple([_fitted(hole, item) for item in value])
    return _fitted(hole, value)


def _fitted(hole: Hole, value: Any) -> Any:
    _refuse_null(hole, value)
    try:
        fitted = fit(value, hole.kind)
    except MisfitError as problem:
        text = f"'{hole}' does not fit {hole.target.name!r}, which is {hole.target.column.type}: {problem}"
        raise RefusedError(hole.mark, Rule.PARAMETER, text) from None
    if hole.asked and is_nan(fitted):
        text = f"'{hole}' is NaN, and nothing equals NaN, so {hole.target.name!r} can not be compared with it"
        raise RefusedError(hole.mark, Rule.PARAMETER, text)
    return fitted


def _refuse_null(hole: Hole, value: Any) -> None:
    if value is not None:
        return
    name = hole.target.name
    if hole.asked:
        problem = f"'{hole}' is null or holds one, and nothing equals null, so {name!r} can not be compared with it"
        raise RefusedError(hole.mark, Rule.PARAMETER, problem, USE_IS_NULL)
    if not hole.nullable:
        raise RefusedError(hole.mark, Rule.REQUIRED, f"{name!r} is required, but '{hole}' is null")


def _bound(statement: Statement, fill: Fill) -> Statement:
    if isinstance(statement, Delete):
        return replace(statement, where=_bound_predicate(statement.where, fill))
    values = {column: fill(value) for column, value in statement.values.items()}
    if isinstance(statement, Update):
        return replace(statement, values=values, where=_bound_predicate(statement.where, fill))
    return replace(statement, values=values)


def _bound_predicate(predicate: Predicate, fill: Fill) -> Predicate:
    match predicate:
        case And(terms=terms):
            return And(terms=tuple([_bound_predicate(term, fill) for term in terms]))
        case Or(terms=terms):
            return Or(terms=tuple([_bound_predicate(term, fill) for term in terms]))
        case Not(term=term):
            return Not(term=_bound_predicate(term, fill))
        case Compare(value=value):
            return replace(predicate, value=fill(value))
        case In(values=values):
            return replace(predicate, values=fill(values))
        case TextMatch(text=text):
            return replace(predicate, text=fill(text))
        case IsNull():
            return predicate
