"""The rules for names, property types and annotations, each refused at its place."""

import re
from collections.abc import Iterable

from omnigraph.model.schema import (
    BUILTIN_TYPE_WORDS,
    CARDINALITY_MAX,
    IDENTIFIER,
    NAME_CHARS_MAX,
    TYPE_NAME,
    VECTOR_DIMENSION_MAX,
    Annotation,
    Cardinality,
    EnumType,
    ListType,
    PropertyType,
    Scalar,
    ScalarType,
    VectorType,
    did_you_mean,
    is_reserved_column,
)
from omnigraph.rules.schema_source import Mark, MarkedError
from omnigraph.rules.schema_text import Attribute, Bounds, Literal, Named, Number, TypeText, Word

ENUM_VALUES_MAX = 1_000

CONSTRAINTS = ("key", "unique", "index", "range", "check")
COLUMN_CONSTRAINTS = ("key", "unique", "index")
TEXT_ANNOTATIONS = ("description", "instruction", "rename_from")
BUILTIN_ANNOTATIONS = (*CONSTRAINTS, "card", "embed", "backfill", *TEXT_ANNOTATIONS)

FOREIGN_TYPE_WORDS = {
    "boolean": "Bool",
    "int": "I64",
    "integer": "I64",
    "long": "I64",
    "bigint": "I64",
    "int32": "I32",
    "int64": "I64",
    "uint32": "U32",
    "uint64": "U64",
    "float": "F64",
    "double": "F64",
    "float32": "F32",
    "float64": "F64",
    "number": "F64",
    "str": "String",
    "text": "String",
    "utf8": "String",
    "varchar": "String",
    "timestamp": "DateTime",
    "bytes": "Blob",
    "binary": "Blob",
}


def check_type_name(name: Word) -> None:
    """Refuse a name that no interface, node or edge may have."""
    if TYPE_NAME.fullmatch(name.text) is None:
        hint = f"write {name.text[0].upper() + name.text[1:]}" if name.text[0].islower() else None
        raise MarkedError(name.mark, f"the type name {name.text!r} does not start with an upper-case letter", hint)
    _check_length(name)
    if name.text in BUILTIN_TYPE_WORDS:
        raise MarkedError(
            name.mark, f"{name.text!r} is a property type, so no node, edge or interface can have its name"
        )


def check_property_name(name: Word) -> None:
    """Refuse a name that no property may have."""
    if IDENTIFIER.fullmatch(name.text) is None:
        hint = f"write {name.text[0].lower() + name.text[1:]}"
        raise MarkedError(name.mark, f"the property name {name.text!r} does not start with a lower-case letter", hint)
    _check_length(name)
    if is_reserved_column(name.text):
        hint = (
            "id, src, dst, _distance, _score, _reasons and what starts with __, _row, _commit, _change, _omni are ours"
        )
        raise MarkedError(name.mark, f"the property name {name.text!r} is reserved", hint)


def _check_length(name: Word) -> None:
    if len(name.text) > NAME_CHARS_MAX:
        problem = f"this name has {len(name.text):,} characters, and at most {NAME_CHARS_MAX} are allowed"
        raise MarkedError(name.mark, problem)


def resolve_type(written: TypeText) -> PropertyType:
    """Return the property type that was written."""
    if written.listed:
        return _list_type(written)
    if written.name.text == "enum":
        return _enum_type(written)
    if written.name.text == "Vector":
        return _vector_type(written)
    return ScalarType(scalar=_scalar(written))


def _list_type(written: TypeText) -> ListType:
    if written.name.text in ("enum", "Vector"):
        problem = f"a list can not hold {written.name.text}(…)"
        raise MarkedError(written.name.mark, problem, "a list holds a plain type: [String], [I64], [Date]")
    element = _scalar(written)
    if element is Scalar.BLOB:
        raise MarkedError(written.name.mark, "a list can not hold Blob", "make each blob a node of its own")
    return ListType(element=element)


def _enum_type(written: TypeText) -> EnumType:
    if not written.choices:
        raise MarkedError(written.name.mark, "this enum has no values", "write enum(first, second)")
    if len(written.choices) > ENUM_VALUES_MAX:
        problem = f"this enum has more than {ENUM_VALUES_MAX:,} values"
        raise MarkedError(written.choices[ENUM_VALUES_MAX].mark, problem)
    refuse_repeats(written.choices, "the enum value")
    return EnumType(values=tuple(sorted(choice.text for choice in written.choices)))


def _vector_type(written: TypeText) -> VectorType:
    if not written.choices:
        raise MarkedError(written.name.mark, "this vector has no dimension", "write Vector(384)")
    if len(written.choices) > 1:
        raise MarkedError(
            written.choices[1].mark, "a vector has one dimension", f"write Vector({written.choices[0].text})"
        )
    choice = written.choices[0]
    dimension = _whole_number(choice.text)
    if dimension is None or not 1 <= dimension <= VECTOR_DIMENSION_MAX:
        problem = f"{_cut(choice.text)!r} is not a vector's dimension"
        raise MarkedError(choice.mark, problem, f"a dimension is a whole number from 1 to {VECTOR_DIMENSION_MAX}")
    return VectorType(dimension=dimension)


def _scalar(written: TypeText) -> Scalar:
    word = written.name.text
    if word not in tuple(Scalar):
        suggestion = FOREIGN_TYPE_WORDS.get(word.lower())
        hint = f"did you mean {suggestion!r}?" if suggestion else did_you_mean(word, BUILTIN_TYPE_WORDS)
        raise MarkedError(written.name.mark, f"unknown type {word!r}", hint or f"the types are {', '.join(Scalar)}")
    if written.choices:
        raise MarkedError(written.choices[0].mark, f"{word} takes no arguments", f"write {word}")
    return Scalar(word)


def refuse_repeats(words: Iterable[Word], what: str) -> None:
    """Refuse a word that occurred before in the same list."""
    seen: set[str] = set()
    for word in words:
        if word.text in seen:
            raise MarkedError(word.mark, f"{what} {word.text!r} occurs twice", "remove one of the two")
        seen.add(word.text)


def refuse_lookalike(attribute: Attribute) -> None:
    """Refuse an annotation whose name is a slip of the pen away from one that means something."""
    name = attribute.name.text
    if name in BUILTIN_ANNOTATIONS:
        return
    for builtin in BUILTIN_ANNOTATIONS:
        if name.lower() == builtin or _one_slip_apart(name, builtin):
            raise MarkedError(attribute.mark, f"unknown annotation '@{name}'", f"did you mean '@{builtin}'?")
    if sum(not isinstance(a, Named) for a in attribute.arguments) > 1 or _has_bounds(attribute):
        near = did_you_mean(name, CONSTRAINTS)
        hint = near or f"the constraints are {', '.join('@' + constraint for constraint in CONSTRAINTS)}"
        raise MarkedError(attribute.mark, f"unknown constraint '@{name}'", hint)


def _has_bounds(attribute: Attribute) -> bool:
    return any(isinstance(argument, Bounds) for argument in attribute.arguments)


def _one_slip_apart(written: str, meant: str) -> bool:
    """Tell whether one letter too many, too few, wrong or swapped with its neighbour separates two words."""
    shared = 0
    while shared < min(len(written), len(meant)) and written[shared] == meant[shared]:
        shared += 1
    left, right = written[shared:], meant[shared:]
    swapped = left[1:2] + left[:1] + left[2:]
    return right in (left[1:], swapped) or left[1:] == right[1:] or left == right[1:]


def read_annotation(attribute: Attribute) -> Annotation:
    """Return an annotation with its value and options as text."""
    _check_annotation_name(attribute.name)
    if not attribute.arguments:
        if attribute.called:
            hint = f'write @{attribute.name.text} or @{attribute.name.text}("value")'
            raise MarkedError(attribute.mark, "these parentheses are empty", hint)
        return Annotation(name=attribute.name.text)
    first, *rest = attribute.arguments
    if isinstance(first, Named | Bounds):
        hint = f'write @{attribute.name.text}("value", key="value")'
        raise MarkedError(_place(first), "an annotation's value comes first", hint)
    options = [_option(argument) for argument in rest]
    refuse_repeats((option.name for option in options), "the option")
    pairs = sorted((option.name.text, _plain(option.value)) for option in options)
    return Annotation(name=attribute.name.text, value=_plain(first), options=tuple(pairs))


def _check_annotation_name(name: Word) -> None:
    if IDENTIFIER.fullmatch(name.text) is None:
        hint = f"write @{name.text[0].lower() + name.text[1:]}"
        raise MarkedError(name.mark, f"the annotation name {name.text!r} does not start with a lower-case letter", hint)
    _check_length(name)


def _place(argument: Named | Bounds | Literal) -> Mark:
    return argument.name.mark if isinstance(argument, Named) else argument.mark


def _option(argument: Named | Bounds | Literal) -> Named:
    if not isinstance(argument, Named):
        raise MarkedError(_place(argument), "an annotation has one value", 'what follows it is written key="value"')
    _check_annotation_name(argument.name)
    value = argument.value
    if isinstance(value, Word) and value.text not in ("true", "false"):
        raise MarkedError(value.mark, f"{value.text!r} is not a value", f'write "{value.text}", in double quotes')
    return argument


def _plain(value: Literal) -> str:
    if isinstance(value, Number) and value.text.startswith("-"):
        raise MarkedError(value.mark, "a sign is allowed only in a range", f'write "{value.text}", in double quotes')
    return value.text


def check_text_annotation(attribute: Attribute, annotation: Annotation) -> None:
    """Refuse a description, instruction or earlier name that says nothing or says it in the wrong form."""
    if not (annotation.value or "").strip():
        raise MarkedError(attribute.mark, f"@{annotation.name} says nothing", f'write @{annotation.name}("…")')
    if annotation.options:
        raise MarkedError(attribute.mark, f"@{annotation.name} takes one value and no options")


def check_earlier_name(attribute: Attribute, annotation: Annotation, pattern: re.Pattern[str]) -> None:
    """Refuse a ``@rename_from`` whose value no type, or no property, can ever have been called."""
    if pattern.fullmatch(annotation.value or "") is None:
        raise MarkedError(
            attribute.mark, f"{annotation.value!r} can not be an earlier name", "give the old name as it was"
        )


def read_cardinality(attribute: Attribute) -> Cardinality:
    """Return the bounds of ``@card(min..max)``."""
    match attribute.arguments:
        case (Bounds(low=low, high=high),):
            minimum = 0 if low is None else _count(low)
            maximum = None if high is None else _count(high)
        case (Number(text=text, mark=mark), *_):
            raise MarkedError(mark, "@card needs a range", f"write @card({text}..{text})")
        case _:
            raise MarkedError(
                attribute.mark, "@card needs a range", "write @card(0..1), or @card(1..) for at least one"
            )
    if maximum is not None and minimum > maximum:
        problem = f"the least number {minimum} is greater than the most, {maximum}"
        raise MarkedError(attribute.mark, problem, f"write @card({maximum}..{minimum})")
    return Cardinality(minimum=minimum, maximum=maximum)


def _count(number: Number) -> int:
    count = _whole_number(number.text)
    if count is None or count > CARDINALITY_MAX:
        problem = f"{_cut(number.text)!r} is not a number of edges"
        raise MarkedError(number.mark, problem, f"write a whole number from 0 to {CARDINALITY_MAX}")
    return count


def _whole_number(text: str) -> int | None:
    """Return an unsigned number of at most twenty digits; more than that is beyond every limit."""
    digits = text.lstrip("0") or "0"
    return int(digits) if text.isascii() and text.isdigit() and len(digits) <= 20 else None


def _cut(text: str) -> str:
    return text if len(text) <= 40 else text[:40] + "…"
