"""The main job: build a graph of the packages installed beside this Python, branch it, show its log.

    python jobs/demo.py [FOLDER]

The data is what `importlib.metadata` finds on this machine: each package and what it depends on.
Every run makes a new graph; without FOLDER it goes under `omnigraph-demo/`.
"""

import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

import omnigraph as og

SCHEMA = """
node Package {
    name: String @key
    version: String
    summary: String?
    files: I32?
    @range(files, 0..)
}

// what a package can not do without
edge DependsOn: Package -> Package { requirement: String  @key(src, dst) }

// what it can use if somebody asks for an extra
edge Suggests: Package -> Package { requirement: String  extra: String  @key(src, dst, extra) }
"""

console = Console(highlight=False)


class Requirement(NamedTuple):
    """One line of a package's requirements."""

    text: str
    package: str
    extra: str | None


def main() -> None:
    """Create, load, branch, tag, travel."""
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else default_root()
    installed = {normal(d.metadata["Name"]): d for d in distributions() if d.metadata["Name"]}
    say(f"1. Create a graph in {root}: one atomic commit.")
    graph = og.init(root, schema=SCHEMA, actor="demo")

    say(f"2. Load {len(installed)} installed packages and what they depend on, in one commit over two tables.")
    with graph.transaction(message="packages found on this machine") as tx:
        tx.append("Package", [package_row(name, found) for name, found in sorted(installed.items())])
        tx.append("DependsOn", list(edges(installed, optional=False)))
    say(f"   {tx.receipt.to_dict()}")
    graph.tags.create("first-load")

    say("3. Branch it (one row, nothing is copied) and add the optional dependencies there only.")
    graph.branches.create("extras", from_="main")
    with graph.on("extras").transaction(message="optional dependencies") as tx:
        tx.append("Suggests", list(edges(installed, optional=True)))

    show_branches(graph)
    show_log(graph, "extras")
    show_time_travel(graph)
    say(f"\nTry:  .venv/bin/omnigraph commit list {root} --branch extras")
    say(f"      .venv/bin/omnigraph snapshot {root} --tag first-load --json")


def default_root() -> Path:
    """Return a folder no earlier run has used."""
    return Path("omnigraph-demo") / f"{datetime.now(UTC):%Y%m%d-%H%M%S-%f}.omni"


def normal(name: str) -> str:
    """Return a package's name the way indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def package_row(name: str, found: Distribution) -> dict[str, object]:
    """Return a package as a row."""
    files = found.files
    return {
        "name": name,
        "version": found.version,
        "summary": found.metadata["Summary"],
        "files": None if files is None else len(files),
    }


def requirements(found: Distribution) -> Iterator[Requirement]:
    """Yield what a package asks for."""
    for text in found.requires or ():
        named = re.match(r"[A-Za-z0-9._-]+", text)
        if named:
            extra = re.search(r"extra\s*==\s*['\"]([^'\"]+)['\"]", text)
            yield Requirement(text, normal(named[0]), extra[1] if extra else None)


def edges(installed: dict[str, Distribution], *, optional: bool) -> Iterator[dict[str, object]]:
    """Yield edges between installed packages, one for each pair (and extra)."""
    seen: set[tuple[str, str, str | None]] = set()
    for name, found in sorted(installed.items()):
        for need in requirements(found):
            identity = (name, need.package, need.extra)
            if need.package in installed and (need.extra is not None) == optional and identity not in seen:
                seen.add(identity)
                edge: dict[str, object] = {"src": name, "dst": need.package, "requirement": need.text}
                yield {**edge, "extra": need.extra} if optional else edge


def show_branches(graph: og.Graph) -> None:
    """Print what each branch holds."""
    table = Table("branch", "version", "Package", "DependsOn", "Suggests", title="Branches", title_justify="left")
    for branch in graph.branches.list():
        snapshot = graph.snapshot(branch.name)
        counts = (snapshot.count(kind) for kind in ("Package", "DependsOn", "Suggests"))
        table.add_row(branch.name, str(branch.version), *(str(count) for count in counts))
    console.print(table)


def show_log(graph: og.Graph, branch: str) -> None:
    """Print a branch's history."""
    table = Table("version", "commit", "on", "operation", "message", title=f"Log of {branch}", title_justify="left")
    table.columns[1].no_wrap = True
    for commit in graph.log(branch):
        table.add_row(str(commit.version), commit.id, commit.branch, commit.operation, commit.message or "")
    console.print(table)


def show_time_travel(graph: og.Graph) -> None:
    """Print one package as it is, and the graph as it was."""
    found = graph.snapshot().entity("Package", "pyarrow") or {}
    say(f"4. One entity by its key: {found.get('name')} {found.get('version')}, {found.get('files')} files.")
    before = graph.snapshot(version=1).count("Package")
    after = graph.snapshot(tag="first-load").count("Package")
    say(f"5. Time travel: version 1 had {before} packages, tag first-load has {after}.")


def say(text: str) -> None:
    """Print one line for people."""
    console.print(text, markup=False, soft_wrap=True)


if __name__ == "__main__":
    main()
