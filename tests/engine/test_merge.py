"""Merging branches: what comes of it, again, back and across; what is refused; and what becomes of the source."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.engine.merge_kit import SCHEMA, content, knows, person
from tests.engine.two_branches_kit import ages, crossed, delete, files, graph, upsert
from tests.plain_tables import plain

import omnigraph as og
from omnigraph.engine.graph import Graph
from omnigraph.engine.merging import Merger
from omnigraph.errors import (
    BranchNotFoundError,
    InvalidOptionError,
    MergeConflictsError,
    ProtectedBranchError,
    ReadOnlyError,
    RefNotFoundError,
    TypeNotFoundError,
)
from omnigraph.model.merges import MergeResult, Outcome
from omnigraph.testing.commits import session_of
from omnigraph.testing.s3_server import SeaweedServer

__all__ = ["graph"]  # a fixture


# -- outcomes -------------------------------------------------------------------------------------------


def test_a_branch_without_commits_of_its_own_is_already_up_to_date(graph: og.Graph) -> None:
    head = graph.refresh()
    result = graph.branches.merge("review")
    assert (result.outcome, result.commit, result.bases) == (Outcome.ALREADY_UP_TO_DATE, None, (head.id,))
    assert graph.refresh() == head


def test_a_target_that_stood_still_is_forwarded_with_two_parents_and_no_file_of_rows(graph: og.Graph) -> None:
    upsert(graph, "review", person("Ann", age=99), person("New"))
    delete(graph, "review", "Ben")
    before, source = graph.refresh(), graph.snapshot("review").commit
    tables = {path for path in files(graph) if path.startswith(("nodes", "edges"))}
    result = graph.branches.merge("review", message="ship it", actor="bo")
    assert result.outcome is Outcome.FAST_FORWARD
    assert {key: table.to_dict() for key, table in result.tables.items()} == {
        "node:Person": {"adopted": True},
        "edge:Knows": {"adopted": True},
    }
    head = graph.refresh()
    assert (head.id, head.version) == (result.commit, result.version)
    assert head.parents == (before.id, source.id)
    assert (head.operation, head.message, head.actor) == ("merge", "ship it", "bo")
    assert head.pins == source.pins
    assert content(graph) == content(graph, "review")
    assert {path for path in files(graph) if path.startswith(("nodes", "edges"))} == tables


def test_both_sides_changed_different_rows_and_all_changes_are_there(graph: og.Graph) -> None:
    upsert(graph, "review", person("Ann", age=90), person("Eve", age=4), person("New", mail="n@x"))
    delete(graph, "review", "Cid")
    upsert(graph, "main", person("Dan", age=93), person("Other", mail="o@x"))
    before = graph.refresh()
    result = graph.branches.merge("review")
    assert result.outcome is Outcome.MERGED
    assert result.tables["node:Person"].to_dict() == {
        "adopted": False,
        "rows_inserted": 1,
        "rows_updated": 1,
        "rows_deleted": 1,
    }
    assert ages(graph) == {"Ann": 90, "Ben": 1, "Dan": 93, "Eve": 4, "New": None, "Other": None}
    assert graph.refresh().parents == (before.id, graph.snapshot("review").commit.id)
    assert graph.refresh().metrics["node:Person"]["rows_deleted"] == 1


def test_tables_that_only_one_side_changed_are_kept_or_adopted_as_they_are(graph: og.Graph) -> None:
    upsert(graph, "review", knows("k2", "Ben", "Cid"), type="Knows")
    upsert(graph, "main", person("Dan", age=93))
    kept, adopted = graph.refresh().pins, graph.snapshot("review").commit.pins
    result = graph.branches.merge("review")
    assert {key: table.adopted for key, table in result.tables.items()} == {"edge:Knows": True}
    catalog = graph.snapshot().catalog
    head = graph.refresh()
    people, edges = catalog.type("Person").table_id, catalog.type("Knows").table_id
    assert head.pins[people] == kept[people]
    assert head.pins[edges] == adopted[edges]


def test_rows_that_were_merged_keep_what_lance_knows_them_by(graph: og.Graph) -> None:
    def row_ids(branch: str = "main") -> dict[str, int]:
        kind = graph.snapshot(branch).catalog.type("Person")
        pin = graph.snapshot(branch).commit.pins[kind.table_id]
        table = plain(graph.root, f"nodes/{kind.table_id}", pin.lance_version)
        found = table.to_table(columns=["id"], with_row_id=True)
        return {str(row["id"]): int(row["_rowid"]) for row in found.to_pylist()}

    upsert(graph, "review", person("Ann", age=90))
    upsert(graph, "main", person("Dan", age=93))
    before = row_ids()
    graph.branches.merge("review")
    assert row_ids() == before


def test_the_same_change_on_both_sides_is_no_conflict_and_the_merge_is_still_recorded(graph: og.Graph) -> None:
    for branch in ("main", "review"):
        upsert(graph, branch, person("Ann", age=90), person("New", age=1))
        delete(graph, branch, "Cid")
    before = content(graph)
    result = graph.branches.merge("review")
    assert (result.outcome, result.tables) == (Outcome.MERGED, {})
    assert content(graph) == before
    assert len(graph.refresh().parents) == 2
    assert graph.branches.merge("review").outcome is Outcome.ALREADY_UP_TO_DATE


def test_an_index_that_only_the_target_has_does_not_make_it_a_change(graph: og.Graph) -> None:
    graph.ensure_indices()
    upsert(graph, "review", person("Ann", age=90))
    result = graph.branches.merge("review")
    assert result.tables["node:Person"].adopted
    assert ages(graph)["Ann"] == 90


def test_a_table_that_the_source_emptied_by_going_back_is_emptied(graph: og.Graph) -> None:
    first = graph.log("main")[-1]
    graph.restore("review", first)
    assert content(graph, "review") == {"Person": {}, "Knows": {}, "Boss": {}}
    assert graph.branches.merge("review").outcome is Outcome.FAST_FORWARD
    assert content(graph) == {"Person": {}, "Knows": {}, "Boss": {}}


# -- again, back, across --------------------------------------------------------------------------------


def test_what_is_merged_again_is_what_came_since(graph: og.Graph) -> None:
    upsert(graph, "review", person("Ann", age=90))
    upsert(graph, "main", person("Dan", age=93))
    graph.branches.merge("review")
    upsert(graph, "main", person("Ann", age=91))
    assert graph.branches.merge("review").outcome is Outcome.ALREADY_UP_TO_DATE
    assert ages(graph)["Ann"] == 91, "an old change does not come back"
    upsert(graph, "review", person("Ben", age=92))
    result = graph.branches.merge("review")
    assert result.tables["node:Person"].to_dict()["rows_updated"] == 1
    assert (ages(graph)["Ann"], ages(graph)["Ben"]) == (91, 92)


def test_a_merge_back_forwards_the_branch_to_what_was_merged(graph: og.Graph) -> None:
    upsert(graph, "review", person("Ann", age=90))
    upsert(graph, "main", person("Dan", age=93))
    graph.branches.merge("review")
    assert graph.branches.merge("main", "review").outcome is Outcome.FAST_FORWARD
    assert content(graph) == content(graph, "review")


def test_a_row_that_an_earlier_merge_deleted_is_not_brought_back_by_a_sibling(graph: og.Graph) -> None:
    graph.branches.create("sibling")
    delete(graph, "review", "Cid")
    upsert(graph, "sibling", person("Ann", age=90))
    graph.branches.merge("review")
    graph.branches.merge("sibling")
    assert ages(graph) == {"Ann": 90, "Ben": 1, "Dan": 3, "Eve": 4}
    graph.branches.merge("review", "sibling")
    assert graph.branches.merge("sibling").outcome in (Outcome.ALREADY_UP_TO_DATE, Outcome.MERGED)
    assert "Cid" not in ages(graph)


def test_histories_that_crossed_have_two_bases_and_no_false_conflict(graph: og.Graph) -> None:
    crossed(graph)
    upsert(graph, "review", person("Ann", age=0))  # back to what it was before the first change
    upsert(graph, "main", person("Ben", age=1))
    result = graph.branches.merge("review")
    assert len(result.bases) == 2
    assert (ages(graph)["Ann"], ages(graph)["Ben"]) == (0, 1), "a change that was taken back is not lost"


def test_histories_that_crossed_with_different_changes_since_conflict(graph: og.Graph) -> None:
    crossed(graph)
    upsert(graph, "review", person("Ann", age=70))
    upsert(graph, "main", person("Ann", age=71))
    with pytest.raises(MergeConflictsError) as refused:
        graph.branches.merge("review")
    (conflict,) = refused.value.conflicts
    assert (conflict.kind, conflict.row_id) == ("DivergentUpdate", "Ann")
    assert [side["age"] for side in (conflict.base, conflict.ours, conflict.theirs)] == [90, 71, 70]


def test_bases_that_contradict_each_other_are_like_neither_side(graph: og.Graph) -> None:
    upsert(graph, "review", person("Ann", age=90))
    upsert(graph, "main", person("Ann", age=91))
    graph.tags.create("theirs", "review")
    graph.tags.create("ours", "main")
    graph.branches.merge("theirs", "main", policy="ours")
    graph.branches.merge("ours", "review", policy="ours")
    with pytest.raises(MergeConflictsError) as refused:
        graph.branches.merge("review")
    assert refused.value.conflict_counts == {"node:Person": {"DivergentUpdate": 1}}
    assert graph.branches.merge("review", policy="theirs").outcome is Outcome.MERGED
    assert ages(graph)["Ann"] == 90


def test_a_branch_that_is_gone_is_merged_by_its_commit_and_is_part_of_history(graph: og.Graph) -> None:
    upsert(graph, "review", person("Ann", age=90))
    commit = graph.snapshot("review").commit.id
    graph.branches.create("second", from_="review")
    graph.branches.delete("review")
    assert graph.branches.merge(commit).outcome is Outcome.FAST_FORWARD
    upsert(graph, "second", person("Ben", age=91))
    result = graph.branches.merge("second")
    assert result.bases == (commit,)
    assert (ages(graph)["Ann"], ages(graph)["Ben"]) == (90, 91)


def test_a_merge_commit_is_younger_than_both_its_parents_whatever_the_clocks_say(graph: og.Graph) -> None:
    session = session_of(graph)
    later = replace(session.sources, now=lambda: session.sources.now() + timedelta(hours=1))
    with Graph(replace(session, sources=later)).transaction("review") as tx:
        tx.upsert("Person", [person("Ann", age=90)])
    source = graph.snapshot("review").commit
    assert source.created_at > session.sources.now()
    graph.branches.merge("review")
    assert graph.refresh().created_at > source.created_at
    assert graph.branches.merge("review").outcome is Outcome.ALREADY_UP_TO_DATE


@pytest.mark.s3
def test_branches_on_an_object_store_are_compared_and_merged(
    s3_server: SeaweedServer, s3_root: Callable[[], str]
) -> None:
    graph = og.init(s3_root(), SCHEMA, storage_options=s3_server.storage_options())
    upsert(graph, "main", *(person(name, age=1) for name in ("Ann", "Ben", "Cid")))
    graph.branches.create("review")
    upsert(graph, "review", person("Ann", age=90), person("New"))
    delete(graph, "review", "Cid")
    upsert(graph, "main", person("Ben", age=91))
    assert graph.diff("main@2", "review").tables["node:Person"].to_dict() == {"inserted": 1, "updated": 1, "deleted": 1}
    assert graph.branches.merge("review").outcome is Outcome.MERGED
    assert ages(graph) == {"Ann": 90, "Ben": 91, "New": None}


# -- what is refused ------------------------------------------------------------------------------------


def test_sides_with_different_schemas_are_a_conflict_of_that_name(graph: og.Graph) -> None:
    upsert(graph, "main", person("Dan", age=93))
    graph.schema.apply(SCHEMA.replace("age: I32?", "age: I64?"), "review")
    graph.schema.apply(SCHEMA.replace("age: I32?", "age: F64?"))
    before = files(graph)
    with pytest.raises(MergeConflictsError, match="SchemaDivergence") as refused:
        graph.branches.merge("review")
    assert [each.kind for each in refused.value.conflicts] == ["SchemaDivergence"]
    assert graph.branches.conflicts("review").read_all().column("kind").to_pylist() == ["SchemaDivergence"]
    assert files(graph) == before


def test_names_and_options_that_make_no_sense_are_refused(graph: og.Graph) -> None:
    with pytest.raises(InvalidOptionError, match="into itself"):
        graph.branches.merge("main", "main")
    with pytest.raises(InvalidOptionError, match="did you mean 'theirs'"):
        graph.branches.merge("review", policy="their")
    with pytest.raises(TypeNotFoundError):
        graph.branches.merge("review", policy={"Persn": "ours"})
    for nobody in ("nobody", "nobody@1", "review@", "review@x", f"review@{'9' * 5_000}"):
        with pytest.raises(RefNotFoundError):
            graph.branches.merge(nobody)
    with pytest.raises(BranchNotFoundError):
        graph.branches.merge("review", "nobody")
    with pytest.raises(ProtectedBranchError):
        graph.branches.merge("main", "review", delete_source=True)
    with pytest.raises(ReadOnlyError):
        og.open(graph.root, read_only=True).branches.merge("review")


# -- deleting the source --------------------------------------------------------------------------------


def merge(graph: og.Graph, **more: Any) -> MergeResult:
    return graph.branches.merge("review", delete_source=True, **more)


def test_the_source_is_deleted_when_it_is_merged_and_when_there_was_nothing_to_merge(graph: og.Graph) -> None:
    upsert(graph, "review", person("Ann", age=90))
    assert merge(graph).source_deleted
    assert [branch.name for branch in graph.branches.list()] == ["main"]
    graph.branches.create("review")
    assert merge(graph, dry_run=True).source_deleted is False
    assert merge(graph).source_deleted
    with pytest.raises(BranchNotFoundError):
        merge(graph)


def test_a_source_that_someone_else_deleted_meanwhile_is_merged_all_the_same(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    upsert(graph, "review", person("Ann", age=90))
    publish = Merger._publish

    def deleted(self: Merger, *rest: Any) -> Any:
        graph.branches.delete("review")
        return publish(self, *rest)

    monkeypatch.setattr(Merger, "_publish", deleted)
    result = merge(graph)
    assert (result.outcome, result.source_deleted) == (Outcome.FAST_FORWARD, False)
    assert ages(graph)["Ann"] == 90


def test_a_source_that_went_on_meanwhile_is_merged_as_it_was_and_not_deleted(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    upsert(graph, "review", person("Ann", age=90))
    publish = Merger._publish

    def advanced(self: Merger, *rest: Any) -> Any:
        upsert(graph, "review", person("Ben", age=91))
        return publish(self, *rest)

    monkeypatch.setattr(Merger, "_publish", advanced)
    read = graph.snapshot("review").commit
    result = merge(graph)
    assert (result.source_commit, result.source_deleted) == (read.id, False)
    assert (ages(graph)["Ann"], ages(graph)["Ben"]) == (90, 1)
    assert graph.refresh().parents[1] == read.id
    assert ages(graph, "review")["Ben"] == 91
