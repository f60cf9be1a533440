"""Every import contract, broken on purpose in a copy: the linter must notice, and name the contract."""

import os
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest

HOUSE = Path(__file__).parents[2]
PARTS = ("coordinator", "connector")
LINTER = Path(sys.executable).parent / "lint-imports"
CONTRACTS = [
    contract["name"]
    for contract in tomllib.loads((HOUSE / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
]


@dataclass(frozen=True)
class Breach:
    """An import that must not be, planted at the end of a module."""

    contract: str
    module: str
    line: str


BREACHES = [
    Breach("Layers: a pure core, effects at the edge", "model/tables.py", "from omnigraph.engine import graph"),
    Breach("Layers: a pure core, effects at the edge", "rules/names.py", "import omnigraph.storage.layout"),
    Breach("Layers: a pure core, effects at the edge", "errors.py", "import omnigraph.ids"),
    Breach("Layers: a pure core, effects at the edge", "utils.py", '"""A module nobody gave a place."""'),
    Breach("One door to Lance", "engine/snapshot.py", "import lance"),
    Breach("One door to Lance", "storage/manifest.py", "from lance import LanceDataset"),
    Breach("One door to the object store", "engine/publisher.py", "import obstore"),
    Breach("One door to OpenTelemetry", "engine/session.py", "from opentelemetry import trace"),
    Breach("The coordinator knows nothing of Spark", "cli/output.py", "import pyspark"),
    Breach("The coordinator knows nothing of Spark", "testing/commits.py", "def f():\n    import py4j"),
    Breach("The connector goes through the coordinator", "../../connector/pyspark_omnigraph/types.py", "import lance"),
    Breach("Values and rules have no effects", "rules/folding.py", "import time"),
    Breach("Values and rules have no effects", "model/receipt.py", "from pathlib import Path"),
]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for part in PARTS:
        shutil.copytree(HOUSE / part, tmp_path / part, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(HOUSE / "pyproject.toml", tmp_path)
    return tmp_path


def lint(folder: Path) -> tuple[int, dict[str, str]]:
    """Return the exit code and the verdict of every contract."""
    path = os.pathsep.join(str(folder / part) for part in PARTS)
    done = subprocess.run(
        [LINTER, "--no-cache", "--no-logo"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, "COLUMNS": "200", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = done.stdout.splitlines()
    verdicts = {
        name: line.removeprefix(name).strip() for line in lines for name in CONTRACTS if line.startswith(f"{name} ")
    }
    assert set(verdicts) == set(CONTRACTS), done.stdout + done.stderr
    return done.returncode, verdicts


def test_the_code_as_it_is_keeps_every_contract(copy: Path) -> None:
    code, verdicts = lint(copy)
    assert (code, set(verdicts.values())) == (0, {"KEPT"})


def test_every_contract_is_broken_by_one_of_these_tests() -> None:
    assert {breach.contract for breach in BREACHES} == set(CONTRACTS)


@pytest.mark.parametrize("breach", BREACHES, ids=lambda breach: f"{breach.module}: {breach.line.split()[-1]}")
def test_an_import_that_breaks_a_contract_is_noticed_by_that_contract(copy: Path, breach: Breach) -> None:
    target = copy / "coordinator" / "omnigraph" / breach.module
    before = target.read_text(encoding="utf-8") if target.exists() else ""
    target.write_text(f"{before}\n{breach.line}\n", encoding="utf-8")
    code, verdicts = lint(copy)
    assert code != 0
    assert verdicts[breach.contract].startswith("BROKEN")
