"""Schema text that does not parse, is empty or too large, and the exact place where that is reported.

In the tables ``«`` stands before the offending place; it is taken out before the text is compiled.
"""

import pickle
from pathlib import Path

import pytest
from tests.unit.schema_kit import in_node, refused

from omnigraph.errors import SchemaError
from omnigraph.rules.schema_compile import describe_schema

GUIDE = Path(__file__).parents[2] / "docs" / "reference" / "schema-language.md"


SYNTAX = {
    "the text ends after a keyword": ("node«", "the name of the node was expected", None),
    "a misspelt keyword": ("«nodes Person {}", "a declaration was expected", "did you mean 'node'?"),
    "an upper-case keyword": ("«Node Person {}", "a declaration was expected", "did you mean 'node'?"),
    "a misspelt implements": ("node A «implemnts B {}", "'implements', an annotation", "did you mean 'implements'?"),
    "implements on an interface": ("interface A «implements B {}", "unexpected 'implements'", None),
    "a missing colon": (in_node("name «String"), "':' was expected after the property name 'name'", "name: Type"),
    "an equals sign for a colon": (in_node("name «= String"), "':' was expected", "name: Type"),
    "a missing colon in an edge": ("edge E «A -> B", "':' was expected after the edge's name", "FromType -> ToType"),
    "a broken arrow": ("edge E: A «- B", "'->' was expected", "FromType -> ToType"),
    "a fat arrow": ("edge E: A «=> B", "'->' was expected", "FromType -> ToType"),
    "no source type": ("edge E: «-> B", "the node type the edge starts from", None),
    "no target type": ("edge E: A -> «{}", "the node type the edge leads to", None),
    "a missing type": ("node A { name: «}", "a type or '[' was expected", None),
    "a node without a body": ("node A\n«node B {}", "'{' was expected", "node Name {}"),
    "a node without a body at the end": ("node A«", "'{' was expected", "node Name {}"),
    "an unclosed body at the end": ("node A «{ a: I32", "never closed", "'}'"),
    "an unclosed body before a node": ("node A {\n a: I32\n«node B {}", "opened on line 1 is not closed", "'}'"),
    "an unclosed body before an edge": ("node A {\n«edge B: A -> A", "opened on line 1 is not closed", "'}'"),
    "an unclosed parenthesis": ("node A { a: I32 @unique«(a", "never closed", "')'"),
    "an unclosed list": ("node A { a: «[I32", "never closed", "']'"),
    "a brace too many": ("node A {}\n«}", "closes nothing", None),
    "an unclosed comment": ("node A {}\n«/* b", "comment is never closed", "*/"),
    "an unclosed string": ('node A @a(«"b) {}', "string is not closed", "double quote"),
    "a string over two lines": ('node A @a(«"b\n") {}', "string is not closed", r"\n"),
    "an unknown escape": (r'node A @a("b«\d") {}', r"'\d' is not an escape", r"\\"),
    "single quotes": ("node A @a(«'b') {}", "unexpected", "double quotes"),
    "a hash comment": ("«# people", "unexpected '#'", "//"),
    "a semicolon": (in_node("a: I32«; b: I32"), "unexpected ';'", "remove it"),
    "a comma between properties": (in_node("a: I32«, b: I32"), "unexpected ','", "without commas"),
    "an annotation after the body": ("node A {} «@a", "a declaration was expected", None),
    "a letter outside ASCII": (in_node("«é: I32"), "U+00E9", "ASCII"),
    "a space that is none": (in_node("a:«\u00a0I32"), "NO-BREAK SPACE", "ordinary space"),
    "a nullable element": (in_node("a: [I32«?]"), "inside '[ ]'", "after the ']'"),
    "two question marks": (in_node("a: I32?«?"), "unexpected '?'", None),
    "a list in a list": (in_node("a: [«[I32]]"), "the type of the elements was expected", None),
    "an empty enum": (in_node("a: enum(«)"), "empty", "enum(first, second)"),
    "an enum with spaces": (in_node("a: enum(b «c)"), "')' or ','", None),
    "a quoted enum value": (in_node('a: enum(«"b")'), "a value made of letters", None),
    "a number with a letter": (in_node("«1a: I32"), "unexpected '1a'", None),
    "a range with a third dot": (in_node("a: I32 @range(a, 0..«.5)"), "unexpected '.'", None),
    "no annotation name": ("node A @ «{}", "the name of an annotation", None),
    "no option value": ('node A @a("b", c=«) {}', "true, false, a string", None),
    "a NUL": ("node A {}\n «\0", "U+0000", None),
    "an escape character": ("node «\x1bA {}", "U+001B", None),
    "half a surrogate pair": ("node A {} // «\ud800", "U+D800", None),
    "a control character in a string": ('node A @a("«\x07") {}', "U+0007", None),
}


@pytest.mark.parametrize(("text", "problem", "hint"), SYNTAX.values(), ids=SYNTAX)
def test_broken_syntax_is_explained_where_it_breaks(text: str, problem: str, hint: str | None) -> None:
    error = refused(text)
    assert problem in error.problem
    assert (hint or "") in (error.hint or "")


@pytest.mark.parametrize("text", ["", "  \n\t", "// nothing yet\n", "/* nothing\nyet */"])
def test_a_schema_without_types_says_how_to_start(text: str) -> None:
    with pytest.raises(SchemaError) as caught:
        describe_schema(text)
    assert (caught.value.line, caught.value.column) == (1, 1)
    assert "node Person" in caught.value.hint


LIMITS = {
    "bytes": ("//" + "x" * (1_048_576 - 2) + "«x", "1,048,577 bytes"),
    "bytes of long characters": ("//" + "é" * 524_287 + "«é", "1,048,578 bytes"),
    "types": ("".join(f"node A{i} {{}}\n" for i in range(2000)) + "node «B {}", "at most 2,000 types"),
    "properties": (in_node(" ".join(f"a{i}: I32" for i in range(2000)) + " «b: I32"), "at most 2,000 properties"),
    "inherited properties": (
        f"interface I {{ {' '.join(f'a{i}: I32' for i in range(2000))} }}\nnode A implements «I {{ b: I32 }}",
        "more than 2,000",
    ),
    "all properties": (
        f"interface I {{ {' '.join(f'a{i}: I32' for i in range(2000))} }}\n"
        + "".join(f"node A{i} implements I {{}}\n" for i in range(50))
        + "node «B { b: I32 }",
        "more than 100,000 properties",
    ),
}


@pytest.mark.parametrize(("text", "problem"), LIMITS.values(), ids=LIMITS)
def test_each_limit_is_refused_where_it_is_passed(text: str, problem: str) -> None:
    assert problem in refused(text).problem


def test_exactly_at_the_limits_a_schema_is_accepted() -> None:
    filler = "//" + "x" * 1_000_000
    types = "".join(f"node A{i} {{}}\n" for i in range(1999))
    widest = in_node(" ".join(f"a{i}: I32" for i in range(2000)))
    draft = describe_schema(types + widest + filler)
    assert len(draft.nodes) == 2000
    assert len(draft.nodes[-1].properties) == 2000


def test_places_count_lines_that_end_in_a_carriage_return() -> None:
    with pytest.raises(SchemaError) as caught:
        describe_schema("node A {\r\n  a: Strng\r\n}\r\n")
    assert (caught.value.line, caught.value.column, caught.value.source_line) == (2, 6, "  a: Strng")


def test_a_byte_order_mark_moves_nothing() -> None:
    error = refused("\ufeffnode A { a: «Strng }")
    assert error.column == 14


def test_the_error_survives_pickling_and_shows_a_caret() -> None:
    error = refused("node A { a: «Strng }")
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error)
    assert (again.line, again.column, again.hint) == (1, 13, "did you mean 'String'?")
    assert str(error).splitlines()[1:3] == ["    node A { a: Strng }", "                ^"]


def test_the_error_shown_in_the_reference_is_the_one_that_is_raised() -> None:
    error = refused("node Person {\n    name: «string @key\n}")
    assert f"```text\n{error}\n```" in GUIDE.read_text(encoding="utf-8")
