"""A merge on dictionaries, written to be obvious: what the real one must agree with."""

from collections import Counter
from collections.abc import Iterable, Mapping
from copy import deepcopy
from typing import Any, TypeAlias

import omnigraph as og
from omnigraph.errors import MergeConflictsError

SCHEMA = """
node Person { name: String @key  age: I32?  mail: String? @unique  city: String? }
edge Knows: Person -> Person { since: I32? }
edge Boss: Person -> Person @card(0..1)
"""
KEYS = {"Person": "node:Person", "Knows": "edge:Knows", "Boss": "edge:Boss"}
TORN = "torn"

State: TypeAlias = dict[str, dict[str, dict[str, Any]]]
Conflicts: TypeAlias = set[tuple[str, str, str]]
"""Table, id and kind; of a broken constraint, the id is empty."""


def person(name: str, **more: Any) -> dict[str, Any]:
    return {"id": name, "name": name, "age": None, "mail": None, "city": None} | more


def knows(id: str, src: str, dst: str, since: int | None = None) -> dict[str, Any]:
    return {"id": id, "src": src, "dst": dst, "since": since}


def boss(id: str, src: str, dst: str) -> dict[str, Any]:
    return {"id": id, "src": src, "dst": dst}


def content(graph: og.Graph, name: str = "main") -> State:
    """Everything a branch holds."""
    snapshot = graph.snapshot(name)
    return {table: {row["id"]: row for row in snapshot.read(table).to_pylist()} for table in KEYS}


def three_way(base: Mapping[str, Any], ours: State, theirs: State, policy: str = "fail") -> tuple[State, Conflicts]:
    """Merge theirs into ours; a row that conflicts stays as it is here."""
    merged, conflicts = deepcopy(ours), set()
    for table in KEYS:
        for id in {*ours[table], *theirs[table], *base[table]}:
            was, mine, other = base[table].get(id), ours[table].get(id), theirs[table].get(id)
            if mine == other or (was != TORN and other == was):
                continue
            if was == TORN or mine != was:
                kind, settled = _clash(was, mine, other, policy)
                if kind is not None:
                    conflicts.add((KEYS[table], id, kind))
                    continue
                other = settled
            if other is None:
                merged[table].pop(id, None)
            else:
                merged[table][id] = other
    return merged, conflicts


def _clash(was: Any, mine: Any, other: Any, policy: str) -> tuple[str | None, Any]:
    """Return the kind of a conflict, or None and the row it is settled with."""
    if policy == "ours":
        return None, mine
    if policy == "theirs":
        return None, other
    if mine is None or other is None:
        return "DeleteVsUpdate", None
    if was is None:
        return "DivergentInsert", None
    if policy == "cell" and was != TORN:
        changed = {name for name in was if was[name] != other[name]}
        if all(mine[name] in (was[name], other[name]) for name in changed):
            return None, mine | {name: other[name] for name in changed}
    return "DivergentUpdate", None


def two_bases(one: Mapping[str, Any], other: Mapping[str, Any], older: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Make one base of two: who changed a row since is right, and if both did, nobody is."""
    joined: dict[str, dict[str, Any]] = {table: {} for table in KEYS}
    for table in KEYS:
        for id in {*one[table], *other[table], *older[table]}:
            left, right, was = one[table].get(id), other[table].get(id), older[table].get(id)
            if TORN in (left, right):
                row = TORN
            elif left == right or right == was:
                row = left
            elif left == was:
                row = right
            else:
                row = TORN
            if row is not None:
                joined[table][id] = row
    return joined


def broken(state: State) -> Conflicts:
    """Judge a whole graph, slowly."""
    found: Conflicts = set()
    people = state["Person"]
    mails = Counter(row["mail"] for row in people.values() if row["mail"] is not None)
    if max(mails.values(), default=0) > 1:
        found.add((KEYS["Person"], "", "UniqueViolation"))
    for table in ("Knows", "Boss"):
        rows = state[table].values()
        if any(row["src"] not in people or row["dst"] not in people for row in rows):
            found.add((KEYS[table], "", "OrphanEdge"))
    bosses = Counter(row["src"] for row in state["Boss"].values())
    if max(bosses.values(), default=0) > 1:
        found.add((KEYS["Boss"], "", "CardinalityViolation"))
    return found


def expected(base: Mapping[str, Any], ours: State, theirs: State, policy: str = "fail") -> tuple[State, Conflicts]:
    """Return what a merge must leave, and all that must be in its way."""
    merged, conflicts = three_way(base, ours, theirs, policy)
    return merged, conflicts | broken(merged)


def told(counts: Mapping[str, Mapping[str, int]], conflicts: Iterable[Any]) -> Conflicts:
    """Return conflicts as the naive merge has them."""
    rows = {"DivergentInsert", "DivergentUpdate", "DeleteVsUpdate"}
    found = {(each.table_key, each.row_id, str(each.kind)) for each in conflicts if each.kind in rows}
    return found | {(key, "", kind) for key, kinds in counts.items() for kind in kinds if kind not in rows}


def merged(graph: og.Graph, source: str, into: str, policy: str = "fail") -> tuple[str, Conflicts]:
    """Merge; return the outcome and what was in the way."""
    try:
        return str(graph.branches.merge(source, into, policy=policy).outcome), set()
    except MergeConflictsError as refused:
        return "Conflicts", told(refused.conflict_counts, refused.conflicts)
