"""Branches and tags: one row each, whatever the number of tables; shared until written, never mistaken for another."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.engine.changes import DeleteBranch, RenameBranch
from omnigraph.errors import (
    BranchConflictError,
    BranchExistsError,
    BranchNotFoundError,
    CommitNotFoundError,
    InvalidNameError,
    NotFoundError,
    ProtectedBranchError,
    TagExistsError,
    TagNotFoundError,
)
from omnigraph.testing.commits import bare_commit, session_of
from omnigraph.testing.places import place

SCHEMA = "node Person { name: String @key }\nnode City { name: String @key }\nedge Knows: Person -> Person"


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    """Main at version 3: two people, then a city."""
    made = og.init(tmp_path / "g", SCHEMA, actor="ann")
    add(made, "Person", "Ann", "Bob")
    add(made, "City", "Ulm")
    return made


def add(graph: og.Graph, type_: str, *names: str, branch: str | None = None) -> str:
    with graph.transaction(branch) as tx:
        tx.append(type_, [{"name": name} for name in names])
    assert tx.receipt.commit is not None
    return tx.receipt.commit


def people(graph: og.Graph, branch: str = "main") -> set[str]:
    found: list[Any] = graph.snapshot(branch).read("Person").column("id").to_pylist()
    return set(found)


def names(graph: og.Graph) -> list[str]:
    return [branch.name for branch in graph.branches.list()]


# -- create -------------------------------------------------------------------------------------------


def test_a_branch_begins_where_its_parent_branch_is(graph: og.Graph) -> None:
    made = graph.branches.create("review")
    main = graph.branches.get("main")
    assert (made.head, made.version, made.parent, made.created_by) == (main.head, 3, "main", "ann")
    assert made.incarnation != main.incarnation
    assert graph.log("review") == graph.log("main")


def test_a_branch_begins_at_a_tag_or_at_any_commit(graph: og.Graph) -> None:
    first, second = graph.snapshot(version=1).commit, graph.snapshot(version=2).commit
    graph.tags.create("v2", at=second.id)
    assert graph.branches.create("from-tag", from_="v2").head == second.id
    assert graph.branches.create("from-commit", from_=first.id).version == 1
    assert graph.branches.create("from-lower-case", from_=second.id.lower()).head == second.id
    assert people(graph, "from-tag") == {"Ann", "Bob"}
    assert people(graph, "from-commit") == set()


def test_a_branch_begins_at_a_commit_whose_branch_is_gone(graph: og.Graph) -> None:
    graph.branches.create("review")
    kept = add(graph, "Person", "Cid", branch="review")
    add(graph, "Person", "Dan", branch="review")
    graph.branches.delete("review")
    made = graph.branches.create("rescued", from_=kept)
    assert (made.version, made.parent) == (4, "review")
    assert people(graph, "rescued") == {"Ann", "Bob", "Cid"}
    assert [commit.version for commit in graph.log("rescued")] == [4, 3, 2, 1]


@pytest.mark.parametrize("name", ["main", "review", "Review", "MAIN", "v1", "V1"])
def test_a_name_that_is_taken_in_any_case_is_refused_for_a_branch_and_a_tag(graph: og.Graph, name: str) -> None:
    graph.branches.create("review")
    graph.tags.create("v1")
    with pytest.raises(BranchExistsError):
        graph.branches.create(name)
    with pytest.raises(TagExistsError):
        graph.tags.create(name)
    assert names(graph) == ["main", "review"]


@pytest.mark.parametrize("name", ["", "..", "a b", "x'; --", "01ARZ3NDEKTSV4RRFFQ69G5FAV", "é", "x" * 10_000])
def test_a_name_that_breaks_the_rule_is_refused_everywhere(graph: og.Graph, name: str) -> None:
    graph.branches.create("review")
    acts: list[Callable[[], object]] = [
        lambda: graph.branches.create(name),
        lambda: graph.branches.rename("review", name),
        lambda: graph.tags.create(name),
    ]
    for act in acts:
        with pytest.raises(InvalidNameError):
            act()
    assert names(graph) == ["main", "review"]


def test_a_start_that_does_not_exist_is_refused_with_the_nearest_name(graph: og.Graph) -> None:
    graph.branches.create("review")
    with pytest.raises(NotFoundError, match="did you mean 'review'"):
        graph.branches.create("x", from_="reviw")
    with pytest.raises(CommitNotFoundError):
        graph.branches.create("x", from_="01ARZ3NDEKTSV4RRFFQ69G5FAV")
    assert names(graph) == ["main", "review"]


def test_a_start_that_does_not_exist_has_a_code_of_its_own(graph: og.Graph) -> None:
    with pytest.raises(NotFoundError) as refused:
        graph.branches.create("x", from_="nowhere")
    assert refused.value.code != "OMNIGRAPH"


def test_branches_are_listed_main_first_and_tags_by_name(graph: og.Graph) -> None:
    for name in ("zebra", "apple", "m/1"):
        graph.branches.create(name)
        graph.tags.create(f"tag-{name}")
    assert names(graph) == ["main", "apple", "m/1", "zebra"]
    assert [tag.name for tag in graph.tags.list()] == ["tag-apple", "tag-m/1", "tag-zebra"]
    assert names(og.open(graph.root)) == names(graph)


# -- delete and recreate ------------------------------------------------------------------------------


def test_main_can_not_be_deleted_or_renamed_and_what_is_not_there_neither(graph: og.Graph) -> None:
    with pytest.raises(ProtectedBranchError):
        graph.branches.delete("main")
    with pytest.raises(ProtectedBranchError):
        graph.branches.rename("main", "trunk")
    for act in (graph.branches.delete, graph.branches.get, graph.on):
        with pytest.raises(BranchNotFoundError):
            act("nowhere")
    with pytest.raises(TagNotFoundError):
        graph.tags.delete("nowhere")


def test_a_deleted_name_is_free_at_once_and_the_new_branch_is_not_the_old_one(graph: og.Graph) -> None:
    old = graph.branches.create("review")
    add(graph, "Person", "Old", branch="review")
    graph.branches.delete("review")
    with pytest.raises(BranchNotFoundError):
        graph.snapshot("review")
    new = graph.branches.create("review")
    assert new.incarnation != old.incarnation
    assert people(graph, "review") == {"Ann", "Bob"}
    assert [commit.version for commit in graph.log("review")] == [3, 2, 1]
    with pytest.raises(CommitNotFoundError):
        graph.snapshot("review", version=4)


def test_a_transaction_of_a_deleted_branch_fails_and_applies_nothing_even_if_the_name_is_back(graph: og.Graph) -> None:
    for again in (False, True):
        graph.branches.create("review")
        tx = graph.transaction("review")
        tx.append("Person", [{"name": "Late"}])
        other = og.open(graph.root)
        other.branches.delete("review")
        if again:
            other.branches.create("review")
        with pytest.raises(BranchConflictError, match="created again" if again else "was deleted while") as refused:
            tx.__exit__(None, None, None)
        assert (refused.value.code, refused.value.retryable) == ("BRANCH_CONFLICT", True)
        assert "Late" not in people(graph)
    assert people(graph, "review") == {"Ann", "Bob"}
    assert graph.branches.get("review").version == 3


def test_a_deletion_or_rename_meant_for_the_old_branch_does_not_touch_the_new_one(graph: og.Graph) -> None:
    seen = graph.branches.create("review")
    graph.branches.delete("review")
    new = graph.branches.create("review")
    for change in (DeleteBranch(branch=seen), RenameBranch(branch=seen, new="done")):
        with pytest.raises(BranchConflictError, match="created again"):
            session_of(graph).publisher.publish(change)
    assert graph.branches.get("review") == new


def test_a_deleted_tag_is_gone_and_its_name_free(graph: og.Graph) -> None:
    graph.tags.create("v1", at=graph.snapshot(version=1).commit.id)
    graph.tags.delete("v1")
    with pytest.raises(TagNotFoundError):
        graph.snapshot(tag="v1")
    assert graph.tags.create("v1").commit == graph.refresh().id


# -- rename -------------------------------------------------------------------------------------------


def test_a_renamed_branch_keeps_its_history_and_its_incarnation(graph: og.Graph) -> None:
    before = graph.branches.create("review")
    add(graph, "Person", "Cid", branch="review")
    log = graph.log("review")
    after = graph.branches.rename("review", "done")
    assert after.incarnation == before.incarnation
    assert names(graph) == ["main", "done"]
    assert graph.log("done") == log
    with pytest.raises(BranchNotFoundError):
        graph.log("review")
    assert bare_commit(graph, "done").branch == "done"


def test_a_transaction_follows_its_branch_through_a_rename(graph: og.Graph) -> None:
    graph.branches.create("review")
    tx = graph.transaction("review")
    tx.append("Person", [{"name": "Cid"}])
    og.open(graph.root).branches.rename("review", "done")
    tx.__exit__(None, None, None)
    assert tx.receipt.branch == "done"
    assert people(graph, "done") == {"Ann", "Bob", "Cid"}


def test_a_transaction_follows_its_branch_through_a_rename_and_a_race(graph: og.Graph) -> None:
    graph.branches.create("review")
    tx = graph.transaction("review")
    tx.append("Person", [{"name": "Cid"}])
    other = og.open(graph.root)
    add(other, "Person", "Dan", branch="review")
    other.branches.rename("review", "done")
    tx.__exit__(None, None, None)
    assert people(graph, "done") == {"Ann", "Bob", "Cid", "Dan"}


# -- sharing ------------------------------------------------------------------------------------------


def test_a_branch_that_only_reads_shares_every_pin_and_a_write_diverges_only_its_table(graph: og.Graph) -> None:
    graph.branches.create("review")
    main, review = graph.snapshot("main").commit, graph.snapshot("review").commit
    assert review.pins == main.pins
    assert len(main.pins) == 2
    add(graph, "Person", "Cid", branch="review")
    catalog = graph.snapshot().catalog
    person, city = (catalog.type(name).table_id for name in ("Person", "City"))
    after = graph.snapshot("review").commit
    assert after.pins[city] == main.pins[city]
    assert after.pins[person] != main.pins[person]
    assert graph.snapshot("main").commit == main
    assert (people(graph), people(graph, "review")) == ({"Ann", "Bob"}, {"Ann", "Bob", "Cid"})


def test_two_branches_write_the_same_table_and_see_only_their_own(graph: og.Graph) -> None:
    graph.branches.create("a")
    graph.branches.create("b")
    for name in ("a", "b"):
        add(graph, "Person", f"of-{name}", branch=name)
    assert people(graph, "a") - people(graph, "b") == {"of-a"}
    assert people(graph, "b") - people(graph, "a") == {"of-b"}
    assert people(graph) == {"Ann", "Bob"}


# -- handles ------------------------------------------------------------------------------------------


def test_a_handle_bound_to_a_branch_uses_it_and_leaves_the_first_alone(graph: og.Graph) -> None:
    graph.branches.create("review")
    review = graph.on("review")
    add(review, "Person", "Cid")
    assert (review.branch, graph.branch) == ("review", "main")
    assert review.refresh().version == 4
    assert [commit.branch for commit in review.log(limit=1)] == ["review"]
    assert graph.refresh().version == 3


def test_a_refreshed_handle_sees_what_another_process_would_have_written(graph: og.Graph) -> None:
    other = og.open(graph.root)
    commit = add(other, "Person", "Cid")
    assert graph.refresh().id == commit
    other.branches.create("theirs")
    assert "theirs" in names(graph)
    assert graph.on("theirs").refresh().id == commit


# -- cost ---------------------------------------------------------------------------------------------


def changes_of(root: Path, act: Callable[[], object]) -> dict[str, int]:
    """Count what appears and disappears per folder while something is done."""

    top = place(root)

    def seen() -> dict[Any, int]:
        return {path: path.stat().st_mtime_ns for path in top.rglob("*") if path.is_file()}

    before = seen()
    act()
    after = seen()
    changed = [path for path in {*before, *after} if before.get(path) != after.get(path)]
    folders = [str(path.parent.relative_to(top)) for path in changed]
    return {folder: folders.count(folder) for folder in folders}


def test_creating_and_deleting_a_branch_changes_as_much_with_sixty_tables_as_with_two(tmp_path: Path) -> None:
    seen = []
    for tables in (2, 60):
        root = tmp_path / str(tables)
        graph = og.init(root, "\n".join(f"node T{n} {{ name: String @key }}" for n in range(tables)))
        with graph.transaction() as tx:
            for n in range(tables):
                tx.append(f"T{n}", [{"name": "x"}])
        assert len(graph.refresh().pins) == tables
        created = changes_of(root, lambda graph=graph: graph.branches.create("b"))  # type: ignore[misc]
        deleted = changes_of(root, lambda graph=graph: graph.branches.delete("b"))  # type: ignore[misc]
        assert all(folder.startswith("__manifest") for folder in (*created, *deleted))
        seen.append((created, deleted))
    assert seen[0] == seen[1]
    assert seen[0][0]["__manifest/data"] == 1
