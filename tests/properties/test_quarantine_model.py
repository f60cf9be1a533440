"""Random writes that are sorted out, against a naive sorter: the same rows are left out, and what is written holds."""

import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from tests.properties.test_constraints_model import EDGES, NAMES, NODES, UNIQUE, State, applied, content, holds, row

import omnigraph as og
from omnigraph.errors import ConstraintError

SCHEMA = """
node A { k: String @key  u: I32?  v: String?  w: I32?  @unique(u)  @unique(v, w)  @range(w, ..1) }
node B { k: String @key }
edge Some: A -> B @card(0..2)
edge Must: A -> B @card(1..2)
edge Self: A -> A { n: I32?  @unique(src, n) }
"""
WALKS = 40 if os.environ.get("OMNIGRAPH_DEEP") else 6
STEPS = 25

Row: TypeAlias = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Given:
    """One row that was given; two that are equal are still two."""

    verb: str
    table: str
    row: Row


class StuckError(Exception):
    """No choice of the given rows would do."""


def after(state: State, given: list[Given], tables: dict[str, str]) -> State:
    """Return the graph with these rows, by the verbs their tables were written with."""
    rows = {table: [one.row for one in given if one.table == table] for table in tables}
    # The rows are known to have ids of their own by now, so that appending is what upserting is.
    made = applied(state, [("overwrite" if v == "overwrite" else "upsert", t, rows[t]) for t, v in tables.items()])
    assert made is not None
    return made


def sorted_out(state: State, given: list[Given], tables: dict[str, str]) -> list[Given]:
    """Return the rows that are to be written, found slowly."""
    left = [one for one in given if one.table != "A" or one.row["w"] is None or one.row["w"] <= 1]
    times = Counter((one.table, one.row["id"]) for one in left)
    left = [one for one in left if times[one.table, one.row["id"]] == 1]
    left = [one for one in left if one.verb != "append" or one.row["id"] not in state[one.table]]
    while True:
        out = next((found for step in STEPS_OF_A_ROUND if (found := set(step(state, left, tables)))), None)
        if out is None:
            return left
        left = [one for one in left if one not in out]


def repeats_of(tables: tuple[str, ...]) -> Callable[[State, list[Given], dict[str, str]], Iterator[Given]]:
    def found(state: State, left: list[Given], written: dict[str, str]) -> Iterator[Given]:
        whole = after(state, left, written)
        for table, groups in UNIQUE.items():
            for columns in groups if table in tables else ():
                values = Counter(tuple(one[c] for c in columns) for one in whole[table].values())
                for one in (each for each in left if each.table == table):
                    value = tuple(one.row[c] for c in columns)
                    if None not in value and values[value] > 1:
                        yield one

    return found


def without_an_end(state: State, left: list[Given], written: dict[str, str]) -> Iterator[Given]:
    whole = after(state, left, written)
    for table, (source, target, _, _) in EDGES.items():
        new = {one.row["id"]: one for one in left if one.table == table}
        for name, one in whole[table].items():
            if one["src"] not in whole[source] or one["dst"] not in whole[target]:
                if name not in new:
                    raise StuckError(table)
                yield new[name]


def wrongly_many(state: State, left: list[Given], written: dict[str, str]) -> Iterator[Given]:
    whole = after(state, left, written)
    for table, (source, _, least, most) in EDGES.items():
        counts = Counter(one["src"] for one in whole[table].values())
        many = {name for name, count in counts.items() if most is not None and count > most}
        few = {name for name in whole[source] if counts[name] < least}
        edges = [one for one in left if one.table == table]
        there = {} if written.get(table) == "overwrite" else state[table]
        nodes = {} if written.get(source) == "overwrite" else state[source]
        choices = [
            [one for one in edges if one.row["src"] in many],
            [one for one in left if one.table == source and one.row["id"] in few - set(nodes)],
            [one for one in edges if led_away(one.row, there) in few],
        ]
        if (many or few) and not any(choices):
            raise StuckError(table)
        yield from next(filter(None, choices), [])


def led_away(row: Row, there: dict[str, Row]) -> str | None:
    old = there.get(row["id"])
    return None if old is None or old["src"] == row["src"] else str(old["src"])


STEPS_OF_A_ROUND = (repeats_of(NODES), without_an_end, repeats_of(tuple(EDGES)), wrongly_many)


def invented(chance: random.Random) -> tuple[list[Given], dict[str, str]]:
    """Invent a write to a few tables; nodes often come with the edges they must have."""
    tables = {
        table: chance.choice(["append", "upsert", "upsert", "overwrite" if chance.random() < 0.2 else "append"])
        for table in chance.sample([*NODES, *EDGES], chance.randint(1, 4))
    }
    given = [
        Given(verb, table, row(table, chance)) for table, verb in tables.items() for _ in range(chance.randint(1, 4))
    ]
    people = [one.row["id"] for one in given if one.table == "A"]
    if people and chance.random() < 0.8:
        verb = tables.setdefault("Must", "upsert")
        given += [
            Given(verb, "Must", {"id": f"Must-{name}", "src": name, "dst": chance.choice(NAMES)})
            for name in dict.fromkeys(people)
        ]
    return given, tables


def carried_out(graph: og.Graph, given: list[Given], tables: dict[str, str]) -> og.Transaction | None:
    try:
        with graph.transaction(constraints="quarantine") as tx:
            for table, verb in tables.items():
                getattr(tx, verb)(table, [one.row for one in given if one.table == table])
    except ConstraintError:
        return None
    return tx


def unordered(rows: list[Row]) -> list[str]:
    return sorted(str(sorted(one.items(), key=str)) for one in rows)


@pytest.mark.parametrize("seed", range(WALKS))
def test_a_naive_sorter_leaves_out_the_same_rows(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    graph = og.init(tmp_path / "g", SCHEMA)
    state: State = {table: {} for table in (*NODES, *EDGES)}
    with graph.transaction() as tx:
        tx.append("B", [{"id": name, "k": name} for name in NAMES[:3]])
    state["B"] = {name: {"id": name, "k": name} for name in NAMES[:3]}
    seen = Counter[str]()
    for number in range(STEPS):
        given, tables = invented(chance)
        where = f"seed {seed}, step {number}: {given} by {tables} on {state}"
        try:
            left: list[Given] | None = sorted_out(state, given, tables)
        except StuckError:
            left = None
        done = carried_out(graph, given, tables)
        assert (done is None) == (left is None), where
        if left is not None and done is not None:
            state = after(state, left, tables)
            for table in tables:
                out = [one.row for one in given if one.table == table and one not in left]
                found = done.rejected(table).read_all().to_pylist()
                assert all(one.pop("_reasons") for one in found), where
                assert unordered(found) == unordered(out), where
            seen["written"] += len(left)
            seen["left out"] += len(given) - len(left)
        assert content(graph) == state, where
        assert holds(state), where
    assert min(seen["written"], seen["left out"]) > STEPS // 3, "a walk that only goes one way shows little"
