"""Random walks of writes, merges, index builds and compactions: no filter and no search finds anything but what is so.

Filters are asked with indexes and without, and some of them of a dictionary that was written to in the same way.
"""

import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.engine.index_kit import EVERY_FILTER, SCHEMA, VECTORS, covered, found, handle, thing, wrong
from tests.engine.near_kit import Near

import omnigraph as og
from omnigraph.errors import OmnigraphError

IS_DEEP = os.environ.get("OMNIGRAPH_DEEP") == "1"
WALKS = 40 if IS_DEEP else 3
STEPS = 40 if IS_DEEP else 14
NAMES = [f"t{number}" for number in range(420)]
ASKED: dict[str, Callable[[dict[str, Any]], bool]] = {
    "i32 = 5": lambda row: row["i32"] == 5,
    "u64 > 5": lambda row: row["u64"] is not None and row["u64"] > 5,
    "ok": lambda row: row["ok"] is True,
    "ok IS NULL": lambda row: row["ok"] is None,
    "state IN ('open', 'done')": lambda row: row["state"] in ("open", "done"),
    "bio = 'ä über'": lambda row: row["bio"] == "ä über",
    "day IS NULL AND NOT ok": lambda row: row["day"] is None and row["ok"] is False,
}


@dataclass
class Walk:
    """A graph, and what it must hold."""

    graph: og.Graph
    chance: random.Random
    model: dict[str, dict[str, Any]] = field(default_factory=dict)

    def some(self, names: list[str], most: int) -> list[str]:
        return self.chance.sample(names, min(len(names), self.chance.randint(1, most)))

    def write(self, names: list[str], verb: str = "upsert", branch: str = "main") -> None:
        rows = [thing(name, self.chance) for name in names]
        with self.graph.transaction(branch) as tx:
            getattr(tx, verb)("Thing", rows)
        self.model |= {row["name"]: row for row in rows}

    def append(self) -> None:
        self.write(self.some([name for name in NAMES if name not in self.model] or ["more"], 60))

    def upsert(self) -> None:
        self.write(self.some(sorted(self.model) or NAMES, 40))

    def upsert_twice(self) -> None:
        names = self.some(sorted(self.model) or NAMES, 10)
        self.write(names)
        self.write(names)

    def delete(self) -> None:
        gone = self.some(sorted(self.model) or ["nobody"], 60)
        with self.graph.transaction() as tx:
            tx.delete("Thing", ids=gone)
        self.model = {name: row for name, row in self.model.items() if name not in gone}

    def overwrite(self) -> None:
        self.model = {}
        self.write(self.some(NAMES, 400), "overwrite")

    def aside(self) -> None:
        """Write on a branch, index it or not, and merge it."""
        self.graph.branches.create("side")
        if self.chance.random() < 0.5:
            self.graph.ensure_indices("side")
        self.write(self.some(NAMES, 20), branch="side")
        if self.chance.random() < 0.5:
            self.graph.ensure_indices("side")
        self.graph.branches.merge("side", delete_source=True)

    def index(self) -> None:
        report = self.graph.ensure_indices()
        bare = {name for name, is_it in covered(self.graph).items() if not is_it}
        assert bare <= set(VECTORS)
        assert {key.removeprefix("node:Thing.") for key in report.pending} == bare

    def optimize(self) -> None:
        before = {name for name, is_it in covered(self.graph).items() if is_it}
        report = self.graph.optimize(rows_per_fragment=self.chance.choice([50, 1_000]))
        assert report.troubles == ()
        assert before - set(VECTORS) <= {name for name, is_it in covered(self.graph).items() if is_it}

    def check(self) -> None:
        rows = self.graph.snapshot().read("Thing", columns=["id", "i32", "mail", "bio", "vec"]).to_pylist()
        assert {row["id"]: row["mail"] for row in rows} == {name: row["mail"] for name, row in self.model.items()}
        if not rows:
            return
        table = handle(self.graph, "Thing")
        assert wrong(table, self.chance.sample(EVERY_FILTER, 25)) == []
        for where, holds in ASKED.items():
            assert found(table, where) == sorted(name for name, row in self.model.items() if holds(row)), where
        point = {"column": "odd", "q": [self.chance.random() for _ in range(3)], "k": 5, "nprobes": 100}
        near = [
            table.scanner(["id", "_distance"], nearest={**point, "refine_factor": 100, "use_index": use}).to_table()
            for use in (True, False)
        ]
        assert near[0].column("_distance").to_pylist() == pytest.approx(near[1].column("_distance").to_pylist())
        asked = {"query": "lazy", "columns": ["bio"]}
        heard = table.scanner(["id", "_score"], full_text_query=asked).to_table().column("id").to_pylist()
        assert sorted(heard) == sorted(n for n, row in self.model.items() if row["bio"] == "the lazy dog")


@pytest.mark.parametrize("seed", range(WALKS))
def test_indexes_never_change_what_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    chance = random.Random(seed)
    monkeypatch.setattr("omnigraph.rules.indexes.SEGMENT_ROWS", chance.choice([60, 1_000_000]))
    monkeypatch.setattr("omnigraph.engine.indexing.SEGMENTS_MAX", chance.choice([3, 12]))
    graph = og.init(tmp_path / "g", SCHEMA)
    walk = Walk(graph.with_engine(Near()) if seed % 3 == 2 else graph, chance)
    walk.write(walk.some(NAMES, 400))
    steps = [walk.append, walk.upsert, walk.upsert_twice, walk.delete, walk.overwrite, walk.aside]
    for number in range(STEPS):
        act = walk.index if number % 3 == 1 else chance.choice([*steps, walk.optimize])
        try:
            act()
            walk.check()
        except OmnigraphError as problem:
            raise AssertionError(f"step {number}, {act.__name__}: {problem}") from problem
        except AssertionError as wrong_answer:
            raise AssertionError(f"step {number}, {act.__name__}: {wrong_answer}") from wrong_answer
    assert graph.verify(deep=True).is_sound
