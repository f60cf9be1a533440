"""The doors stay the only ones: also for modules that no import contract has heard of yet."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "coordinator" / "omnigraph"
MODULES = sorted(PACKAGE.rglob("*.py"))
DOORS = {"lance": "lance_", "obstore": "objects", "duckdb": "embedded"}


def imported(module: Path) -> set[str]:
    tree = ast.parse(module.read_text(encoding="utf-8"))
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    return {name.split(".")[0] for name in names}


@pytest.mark.parametrize("library", DOORS)
def test_only_the_door_imports_the_library(library: str) -> None:
    importers = {path.relative_to(PACKAGE).as_posix() for path in MODULES if library in imported(path)}
    allowed = {name for name in importers if name.startswith(f"storage/{DOORS[library]}")}
    assert allowed, "the door is where it was"
    assert importers == allowed


def test_nothing_imports_spark() -> None:
    assert not [path for path in MODULES if imported(path) & {"pyspark", "py4j"}]
