"""A graph with two branches, and what tests of merges do to them."""

from pathlib import Path
from typing import Any

import pytest
from tests.engine.merge_kit import SCHEMA, boss, knows, person

import omnigraph as og
from omnigraph.testing.places import place


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


def clash(graph: og.Graph) -> None:
    """Make every kind of conflict at once."""
    upsert(graph, "review", person("Ann", age=90), person("Cid", age=80), person("New", age=1))
    upsert(graph, "review", person("Uma", mail="u@x"))
    delete(graph, "review", "Eve")
    upsert(graph, "review", boss("b1", "Dan", "Ann"), type="Boss")
    upsert(graph, "main", person("Ann", age=91), person("New", age=2), person("Udo", mail="u@x"))
    delete(graph, "main", "Cid")
    upsert(graph, "main", boss("b2", "Dan", "Ben"), type="Boss")
    upsert(graph, "main", knows("k9", "Ann", "Eve"), type="Knows")


def crossed(graph: og.Graph) -> None:
    """Let two branches merge each other's earlier commit: then they have two best common ancestors."""
    upsert(graph, "review", person("Ann", age=90))
    upsert(graph, "main", person("Ben", age=91))
    graph.tags.create("theirs", "review")
    graph.tags.create("ours", "main")
    graph.branches.merge("theirs", "main")
    graph.branches.merge("ours", "review")


def ages(graph: og.Graph, branch: str = "main") -> dict[str, int | None]:
    return {row["id"]: row["age"] for row in graph.snapshot(branch).read("Person").to_pylist()}


def files(graph: og.Graph) -> dict[str, bytes]:
    root = place(graph.root)
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}
