"""What accepted schema text means."""

import itertools
import re
from pathlib import Path

import pytest

from omnigraph.ids import PropertyId, Sources, TypeId, is_ulid
from omnigraph.model.catalog import Catalog
from omnigraph.model.schema import (
    Annotation,
    Cardinality,
    Check,
    Constraint,
    EdgeType,
    EnumType,
    Index,
    Key,
    ListType,
    NodeType,
    PropertyType,
    Range,
    Scalar,
    ScalarType,
    TypeKind,
    Unique,
    VectorType,
)
from omnigraph.rules.schema_compile import FreshIds, assign_ids, compile_schema, describe_schema

AUTHORS = """
// people and papers
node Author { handle: String @key  born: Date? }
node Paper  { doi: String @key  title: String @index  cites: I64? }
edge Wrote: Author -> Paper
"""

TICKETS = """
interface Tracked { created: DateTime  note: String? }
node Ticket implements Tracked @description("one unit of work") {
    code: String @key
    state: enum(open, doing, done) @index
    effort: I32?
    tags: [String]?
    @range(effort, 0..100)
    @check(code, "^T-[0-9]+$")
    @unique(state, note)
}
node Squad { name: String @key }
edge OwnedBy: Ticket -> Squad @card(0..1) { since: Date?  @unique(src, dst) }
"""

CLIPS = """
node Clip @rename_from("Snippet") {
    body: String
    summary: String? @rename_from("abstract")
    vec: Vector(384)? @embed("body", model="example/embedder-1") @index
    raw: Blob?
    score: F64? @index
}
edge Follows: Clip -> Clip @description("reading order") { weight: F32? }
"""

PEOPLE = """
    node Person { name: String @key  age: I32?  bio: String? @index }
    node Company { name: String @key }
    edge Knows: Person -> Person { since: Date? }
    edge WorksAt: Person -> Company @card(0..1)
"""

GUIDE = Path(__file__).parents[2] / "docs" / "reference" / "schema-language.md"


class NamedIds:
    """Identities one can read in a failing test."""

    def type_id(self, kind: TypeKind, name: str) -> TypeId:
        return TypeId(f"{kind}:{name}")

    def property_id(self, kind: TypeKind, owner: str, name: str) -> PropertyId:
        return PropertyId(f"{kind}:{owner}.{name}")


def compiled(text: str) -> Catalog:
    return compile_schema(text, NamedIds())


def only_node(body: str) -> NodeType:
    (node,) = compiled(f"node Thing {{\n{body}\n}}").nodes
    return node


def only_edge(body: str, header: str = "") -> EdgeType:
    (edge,) = compiled(f"node Thing {{}}\nedge Link: Thing -> Thing {header} {{\n{body}\n}}").edges
    return edge


def test_a_minimal_graph_has_its_tables_in_declared_order() -> None:
    catalog = compiled(AUTHORS)
    assert [str(table) for table in catalog.tables] == ["node:Author", "node:Paper", "edge:Wrote"]
    wrote = catalog.edges[0]
    assert (wrote.source, wrote.target, wrote.cardinality) == ("Author", "Paper", Cardinality())
    assert catalog.nodes[1].constraints == (Key(columns=("doi",)), Index(columns=("title",)))


def test_a_node_has_its_own_properties_and_then_its_interfaces() -> None:
    ticket = compiled(TICKETS).nodes[0]
    assert [p.name for p in ticket.properties] == ["code", "state", "effort", "tags", "created", "note"]
    assert ticket.properties[5].id == "node:Ticket.note"
    assert ticket.implements == ("Tracked",)
    assert ticket.annotations == (Annotation(name="description", value="one unit of work"),)
    assert ticket.constraints == (
        Key(columns=("code",)),
        Unique(columns=("state", "note")),
        Index(columns=("state",)),
        Range(column="effort", minimum=0, maximum=100),
        Check(column="code", pattern="^T-[0-9]+$"),
    )


def test_an_edge_has_cardinality_properties_and_constraints_over_its_ends() -> None:
    owned = compiled(TICKETS).edges[0]
    assert owned.cardinality == Cardinality(minimum=0, maximum=1)
    assert owned.constraints == (Unique(columns=("src", "dst")),)


def test_annotations_are_kept_with_their_options() -> None:
    clip = compiled(CLIPS).nodes[0]
    assert clip.key_columns == ()
    assert clip.annotations == (Annotation(name="rename_from", value="Snippet"),)
    embed = Annotation(name="embed", value="body", options=(("model", "example/embedder-1"),))
    assert clip.properties[2].annotations == (embed,)
    assert clip.constraints == (Index(columns=("score",)), Index(columns=("vec",)))


def test_the_schema_of_the_first_example_compiles() -> None:
    catalog = compiled(PEOPLE)
    assert [kind.name for kind in catalog.table_types] == ["Person", "Company", "Knows", "WorksAt"]
    assert catalog.edges[1].cardinality == Cardinality(maximum=1)


def test_every_complete_schema_of_the_reference_compiles() -> None:
    examples = re.findall(r"^```pg\n(.*?)^```$", GUIDE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert len(examples) >= 3
    for example in examples:
        assert compiled(example).tables


TYPES: dict[str, tuple[PropertyType, bool]] = {
    **{str(scalar): (ScalarType(scalar=scalar), False) for scalar in Scalar},
    "DateTime?": (ScalarType(scalar=Scalar.DATETIME), True),
    "[U64]": (ListType(element=Scalar.U64), False),
    "[ String ] ?": (ListType(element=Scalar.STRING), True),
    "Vector(1)": (VectorType(dimension=1), False),
    "Vector(2147483647)?": (VectorType(dimension=2**31 - 1), True),
    "enum(b, a-1, 2, _)": (EnumType(values=("2", "_", "a-1", "b")), False),
    "enum(true)?": (EnumType(values=("true",)), True),
}


@pytest.mark.parametrize("text", TYPES)
def test_a_property_has_the_type_that_is_written(text: str) -> None:
    (column,) = only_node(f"a: {text}").properties
    assert (column.type, column.nullable) == TYPES[text]


@pytest.mark.parametrize("name", ["node", "edge", "interface", "implements", "enum", "true", "key", "_x", "a" * 127])
def test_words_of_the_language_are_good_property_names(name: str) -> None:
    node = only_node(f"first: I32 @index {name}: String @unique @owner({name}) {name}2: I32 @index({name}, {name}2)")
    assert [p.name for p in node.properties] == ["first", name, f"{name}2"]
    assert Unique(columns=(name,)) in node.constraints


def test_an_edge_without_a_body_may_end_in_an_annotation() -> None:
    edges = compiled('node A {} edge E: A -> A @owner node B {} edge F: A -> B @owner("x") edge G: B -> A').edges
    assert [edge.name for edge in edges] == ["E", "F", "G"]


def test_spaces_and_comments_may_stand_anywhere() -> None:
    spaced = compiled("\ufeff// a\r\nnode/**/A/* { */{ a /* : */ : String // }\n@key }")
    assert spaced == compiled("node A { a: String @key }")


@pytest.mark.parametrize(
    ("bounds", "low", "high"),
    [
        ("0..100", 0, 100),
        ("-5..", -5, None),
        ("..7", None, 7),
        ("3..3", 3, 3),
        ("0..18446744073709551615", 0, 2**64 - 1),
    ],
)
def test_an_integer_range_has_whole_bounds_and_open_ends(bounds: str, low: int | None, high: int | None) -> None:
    assert only_node(f"a: I64? @range(a, {bounds})").constraints == (Range(column="a", minimum=low, maximum=high),)


@pytest.mark.parametrize(
    ("bounds", "low", "high"),
    [("0..1", 0.0, 1.0), ("-0.5..", -0.5, None), ("..1.25", None, 1.25), ("-0.0..0", 0.0, 0.0)],
)
def test_a_float_range_has_float_bounds_however_they_are_written(
    bounds: str, low: float | None, high: float | None
) -> None:
    (constraint,) = only_node(f"a: F32 @range(a, {bounds})").constraints
    assert repr(constraint) == repr(Range(column="a", minimum=low, maximum=high))


def test_key_columns_keep_the_order_they_are_listed_in() -> None:
    assert only_node("a: Date b: I32 c: enum(x, y) @key(c, a, b)").key_columns == ("c", "a", "b")


def test_an_edge_key_may_name_its_properties() -> None:
    assert only_edge("at: DateTime @key(dst, at, src)").key_columns == ("dst", "at", "src")


EDGE_CONSTRAINTS: dict[str, Constraint] = {
    "@range(n, 0..)": Range(column="n", minimum=0, maximum=None),
    '@check(s, "a|b")': Check(column="s", pattern="a|b"),
    "@index(src, s)": Index(columns=("src", "s")),
    "@index(v)": Index(columns=("v",)),
    "@unique(dst, n)": Unique(columns=("dst", "n")),
    "@key(src, dst)": Key(columns=("src", "dst")),
}


@pytest.mark.parametrize("text", EDGE_CONSTRAINTS)
def test_an_edge_takes_every_constraint_a_node_takes(text: str) -> None:
    assert only_edge(f"n: I32? s: String? v: Vector(2) {text}").constraints == (EDGE_CONSTRAINTS[text],)


@pytest.mark.parametrize(
    ("card", "expected"),
    [
        ("", Cardinality()),
        ("@card(0..)", Cardinality()),
        ("@card(1..1)", Cardinality(minimum=1, maximum=1)),
        ("@card(..3)", Cardinality(maximum=3)),
        ("@card(2..4294967295)", Cardinality(minimum=2, maximum=2**32 - 1)),
    ],
)
def test_a_cardinality_bounds_the_edges_of_a_source(card: str, expected: Cardinality) -> None:
    assert only_edge("", card).cardinality == expected


def test_the_same_constraint_in_other_words_is_the_same_catalog() -> None:
    short = compiled("node A { a: I32 @key b: I32? @unique @index c: F64 }")
    long = compiled("node A { a: I32 b: I32? c: F64 @index(b) @unique(b) @key(a) }")
    assert short == long
    assert short.hash == long.hash


def test_custom_annotations_are_kept_as_text() -> None:
    node = only_node('a: I32 @pii @unit(cm, exact=true, digits=2) @unit("m") @max(1.5)')
    assert node.properties[0].annotations == (
        Annotation(name="pii"),
        Annotation(name="unit", value="cm", options=(("digits", "2"), ("exact", "true"))),
        Annotation(name="unit", value="m"),
        Annotation(name="max", value="1.5"),
    )


def test_strings_know_five_escapes() -> None:
    node = compiled(r'node A @owner("\"\\\n\r\t é 𝄞") {}').nodes[0]
    assert node.annotations[0].value == '"\\\n\r\t é 𝄞'


def test_an_interface_brings_its_constraints_along() -> None:
    node = compiled("interface I { a: I32 @key b: I32? @index } node A implements I { @unique(a, b) }").nodes[0]
    assert node.constraints == (Key(columns=("a",)), Unique(columns=("a", "b")), Index(columns=("b",)))


def test_what_a_node_says_of_an_inherited_property_may_repeat_its_interface() -> None:
    node = compiled("interface I { a: I32 @key @index } node A implements I { @key(a) @index(a) }").nodes[0]
    assert node.constraints == (Key(columns=("a",)), Index(columns=("a",)))


def test_a_property_declared_again_keeps_the_nodes_place_and_annotations() -> None:
    text = "interface I { a: I32 @index @pii b: I32 } node A implements I { c: I32 a: I32 @mine d: I32 }"
    node = compiled(text).nodes[0]
    assert [p.name for p in node.properties] == ["c", "a", "d", "b"]
    assert node.properties[1].annotations == (Annotation(name="mine"),)
    assert node.constraints == ()


def test_interfaces_that_agree_may_share_a_property() -> None:
    text = "interface I { a: I32 b: I32 } interface J { b: I32 c: I32 } node A implements J, I {}"
    assert [p.name for p in compiled(text).nodes[0].properties] == ["b", "c", "a"]


def test_declarations_may_come_in_any_order() -> None:
    catalog = compiled("edge E: A -> B node A implements I {} node B {} interface I { a: I32 }")
    assert [kind.name for kind in catalog.types] == ["I", "A", "B", "E"]


def test_an_embedding_may_come_from_an_inherited_text() -> None:
    text = "interface I { text: String? } node A implements I { v: Vector(3) @embed(text) }"
    assert compiled(text).nodes[0].properties[0].annotations[0].value == "text"


def test_every_type_and_property_gets_an_identity_of_its_own() -> None:
    catalog = compile_schema(TICKETS, FreshIds(Sources().mint))
    ids = [i for kind in catalog.types for i in (kind.id, *(p.id for p in kind.properties))]
    assert len(ids) == len(set(ids)) == 4 + 2 + 6 + 1 + 1
    assert all(is_ulid(i) for i in ids)


def test_identities_can_be_given_to_a_description_later() -> None:
    draft = describe_schema(AUTHORS)
    numbers = itertools.count()
    assert assign_ids(draft, NamedIds()) == compiled(AUTHORS)
    assert assign_ids(draft, FreshIds(lambda: str(next(numbers)))).nodes[0].id == "0"


def test_a_schema_of_a_thousand_types_compiles_in_seconds() -> None:
    nodes = "".join(f"node N{i} {{ name: String @key n: I32? @index x: F64? @range(x, 0..1) }}\n" for i in range(600))
    edges = "".join(f"edge E{i}: N{i} -> N{i + 1} @card(0..5) {{ since: Date? @key(src, dst) }}\n" for i in range(400))
    assert len(compiled(nodes + edges).tables) == 1000
