"""Schema text printed from a catalog."""

import pytest

from omnigraph.ids import PropertyId, TypeId
from omnigraph.model.catalog import Catalog
from omnigraph.model.schema import TypeKind
from omnigraph.rules.schema_compile import compile_schema
from omnigraph.rules.schema_print import print_schema


class NamedIds:
    """Identities that depend on names alone, so that two compilations agree."""

    def type_id(self, kind: TypeKind, name: str) -> TypeId:
        return TypeId(f"{kind}:{name}")

    def property_id(self, kind: TypeKind, owner: str, name: str) -> PropertyId:
        return PropertyId(f"{kind}:{owner}.{name}")


def compiled(text: str) -> Catalog:
    return compile_schema(text, NamedIds())


PRINTED = """\
interface Tracked {
    created: DateTime @index
    note: String?
}

node Ticket @description("one \\"unit\\" of work") implements Tracked {
    code: String @key
    state: enum(doing, done, open) @index
    effort: I32? @unit("hours", exact="true")
    tags: [String]?
    vector: Vector(3)
    @unique(state, note)
    @range(effort, ..100)
    @check(code, "^T-\\\\d+$")
}

node Squad {}

edge OwnedBy: Ticket -> Squad @card(0..1) @owner {
    since: Date?
    @key(src, dst)
}

edge Likes: Ticket -> Ticket
"""


def test_printing_is_laid_out_one_member_a_line() -> None:
    assert print_schema(compiled(PRINTED)) == PRINTED


def test_printing_does_not_depend_on_how_it_was_written() -> None:
    crowded = " ".join(line for line in PRINTED.splitlines() if line) + " // end"
    assert print_schema(compiled(crowded)) == PRINTED


INHERITANCE = {
    "everything inherited": "interface I { a: I32 @key b: I32 } node A implements I {}",
    "an extra constraint on an inherited one": "interface I { a: I32 b: I32 } node A implements I { @index(b) }",
    "a range on an inherited one": "interface I { a: I32 } node A implements I { @range(a, 0..1) }",
    "declared again without its index": "interface I { a: I32 @index b: I32 } node A implements I { a: I32 }",
    "declared again in the middle": "interface I { a: I32 b: I32 } node A implements I { x: I32 b: I32 y: I32 }",
    "declared again in another order": "interface I { a: I32 b: I32 } node A implements I { b: I32 a: I32 }",
    "declared again with annotations": "interface I { a: I32 @pii } node A implements I { a: I32 }",
    "two interfaces": "interface I { a: I32 b: I32 } interface J { b: I32 c: I32 } node A implements J, I { x: I32 }",
    "an embedding of an inherited text": (
        'interface I { t: String v: Vector(2) @embed("t") } node A implements I { v: Vector(2) @embed("t") @index }'
    ),
    "a composite key over inherited ones": "interface I { a: I32 b: I32 } node A implements I { @key(b, a) }",
}


@pytest.mark.parametrize("text", INHERITANCE.values(), ids=INHERITANCE)
def test_inherited_properties_come_back_as_they_were(text: str) -> None:
    catalog = compiled(text)
    assert compiled(print_schema(catalog)) == catalog


def test_what_an_interface_supplies_is_not_printed_again() -> None:
    text = "interface I {\n    a: I32 @key\n}\n\nnode A implements I {\n    x: I32\n}\n"
    assert print_schema(compiled(text)) == text


@pytest.mark.parametrize(
    "bound",
    ["0.0..1.0", "-0.000001..", "..100000000000000000000000.0", "0.1..0.30000000000000004", f"..1{'0' * 300}.0"],
)
def test_float_bounds_are_printed_without_exponents(bound: str) -> None:
    catalog = compiled(f"node A {{ a: F64 @range(a, {bound}) }}")
    printed = print_schema(catalog)
    assert "e" not in printed.split("@range(a, ")[1]
    assert compiled(printed) == catalog
