"""History by the names other lakehouses use: a row per commit, its parameters, and what it did in numbers."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.engine.cli_kit import run, wide_terminal

import omnigraph as og
from omnigraph.errors import BranchNotFoundError
from omnigraph.model.lineage import CommitRow

__all__ = ["wide_terminal"]  # a fixture

SCHEMA = """
node Person { name: String @key  age: I32? }
edge Knows: Person -> Person
"""
COUNTED = ("numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted", "numUnchangedRows", "numOutputRows")


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    """Main with a load, an upsert on a branch that is merged, a delete and an optimize."""
    graph = og.init(tmp_path / "g", SCHEMA, actor="ann")
    with graph.transaction(message="first load", txn=("nightly", 7), user_metadata="run 7") as tx:
        tx.append("Person", [{"name": f"p{n}", "age": n} for n in range(4)])
        tx.append("Knows", [{"id": "k", "src": "p0", "dst": "p1"}])
    graph.branches.create("review")
    with graph.transaction("review", actor="bob") as tx:
        tx.upsert("Person", [{"name": "p0", "age": 0}, {"name": "p1", "age": 99}, {"name": "new"}])
    with graph.transaction() as tx:
        tx.delete("Person", ids=["p3"])
    graph.branches.merge("review")
    graph.optimize()
    return graph


def counted(row: og.HistoryRow) -> tuple[int, ...]:
    return tuple(row.operation_metrics[name] for name in COUNTED)


def test_history_has_a_row_per_commit_newest_first_and_says_what_log_says(graph: og.Graph) -> None:
    history = graph.history()
    assert [row.operation for row in history] == ["optimize", "merge", "delete", "append", "init"]
    assert [(row.commit, row.version, row.actor, row.timestamp, row.parents) for row in history] == [
        (commit.id, commit.version, commit.actor, commit.created_at, commit.parents) for commit in graph.log()
    ]
    assert [row.read_version for row in history] == [4, 3, 2, 1, None]
    assert graph.history(limit=2).rows == history[:2].rows
    assert graph.history("review")[0].actor == "bob"
    with pytest.raises(BranchNotFoundError):
        graph.history("nobody")


def test_metrics_are_called_as_delta_calls_them_in_total_and_by_table(graph: og.Graph) -> None:
    optimized, merged, deleted, loaded, born = graph.history()
    assert counted(loaded) == (5, 0, 0, 0, 5)
    assert loaded.table_metrics["node:Person"]["numTargetRowsInserted"] == 4
    assert loaded.table_metrics["edge:Knows"]["numTargetRowsInserted"] == 1
    assert loaded.operation_metrics["numFiles"] == 2
    assert loaded.operation_metrics["numOutputBytes"] > 0
    assert counted(deleted) == (0, 0, 1, 0, 0)
    assert counted(merged)[:3] == (1, 1, 0)
    assert counted(graph.history("review")[0]) == (1, 1, 0, 1, 2)
    added, removed = (optimized.operation_metrics[name] for name in ("numAddedFiles", "numRemovedFiles"))
    assert removed > added >= 1
    assert optimized.operation_metrics["numAddedBytes"] > 0
    assert born.operation_metrics == {}


def test_parameters_tell_tables_the_source_of_a_merge_and_what_an_application_called_it(graph: og.Graph) -> None:
    _, merged, _, loaded, born = graph.history()
    assert loaded.operation_parameters == {
        "tables": "edge:Knows, node:Person",
        "txnAppId": "nightly",
        "txnVersion": "7",
    }
    assert (loaded.message, loaded.user_metadata) == ("first load", "run 7")
    assert merged.operation_parameters["source"] == merged.parents[1] == graph.branches.get("review").head
    assert born.operation_parameters == {}


def test_how_long_an_operation_took_is_in_its_commit(graph: og.Graph) -> None:
    times = [row.operation_metrics.get("executionTimeMs") for row in graph.history()]
    assert all(time is not None and 0 <= time < 600_000 for time in times[:-1])
    assert times[-1] is None


def test_a_commit_of_an_older_release_has_no_time_and_is_read_all_the_same(graph: og.Graph) -> None:
    row = CommitRow.of(graph.log()[3])
    body = {name: value for name, value in json.loads(row.body).items() if name not in ("took_ms", "txn")}
    old = CommitRow.from_text(json.dumps([*json.loads(row.to_text())[:-1], json.dumps(body)])).commit
    assert (old.took_ms, old.txn) == (None, None)
    assert old.metrics == graph.log()[3].metrics


def test_a_commit_that_cleanup_let_expire_is_still_in_history_with_its_numbers(graph: og.Graph) -> None:
    before = graph.history("main")
    graph.branches.delete("review")
    expired = graph.cleanup(keep=1, grace="0s").expired
    assert set(expired) >= {before[3].commit}
    assert graph.history("main").rows == before.rows


def test_history_is_a_table_of_arrow_and_a_table_of_html_and_plain_values(graph: og.Graph) -> None:
    history = graph.history()
    table = history.to_arrow()
    assert table.num_rows == len(history) == 5
    assert table.column_names == list(history.to_dict()[0])
    loaded = table.to_pylist()[3]
    assert dict(loaded["operationMetrics"])["numTargetRowsInserted"] == 5
    assert dict(dict(loaded["tableMetrics"])["edge:Knows"])["numTargetRowsInserted"] == 1
    assert loaded["timestamp"].astimezone(UTC) == history[3].timestamp
    assert json.loads(json.dumps(history.to_dict()))[3]["timestamp"] == history[3].timestamp.isoformat()
    assert datetime.fromisoformat(history.to_dict()[3]["timestamp"]) == history[3].timestamp
    assert ">first load</td>" in history._repr_html_()


def test_the_command_prints_the_same_for_machines_and_a_table_for_people(graph: og.Graph) -> None:
    assert run("history", graph.root, "--json").json == graph.history().to_dict()
    assert [row["version"] for row in run("history", graph.root, "--limit", "2", "--json").json] == [5, 4]
    shown = run("history", graph.root, "--branch", "review").out
    assert "first load" in shown
    assert "upsert" in shown
