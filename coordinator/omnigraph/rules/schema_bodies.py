"""The rules for what stands in a declaration: properties with their annotations, and what a header may say."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from omnigraph.model.schema import (
    ANY_NUMBER,
    IDENTIFIER,
    TYPE_NAME,
    Annotation,
    Cardinality,
    Scalar,
    ScalarType,
    TypeKind,
    VectorType,
    did_you_mean,
)
from omnigraph.rules.formulas import Formula, parse_formula
from omnigraph.rules.schema_checks import (
    COLUMN_CONSTRAINTS,
    CONSTRAINTS,
    TEXT_ANNOTATIONS,
    check_earlier_name,
    check_property_name,
    check_text_annotation,
    read_annotation,
    read_cardinality,
    refuse_lookalike,
    resolve_type,
)
from omnigraph.rules.schema_constraints import COLUMN_CONSTRAINT_KINDS, check_column
from omnigraph.rules.schema_draft import Placed, PropertyDraft
from omnigraph.rules.schema_source import MarkedError
from omnigraph.rules.schema_text import (
    Attribute,
    EdgeText,
    InterfaceText,
    Member,
    Named,
    NodeText,
    PropertyText,
    Quoted,
    Word,
)

PROPERTIES_MAX = 2_000
ENDS = ("from", "to")


@dataclass(frozen=True, slots=True, kw_only=True)
class Embed:
    """An ``@embed`` whose source is still to be looked up among all properties."""

    attribute: Attribute
    column: PropertyDraft


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """What stands between the braces: ``placed`` was said on properties, ``constraints`` beside them."""

    properties: tuple[PropertyDraft, ...]
    placed: tuple[Placed, ...]
    constraints: tuple[Attribute, ...]
    embeds: tuple[Embed, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Annotated:
    """A property and the attributes that follow it, which are collected while the body is read."""

    written: PropertyText
    attributes: list[Attribute]


def read_body(members: Sequence[Member], kind: TypeKind) -> Body:
    """Return a body's properties, checked, and its constraints, still to be checked against all columns."""
    annotated, constraints = _grouped(members)
    if constraints and kind is TypeKind.INTERFACE:
        problem = f"an interface can not have '@{constraints[0].name.text}(…)' in its body"
        raise MarkedError(constraints[0].mark, problem, "put it into the nodes that implement the interface")
    _check_property_names([each.written.name for each in annotated], kind)
    properties: list[PropertyDraft] = []
    placed: list[Placed] = []
    embeds: list[Embed] = []
    for each in annotated:
        column = _property(each)
        properties.append(column)
        placed += _said_of(column, each.attributes, kind)
        embeds += [Embed(attribute=a, column=column) for a in each.attributes if a.name.text == "embed"]
    return Body(properties=tuple(properties), placed=tuple(placed), constraints=constraints, embeds=tuple(embeds))


def _grouped(members: Sequence[Member]) -> tuple[list[_Annotated], tuple[Attribute, ...]]:
    """Give each property the annotations that follow it, and set the constraints apart."""
    annotated: list[_Annotated] = []
    constraints: list[Attribute] = []
    after_property = False
    for member in members:
        if isinstance(member, PropertyText):
            annotated.append(_Annotated(written=member, attributes=[]))
            after_property = True
            continue
        refuse_lookalike(member)
        if member.name.text in CONSTRAINTS and member.called:
            constraints.append(member)
            after_property = False
        elif after_property:
            annotated[-1].attributes.append(member)
        else:
            raise _follows_no_property(member)
    return annotated, tuple(constraints)


def _follows_no_property(attribute: Attribute) -> MarkedError:
    name = attribute.name.text
    if name == "card":
        return _misplaced_card(attribute)
    if name in CONSTRAINTS:
        return MarkedError(attribute.mark, f"@{name} does not say which columns", f"write @{name}(column)")
    hint = "put it right after a property's type, or after the name of the node or edge"
    return MarkedError(attribute.mark, f"@{name} follows no property", hint)


def _misplaced_card(attribute: Attribute) -> MarkedError:
    hint = "write it after the edge's types: edge Name: FromType -> ToType @card(0..1)"
    return MarkedError(attribute.mark, "@card belongs to the header of an edge", hint)


def _check_property_names(names: Sequence[Word], kind: TypeKind) -> None:
    first: dict[str, Word] = {}
    for name in names:
        check_property_name(name)
        if kind is TypeKind.EDGE and name.text.lower() in ENDS:
            hint = "on an edge, from and to are its two nodes, in records and in mutations; choose another name"
            raise MarkedError(name.mark, f"the property name {name.text!r} is reserved", hint)
        earlier = first.setdefault(name.text.lower(), name)
        if earlier is not name:
            hint = (
                f"{earlier.text!r} is declared on line {earlier.mark.line}; letter case does not tell properties apart"
            )
            raise MarkedError(name.mark, f"the property name {name.text!r} is taken", hint)
    if len(names) > PROPERTIES_MAX:
        raise MarkedError(names[PROPERTIES_MAX].mark, f"a type has at most {PROPERTIES_MAX:,} properties")


def _property(each: _Annotated) -> PropertyDraft:
    remarks = [attribute for attribute in each.attributes if attribute.name.text not in COLUMN_CONSTRAINTS]
    formulas = [(attribute, _formula(attribute)) for attribute in remarks]
    remarks = [attribute for attribute, formula in formulas if formula is None]
    for attribute in remarks:
        _check_property_annotation(attribute)
    return PropertyDraft(
        name=each.written.name.text,
        type=resolve_type(each.written.type),
        nullable=each.written.type.nullable,
        annotations=tuple(read_annotation(attribute) for attribute in remarks),
        mark=each.written.name.mark,
        formula=next((formula for _, formula in formulas if formula is not None), None),
    )


def _formula(attribute: Attribute) -> Formula | None:
    """Return the expression of ``@backfill(expr="…")``; None if this is something else."""
    match attribute.arguments:
        case (Named(name=Word(text="expr"), value=value),) if attribute.name.text == "backfill":
            if not isinstance(value, Quoted):
                raise MarkedError(value.mark, "an expression is written in quotes", 'write expr="…"')
            return parse_formula(value)
        case _:
            return None


def _said_of(column: PropertyDraft, attributes: Sequence[Attribute], kind: TypeKind) -> list[Placed]:
    """Return the constraints annotated on a property."""
    placed: list[Placed] = []
    seen: set[str] = set()
    for attribute in attributes:
        name = attribute.name.text
        if name in seen and name in (*COLUMN_CONSTRAINTS, *TEXT_ANNOTATIONS, "embed", "backfill"):
            raise MarkedError(attribute.mark, f"@{name} is here twice", "remove one of the two")
        seen.add(name)
        if name in COLUMN_CONSTRAINTS:
            placed.append(_column_constraint(column, attribute, kind))
    return placed


def _column_constraint(column: PropertyDraft, attribute: Attribute, kind: TypeKind) -> Placed:
    name = attribute.name.text
    if name == "key" and kind is TypeKind.EDGE:
        hint = f"write @key(src, dst, {column.name}) in the body"
        raise MarkedError(attribute.mark, "an edge's property can not be its key alone", hint)
    check_column(name, column, attribute.mark)
    return Placed(constraint=COLUMN_CONSTRAINT_KINDS[name](columns=(column.name,)), mark=attribute.mark)


def _check_property_annotation(attribute: Attribute) -> None:
    name = attribute.name.text
    if name == "card":
        raise _misplaced_card(attribute)
    if name in CONSTRAINTS:
        example = {"range": "0..100", "check": '"^[a-z]+$"'}[name]
        raise MarkedError(attribute.mark, f"@{name} says nothing", f"write @{name}(property, {example})")
    if name == "instruction":
        hint = "put it after the name of the node or edge, or use @description"
        raise MarkedError(attribute.mark, "@instruction belongs to a node or edge, not to a property", hint)
    if name in TEXT_ANNOTATIONS:
        annotation = read_annotation(attribute)
        check_text_annotation(attribute, annotation)
        if name == "rename_from":
            check_earlier_name(attribute, annotation, IDENTIFIER)
    if name == "backfill":
        hint = 'write @backfill("value") or @backfill(expr="…")'
        if len(attribute.arguments) != 1 or isinstance(attribute.arguments[0], Named):
            raise MarkedError(attribute.mark, "@backfill takes one value, or one expression", hint)
        read_annotation(attribute)


def check_embeds(embeds: Sequence[Embed], properties: Sequence[PropertyDraft], kind: TypeKind) -> None:
    """Check each ``@embed(source, model="…")``: a vector made from a text property of the same node."""
    by_name = {column.name: column for column in properties}
    for embed in embeds:
        if kind is TypeKind.EDGE:
            raise MarkedError(embed.attribute.mark, "@embed is not possible on an edge")
        if not isinstance(embed.column.type, VectorType):
            raise MarkedError(embed.attribute.mark, "@embed needs a vector", "declare the property as Vector(n)")
        _check_embed(embed.attribute, by_name)


def _check_embed(attribute: Attribute, properties: Mapping[str, PropertyDraft]) -> None:
    annotation = read_annotation(attribute)
    unknown = [key for key, _ in annotation.options if key != "model"]
    if unknown:
        problem = f"@embed has no option {unknown[0]!r}"
        raise MarkedError(attribute.mark, problem, did_you_mean(unknown[0], ["model"]) or "its only option is model")
    if annotation.value is None:
        raise MarkedError(attribute.mark, "@embed does not say what it embeds", 'write @embed("text_property")')
    source = properties.get(annotation.value)
    if source is None:
        problem = f"there is no property {annotation.value!r} to embed"
        raise MarkedError(attribute.mark, problem, did_you_mean(annotation.value, properties))
    if source.type != ScalarType(scalar=Scalar.STRING):
        raise MarkedError(attribute.mark, f"@embed needs a String, and {source.name!r} is {source.type}")


def interface_header(written: InterfaceText) -> None:
    """Refuse annotations on an interface."""
    if written.attributes:
        hint = "annotate its properties, or the nodes that implement it"
        raise MarkedError(written.attributes[0].mark, "an interface takes no annotations", hint)


def node_header(written: NodeText) -> tuple[Annotation, ...]:
    """Return a node's annotations, checked."""
    return _header(written.attributes, written.name)


def edge_header(written: EdgeText) -> tuple[Cardinality, tuple[Annotation, ...]]:
    """Return an edge's cardinality and annotations, checked."""
    attributes = written.attributes
    cardinality = ANY_NUMBER
    if attributes and attributes[0].name.text == "card":
        cardinality = read_cardinality(attributes[0])
        attributes = attributes[1:]
        repeated = [attribute for attribute in attributes if attribute.name.text == "card"]
        if repeated:
            raise MarkedError(repeated[0].mark, "@card is here twice", "remove one of the two")
    late = [attribute for attribute in attributes if attribute.name.text == "card"]
    if late:
        raise MarkedError(late[0].mark, "@card comes after another annotation", "put it right after the edge's types")
    return cardinality, _header(attributes, written.name)


def _header(attributes: Sequence[Attribute], owner: Word) -> tuple[Annotation, ...]:
    annotations: list[Annotation] = []
    for attribute in attributes:
        annotation = _header_annotation(attribute)
        once = annotation.name in TEXT_ANNOTATIONS
        if once and any(earlier.name == annotation.name for earlier in annotations):
            raise MarkedError(attribute.mark, f"@{annotation.name} is here twice", "remove one of the two")
        if annotation.name == "rename_from" and annotation.value == owner.text:
            raise MarkedError(attribute.mark, f"{owner.text!r} is its own earlier name")
        annotations.append(annotation)
    return tuple(annotations)


def _header_annotation(attribute: Attribute) -> Annotation:
    refuse_lookalike(attribute)
    name = attribute.name.text
    if name == "card":
        raise _misplaced_card(attribute)
    if name in CONSTRAINTS:
        hint = f"write @{name}(…) inside the braces" if attribute.called else f"write @{name} after a property"
        raise MarkedError(attribute.mark, f"@{name} belongs into the body", hint)
    if name == "embed":
        raise MarkedError(
            attribute.mark, "@embed belongs to a vector property", 'write vector: Vector(n) @embed("text")'
        )
    if name == "backfill":
        raise MarkedError(attribute.mark, "@backfill belongs to a property", "put it right after the property's type")
    annotation = read_annotation(attribute)
    if name in TEXT_ANNOTATIONS:
        check_text_annotation(attribute, annotation)
    if name == "rename_from":
        check_earlier_name(attribute, annotation, TYPE_NAME)
    return annotation
