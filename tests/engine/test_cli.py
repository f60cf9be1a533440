"""The command line: what each command prints, for people and for machines."""

from pathlib import Path

import pytest
from tests.engine.cli_kit import BRANCH_KEYS, COMMIT_KEYS, SCHEMA, TAG_KEYS, graph, run, wide_terminal

import omnigraph as og
from omnigraph.cli.output import Exit
from omnigraph.testing.places import place

__all__ = ["graph", "wide_terminal"]  # fixtures


# -- create ---------------------------------------------------------------------------------------------


def test_init_creates_a_graph_that_opens(tmp_path: Path) -> None:
    (tmp_path / "s.pg").write_text(SCHEMA, encoding="utf-8")
    root = str(tmp_path / "new.omni")
    said = run("init", root, "--schema", str(tmp_path / "s.pg"), "--actor", "ann")
    head = og.open(root).refresh()
    assert said.out == f"created {root}: 2 tables, branch main at version 1 ({head.id})\n"
    assert (head.actor, head.operation) == ("ann", "init")


def test_init_tells_machines_root_commit_and_tables(tmp_path: Path) -> None:
    (tmp_path / "s.pg").write_text(SCHEMA, encoding="utf-8")
    root = str(tmp_path / "new.omni")
    told = run("init", root, "--schema", str(tmp_path / "s.pg"), "--json").json
    assert told == {"root": root, "commit": og.open(root).refresh().id, "tables": 2}


def test_init_refuses_a_root_that_is_taken(graph: og.Graph, tmp_path: Path) -> None:
    (tmp_path / "s.pg").write_text(SCHEMA, encoding="utf-8")
    told = run("init", graph.root, "--schema", str(tmp_path / "s.pg"), "--json", expect=Exit.CONFLICT)
    assert told.out == ""
    assert (told.problem["code"], told.problem["kind"]) == ("conflict", "GRAPH_EXISTS")


def test_a_wrong_schema_is_shown_with_its_place_and_creates_nothing(tmp_path: Path) -> None:
    (tmp_path / "s.pg").write_text("node Person { name: string }", encoding="utf-8")
    arguments = ("init", str(tmp_path / "new.omni"), "--schema", str(tmp_path / "s.pg"))
    assert "did you mean 'String'?" in run(*arguments, expect=Exit.ERROR).err
    problem = run(*arguments, "--json", expect=Exit.ERROR).problem
    assert (problem["kind"], problem["line"], problem["column"]) == ("SCHEMA_INVALID", 1, 21)
    assert not (tmp_path / "new.omni").exists()


def test_a_schema_file_that_is_not_there_is_wrong_usage(tmp_path: Path) -> None:
    told = run("init", str(tmp_path / "g"), "--schema", str(tmp_path / "no.pg"), expect=Exit.USAGE)
    assert told.err.startswith("[INVALID_OPTION] the schema file can not be read")


# -- look -----------------------------------------------------------------------------------------------


def test_a_snapshot_lists_every_table_with_its_rows(graph: og.Graph) -> None:
    said = run("snapshot", graph.root).out.split()
    assert said[said.index("node:Person") + 1] == "1"
    assert said[said.index("edge:Knows") + 1] == "0"


def test_a_snapshot_tells_machines_its_commit_and_its_tables(graph: og.Graph) -> None:
    told = run("snapshot", graph.root, "--branch", "review", "--json").json
    assert set(told) == COMMIT_KEYS | {"tables"}
    assert told["tables"] == {"node:Person": 2, "edge:Knows": 0}


def test_a_snapshot_is_chosen_by_tag_commit_version_or_time(graph: og.Graph) -> None:
    newest, loaded, first = graph.log("review")

    def version(*options: str) -> object:
        return run("snapshot", graph.root, *options, "--json").json["version"]

    assert version("--tag", "loaded") == loaded.version
    assert version("--commit", newest.id) == newest.version
    assert version("--commit", newest.id.lower()) == newest.version
    assert version("--version", "1") == first.version
    assert version("--branch", "review", "--timestamp", loaded.created_at.isoformat()) == loaded.version


def test_contradicting_choices_of_a_snapshot_are_wrong_usage(graph: og.Graph) -> None:
    told = run("snapshot", graph.root, "--tag", "loaded", "--version", "1", "--json", expect=Exit.USAGE)
    assert told.problem["kind"] == "INVALID_OPTION"


def test_the_schema_is_shown_printed_or_as_it_was_accepted(graph: og.Graph) -> None:
    assert run("schema", "show", graph.root).out == graph.schema.show()
    assert run("schema", "show", graph.root, "--source", "--branch", "review").out == SCHEMA
    told = run("schema", "show", graph.root, "--json").json
    assert told == {"schema": graph.schema.show(), "hash": graph.refresh().schema_hash}


def test_the_version_is_that_of_the_package() -> None:
    assert run("version").out == f"omnigraph {og.__version__}\n"
    assert run("version", "--json").json == {"omnigraph": og.__version__}


def test_commands_that_only_look_write_nothing(graph: og.Graph) -> None:
    def stored() -> dict[str, int]:
        return {str(path): path.stat().st_mtime_ns for path in place(graph.root).rglob("*")}

    before = stored()
    for command in ("snapshot", "branch list", "tag list", "commit list", "schema show"):
        run(*command.split(), graph.root)
    run("branch", "delete", graph.root, "review")
    run("tag", "delete", graph.root, "loaded")
    assert stored() == before


# -- branches -------------------------------------------------------------------------------------------


def test_a_branch_is_created_from_a_branch_a_tag_or_a_commit(graph: og.Graph) -> None:
    assert run("branch", "create", graph.root, "a").out == "created branch a at version 2\n"
    assert run("branch", "create", graph.root, "b", "--from", "review").out == "created branch b at version 3\n"
    assert run("branch", "create", graph.root, "c", "--from", "loaded").out == "created branch c at version 2\n"
    first = graph.log()[-1].id
    told = run("branch", "create", graph.root, "d", "--from", first, "--actor", "cy", "--json").json
    assert set(told) == BRANCH_KEYS
    assert (told["name"], told["version"], told["head"], told["created_by"]) == ("d", 1, first, "cy")


def test_branches_are_listed_main_first(graph: og.Graph) -> None:
    run("branch", "create", graph.root, "a")
    told = run("branch", "list", graph.root, "--json").json
    assert [branch["name"] for branch in told] == ["main", "a", "review"]
    assert all(set(branch) == BRANCH_KEYS for branch in told)
    lines = run("branch", "list", graph.root).out.splitlines()
    assert [line.split()[0] for line in lines] == ["branch", "main", "a", "review"]


def test_a_branch_is_renamed(graph: og.Graph) -> None:
    assert run("branch", "rename", graph.root, "review", "checked").out == "renamed branch review to checked\n"
    told = run("branch", "rename", graph.root, "checked", "done", "--json").json
    assert (told["name"], told["version"]) == ("done", 3)


def test_deleting_a_branch_previews_unless_confirmed(graph: og.Graph) -> None:
    said = run("branch", "delete", graph.root, "review")
    assert said.out == "would delete branch review; add --confirm to do it\n"
    assert run("branch", "delete", graph.root, "review", "--json").json["deleted"] is False
    assert graph.branches.get("review").version == 3
    told = run("branch", "delete", graph.root, "review", "--confirm", "--json").json
    assert set(told) == BRANCH_KEYS | {"deleted"}
    assert told["deleted"] is True
    assert [branch.name for branch in graph.branches.list()] == ["main"]


def test_main_can_not_be_deleted(graph: og.Graph) -> None:
    told = run("branch", "delete", graph.root, "main", "--confirm", "--json", expect=Exit.ERROR)
    assert (told.problem["code"], told.problem["kind"]) == ("not_permitted", "PROTECTED_BRANCH")


def test_a_taken_name_is_a_conflict(graph: og.Graph) -> None:
    for name in ("review", "REVIEW", "loaded", "main"):
        told = run("branch", "create", graph.root, name, "--json", expect=Exit.CONFLICT)
        assert told.problem["kind"] == "BRANCH_EXISTS"
    assert run("tag", "create", graph.root, "review", expect=Exit.CONFLICT).err.startswith("[TAG_EXISTS]")
    assert run("branch", "rename", graph.root, "review", "loaded", expect=Exit.CONFLICT).out == ""


# -- tags -----------------------------------------------------------------------------------------------


def test_a_tag_is_created_listed_and_deleted(graph: og.Graph) -> None:
    head = graph.on("review").refresh().id
    assert run("tag", "create", graph.root, "v2", "--at", "review").out == f"tag v2 names commit {head}\n"
    told = run("tag", "create", graph.root, "v3", "--at", "v2", "--actor", "cy", "--json").json
    assert set(told) == TAG_KEYS
    assert (told["commit"], told["created_by"]) == (head, "cy")
    assert [tag["name"] for tag in run("tag", "list", graph.root, "--json").json] == ["loaded", "v2", "v3"]
    assert head in run("tag", "list", graph.root).out
    assert run("tag", "delete", graph.root, "v2", "--confirm").out == "deleted tag v2\n"
    assert [tag.name for tag in graph.tags.list()] == ["loaded", "v3"]


def test_deleting_a_tag_previews_unless_confirmed(graph: og.Graph) -> None:
    assert run("tag", "delete", graph.root, "loaded").out == "would delete tag loaded; add --confirm to do it\n"
    told = run("tag", "delete", graph.root, "loaded", "--json").json
    assert set(told) == TAG_KEYS | {"deleted"}
    assert told["deleted"] is False
    assert graph.tags.get("loaded").commit == graph.refresh().id


# -- commits --------------------------------------------------------------------------------------------


def test_commits_are_listed_newest_first(graph: og.Graph) -> None:
    told = run("commit", "list", graph.root, "--branch", "review", "--json").json
    assert [commit["version"] for commit in told] == [3, 2, 1]
    assert all(set(commit) == COMMIT_KEYS for commit in told)
    said = run("commit", "list", graph.root).out
    assert [line.split()[0] for line in said.splitlines()] == ["version", "2", "1"]
    assert "first load" in said


def test_commits_are_limited_and_filtered_by_actor(graph: og.Graph) -> None:
    arguments = ("commit", "list", graph.root, "--branch", "review", "--json")
    assert [commit["version"] for commit in run(*arguments, "--limit", "1").json] == [3]
    assert [commit["version"] for commit in run(*arguments, "--filter", "actor=ann").json] == [2, 1]
    assert run(*arguments, "--filter", "actor=nobody").json == []


@pytest.mark.parametrize("text", ["actor", "actor=", "branch=x", "", "=ann"])
def test_a_filter_that_names_no_actor_is_wrong_usage(graph: og.Graph, text: str) -> None:
    told = run("commit", "list", graph.root, "--filter", text, "--json", expect=Exit.USAGE)
    assert told.problem["kind"] == "INVALID_OPTION"


def test_one_commit_is_shown(graph: og.Graph) -> None:
    head = graph.refresh()
    assert run("commit", "show", graph.root, head.id, "--json").json == head.to_dict()
    said = run("commit", "show", graph.root, head.id).out
    assert head.id in said
    assert "first load" in said
