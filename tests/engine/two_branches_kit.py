"""A graph with two branches, and what tests of merges do to them."""

from pathlib import Path
from typing import Any

import pytest
from tests.engine.merge_kit import SCHEMA, knows, person

import omnigraph as og


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    """Main with five people, and a branch at the same commit."""
    graph = og.init(tmp_path / "g", SCHEMA, actor="ann")
    with graph.transaction() as tx:
        tx.append("Person", [person(name, age=n) for n, name in enumerate(("Ann", "Ben", "Cid", "Dan", "Eve"))])
        tx.append("Knows", [knows("k1", "Ann", "Ben", 2000)])
    graph.branches.create("review")
    return graph


def upsert(graph: og.Graph, branch: str, *rows: dict[str, Any], type: str = "Person") -> None:
    with graph.transaction(branch) as tx:
        tx.upsert(type, list(rows))


def delete(graph: og.Graph, branch: str, *ids: str, type: str = "Person") -> None:
    with graph.transaction(branch) as tx:
        tx.delete(type, ids=list(ids))


def ages(graph: og.Graph, branch: str = "main") -> dict[str, int | None]:
    return {row["id"]: row["age"] for row in graph.snapshot(branch).read("Person").to_pylist()}


def files(graph: og.Graph) -> dict[str, bytes]:
    root = Path(graph.root)
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}
