"""Every rule a schema that parses can break, and the exact place where it is reported.

In the tables ``«`` stands before the offending place; it is taken out before the text is compiled.
"""

from collections.abc import Callable

import pytest
from tests.unit.schema_kit import in_edge, in_node, refused

from omnigraph.rules.schema_compile import describe_schema

NAMES = {
    "a lower-case type": ("node «person {}", "upper-case", "write Person"),
    "an underscored type": ("node «_P {}", "upper-case", None),
    "a type called String": ("node «String {}", "is a property type", None),
    "a type called Vector": ("interface «Vector {}", "is a property type", None),
    "a long type name": (f"node «{'A' * 129} {{}}", "129 characters", None),
    "an upper-case property": (in_node("«Name: String"), "lower-case", "write name"),
    "a long property name": (in_node(f"«{'a' * 129}: I32"), "129 characters", None),
    "the same type twice": ("node A {}\nnode «A {}", "'A' is taken", "'A' is declared on line 1"),
    "types that differ in case": ("interface Ab {}\nnode «AB {}", "'AB' is taken", "'Ab' is declared on line 1"),
    "an edge named like a node": ("node A {}\nedge «a: A -> A", "upper-case", "write A"),
    "an edge that differs in case": ("node Ab {}\nedge «AB: Ab -> Ab", "'AB' is taken", "'Ab'"),
    "the same property twice": (in_node("a: I32\n«a: I32"), "'a' is taken", "line 2"),
    "properties that differ in case": (in_node("ab: I32\n«aB: I32"), "'aB' is taken", "'ab'"),
    "an upper-case annotation": ("node A @«Owner {}", "lower-case", "write @owner"),
}


@pytest.mark.parametrize(("text", "problem", "hint"), NAMES.values(), ids=NAMES)
def test_a_bad_name_is_refused_at_the_name(text: str, problem: str, hint: str | None) -> None:
    error = refused(text)
    assert problem in error.problem
    assert (hint or "") in (error.hint or "")


@pytest.mark.parametrize(
    "name",
    [
        "id",
        "src",
        "dst",
        "iD",
        "_distance",
        "_score",
        "_relevance_score",
        "_reasons",
        "__x",
        "_rowid",
        "_commit_at",
        "_change",
        "_omni",
    ],
)
@pytest.mark.parametrize("place", [in_node, in_edge])
def test_a_reserved_property_name_is_refused(name: str, place: Callable[[str], str]) -> None:
    assert "reserved" in refused(place(f"«{name}: String")).problem


@pytest.mark.parametrize("name", ["from", "to", "fRom", "tO"])
def test_the_names_of_ends_are_reserved_on_an_edge_and_nowhere_else(name: str) -> None:
    assert "reserved" in refused(in_edge(f"«{name}: String")).problem
    describe_schema(in_node(f"{name}: String"))


TYPES = {
    "lower case": ("«string", "unknown type 'string'", "did you mean 'String'?"),
    "upper case": ("«STRING", "unknown type", "did you mean 'String'?"),
    "another language's integer": ("«Int", "unknown type", "did you mean 'I64'?"),
    "another language's float": ("«double?", "unknown type", "did you mean 'F64'?"),
    "another language's bytes": ("«Bytes", "unknown type", "did you mean 'Blob'?"),
    "a misspelling": ("«Datetme", "unknown type", "did you mean 'DateTime'?"),
    "nothing near": ("«Qqqqqq", "unknown type", "the types are String"),
    "a misspelt element": ("[«Sting]", "unknown type", "did you mean 'String'?"),
    "an argument for a plain type": ("String(«5)", "takes no arguments", "write String"),
    "a list of blobs": ("[«Blob]", "can not hold Blob", None),
    "a list of vectors": ("[«Vector(3)]", "can not hold Vector", "plain type"),
    "a list of enums": ("[«enum(a, b)]", "can not hold enum", "plain type"),
    "a bare enum": ("«enum", "no values", "enum(first, second)"),
    "a repeated enum value": ("enum(a, b, «a)", "'a' occurs twice", None),
    "a bare vector": ("«Vector", "no dimension", "Vector(384)"),
    "a vector of nothing": ("Vector(«0)", "not a vector's dimension", "from 1 to 2147483647"),
    "a negative vector": ("Vector(«-1)", "not a vector's dimension", None),
    "a vector too long": ("Vector(«2147483648)", "not a vector's dimension", None),
    "a vector of words": ("Vector(«three)", "not a vector's dimension", None),
    "a vector beyond counting": (f"Vector(«{'9' * 5000})", "not a vector's dimension", None),
    "two dimensions": ("Vector(3, «4)", "one dimension", "Vector(3)"),
    "too many enum values": (
        f"enum({', '.join(f'v{i}' for i in range(1000))}, «v1000)",
        "more than 1,000 values",
        None,
    ),
}


@pytest.mark.parametrize(("text", "problem", "hint"), TYPES.values(), ids=TYPES)
def test_an_unknown_type_suggests_the_nearest_one(text: str, problem: str, hint: str | None) -> None:
    error = refused(in_node(f"a: {text}"))
    assert problem in error.problem
    assert (hint or "") in (error.hint or "")


COLUMNS = "a: String\nb: I32\nmaybe: I32?\nlist: [I32]\nvector: Vector(3)\nblob: Blob\nf: F32\n"

CONSTRAINTS = {
    "a key that can be null": ("@key(«maybe)", "can be null", "'?'"),
    "a list as a key": ("@key(«list)", "a list", None),
    "a vector as a key": ("@key(a, «vector)", "a vector", None),
    "a blob as a key": ("@key(«blob)", "a blob", None),
    "a unique list": ("@unique(a, «list)", "a list", None),
    "a unique vector": ("@unique(«vector)", "a vector", None),
    "a unique blob": ("@unique(«blob)", "a blob", None),
    "an indexed list": ("@index(«list)", "a list", None),
    "an indexed blob": ("@index(«blob)", "a blob", None),
    "a misspelt column": ("@index(«mybe)", "no property 'mybe'", "did you mean 'maybe'?"),
    "the id as a column": ("@unique(«id)", "no property 'id'", "needs no constraint"),
    "a repeated column": ("@unique(a, b, «a)", "'a' occurs twice", None),
    "no columns": ("«@unique()", "names of columns", "@unique(first, second)"),
    "a string for a column": ('«@index("a")', "names of columns", None),
    "an identical unique": ("@unique(a, b)\n«@unique(a, b)", "declared before", None),
    "an identical range": ("@range(b, 0..1)\n«@range(b, 0..1)", "declared before", None),
    "the same range in other words": ("@range(f, 0..1)\n«@range(f, 0.0..1.0)", "declared before", None),
    "an identical check": ('@check(a, "x")\n«@check(a, "x")', "declared before", None),
    "a range on text": ("@range(«a, 0..1)", "needs a number, and 'a' is String", None),
    "a range on a list": ("@range(«list, 0..1)", "needs a number", None),
    "a range on a misspelt column": ("@range(«mayb, 0..1)", "no property", "'maybe'"),
    "an empty range": ("@range(b, «2..1)", "empty", "swap"),
    "a fraction for an integer": ("@range(b, 0..«1.5)", "not a whole number", None),
    "a bound beyond 64 bits": ("@range(b, «-9223372036854775809..0)", "64 bits", None),
    "a bound beyond counting": (f"@range(b, 0..«{'1' * 5000})", "digits", None),
    "a bound beyond floats": (f"@range(f, 0..«{'1' * 350}.0)", "too large", None),
    "a range without a property": ("«@range(0..1)", "which property", "@range(property, 0..100)"),
    "a range without bounds": ("«@range(b)", "a property and a range", None),
    "a range with one number": ("«@range(b, 5)", "a property and a range", None),
    "a bare range": ("f2: F32 «@range", "says nothing", "@range(property, 0..100)"),
    "a check on a number": ('@check(«b, "x")', "needs a String, and 'b' is I32", None),
    "a check without a property": ('«@check("x")', "which property", None),
    "a check without a pattern": ("«@check(a)", "a regular expression", None),
    "a pattern that is none": ('@check(a, «"[")', "not a regular expression", "Python"),
    "a pattern too deep": (f'@check(a, «"{"(" * 9000}{")" * 9000}")', "too deep or too large", None),
    "a pattern too large": ('@check(a, «"x{99999999999999999999}")', "too deep or too large", None),
}


@pytest.mark.parametrize("place", [in_node, in_edge], ids=["node", "edge"])
@pytest.mark.parametrize(("text", "problem", "hint"), CONSTRAINTS.values(), ids=CONSTRAINTS)
def test_a_constraint_that_can_not_hold_is_refused(
    text: str, problem: str, hint: str | None, place: Callable[[str], str]
) -> None:
    error = refused(place(COLUMNS + text))
    assert problem in error.problem
    assert (hint or "") in (error.hint or "")


KEYS = {
    "two keys on properties": (in_node("a: I32 @key\nb: I32 «@key"), "at most one key", "@key(first, second)"),
    "a key on a property and in the body": (in_node("a: I32 @key\nb: I32\n«@key(a, b)"), "at most one key", None),
    "two keys on an edge": (in_edge("a: I32\n@key(src, dst)\n«@key(src, dst, a)"), "at most one key", None),
    "a key that can be null": (in_node("a: I32? «@key"), "can be null", None),
    "an edge's property as its key": (in_edge("a: I32 «@key"), "can not be its key alone", "@key(src, dst, a)"),
    "an edge's key without dst": (in_edge("a: I32\n«@key(src, a)"), "both src and dst", "@key(src, dst, a)"),
    "an edge's key without src": (in_edge("«@key(dst)"), "both src and dst", "@key(src, dst)"),
    "an edge's key over a misspelt end": (in_edge("@key(src, «dts)"), "no property 'dts'", "'dst'"),
    "a node's key over an end": (in_node("@key(«src)"), "no property 'src' in this node", None),
    "a check on an end": (in_edge('@check(«src, "x")'), "no property 'src'", None),
    "an index that is there": (in_node("a: I32 @index\n«@index(a)"), "declared before", None),
}


@pytest.mark.parametrize(("text", "problem", "hint"), KEYS.values(), ids=KEYS)
def test_a_key_is_one_and_complete(text: str, problem: str, hint: str | None) -> None:
    error = refused(text)
    assert problem in error.problem
    assert (hint or "") in (error.hint or "")


ANNOTATIONS = {
    "a slip in @key": (in_node("a: I32 «@kye"), "unknown annotation '@kye'", "did you mean '@key'?"),
    "a slip in @unique": (in_node("a: I32\n«@uniqe(a)"), "unknown annotation", "did you mean '@unique'?"),
    "a slip in @index": (in_node("a: I32 «@indx"), "unknown annotation", "did you mean '@index'?"),
    "a slip in @description": ('node A «@descripton("x") {}', "unknown annotation", "did you mean '@description'?"),
    "an upper-case @Key": (in_node("a: I32 «@Key"), "unknown annotation", "did you mean '@key'?"),
    "an unknown constraint": (in_node("a: I32\n«@uniques_of(a, b)"), "unknown constraint", "did you mean 'unique'?"),
    "an unknown constraint like none": (in_node("a: I32\n«@zzz(a, b)"), "unknown constraint", "@range"),
    "an unknown range": (in_node("a: I32\n«@zzz(0..1)"), "unknown constraint", "@range"),
    "a key on a node": ("node A «@key {}", "belongs into the body", "after a property"),
    "a unique on an edge": ("node A {}\nedge E: A -> A «@unique(src) {}", "belongs into the body", "inside the braces"),
    "an embed on a node": ("node A «@embed {}", "belongs to a vector property", None),
    "a card on a node": ("node A «@card(0..1) {}", "header of an edge", "edge Name"),
    "a card on a property": (in_edge("a: I32 «@card(0..1)"), "header of an edge", None),
    "a card in a body": (in_edge("«@card(0..1)"), "header of an edge", None),
    "a key before any property": (in_node("«@key"), "does not say which columns", "@key(column)"),
    "an index after a constraint": (in_node("a: I32 @unique(a) «@index"), "does not say which columns", None),
    "an annotation before any property": (in_node("«@owner"), "follows no property", None),
    "an annotation on an interface": ("interface A «@owner {}", "takes no annotations", None),
    "a constraint in an interface": ("interface A { a: I32 «@unique(a) }", "an interface can not have", None),
    "a repeated @key": (in_node("a: I32 @key «@key"), "twice", None),
    "a repeated @index": (in_node("a: I32 @index «@index"), "twice", None),
    "a repeated description": ('node A @description("x") «@description("y") {}', "twice", None),
    "a repeated description on a property": (in_node('a: I32 @description("x") «@description("y")'), "twice", None),
    "a repeated instruction": ('node A @instruction("x") «@instruction("y") {}', "twice", None),
    "an empty description": ('node A «@description(" ") {}', "says nothing", None),
    "a bare description": (in_node("a: I32 «@description"), "says nothing", None),
    "a description with options": ('node A «@description("x", lang="en") {}', "no options", None),
    "an instruction on a property": (in_node('a: I32 «@instruction("x")'), "node or edge", "@description"),
    "a bare earlier name": ("node A «@rename_from {}", "says nothing", None),
    "an earlier name no type can have": ('node A «@rename_from("b") {}', "can not be an earlier name", None),
    "an earlier name no property can have": (
        in_node('a: I32 «@rename_from("B c")'),
        "can not be an earlier name",
        None,
    ),
    "its own earlier name": ('node A «@rename_from("A") {}', "its own earlier name", None),
    "two earlier names": ('node A @rename_from("B") «@rename_from("C") {}', "twice", None),
    "empty parentheses": ("node A «@owner() {}", "empty", "@owner"),
    "an option before the value": ('node A @owner(«team="x") {}', "value comes first", None),
    "an option without quotes": ('node A @owner("x", team=«blue) {}', "'blue' is not a value", '"blue"'),
    "a repeated option": ('node A @owner("x", a="1", «a="2") {}', "'a' occurs twice", None),
    "a second value after an option": ('node A «@owner("x", a="1", "2") {}', "unknown constraint", None),
    "a signed value": ("node A @owner(«-1) {}", "only in a range", '"-1"'),
    "an embed of no vector": (in_node('a: String\nb: I32 «@embed("a")'), "needs a vector", "Vector(n)"),
    "an embed on an edge": (in_edge('a: String\nb: Vector(3) «@embed("a")'), "not possible on an edge", None),
    "a bare embed": (in_node("b: Vector(3) «@embed"), "what it embeds", None),
    "an embed of a misspelt property": (in_node('text: String\nb: Vector(3) «@embed("txt")'), "no property", "'text'"),
    "an embed of a list": (in_node('a: [String]\nb: Vector(3) «@embed("a")'), "needs a String", None),
    "an embed with a strange option": (in_node('a: String\nb: Vector(3) «@embed("a", modle="x")'), "option", "'model'"),
    "a repeated embed": (in_node('a: String\nb: Vector(3) @embed("a") «@embed("a")'), "twice", None),
}


@pytest.mark.parametrize(("text", "problem", "hint"), ANNOTATIONS.values(), ids=ANNOTATIONS)
def test_an_annotation_in_the_wrong_place_or_form_is_refused(text: str, problem: str, hint: str | None) -> None:
    error = refused(text)
    assert problem in error.problem
    assert (hint or "") in (error.hint or "")


CARDS = {
    "after another annotation": ("@owner «@card(0..1)", "after another annotation"),
    "twice": ("@card(0..1) «@card(0..1)", "twice"),
    "upside down": ("«@card(2..1)", "greater than the most"),
    "a number": ("@card(«1)", "needs a range"),
    "bare": ("«@card", "needs a range"),
    "negative": ("@card(«-1..1)", "not a number of edges"),
    "a fraction": ("@card(0..«1.5)", "not a number of edges"),
    "too large": ("@card(0..«4294967296)", "not a number of edges"),
}


@pytest.mark.parametrize(("text", "problem"), CARDS.values(), ids=CARDS)
def test_a_cardinality_is_a_range_right_after_the_types(text: str, problem: str) -> None:
    assert problem in refused(f"node A {{}}\nedge E: A -> A {text}").problem


REFERENCES = {
    "a misspelt source": ("node Person {}\nedge E: «Persn -> Person", "no node type 'Persn'", "did you mean 'Person'?"),
    "a misspelt target": ("node Person {}\nedge E: Person -> «person", "no node type", "did you mean 'Person'?"),
    "an interface as an end": ("interface I {}\nnode A {}\nedge E: «I -> A", "no node type 'I'", "it is an interface"),
    "an edge as an end": ("node A {}\nedge E: A -> «E", "no node type 'E'", None),
    "a misspelt interface": ("interface Named {}\nnode A implements «Namd {}", "no interface", "did you mean 'Named'?"),
    "a node as an interface": ("node A {}\nnode B implements «A {}", "no interface 'A'", "it is a node type"),
    "an interface twice": ("interface I {}\nnode A implements I, «I {}", "'I' occurs twice", None),
    "another type than the interface's": (
        "interface I { a: I32 }\nnode A implements I { «a: I64 }",
        "'a' is I64 here and I32 in I",
        "write a: I32",
    ),
    "nullable, unlike the interface's": (
        "interface I { a: I32 }\nnode A implements I { «a: I32? }",
        "'a' is I32? here and I32 in I",
        None,
    ),
    "another enum than the interface's": (
        "interface I { a: enum(x, y) }\nnode A implements I { «a: enum(x, z) }",
        "enum(x, z) here and enum(x, y) in I",
        None,
    ),
    "two interfaces that disagree": (
        "interface I { a: I32 }\ninterface J { a: String }\nnode A implements «I, J {}",
        "'a' is I32 here and String in J",
        None,
    ),
    "another letter case than the interface's": (
        "interface I { ab: I32 }\nnode A implements I { «aB: I32 }",
        "differ only in letter case",
        "write ab",
    ),
    "two interfaces with a key each": (
        "interface I { a: I32 @key }\ninterface J { b: I32 @key }\nnode A implements I, «J {}",
        "at most one key",
        None,
    ),
    "an inherited list in a key": (
        "interface I { a: [I32] }\nnode A implements I { @key(«a) }",
        "a list",
        None,
    ),
}


@pytest.mark.parametrize(("text", "problem", "hint"), REFERENCES.values(), ids=REFERENCES)
def test_what_is_named_must_exist_and_fit(text: str, problem: str, hint: str | None) -> None:
    error = refused(text)
    assert problem in error.problem
    assert (hint or "") in (error.hint or "")
