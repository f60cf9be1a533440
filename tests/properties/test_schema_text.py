"""Schema text of every kind: what comes out is a catalog that prints and stores itself, or an error at a place."""

import json
import os
import random
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.properties.fuzz_kit import mutated

from omnigraph.errors import SchemaError
from omnigraph.ids import PropertyId, TypeId
from omnigraph.model.catalog import Catalog
from omnigraph.model.schema import (
    BOUND_INTEGER_MAX,
    BOUND_INTEGER_MIN,
    BUILTIN_TYPE_WORDS,
    INTEGERS,
    NUMBERS,
    Annotation,
    Cardinality,
    Check,
    Constraint,
    EdgeType,
    EnumType,
    Index,
    InterfaceType,
    Key,
    ListType,
    NodeType,
    Property,
    PropertyType,
    Range,
    Scalar,
    ScalarType,
    TypeKind,
    Unique,
    VectorType,
    columns_of,
    in_canonical_order,
    is_reserved_column,
)
from omnigraph.rules.schema_bodies import ENDS
from omnigraph.rules.schema_compile import compile_schema
from omnigraph.rules.schema_print import print_schema

EFFORT = 10 if os.environ.get("OMNIGRAPH_DEEP") == "1" else 1
TEXTS = 1_000 * EFFORT
TOKEN_SOUPS = 2_000 * EFFORT
MUTANTS = 12_000 * EFFORT
SHRINKABLE_MUTANTS = 200 * EFFORT
CATALOGS = 150 * EFFORT

quickly = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])

SEEDS = (
    "node Author { name: String @key  born: Date? }\nnode Paper { title: String @index }\nedge Wrote: Author -> Paper",
    """interface Tracked { created: DateTime  note: String? @index }
node Ticket implements Tracked @description("one unit") {
    code: String @key   state: enum(open, doing, done)
    effort: I32?   tags: [String]?
    @range(effort, 0..100)  @check(code, "^T-[0-9]+$")  @unique(state, note)
}
""",
    """node Clip @rename_from("Snippet") {
    body: String   vec: Vector(384)? @embed("body", model="m") @index   raw: Blob?
}
edge Follows: Clip -> Clip @card(0..1) @owner(x, a=true) { weight: F32? // how much
    @key(src, dst) @range(weight, -0.5..) }
""",
)
TOKENS = (
    *("node", "edge", "interface", "implements", "enum", "Vector", "A", "B", "I", "a", "b", "id", "src", "dst", "__x"),
    *("String", "I32", "Blob", "Date", "[", "]", "(", ")", "{", "}", ":", "->", "-", ",", "?", "=", "..", "."),
    *("@", "@key", "@unique", "@index", "@range", "@check", "@card", "@embed", "@description", "@owner", "@kye"),
    *(
        '"x"',
        '"',
        "'",
        "\\",
        "0",
        "1",
        "-1",
        "1.5",
        "9" * 30,
        "//",
        "/*",
        "*/",
        "\n",
        "\r\n",
        "\t",
        " ",
        "é",
        "\ufeff",
        "\0",
    ),
)
TOKEN = re.compile(r'"[^"\n]*"|\w+|\s+|->|\.\.|.', re.DOTALL)

Columns: TypeAlias = dict[str, tuple[PropertyType, bool]]


class NamedIds:
    """Identities that depend on names alone, so that two compilations agree."""

    def type_id(self, kind: TypeKind, name: str) -> TypeId:
        return TypeId(f"{kind}:{name}")

    def property_id(self, kind: TypeKind, owner: str, name: str) -> PropertyId:
        return PropertyId(f"{kind}:{owner}.{name}")


def outcome(text: str) -> Catalog | SchemaError:
    """Compile a text; whatever is raised but a SchemaError fails the test."""
    try:
        return compile_schema(text, NamedIds())
    except SchemaError as error:
        return error


def check_outcome(text: str) -> None:
    """Accepted text prints and compiles to the same catalog; refused text is refused at a place in it."""
    result = outcome(text)
    if isinstance(result, Catalog):
        assert compile_schema(print_schema(result), NamedIds()) == result
        return
    lines = text.split("\n")
    assert 1 <= result.line <= len(lines)
    assert result.source_line == lines[result.line - 1].removesuffix("\r")
    assert 1 <= result.column <= len(lines[result.line - 1]) + 1


@settings(quickly, max_examples=TEXTS)
@given(st.text())
def test_any_text_is_a_catalog_or_an_error_at_a_place(text: str) -> None:
    check_outcome(text)


@settings(quickly, max_examples=SHRINKABLE_MUTANTS)
@given(st.lists(st.sampled_from(TOKENS), max_size=40), st.sampled_from(["", " "]), st.sampled_from(SEEDS))
def test_any_tail_of_tokens_is_a_catalog_or_an_error_at_a_place(tokens: list[str], glue: str, seed: str) -> None:
    check_outcome(seed[: len(seed) * 2 // 3] + glue.join(tokens))


def test_many_token_soups_are_catalogs_or_errors_at_places() -> None:
    dice = random.Random(20_261_103)
    for _ in range(TOKEN_SOUPS):
        pieces = dice.choices(TOKENS, k=dice.randint(1, 30))
        check_outcome(
            dice.choice(["node A {", "edge E: A -> A ", "node A @", ""]) + dice.choice(["", " "]).join(pieces)
        )


def test_many_mutated_schemas_are_catalogs_or_errors_at_places() -> None:
    dice = random.Random(20_261_104)
    accepted = 0
    for _ in range(MUTANTS):
        text = dice.choice(SEEDS)
        for _ in range(dice.choice([1, 1, 1, 2, 3])):
            text = mutated(text, dice, TOKEN, TOKENS) or "node"
        check_outcome(text)
        accepted += isinstance(outcome(text), Catalog) if dice.random() < 0.05 else 0
    assert accepted, "no mutant was accepted, so the mutations are too wild to be worth anything"


@pytest.mark.parametrize("seed", SEEDS)
def test_every_beginning_of_a_schema_is_a_catalog_or_an_error_at_a_place(seed: str) -> None:
    for end in range(0, len(seed), 1 if EFFORT > 1 else 3):
        check_outcome(seed[:end])


@settings(quickly, max_examples=SHRINKABLE_MUTANTS)
@given(st.sampled_from(SEEDS), st.randoms(use_true_random=False))
def test_a_mutated_schema_is_a_catalog_or_an_error_at_a_place(seed: str, dice: random.Random) -> None:
    check_outcome(mutated(seed, dice, TOKEN, TOKENS))


TEXT = st.text(st.characters(exclude_categories=["Cc", "Cs"]) | st.sampled_from('"\\\n\r\t'), max_size=8)
TYPE_NAMES = st.from_regex(r"[A-Z][A-Za-z0-9_]{0,4}", fullmatch=True).filter(lambda n: n not in BUILTIN_TYPE_WORDS)
COLUMN_NAMES = st.from_regex(r"[a-z_][A-Za-z0-9_]{0,5}", fullmatch=True).filter(lambda n: not is_reserved_column(n))
PROPERTY_TYPES: st.SearchStrategy[PropertyType] = st.one_of(
    st.builds(ScalarType, scalar=st.sampled_from(Scalar)),
    st.builds(ListType, element=st.sampled_from([scalar for scalar in Scalar if scalar is not Scalar.BLOB])),
    st.builds(VectorType, dimension=st.integers(1, 2**31 - 1)),
    st.lists(st.from_regex(r"[A-Za-z0-9_-]{1,6}", fullmatch=True), min_size=1, max_size=4, unique=True).map(
        lambda values: EnumType(values=tuple(sorted(values)))
    ),
)
OPTIONS = st.dictionaries(st.from_regex(r"[a-z_][A-Za-z0-9_]{0,4}", fullmatch=True), TEXT, max_size=2)
REMARKS = st.one_of(
    st.builds(Annotation, name=st.sampled_from(["pii", "owner", "unit_of"])),
    st.builds(
        Annotation,
        name=st.sampled_from(["pii", "owner", "unit_of"]),
        value=TEXT,
        options=OPTIONS.map(lambda options: tuple(sorted(options.items()))),
    ),
)
DESCRIPTIONS = st.builds(Annotation, name=st.just("description"), value=TEXT.filter(lambda text: bool(text.strip())))
COLUMN_GROUPS = st.dictionaries(COLUMN_NAMES, st.tuples(PROPERTY_TYPES, st.booleans()), max_size=6)


def annotations() -> st.SearchStrategy[tuple[Annotation, ...]]:
    return st.tuples(st.lists(REMARKS, max_size=2), st.lists(DESCRIPTIONS, max_size=1)).map(lambda t: (*t[0], *t[1]))


def in_one_case(names: Sequence[str]) -> list[str]:
    """Return the names that do not repeat an earlier one in another letter case."""
    first: dict[str, str] = {}
    for name in names:
        first.setdefault(name.lower(), name)
    return list(first.values())


def properties(draw: st.DrawFn, kind: TypeKind, owner: str, columns: Columns) -> tuple[Property, ...]:
    return tuple(
        Property(
            id=NamedIds().property_id(kind, owner, name),
            name=name,
            type=column,
            nullable=nullable,
            annotations=draw(annotations()),
        )
        for name, (column, nullable) in columns.items()
    )


def keyable(columns: Sequence[Property]) -> list[str]:
    return [p.name for p in columns if not p.nullable and uniquable(p.type)]


def uniquable(column: PropertyType) -> bool:
    return isinstance(column, EnumType) or (isinstance(column, ScalarType) and column.scalar is not Scalar.BLOB)


def coin(draw: st.DrawFn) -> bool:
    return draw(st.booleans())


def some_of(draw: st.DrawFn, names: Sequence[str]) -> tuple[str, ...]:
    return tuple(draw(st.lists(st.sampled_from(names), min_size=1, max_size=3, unique=True)))


def constraint_on(draw: st.DrawFn, column: Property) -> list[Constraint]:
    if not isinstance(column.type, ScalarType):
        return []
    if column.type.scalar is Scalar.STRING:
        return [Check(column=column.name, pattern=re.escape(draw(TEXT)))]
    if column.type.scalar not in NUMBERS:
        return []
    whole = column.type.scalar in INTEGERS
    numbers: st.SearchStrategy[int | float] = (
        st.integers(BOUND_INTEGER_MIN, BOUND_INTEGER_MAX)
        if whole
        else st.floats(allow_nan=False, allow_infinity=False).map(lambda x: x + 0.0)
    )
    low, high = sorted([draw(numbers), draw(numbers)])
    ends = draw(st.sampled_from([(low, high), (low, None), (None, high)]))
    return [Range(column=column.name, minimum=ends[0], maximum=ends[1])]


def constraints(draw: st.DrawFn, columns: Sequence[Property], ends: tuple[str, ...]) -> set[Constraint]:
    """Draw constraints other than a key over a type's columns."""
    found: set[Constraint] = set()
    unique = [*ends, *(p.name for p in columns if uniquable(p.type))]
    index = [*unique, *(p.name for p in columns if isinstance(p.type, VectorType))]
    if unique and coin(draw):
        found.add(Unique(columns=some_of(draw, unique)))
    if index and coin(draw):
        found.add(Index(columns=some_of(draw, index)))
    for column in columns:
        if draw(st.integers(0, 2)) == 0:
            found.update(constraint_on(draw, column))
    return found


def interface_type(draw: st.DrawFn, name: str, shared: Columns) -> InterfaceType:
    names = draw(st.lists(st.sampled_from(sorted(shared)), unique=True, max_size=4)) if shared else []
    columns = properties(draw, TypeKind.INTERFACE, name, {n: shared[n] for n in names})
    marked = [column.name for column in columns if uniquable(column.type) and coin(draw)]
    found: list[Constraint] = [Unique(columns=(n,)) if coin(draw) else Index(columns=(n,)) for n in marked]
    if keyable(columns) and coin(draw):
        found.append(Key(columns=(draw(st.sampled_from(keyable(columns))),)))
    return InterfaceType(
        id=NamedIds().type_id(TypeKind.INTERFACE, name),
        name=name,
        properties=columns,
        constraints=in_canonical_order(found),
    )


def node_type(draw: st.DrawFn, name: str, interfaces: Sequence[InterfaceType], own: Columns) -> NodeType:
    implemented = draw(st.lists(st.sampled_from(interfaces), unique_by=lambda i: i.name)) if interfaces else []
    offered: Columns = {p.name: (p.type, p.nullable) for i in implemented for p in i.properties}
    repeated = draw(st.lists(st.sampled_from(sorted(offered)), unique=True)) if offered else []
    lowered = {n.lower() for n in offered}
    fitting = {n: own[n] for n in own if n.lower() not in lowered} | {n: offered[n] for n in repeated}
    declared = {n: fitting[n] for n in draw(st.permutations(sorted(fitting)))}
    columns = list(properties(draw, TypeKind.NODE, name, declared))
    found: set[Constraint] = set()
    for interface in implemented:
        present = {p.name for p in columns}
        missing = [p for p in interface.properties if p.name not in present]
        columns += [replace(p, id=NamedIds().property_id(TypeKind.NODE, name, p.name)) for p in missing]
        inherited = {c for c in interface.constraints if columns_of(c)[0] in {p.name for p in missing}}
        # Two interfaces may offer a key each; then the node declares the second one's property without it.
        keyed = any(isinstance(c, Key) for c in found)
        found |= {c for c in inherited if not (keyed and isinstance(c, Key))}
    found |= constraints(draw, columns, ())
    if keyable(columns) and coin(draw) and not any(isinstance(c, Key) for c in found):
        found.add(Key(columns=some_of(draw, keyable(columns))))
    return NodeType(
        id=NamedIds().type_id(TypeKind.NODE, name),
        name=name,
        implements=tuple(i.name for i in implemented),
        annotations=draw(annotations()),
        properties=tuple(columns),
        constraints=in_canonical_order(found),
    )


def edge_type(draw: st.DrawFn, name: str, nodes: Sequence[NodeType], own: Columns) -> EdgeType:
    columns = properties(draw, TypeKind.EDGE, name, own)
    found = constraints(draw, columns, ("src", "dst"))
    if coin(draw):
        more = some_of(draw, keyable(columns)) if keyable(columns) else ()
        found.add(Key(columns=tuple(draw(st.permutations(["src", "dst", *more])))))
    least = draw(st.integers(0, 2**32 - 1))
    return EdgeType(
        id=NamedIds().type_id(TypeKind.EDGE, name),
        name=name,
        source=draw(st.sampled_from(nodes)).name,
        target=draw(st.sampled_from(nodes)).name,
        cardinality=Cardinality(minimum=least, maximum=draw(st.none() | st.integers(least, 2**32 - 1))),
        annotations=draw(annotations()),
        properties=columns,
        constraints=in_canonical_order(found),
    )


def columns_in_one_case(draw: st.DrawFn) -> Columns:
    drawn = draw(COLUMN_GROUPS)
    return {name: drawn[name] for name in in_one_case(list(drawn))}


def beside_ends(columns: Columns) -> Columns:
    """Return the columns that an edge can have."""
    return {name: column for name, column in columns.items() if name.lower() not in ENDS}


@st.composite
def catalogs(draw: st.DrawFn) -> Catalog:
    """Draw a catalog that schema text can describe."""
    names = in_one_case(draw(st.lists(TYPE_NAMES, min_size=1, max_size=6)))
    first_edge = draw(st.integers(1, len(names)))
    first_node = draw(st.integers(0, first_edge - 1))
    shared = columns_in_one_case(draw)
    interfaces = [interface_type(draw, name, shared) for name in names[:first_node]]
    nodes = [node_type(draw, n, interfaces, columns_in_one_case(draw)) for n in names[first_node:first_edge]]
    edges = [edge_type(draw, name, nodes, beside_ends(columns_in_one_case(draw))) for name in names[first_edge:]]
    return Catalog(interfaces=tuple(interfaces), nodes=tuple(nodes), edges=tuple(edges))


@settings(quickly, max_examples=CATALOGS)
@given(catalogs())
def test_a_printed_catalog_compiles_to_itself(catalog: Catalog) -> None:
    printed = print_schema(catalog)
    again = compile_schema(printed, NamedIds())
    assert again == catalog
    assert again.hash == catalog.hash
    assert print_schema(again) == printed


@settings(quickly, max_examples=CATALOGS)
@given(catalogs())
def test_a_stored_catalog_is_read_back_as_itself(catalog: Catalog) -> None:
    again = Catalog.from_json(json.loads(json.dumps(catalog.to_json())))
    assert again == catalog
    assert again.hash == catalog.hash
