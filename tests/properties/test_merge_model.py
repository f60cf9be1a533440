"""Random histories of branches, writes and merges against a merge on dictionaries, crossed histories included."""

import os
import random
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.engine.merge_kit import (
    SCHEMA,
    Conflicts,
    State,
    boss,
    content,
    expected,
    knows,
    merged,
    person,
    two_bases,
)

import omnigraph as og
from omnigraph.errors import ConstraintError

WALKS = 40 if os.environ.get("OMNIGRAPH_DEEP") else 6
STEPS = 40
BRANCHES_MAX = 5
PEOPLE = ("a", "b", "c", "d", "e")
POLICIES = ("fail", "fail", "ours", "theirs", "cell")


@dataclass(frozen=True, slots=True)
class Made:
    """A commit, as the model remembers it."""

    number: int
    parents: tuple[str, ...]
    state: State


@dataclass(slots=True)
class Model:
    """A graph of commits; nothing is clever here."""

    commits: dict[str, Made] = field(default_factory=dict)
    heads: dict[str, str] = field(default_factory=dict)

    def add(self, branch: str, commit: str, state: State, *more: str) -> None:
        parents = (*((self.heads[branch],) if branch in self.heads else ()), *more)
        self.commits[commit] = Made(len(self.commits), parents, state)
        self.heads[branch] = commit

    def state(self, branch: str) -> State:
        return self.commits[self.heads[branch]].state

    def ancestors(self, commit: str) -> set[str]:
        found = {commit}
        for parent in self.commits[commit].parents:
            found |= self.ancestors(parent)
        return found

    def bases(self, left: list[str], right: list[str]) -> list[str]:
        sides = [{found for commit in side for found in self.ancestors(commit)} for side in (left, right)]
        common = sides[0] & sides[1]
        best = [one for one in common if not any(one in self.ancestors(other) - {other} for other in common)]
        return sorted(best, key=lambda commit: -self.commits[commit].number)

    def base(self, bases: list[str]) -> Any:
        """One base of several, two at a time."""
        one: Any = self.commits[bases[0]].state
        for number, other in enumerate(bases[1:], 1):
            older = self.base(self.bases(bases[:number], [other]))
            one = two_bases(one, self.commits[other].state, older)
        return one


def row(table: str, chance: random.Random) -> dict[str, Any]:
    some = [None, 1, 2]
    if table == "Person":
        mail = chance.choice([None, None, None, "x@x", "y@x"])
        return person(chance.choice(PEOPLE), age=chance.choice(some), mail=mail, city=chance.choice([None, "p", "q"]))
    src, dst = chance.choice(PEOPLE), chance.choice(PEOPLE)
    if table == "Boss":
        return boss(f"b{chance.randint(0, 3)}", src, dst)
    return knows(f"k{chance.randint(0, 4)}", src, dst, chance.choice(some))


def without(state: State, table: str, ids: list[str]) -> State:
    after = deepcopy(state)
    for id in ids:
        after[table].pop(id, None)
    for edges in ("Knows", "Boss"):
        after[edges] = {
            id: edge
            for id, edge in after[edges].items()
            if table != "Person" or not {edge["src"], edge["dst"]} & set(ids)
        }
    return after


def write(graph: og.Graph, model: Model, branch: str, chance: random.Random) -> None:
    table = chance.choice(["Person", "Person", "Knows", "Boss"])
    state = model.state(branch)
    try:
        with graph.transaction(branch) as tx:
            if chance.random() < 0.3:
                ids = [row(table, chance)["id"]]
                after = without(state, table, ids)
                tx.delete(table, ids=ids)
            else:
                rows = {one["id"]: one for one in (row(table, chance) for _ in range(chance.randint(1, 3)))}
                after = {**state, table: {**state[table], **rows}}
                tx.upsert(table, list(rows.values()))
    except ConstraintError:
        return
    if tx.receipt.commit is not None:
        model.add(branch, tx.receipt.commit, after)


def merge(graph: og.Graph, model: Model, source: str, target: str, policy: str) -> str:
    """Merge in both worlds and compare; return the outcome."""
    theirs, ours = model.heads[source], model.heads[target]
    bases = model.bases([theirs], [ours])
    outcome, conflicts = merged(graph, source, target, policy)
    if bases == [theirs]:
        assert outcome == "AlreadyUpToDate"
        return outcome
    after: State
    in_the_way: Conflicts
    if bases == [ours]:
        after, in_the_way = model.state(source), set()
    else:
        after, in_the_way = expected(model.base(bases), model.state(target), model.state(source), policy)
    assert conflicts == in_the_way, (bases, policy)
    if conflicts:
        assert graph.branches.get(target).head == ours
        return outcome
    assert outcome == ("FastForward" if bases == [ours] else "Merged")
    model.add(target, graph.branches.get(target).head, after, theirs)
    assert graph.snapshot(target).commit.parents == (ours, theirs)
    assert merged(graph, source, target)[0] == "AlreadyUpToDate", "what was merged is merged"
    return outcome


def symmetric(graph: og.Graph, model: Model, one: str, other: str, number: int) -> None:
    """Merging either into the other leaves the same graph, or meets the same rows.

    Where rows conflict, constraints are judged with the target's own, so what they say may differ.
    """
    answers = []
    for source, target in ((one, other), (other, one)):
        fork = f"fork-{number}-{target}"
        graph.branches.create(fork, from_=target)
        _, conflicts = merged(graph, source, fork)
        rows = {conflict for conflict in conflicts if conflict[1]}
        answers.append((rows or conflicts, None if conflicts else content(graph, fork)))
        graph.branches.delete(fork)
    up_to_date = model.heads[one] in model.ancestors(model.heads[other])
    ahead = model.heads[other] in model.ancestors(model.heads[one])
    if not up_to_date and not ahead:
        assert answers[0] == answers[1]


def lost_and_found(base: State, ours: State, theirs: State, after: State) -> None:
    """No row comes back that one side deleted and the other left alone, and none is lost that one side alone wrote."""
    for table, rows in base.items():
        for id, was in rows.items():
            gone = id not in ours[table] or id not in theirs[table]
            alone = ours[table].get(id, was) == was and theirs[table].get(id, was) == was
            assert not (gone and alone and id in after[table])
    for mine, other in ((ours, theirs), (theirs, ours)):
        for table, rows in mine.items():
            for id, one in rows.items():
                if base[table].get(id) != one and other[table].get(id) == base[table].get(id):
                    assert after[table].get(id) == one


@pytest.mark.parametrize("seed", range(WALKS))
def test_random_histories_merge_as_dictionaries_do(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    graph, model = begun(tmp_path)
    outcomes: list[str] = []
    for number in range(STEPS):
        names = list(model.heads)
        act = chance.choice(["write"] * 4 + ["merge"] * 4 + ["fork", "delete", "symmetric"])
        if act == "fork" or len(names) == 1:
            if len(names) < BRANCHES_MAX:
                fork(graph, model, f"b{number}", chance.choice(names))
        elif act == "write":
            write(graph, model, chance.choice(names), chance)
        elif act == "delete" and len(names) > 2:
            name = chance.choice(names[1:])
            graph.branches.delete(name)
            del model.heads[name]
        else:
            one, other = chance.sample(names, 2)
            if act == "merge":
                outcomes.append(merge(graph, model, one, other, chance.choice(POLICIES)))
            else:
                symmetric(graph, model, one, other, number)
        for name in model.heads:
            assert content(graph, name) == model.state(name), f"seed {seed}, step {number}, {act}: {name}"
    assert {"Merged", "FastForward"} & set(outcomes), "a walk without merges shows nothing"


@pytest.mark.parametrize("seed", range(WALKS))
def test_two_branches_that_cross_again_and_again_merge_as_dictionaries_do(tmp_path: Path, seed: int) -> None:
    chance = random.Random(1_000 + seed)
    graph, model = begun(tmp_path)
    fork(graph, model, "other", "main")
    crossed = 0
    for number in range(4):
        for name in ("main", "other"):
            touch(graph, model, name, chance)
            fork(graph, model, f"{name}-{number}", name)
        for source, target in ((f"other-{number}", "main"), (f"main-{number}", "other")):
            merge(graph, model, source, target, "ours")
            touch(graph, model, target, chance)
        crossed += len(model.bases([model.heads["main"]], [model.heads["other"]])) > 1
        merge(graph, model, "other", "main", chance.choice(POLICIES))
        assert content(graph) == model.state("main")
    assert crossed, "histories that never cross show nothing"


def begun(folder: Path) -> tuple[og.Graph, Model]:
    """A graph with some people, in both worlds."""
    graph, model = og.init(folder / "g", SCHEMA), Model()
    model.add("main", graph.refresh().id, {"Person": {}, "Knows": {}, "Boss": {}})
    write_people(graph, model)
    return graph, model


def fork(graph: og.Graph, model: Model, name: str, source: str) -> None:
    graph.branches.create(name, from_=source)
    model.heads[name] = model.heads[source]


def touch(graph: og.Graph, model: Model, branch: str, chance: random.Random) -> None:
    """Change people in ways that no constraint minds: few of them, so that branches meet in the same rows."""
    state = model.state(branch)
    rows = {
        name: person(name, age=chance.choice([1, 2, 3]), city=chance.choice(["p", "q"]))
        for name in chance.sample(PEOPLE[:3], 2)
    }
    gone = [chance.choice(PEOPLE[:3])] if chance.random() < 0.3 else []
    with graph.transaction(branch) as tx:
        tx.upsert("Person", list(rows.values()))
    after = {**state, "Person": {**state["Person"], **rows}}
    if tx.receipt.commit is not None:
        model.add(branch, tx.receipt.commit, after)
    with graph.transaction(branch) as tx:
        tx.delete("Person", ids=gone)
    if tx.receipt.commit is not None:
        model.add(branch, tx.receipt.commit, without(after, "Person", gone))


def write_people(graph: og.Graph, model: Model) -> None:
    rows = {name: person(name) for name in PEOPLE}
    with graph.transaction() as tx:
        tx.upsert("Person", list(rows.values()))
    assert tx.receipt.commit is not None
    model.add("main", tx.receipt.commit, {**model.state("main"), "Person": rows})


@pytest.mark.parametrize("seed", range(WALKS))
def test_no_row_comes_back_and_none_is_lost(tmp_path: Path, seed: int) -> None:
    chance = random.Random(2_000 + seed)
    graph, model = begun(tmp_path)
    merges = 0
    for number in range(6):
        name = f"b{number}"
        fork(graph, model, name, "main")
        base = model.state("main")
        for branch in (name, "main", name):
            write(graph, model, branch, chance)
        ours, theirs = model.state("main"), model.state(name)
        if merge(graph, model, name, "main", "fail") in ("Merged", "FastForward"):
            lost_and_found(base, ours, theirs, content(graph))
            merges += 1
    assert merges, "a walk without merges shows nothing"
