"""Many processes that write, and some that die writing: what they say, and what must be there afterwards.

A child logs what it is about to do, does it, and logs how that went, each line flushed before it goes on. The
operation itself is the commit's ``user_metadata``, so that a graph's content follows from its commit log alone.
"""

import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from omnigraph.engine.graph import Graph
from omnigraph.model.lineage import Commit

SCHEMA = "\n".join(f"node {name} {{ name: String @key  value: I64? }}" for name in ("Ant", "Bee", "Cat"))
TABLES = ("Ant", "Bee", "Cat")
BRANCHES = ("main", "side")
SHARED_IDS = 60
POLL_SECONDS = 0.01
STORAGE_VARIABLE = "OMNIGRAPH_STORM_STORAGE"
PATIENCE_SECONDS = 900.0

Verb = Literal["append", "upsert", "delete"]
Rows = dict[str, int]
Content = dict[str, Rows]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One call on a transaction: rows by id, or only ids for a deletion."""

    verb: Verb
    table: str
    rows: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One transaction."""

    name: str
    branch: str
    steps: tuple[Step, ...]

    def to_json(self) -> str:
        """Return what a commit carries."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Operation":
        """Read what a commit carries."""
        body = json.loads(text)
        return cls(name=body["name"], branch=body["branch"], steps=tuple(Step(**step) for step in body["steps"]))


def invent(dice: random.Random, name: str, made: list[str]) -> Operation:
    """Make an operation up: additions to some tables, or deletions from some, mostly of ids that others use too."""
    branch = dice.choice(BRANCHES)
    tables = dice.sample(TABLES, dice.choice((1, 1, 2, 3)))
    deletes = dice.random() < 0.25
    steps = []
    for table in tables:
        verb: Verb = "delete" if deletes else dice.choice(("append", "append", "upsert"))
        shared = [f"s{dice.randrange(SHARED_IDS)}" for _ in range(dice.randint(1, 4))]
        new = [f"{name}-{number}" for number in range(dice.randint(1, 3))]
        if verb == "append":
            ids = new + (shared[:1] if dice.random() < 0.1 else [])
            made += new
        elif verb == "upsert":
            ids = shared + new[:1]
        else:
            ids = shared + dice.sample(made, min(2, len(made)))
        steps.append(Step(verb=verb, table=table, rows={id: dice.randrange(1_000_000) for id in dict.fromkeys(ids)}))
    return Operation(name=name, branch=branch, steps=tuple(steps))


def carry_out(graph: Graph, operation: Operation) -> str | None:
    """Write an operation as one transaction; return its commit."""
    with graph.transaction(operation.branch, user_metadata=operation.to_json()) as tx:
        for step in operation.steps:
            rows = [{"name": id, "value": value} for id, value in step.rows.items()]
            if step.verb == "append":
                tx.append(step.table, rows)
            elif step.verb == "upsert":
                tx.upsert(step.table, rows)
            else:
                tx.delete(step.table, ids=list(step.rows))
    return tx.receipt.commit


# -- the model ----------------------------------------------------------------------------------------


def fold(commits: Iterable[Commit]) -> Iterator[tuple[Commit, Content, dict[str, dict[str, int]]]]:
    """Replay a branch's commits, oldest first: yield each with the content it leaves and the metrics it must have."""
    content: Content = {table: {} for table in TABLES}
    for commit in commits:
        expected: dict[str, dict[str, int]] = {}
        if commit.user_metadata is not None:
            for step in Operation.from_json(commit.user_metadata).steps:
                expected[f"node:{step.table}"] = apply(step, content[step.table])
        yield commit, {table: dict(rows) for table, rows in content.items()}, expected


def apply(step: Step, rows: Rows) -> dict[str, int]:
    """Do one step to a dictionary, and count."""
    there = set(step.rows) & set(rows)
    if step.verb == "delete":
        for id in there:
            del rows[id]
        return {"rows_inserted": 0, "rows_updated": 0, "rows_deleted": len(there)}
    assert step.verb == "upsert" or not there, f"{sorted(there)} were inserted twice"
    updated = sum(rows[id] != step.rows[id] for id in there)
    rows.update(step.rows)
    return {"rows_inserted": len(step.rows) - len(there), "rows_updated": updated, "rows_deleted": 0}


# -- what the children said ---------------------------------------------------------------------------


@dataclass(slots=True)
class Account:
    """What the children said of their operations, by name."""

    intended: dict[str, Operation] = field(default_factory=dict)
    acknowledged: dict[str, str | None] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    unknown: dict[str, str] = field(default_factory=dict)

    @property
    def unanswered(self) -> set[str]:
        """Operations whose process died before it could say anything."""
        return set(self.intended) - set(self.acknowledged) - set(self.refused) - set(self.unknown)

    def read(self, log: Path) -> None:
        """Add one child's log; a line that was cut off by a kill says nothing."""
        for line in log.read_text(encoding="utf-8").splitlines(keepends=True):
            if line.endswith("\n"):
                self._hear(json.loads(line))

    def _hear(self, said: dict[str, Any]) -> None:
        match said["said"]:
            case "intend":
                operation = Operation.from_json(said["operation"])
                self.intended[operation.name] = operation
            case "done":
                self.acknowledged[said["name"]] = said["commit"]
            case "refused" if said["kind"] == "OUTCOME_UNKNOWN":
                self.unknown[said["name"]] = said["error"]
            case "refused":
                self.refused[said["name"]] = said["kind"]
            case other:
                raise AssertionError(f"a child said {other!r}")


@dataclass(slots=True)
class Storm:
    """Processes that write at once; those in ``victims`` are killed again and again and replaced."""

    root: str
    folder: Path
    processes: int
    transactions: int
    victims: int
    kills_each: int
    seed: int
    storage_options: Mapping[str, str] | None = None
    kills: int = 0
    problems: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def blow(self) -> Account:
        """Run until every slot has tried its transactions; return what was said."""
        slots = [threading.Thread(target=self._slot, args=(number,)) for number in range(self.processes)]
        for slot in slots:
            slot.start()
        for slot in slots:
            slot.join()
        assert not self.problems, "\n".join(self.problems)
        account = Account()
        for log in sorted(self.folder.glob("*.log")):
            account.read(log)
        return account

    def _slot(self, number: int) -> None:
        dice = random.Random(f"{self.seed}-{number}")
        left, life = self.transactions, 0
        while left > 0:
            name = f"{number}.{life}"
            is_victim = number < self.victims and life < self.kills_each
            # A life is as long as leaves something for those that follow.
            lives_until = dice.randint(1, max(1, left // (self.kills_each - life + 1))) if is_victim else None
            log = self.folder / f"{name}.log"
            left -= self._live(name, log, left, lives_until, dice.random() * 0.06)
            life += 1

    def _live(self, name: str, log: Path, left: int, lives_until: int | None, moment: float) -> int:
        """Run one process, killed a moment after an operation began if told so; return how many it began."""
        order = {"root": self.root, "log": str(log), "name": name, "times": left, "seed": self.seed}
        command = [sys.executable, "-m", "omnigraph.testing.storm", json.dumps(order)]
        environment = {**os.environ, STORAGE_VARIABLE: json.dumps(self.storage_options)}  # others see a command line
        process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
        if lives_until is not None:
            give_up_at = time.monotonic() + PATIENCE_SECONDS
            while _begun(log) < lives_until and process.poll() is None and time.monotonic() < give_up_at:
                time.sleep(POLL_SECONDS)
            time.sleep(moment)
            process.kill()
        _, err = process.communicate(timeout=PATIENCE_SECONDS)
        with self._lock:
            if process.returncode == -9 and lives_until is not None:
                self.kills += 1
            elif process.returncode != 0:
                self.problems.append(f"process {name} ended with {process.returncode}:\n{err}")
                return left
        return _begun(log)


def _begun(log: Path) -> int:
    return log.read_bytes().count(b'"intend"') if log.exists() else 0


# -- a child ------------------------------------------------------------------------------------------


def main(order: Mapping[str, Any]) -> None:
    """Write as often as told, and log it."""
    import omnigraph
    from omnigraph.errors import OmnigraphError

    dice = random.Random(f"{order['seed']}-{order['name']}")
    made: list[str] = []
    with Path(order["log"]).open("w", encoding="utf-8") as log:

        def say(**line: Any) -> None:
            log.write(json.dumps(line) + "\n")
            log.flush()

        options = json.loads(os.environ.get(STORAGE_VARIABLE, "null"))
        graph = omnigraph.open(order["root"], storage_options=options, actor=f"storm-{order['name']}")
        for number in range(order["times"]):
            operation = invent(dice, f"{order['name']}.{number}", made)
            say(said="intend", operation=operation.to_json())
            try:
                commit = carry_out(graph, operation)
            except OmnigraphError as refused:
                say(said="refused", name=operation.name, kind=refused.code, error=str(refused))
            else:
                say(said="done", name=operation.name, commit=commit)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
