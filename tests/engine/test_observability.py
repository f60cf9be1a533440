"""What is logged of an operation: records with one id, lines of JSON without secrets, nothing unless asked."""

import io
import json
import logging
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.engine.cli_kit import run, wide_terminal
from tests.engine.observed_kit import ONE_RECORD, SCHEMA, die, graph

import omnigraph as og
from omnigraph import logs, observing
from omnigraph.cli.output import Exit
from omnigraph.engine.ahead import ahead
from omnigraph.engine.upkeep import at_once
from omnigraph.errors import BranchNotFoundError, InvalidOptionError, StorageError
from omnigraph.ids import is_ulid
from omnigraph.storage.roots import StorageOptions
from omnigraph.storage.sidecars import Sidecars
from omnigraph.testing.places import place

__all__ = ["graph", "wide_terminal"]  # fixtures

SECRET = "wJalrXUtnFEMI/K7MDENG+bPxRfiCY"


@pytest.fixture(autouse=True)
def _quiet_afterwards() -> Iterator[None]:
    yield
    logs.off()


class Lines:
    """What was logged as JSON, read back."""

    def __init__(self) -> None:
        self.stream = io.StringIO()

    @property
    def all(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.stream.getvalue().splitlines()]

    def ends(self) -> list[dict[str, Any]]:
        return [line for line in self.all if "took_ms" in line and line["level"] != "DEBUG"]

    def end(self) -> dict[str, Any]:
        (line,) = self.ends()
        return line


@pytest.fixture
def lines() -> Lines:
    made = Lines()
    logs.to_json(made.stream, "debug")
    return made


# -- what is told --------------------------------------------------------------------------------------


def test_a_commit_tells_its_beginning_and_its_end_with_all_that_is_known(graph: og.Graph, lines: Lines) -> None:
    with graph.transaction() as tx:
        tx.upsert("Person", [{"name": "p0", "age": 99}, {"name": "new"}])
    began, end = lines.all[0], lines.end()
    assert (began["level"], began["message"]) == ("DEBUG", "commit began")
    assert (end["level"], end["message"], end["logger"]) == ("INFO", "commit ended", "omnigraph.operations")
    assert is_ulid(end["operation_id"])
    told = {name: end[name] for name in ("operation", "graph", "branch", "commit", "version", "attempts")}
    assert told == {
        "operation": "commit",
        "graph": graph.root,
        "branch": "main",
        "commit": tx.receipt.commit,
        "version": tx.receipt.version,
        "attempts": 1,
    }
    assert (end["rows"], end["rows_inserted"], end["rows_updated"], end["rows_deleted"]) == (2, 1, 1, 0)
    assert set(end["phases"]) == {"stage", "promise", "seal", "publish", "forget"}
    assert end["took_ms"] >= max(end["phases"].values())


def _branch(graph: og.Graph) -> og.Graph:
    graph.branches.create("b")
    with graph.transaction("b") as tx:
        tx.append("Person", [{"name": "on b"}])
    return graph


OPERATIONS: dict[str, Callable[[og.Graph], object]] = {
    "commit": lambda g: g.transaction().__enter__().__exit__(None, None, None),
    "mutate": lambda g: g.mutate('query q() { insert Person { name: "m" } }'),
    "load": lambda g: g.load(io.BytesIO(ONE_RECORD)),
    "export": lambda g: g.export(io.BytesIO()),
    "merge": lambda g: g.branches.merge("b"),
    "restore": lambda g: g.restore("main", g.log()[-1].id),
    "create_branch": lambda g: g.branches.create("c"),
    "rename_branch": lambda g: g.branches.rename("b", "c"),
    "delete_branch": lambda g: g.branches.delete("b"),
    "create_tag": lambda g: g.tags.create("t"),
    "apply_schema": lambda g: g.schema.apply(SCHEMA + " node Other { x: String @key }"),
    "ensure_indices": lambda g: g.ensure_indices(),
    "optimize": lambda g: g.optimize(),
    "cleanup": lambda g: g.cleanup(keep=1),
    "verify": lambda g: g.verify(),
}
MAKES_A_COMMIT = {"mutate", "load", "merge", "restore", "apply_schema", "ensure_indices"}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_operation_tells_one_end_and_all_its_records_have_its_id(graph: og.Graph, operation: str) -> None:
    _branch(graph)
    lines = Lines()
    logs.to_json(lines.stream, "debug")
    OPERATIONS[operation](graph)
    end = lines.end()
    assert (end["operation"], end["level"], end["graph"]) == (operation, "INFO", graph.root)
    assert {line["operation_id"] for line in lines.all} == {end["operation_id"]}
    assert lines.all[0]["message"] == f"{operation} began"
    if operation in MAKES_A_COMMIT:
        assert end["commit"] == graph.log()[0].id


def test_creating_a_graph_is_an_operation_and_so_is_deleting_a_tag(tmp_path: Path, lines: Lines) -> None:
    graph = og.init(tmp_path / "new", SCHEMA)
    graph.tags.create("t")
    graph.tags.delete("t")
    first = graph.log()[-1].id
    assert [(end["operation"], end["commit"]) for end in lines.ends()] == [
        ("init", first),
        ("create_tag", first),
        ("delete_tag", first),
    ]


def test_two_operations_have_two_ids(graph: og.Graph, lines: Lines) -> None:
    graph.tags.create("one")
    graph.tags.create("two")
    assert len({line["operation_id"] for line in lines.all}) == 2


def test_what_a_caller_does_inside_a_transaction_is_an_operation_of_its_own(graph: og.Graph, lines: Lines) -> None:
    with graph.transaction() as tx:
        tx.append("Person", [{"name": "x"}])
        graph.tags.create("meanwhile")
    tag, commit = lines.ends()
    assert (tag["operation"], commit["operation"]) == ("create_tag", "commit")
    assert tag["operation_id"] != commit["operation_id"]


def test_recovery_at_the_beginning_of_a_write_belongs_to_that_write(tmp_path: Path, lines: Lines) -> None:
    graph = og.init(tmp_path / "g", SCHEMA)
    die(graph)
    lines.stream.truncate(0)
    lines.stream.seek(0)
    with graph.transaction() as tx:
        tx.append("Person", [{"name": "alive"}])
    decided = [line for line in lines.all if line["message"] == "recovery decided"]
    end = lines.end()
    assert [line["operation_id"] for line in decided] == [end["operation_id"]]
    assert decided[0]["commit"] != end["commit"] == tx.receipt.commit


def test_housekeeping_that_fails_is_told_with_the_id_of_the_write(
    graph: og.Graph, lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Sidecars, operation: str) -> None:
        raise StorageError("gone fishing")

    monkeypatch.setattr(Sidecars, "forget", refuse)
    with graph.transaction() as tx:
        tx.append("Person", [{"name": "x"}])
    (warning,) = [line for line in lines.all if line["level"] == "WARNING"]
    assert warning["message"] == "a sidecar was left behind"
    assert warning["operation_id"] == lines.all[-1]["operation_id"]
    assert "gone fishing" in warning["traceback"]


def test_threads_we_start_log_with_the_id_of_the_operation(lines: Lines) -> None:
    log = observing.logger("omnigraph.test_threads")
    here = threading.get_ident()

    def work(number: int) -> int:
        log.info("part", extra={"by": threading.get_ident()})
        return number

    with observing.observed("upkeep", "somewhere") as seen:
        assert [done.result() for _, done in at_once(work, range(20))] == list(range(20))
        assert list(ahead(map(work, range(20)))) == list(range(20))
    parts = [line for line in lines.all if line["message"] == "part"]
    assert len(parts) == 40
    assert here not in {line["by"] for line in parts}
    assert {(line["operation_id"], line["operation"]) for line in parts} == {(seen.operation_id, "upkeep")}


def test_outside_an_operation_the_fields_are_there_and_empty(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "omnigraph"):
        observing.logger("omnigraph.test_outside").info("alone")
    (record,) = caplog.records
    assert [vars(record)[name] for name in observing.STAMPED] == [None] * len(observing.STAMPED)


# -- failures ------------------------------------------------------------------------------------------


def test_a_refusal_is_a_warning_with_its_code_and_reason(graph: og.Graph, lines: Lines) -> None:
    with pytest.raises(BranchNotFoundError):
        graph.branches.delete("nobody")
    end = lines.end()
    assert (end["level"], end["message"], end["code"]) == ("WARNING", "delete_branch failed", "BRANCH_NOT_FOUND")
    assert "nobody" in end["reason"]


def test_values_of_rows_are_not_logged_when_they_are_refused(graph: og.Graph, lines: Lines) -> None:
    with pytest.raises(og.OmnigraphError, match="p0"), graph.transaction() as tx:
        tx.append("Person", [{"name": "p0"}])
    assert lines.end()["code"] == "INVALID_DATA"
    assert "p0" not in lines.stream.getvalue()


def test_trouble_with_storage_is_an_error_and_so_is_what_is_not_ours(
    graph: og.Graph, lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ZeroDivisionError), graph.transaction():
        _ = 1 / 0

    def refuse(*_: object) -> None:
        raise StorageError("the disk is full")

    monkeypatch.setattr(Sidecars, "pending", refuse)
    with pytest.raises(StorageError):
        graph.recover()
    assert [(end["level"], end["operation"], end["code"], end.get("reason")) for end in lines.ends()] == [
        ("ERROR", "commit", "ZeroDivisionError", None),
        ("ERROR", "recover", "STORAGE", "the disk is full"),
    ]


def test_a_read_only_handle_tells_that_it_was_asked_to_write(graph: og.Graph, lines: Lines) -> None:
    with pytest.raises(og.OmnigraphError):
        og.open(graph.root, read_only=True).transaction()
    assert lines.end()["code"] == "READ_ONLY"


def test_a_damaged_graph_is_a_warning(graph: og.Graph, lines: Lines) -> None:
    for file in place(graph.root).glob("nodes/*/data/*.lance"):
        file.unlink()
    assert not graph.verify().is_sound
    end = lines.end()
    assert (end["level"], end["operation"]) == ("WARNING", "verify")
    assert end["troubles"] > 0


# -- how it is shown -----------------------------------------------------------------------------------


def test_nothing_is_printed_unless_asked_for(tmp_path: Path) -> None:
    code = (
        "import sys, omnigraph as og\n"
        "from omnigraph.observing import logger\n"
        "graph = og.init(sys.argv[1], 'node A { x: String @key }')\n"
        "logger('omnigraph.somewhere').error('trouble')\n"
        "try:\n    graph.branches.delete('nobody')\nexcept og.OmnigraphError: pass\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "g")], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")


def test_a_record_is_one_line_of_json_whatever_is_in_it(lines: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
    # Processes that share tests tell each other what was logged, and none of them can say half a character.
    monkeypatch.setattr(logging.getLogger("omnigraph"), "propagate", False)
    log = observing.logger("omnigraph.test_json")
    log.info("two\nlines \udc80 %s", "é", extra={"number": float("nan"), "path": Path("/x"), "deep": {"a": [1, None]}})
    (line,) = lines.all
    assert line["message"] == "two\nlines \udc80 é"
    assert (line["number"], line["path"], line["deep"]) == ("nan", "/x", {"a": [1, None]})
    assert line["time"].endswith("+00:00")


SPELLINGS = (SECRET, SECRET.replace("/", "%2F").replace("+", "%2B"), repr(SECRET))


@pytest.mark.parametrize("shown", [logs.to_json, logs.to_text])
def test_no_secret_is_shown_wherever_it_was_put(shown: Callable[..., logging.Handler]) -> None:
    StorageOptions({"aws_access_key_id": "AKIAIOSFODNN7EXAMPLE", "aws_secret_access_key": SECRET})
    stream = io.StringIO()
    shown(stream)
    log = observing.logger("omnigraph.test_secrets")
    for spelling in SPELLINGS:
        log.info("with %s in it", spelling, extra={"field": [spelling], "by": {spelling: spelling}})
    log.warning("trouble", exc_info=ValueError(SECRET))
    log.info("https://user:hunter2secret@host/x and https://s3/x?X-Amz-Signature=abcdef012&y=1 by AKIAIOSFODNN7EXAMPLE")
    text = stream.getvalue()
    for hidden in (*SPELLINGS, "AKIAIOSFODNN7EXAMPLE", "hunter2secret", "abcdef012"):
        assert hidden not in text
    assert "https://user:***@host/x" in text
    assert "y=1" in text


def test_a_secret_of_the_environment_is_not_shown(lines: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", "token-of-the-environment")
    observing.logger("omnigraph.test_secrets").info("token-of-the-environment")
    assert [line["message"] for line in lines.all] == ["***"]


def test_asking_twice_shows_once_and_off_shows_nothing() -> None:
    first, second = io.StringIO(), io.StringIO()
    logs.to_json(first)
    logs.to_text(second, "warning")
    log = observing.logger("omnigraph.test_twice")
    log.warning("seen")
    log.info("too little")
    logs.off()
    log.warning("unseen")
    assert first.getvalue() == ""
    assert "seen" in second.getvalue()
    assert second.getvalue().count("\n") == 1


@pytest.mark.parametrize(
    ("said", "lines_shown", "level"),
    [
        ("json", logs.JsonLines, "INFO"),
        ("json:debug", logs.JsonLines, "DEBUG"),
        ("TEXT:error", logs.TextLines, "ERROR"),
    ],
)
def test_the_variable_says_how_and_how_much(said: str, lines_shown: type[logging.Formatter], level: str) -> None:
    handler = logs.from_environment({logs.VARIABLE: said})
    assert handler is not None
    assert isinstance(handler.formatter, lines_shown)
    assert logging.getLogger("omnigraph").level == getattr(logging, level)


@pytest.mark.parametrize("said", ["xml", "json:loud", ":info"])
def test_a_variable_that_says_nothing_we_know_is_refused(said: str) -> None:
    with pytest.raises(InvalidOptionError, match="OMNIGRAPH_LOG"):
        logs.from_environment({logs.VARIABLE: said})
    assert logs.from_environment({}) is None


def test_a_level_that_is_not_there_is_refused() -> None:
    with pytest.raises(InvalidOptionError, match="loud"):
        logs.to_json(level="loud")


def test_the_command_line_logs_to_standard_error_if_asked(graph: og.Graph) -> None:
    asked = run("--log-json", "branch", "create", graph.root, "from-cli", "--json")
    assert json.loads(asked.out)["name"] == "from-cli"
    told = [json.loads(line) for line in asked.err.splitlines()]
    assert [line["operation"] for line in told] == ["create_branch"]
    as_text = run("--log-level", "debug", "tag", "create", graph.root, "t")
    assert "create_tag began" in as_text.err
    logs.off()
    assert run("tag", "create", graph.root, "u").err == ""
    run("--log-level", "loud", "version", expect=Exit.USAGE)
