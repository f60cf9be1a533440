"""Indexes and compaction by Spark's tasks: the work is done on executors, and what comes of it is the same."""

import random
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.engine.index_kit import EVERY_FILTER, covered, handle, thing, things, wrong
from tests.engine.upkeep_kit import content

import omnigraph as og
from omnigraph.errors import StorageError
from omnigraph.rules import indexes as rules
from omnigraph.storage.lance_clustering import Cluster
from omnigraph.storage.lance_compacting import Rewrite
from omnigraph.storage.lance_index_building import Build
from omnigraph.testing.places import place
from pyspark_omnigraph import SparkGraph


@pytest.fixture
def graph(spark: SparkSession, tmp_path: Path) -> SparkGraph:
    return SparkGraph.for_path(spark, str(things(tmp_path / "g").root), actor="night")


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nothing be built or rewritten in this process."""

    def here(self: Any) -> Any:
        raise StorageError("this was done in the driver")

    monkeypatch.setattr(Build, "do", here)
    monkeypatch.setattr(Rewrite, "do", here)
    monkeypatch.setattr(Cluster, "do", here)
    monkeypatch.setattr(rules, "SEGMENT_ROWS", 200)


@pytest.mark.usefixtures("elsewhere")
def test_tasks_build_segments_and_the_driver_publishes_them_at_once(graph: SparkGraph) -> None:
    before, version = content(graph.snapshot()), graph.refresh().version
    report = graph.ensure_indices(types=["Thing"])
    assert report.version == version + 1
    assert graph.log(limit=1)[0].actor == "night"
    assert report.pending == {}
    assert all(covered(graph.graph).values())
    assert wrong(handle(graph.graph, "Thing"), EVERY_FILTER[::3]) == []
    assert content(graph.snapshot()) == before
    assert graph.ensure_indices(types=["Thing"]).commit is None


@pytest.mark.usefixtures("elsewhere")
def test_tasks_compact_and_index_what_they_compacted(graph: SparkGraph) -> None:
    graph.ensure_indices()
    for number in range(3):
        with graph.graph.transaction() as tx:
            tx.upsert("Thing", [thing(f"u{number}", random.Random(number))])
    before, version = content(graph.snapshot()), graph.refresh().version
    report = graph.optimize(rows_per_fragment=400)
    assert report.version == version + 1
    assert report.troubles == ()
    assert report.tables["node:Thing"].fragments_after < report.tables["node:Thing"].fragments_before
    assert content(graph.snapshot()) == before
    assert all(covered(graph.graph).values())
    assert wrong(handle(graph.graph, "Thing"), EVERY_FILTER[::3]) == []
    assert graph.verify(deep=True).findings == ()


@pytest.mark.usefixtures("elsewhere")
def test_a_task_writes_edges_in_the_order_of_their_src(graph: SparkGraph) -> None:
    with graph.graph.transaction() as tx:
        tx.append("Likes", [{"id": f"later{n}", "src": f"t{n}", "dst": "t9"} for n in range(20)])
    before = content(graph.snapshot())
    assert graph.optimize(types=["Likes"], cluster=True).troubles == ()
    sources = handle(graph.graph, "Likes").to_table(columns=["src"]).column("src").to_pylist()
    assert sources == sorted(sources)
    assert content(graph.snapshot()) == before
    assert graph.optimize(types=["Likes"], cluster=True).commit is None


def test_it_is_the_same_as_by_threads(graph: SparkGraph, tmp_path: Path) -> None:
    near = things(tmp_path / "near")
    for name in ("ensure_indices", "optimize"):
        here, there = (getattr(one, name)().to_dict()["tables"] for one in (near, graph))
        assert here == there
    assert content(near.snapshot()) == content(graph.snapshot())


def test_what_is_wrong_with_one_table_is_told_and_the_others_are_compacted(graph: SparkGraph) -> None:
    for number in range(2):
        with graph.graph.transaction() as tx:
            tx.append("Likes", [{"src": f"t{number}", "dst": "t9"}])
    kind = graph.snapshot().catalog.table_type("Likes")
    for file in (place(graph.root) / "edges" / kind.table_id / "data").iterdir():
        file.rename(file.with_suffix(".away"))
    report = graph.optimize()
    assert [one.table for one in report.troubles] == ["edge:Likes"]
    assert set(report.tables) == {"node:Thing"}


def test_others_may_write_meanwhile(graph: SparkGraph, monkeypatch: pytest.MonkeyPatch) -> None:
    other, written = og.open(graph.root), list[int]()
    told = type(graph.engine).told

    def slow(self: Any, *given: Any) -> Any:
        answer = told(self, *given)
        if len(written) < 2:
            written.append(1)
            with other.transaction() as tx:
                tx.upsert("Thing", [thing("t5", random.Random(1)), thing(f"m{len(written)}", random.Random(2))])
        return answer

    monkeypatch.setattr(type(graph.engine), "told", slow)
    graph.ensure_indices()
    assert graph.snapshot().count("Thing") == 702
    assert wrong(handle(graph.graph, "Thing"), EVERY_FILTER[::3]) == []
    monkeypatch.undo()
    graph.optimize()
    assert graph.snapshot().count("Thing") == 702
    assert graph.cleanup(keep=1, dry_run=True).dry_run
