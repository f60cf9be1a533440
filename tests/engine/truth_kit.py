"""The truth table of merges: every operation on the source beside every one on the target, against a naive merge.

`=` is already up to date, `FF` fast-forward, `M` merged; anything else is the conflict: DI divergent insert, DU
divergent update, DD delete against update, OE orphan edge, UV unique, CV cardinality.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

from tests.engine.merge_kit import SCHEMA, State, boss, content, expected, knows, merged, person

import omnigraph as og

Act: TypeAlias = Callable[[og.Graph, str, int], None]
SHORT = {
    "DivergentInsert": "DI",
    "DivergentUpdate": "DU",
    "DeleteVsUpdate": "DD",
    "OrphanEdge": "OE",
    "UniqueViolation": "UV",
    "CardinalityViolation": "CV",
    "AlreadyUpToDate": "=",
    "FastForward": "FF",
    "Merged": "M",
}


def upsert(graph: og.Graph, branch: str, type: str, *rows: dict[str, Any]) -> None:
    with graph.transaction(branch) as tx:
        tx.upsert(type, list(rows))


def delete(graph: og.Graph, branch: str, type: str, id: str) -> None:
    with graph.transaction(branch) as tx:
        tx.delete(type, ids=[id])


def re_add(graph: og.Graph, branch: str, side: int) -> None:
    delete(graph, branch, "Person", "Dan")
    upsert(graph, branch, "Person", person("Dan", age=99 - side))


def re_add_same(graph: og.Graph, branch: str, side: int) -> None:
    delete(graph, branch, "Person", "Dan")
    upsert(graph, branch, "Person", person("Dan", age=40))


# Each does something to a branch; the last argument is 0 on the source and 1 on the target.
OPERATIONS: dict[str, Act] = {
    "noop": lambda graph, branch, side: None,
    "add": lambda g, b, side: upsert(g, b, "Person", person("Eve", age=50 + side)),
    "add same": lambda g, b, side: upsert(g, b, "Person", person("Fay", age=50)),
    "remove": lambda g, b, side: delete(g, b, "Person", "Alice"),
    "update": lambda g, b, side: upsert(g, b, "Person", person("Alice", age=31 + side, city="Ulm")),
    "update same": lambda g, b, side: upsert(g, b, "Person", person("Alice", age=77, city="Ulm")),
    "update other": lambda g, b, side: upsert(g, b, "Person", person("Alice", age=30, city=f"Bonn{side}")),
    "move edge": lambda g, b, side: upsert(g, b, "Knows", knows("k1", "Bob", ("Dan", "Alice")[side], 2000)),
    "remove edge": lambda g, b, side: delete(g, b, "Knows", "k1"),
    "re-add": re_add,
    "re-add same": re_add_same,
    "edge to Alice": lambda g, b, side: upsert(g, b, "Knows", knows(f"k2{side}", "Dan", "Alice")),
    "unique": lambda g, b, side: upsert(g, b, "Person", person(f"Uma{side}", mail="u@x")),
    "cardinality": lambda g, b, side: upsert(g, b, "Boss", boss(f"b{side}", "Dan", "Bob")),
}

# Columns are the operations on the target, in the order of the rows.
TABLE = """
noop          | =  | =  | =  | =  | =  | =  | =  | =  | =  | =  | =  | =  | =  | =
add           | FF | DI | M  | M  | M  | M  | M  | M  | M  | M  | M  | M  | M  | M
add same      | FF | M  | M  | M  | M  | M  | M  | M  | M  | M  | M  | M  | M  | M
remove        | FF | M  | M  | M  | DD | DD | DD | OE | M  | M  | M  | OE | M  | M
update        | FF | M  | M  | DD | DU | DU | DU | M  | M  | M  | M  | M  | M  | M
update same   | FF | M  | M  | DD | DU | M  | DU | M  | M  | M  | M  | M  | M  | M
update other  | FF | M  | M  | DD | DU | DU | DU | M  | M  | M  | M  | M  | M  | M
move edge     | FF | M  | M  | M  | M  | M  | M  | DU | DD | M  | M  | M  | M  | M
remove edge   | FF | M  | M  | M  | M  | M  | M  | DD | M  | M  | M  | M  | M  | M
re-add        | FF | M  | M  | M  | M  | M  | M  | M  | M  | DU | M  | M  | M  | M
re-add same   | FF | M  | M  | M  | M  | M  | M  | M  | M  | M  | M  | M  | M  | M
edge to Alice | FF | M  | M  | OE | M  | M  | M  | M  | M  | M  | M  | M  | M  | M
unique        | FF | M  | M  | M  | M  | M  | M  | M  | M  | M  | M  | M  | UV | M
cardinality   | FF | M  | M  | M  | M  | M  | M  | M  | M  | M  | M  | M  | M  | CV
"""


IS_DEEP = os.environ.get("OMNIGRAPH_DEEP") == "1"
EACH_END = [
    ("noop", "add"),
    ("add", "noop"),
    ("add", "move edge"),
    ("re-add same", "update"),
    ("remove", "re-add"),
    ("add", "add"),
    ("update", "update other"),
    ("move edge", "remove edge"),
    ("remove", "edge to Alice"),
    ("unique", "unique"),
    ("cardinality", "cardinality"),
]
EVERY_PAIR = [(source, target) for source in OPERATIONS for target in OPERATIONS]
PAIRS = EVERY_PAIR if IS_DEEP else EACH_END
"""For what machines elsewhere are given, a normal run has one pair for each way a merge can end."""
FEW_PAIRS = [("noop", "add"), ("add", "noop"), ("remove", "re-add"), ("update", "update other")]
ON_SPARK = EVERY_PAIR if IS_DEEP else FEW_PAIRS
"""A job takes a second however few its rows are: a normal run has one of each outcome, and a merge of all conflicts."""
CHANGING = ("add", "remove", "update", "update same", "update other", "move edge", "re-add")
EACH_POLICY = [("update", "update other", "cell"), ("remove", "update", "theirs"), ("update", "remove", "ours")]
EVERY_POLICY = [(one, other, policy) for one in CHANGING for other in CHANGING for policy in ("ours", "theirs", "cell")]
SETTLED = EVERY_POLICY if IS_DEEP else EACH_POLICY


def parsed() -> dict[tuple[str, str], str]:
    lines = [[cell.strip() for cell in line.split("|")] for line in TABLE.strip().splitlines()]
    names = [line[0] for line in lines]
    return {(row[0], name): cell for row in lines for name, cell in zip(names, row[1:], strict=True)}


def truth_graph(folder: Path) -> og.Graph:
    """A graph with a branch for each operation on either side."""
    graph = og.init(folder / "g", SCHEMA)
    with graph.transaction() as tx:
        people = [person("Alice", age=30, city="Ulm"), person("Bob"), person("Carol"), person("Dan", age=40)]
        tx.append("Person", people)
        tx.append("Knows", [knows("k1", "Bob", "Carol", 2000)])
    for name, act in OPERATIONS.items():
        for side in (0, 1):
            graph.branches.create(branch_of(name, side))
            act(graph, branch_of(name, side), side)
    return graph


def branch_of(operation: str, side: int) -> str:
    return f"{('source', 'target')[side]}/{operation.replace(' ', '-')}"


def check_pair(graph: og.Graph, source: str, target: str) -> None:
    """Merge one operation into another; it must end as the table and a naive merge say."""
    theirs, into = branch_of(source, 0), f"pair/{source}/{target}".replace(" ", "-")
    graph.branches.create(into, from_=branch_of(target, 1))
    before = graph.snapshot(into)
    base: State = content(graph)
    ours = content(graph, into)
    after, in_the_way = expected(base, ours, content(graph, theirs))
    outcome, conflicts = merged(graph, theirs, into)
    assert conflicts == in_the_way
    kinds = {SHORT[kind] for _, _, kind in conflicts} or {SHORT[outcome]}
    assert kinds == {parsed()[source, target]}
    if conflicts:
        assert graph.snapshot(into).commit == before.commit
        assert content(graph, into) == ours
    else:
        assert content(graph, into) == after


def check_policy(graph: og.Graph, source: str, target: str, policy: str) -> None:
    """Merge one operation into another with a policy; it must end as a naive merge does."""
    theirs, into = branch_of(source, 0), f"{policy}/{source}/{target}".replace(" ", "-")
    graph.branches.create(into, from_=branch_of(target, 1))
    ours = content(graph, into)
    after, in_the_way = expected(content(graph), ours, content(graph, theirs), policy)
    _, conflicts = merged(graph, theirs, into, policy)
    assert conflicts == in_the_way, (target, policy)
    assert content(graph, into) == (ours if conflicts else after), (target, policy)
