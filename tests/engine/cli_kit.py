"""What the tests of the command line share."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import omnigraph as og
from omnigraph.cli.app import app
from omnigraph.cli.output import Exit

SCHEMA = "// kept as it is\nnode Person { name: String @key }\nedge Knows: Person -> Person\n"
ENTRY = "from omnigraph.cli import main; main()"
CANARY = "CANARYcanary0123456789CANARYcanary012345"
NOBODY = "01" + "Z" * 24

COMMIT_KEYS = {
    "id",
    "branch",
    "version",
    "parents",
    "actor",
    "operation",
    "message",
    "created_at",
    "expired_at",
    "schema_hash",
    "metrics",
    "user_metadata",
    "took_ms",
    "txn",
}
BRANCH_KEYS = {"name", "head", "version", "incarnation", "created_at", "created_by", "parent"}
TAG_KEYS = {"name", "commit", "created_at", "created_by"}


@dataclass(frozen=True, slots=True)
class Ran:
    """How a command ended and what it said."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def problem(self) -> Any:
        return json.loads(self.err)


@pytest.fixture(autouse=True)
def wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("NO_COLOR", "1")


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    """A graph with one person, a branch with two, and a tag."""
    graph = og.init(tmp_path / "g.omni", SCHEMA, actor="ann")
    with graph.transaction(message="first load") as tx:
        tx.append("Person", [{"name": "Ann"}])
    graph.tags.create("loaded")
    graph.branches.create("review")
    with graph.transaction("review", actor="bo") as tx:
        tx.append("Person", [{"name": "Bo"}])
    return graph


def run(*arguments: str, expect: int = Exit.DONE) -> Ran:
    """Run a command in this process."""
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == expect, f"{arguments}\n{result.stdout}\n{result.stderr}\n{result.exception!r}"
    return Ran(result.exit_code, result.stdout, result.stderr)


def spawn(*arguments: str, **environment: str) -> Ran:
    """Run a command in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", ENTRY, *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )
    return Ran(done.returncode, done.stdout, done.stderr)
