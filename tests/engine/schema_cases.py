"""Every kind of change to a schema, with rows that fit it and rows that do not."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

Rows: TypeAlias = Sequence[Mapping[str, Any]]
Given: TypeAlias = Mapping[str, Rows]


@dataclass(frozen=True, kw_only=True)
class Case:
    """One change, and what is there before it; rows are by type, and ``then`` is what rows that fit become."""

    name: str
    old: str
    new: str
    fits: Given
    then: Given
    violates: Given | None = None
    allow_data_loss: bool = False
    extra: Given = field(default_factory=dict)
    """Rows that are there in any case, of types the change is not about."""


PERSON = "node Person { name: String @key  age: I32? }"
ANN: dict[str, Any] = {"id": "Ann", "name": "Ann", "age": 41}
BEN: dict[str, Any] = {"id": "Ben", "name": "Ben", "age": None}
PEOPLE: Given = {"Person": [ANN, BEN]}
NODES: Given = {"Person": [{"id": "Ann", "name": "Ann"}, {"id": "Ben", "name": "Ben"}]}
CITIES: Given = {"City": [{"id": "Rom", "name": "Rom"}]}
TWO = "node Person { name: String @key }\nnode City { name: String @key }\n"


def knows(*pairs: tuple[str, str, str]) -> Given:
    return {"Knows": [{"id": id, "src": src, "dst": dst} for id, src, dst in pairs]}


def _without(rows: Rows, *names: str) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name not in names} for row in rows]


CASES: tuple[Case, ...] = (
    Case(
        name="add a nullable property",
        old=PERSON,
        new="node Person { name: String @key  age: I32?  city: String? }",
        fits=PEOPLE,
        then={"Person": [{**ANN, "city": None}, {**BEN, "city": None}]},
    ),
    Case(
        name="add a required property",
        old=PERSON,
        new="node Person { name: String @key  age: I32?  city: String }",
        fits={},
        then={},
        violates=PEOPLE,
    ),
    Case(
        name='add a required property with `@backfill("Rom")`',
        old=PERSON,
        new='node Person { name: String @key  age: I32?  city: String @backfill("Rom") }',
        fits=PEOPLE,
        then={"Person": [{**ANN, "city": "Rom"}, {**BEN, "city": "Rom"}]},
    ),
    Case(
        name='add a required property with `@backfill("Rom")` of another type',
        old=PERSON,
        new='node Person { name: String @key  age: I32?  zip: I32 @backfill("Rom") }',
        fits={},
        then={},
        violates=PEOPLE,
    ),
    Case(
        name='add a required property with `@backfill(expr="lower(name)")`',
        old=PERSON,
        new='node Person { name: String @key  age: I32?  nick: String @backfill(expr="lower(name)") }',
        fits=PEOPLE,
        then={"Person": [{**ANN, "nick": "ann"}, {**BEN, "nick": "ben"}]},
    ),
    Case(
        name='add a required property with `@backfill(expr="age + 1")`, which is null where `age` is',
        old=PERSON,
        new='node Person { name: String @key  age: I32?  next: I32 @backfill(expr="age + 1") }',
        fits={"Person": [ANN]},
        then={"Person": [{**ANN, "next": 42}]},
        violates=PEOPLE,
    ),
    Case(
        name='add a nullable property with `@backfill(expr="age * 2")`, where a product may not fit',
        old=PERSON,
        new='node Person { name: String @key  age: I32?  twice: I32? @backfill(expr="age * 2") }',
        fits=PEOPLE,
        then={"Person": [{**ANN, "twice": 82}, {**BEN, "twice": None}]},
        violates={"Person": [{**ANN, "age": 2**30}]},
    ),
    Case(
        name='any change of type, by `@rename_from` and `@backfill(expr="string(age)")`',
        old=PERSON,
        new='node Person { name: String @key  age: String? @backfill(expr="string(age)")  '
        'was: I32? @rename_from("age") }',
        fits=PEOPLE,
        then={
            "Person": [
                {"id": "Ann", "name": "Ann", "age": "41", "was": 41},
                {"id": "Ben", "name": "Ben", "age": None, "was": None},
            ]
        },
    ),
    Case(
        name="`@backfill(expr=…)` over a column that is not there",
        old=PERSON,
        new='node Person { name: String @key  age: I32?  x: I32? @backfill(expr="agee + 1") }',
        fits={},
        then={},
        violates=PEOPLE,
    ),
    Case(
        name="drop a property (soft)",
        old=PERSON,
        new="node Person { name: String @key }",
        fits=PEOPLE,
        then={"Person": _without([ANN, BEN], "age")},
    ),
    Case(
        name="drop a property (hard)",
        old=PERSON,
        new="node Person { name: String @key }",
        fits=PEOPLE,
        then={"Person": _without([ANN, BEN], "age")},
        allow_data_loss=True,
    ),
    Case(
        name="rename a property",
        old=PERSON,
        new='node Person { name: String @key  years: I32? @rename_from("age") }',
        fits=PEOPLE,
        then={"Person": [{"id": "Ann", "name": "Ann", "years": 41}, {"id": "Ben", "name": "Ben", "years": None}]},
    ),
    Case(
        name="rename a key",
        old=PERSON,
        new='node Person { called: String @key @rename_from("name")  age: I32? }',
        fits=PEOPLE,
        then={"Person": [{"id": "Ann", "called": "Ann", "age": 41}, {"id": "Ben", "called": "Ben", "age": None}]},
    ),
    Case(
        name="reorder properties",
        old=PERSON,
        new="node Person { age: I32?  name: String @key }",
        fits=PEOPLE,
        then={"Person": [{"id": "Ann", "age": 41, "name": "Ann"}, {"id": "Ben", "age": None, "name": "Ben"}]},
    ),
    Case(
        name="widen a number: I32 to I64",
        old=PERSON,
        new="node Person { name: String @key  age: I64? }",
        fits=PEOPLE,
        then=PEOPLE,
    ),
    Case(
        name="narrow a number: I32 to U32",
        old=PERSON,
        new="node Person { name: String @key  age: U32? }",
        fits={},
        then={},
        violates=PEOPLE,
    ),
    Case(
        name="narrow a number: I32 to U32, data loss allowed",
        old=PERSON,
        new="node Person { name: String @key  age: U32? }",
        fits={"Person": [ANN, {**BEN, "age": -1}]},
        then=PEOPLE,
        allow_data_loss=True,
    ),
    Case(
        name="narrow a required number, data loss allowed",
        old="node Person { name: String @key  age: I32 }",
        new="node Person { name: String @key  age: U32 }",
        fits={"Person": [ANN]},
        then={"Person": [ANN]},
        violates={"Person": [{**ANN, "age": -1}]},
        allow_data_loss=True,
    ),
    Case(
        name="widen an enum",
        old="node Person { name: String @key  mood: enum(good)? }",
        new="node Person { name: String @key  mood: enum(bad, good)? }",
        fits={"Person": [{"id": "Ann", "name": "Ann", "mood": "good"}]},
        then={"Person": [{"id": "Ann", "name": "Ann", "mood": "good"}]},
    ),
    Case(
        name="narrow an enum",
        old="node Person { name: String @key  mood: enum(bad, good)? }",
        new="node Person { name: String @key  mood: enum(good)? }",
        fits={"Person": [{"id": "Ann", "name": "Ann", "mood": "good"}]},
        then={"Person": [{"id": "Ann", "name": "Ann", "mood": "good"}]},
        violates={"Person": [{"id": "Ann", "name": "Ann", "mood": "bad"}]},
    ),
    Case(
        name="String to enum",
        old="node Person { name: String @key  mood: String? }",
        new="node Person { name: String @key  mood: enum(bad, good)? }",
        fits={"Person": [{"id": "Ann", "name": "Ann", "mood": "good"}]},
        then={"Person": [{"id": "Ann", "name": "Ann", "mood": "good"}]},
        violates={"Person": [{"id": "Ann", "name": "Ann", "mood": "odd"}]},
    ),
    Case(
        name="any other change of type: I32 to String",
        old=PERSON,
        new="node Person { name: String @key  age: String? }",
        fits={},
        then={},
        violates=PEOPLE,
    ),
    Case(
        name="make a property nullable",
        old="node Person { name: String @key  age: I32 }",
        new=PERSON,
        fits={"Person": [ANN]},
        then={"Person": [ANN]},
    ),
    Case(
        name="make a property required",
        old=PERSON,
        new="node Person { name: String @key  age: I32 }",
        fits={"Person": [ANN]},
        then={"Person": [ANN]},
        violates=PEOPLE,
    ),
    Case(
        name="add `@unique`",
        old=PERSON,
        new="node Person { name: String @key  age: I32? @unique }",
        fits=PEOPLE,
        then=PEOPLE,
        violates={"Person": [ANN, {**BEN, "age": 41}]},
    ),
    Case(
        name="remove `@unique`",
        old="node Person { name: String @key  age: I32? @unique }",
        new=PERSON,
        fits=PEOPLE,
        then=PEOPLE,
    ),
    Case(
        name="add `@range`",
        old=PERSON,
        new="node Person { name: String @key  age: I32?  @range(age, 0..40) }",
        fits={"Person": [{**ANN, "age": 40}, BEN]},
        then={"Person": [{**ANN, "age": 40}, BEN]},
        violates=PEOPLE,
    ),
    Case(
        name="add `@check`",
        old=PERSON,
        new='node Person { name: String @key  age: I32?  @check(name, "^A") }',
        fits={"Person": [ANN]},
        then={"Person": [ANN]},
        violates=PEOPLE,
    ),
    Case(
        name="add `@key`",
        old="node Person { name: String }",
        new="node Person { name: String @key }",
        fits=NODES,
        then=NODES,
        violates={"Person": [{"id": "1", "name": "Ann"}]},
    ),
    Case(
        name="remove `@key`",
        old="node Person { name: String @key }",
        new="node Person { name: String }",
        fits=NODES,
        then=NODES,
    ),
    Case(
        name="remove `@range` and `@check`",
        old='node Person { name: String @key  age: I32?  @range(age, 0..90)  @check(name, "^[A-Z]") }',
        new=PERSON,
        fits=PEOPLE,
        then=PEOPLE,
    ),
    Case(
        name="remove `@index`",
        old="node Person { name: String @key  age: I32? @index }",
        new=PERSON,
        fits=PEOPLE,
        then=PEOPLE,
    ),
    Case(
        name="add `@index`",
        old=PERSON,
        new="node Person { name: String @key  age: I32? @index }",
        fits=PEOPLE,
        then=PEOPLE,
    ),
    Case(
        name="implement an interface that adds a nullable property",
        old=PERSON,
        new="interface Placed { city: String? }\nnode Person implements Placed { name: String @key  age: I32? }",
        fits=PEOPLE,
        then={"Person": [{**ANN, "city": None}, {**BEN, "city": None}]},
    ),
    Case(
        name="implement an interface no more, and drop it",
        old="interface Aged { age: I32? }\nnode Person implements Aged { name: String @key }",
        new=PERSON,
        fits=PEOPLE,
        then=PEOPLE,
    ),
    Case(
        name="an interface gets a required property",
        old="interface Aged { age: I32? }\nnode Person implements Aged { name: String @key }",
        new="interface Aged { age: I32?  city: String }\nnode Person implements Aged { name: String @key }",
        fits={},
        then={},
        violates=PEOPLE,
    ),
    Case(
        name="an interface gets a required property with `@backfill`",
        old="interface Aged { age: I32? }\nnode Person implements Aged { name: String @key }",
        new='interface Aged { age: I32?  city: String @backfill("Rom") }\n'
        "node Person implements Aged { name: String @key }",
        fits=PEOPLE,
        then={"Person": [{**ANN, "city": "Rom"}, {**BEN, "city": "Rom"}]},
    ),
    Case(
        name="add properties to an edge, filled by an expression over its ends",
        old=TWO + "edge Knows: Person -> Person",
        new=TWO + "edge Knows: Person -> Person { both: String @backfill(expr=\"src || '-' || dst\") }",
        fits=knows(("1", "Ann", "Ben")),
        then={"Knows": [{"id": "1", "src": "Ann", "dst": "Ben", "both": "Ann-Ben"}]},
        extra=NODES,
    ),
    Case(
        name="lead an edge to another type",
        old=TWO + "edge Knows: Person -> Person",
        new=TWO + "edge Knows: Person -> City",
        fits=knows(),
        then=knows(),
        violates=knows(("1", "Ann", "Ben")),
        extra={**NODES, **CITIES},
    ),
    Case(
        name="raise the least number of edges",
        old=TWO + "edge Knows: Person -> Person",
        new=TWO + "edge Knows: Person -> Person @card(1..)",
        fits={**NODES, **knows(("1", "Ann", "Ben"), ("2", "Ben", "Ann"))},
        then={**NODES, **knows(("1", "Ann", "Ben"), ("2", "Ben", "Ann"))},
        violates={**NODES, **knows(("1", "Ann", "Ben"))},
    ),
    Case(
        name="lower the greatest number of edges",
        old=TWO + "edge Knows: Person -> Person",
        new=TWO + "edge Knows: Person -> Person @card(0..1)",
        fits=knows(("1", "Ann", "Ben")),
        then=knows(("1", "Ann", "Ben")),
        violates=knows(("1", "Ann", "Ben"), ("2", "Ann", "Ann")),
        extra=NODES,
    ),
    Case(
        name="allow any number of edges",
        old=TWO + "edge Knows: Person -> Person @card(0..1)",
        new=TWO + "edge Knows: Person -> Person",
        fits=knows(("1", "Ann", "Ben")),
        then=knows(("1", "Ann", "Ben")),
        extra=NODES,
    ),
    Case(
        name="add a type",
        old=PERSON,
        new=PERSON + "\nnode City { name: String @key }",
        fits=PEOPLE,
        then={**PEOPLE, "City": []},
    ),
    Case(
        name="drop a type (soft)",
        old=PERSON + "\nnode City { name: String @key }",
        new="node City { name: String @key }",
        fits=PEOPLE,
        then={"City": []},
    ),
    Case(
        name="drop a type (hard)",
        old=PERSON + "\nnode City { name: String @key }",
        new="node City { name: String @key }",
        fits=PEOPLE,
        then={"City": []},
        allow_data_loss=True,
    ),
    Case(
        name="rename a type",
        old=PERSON,
        new='node Human @rename_from("Person") { name: String @key  age: I32? }',
        fits=PEOPLE,
        then={"Human": [ANN, BEN]},
    ),
    Case(
        name="`@rename_from` of something that is not there",
        old=PERSON,
        new='node Person { name: String @key  age: I32?  x: I32? @rename_from("y") }',
        fits={},
        then={},
        violates=PEOPLE,
    ),
)
