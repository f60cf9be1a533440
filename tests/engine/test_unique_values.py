"""A unique value is refused whatever its type, however many small commits there are, and no row is read for nothing."""

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.engine import deltas
from omnigraph.errors import ConstraintError
from omnigraph.storage.staging import Staging

COMMITS = 12
FIRST_DAY, FIRST_MOMENT = date(1990, 1, 1), datetime(1990, 1, 1, tzinfo=UTC)
KINDS: dict[str, Callable[[int], Any]] = {
    "String": lambda number: f"é-{number}",
    "I32": lambda number: number - 5,
    "I64": lambda number: -(2**62) + number,
    "U32": lambda number: 2**32 - 1 - number,
    "U64": lambda number: 2**64 - 1 - number,
    "F64": lambda number: number / 7,
    "Date": lambda number: FIRST_DAY + timedelta(days=number),
    "DateTime": lambda number: FIRST_MOMENT + timedelta(microseconds=number),
}


def filled(path: Path, kind: str, value: Callable[[int], Any]) -> og.Graph:
    """Make a graph of many small commits, each with some values and one row that has none."""
    graph = og.init(path, f"node P {{ name: String @key  value: {kind}? @unique }}")
    for number in range(COMMITS):
        rows = [{"name": f"{number}-{each}", "value": value(3 * number + each)} for each in range(3)]
        with graph.transaction() as tx:
            tx.append("P", [*rows, {"name": f"{number}-none"}])
    return graph


def put(graph: og.Graph, name: str, value: object) -> None:
    with graph.transaction() as tx:
        tx.upsert("P", [{"name": name, "value": value}])


@pytest.mark.parametrize("is_indexed", [False, True], ids=["plain", "indexed"])
@pytest.mark.parametrize("few", [deltas.LOOKED_FOR_MAX, 0], ids=["looked for", "compared"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_value_that_is_there_is_refused_and_another_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, few: int, is_indexed: bool
) -> None:
    monkeypatch.setattr(deltas, "LOOKED_FOR_MAX", few)
    value = KINDS[kind]
    graph = filled(tmp_path / "g", kind, value)
    if is_indexed:
        graph.ensure_indices()
    for number in (0, 17, 3 * COMMITS - 1):
        with pytest.raises(ConstraintError, match=r"@unique\(value\)"):
            put(graph, "new", value(number))
    put(graph, "0-0", value(0))  # it may keep what it has
    put(graph, "new", value(1_000))
    with pytest.raises(ConstraintError, match=r"@unique\(value\)"):
        put(graph, "newer", value(1_000))
    with graph.transaction() as tx:
        tx.delete("P", ids=["new"])
    put(graph, "newer", value(1_000))
    assert graph.snapshot().count("P") == 4 * COMMITS + 1


@pytest.mark.parametrize("kind", ["String", "I32", "I64", "Date", "DateTime"])
def test_a_table_is_not_read_to_know_that_a_value_is_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    graph = filled(tmp_path / "g", kind, KINDS[kind])

    def never(self: Staging, uri: str, version: int, columns: list[str]) -> None:
        raise AssertionError(f"{columns} of all rows are read")

    monkeypatch.setattr(Staging, "scan", never)
    put(graph, "new", KINDS[kind](500))
    with pytest.raises(ConstraintError):
        put(graph, "newer", KINDS[kind](500))
