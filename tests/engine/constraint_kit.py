"""What the constraints of one schema take and refuse: the same cases for every path and every engine."""

import builtins
from dataclasses import dataclass
from typing import Any, TypeAlias

import omnigraph as og
from omnigraph.errors import ConstraintError, InvalidDataError, OmnigraphError

SCHEMA = """
node Person {
    name: String @key
    age: I32?
    score: F64?
    email: String? @unique
    first: String?
    last: String?
    mood: enum(good, bad)?
    must: Bool
    @range(age, 0..150)
    @range(score, ..1.5)
    @check(name, "^[A-Za-z]")
    @unique(first, last)
}
node Team { name: String @key }
edge Knows: Person -> Person { since: I32?  @range(since, 1900..) }
edge Leads: Person -> Team @card(0..1) { @unique(dst) }
edge Plays: Person -> Team @card(1..2)
"""

Rows: TypeAlias = list[dict[str, Any]]


def person(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "must": True, **more}


def edge(src: str, dst: str, **more: Any) -> dict[str, Any]:
    return {"src": src, "dst": dst, **more}


def filled(root: Any) -> og.Graph:
    """Make a graph of two people who each play, one team they could lead."""
    made = og.init(root, SCHEMA)
    with made.transaction() as tx:
        tx.append("Person", [person("Ann", email="ann@x", first="A", last="N"), person("Bob", age=7)])
        tx.append("Team", [{"name": "red"}, {"name": "blue"}])
        tx.append("Plays", [edge("Ann", "red", id="pa"), edge("Bob", "red", id="pb")])
        tx.append("Knows", [edge("Ann", "Bob", id="k")])
        tx.append("Leads", [edge("Ann", "red", id="l")])
    return made


@dataclass(frozen=True, slots=True)
class Case:
    """Rows that are right beside rows that are wrong, for one constraint; new people bring their plays along."""

    type: str
    right: Rows
    wrong: Rows
    says: str
    error: "builtins.type[OmnigraphError]" = ConstraintError


CASES = {
    "type": Case("Person", [person("Cy", age=1)], [person("Cy", age="one")], "age does not fit", InvalidDataError),
    "required": Case("Person", [person("Cy")], [{"name": "Cy", "must": None}], "must is required", InvalidDataError),
    "key": Case("Person", [person("Cy")], [person("Cy"), person("Cy")], "more than once", InvalidDataError),
    "enum": Case("Person", [person("Cy", mood="bad")], [person("Cy", mood="ugly")], "enum"),
    "range": Case("Person", [person("Cy", age=150)], [person("Cy", age=151)], "@range(age)"),
    "range below": Case("Person", [person("Cy", age=0)], [person("Cy", age=-1)], "@range(age)"),
    "range of fractions": Case(
        "Person", [person("Cy", score=1.5)], [person("Cy", score=float("nan"))], "@range(score)"
    ),
    "range on an edge": Case(
        "Knows", [edge("Ann", "Bob", since=1900)], [edge("Ann", "Bob", since=1899)], "@range(since)"
    ),
    "check": Case("Person", [person("Cy")], [person("1Cy")], "@check(name)"),
    "unique in the batch": Case(
        "Person",
        [person("Cy", email="c"), person("Di", email="d"), person("Ed"), person("Fi")],
        [person("Cy", email="c"), person("Di", email="c")],
        "@unique(email)",
    ),
    "unique, committed": Case("Person", [person("Cy", email="cy@x")], [person("Cy", email="ann@x")], "@unique(email)"),
    "unique over two columns": Case(
        "Person", [person("Cy", first="A", last=None)], [person("Cy", first="A", last="N")], "@unique(first, last)"
    ),
    "from": Case("Knows", [edge("Bob", "Ann")], [edge("Nobody", "Ann")], "from an existing Person"),
    "to": Case("Knows", [edge("Bob", "Ann")], [edge("Ann", "Nobody")], "to an existing Person"),
    "at most": Case("Plays", [edge("Bob", "blue")], [edge("Bob", "blue"), edge("Bob", "blue")], "@card(1..2)"),
    "at most one, committed": Case("Leads", [edge("Bob", "blue")], [edge("Ann", "blue")], "@card(0..1)"),
    "unique on an edge": Case("Leads", [edge("Bob", "blue")], [edge("Bob", "red")], "@unique(dst)"),
}


def plays_for(rows: Rows, type: str) -> Rows:
    """Every new person plays, because all must."""
    names = dict.fromkeys(row["name"] for row in rows if type == "Person" and row["name"] not in ("Ann", "Bob"))
    return [edge(name, "red") for name in names]
