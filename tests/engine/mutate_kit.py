"""What the tests of mutations share."""

from datetime import date
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.engine.mutating import MutationResult

SCHEMA = """
node Person { name: String @key  age: I32?  bio: String?  tags: [String]?  face: Blob?  seen: DateTime? }
node Note { text: String  stars: U32?  spot: Vector(2)?  weight: F64? }
node Place { city: String  street: String  number: I32?  @key(city, street) }
edge Knows: Person -> Person { since: Date? }
edge Wrote: Person -> Note { role: enum(author, editor)? }
"""


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    graph = og.init(tmp_path / "g.omni", SCHEMA)
    with graph.transaction() as tx:
        tx.append("Person", [{"name": "Ann", "age": 41, "face": b"\x00ann"}, {"name": "Bo", "bio": "old"}])
        tx.append("Note", [{"id": "n1", "text": "one", "stars": 2**32 - 1}, {"id": "n2", "text": "two"}])
        tx.append("Knows", [{"id": "k1", "src": "Ann", "dst": "Bo", "since": date(2020, 1, 1)}])
    return graph


def done(graph: og.Graph, statements: str, /, declared: str = "", **params: Any) -> MutationResult:
    return graph.mutate(f"query q({declared}) {{ {statements} }}", params)


def counts(result: MutationResult) -> dict[str, tuple[int, int, int]]:
    return {key: (n["inserted"], n["updated"], n["deleted"]) for key, n in result.affected.items()}


def rows(graph: og.Graph, type: str, branch: str | None = None) -> dict[str, dict[str, Any]]:
    return {row.pop("id"): row for row in graph.snapshot(branch).read(type).to_pylist()}


def person(graph: og.Graph, name: str) -> dict[str, Any]:
    return rows(graph, "Person")[name]
