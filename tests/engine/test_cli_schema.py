"""The commands `schema plan`, `apply` and `diff`: what they print, in colour and in JSON, and how they end."""

from pathlib import Path

import pytest
from rich.console import Console
from tests.engine.cli_kit import run, wide_terminal

import omnigraph as og
from omnigraph.cli.output import Exit
from omnigraph.cli.schemas import drawn

__all__ = ["wide_terminal"]  # a fixture

OLD = "node Person { name: String @key  age: I32? }"


@pytest.fixture
def root(tmp_path: Path) -> str:
    graph = og.init(tmp_path / "g", OLD)
    with graph.transaction() as tx:
        tx.append("Person", [{"name": "Ann", "age": 41}, {"name": "Ben"}])
    return graph.root


def file(tmp_path: Path, text: str) -> str:
    path = tmp_path / "next.pg"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_a_plan_is_shown_and_nothing_is_changed(root: str, tmp_path: Path) -> None:
    new = file(tmp_path, 'node Person { name: String @key  years: I64? @rename_from("age") }')
    said = run("schema", "plan", root, "--schema", new)
    assert said.out.splitlines() == [
        "~ rename property Person.years age → years  metadata",
        "~ change type Person.years I32 → I64  column, 2 rows",
    ]
    facts = run("schema", "plan", root, "--schema", new, "--json").json
    assert (facts["supported"], facts["rows_touched"], len(facts["steps"])) == (True, 2, 2)
    assert og.open(root, read_only=True).refresh().version == 2


def test_applying_makes_a_commit_and_applying_again_none(root: str, tmp_path: Path) -> None:
    new = file(tmp_path, "node Person { name: String @key  city: String? }")
    said = run("schema", "apply", root, "--schema", new, "--message", "towns", "--actor", "ann")
    head = og.open(root).refresh()
    assert said.out.splitlines() == [
        "- drop property Person.age (soft)  metadata",
        "+ add property Person.city · → city: String?  metadata",
        f"applied to main, version 3 ({head.id})",
    ]
    assert (head.message, head.actor) == ("towns", "ann")
    again = run("schema", "apply", root, "--schema", new, "--json").json
    assert (again["applied"], again["commit"], again["steps"]) == (False, None, [])


def test_what_can_not_be_done_ends_with_an_error_and_says_what_to_do(root: str, tmp_path: Path) -> None:
    new = file(tmp_path, "node Person { name: String @key  age: I32?  city: String }")
    said = run("schema", "apply", root, "--schema", new, expect=Exit.ERROR)
    assert "[REQUIRED_WITHOUT_VALUE] 2 rows would have no value" in said.err
    broken = file(tmp_path, "node Person { name: String @key  age: I32 }")
    assert "age is required" in run("schema", "apply", root, "--schema", broken, expect=Exit.VIOLATIONS).err
    narrow = file(tmp_path, "node Person { name: String @key  age: U32? }")
    run("schema", "apply", root, "--schema", narrow, expect=Exit.ERROR)
    assert run("schema", "apply", root, "--schema", narrow, "--allow-data-loss", "--json").json["applied"] is True


def test_schemas_of_two_commits_are_compared(root: str, tmp_path: Path) -> None:
    run("schema", "apply", root, "--schema", file(tmp_path, OLD + "\nnode City {}"))
    assert run("schema", "diff", root, "main@2", "main").out.splitlines() == ["+ add type City"]
    assert run("schema", "diff", root, "main", "main@2").out.splitlines() == ["- drop type City (soft)"]
    assert run("schema", "diff", root, "main", "main", "--json").json["steps"] == []


def test_what_comes_is_green_and_what_goes_is_red(root: str) -> None:
    console = Console(force_terminal=True, color_system="standard", width=120, no_color=False)
    plan = og.open(root, read_only=True).schema.plan("node Person { name: String @key  city: String? }")
    with console.capture() as shown:
        drawn(plan)(console)
    drop, add = shown.get().splitlines()
    assert drop.startswith("\x1b[31m- drop") and add.startswith("\x1b[32m+ add")
