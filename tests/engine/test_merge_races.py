"""Merges beside other writers, and merges that were cut off: right answers, and both parents kept."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.engine.merge_kit import SCHEMA, content, knows, person

import omnigraph as og
from omnigraph.engine.committer import Committer
from omnigraph.engine.company import Company
from omnigraph.engine.merging import Merger
from omnigraph.engine.recovery import ROLLED_BACK, ROLLED_FORWARD
from omnigraph.errors import ContentionError, MergeConflictsError, UnsupportedFormatError
from omnigraph.failpoints import Failpoint, FailpointError
from omnigraph.model.merges import Outcome
from omnigraph.model.sidecar import MERGE_NUMBER, Sidecar
from omnigraph.storage.layout import RECOVERY
from omnigraph.testing.crash_writers import Arrival, planned
from omnigraph.testing.places import place, without_promises

BARRIER_SECONDS_MAX = 120.0


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    graph = og.init(tmp_path / "g", SCHEMA, actor="ann")
    with graph.transaction() as tx:
        tx.append("Person", [person(f"p{n}", age=n) for n in range(20)])
    return graph


def upsert(graph: og.Graph, branch: str, *rows: dict[str, Any], type: str = "Person") -> None:
    with graph.transaction(branch) as tx:
        tx.upsert(type, list(rows))


def ages(graph: og.Graph, branch: str = "main") -> dict[str, int | None]:
    return {row["id"]: row["age"] for row in graph.snapshot(branch).read("Person").to_pylist()}


def diverged(graph: og.Graph, *names: str) -> None:
    """Let main and some branches change rows of their own."""
    for name in names:
        graph.branches.create(name)
    for number, name in enumerate(names, 1):
        upsert(graph, name, person(f"p{number}", age=100 + number), person(name))
    upsert(graph, "main", person("p0", age=100))


def meanwhile(monkeypatch: pytest.MonkeyPatch, act: Any, times: int = 1) -> list[int]:
    """Do something each time a merge was worked out and is about to be published."""
    publish = Merger._publish
    done: list[int] = []

    def interrupted(self: Merger, *rest: Any) -> Any:
        if len(done) < times:
            done.append(1)
            act()
        return publish(self, *rest)

    monkeypatch.setattr(Merger, "_publish", interrupted)
    return done


def test_merges_into_one_target_at_once_all_land_and_lose_nothing(graph: og.Graph) -> None:
    names = [f"b{number}" for number in range(1, 5)]
    diverged(graph, *names)
    together = threading.Barrier(len(names), timeout=BARRIER_SECONDS_MAX)

    def merge(name: str) -> Outcome:
        handle = og.open(graph.root)
        together.wait()
        return handle.branches.merge(name).outcome

    with ThreadPoolExecutor(len(names)) as pool:
        assert set(pool.map(merge, names)) == {Outcome.MERGED}
    found = ages(graph)
    assert [found[f"p{number}"] for number in range(5)] == [100, 101, 102, 103, 104]
    assert all(name in found for name in names)
    merged = [commit for commit in graph.log() if commit.operation == "merge"]
    heads = {graph.branches.get(name).head for name in names}
    assert {commit.parents[1] for commit in merged} == heads
    assert all(child.parents[0] == parent.id for child, parent in zip(graph.log(), graph.log()[1:], strict=False))


def test_one_branch_merged_by_two_at_once_is_merged_once(graph: og.Graph) -> None:
    diverged(graph, "review")
    together = threading.Barrier(2, timeout=BARRIER_SECONDS_MAX)

    def merge(_: int) -> Outcome:
        handle = og.open(graph.root)
        together.wait()
        return handle.branches.merge("review").outcome

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(merge, range(2))) == [Outcome.ALREADY_UP_TO_DATE, Outcome.MERGED]
    assert len([commit for commit in graph.log() if commit.operation == "merge"]) == 1


def test_a_write_to_the_merged_table_makes_the_merge_work_it_out_anew(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    diverged(graph, "review")
    meanwhile(monkeypatch, lambda: upsert(graph, "main", person("p7", age=107), person("late")))
    result = graph.branches.merge("review")
    assert (result.outcome, result.attempts) == (Outcome.MERGED, 2)
    found = ages(graph)
    assert (found["p0"], found["p1"], found["p7"]) == (100, 101, 107)
    assert {"late", "review"} <= set(found)


def test_a_write_that_takes_back_what_both_sides_had_done_is_seen(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph.branches.create("review")
    for branch in ("review", "main"):
        upsert(graph, branch, person("p1", age=101))
    meanwhile(monkeypatch, lambda: upsert(graph, "main", person("p1", age=1)))
    result = graph.branches.merge("review")
    assert (result.outcome, result.attempts) == (Outcome.MERGED, 2)
    assert ages(graph)["p1"] == 101, "seen from the base, only the source has changed it"


def test_a_write_that_makes_it_a_conflict_is_seen(graph: og.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    diverged(graph, "review")
    meanwhile(monkeypatch, lambda: upsert(graph, "main", person("p1", age=-1)))
    with pytest.raises(MergeConflictsError) as refused:
        graph.branches.merge("review")
    assert refused.value.conflict_counts == {"node:Person": {"DivergentUpdate": 1}}
    assert ages(graph)["p1"] == -1


@pytest.mark.parametrize("both", [True, False], ids=["merge", "forward"])
def test_a_write_to_a_table_that_only_decided_it_is_seen_too(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch, both: bool
) -> None:
    graph.branches.create("review")
    upsert(graph, "review", knows("k1", "p1", "p2"), type="Knows")
    if both:
        upsert(graph, "main", person("p9", age=109))

    def remove() -> None:
        with graph.transaction() as tx:
            tx.delete("Person", ids=["p2"])

    meanwhile(monkeypatch, remove)
    with pytest.raises(MergeConflictsError) as refused:
        graph.branches.merge("review")
    assert refused.value.conflict_counts == {"edge:Knows": {"OrphanEdge": 1}}
    assert graph.snapshot().count("Knows") == 0


def test_a_write_to_a_table_that_does_not_matter_is_lived_with(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph.branches.create("review")
    upsert(graph, "review", person("new"))
    upsert(graph, "main", person("p0", age=100))
    meanwhile(monkeypatch, lambda: upsert(graph, "main", knows("k1", "p1", "p2"), type="Knows"))
    result = graph.branches.merge("review")
    assert result.attempts == 1
    assert (graph.snapshot().count("Knows"), "new" in ages(graph)) == (1, True)


def test_a_write_into_a_forward_makes_it_a_merge(graph: og.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    graph.branches.create("review")
    upsert(graph, "review", person("new"))
    meanwhile(monkeypatch, lambda: upsert(graph, "main", person("late")))
    result = graph.branches.merge("review")
    assert (result.outcome, result.attempts) == (Outcome.MERGED, 2)
    assert {"new", "late"} <= set(ages(graph))


def test_a_target_that_never_stands_still_is_contention_and_nothing_is_merged(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    diverged(graph, "review")
    numbers = iter(range(1_000))
    monkeypatch.setattr("omnigraph.engine.merging.MERGES_MAX", 3)
    meanwhile(monkeypatch, lambda: upsert(graph, "main", person(f"w{next(numbers)}")), times=10)
    with pytest.raises(ContentionError, match="kept changing"):
        graph.branches.merge("review")
    assert "review" not in ages(graph)
    assert not list((place(graph.root) / RECOVERY).glob("*.json"))


# -- merges that were cut off ---------------------------------------------------------------------------


def cut_off(graph: og.Graph, at: Failpoint = Failpoint.AFTER_SEALS) -> Sidecar:
    with planned(Arrival(at, 1).plan("raise")), pytest.raises(FailpointError):
        graph.branches.merge("review", actor="bo")
    (path,) = (place(graph.root) / RECOVERY).glob("*.json")
    return Sidecar.from_bytes(path.read_bytes(), path.name)


@pytest.mark.parametrize("at", [Failpoint.AFTER_SIDECAR, Failpoint.AFTER_SEALS, Failpoint.AFTER_SWAP])
def test_a_merge_that_recovery_finishes_keeps_both_its_parents(graph: og.Graph, at: Failpoint) -> None:
    diverged(graph, "review")
    before, source = graph.refresh(), graph.branches.get("review").head
    promise = cut_off(graph, at)
    og.open(graph.root).recover()
    assert [row.kind for row in graph.recoveries()] == [ROLLED_FORWARD]
    head = graph.refresh()
    assert (head.id, head.parents, head.operation) == (promise.commit, (before.id, source), "merge")
    assert ages(graph)["p1"] == 101
    assert og.open(graph.root).branches.merge("review").outcome is Outcome.ALREADY_UP_TO_DATE


def test_a_forward_that_recovery_finishes_adopts_every_table_and_keeps_both_parents(graph: og.Graph) -> None:
    graph.branches.create("review")
    upsert(graph, "review", person("new"))
    upsert(graph, "review", knows("k1", "new", "p2"), type="Knows")
    before, source = graph.refresh(), graph.branches.get("review").head
    cut_off(graph)
    og.open(graph.root).recover()
    assert graph.refresh().parents == (before.id, source)
    assert content(graph) == content(graph, "review")


def test_a_merge_that_was_overtaken_is_given_up_by_recovery(graph: og.Graph) -> None:
    diverged(graph, "review")
    cut_off(graph)
    with without_promises(graph.root):
        upsert(og.open(graph.root), "main", person("p1", age=-1))
    og.open(graph.root, actor="eve").recover()
    assert [row.kind for row in graph.recoveries()] == [ROLLED_BACK]
    assert (ages(graph)["p1"], "review" in ages(graph)) == (-1, False)


def test_the_promise_of_a_merge_is_refused_by_who_does_not_know_of_merges(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    diverged(graph, "review")
    raw = cut_off(graph).to_bytes()
    assert Sidecar.from_bytes(raw, "x").merge is not None
    monkeypatch.setattr("omnigraph.model.sidecar.SIDECAR_NUMBER", MERGE_NUMBER - 1)
    with pytest.raises(UnsupportedFormatError, match="upgrade"):
        Sidecar.from_bytes(raw, "x")


def test_nobody_takes_a_merge_along(graph: og.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    diverged(graph, "review")
    promise = cut_off(graph, Failpoint.AFTER_SIDECAR)
    seen: list[Any] = []
    waiting = Company._waiting

    def noted(self: Company, ours: Sidecar) -> list[Sidecar]:
        found = waiting(self, ours)
        seen.append([each.operation for each in found])
        return found

    monkeypatch.setattr(Company, "_waiting", noted)
    land = Committer.land
    monkeypatch.setattr(
        Committer, "land", lambda self, *rest, **more: land(self, *rest, **{**more, "with_company": True})
    )
    monkeypatch.setattr("omnigraph.engine.recovery.Recovery.heal", lambda self: [])
    upsert(graph, "main", person("late"))
    assert seen
    assert promise.operation not in seen[0]
