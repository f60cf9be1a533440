"""The catalog: looking types up, storing them, telling two apart."""

import json
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from omnigraph.errors import CorruptGraphError, TypeNotFoundError
from omnigraph.ids import PropertyId, TableId, TypeId
from omnigraph.model.catalog import Catalog
from omnigraph.model.schema import TypeKind
from omnigraph.rules.schema_compile import compile_schema

EVERYTHING = """
interface Named { name: String @index }
node Person @owner("x", team="y") implements Named {
    code: String  rank: I32  size: F64?  vector: Vector(3)?  tags: [Date]  state: enum(a, b)  raw: Blob?
    @key(rank, code) @unique(name) @index(vector) @range(size, 0..1.5) @range(rank, ..9) @check(code, "^x")
}
edge Knows: Person -> Person @card(1..5) { since: DateTime? }
edge Likes: Person -> Person
"""


class NamedIds:
    """Identities made from names, with a prefix to tell two catalogs apart."""

    def __init__(self, prefix: str = "") -> None:
        self._prefix = prefix

    def type_id(self, kind: TypeKind, name: str) -> TypeId:
        return TypeId(f"{self._prefix}{kind}:{name}")

    def property_id(self, kind: TypeKind, owner: str, name: str) -> PropertyId:
        return PropertyId(f"{self._prefix}{kind}:{owner}.{name}")


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return compile_schema(EVERYTHING, NamedIds())


def test_a_type_is_found_by_name_and_by_table_id(catalog: Catalog) -> None:
    person = catalog.type("Person")
    assert person is catalog.nodes[0]
    assert person.key_columns == ("rank", "code")
    assert catalog.by_table_id(person.table_id) is person
    assert str(catalog.type("Knows").table) == "edge:Knows"


@pytest.mark.parametrize(("name", "hint"), [("Persn", "'Person'"), ("knows", "'Knows'"), ("Named", "interface")])
def test_an_unknown_type_names_the_nearest_one(catalog: Catalog, name: str, hint: str) -> None:
    with pytest.raises(TypeNotFoundError, match=hint) as caught:
        catalog.type(name)
    assert caught.value.name == name


def test_a_type_like_no_other_has_no_hint(catalog: Catalog) -> None:
    with pytest.raises(TypeNotFoundError) as caught:
        catalog.type("Zzz")
    assert caught.value.hint is None


def test_an_unknown_table_id_is_an_error(catalog: Catalog) -> None:
    with pytest.raises(TypeNotFoundError):
        catalog.by_table_id(TableId("interface:Named"))


def test_a_catalog_survives_json_and_pickling(catalog: Catalog) -> None:
    again = Catalog.from_json(json.loads(json.dumps(catalog.to_json())))
    assert again == catalog
    assert again.hash == catalog.hash
    assert pickle.loads(pickle.dumps(catalog)) == catalog


def test_the_stored_form_of_a_small_catalog_is_pinned() -> None:
    small = compile_schema("node A { a: String @key b: F32? @range(b, 0..) } edge E: A -> A", NamedIds())
    assert small.to_json() == {
        "catalog": 1,
        "interfaces": [],
        "nodes": [
            {
                "id": "node:A",
                "name": "A",
                "annotations": [],
                "implements": [],
                "properties": [
                    {"id": "node:A.a", "name": "a", "type": {"scalar": "String"}, "nullable": False, "annotations": []},
                    {"id": "node:A.b", "name": "b", "type": {"scalar": "F32"}, "nullable": True, "annotations": []},
                ],
                "constraints": [{"key": ["a"]}, {"range": {"column": "b", "min": 0.0, "max": None}}],
            }
        ],
        "edges": [
            {
                "id": "edge:E",
                "name": "E",
                "source": "A",
                "target": "A",
                "card": {"min": 0, "max": None},
                "annotations": [],
                "properties": [],
                "constraints": [],
            }
        ],
    }
    assert small.hash == "sha256:42840959011a6823d6b2a4b630852bceb70cd010eb5223f4923d6e893f85d1ac"


def test_the_hash_sees_identities_but_not_layout(catalog: Catalog) -> None:
    spaced = compile_schema(EVERYTHING.replace("\n", "\n // more\n"), NamedIds())
    renumbered = compile_schema(EVERYTHING, NamedIds("other-"))
    assert spaced.hash == catalog.hash
    assert renumbered.hash != catalog.hash


def _put(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def damage(body: dict[str, Any]) -> None:
        *parents, last = [int(step) if step.isdigit() else step for step in path.split("/")]
        place: Any = body
        for step in parents:
            place = place[step]
        place[last] = value

    return damage


DAMAGE = {
    "a newer number": _put("catalog", 2),
    "a number that is true": _put("catalog", True),
    "no number": lambda body: body.pop("catalog"),
    "a missing group": lambda body: body.pop("edges"),
    "an unknown key": _put("extra", 1),
    "an unknown key in a node": _put("nodes/0/extra", 1),
    "an unknown key in a property": _put("nodes/0/properties/0/extra", 1),
    "a missing key in an edge": lambda body: body["edges"][0].pop("card"),
    "nodes that are no list": _put("nodes", {}),
    "a node that is no object": _put("nodes/0", "Person"),
    "a name that is a number": _put("nodes/0/name", 7),
    "nullable that is a number": _put("nodes/0/properties/0/nullable", 0),
    "an unknown scalar": _put("nodes/0/properties/0/type", {"scalar": "Text"}),
    "an unhashable scalar": _put("nodes/0/properties/0/type", {"scalar": []}),
    "an unknown kind of type": _put("nodes/0/properties/0/type", {"map": "String"}),
    "a type of two kinds": _put("nodes/0/properties/0/type", {"scalar": "String", "list": "String"}),
    "an unknown constraint": _put("nodes/0/constraints/0", {"primary": ["rank"]}),
    "a bound that is text": _put("nodes/0/constraints/0", {"range": {"column": "rank", "min": "0", "max": None}}),
    "a bound that is no number": _put(
        "nodes/0/constraints/0", {"range": {"column": "rank", "min": float("nan"), "max": 1}}
    ),
    "a constraint on nothing": _put("nodes/0/constraints/0", {"key": ["nothing"]}),
    "an option that is a number": _put("nodes/0/annotations/0/options/team", 1),
    "a cardinality of half an edge": _put("edges/0/card/min", 0.5),
    "an edge to nowhere": _put("edges/0/target", "Nobody"),
    "an interface that is not there": _put("nodes/0/implements/0", "Nothing"),
    "two types of a name": _put("edges/1/name", "Knows"),
    "two properties of a name": _put("nodes/0/properties/1/name", "code"),
    "two things of an identity": _put("edges/1/id", "node:Person.code"),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_catalog_is_refused(catalog: Catalog, damage: Callable[[dict[str, Any]], Any]) -> None:
    body = catalog.to_json()
    damage(body)
    with pytest.raises(CorruptGraphError):
        Catalog.from_json(body)


@pytest.mark.parametrize("body", [None, [], "catalog", 1, {}])
def test_what_is_no_catalog_at_all_is_refused(body: Any) -> None:
    with pytest.raises(CorruptGraphError):
        Catalog.from_json(body)
