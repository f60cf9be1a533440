"""The doors stay the only ones: also for modules that no import contract has heard of yet."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "coordinator" / "omnigraph"
CONNECTOR = Path(__file__).parents[2] / "connector" / "pyspark_omnigraph"
MODULES = sorted(PACKAGE.rglob("*.py"))
DOORS = {
    "lance": "storage/lance_",
    "obstore": "storage/objects",
    "duckdb": "storage/embedded",
    "opentelemetry": "telemetry",
}
OBSERVED = {"ThreadPoolExecutor", "Thread", "getLogger"}
"""What makes threads and loggers that know nothing of the operation they work for."""


def imported(module: Path) -> set[str]:
    tree = ast.parse(module.read_text(encoding="utf-8"))
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    return {name.split(".")[0] for name in names}


@pytest.mark.parametrize("library", DOORS)
def test_only_the_door_imports_the_library(library: str) -> None:
    importers = {path.relative_to(PACKAGE).as_posix() for path in MODULES if library in imported(path)}
    allowed = {name for name in importers if name.startswith(DOORS[library])}
    assert allowed, "the door is where it was"
    assert importers == allowed


def test_nothing_imports_spark() -> None:
    assert not [path for path in MODULES if imported(path) & {"pyspark", "py4j"}]


def words(module: Path) -> set[str]:
    tree = ast.parse(module.read_text(encoding="utf-8"))
    attributes = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    return attributes | {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def test_threads_and_loggers_are_made_where_operations_are_observed() -> None:
    library = [path for path in MODULES if PACKAGE / "testing" not in path.parents]
    makers = {path.relative_to(PACKAGE).as_posix() for path in library if words(path) & OBSERVED}
    assert makers == {"observing.py", "logs.py"}
    assert not [path for path in CONNECTOR.rglob("*.py") if words(path) & OBSERVED]
