"""Random histories: folding the feed of any range over the first snapshot gives the last."""

import os
import random
from pathlib import Path

import pytest
from tests.engine.feed_kit import Rows, fold, of_all, rows_at, told
from tests.engine.merge_kit import KEYS
from tests.properties.test_merge_model import Model, begun, fork, merge, write

import omnigraph as og
from omnigraph.engine import feed_parts, feed_steps

DEEP = os.environ.get("OMNIGRAPH_DEEP") == "1"
WALKS = 60 if DEEP else 2
STEPS = 60 if DEEP else 25
RANGES = 40 if DEEP else 8
POLICIES = ("ours", "theirs")


def walk(graph: og.Graph, model: Model, chance: random.Random) -> None:
    """Let branches be written, merged, restored, forked and deleted."""
    for number in range(STEPS):
        names = list(model.heads)
        act = chance.choice(["write"] * 6 + ["merge"] * 2 + ["fork", "delete", "restore", "index", "overwrite"])
        name = chance.choice(names)
        if act == "fork" and len(names) < 4:
            fork(graph, model, f"b{number}", name)
        elif act == "delete" and len(names) > 2:
            name = chance.choice(names[1:])
            graph.branches.delete(name)
            del model.heads[name]
        elif act == "merge" and len(names) > 1:
            one, other = chance.sample(names, 2)
            merge(graph, model, one, other, chance.choice(POLICIES))
        elif act == "restore":
            version = chance.randint(2, graph.branches.get(name).version)
            was = graph.snapshot(name, version=version).commit
            commit = graph.restore(name, to=was)
            model.add(name, commit.id, model.commits[was.id].state)
        elif act == "index":
            state = model.state(name)
            graph.ensure_indices(name)
            if graph.branches.get(name).head != model.heads[name]:
                model.add(name, graph.branches.get(name).head, state)
        elif act == "overwrite":
            state = model.state(name)
            with graph.transaction(name) as tx:
                tx.overwrite("Knows", list(state["Knows"].values())[::2])
            if tx.receipt.commit is not None:
                kept = dict(list(state["Knows"].items())[::2])
                model.add(name, tx.receipt.commit, {**state, "Knows": kept})
        else:
            write(graph, model, name, chance)


@pytest.mark.parametrize("seed", range(WALKS))
def test_folding_the_feed_of_any_range_over_the_first_snapshot_gives_the_last(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if seed % 2:
        monkeypatch.setattr(feed_parts, "FEW_ROWS_MAX", 0)  # the engine tells what Arrow tells
    chance = random.Random(seed)
    graph, model = begun(tmp_path)
    walk(graph, model, chance)
    changed = 0
    for _ in range(RANGES):
        branch = chance.choice(list(model.heads))
        first, last = sorted(chance.choices(range(graph.branches.get(branch).version + 1), k=2))
        if last == 0:
            continue
        changes = graph.changes(branch, since=first, until=last)
        net = graph.changes(branch, since=first, until=last, net=True)
        every = told(changes, None)
        for type, key in KEYS.items():
            start, end = (rows_at(graph, type, version, branch) for version in (first, last))
            feed = told(changes, type)
            assert fold(start, feed) == end, f"seed {seed}: {type} of {branch} from {first} to {last}"
            assert fold(start, told(net, type)) == end, f"seed {seed}: net, {type} of {branch} from {first} to {last}"
            assert sorted(map(str, of_all(every, key))) == sorted(map(str, [_ordered(row) for row in feed]))
            changed += len(feed)
    assert changed, "a walk in which nothing changes shows nothing"


def _ordered(row: dict[str, object]) -> dict[str, object]:
    """A row with its columns in the order in which a record has them: the ends of an edge after its values."""
    ends = {name: row[name] for name in ("src", "dst") if name in row}
    told_of = {name: value for name, value in row.items() if name.startswith("_")}
    return {name: value for name, value in row.items() if name not in (*ends, *told_of)} | ends | told_of


# -- commits that put rows ----------------------------------------------------------------------------------


def put(graph: og.Graph, chance: random.Random, hot: int) -> None:
    """Write a few people: new ones, some that are there, often the same; or change only how they are stored."""
    act = chance.choice(["put"] * 12 + ["index", "optimize", "delete", "append"])
    if act == "index":
        graph.ensure_indices()
        return
    if act == "optimize":
        graph.optimize()
        return
    with graph.transaction() as tx:
        names = {f"p{chance.randrange(hot)}" for _ in range(chance.randint(1, 6))}
        if act == "delete":
            tx.delete("Person", ids=sorted(names))
        elif act == "append":
            tx.append("Person", [{"name": f"new{graph.refresh().version}-{number}"} for number in range(3)])
        else:
            tx.upsert("Person", [{"name": name, "age": chance.choice([0, 1, 2, None])} for name in sorted(names)])


@pytest.mark.parametrize("hot", [8, 60, 100_000])
@pytest.mark.parametrize("seed", range(WALKS))
def test_commits_told_many_at_once_are_told_as_one_by_one(
    tmp_path: Path, seed: int, hot: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    graph = og.init(tmp_path / "g", "node Person { name: String @key  age: I32? }")
    with graph.transaction() as tx:
        tx.append("Person", [{"name": f"p{number}", "age": 0} for number in range(60)])
    for _ in range(STEPS * 2):
        put(graph, chance, hot)
    last = graph.refresh().version
    for most in (5, 20_000):
        monkeypatch.setattr(feed_steps, "FEW_ROWS_MAX", most)
        for _ in range(RANGES):
            first, end = sorted(chance.choices(range(1, last + 1), k=2))
            feed = told(graph.changes(since=first, until=end))
            assert [row["_commit_version"] for row in feed] == sorted(row["_commit_version"] for row in feed)
            assert fold(rows_at(graph, "Person", first), feed) == rows_at(graph, "Person", end)
            with monkeypatch.context() as alone:
                alone.setattr(feed_parts, "runs_of", lambda steps: [[step] for step in steps])
                assert sorted(map(str, feed)) == sorted(map(str, told(graph.changes(since=first, until=end))))


# -- schemas that change ------------------------------------------------------------------------------------


def schema_of(columns: dict[str, str]) -> str:
    return "node Person { name: String @key  " + "  ".join(f"{name}: {kind}" for name, kind in columns.items()) + " }"


def evolve(graph: og.Graph, columns: dict[str, str], number: int, chance: random.Random) -> None:
    """Add, fill, rename, drop or widen a property."""
    act = chance.choice(["add", "fill", "rename", "drop", "widen"]) if columns else "add"
    told_once = ""
    if act in ("add", "fill"):
        columns[f"p{number}"] = "I32?"
        told_once = f'p{number}: I32? @backfill("{number}")' if act == "fill" else ""
    else:
        name = chance.choice(list(columns))
        kind = columns.pop(name)
        if act == "widen":
            columns[name] = "I64?"
        elif act == "rename":
            columns[f"r{number}"] = kind
            told_once = f'r{number}: {kind} @rename_from("{name}")'
    text = schema_of(columns)
    plain = told_once.partition(" @")[0]
    graph.schema.apply(text.replace(plain, told_once) if told_once else text)


def shown_at(graph: og.Graph, version: int, last: int) -> Rows:
    """The rows of a version as a later schema shows them: by the identity of properties."""
    if version == 0:
        return {}
    there, shown = (graph.snapshot(version=each).catalog.table_type("Person") for each in (version, last))
    names = {column.id: column.name for column in there.properties}
    return {
        id: {"id": id} | {column.name: row.get(names.get(column.id, "")) for column in shown.properties}
        for id, row in rows_at(graph, "Person", version).items()
    }


@pytest.mark.parametrize("seed", range(WALKS))
def test_a_feed_over_schemas_that_change_folds_in_the_last_of_them(tmp_path: Path, seed: int) -> None:
    chance = random.Random(500 + seed)
    graph = evolved(tmp_path, chance)
    changed = 0
    for _ in range(RANGES):
        first, last = sorted(chance.choices(range(graph.refresh().version + 1), k=2))
        if last == 0:
            continue
        for net in (False, True):
            feed = told(graph.changes(since=first, until=last, net=net))
            assert fold(shown_at(graph, first, last), feed) == rows_at(graph, "Person", last), f"{seed}: {first}-{last}"
            changed += len(feed)
    assert changed, "a walk in which nothing changes shows nothing"


def evolved(folder: Path, chance: random.Random) -> og.Graph:
    """Make a graph with a history of rows and of schemas."""
    columns = {"age": "I32?"}
    graph = og.init(folder / "g", schema_of(columns))
    for number in range(STEPS):
        ids = [f"n{chance.randint(0, 9)}" for _ in range(3)]
        act = chance.choice(["upsert", "upsert", "append", "delete", "evolve"])
        if act == "evolve":
            evolve(graph, columns, number, chance)
            continue
        rows = [{"name": id} | {name: chance.choice([None, 1, 2]) for name in columns} for id in dict.fromkeys(ids)]
        with graph.transaction() as tx:
            if act == "delete":
                tx.delete("Person", ids=ids)
            elif act == "append":
                tx.append("Person", [{**rows[0], "name": f"new-{number}"}])
            else:
                tx.upsert("Person", rows)
    return graph
