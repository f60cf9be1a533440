"""The commands `diff` and `branch merge`: what they print, in tables and in JSON, and how they end."""

from pathlib import Path

import pytest
from tests.engine.cli_kit import run, wide_terminal
from tests.engine.merge_kit import SCHEMA, person

import omnigraph as og
from omnigraph.cli.output import Exit

__all__ = ["wide_terminal"]  # a fixture


@pytest.fixture
def root(tmp_path: Path) -> str:
    """Main and a branch that changed the age of Ann to 31, and Ben's city."""
    graph = og.init(tmp_path / "g", SCHEMA, actor="ann")
    with graph.transaction() as tx:
        tx.append("Person", [person("Ann", age=30), person("Ben"), person("Cid")])
    graph.branches.create("review")
    with graph.transaction("review") as tx:
        tx.upsert("Person", [person("Ann", age=31), person("Ben", city="Ulm"), person("New")])
    with graph.transaction("review") as tx:
        tx.delete("Person", ids=["Cid"])
    return graph.root


def change(root: str, **more: int) -> None:
    with og.open(root).transaction() as tx:
        tx.upsert("Person", [person("Ann", **more)])


def test_diff_counts_rows_by_table(root: str) -> None:
    said = run("diff", root, "main", "review")
    assert said.out.split() == ["table", "inserted", "updated", "deleted", "node:Person", "1", "2", "1"]
    facts = run("diff", root, "main", "review", "--json").json
    assert facts["tables"] == {"node:Person": {"inserted": 1, "updated": 2, "deleted": 1}}
    assert (facts["from"]["branch"], facts["to"]["branch"], facts["to"]["version"]) == ("main", "review", 4)
    assert run("diff", root, "main", "main@2").out.strip() == "nothing differs"


def test_diff_shows_rows_of_a_type_with_what_changed(root: str) -> None:
    lines = run("diff", root, "main", "review", "--type", "Person").out.splitlines()
    assert lines[0].split() == ["change", "id", "before", "after"]
    (ann,) = [line for line in lines if " Ann " in line]
    assert ann.split() == ["update", "Ann", "age:", "30", "age:", "31"]
    found = run("diff", root, "main", "review", "--type", "Person", "--json").json["rows"]
    assert {row["id"]: row["change"] for row in found} == {
        "Ann": "update",
        "Ben": "update",
        "New": "insert",
        "Cid": "delete",
    }
    assert len(run("diff", root, "main", "review", "--type", "Person", "--limit", "2", "--json").json["rows"]) == 2


def test_diff_of_what_is_not_there_ends_with_the_code_for_that(root: str) -> None:
    assert "did you mean 'review'" in run("diff", root, "main", "reviw", expect=Exit.NOT_FOUND).err
    assert run("diff", root, "main", "review", "--type", "No", "--json", expect=Exit.NOT_FOUND).problem["kind"] == (
        "TYPE_NOT_FOUND"
    )


def test_a_merge_says_what_it_did(root: str) -> None:
    assert run("branch", "merge", root, "review", "--dry-run").out.startswith(
        "review into main: would be fast-forwarded"
    )
    said = run("branch", "merge", root, "review", "--into", "main", "--message", "ship", "--actor", "bo").out
    head = og.open(root, read_only=True).refresh()
    assert said.startswith(f"review into main: fast-forwarded, version 3 ({head.id})")
    assert "as the source has it" in said
    assert (head.message, head.actor) == ("ship", "bo")
    assert run("branch", "merge", root, "review").out.strip() == "review into main: already up to date"


def test_a_merge_in_json_has_every_fact(root: str) -> None:
    change(root, age=30)
    with og.open(root).transaction() as tx:
        tx.append("Person", [person("Dan")])
    facts = run("branch", "merge", root, "review", "--delete-source", "--json").json
    assert (facts["outcome"], facts["source_deleted"], facts["merge_conflicts"]) == ("Merged", True, [])
    assert facts["tables"]["node:Person"] == {
        "adopted": False,
        "rows_inserted": 1,
        "rows_updated": 2,
        "rows_deleted": 1,
    }
    assert [branch["name"] for branch in run("branch", "list", root, "--json").json] == ["main"]


def test_conflicts_end_with_code_four_and_show_all_three_sides(root: str) -> None:
    change(root, age=99)
    refused = run("branch", "merge", root, "review", expect=Exit.CONFLICT)
    header, row = [line for line in refused.err.splitlines() if line.startswith(("table ", "node:Person"))]
    assert header.split() == ["table", "id", "kind", "base", "ours", "theirs"]
    assert row.split()[:3] == ["node:Person", "Ann", "DivergentUpdate"]
    assert all(f"age: {age}" in row for age in (30, 99, 31))
    assert "[MERGE_CONFLICTS]" in refused.err
    problem = run("branch", "merge", root, "review", "--json", expect=Exit.CONFLICT).problem
    (conflict,) = problem["merge_conflicts"]
    assert conflict == {
        "table_key": "node:Person",
        "row_id": "Ann",
        "kind": "DivergentUpdate",
        "message": "both sides changed it: age is 99 here and 31 there",
    }
    assert (problem["code"], problem["kind"]) == ("conflict", "MERGE_CONFLICTS")


def test_a_dry_run_with_conflicts_ends_with_code_four_too(root: str) -> None:
    change(root, age=99)
    said = run("branch", "merge", root, "review", "--dry-run", expect=Exit.CONFLICT)
    assert said.out.startswith("review into main: 1 conflicts")
    assert run("branch", "merge", root, "review", "--dry-run", "--json", expect=Exit.CONFLICT).json["outcome"] == (
        "Conflicts"
    )


def test_policies_are_for_all_types_or_for_one(root: str) -> None:
    change(root, age=99)
    run("branch", "merge", root, "review", "--policy", "Knows=ours", expect=Exit.CONFLICT)
    run("branch", "merge", root, "review", "--policy", "fail", "--policy", "Person=theirs")
    found = og.open(root, read_only=True).snapshot().entity("Person", "Ann")
    assert found is not None
    assert found["age"] == 31
    for wrong in ("nonsense", "=ours", "Nobody=ours"):
        code = Exit.NOT_FOUND if wrong == "Nobody=ours" else Exit.USAGE
        run("branch", "merge", root, "review", "--policy", wrong, expect=code)
