"""Older formats step forward, work first and stamp last; newer ones are refused; read-only looks change nothing."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType
from unittest.mock import patch

import pytest

import omnigraph as og
from omnigraph.engine.migrations import STEPS, Step, migrate
from omnigraph.errors import ContentionError, OutdatedFormatError, UnsupportedFormatError
from omnigraph.model.manifest import FORMAT_VERSION
from omnigraph.storage.manifest import Manifest
from omnigraph.testing.commits import bare_commit, session_of
from omnigraph.testing.places import place

SCHEMA = "node Person { name: String @key }"


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    """A graph with history, at the newest format."""
    made = og.init(tmp_path / "g", SCHEMA)
    bare_commit(made)
    return made


def manifest_of(graph: og.Graph) -> Manifest:
    return session_of(graph).manifest


def stamped(graph: og.Graph, stamp: int) -> Manifest:
    """Return the manifest, stamped as if another omnigraph had written it."""
    manifest = manifest_of(graph)
    manifest.restamp(manifest.stamp(), stamp)
    assert manifest.stamp() == stamp
    return manifest


def files_of(graph: og.Graph) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in place(graph.root).rglob("*")}


def test_steps_are_taken_in_order_and_the_stamp_follows_each(graph: og.Graph) -> None:
    manifest = stamped(graph, 3)
    seen: list[tuple[int, int]] = []

    def step(number: int) -> Step:
        return lambda found: seen.append((number, found.stamp()))

    taken = migrate(manifest, {n: step(n) for n in (5, 3, 4)}, target=6)
    assert taken == [3, 4, 5]
    assert seen == [(3, 3), (4, 4), (5, 5)], "the work is done before the stamp says so"
    assert manifest.stamp() == 6


def test_a_graph_that_is_up_to_date_takes_no_step_and_is_not_written(graph: og.Graph) -> None:
    before = files_of(graph)

    def never(_: Manifest) -> None:
        raise AssertionError("no step is needed")

    assert migrate(manifest_of(graph), dict.fromkeys(range(9), never)) == []
    assert files_of(graph) == before


def test_what_is_stored_survives_a_change_of_stamp(graph: og.Graph) -> None:
    log = graph.log()
    manifest = stamped(graph, 0)
    assert migrate(manifest, {0: lambda _: None}) == [0]
    assert og.open(graph.root).log() == log
    assert bare_commit(graph).version == 3


def test_a_crash_in_a_step_leaves_the_old_stamp_and_a_rerun_converges(graph: og.Graph) -> None:
    manifest = stamped(graph, 0)
    done: list[str] = []

    def step(_: Manifest) -> None:
        done.append("work")
        if len(done) == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        migrate(manifest, {0: step})
    assert manifest.stamp() == 0
    assert migrate(manifest, {0: step}) == [0]
    assert (done, manifest.stamp()) == (["work", "work"], FORMAT_VERSION)


def test_a_crash_between_two_steps_goes_on_from_the_second(graph: og.Graph) -> None:
    manifest = stamped(graph, 1)
    done: list[int] = []

    def dies(_: Manifest) -> None:
        raise RuntimeError("the power failed")

    with pytest.raises(RuntimeError):
        migrate(manifest, {1: lambda _: done.append(1), 2: dies}, target=3)
    assert manifest.stamp() == 2
    assert migrate(manifest, {1: lambda _: done.append(1), 2: lambda _: done.append(2)}, target=3) == [2]
    assert done == [1, 2]


def test_two_that_migrate_at_once_converge(graph: og.Graph) -> None:
    manifests = [manifest_of(graph), manifest_of(og.open(graph.root))]
    stamped(graph, 0)
    together = threading.Barrier(2)
    did: list[int] = []

    def step(number: int) -> Step:
        def work(_: Manifest) -> None:
            if number == 0:
                together.wait(30)
            did.append(number)

        return work

    def run(manifest: Manifest) -> list[int]:
        return migrate(manifest, {n: step(n) for n in range(3)}, target=3)

    with ThreadPoolExecutor(2) as pool:
        taken = list(pool.map(run, manifests))
    assert manifest_of(graph).stamp() == 3
    assert did.count(0) == 2, "both began with the first step, which is safe to repeat"
    assert all(steps == sorted(steps) for steps in taken)


def test_a_step_that_is_missing_is_refused_typed_and_nothing_is_written(graph: og.Graph) -> None:
    manifest = stamped(graph, 0)
    before = files_of(graph)
    with pytest.raises(UnsupportedFormatError, match="older omnigraph") as refused:
        migrate(manifest, {1: lambda _: None}, target=2)
    assert (refused.value.found, refused.value.supported) == (0, 2)
    assert files_of(graph) == before


def test_a_newer_format_is_refused_before_any_step(graph: og.Graph) -> None:
    manifest = stamped(graph, 9)

    def never(_: Manifest) -> None:
        raise AssertionError("a newer graph is not touched")

    with pytest.raises(UnsupportedFormatError, match="upgrade omnigraph") as refused:
        migrate(manifest, dict.fromkeys(range(20), never))
    assert (refused.value.found, refused.value.supported) == (9, FORMAT_VERSION)
    assert manifest.stamp() == 9


def test_a_stamp_that_never_moves_ends_in_contention_not_in_a_loop(graph: og.Graph) -> None:
    manifest = stamped(graph, 0)
    tries: list[int] = []
    with (
        patch("omnigraph.engine.migrations.ATTEMPTS_MAX", 5),
        patch.object(Manifest, "restamp", lambda *_: None),
        pytest.raises(ContentionError, match="others kept changing it"),
    ):
        migrate(manifest, {0: lambda _: tries.append(1)})
    assert len(tries) == 5


def test_opening_an_older_graph_read_only_says_what_to_do_and_writes_nothing(graph: og.Graph) -> None:
    stamped(graph, 0)
    before = files_of(graph)
    with pytest.raises(OutdatedFormatError, match="open it read-write once") as refused:
        og.open(graph.root, read_only=True)
    assert refused.value.code == "OUTDATED_FORMAT"
    assert files_of(graph) == before


def test_opening_an_older_graph_read_write_without_a_way_forward_is_refused_and_writes_nothing(graph: og.Graph) -> None:
    stamped(graph, 0)
    before = files_of(graph)
    with pytest.raises(UnsupportedFormatError):
        og.open(graph.root)
    assert files_of(graph) == before


def test_opening_an_older_graph_read_write_brings_it_up_to_date(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    stamped(graph, 0)
    calls: list[int] = []
    steps: dict[int, Step] = {0: lambda found: calls.append(found.stamp())}
    monkeypatch.setattr(migrate, "__defaults__", (MappingProxyType(steps), FORMAT_VERSION))
    opened = og.open(graph.root)
    assert (calls, manifest_of(opened).stamp()) == ([0], FORMAT_VERSION)
    assert og.open(graph.root, read_only=True).log() == opened.log()


def test_there_is_a_step_from_every_older_format_to_this_one() -> None:
    assert sorted(STEPS) == list(range(1, FORMAT_VERSION))
