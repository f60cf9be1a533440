"""House rules a linter does not know: sizes, the front door, forbidden words, and what the README promises."""

import ast
import re
from pathlib import Path

import pytest

import omnigraph

HOUSE = Path(__file__).parents[2]
LIBRARY = HOUSE / "coordinator" / "omnigraph"
LINES_MAX = 500
PREDICATES = re.compile(r"\b\w+\s*(=|<|>|<=|>=|<>|!=)\s*'?$|\b(?i:IN)\s*\($|\b(?i:LIKE)\s*'?$|\bWHERE\b|\bSELECT\b")
MAY_BUILD_PREDICATES = {"storage/manifest.py"}

MODULES = sorted(
    path for folder in ("coordinator", "connector", "jobs", "tests") for path in (HOUSE / folder).rglob("*.py")
)
LIBRARY_MODULES = sorted(path for path in LIBRARY.rglob("*.py") if LIBRARY / "testing" not in path.parents)


def name_of(path: Path) -> str:
    return str(path.relative_to(HOUSE))


def test_there_are_modules_to_look_at() -> None:
    assert len(MODULES) > 60
    assert len(LIBRARY_MODULES) > 30


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_no_module_is_longer_than_five_hundred_lines(path: Path) -> None:
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= LINES_MAX, f"{name_of(path)} has {lines} lines; split it"


# -- the front door -----------------------------------------------------------------------------------


def test_the_front_door_lists_its_names_sorted_and_once() -> None:
    assert omnigraph.__all__ == sorted(set(omnigraph.__all__))


@pytest.mark.parametrize("name", omnigraph.__all__)
def test_every_public_name_resolves(name: str) -> None:
    assert getattr(omnigraph, name) is not None


def test_the_front_door_defines_nothing_public_that_it_does_not_list() -> None:
    tree = ast.parse((LIBRARY / "__init__.py").read_text(encoding="utf-8"))
    defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    imported = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("omnigraph")
        for alias in node.names
    }
    tools = {"Sources", "create_graph", "open_graph"}  # what init and open are made with
    public = {name for name in defined | imported if not name.startswith("_")} - tools
    assert public == {name for name in omnigraph.__all__ if not name.startswith("_")}


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = omnigraph.nonsense


# -- forbidden words ----------------------------------------------------------------------------------


def imports_of(tree: ast.AST) -> set[str]:
    found = {alias.name.split(".")[0] for n in ast.walk(tree) if isinstance(n, ast.Import) for alias in n.names}
    return found | {(n.module or "").split(".")[0] for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}


def calls_of(tree: ast.AST) -> set[str]:
    return {n.func.id for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}


def unsafe_words(source: str) -> set[str]:
    tree = ast.parse(source)
    return imports_of(tree) & {"pickle", "cloudpickle", "marshal", "shelve", "yaml"} | calls_of(tree) & {"eval", "exec"}


@pytest.mark.parametrize("path", LIBRARY_MODULES, ids=name_of)
def test_the_library_neither_unpickles_nor_evaluates_nor_reads_yaml(path: Path) -> None:
    assert unsafe_words(path.read_text(encoding="utf-8")) == set()


@pytest.mark.parametrize(
    "source", ["import pickle", "from pickle import loads", "import yaml", "x = eval('1')", "exec('x')"]
)
def test_the_check_for_unsafe_words_finds_them(source: str) -> None:
    assert len(unsafe_words(source)) == 1


def spliced_predicates(source: str) -> list[str]:
    """Return the f-strings that put a value right behind something like ``id = '``."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.JoinedStr):
            for part, after in zip(node.values, node.values[1:], strict=False):
                is_text = isinstance(part, ast.Constant) and isinstance(after, ast.FormattedValue)
                if is_text and PREDICATES.search(str(part.value)):  # type: ignore[attr-defined]  # is_text says so
                    found.append(ast.unparse(node))
    return found


@pytest.mark.parametrize("path", LIBRARY_MODULES, ids=name_of)
def test_no_value_is_spliced_into_a_predicate_outside_the_manifest(path: Path) -> None:
    inside = str(path.relative_to(LIBRARY))
    found = spliced_predicates(path.read_text(encoding="utf-8"))
    if inside in MAY_BUILD_PREDICATES:
        assert found, "the manifest builds predicates of its own ids; if it no longer does, take it off the list"
    else:
        assert found == []


@pytest.mark.parametrize(
    "source",
    ["f\"id = '{x}'\"", 'f"version <= {v}"', 'f"id IN ({names})"', 'f"SELECT * FROM {t}"', "f\"a LIKE '{x}'\""],
)
def test_the_check_for_spliced_predicates_finds_them(source: str) -> None:
    assert spliced_predicates(source)


# -- promises -----------------------------------------------------------------------------------------

COMMANDS = ["python3 dev.py demo", "python3 dev.py test"]


def test_the_first_code_block_of_the_readme_is_the_two_commands() -> None:
    block = re.search(r"```\w*\n(.*?)```", (HOUSE / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert block is not None
    commands = [line.split("#")[0].strip() for line in block[1].splitlines()]
    assert [line for line in commands if line] == COMMANDS


def test_ci_runs_the_second_command_and_nothing_else() -> None:
    lines = (HOUSE / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    acts = [line for line in lines if line and not line.startswith(("#", "set ", "cd "))]
    assert acts == [f"exec {COMMANDS[1]}"]
    assert (HOUSE / ".ci" / "run").stat().st_mode & 0o111


@pytest.mark.parametrize("command", COMMANDS)
def test_dev_knows_both_commands_and_says_so(command: str) -> None:
    source = (HOUSE / "dev.py").read_text(encoding="utf-8")
    assert f'    "{command.split()[-1]}": ' in source
    assert command in (ast.get_docstring(ast.parse(source)) or "")
