"""Random writes against a naive judge: what it would refuse is refused, what it would take is taken, row for row."""

import os
import random
from collections import Counter
from copy import deepcopy
from pathlib import Path
from typing import Any, TypeAlias

import pytest

import omnigraph as og
from omnigraph.errors import ConstraintError, InvalidDataError

SCHEMA = """
node A { k: String @key  u: I32?  v: String?  w: I32?  @unique(u)  @unique(v, w) }
node B { k: String @key }
edge Some: A -> B @card(0..2)
edge Must: A -> B @card(1..2)
edge Self: A -> A { n: I32?  @unique(src, n) }
"""
NODES = ("A", "B")
EDGES = {"Some": ("A", "B", 0, 2), "Must": ("A", "B", 1, 2), "Self": ("A", "A", 0, None)}
UNIQUE = {"A": (("u",), ("v", "w")), "Self": (("src", "n"),)}
NAMES = ("x", "y", "z", "q")
WALKS = 40 if os.environ.get("OMNIGRAPH_DEEP") else 5
STEPS = 30

State: TypeAlias = dict[str, dict[str, dict[str, Any]]]
Write: TypeAlias = tuple[str, str, Any]


def holds(state: State) -> bool:
    """Judge a whole graph, slowly."""
    for table, groups in UNIQUE.items():
        for columns in groups:
            values = [tuple(row[c] for c in columns) for row in state[table].values()]
            if max(Counter(value for value in values if None not in value).values(), default=0) > 1:
                return False
    for table, (source, target, least, most) in EDGES.items():
        rows = state[table].values()
        if any(row["src"] not in state[source] or row["dst"] not in state[target] for row in rows):
            return False
        counts = Counter(row["src"] for row in rows)
        if any(counts[node] < least or (most is not None and counts[node] > most) for node in state[source]):
            return False
    return True


def applied(state: State, writes: list[Write]) -> State | None:
    """Return the graph after these writes; None if an id is there twice."""
    after = deepcopy(state)
    for verb, table, rows in writes:
        if verb == "delete":
            for name in rows:
                after[table].pop(name, None)
            continue
        ids = [row["id"] for row in rows]
        if len(set(ids)) != len(ids) or (verb == "append" and set(ids) & set(state[table])):
            return None
        if verb == "overwrite":
            after[table] = {}
        after[table].update({row["id"]: row for row in rows})
    if writes and writes[0][0] == "delete":
        for table, (source, target, _, _) in EDGES.items():
            gone = {end: set(state[node]) - set(after[node]) for end, node in (("src", source), ("dst", target))}
            after[table] = {
                name: row
                for name, row in after[table].items()
                if row["src"] not in gone["src"] and row["dst"] not in gone["dst"]
            }
    return after


def row(table: str, chance: random.Random) -> dict[str, Any]:
    name = chance.choice(NAMES)
    if table == "B":
        return {"id": name, "k": name}
    if table == "A":
        maybe = [None, None, 1, 2]
        return {
            "id": name,
            "k": name,
            "u": chance.choice(maybe),
            "v": chance.choice(["a", "b", None]),
            "w": chance.choice(maybe),
        }
    ends = {"id": f"{table}-{chance.randint(0, 5)}", "src": chance.choice(NAMES), "dst": chance.choice(NAMES)}
    return ends | ({"n": chance.choice([None, 1, 2])} if table == "Self" else {})


def invented(chance: random.Random) -> list[Write]:
    """Invent a transaction; new people often come with the edges they must have."""
    tables = chance.sample([*NODES, *EDGES], chance.randint(1, 3))
    if chance.random() < 0.25:
        return [("delete", table, [row(table, chance)["id"] for _ in range(chance.randint(1, 2))]) for table in tables]
    writes: list[Write] = []
    for table in tables:
        verb = chance.choice(["append", "upsert", "upsert", "overwrite" if chance.random() < 0.4 else "append"])
        writes.append((verb, table, [row(table, chance) for _ in range(chance.randint(1, 3))]))
    people = [one["id"] for _, table, rows in writes if table == "A" for one in rows]
    if people and "Must" not in tables and chance.random() < 0.8:
        must = [{"id": f"Must-{name}", "src": name, "dst": chance.choice(NAMES)} for name in dict.fromkeys(people)]
        writes.append(("upsert", "Must", must))
    return writes


def content(graph: og.Graph) -> State:
    snapshot = graph.snapshot()
    return {table: {one["id"]: one for one in snapshot.read(table).to_pylist()} for table in (*NODES, *EDGES)}


def carried_out(graph: og.Graph, writes: list[Write]) -> bool:
    try:
        with graph.transaction() as tx:
            for verb, table, rows in writes:
                if verb == "delete":
                    tx.delete(table, ids=rows)
                else:
                    getattr(tx, verb)(table, rows)
    except (ConstraintError, InvalidDataError):
        return False
    return True


@pytest.mark.parametrize("seed", range(WALKS))
def test_a_naive_judge_agrees_with_every_verdict_and_every_row(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    graph = og.init(tmp_path / "g", SCHEMA)
    state: State = {table: {} for table in (*NODES, *EDGES)}
    first: list[Write] = [("append", "B", [{"id": name, "k": name} for name in NAMES])]
    assert carried_out(graph, first)
    state = applied(state, first) or state
    taken = 0
    for number in range(STEPS):
        writes = invented(chance)
        after = applied(state, writes)
        right = after is not None and holds(after)
        assert carried_out(graph, writes) == right, f"seed {seed}, step {number}: {writes} on {state}"
        if right and after is not None:
            state = after
            taken += 1
        assert content(graph) == state, f"seed {seed}, step {number}: {writes}"
    assert 0 < taken < STEPS, "a walk that only goes one way shows little"
