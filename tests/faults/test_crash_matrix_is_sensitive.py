"""Protocols broken on purpose: each turns cells red, so a matrix that is green says something."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.engine.committer import Committer
from omnigraph.engine.recovery import Recovery
from omnigraph.engine.sealing import Sealer
from omnigraph.failpoints import Failpoint
from omnigraph.ids import CommitId
from omnigraph.model.sidecar import Sidecar
from omnigraph.storage.sidecars import Sidecars
from omnigraph.testing.crash_matrix import Bench
from omnigraph.testing.crash_page import Cell
from omnigraph.testing.crash_writers import Arrival, new_graph, state_of, write
from omnigraph.testing.places import place

POINTS = (Failpoint.AFTER_SIDECAR, Failpoint.AFTER_FIRST_SEAL, Failpoint.AFTER_SEALS, Failpoint.AFTER_SWAP)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def run(bench: Bench, writer: str = "transaction") -> list[Cell]:
    """Some cells of one writer; exceptions are enough to tell right from wrong, and quick."""
    story = bench.story(writer)
    return [cell for point in POINTS for cell in bench.crash(story, Arrival(point, 1), "raise")]


def complaints(cells: list[Cell]) -> str:
    return "\n".join(text for cell in cells for text in cell.wrong)


def test_the_protocol_as_it_is_turns_no_cell_red(bench: Bench) -> None:
    assert complaints(run(bench)) == ""


def test_a_skipped_sidecar_turns_cells_red(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sidecars, "put", lambda self, sidecar: None)
    cells = run(bench)
    assert all(cell.wrong for cell in cells)
    assert "left 0 sidecars behind" in complaints(cells)
    assert "against the word of the protocol" in complaints(cells)


def publish_before_seal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every commit visible first and seal its tables afterwards: what is sealed too early is hidden till then."""
    seal, land = Sealer.seal, Committer.land
    early: dict[int, list[Path]] = {}

    def sealed_later(self: Sealer, *rest: Any, **more: Any) -> Any:
        sealed = seal(self, *rest, **more)
        root = place(str(self._session.root))
        for pin in sealed.pins.values():
            (version,) = root.glob(f"*/{pin.table}/_versions/d{pin.lance_version}.manifest")
            early[id(self)].append(version.rename(version.with_suffix(".unsealed")))
        return sealed

    def landed(self: Committer, *rest: Any, **more: Any) -> Any:
        early[id(self._sealer)] = []
        commit = land(self, *rest, **more)
        for version in early.pop(id(self._sealer)):
            version.rename(version.with_suffix(".manifest"))
        return commit

    monkeypatch.setattr(Sealer, "seal", sealed_later)
    monkeypatch.setattr(Committer, "land", landed)


def test_a_commit_that_is_published_before_its_tables_are_sealed_turns_cells_red(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish_before_seal(monkeypatch)
    cells = run(bench)
    wrong = [cell for cell in cells if cell.wrong]
    assert {cell.arrival for cell in wrong} >= {"publish.after_swap"}
    assert "the graph can not be read" in complaints(cells)


def test_publishing_before_sealing_goes_well_as_long_as_nothing_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new_graph(tmp_path / "graph")
    publish_before_seal(monkeypatch)
    graph = og.open(tmp_path / "graph")
    write(graph, "transaction")
    assert len(state_of(og.open(tmp_path / "graph"))["Person"]) == 4


def test_a_recovery_under_a_new_commit_id_turns_cells_red(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    roll_forward = Recovery._roll_forward

    def renamed(self: Recovery, sidecar: Sidecar) -> Any:
        return roll_forward(self, replace(sidecar, commit=CommitId(self._session.sources.mint())))

    monkeypatch.setattr(Recovery, "_roll_forward", renamed)
    cells = run(bench)
    assert {cell.arrival for cell in cells if not cell.wrong} == {"publish.after_swap"}, "only what had landed is right"
    assert "the promised commit" in complaints(cells)


def test_a_merge_that_loses_its_second_parent_turns_cells_red(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    story, draft = bench.story("merge"), Sealer.draft
    monkeypatch.setattr(Sealer, "draft", lambda self, work: replace(draft(self, work), extra_parents=()))
    cells = list(bench.crash(story, Arrival(Failpoint.AFTER_SEALS, 1), "raise"))
    assert all(cell.wrong for cell in cells)
    assert "a merge has lost its second parent" in complaints(cells)


def test_a_recovery_that_never_forgets_turns_cells_red(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sidecars, "delete", lambda self, operation: None)
    cells = list(bench.crash(bench.story("append"), Arrival(Failpoint.AFTER_SEALS, 1), "raise"))
    assert all("recovery left a sidecar" in cell.wrong for cell in cells)
