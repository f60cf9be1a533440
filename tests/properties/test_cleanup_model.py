"""Random graphs with branches, tags, merges, dead writers, staged jobs, compactions and cleanups at any moment.

After every cleanup each snapshot that anyone can reach reads as it did before; after a last one nothing is left that
nobody can reach.
"""

import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.engine.upkeep_kit import SCHEMA, aged, content, die_at, person, reachable, table_files, units

import omnigraph as og
from omnigraph.engine.parts import Begun
from omnigraph.errors import CommitExpiredError, ConstraintError, ContentionError, MergeConflictsError, OmnigraphError
from omnigraph.failpoints import FailpointError

WALKS = 60 if os.environ.get("OMNIGRAPH_DEEP") == "1" else 4
STEPS = 60 if os.environ.get("OMNIGRAPH_DEEP") == "1" else 30
NAMES = [f"n{number}" for number in range(12)]
POINTS = ("stage.after", "commit.after_sidecar", "commit.after_first_seal", "commit.after_seals", "publish.before_swap")


@dataclass
class Walk:
    """A graph, and what every commit showed when it was made."""

    root: Path
    chance: random.Random
    patch: pytest.MonkeyPatch
    graph: og.Graph = field(init=False)
    shown: dict[str, dict[str, list[dict[str, Any]]]] = field(default_factory=dict)
    jobs: list[tuple[Begun, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.graph = og.init(self.root, SCHEMA)
        self.look()

    def look(self) -> None:
        """Remember what commits show that were not seen before: a write may have finished another one first."""
        for branch in self.graph.branches.list():
            for commit in self.graph.iter_log(branch.name):
                if commit.id in self.shown:
                    break
                self.shown[commit.id] = content(self.graph.snapshot(commit=commit.id))

    def branch(self) -> str:
        return self.chance.choice([branch.name for branch in self.graph.branches.list()])

    def write(self) -> None:
        people = [person(name, age=self.chance.randrange(99)) for name in self.chance.sample(NAMES, 3)]
        with self.graph.transaction(self.branch()) as tx:
            tx.upsert("Person", people)
            if self.chance.random() < 0.5:
                tx.upsert("Knows", [{"id": "k", "src": people[0]["name"], "dst": people[1]["name"]}])
            if self.chance.random() < 0.3:
                tx.overwrite("Photo", [{"name": "one", "image": self.chance.randbytes(50)}])

    def delete(self) -> None:
        with self.graph.transaction(self.branch()) as tx:
            tx.delete("Person", ids=self.chance.sample(NAMES, 2))

    def fork(self) -> None:
        if len(self.graph.branches.list()) < 4:
            self.graph.branches.create(f"b{self.chance.randrange(10**9)}", from_=self.branch())

    def drop(self) -> None:
        name = self.branch()
        if name != "main":
            self.graph.branches.delete(name)

    def tag(self) -> None:
        logged = [one for one in self.graph.log(self.branch(), limit=None) if one.expired_at is None]
        tag = self.graph.tags.create(f"t{self.chance.randrange(10**9)}", at=self.chance.choice(logged).id)
        assert tag.commit in self.shown

    def untag(self) -> None:
        tags = self.graph.tags.list()
        if tags:
            self.graph.tags.delete(self.chance.choice(tags).name)

    def merge(self) -> None:
        source, target = self.branch(), self.branch()
        if source != target:
            try:
                self.graph.branches.merge(source, into=target, policy="theirs")
            except (MergeConflictsError, ConstraintError):
                return

    def die(self) -> None:
        live = die_at(self.patch, self.chance.choice(POINTS))
        try:
            self.write()
        except FailpointError:
            self.look()
        finally:
            live()

    def recover(self) -> None:
        self.graph.recover()

    def begin_job(self) -> None:
        branch = self.graph.branches.get(self.branch())
        begun = self.graph.announce(Begun(base=branch.head, incarnation=branch.incarnation), ["Person"])
        order = self.graph.snapshot(commit=begun.base).order("Person", "upsert")
        rows = pa.Table.from_pylist([person(self.chance.choice(NAMES), age=1_000, tags=["x"])])
        self.jobs.append((begun, order.stage(rows.to_batches())))

    def end_job(self) -> None:
        if self.jobs:
            begun, part = self.jobs.pop(self.chance.randrange(len(self.jobs)))
            names = {branch.incarnation: branch.name for branch in self.graph.branches.list()}
            name = names.get(begun.incarnation) if begun.incarnation else None
            if name is None:
                self.graph._session.intents.forget(str(begun.operation))
                return
            with self.graph.transaction(name, begun=begun) as tx:
                tx.staged("Person", "upsert", [part])

    def optimize(self) -> None:
        try:
            rows, cluster = self.chance.choice([2, 1_000]), self.chance.random() < 0.5
            self.graph.optimize(self.branch(), rows_per_fragment=rows, cluster=cluster)
        except ContentionError:
            assert self.graph._session.sidecars.pending()

    def index(self) -> None:
        self.graph.ensure_indices(self.branch())

    def reopen(self) -> None:
        self.graph = og.open(self.root)

    def cleanup(self) -> None:
        """Clean up by some policy, and look whether all that can be reached is as it was."""
        keep = self.chance.choice([1, 1, 2, 5])
        gone = {commit for commit in self.shown if self.graph.commit(commit).expired_at is not None}
        aged(self.root, timedelta(hours=3))  # jobs and promises too: they are as old as what they stand for
        self.graph.cleanup(keep=keep, grace=self.chance.choice(["0s", "1h"]))
        self.check(keep, gone)

    def check(self, keep: int, gone: set[str]) -> None:
        for branch in self.graph.branches.list():
            for commit in self.graph.log(branch.name, limit=keep):
                if commit.id not in gone:
                    assert content(self.graph.snapshot(commit=commit.id)) == self.shown[commit.id]
        for tag in self.graph.tags.list():
            assert content(self.graph.snapshot(tag=tag.name)) == self.shown[tag.commit]
        for commit_id, shown in self.shown.items():
            try:
                snapshot = self.graph.snapshot(commit=commit_id)
            except CommitExpiredError:
                continue
            assert content(snapshot) == shown
        assert self.graph.verify().findings == ()


@pytest.mark.long
@pytest.mark.parametrize("seed", range(WALKS))
def test_what_can_be_reached_stays_and_in_the_end_nothing_else_is_left(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    walk = Walk(tmp_path / "g", random.Random(seed), monkeypatch)
    steps: list[Callable[[], None]] = [walk.write] * 6 + [walk.delete, walk.fork, walk.fork, walk.drop, walk.tag]
    steps += [walk.untag, walk.merge, walk.merge, walk.die, walk.recover, walk.begin_job, walk.end_job]
    steps += [walk.optimize, walk.index, walk.reopen, walk.cleanup, walk.cleanup]
    for _ in range(STEPS):
        step = walk.chance.choice(steps)
        try:
            step()
        except OmnigraphError as problem:
            raise AssertionError(f"{step.__name__} failed with {problem}") from problem
        walk.look()
    while walk.jobs:
        walk.end_job()
        walk.look()
    walk.graph.recover()
    walk.look()
    aged(walk.root)
    walk.graph.cleanup(keep=1)
    walk.check(1, set())
    assert units(table_files(walk.root)) == reachable(walk.graph)
    assert walk.graph.verify(deep=True).findings == ()
    copied(walk)


def copied(walk: Walk) -> None:
    """What is left of `main` alone is not larger than a fresh copy of it, but for what each file costs."""
    for branch in walk.graph.branches.list():
        if branch.name != "main":
            walk.graph.branches.delete(branch.name)
    for tag in walk.graph.tags.list():
        walk.graph.tags.delete(tag.name)
    walk.graph.optimize()
    aged(walk.root)
    walk.graph.cleanup(keep=1)
    target = walk.root.parent / "out.jsonl"
    walk.graph.export(target)
    copy = og.init(walk.root.parent / "copy", SCHEMA)
    copy.load(target)
    copy.ensure_indices()
    ours, fresh = (
        sum((root / name).stat().st_size for name in table_files(root) if "/data/" in name)
        for root in (walk.root, Path(copy.root))
    )
    assert ours <= fresh + 3 * 4_096
