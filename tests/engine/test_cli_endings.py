"""The command line: how commands end, what errors look like, and that nothing leaks."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.engine.cli_kit import CANARY, NOBODY, SCHEMA, graph, run, spawn, wide_terminal
from typer.testing import CliRunner

import omnigraph as og
from omnigraph.cli.app import app
from omnigraph.cli.output import Exit, exit_code
from omnigraph.errors import (
    AbandonedError,
    AlreadyAppliedError,
    AlreadyExistsError,
    BranchConflictError,
    CommitOutcomeUnknownError,
    ContentionError,
    CorruptGraphError,
    InvalidDataError,
    InvalidNameError,
    InvalidOptionError,
    MixedMutationError,
    NotFoundError,
    OmnigraphError,
    ReadOnlyError,
    RecoveryRefusedError,
    SchemaError,
    VersionConflictError,
)
from omnigraph.testing.s3_server import SeaweedServer

__all__ = ["graph", "wide_terminal"]  # fixtures


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
        (AbandonedError("x"), 4),
        (AlreadyAppliedError("x"), 4),
        (MixedMutationError("x"), 1),
        (CommitOutcomeUnknownError("x"), 1),
        (RecoveryRefusedError("x"), 6),
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
