"""What a merge decides about tables and rows, and how it says what does not go together."""

from collections.abc import Mapping
from typing import Any

from omnigraph.errors import InvalidOptionError
from omnigraph.model.catalog import Catalog
from omnigraph.model.merges import Conflict, ConflictKind, Policy
from omnigraph.rules.constraints import CardinalityRule, EndpointRule, Rule, UniqueRule, Violation, compile_rules
from omnigraph.rules.names import nearest
from omnigraph.rules.row_changes import ComparedTable, plain_row

EVERY_TYPE = "*"
VALUE_CHARACTERS_MAX = 60


def policies(given: str | Mapping[str, str], catalog: Catalog) -> dict[str, Policy]:
    """Return the policy of every table, by its key; ``*`` in a mapping is for the types it does not name."""
    named = {EVERY_TYPE: given} if isinstance(given, str) else dict(given)
    rest = _policy(named.pop(EVERY_TYPE, Policy.FAIL))
    chosen = {str(catalog.table_type(name).table): _policy(policy) for name, policy in named.items()}
    return {str(key): chosen.get(str(key), rest) for key in catalog.tables}


def _policy(text: str) -> Policy:
    if text not in tuple(Policy):
        hint = nearest(str(text), [str(policy) for policy in Policy])
        raise InvalidOptionError(f"{str(text)[:60]!r} is no policy; choose {', '.join(Policy)}{hint}")
    return Policy(text)


def row_conflict(table: ComparedTable, row: Mapping[str, Any]) -> Conflict:
    """Return the conflict of one row that a three-way plan has found."""
    base, ours, theirs = (plain_row(table, row[side]) for side in ("base", "ours", "theirs"))
    kind = ConflictKind(row["verdict"])
    return Conflict(
        table_key=table.key,
        row_id=row["id"],
        kind=kind,
        message=_message(kind, ours, theirs),
        base=base,
        ours=ours,
        theirs=theirs,
    )


def _message(kind: ConflictKind, ours: Mapping[str, Any] | None, theirs: Mapping[str, Any] | None) -> str:
    if kind is ConflictKind.DELETE_VS_UPDATE:
        who = ("source", "target") if theirs is None else ("target", "source")
        return f"the {who[0]} deleted it, and the {who[1]} changed it"
    there = theirs or {}
    differ = [
        f"{name} is {_short(value)} here and {_short(there[name])} there"
        for name, value in (ours or {}).items()
        if repr(value) != repr(there[name])
    ]
    what = "inserted it" if kind is ConflictKind.DIVERGENT_INSERT else "changed it"
    return f"both sides {what}: {', '.join(differ)}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= VALUE_CHARACTERS_MAX else text[: VALUE_CHARACTERS_MAX - 1] + "…"


def kind_of(violation: Violation, catalog: Catalog) -> ConflictKind:
    """Return what kind of conflict a broken constraint is."""
    for rule in compile_rules(catalog):
        if (str(rule), str(rule.kind.table)) == (violation.constraint, violation.table_key):
            return _rule_kind(rule)
    return ConflictKind.VALUE_CONSTRAINT_VIOLATION


def _rule_kind(rule: Rule) -> ConflictKind:
    match rule:
        case UniqueRule():
            return ConflictKind.UNIQUE_VIOLATION
        case EndpointRule():
            return ConflictKind.ORPHAN_EDGE
        case CardinalityRule():
            return ConflictKind.CARDINALITY_VIOLATION


def constraint_conflicts(violation: Violation, catalog: Catalog) -> list[Conflict]:
    """Return the conflicts that a broken constraint is, those of the rows it shows."""
    kind = kind_of(violation, catalog)
    return [
        Conflict(
            table_key=violation.table_key,
            row_id=_row_id(row),
            kind=kind,
            message=f"{violation.constraint}: {', '.join(f'{name} {_short(value)}' for name, value in row.items())}",
            theirs=dict(row),
        )
        for row in violation.sample
    ]


def _row_id(row: Mapping[str, object]) -> str | None:
    found = row.get("id", row.get("src"))
    return None if found is None else str(found)
