"""The command line: what each command prints, for people and for machines, and how it ends."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import omnigraph as og
from omnigraph.cli.app import app
from omnigraph.cli.output import Exit, exit_code
from omnigraph.errors import (
    AlreadyExistsError,
    BranchConflictError,
    ContentionError,
    CorruptGraphError,
    InvalidDataError,
    InvalidNameError,
    InvalidOptionError,
    NotFoundError,
    OmnigraphError,
    ReadOnlyError,
    SchemaError,
    VersionConflictError,
)
from omnigraph.testing.s3_server import SeaweedServer

SCHEMA = "// kept as it is\nnode Person { name: String @key }\nedge Knows: Person -> Person\n"
ENTRY = "from omnigraph.cli import main; main()"
CANARY = "CANARYcanary0123456789CANARYcanary012345"
NOBODY = "01" + "Z" * 24

COMMIT_KEYS = {
    "id",
    "branch",
    "version",
    "parents",
    "actor",
    "operation",
    "message",
    "created_at",
    "schema_hash",
    "metrics",
    "user_metadata",
}
BRANCH_KEYS = {"name", "head", "version", "incarnation", "created_at", "created_by", "parent"}
TAG_KEYS = {"name", "commit", "created_at", "created_by"}


@dataclass(frozen=True, slots=True)
class Ran:
    """How a command ended and what it said."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def problem(self) -> Any:
        return json.loads(self.err)


@pytest.fixture(autouse=True)
def wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("NO_COLOR", "1")


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    """A graph with one person, a branch with two, and a tag."""
    graph = og.init(tmp_path / "g.omni", SCHEMA, actor="ann")
    with graph.transaction(message="first load") as tx:
        tx.append("Person", [{"name": "Ann"}])
    graph.tags.create("loaded")
    graph.branches.create("review")
    with graph.transaction("review", actor="bo") as tx:
        tx.append("Person", [{"name": "Bo"}])
    return graph


def run(*arguments: str, expect: int = Exit.DONE) -> Ran:
    """Run a command in this process."""
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == expect, f"{arguments}\n{result.stdout}\n{result.stderr}\n{result.exception!r}"
    return Ran(result.exit_code, result.stdout, result.stderr)


def spawn(*arguments: str, **environment: str) -> Ran:
    """Run a command in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", ENTRY, *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )
    return Ran(done.returncode, done.stdout, done.stderr)


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
        return {str(path): path.stat().st_mtime_ns for path in Path(graph.root).rglob("*")}

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


# -- how commands end -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        (["snapshot", "--branch", "nope"], "BRANCH_NOT_FOUND"),
        (["snapshot", "--tag", "nope"], "TAG_NOT_FOUND"),
        (["snapshot", "--version", "99"], "COMMIT_NOT_FOUND"),
        (["snapshot", "--timestamp", "1999-01-01"], "COMMIT_NOT_FOUND"),
        (["commit show", NOBODY], "COMMIT_NOT_FOUND"),
        (["commit list", "--branch", "nope"], "BRANCH_NOT_FOUND"),
        (["schema show", "--branch", "nope"], "BRANCH_NOT_FOUND"),
        (["branch delete", "nope"], "BRANCH_NOT_FOUND"),
        (["branch delete", "nope", "--confirm"], "BRANCH_NOT_FOUND"),
        (["branch rename", "nope", "new"], "BRANCH_NOT_FOUND"),
        (["tag delete", "nope"], "TAG_NOT_FOUND"),
        (["branch create", "new", "--from", NOBODY], "COMMIT_NOT_FOUND"),
    ],
)
def test_what_is_not_there_ends_with_three(graph: og.Graph, arguments: list[str], kind: str) -> None:
    command, *options = arguments
    told = run(*command.split(), graph.root, *options, "--json", expect=Exit.NOT_FOUND)
    assert told.out == ""
    assert (told.problem["code"], told.problem["kind"], told.problem["retryable"]) == ("not_found", kind, False)
    assert told.problem["error"].startswith(f"[{kind}] ")


def test_a_reference_to_nothing_ends_with_three(graph: og.Graph) -> None:
    assert run("branch", "create", graph.root, "new", "--from", "nope", expect=Exit.NOT_FOUND).out == ""
    assert run("tag", "create", graph.root, "new", "--at", "nope", expect=Exit.NOT_FOUND).out == ""


@pytest.mark.parametrize(
    "command",
    [
        "snapshot {root}",
        "branch list {root}",
        "branch create {root} x",
        "branch delete {root} x --confirm",
        "tag list {root}",
        "tag create {root} x",
        "commit list {root}",
        "schema show {root}",
    ],
)
def test_a_root_without_a_graph_ends_with_three_and_stays_as_it_is(tmp_path: Path, command: str) -> None:
    told = run(*command.format(root=tmp_path / "none").split(), "--json", expect=Exit.NOT_FOUND)
    assert told.problem["kind"] == "GRAPH_NOT_FOUND"
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("name", ["", "a b", "[red]x", "../x", "x" * 201, "naïve", NOBODY])
def test_a_bad_name_ends_with_two(graph: og.Graph, name: str) -> None:
    for command in ("branch", "tag"):
        told = run(command, "create", graph.root, name, "--json", expect=Exit.USAGE)
        assert told.problem["kind"] == "INVALID_NAME"


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["snapshot"],
        ["snapshot", "x", "--nonsense"],
        ["snapshot", "x", "--version", "two"],
        ["snapshot", "x", "--version", "0"],
        ["snapshot", "x", "--timestamp", "yesterday"],
        ["commit", "list", "x", "--limit", "0"],
        ["commit", "show", "x", "no-id"],
        ["init", "x"],
        ["branch", "create", "x"],
        ["snapshot", "gopher://x"],
    ],
)
def test_wrong_usage_ends_with_two(graph: og.Graph, arguments: list[str]) -> None:
    assert run(*(graph.root if word == "x" else word for word in arguments), expect=Exit.USAGE).out == ""


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (OmnigraphError("x"), 1),
        (InvalidDataError("x"), 1),
        (SchemaError("x"), 1),
        (ReadOnlyError("x"), 1),
        (CorruptGraphError("x"), 1),
        (InvalidNameError("x"), 2),
        (InvalidOptionError("x"), 2),
        (NotFoundError("x"), 3),
        (AlreadyExistsError("x"), 4),
        (BranchConflictError("x"), 4),
        (ContentionError("x"), 4),
        (VersionConflictError("x", table_key="node:A", expected=1, actual=2), 4),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
)
def test_each_kind_of_error_has_its_exit_code(error: OmnigraphError, code: int) -> None:
    assert exit_code(error) == code


def test_an_error_for_people_is_one_text_on_standard_error(graph: og.Graph) -> None:
    told = run("snapshot", graph.root, "--branch", "reviw", expect=Exit.NOT_FOUND)
    assert told.err == "[BRANCH_NOT_FOUND] there is no branch 'reviw' (did you mean 'review'?)\n"
    assert told.out == ""


@pytest.mark.parametrize(
    "arguments", [[], ["branch"], ["tag"], ["commit"], ["schema"], ["--help"], ["snapshot", "--help"]]
)
def test_help_is_shown_when_nothing_is_asked_for(arguments: list[str]) -> None:
    result = CliRunner().invoke(app, arguments)
    assert "Usage: " in result.output
    assert "--help" in result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)


# -- text comes out as it went in -----------------------------------------------------------------------

ODD = ["[red]stop[/red]", "[bold", "[/]", ":smile:", "Zoë ☃ 日本語 🦜", "a\\[b]", "{x} %s"]


@pytest.mark.parametrize("text", ODD)
def test_messages_and_actors_are_printed_literally(tmp_path: Path, text: str) -> None:
    graph = og.init(tmp_path / "g", SCHEMA)
    with graph.transaction(message=f"about {text}", actor=text) as tx:
        tx.append("Person", [{"name": "Ann"}])
    said = run("commit", "list", graph.root).out
    assert f"about {text}" in said
    assert text in run("commit", "show", graph.root, graph.refresh().id).out
    told = run("commit", "list", graph.root, "--filter", f"actor={text}", "--json")
    assert (told.json[0]["actor"], told.json[0]["message"]) == (text, f"about {text}")
    assert text.replace("\\", "\\\\") in told.out  # not escaped to ASCII


def test_a_root_with_markup_in_its_name_is_printed_literally(tmp_path: Path) -> None:
    (tmp_path / "s.pg").write_text(SCHEMA, encoding="utf-8")
    root = str(tmp_path / "[red]x [bold].omni")
    assert f"created {root}: " in run("init", root, "--schema", str(tmp_path / "s.pg")).out
    assert root in run("init", root, "--schema", str(tmp_path / "s.pg"), expect=Exit.CONFLICT).err


def test_a_bad_name_with_markup_is_printed_literally(graph: og.Graph) -> None:
    assert "'[red]x'" in run("branch", "create", graph.root, "[red]x", expect=Exit.USAGE).err


# -- credentials ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "pairs",
    [
        [CANARY],
        [f"secret={CANARY}"],
        [f"aws_secret_access_key={CANARY}"],
        [f"aws_access_key_id=x\n{CANARY}", "aws_secret_access_key=y"],
        [f"aws_endpoint=ftp://{CANARY}"],
        [f"aws_endpoint=http://me:{CANARY}@host"],
        [f"allow_http={CANARY}"],
    ],
)
@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_storage_option_that_is_refused_is_not_repeated(pairs: list[str], form: list[str]) -> None:
    options = [word for pair in pairs for word in ("--storage", pair)]
    told = run("snapshot", "s3://bucket/prefix", *options, *form, expect=Exit.USAGE)
    assert CANARY not in told.out + told.err


def test_storage_options_for_a_local_root_are_refused_without_their_values(graph: og.Graph) -> None:
    keys = ("--storage", "aws_access_key_id=x", "--storage", f"aws_secret_access_key={CANARY}")
    told = run("branch", "list", graph.root, *keys, expect=Exit.USAGE)
    assert "storage options are for s3:// roots" in told.err
    assert CANARY not in told.out + told.err


@pytest.mark.s3
def test_credentials_are_not_shown_by_a_command_on_s3(
    s3_server: SeaweedServer, s3_root: Callable[[], str], tmp_path: Path
) -> None:
    (tmp_path / "s.pg").write_text(SCHEMA, encoding="utf-8")
    root = s3_root()
    good = s3_server.storage_options()
    told = run("init", root, "--schema", str(tmp_path / "s.pg"), *as_options(good))
    told_more = run("branch", "create", root, "x", *as_options(good), "--json")
    shown = told.out + told.err + told_more.out + told_more.err
    assert not [key for key, value in good.items() if "key" in key and value in shown]
    bad = {**good, "aws_secret_access_key": CANARY}
    for form in ((), ("--json",)):
        refused = run("snapshot", root, *as_options(bad), *form, expect=Exit.ERROR)
        assert CANARY not in refused.out + refused.err
        assert refused.err


def as_options(options: dict[str, str]) -> list[str]:
    return [word for key, value in options.items() for word in ("--storage", f"{key}={value}")]


# -- as a program ---------------------------------------------------------------------------------------


def test_as_a_program_it_prints_json_and_nothing_else(graph: og.Graph) -> None:
    told = spawn("snapshot", graph.root, "--json")
    assert (told.code, told.err) == (0, "")
    assert told.json["tables"] == {"node:Person": 1, "edge:Knows": 0}


def test_as_a_program_it_ends_with_the_promised_codes(graph: og.Graph) -> None:
    missing = spawn("branch", "delete", graph.root, "nope", "--json")
    assert (missing.code, missing.out, missing.problem["kind"]) == (3, "", "BRANCH_NOT_FOUND")
    assert spawn("branch", "create", graph.root, "review").code == 4
    assert spawn("branch", "delete", graph.root, "main", "--confirm").code == 1
    assert spawn("snapshot", graph.root, "--nonsense").code == 2


def test_as_a_program_without_arguments_it_shows_help() -> None:
    told = spawn()
    assert "Usage: " in told.out + told.err
    assert "Traceback" not in told.err


def test_as_a_program_it_prints_unicode(tmp_path: Path) -> None:
    graph = og.init(tmp_path / "g", SCHEMA)
    with graph.transaction(message="naïve ☃ 日本語") as tx:
        tx.append("Person", [{"name": "Ann"}])
    told = spawn("commit", "list", graph.root, PYTHONUTF8="1")
    assert (told.code, told.err) == (0, "")
    assert "naïve ☃ 日本語" in told.out


def test_help_is_quick_because_lance_is_not_imported() -> None:
    code = "import sys; import omnigraph.cli.app; assert not {'lance', 'obstore'} & set(sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
