"""Rows that come and rows that go, in one change of one type: what tasks staged becomes one commit, or nothing."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.engine.parts import Begun, Verb
from omnigraph.errors import (
    ConstraintError,
    CorruptGraphError,
    InvalidDataError,
    MixedMutationError,
    VersionConflictError,
)
from omnigraph.model.staged import StagedUpsert, staged_from_json

SCHEMA = """
node Person { name: String @key  age: I32?  mail: String? @unique }
edge Knows: Person -> Person
"""


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    graph = og.init(tmp_path / "g.omni", SCHEMA)
    with graph.transaction() as tx:
        tx.append("Person", [{"name": f"p{n}", "age": n, "mail": f"{n}@x"} for n in range(10)])
        tx.append("Knows", [{"src": "p1", "dst": "p2"}, {"src": "p3", "dst": "p4"}])
    return graph


def part(graph: og.Graph, verb: Verb, rows: list[dict[str, Any]], type: str = "Person") -> list[str]:
    """Stage rows as a task would, against the newest commit."""
    order = graph.snapshot().order(type, verb)
    return [order.stage(pa.Table.from_pylist(rows).to_batches())]


def change(graph: og.Graph, begun: Begun | None = None, **parts: list[str]) -> og.Receipt:
    with graph.transaction(begun=begun) as tx:
        tx.changed("Person", **{"put": [], "inserted": [], "deleted": []} | parts)
    return tx.receipt


def names(graph: og.Graph) -> list[str]:
    return sorted(map(str, graph.snapshot().read("Person", columns=["name"]).column("name").to_pylist()))


def test_one_commit_puts_inserts_and_deletes_and_edges_go_along(graph: og.Graph) -> None:
    receipt = change(
        graph,
        put=part(graph, "upsert", [{"id": "p5", "name": "p5", "age": 50, "mail": "5@x"}]),
        inserted=part(graph, "append", [{"name": "new", "mail": "1@x"}]),  # the value of a row that goes is free
        deleted=part(graph, "delete", [{"id": "p1"}, {"id": "p9"}, {"id": "nobody"}]),
    )
    counts = receipt.tables["node:Person"]
    assert (counts.rows_inserted, counts.rows_updated, counts.rows_deleted) == (1, 1, 2)
    assert receipt.tables["edge:Knows"].rows_deleted == 1
    assert receipt.version == 3
    assert names(graph) == sorted(["new", *(f"p{n}" for n in (0, 2, 3, 4, 5, 6, 7, 8))])
    assert graph.snapshot().entity("Person", "p5") == {"id": "p5", "name": "p5", "age": 50, "mail": "5@x"}
    assert [row["src"] for row in graph.snapshot().read("Knows").to_pylist()] == ["p3"]


def test_inserts_and_deletes_without_updates_are_one_commit_too(graph: og.Graph) -> None:
    receipt = change(
        graph, inserted=part(graph, "append", [{"name": "new"}]), deleted=part(graph, "delete", [{"id": "p0"}])
    )
    counts = receipt.tables["node:Person"]
    assert (counts.rows_inserted, counts.rows_updated, counts.rows_deleted) == (1, 0, 1)
    assert graph.snapshot().count("Person") == 10


def test_parts_of_several_tasks_are_put_together(graph: og.Graph) -> None:
    deleted = [text for n in (6, 7, 8) for text in part(graph, "delete", [{"id": f"p{n}"}])]
    put = [text for n in (1, 2) for text in part(graph, "upsert", [{"id": f"p{n}", "name": f"p{n}", "age": -n}])]
    receipt = change(graph, put=put, deleted=deleted)
    counts = receipt.tables["node:Person"]
    assert (counts.rows_updated, counts.rows_deleted) == (2, 3)
    assert names(graph) == sorted(f"p{n}" for n in (0, 1, 2, 3, 4, 5, 9))


def test_a_change_of_nothing_makes_no_commit(graph: og.Graph) -> None:
    assert change(graph, deleted=part(graph, "delete", [{"id": "nobody"}])).commit is None
    same = {"id": "p5", "name": "p5", "age": 5, "mail": "5@x"}
    assert change(graph, put=part(graph, "upsert", [same])).commit is None
    assert change(graph).commit is None


def test_a_row_can_not_be_put_and_deleted_at_once(graph: og.Graph) -> None:
    put = part(graph, "upsert", [{"id": "p5", "name": "p5", "age": 50}])
    with pytest.raises(InvalidDataError, match="'p5'"):
        change(graph, put=put, deleted=part(graph, "delete", [{"id": "p5"}]))
    assert graph.snapshot().commit.version == 2


def test_rules_are_checked_over_what_is_left(graph: og.Graph) -> None:
    taken = part(graph, "append", [{"name": "new", "mail": "3@x"}])
    with pytest.raises(ConstraintError, match="mail"):
        change(graph, inserted=taken, deleted=part(graph, "delete", [{"id": "p0"}]))
    assert graph.snapshot().commit.version == 2


def test_a_change_is_a_conflict_when_its_type_was_written_since(graph: og.Graph) -> None:
    base = graph.snapshot().commit
    begun = Begun(base=base.id, incarnation=base.incarnation)
    parts = {
        "put": part(graph, "upsert", [{"id": "p5", "name": "p5", "age": 50}]),
        "deleted": part(graph, "delete", [{"id": "p0"}]),
    }
    with graph.transaction() as tx:
        tx.append("Person", [{"name": "other"}])
    with pytest.raises(VersionConflictError, match="node:Person is at version 2"):
        change(graph, begun, **parts)
    assert graph.snapshot().count("Person") == 11


def test_an_edge_that_came_meanwhile_to_a_node_that_goes_is_a_conflict(graph: og.Graph) -> None:
    base = graph.snapshot().commit
    begun = Begun(base=base.id, incarnation=base.incarnation)
    deleted = part(graph, "delete", [{"id": "p7"}])
    put = part(graph, "upsert", [{"id": "p5", "name": "p5", "age": 50}])
    with graph.transaction() as tx:
        tx.append("Knows", [{"src": "p8", "dst": "p7"}])
    with pytest.raises((VersionConflictError, ConstraintError)):
        change(graph, begun, put=put, deleted=deleted)
    assert graph.snapshot().count("Person") == 10


def test_a_change_goes_alone(graph: og.Graph) -> None:
    deleted = part(graph, "delete", [{"id": "p0"}])
    with pytest.raises(MixedMutationError), graph.transaction() as tx:
        tx.append("Person", [{"name": "new"}])
        tx.changed("Person", put=[], inserted=[], deleted=deleted)
    assert graph.snapshot().commit.version == 2


def test_staged_work_that_deletes_travels_and_plain_upserts_look_as_ever() -> None:
    plain = StagedUpsert(
        base_version=3,
        replacements=(),
        insertions=("{}",),
        deletions=(),
        unchanged=(),
        rows_inserted=1,
        bytes=9,
        files=(),
    )
    assert "deleted" not in plain.to_json()
    body = plain.to_json() | {"deleted": 4}
    read = staged_from_json(body)
    assert isinstance(read, StagedUpsert)
    assert (read.rows_deleted, read.to_json()) == (4, body)
    with pytest.raises(CorruptGraphError):
        staged_from_json(body | {"deleted": -1})
