"""The documentation keeps its word: its code runs, its links lead somewhere, and nothing public is left out."""

import inspect
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer.main
from tests.java import FOR_MINUTES

import omnigraph as og
from omnigraph import errors
from omnigraph.cli.app import app
from omnigraph.engine import committer, publisher, recovery
from omnigraph.errors import OmnigraphError
from omnigraph.model.manifest import FORMAT_KEY, FORMAT_VERSION
from omnigraph.model.sidecar import SIDECAR_BYTES_MAX, SIDECAR_NUMBER
from omnigraph.model.staged import STAGED_SCHEMA
from omnigraph.rules import folding, manifest_rows
from omnigraph.rules.schema_compile import FreshIds, compile_schema
from omnigraph.storage import manifest
from omnigraph.storage.audit import audit_schema
from omnigraph.storage.sidecars import Sidecars

HERE = Path(__file__).resolve().parents[2]
DOCS = HERE / "docs"
PAGES = (HERE / "README.md", HERE / "CHANGELOG.md", *sorted(DOCS.rglob("*.md")))
RUN = (HERE / "README.md", DOCS / "index.md", DOCS / "start.md", *sorted((DOCS / "guides").glob("*.md")))

ALONE = ("pyspark", "opentelemetry")
"""What a process has once: pages that use it run in processes of their own."""
SHELLS = ("sh", "console")
COMMAND = "omnigraph "
REQUIREMENTS = {"A": 7, "B": 9, "C": 10, "D": 9, "E": 6, "F": 3, "G": 5, "H": 3}
NOT_YET = "not yet"

_FENCE = re.compile(r"^(?P<ticks>`{3,})(?P<info>[^\n`]*)\n(?P<body>.*?)^(?P=ticks)[ ]*$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} +(?P<text>.+?) *$", re.MULTILINE)
_TEST = re.compile(r"`(?P<file>tests/[\w/]+\.py)(?:::(?P<name>\w+))?`")
_FROM_INDEX = re.compile(r"pip install [^`\n]*(?<![\w/.])omnigraph-spark[^`\n]*")
_ROW = re.compile(r"^\| *(?P<id>[A-Z]\d+) *\|(?P<tests>.*)\|", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block of a page."""

    page: Path
    line: int
    language: str
    file: str
    body: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(HERE)}:{self.line}"


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    for found in _FENCE.finditer(text):
        language, _, file = found["info"].strip().partition(" ")
        yield Block(page, text.count("\n", 0, found.start()) + 1, language, file.strip(), found["body"])


def prose(page: Path) -> str:
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


def name_of(page: Path) -> str:
    return str(page.relative_to(HERE))


def anchors(page: Path) -> set[str]:
    """The anchors a page has, made the way code hosts make them."""
    headings = (found["text"] for found in _HEADING.finditer(prose(page)))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


# -- code runs ------------------------------------------------------------------------------------------


def run_python(block: Block, names: dict[str, Any]) -> None:
    # Line numbers of the page, so that a failure points into it.
    source = "\n" * block.line + block.body
    exec(compile(source, name_of(block.page), "exec"), names)


def run_commands(block: Block, folder: Path) -> None:
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    for line in filter(None, block.body.splitlines()):
        assert line.startswith(COMMAND), f"{block}: {line!r} is no command of ours"
        done = subprocess.run(
            ["sh", "-c", line],
            cwd=folder,
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, f"{block}: {line}\n{done.stdout}{done.stderr}"


def run_page(page: Path, folder: Path) -> None:
    """Run what a page says, one block after the other, in a folder that is the working directory."""
    names: dict[str, Any] = {"__name__": "__docs__"}
    for block in blocks(page):
        if block.language == "python":
            run_python(block, names)
        elif block.language in SHELLS and block.body.startswith(COMMAND):
            run_commands(block, folder)
        elif block.file:
            (folder / block.file).write_text(block.body, encoding="utf-8")


def run_page_alone(page: Path, folder: Path) -> None:
    """Run a page in a process of its own: Java stays where it was started, and so do relative names and providers."""
    code = "import sys; from pathlib import Path; from tests.guards.test_docs import run_page; "
    code += "run_page(Path(sys.argv[1]), Path.cwd())"
    command = [sys.executable, "-c", code, str(page)]
    path = os.pathsep.join(filter(None, (str(HERE), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONPATH": path, "JAVA_TOOL_OPTIONS": FOR_MINUTES}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.long
@pytest.mark.parametrize("page", RUN, ids=name_of)
def test_the_code_of_a_page_runs_from_top_to_bottom(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code = [block.body for block in blocks(page) if block.language == "python"]
    is_alone = any(library in body for body in code for library in ALONE)
    (run_page_alone if is_alone else run_page)(page, tmp_path)


def test_the_guides_have_code_to_run() -> None:
    languages = [block.language for page in RUN for block in blocks(page)]
    assert languages.count("python") > 20
    assert sum(languages.count(shell) for shell in SHELLS) > 4


def test_no_page_installs_from_an_index_what_was_never_released() -> None:
    assert "Nothing has been released yet." in (HERE / "CHANGELOG.md").read_text(encoding="utf-8"), "this guard may go"
    said = {page: page.read_text(encoding="utf-8") for page in (HERE / "README.md", *sorted(DOCS.rglob("*.md")))}
    told = [(name_of(page), found[0]) for page, text in said.items() for found in _FROM_INDEX.finditer(text)]
    assert not told


SCHEMAS = [block for page in PAGES for block in blocks(page) if block.language == "pg"]


@pytest.mark.parametrize("block", SCHEMAS, ids=str)
def test_every_schema_in_the_docs_compiles(block: Block) -> None:
    numbers = iter(range(1_000_000))
    compiled = compile_schema(block.body, FreshIds(lambda: f"{next(numbers):026}"))
    assert compiled.table_types or compiled.interfaces


# -- links and paths lead somewhere ---------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_internal_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    for found in _LINK.finditer(prose(page)):
        target, _, anchor = found["target"].partition("#")
        if "://" in target:
            continue
        there = (page.parent / target).resolve() if target else page
        assert there.is_file(), f"{name_of(page)} links to {target}, which is not there"
        if anchor:
            assert anchor in anchors(there), f"{name_of(page)} links to {target}#{anchor}; there are {anchors(there)}"


def test_every_page_can_be_reached_from_the_index() -> None:
    text = prose(DOCS / "index.md")
    linked = {(DOCS / found["target"].partition("#")[0]).resolve() for found in _LINK.finditer(text)}
    missing = [name_of(page) for page in DOCS.rglob("*.md") if page not in linked and page != DOCS / "index.md"]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_test_a_page_names_exists(page: Path) -> None:
    for found in _TEST.finditer(page.read_text(encoding="utf-8")):
        file = HERE / found["file"]
        assert file.is_file(), f"{name_of(page)} names {found['file']}, which is not there"
        if found["name"]:
            defined = re.search(rf"^(?:def|class) {found['name']}\b", file.read_text(encoding="utf-8"), re.MULTILINE)
            assert defined, f"{name_of(page)} names {found[0]}, which is not there"


def test_every_test_file_has_its_line_in_the_map() -> None:
    page = (DOCS / "internals" / "testing.md").read_text(encoding="utf-8")
    files = [name_of(file) for file in sorted((HERE / "tests").rglob("test_*.py"))]
    assert [file for file in files if f"| `{file}` |" not in page] == []


# -- nothing public is left out -------------------------------------------------------------------------


def reference() -> str:
    return "\n".join(page.read_text(encoding="utf-8") for page in sorted((DOCS / "reference").glob("*.md")))


def every_error() -> list[type[OmnigraphError]]:
    return [value for value in vars(errors).values() if inspect.isclass(value) and issubclass(value, OmnigraphError)]


@pytest.mark.parametrize("name", og.__all__)
def test_every_exported_name_is_in_the_reference(name: str) -> None:
    assert re.search(rf"`{re.escape(name)}\b", reference())


@pytest.mark.parametrize("kind", every_error(), ids=lambda kind: kind.__name__)
def test_every_error_and_its_code_are_in_the_reference(kind: type[OmnigraphError]) -> None:
    page = (DOCS / "reference" / "errors.md").read_text(encoding="utf-8")
    assert kind.__name__ in page
    assert f"| `{kind.code}` |" in page


@pytest.mark.parametrize("owner", ["Graph", "Transaction", "Snapshot", "Branches", "Tags", "Schema"])
def test_every_public_method_is_in_the_api_reference(owner: str) -> None:
    from omnigraph.engine import graph, refs

    page = (DOCS / "reference" / "api.md").read_text(encoding="utf-8")
    kind = getattr(graph if hasattr(graph, owner) else refs, owner)
    internal = {"catalog", "accepted_schema"} if owner == "Graph" else set()
    for name in vars(kind):
        if not name.startswith("_") and name not in internal:
            assert re.search(rf"`{name}\b", page), f"{owner}.{name}"


def commands(group: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{prefix} {name}")
        else:
            yield f"{prefix} {name}", command


COMMANDS = dict(commands(typer.main.get_group(app), "omnigraph"))


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_every_option_is_in_the_reference(name: str) -> None:
    page = (DOCS / "reference" / "cli.md").read_text(encoding="utf-8")
    assert re.search(rf"^### `{name}\b", page, re.MULTILINE)
    for parameter in COMMANDS[name].params:
        for option in (o for o in parameter.opts if o.startswith("--") and o != "--help"):
            assert re.search(rf"`{option}\b|{option} ", page), f"{name} {option}"


# -- numbers are those of the code ----------------------------------------------------------------------

ON_DISK = [
    f"Format {FORMAT_VERSION}.",
    f"has `{FORMAT_KEY}`. Today it is `{FORMAT_VERSION}`",
    f"more than {folding.TAIL_ROWS_MAX} commits",
    f"more than {folding.TAIL_BYTES_MAX:,} bytes",
    f"If there are {folding.FAN - 1} files",
    f"beyond {folding.FOLD_BYTES_MAX >> 20} MiB",
    f"newest is {manifest.VERSIONS_KEPT} or more ahead",
    f"slept through {manifest.VERSIONS_KEPT} publishes",
    f"Every {manifest.PRUNE_EVERY_PUBLISHES}nd manifest version",
    f"that are {manifest.VERSIONS_KEPT} or more behind",
    f"Every {manifest.SWEEP_EVERY_PUBLISHES}th also",
    f"at most {publisher.ATTEMPTS_MAX:,} times",
    f"for {publisher.DEADLINE_SECONDS:.0f} seconds",
    f"| `sidecar` | the form, `{SIDECAR_NUMBER}`;",
    f"larger than {SIDECAR_BYTES_MAX >> 20} MiB",
    f"`staged` has `schema` (the form, `{STAGED_SCHEMA}`)",
    f"when {recovery.ABANDONED_DROPPED_MIN} or more of them are older than one day",
]


def test_the_pages_about_recovery_state_its_limits() -> None:
    guide = (DOCS / "guides" / "recover.md").read_text(encoding="utf-8")
    concept = (DOCS / "concepts" / "transactions-and-recovery.md").read_text(encoding="utf-8")
    seconds = f"{recovery.OWNER_GRACE.total_seconds():.0f} seconds"
    assert (seconds in guide, seconds in concept) == (True, True)
    assert f"at most {committer.SEALS_MAX} times" in concept
    assert recovery.ABANDONED_KEPT.days == 1
    for kind in (recovery.ROLLED_FORWARD, recovery.ROLLED_BACK, recovery.DISCARDED):
        assert f"| `{kind}` |" in guide


@pytest.mark.parametrize("statement", ON_DISK)
def test_the_format_page_states_the_limits_of_the_code(statement: str) -> None:
    page = " ".join((DOCS / "reference" / "on-disk-format.md").read_text(encoding="utf-8").split())
    assert statement in page


def test_the_format_page_lists_every_column_and_every_row_kind() -> None:
    page = (DOCS / "reference" / "on-disk-format.md").read_text(encoding="utf-8")
    kinds = [value for name, value in vars(manifest_rows).items() if name.isupper() and isinstance(value, str)]
    named = [*manifest_rows.manifest_schema(FORMAT_VERSION).names, *(k for k in kinds if ":" not in k)]
    assert [name for name in named if f"| `{name}` |" not in page] == []


def test_the_format_page_lists_every_field_of_a_sidecar_and_every_column_of_the_audit(tmp_path: Path) -> None:
    graph = og.init(tmp_path / "g", "node A { x: String @key }")
    seen: list[dict[str, Any]] = []
    keep = Sidecars.put

    def put(self: Sidecars, sidecar: Any) -> None:
        seen.append(json.loads(sidecar.to_bytes()))
        keep(self, sidecar)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Sidecars, "put", put)
        for write in ("append", "upsert", "overwrite"):
            with graph.transaction() as tx:
                getattr(tx, write)("A", [{"x": write}])
        with graph.transaction() as tx:
            tx.delete("A", "true")
    page = (DOCS / "reference" / "on-disk-format.md").read_text(encoding="utf-8")
    tables = [table for body in seen for table in body["tables"]]
    named = {*seen[0], *tables[0], *(name for table in tables for name in table["staged"]), *audit_schema().names}
    assert {table["staged"]["kind"] for table in tables} == {"append", "upsert", "overwrite", "delete"}
    assert sorted(name for name in named if f"`{name}`" not in page) == []


# -- requirements ---------------------------------------------------------------------------------------


def test_the_requirements_page_covers_every_requirement_once() -> None:
    page = (DOCS / "internals" / "requirements.md").read_text(encoding="utf-8")
    wanted = [f"{letter}{number}" for letter, count in REQUIREMENTS.items() for number in range(1, count + 1)]
    assert [found["id"] for found in _ROW.finditer(page)] == wanted


def test_each_requirement_names_a_test_or_says_not_yet() -> None:
    page = (DOCS / "internals" / "requirements.md").read_text(encoding="utf-8")
    for row in _ROW.finditer(page):
        named = [found for found in _TEST.finditer(row["tests"]) if found["name"]]
        assert bool(named) != (NOT_YET in row["tests"]), row["id"]
