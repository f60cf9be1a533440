"""What the tests of upkeep share: a graph of every kind of column, time that has gone by, and what is in storage."""

from collections.abc import Callable
from datetime import timedelta
from os import PathLike
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph import failpoints
from omnigraph.engine.upkeep import Places
from omnigraph.rules.table_files import HINT, unit_of
from omnigraph.storage.lance_files import TableFiles
from omnigraph.testing import places
from omnigraph.testing.places import place

SCHEMA = """
    node Person { name: String @key  age: I32?  score: F64?  tags: [String]  day: Date?  mail: String? @unique }
    node Photo { name: String @key  image: Blob? }
    edge Knows: Person -> Person { since: DateTime? }
"""
LONG_AGO = timedelta(days=30)


def person(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "tags": [], **more}


def aged(root: "str | PathLike[str]", by: timedelta = LONG_AGO) -> None:
    """Let time go by for everything that is stored now."""
    places.aged(root, by)


def content(snapshot: og.Snapshot) -> dict[str, list[dict[str, Any]]]:
    """Every row of every type, in the order of ids; NaN is spelled, so that it equals itself."""
    found = {}
    for key in snapshot.tables:
        rows = snapshot.read(key.name).to_pylist()
        plain = ({name: _plain(value) for name, value in row.items()} for row in rows)
        found[str(key)] = sorted(plain, key=lambda row: str(row["id"]))
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return "NaN" if isinstance(value, float) and value != value else value


def table_files(root: Path) -> set[str]:
    """The files of tables, relative to the root."""
    top = place(root)
    files = (path for folder in ("nodes", "edges") for path in (top / folder).rglob("*") if path.is_file())
    return {str(path.relative_to(top)) for path in files}


def reachable(graph: og.Graph) -> set[str]:
    """The units of files that commits which have not expired, plain readers and births refer to."""
    session, history = graph._session, graph._history
    files, known = TableFiles(session.root.options), Places(history)
    found: set[str] = set()
    for row in session.manifest.every_commit(session.publisher.read()):
        commit = row.commit
        for pin in known.pins(commit) if commit.expired_at is None else ():
            location = known.known[pin.table].location
            facts = files.version(session.root.uri(location), pin.lance_version)
            found |= {f"{location}/{unit}" for unit in facts.units}
    top = place(graph.root)
    hints = (HINT,) if session.root.is_local else ()  # Lance writes none to a store
    for table in known.known.values():
        uri = session.root.uri(table.location)
        if (top / table.location).is_dir():
            for version in (1, files.plain_head(uri)):
                found |= {f"{table.location}/{unit}" for unit in (*hints, *files.version(uri, version).units)}
    return found


def units(names: set[str]) -> set[str]:
    """The units that files belong to."""
    found = set()
    for name in names:
        folder, table, path = name.split("/", 2)
        unit = unit_of(path)
        assert unit is not None, name
        found.add(f"{folder}/{table}/{unit[1]}")
    return found


def die_at(patch: pytest.MonkeyPatch, point: str) -> Callable[[], None]:
    """Let this process stop dead at a place, once; return what makes it live again."""
    patch.setattr(failpoints, "_PLANS", failpoints.parse(f"{point}=raise*1"))
    return lambda: patch.setattr(failpoints, "_PLANS", {})
