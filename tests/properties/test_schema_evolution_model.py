"""Random chains of schema changes and writes against a model that rewrites every row; old snapshots never change."""

import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og

WALKS = 60 if os.environ.get("OMNIGRAPH_DEEP") else 6
STEPS = 22
NAMES = ("a", "b", "c", "d")
IDS = ("k1", "k2", "k3", "k4", "k5", "k6")
WIDER = {"I32": "I64", "U32": "U64", "F32": "F64"}
VALUES: dict[str, tuple[Any, ...]] = {
    "I32": (-5, 0, 7),
    "I64": (-5, 2**40),
    "U32": (0, 9),
    "U64": (1, 2**60),
    "F32": (0.5, -2.0),
    "F64": (0.1, 3.0),
    "String": ("", "x", "ü"),
    "[I32]": ([], [1, None]),
    "Bool": (True, False),
}
FORMULAS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "String": ("'<' || upper(key) || '>'", lambda key: f"<{key.upper()}>"),
    "I64": ("length(key) * -1000000007", lambda key: len(key) * -1000000007),
    "F64": ("length(id) / 4", lambda key: len(key) / 4),
    "Bool": ("key >= 'k3'", lambda key: key >= "k3"),
}
"""Expressions that fill a property, and what they make of a key."""


@dataclass
class Property:
    """A property, as the model has it: an object is an identity."""

    name: str
    type: str
    nullable: bool


@dataclass
class Model:
    """One branch: its properties in order, and its rows, each a dictionary by property object."""

    properties: list[Property] = field(default_factory=list)
    rows: dict[str, dict[int, Any]] = field(default_factory=dict)

    def copy(self) -> "Model":
        return Model([*self.properties], {key: dict(row) for key, row in self.rows.items()})

    def text(self, notes: dict[int, str] | None = None) -> str:
        said = notes or {}
        lines = [f"{p.name}: {p.type}{'?' if p.nullable else ''} {said.get(id(p), '')}" for p in self.properties]
        return "node Thing { key: String @key\n" + "\n".join(lines) + "\n}"

    def told(self) -> list[dict[str, Any]]:
        return [
            {"id": key, "key": key, **{p.name: self.rows[key].get(id(p)) for p in self.properties}}
            for key in sorted(self.rows)
        ]


class Walk:
    """One random history of a graph, remembered twice."""

    def __init__(self, root: Path, seed: int) -> None:
        self.dice = random.Random(seed)
        self.kept: list[Property] = []  # identities must not be reused while they are keys
        self.models = {"main": Model()}
        self.graph = og.init(root, self.models["main"].text())
        self.history: list[tuple[str, list[dict[str, Any]]]] = []

    def run(self, steps: int) -> None:
        acts = [self.add, self.add, self.drop, self.rename, self.widen, self.relax, self.require, self.move]
        acts += [self.write] * 6 + [self.delete, self.fork]
        for _ in range(steps):
            branch = self.dice.choice(sorted(self.models))
            self.dice.choice(acts)(branch)
            head = self.graph.snapshot(branch)
            assert self.read(head) == self.models[branch].told()
            self.history.append((head.commit.id, self.models[branch].told()))
        for commit, told in self.history:
            assert self.read(self.graph.snapshot(commit=commit)) == told

    @staticmethod
    def read(snapshot: og.Snapshot) -> list[dict[str, Any]]:
        return sorted(snapshot.read("Thing").to_pylist(), key=lambda row: str(row["id"]))

    def apply(self, branch: str, model: Model, notes: dict[int, str] | None = None) -> None:
        self.graph.schema.apply(model.text(notes), branch)
        self.models[branch] = model

    def _free(self, model: Model) -> str | None:
        left = [name for name in NAMES if name not in {p.name for p in model.properties}]
        return self.dice.choice(left) if left else None

    # -- schema changes -------------------------------------------------------------------------------

    def add(self, branch: str) -> None:
        model = self.models[branch].copy()
        name = self._free(model)
        if name is None:
            return
        made = Property(name, self.dice.choice(sorted(VALUES)), nullable=self.dice.random() < 0.6)
        self.kept.append(made)
        model.properties.insert(self.dice.randrange(len(model.properties) + 1), made)
        notes = {}
        formula = FORMULAS.get(made.type)
        if formula is not None and self.dice.random() < 0.5:
            notes[id(made)] = f'@backfill(expr="{formula[0]}")'
            for key, row in model.rows.items():
                row[id(made)] = formula[1](key)
        elif not made.nullable or self.dice.random() < 0.3:
            value = self.dice.choice(VALUES[made.type])
            text = str(value).replace("None", "null").replace("True", "true").replace("False", "false")
            notes[id(made)] = f'@backfill("{text}")'
            for row in model.rows.values():
                row[id(made)] = value
        self.apply(branch, model, notes)

    def drop(self, branch: str) -> None:
        model = self.models[branch].copy()
        if model.properties:
            model.properties.remove(self.dice.choice(model.properties))
            hard = self.dice.random() < 0.3
            self.graph.schema.apply(model.text(), branch, allow_data_loss=hard)
            self.models[branch] = model

    def rename(self, branch: str) -> None:
        model = self.models[branch].copy()
        name = self._free(model)
        if name is not None and model.properties:
            old = self.dice.choice(model.properties)
            self._replace(branch, model, old, Property(name, old.type, old.nullable), f'@rename_from("{old.name}")')

    def widen(self, branch: str) -> None:
        self._retyped(branch, lambda p: Property(p.name, WIDER[p.type], p.nullable) if p.type in WIDER else None)

    def relax(self, branch: str) -> None:
        self._retyped(branch, lambda p: None if p.nullable else Property(p.name, p.type, nullable=True))

    def require(self, branch: str) -> None:
        model = self.models[branch]

        def required(p: Property) -> Property | None:
            full = all(row.get(id(p)) is not None for row in model.rows.values())
            return Property(p.name, p.type, nullable=False) if p.nullable and full else None

        self._retyped(branch, required)

    def move(self, branch: str) -> None:
        model = self.models[branch].copy()
        self.dice.shuffle(model.properties)
        self.apply(branch, model)

    def _retyped(self, branch: str, change: Any) -> None:
        model = self.models[branch].copy()
        able = [(p, change(p)) for p in model.properties if change(p) is not None]
        if able:
            self._replace(branch, model, *self.dice.choice(able))

    def _replace(self, branch: str, model: Model, old: Property, new: Property, note: str = "") -> None:
        """Rewrite every row, as no sane store would."""
        self.kept.append(new)
        model.properties[model.properties.index(old)] = new
        for row in model.rows.values():
            if id(old) in row:
                row[id(new)] = row[id(old)]
        self.apply(branch, model, {id(new): note})

    # -- writes ---------------------------------------------------------------------------------------

    def write(self, branch: str) -> None:
        model = self.models[branch].copy()
        chosen = self.dice.sample(IDS, self.dice.randint(1, 3))
        for key in chosen:
            model.rows[key] = {id(p): self._value(p) for p in model.properties}
        rows = [row for row in model.told() if row["key"] in chosen]
        with self.graph.transaction(branch) as tx:
            tx.upsert("Thing", rows)
        self.models[branch] = model

    def _value(self, column: Property) -> Any:
        choices = VALUES[column.type] + ((None,) if column.nullable else ())
        return self.dice.choice(choices)

    def delete(self, branch: str) -> None:
        model = self.models[branch].copy()
        if model.rows:
            key = self.dice.choice(sorted(model.rows))
            del model.rows[key]
            with self.graph.transaction(branch) as tx:
                tx.delete("Thing", ids=[key])
            self.models[branch] = model

    def fork(self, branch: str) -> None:
        if len(self.models) < 3:
            name = f"b{len(self.models)}"
            self.graph.branches.create(name, from_=branch)
            self.models[name] = self.models[branch].copy()


@pytest.mark.parametrize("seed", range(WALKS))
def test_any_chain_of_changes_and_writes_is_what_rewriting_everything_would_be(seed: int, tmp_path: Path) -> None:
    Walk(tmp_path / "g", seed).run(STEPS)
