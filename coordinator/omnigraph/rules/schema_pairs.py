"""Which types and properties of a new schema are those of an earlier one: by name, or by the name they had before."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias, TypeVar

from omnigraph.ids import PropertyId, TypeId
from omnigraph.model.catalog import Catalog
from omnigraph.model.schema import Annotation, DeclaredType, TypeKind
from omnigraph.model.schema_plan import Problem, Step, StepKind, Support
from omnigraph.rules.formulas import Formula
from omnigraph.rules.schema_compile import assign_ids
from omnigraph.rules.schema_draft import EdgeDraft, InterfaceDraft, NodeDraft, PropertyDraft, SchemaDraft, TypeDraft

Backfill: TypeAlias = str | Formula
"""What rows that are there get in a property: a value, as it is written, or an expression."""
RENAME_FROM, BACKFILL = "rename_from", "backfill"
PASSING = (RENAME_FROM, BACKFILL)
"""Annotations that speak of the change to a schema, and not of the schema."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Successor:
    """A schema that follows another: with its identities, and with what its text says about the change."""

    catalog: Catalog
    backfills: Mapping[PropertyId, Backfill]
    problems: tuple[Step, ...]


@dataclass(slots=True)
class _KeptIds:
    """The identities of an earlier catalog where something is the same, and fresh ones where it is not."""

    mint: Callable[[], str]
    types: dict[tuple[TypeKind, str], TypeId] = field(default_factory=dict)
    properties: dict[tuple[TypeKind, str, str], PropertyId] = field(default_factory=dict)

    def type_id(self, kind: TypeKind, name: str) -> TypeId:
        """Return the identity of a type."""
        return self.types.get((kind, name)) or TypeId(self.mint())

    def property_id(self, kind: TypeKind, owner: str, name: str) -> PropertyId:
        """Return the identity of a property."""
        return self.properties.get((kind, owner, name)) or PropertyId(self.mint())


def successor(old: Catalog, draft: SchemaDraft, mint: Callable[[], str]) -> Successor:
    """Return the catalog of a draft in which everything that was there before is still itself."""
    kept = _KeptIds(mint)
    problems: list[Step] = []
    groups: tuple[tuple[TypeKind, Iterable[TypeDraft], Iterable[DeclaredType]], ...] = (
        (TypeKind.INTERFACE, draft.interfaces, old.interfaces),
        (TypeKind.NODE, draft.nodes, old.nodes),
        (TypeKind.EDGE, draft.edges, old.edges),
    )
    for kind, drafts, there in groups:
        known = {each.name: each for each in there}
        wanted = {each.name: _said(_annotations(each), RENAME_FROM) for each in drafts}
        pairs, wrong = _paired(wanted, known)
        problems += (_rename_problem(kind, name, None, why) for name, why in wrong.items())
        for each in drafts:
            if each.name in pairs:
                before = known[pairs[each.name]]
                kept.types[kind, each.name] = before.id
                problems += _pair_properties(kept, kind, each, before)
    catalog = assign_ids(_without_passing(draft), kept)
    return Successor(catalog=catalog, backfills=dict(_backfills(draft, catalog)), problems=tuple(problems))


def _pair_properties(kept: _KeptIds, kind: TypeKind, each: TypeDraft, before: DeclaredType) -> Iterator[Step]:
    known = {column.name: column for column in before.properties}
    wanted = {column.name: _said(column.annotations, RENAME_FROM) for column in each.properties}
    pairs, wrong = _paired(wanted, known)
    for name, earlier in pairs.items():
        kept.properties[kind, each.name, name] = known[earlier].id
    return (_rename_problem(kind, each.name, name, why) for name, why in wrong.items())


def _paired(wanted: Mapping[str, str | None], known: Mapping[str, T]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the earlier name of everything that had one, and what is wrong with a name that was given as earlier.

    A name that is known comes first: a text that still says ``@rename_from`` after it was applied means nothing new.
    What is renamed takes its identity along, so something else may take its name at the same time.
    """
    pairs: dict[str, str] = {}
    wrong: dict[str, str] = {}
    for name, earlier in wanted.items():
        if name in known or earlier is None:
            continue
        if earlier not in known:
            wrong[name] = f"there is nothing called {earlier!r} to rename"
        elif earlier in pairs.values():
            wrong[name] = f"{earlier!r} is renamed to something else already"
        else:
            pairs[name] = earlier
    taken = set(pairs.values())
    return pairs | {name: name for name in wanted if name in known and name not in taken}, wrong


def _rename_problem(kind: TypeKind, owner: str, column: str | None, why: str) -> Step:
    return Step(
        kind=StepKind.RENAME_TYPE if column is None else StepKind.RENAME_PROPERTY,
        type_kind=kind,
        type=owner,
        column=column,
        support=Support.UNSUPPORTED,
        problem=Problem(
            code="RENAME_SOURCE_MISSING", reason=why, instead="name what it is called now, or leave @rename_from away"
        ),
    )


def _said(annotations: Iterable[Annotation], name: str) -> str | None:
    return next((each.value for each in annotations if each.name == name), None)


def _annotations(draft: TypeDraft) -> tuple[Annotation, ...]:
    return () if isinstance(draft, InterfaceDraft) else draft.annotations


def lasting(annotations: Iterable[Annotation]) -> tuple[Annotation, ...]:
    """Return the annotations that speak of the schema itself."""
    return tuple(each for each in annotations if each.name not in PASSING)


def _without_passing(draft: SchemaDraft) -> SchemaDraft:
    return replace(
        draft,
        interfaces=tuple(replace(each, properties=_plain(each.properties)) for each in draft.interfaces),
        nodes=tuple(_plain_type(each) for each in draft.nodes),
        edges=tuple(_plain_type(each) for each in draft.edges),
    )


Stored = TypeVar("Stored", NodeDraft, EdgeDraft)


def _plain_type(draft: Stored) -> Stored:
    return replace(draft, annotations=lasting(draft.annotations), properties=_plain(draft.properties))


def _plain(properties: tuple[PropertyDraft, ...]) -> tuple[PropertyDraft, ...]:
    return tuple(replace(column, annotations=lasting(column.annotations)) for column in properties)


def _backfills(draft: SchemaDraft, catalog: Catalog) -> Iterator[tuple[PropertyId, Backfill]]:
    """Yield what rows that are there get in a property."""
    drafts: tuple[TypeDraft, ...] = (*draft.nodes, *draft.edges)
    for each, kind in zip(drafts, catalog.table_types, strict=True):
        for written, column in zip(each.properties, kind.properties, strict=True):
            value = written.formula or _said(written.annotations, BACKFILL)
            if value is not None:
                yield column.id, value
