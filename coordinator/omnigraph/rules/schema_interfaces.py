"""What a node gets from the interfaces it implements."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from omnigraph.model.schema import EnumType, columns_of, did_you_mean
from omnigraph.rules.schema_bodies import PROPERTIES_MAX
from omnigraph.rules.schema_checks import refuse_repeats
from omnigraph.rules.schema_draft import InterfaceDraft, Placed, PropertyDraft
from omnigraph.rules.schema_source import MarkedError
from omnigraph.rules.schema_text import NodeText, Word


@dataclass(frozen=True, slots=True, kw_only=True)
class Inherited:
    """Properties the node did not declare itself, and the constraints their interfaces put on them."""

    properties: tuple[PropertyDraft, ...]
    constraints: tuple[Placed, ...]


def inherit(
    written: NodeText, own: tuple[PropertyDraft, ...], interfaces: Mapping[str, InterfaceDraft], nodes: frozenset[str]
) -> Inherited:
    """Return what a node's interfaces add to its own properties, in the order they are listed."""
    refuse_repeats(written.implements, "the interface")
    present = {column.name.lower(): column for column in own}
    added: list[PropertyDraft] = []
    constraints: list[Placed] = []
    for word in written.implements:
        interface = _named(word, interfaces, nodes)
        missing = [replace(p, mark=word.mark) for p in interface.properties if _is_missing(p, present, word)]
        present |= {column.name.lower(): column for column in missing}
        names = {column.name for column in missing}
        constraints += [
            replace(c, mark=word.mark) for c in interface.constraints if columns_of(c.constraint)[0] in names
        ]
        added += missing
        if len(present) > PROPERTIES_MAX:
            problem = f"with the properties of {word.text!r} the node has more than {PROPERTIES_MAX:,}"
            raise MarkedError(word.mark, problem)
    return Inherited(properties=tuple(added), constraints=tuple(constraints))


def _named(word: Word, interfaces: Mapping[str, InterfaceDraft], nodes: frozenset[str]) -> InterfaceDraft:
    found = interfaces.get(word.text)
    if found is not None:
        return found
    if word.text in nodes:
        hint: str | None = "it is a node type; only interfaces can be implemented"
    else:
        hint = did_you_mean(word.text, interfaces)
    raise MarkedError(word.mark, f"there is no interface {word.text!r}", hint)


def _is_missing(wanted: PropertyDraft, present: Mapping[str, PropertyDraft], interface: Word) -> bool:
    """Tell whether the node lacks a property; one that it has must be of the same name and type."""
    found = present.get(wanted.name.lower())
    if found is None:
        return True
    if found.name != wanted.name:
        problem = f"the property {found.name!r} and {interface.text}'s {wanted.name!r} differ only in letter case"
        raise MarkedError(found.mark, problem, f"write {wanted.name}")
    if (found.type, found.nullable) != (wanted.type, wanted.nullable):
        problem = f"the property {found.name!r} is {_shown(found)} here and {_shown(wanted)} in {interface.text}"
        raise MarkedError(found.mark, problem, f"write {wanted.name}: {_shown(wanted)}")
    return False


def _shown(column: PropertyDraft) -> str:
    many = isinstance(column.type, EnumType) and len(column.type.values) > 8
    return ("another enum" if many else str(column.type)) + ("?" if column.nullable else "")
