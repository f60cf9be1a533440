"""Indexes of every kind that a schema can ask for: all of them are built, and no filter finds anything else."""

import json
import math
import random
import threading
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from tests.engine.index_kit import (
    EVERY_FILTER,
    KINDS,
    SCHEMA,
    VECTORS,
    covered,
    handle,
    thing,
    things,
    wrong,
)
from tests.engine.near_kit import Near
from tests.engine.upkeep_kit import aged, content, reachable, table_files, units
from typer.testing import CliRunner

import omnigraph as og
from omnigraph.cli.app import app
from omnigraph.model.indexes import IndexKind
from omnigraph.rules import indexes as rules
from omnigraph.rules.indexes import grouped, labels, wanted_indexes
from omnigraph.storage.lance_index_building import Build


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "g"


def kinds(graph: og.Graph, type: str = "Thing") -> set[tuple[str, str]]:
    """Which indexes a table has."""
    return {(one.field_names[0], one.index_type.upper()) for one in handle(graph, type).describe_indices()}


def segments(graph: og.Graph, column: str, type: str = "Thing") -> int:
    return sum(len(one.segments) for one in handle(graph, type).describe_indices() if one.field_names[0] == column)


def nearest(table: Any, column: str, point: list[float], count: int, use_index: bool = True) -> set[str]:
    asked = {"column": column, "q": point, "k": count, "nprobes": 100, "refine_factor": 50, "use_index": use_index}
    return set(table.scanner(["id"], nearest=asked).to_table().column("id").to_pylist())


def words(table: Any, text: str) -> set[str]:
    asked = {"query": text, "columns": ["bio"]}
    return set(table.scanner(["id", "_score"], full_text_query=asked).to_table().column("id").to_pylist())


def test_every_kind_is_built_and_no_filter_finds_anything_else(root: Path) -> None:
    graph = things(root)
    before = content(graph.snapshot())
    report = graph.ensure_indices()
    assert {column: one.kind for column, one in report.tables["node:Thing"].items()} == KINDS
    assert {one.share for one in report.tables["node:Thing"].values()} == {1.0}
    assert report.pending == {}
    assert {column: one.kind for column, one in report.tables["edge:Likes"].items()} == {
        **dict.fromkeys(["id", "src", "dst", "since"], IndexKind.BTREE),
        "note": IndexKind.INVERTED,
    }
    assert kinds(graph) == {(column, str(kind)) for column, kind in KINDS.items()}
    assert all(covered(graph).values())
    assert wrong(handle(graph, "Thing"), EVERY_FILTER) == []
    assert content(graph.snapshot()) == before
    assert graph.ensure_indices().commit is None


def test_words_and_vectors_are_found_by_plain_readers(root: Path) -> None:
    graph, chance = og.init(root, SCHEMA), random.Random(3)
    with graph.transaction() as tx:
        tx.append("Thing", [thing(f"t{n}", chance, vec=[n / 600] * 8, bio=f"word{n % 7} dogs") for n in range(600)])
    graph.ensure_indices()
    with graph.transaction() as tx:
        tx.upsert("Thing", [thing("t300", chance, vec=[9.0] * 8, bio="elsewhere"), thing("t601", chance, bio="dog")])
    for step in ("later rows are not covered", "they are", "and after a compaction"):
        table = handle(graph, "Thing")
        assert words(table, "word6") == {f"t{n}" for n in range(600) if n % 7 == 6 and n != 300}, step
        assert words(table, "elsewhere") == {"t300"}, step
        assert words(table, "dog") == {f"t{n}" for n in range(602) if n not in (300, 600)}, step
        assert nearest(table, "vec", [0.5] * 8, 1) != {"t300"}, step
        assert nearest(table, "vec", [9.0] * 8, 1) == {"t300"}, step
        assert nearest(table, "vec", [0.1] * 8, 5) == nearest(table, "vec", [0.1] * 8, 5, use_index=False), step
        graph.ensure_indices() if step.startswith("later") else graph.optimize()


@pytest.mark.parametrize(
    ("vectors", "says"),
    [
        ([None] * 300, "0 of 300"),
        ([[1.0] * 8] * 255 + [None] * 45, "255 of 300"),
        ([[math.nan] * 8] * 300, "teach too little"),
    ],
)
def test_vectors_that_can_not_be_trained_are_pending_and_the_rest_is_built(
    root: Path, vectors: list[Any], says: str
) -> None:
    graph, chance = og.init(root, SCHEMA), random.Random(3)
    rows = [thing(f"t{n}", chance, vec=vector) for n, vector in enumerate(vectors)]
    with graph.transaction() as tx:
        tx.append("Thing", rows)
    report = graph.ensure_indices()
    assert says in report.pending["node:Thing.vec"]
    assert (report.tables["node:Thing"]["vec"].rows_covered, report.tables["node:Thing"]["id"].share) == (0, 1.0)
    assert ("vec", "IVF_PQ") not in kinds(graph)
    again = graph.ensure_indices()
    assert (again.commit, again.pending) == (None, report.pending)
    with graph.transaction() as tx:
        tx.upsert("Thing", [thing(f"u{n}", chance, vec=[n / 300] * 8) for n in range(300)])
    assert graph.ensure_indices().pending == {}
    assert all(covered(graph).values())


def test_few_vectors_in_each_group_are_trained_together(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "SEGMENT_ROWS", 100)
    graph, chance = og.init(root, SCHEMA), random.Random(3)
    for part in range(4):
        with graph.transaction() as tx:
            tx.append("Thing", [thing(f"t{part}-{n}", chance, vec=[n / 100] * 8) for n in range(100)])
    report = graph.ensure_indices(types=["Thing"])
    assert (report.pending, segments(graph, "vec"), segments(graph, "id")) == ({}, 1, 4)
    assert all(covered(graph).values())


def test_only_what_is_not_covered_is_built_until_there_are_too_many_segments(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("omnigraph.engine.indexing.SEGMENTS_MAX", 4)
    graph, chance = things(root, parts=1), random.Random(5)
    done: list[frozenset[int]] = []
    do = Build.do

    def counting(self: Build) -> Any:
        if self.wanted.column == "bio":
            done.append(self.fragments)
        return do(self)

    monkeypatch.setattr(Build, "do", counting)
    seen = []
    for step in range(6):
        graph.ensure_indices()
        assert {name for name, is_it in covered(graph).items() if not is_it} <= set(VECTORS)
        assert wrong(handle(graph, "Thing"), EVERY_FILTER) == []
        seen.append((len(done[-1]), segments(graph, "bio"), segments(graph, "i32")))
        with graph.transaction() as tx:
            tx.append("Thing", [thing(f"later{step}-{n}", chance) for n in range(5)])
    assert seen == [(1, 1, 1), (1, 2, 2), (1, 3, 3), (1, 4, 4), (5, 1, 1), (1, 2, 2)]


def test_an_index_that_would_tell_what_moved_rows_were_is_built_anew(root: Path) -> None:
    """Lance gives both answers for a row that moved if both its places have an index that is no BTREE."""
    graph, chance = things(root), random.Random(5)
    graph.ensure_indices()
    for step in range(3):
        with graph.transaction() as tx:
            if step == 2:
                tx.upsert("Thing", [thing(f"t{n}", chance) for n in range(1, 700, 3)])  # a whole fragment moves
            else:
                tx.upsert("Thing", [thing(f"t{n}", chance) for n in range(step, 700, 97)])
        assert wrong(handle(graph, "Thing"), EVERY_FILTER) == []
        graph.ensure_indices()
        assert wrong(handle(graph, "Thing"), EVERY_FILTER) == []
        assert (segments(graph, "ok"), segments(graph, "bio"), segments(graph, "i32")) == (1, 1, step + 2)
        assert all(covered(graph).values())


def test_an_index_that_is_no_longer_asked_for_is_dropped(root: Path) -> None:
    graph = things(root)
    graph.ensure_indices()
    before = content(graph.snapshot())
    graph.schema.apply(SCHEMA.replace("i32: I32? @index", "i32: I32?").replace("bio: String? @index", "bio: String?"))
    report = graph.ensure_indices()
    assert sorted(report.dropped["node:Thing"]) == ["bio", "i32"]
    assert kinds(graph) == {(column, str(kind)) for column, kind in KINDS.items() if column not in ("i32", "bio")}
    assert graph.ensure_indices().commit is None
    assert content(graph.snapshot()) == before
    graph.schema.apply(SCHEMA)
    assert graph.ensure_indices().tables["node:Thing"]["bio"].rows_added == 700
    aged(root)
    graph.cleanup(keep=1)
    assert units(table_files(root)) == reachable(graph)
    assert wrong(handle(graph, "Thing"), EVERY_FILTER) == []


def test_indexes_follow_columns_that_are_renamed_dropped_widened_and_made_anew(root: Path) -> None:
    graph = things(root)
    graph.ensure_indices()
    renamed = SCHEMA.replace("i32: I32? @index", 'n32: I32? @index @rename_from("i32")')
    graph.schema.apply(renamed)
    assert graph.ensure_indices().commit is None, "the index of a column knows it by its number"
    graph.schema.apply(renamed.replace("enum(doing, done, open)?", "String?"))
    report = graph.ensure_indices()
    assert report.tables["node:Thing"]["state"].kind == IndexKind.INVERTED
    assert report.dropped == {"node:Thing": ("state",)}
    assert graph.snapshot().count("Thing", "state = 'open'") > 0
    gone = renamed.replace("enum(doing, done, open)?", "String?").replace("f64: F64? @index", "")
    graph.schema.apply(gone, allow_data_loss=True)
    graph.schema.apply(gone.replace("ok: Bool? @index", "ok: Bool? @index f64: F64? @index"))
    graph.ensure_indices()
    assert graph.snapshot().count("Thing", "f64 IS NULL") == 700
    assert all(covered(graph).values())
    assert wrong(handle(graph, "Thing"), ["f64 IS NULL", "f64 = 1.5", "n32 = 5", "state = 'open'"]) == []


def test_a_column_can_have_an_index_of_values_and_one_of_words() -> None:
    graph_type = wanted("node A { name: String @key @index  b: Bool  @index(b, name) }")
    assert labels(graph_type) == {
        (graph_type[0]): "id",
        (graph_type[1]): "name",
        (graph_type[2]): "b",
        (graph_type[3]): "name:INVERTED",
    }


def wanted(schema: str) -> Any:
    with TemporaryDirectory() as folder:
        return wanted_indexes(og.init(folder, schema).snapshot().catalog.table_types[0])


def test_fragments_are_dealt_so_that_no_group_is_small_and_groups_are_few() -> None:
    assert grouped({}) == ()
    assert grouped({3: 5, 1: 7}) == (frozenset({1, 3}),)
    assert [len(group) for group in grouped(dict.fromkeys(range(10), 1_000_000))] == [3, 2, 3, 2]
    assert grouped({0: 4_000_000, 1: 1_000_000}) == (frozenset({0}), frozenset({1}))
    many = grouped(dict.fromkeys(range(1_000), 1_000_000))
    assert len(many) == 32
    assert frozenset().union(*many) == frozenset(range(1_000))


def test_tasks_elsewhere_build_and_compact_the_same(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, "SEGMENT_ROWS", 200)
    here, there = things(root), things(tmp_path / "other").with_engine(Near())
    reports = [graph.ensure_indices().to_dict()["tables"] for graph in (here, there)]
    assert reports[0] == reports[1]
    assert kinds(here) == kinds(there)
    for graph in (here, there):
        for number in range(3):
            with graph.transaction() as tx:
                tx.upsert("Thing", [thing(f"u{number}", random.Random(number))])
    compacted = [graph.optimize().to_dict()["tables"]["node:Thing"] for graph in (here, there)]
    assert compacted[0] == compacted[1]
    assert all(covered(there).values())
    assert content(here.snapshot()) == content(there.snapshot())
    assert wrong(handle(there, "Thing"), EVERY_FILTER) == []


def test_readers_are_not_disturbed_by_a_build(root: Path) -> None:
    """A handle on which Lance builds can not be read with meanwhile, so a build has its own."""
    graph, stop, problems = things(root, count=3_000), threading.Event(), list[BaseException]()

    def read() -> None:
        while not stop.is_set():
            try:
                assert graph.snapshot().count("Thing", "i32 IS NULL OR i32 IS NOT NULL") == 3_000
            except BaseException as problem:  # noqa: BLE001  whatever it is, the test must see it
                problems.append(problem)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    graph.ensure_indices()
    graph.optimize()
    stop.set()
    for reader in readers:
        reader.join()
    assert problems == []


def test_the_command_tells_the_kinds_and_what_is_pending(root: Path) -> None:
    things(root, count=20)
    told = CliRunner().invoke(app, ["index", str(root), "--json"])
    facts = json.loads(told.stdout)["tables"]["node:Thing"]
    assert (facts["bio"]["kind"], facts["ok"]["kind"], facts["vec"]["share"]) == ("INVERTED", "BITMAP", 0.0)
    assert "256 are needed" in facts["vec"]["pending"]
    shown = CliRunner().invoke(app, ["index", str(root)])
    assert "BITMAP" in shown.stdout
