"""A writer that has to wait seals its own tables meanwhile, and whoever has the turn publishes what it finds sealed."""

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.engine.crowd_kit import Crowd, crowd, wait_until

import omnigraph as og
from omnigraph.engine.sealing import Sealer
from omnigraph.model.lineage import Commit
from omnigraph.model.sidecar import Sidecar
from omnigraph.storage import turns

TABLES = [f"T{number}" for number in range(4)]
SCHEMA = "\n".join(f"node {name} {{ name: String @key }}" for name in TABLES)


@pytest.fixture
def graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> og.Graph:
    monkeypatch.setattr(turns, "WAIT_SECONDS_MAX", 30.0)
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    made = og.init(tmp_path / "g", SCHEMA)
    with made.transaction() as tx:
        for table in TABLES:
            tx.append(table, [{"name": "first"}])
    return made


@pytest.fixture
def seals(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str | None, int]]:
    """Which promises are sealed, by their messages, and on which version."""
    seen: list[tuple[str | None, int]] = []
    seal = Sealer.seal

    def watched(self: Sealer, sidecar: Sidecar, head: Commit) -> Any:
        seen.append((sidecar.message, head.version))
        return seal(self, sidecar, head)

    monkeypatch.setattr(Sealer, "seal", watched)
    return seen


def offers() -> list[Path]:
    folder = Path(tempfile.gettempdir())  # that of the test
    return [file for each in folder.glob("omnigraph-turns-*") for file in each.glob("*/*.ready")]


def row(table: str, name: str = "second") -> Callable[[Any], None]:
    return lambda tx: tx.append(table, [{"name": name}])


def names(graph: og.Graph, table: str) -> list[str]:
    return sorted(str(name) for name in graph.snapshot().read(table).column("name").to_pylist())


def wait_for_offers(count: int) -> None:
    wait_until(lambda: len(offers()) == count, f"{count} writers should have sealed early")


def check_all_landed(graph: og.Graph, gathered: Crowd) -> None:
    receipts = {name: told for name, told in gathered.told.items() if isinstance(told, og.Receipt)}
    assert sorted(receipts) == TABLES, gathered.told
    log = {commit.message: commit for commit in graph.log(limit=len(TABLES))}
    for table, receipt in receipts.items():
        assert log[table].id == receipt.commit
        assert receipt.tables[f"node:{table}"].rows_inserted == 1
        assert names(graph, table) == ["first", "second"]
    assert gathered.promises == []
    assert offers() == []


def test_writers_of_their_own_tables_seal_them_while_they_wait_and_once(
    graph: og.Graph, seals: list[tuple[str | None, int]]
) -> None:
    with crowd(graph) as gathered:
        for table in TABLES:
            gathered.add(table, row(table))
        wait_for_offers(len(TABLES))
        assert sorted(seals) == [(table, 2) for table in TABLES], "before anyone had the turn"
    check_all_landed(graph, gathered)
    assert len(seals) == len(TABLES), "and nobody sealed anything again"


@pytest.mark.parametrize("scribble", ["", "{", "[]", '{"commit": "x", "pins": []}', '{"pins": [1e400], "commit": 1}'])
def test_an_offer_that_makes_no_sense_is_not_taken(
    graph: og.Graph, seals: list[tuple[str | None, int]], scribble: str
) -> None:
    with crowd(graph) as gathered:
        for table in TABLES:
            gathered.add(table, row(table))
        wait_for_offers(len(TABLES))
        for offer in offers():
            offer.write_text(scribble)
    check_all_landed(graph, gathered)
    assert len(seals) > len(TABLES), "whoever had the turn sealed for the others"


@pytest.mark.parametrize("part", ["table", "version", "txn"])
def test_an_offer_of_something_else_than_was_promised_is_not_taken(
    graph: og.Graph, seals: list[tuple[str | None, int]], part: str
) -> None:
    with crowd(graph) as gathered:
        for table in TABLES:
            gathered.add(table, row(table))
        wait_for_offers(len(TABLES))
        bodies = {offer: json.loads(offer.read_text()) for offer in offers()}
        for (offer, body), other in zip(bodies.items(), reversed(bodies.values()), strict=True):
            body["pins"][0][part] = 7 if part == "version" else other["pins"][0][part] + "x"
            offer.write_text(json.dumps(body))
    check_all_landed(graph, gathered)
    assert len(seals) > len(TABLES), "whoever had the turn sealed for the others"


def test_what_was_sealed_early_on_a_table_that_moved_is_sealed_again(
    graph: og.Graph, seals: list[tuple[str | None, int]]
) -> None:
    with crowd(graph) as gathered:
        for name in ("a", "b", "c"):
            gathered.add(name, row("T0", name))
        wait_for_offers(3)
    assert names(graph, "T0") == ["a", "b", "c", "first"]
    assert all(isinstance(told, og.Receipt) for told in gathered.told.values())
    assert len(seals) == 5, "three early, of which one fits"


def test_where_others_wrote_the_same_table_last_time_nothing_is_sealed_early(graph: og.Graph) -> None:
    handles = [og.open(graph.root) for _ in range(2)]
    with crowd(graph) as gathered:
        for number, handle in enumerate(handles):
            gathered.add(str(number), row("T0", str(number)), handle=handle)
        wait_for_offers(2)
    (crowded,) = [handle for handle in handles if handle._session.crowded]
    with crowd(graph) as gathered:
        gathered.add("T1", row("T1"))
        gathered.add("T0", row("T0", "alone"), handle=crowded)
        wait_for_offers(1)
    assert crowded._session.crowded == set(), "nobody else wrote it this time"
    with crowd(graph) as gathered:
        gathered.add("T0", row("T0", "alone again"), handle=crowded)
        wait_for_offers(1)
    assert names(graph, "T0") == ["0", "1", "alone", "alone again", "first"]
