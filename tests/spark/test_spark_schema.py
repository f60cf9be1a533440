"""Schema changes of large tables on Spark: tasks write and check, the driver seals, and the result is the same."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.plain_tables import plain
from tests.spark.merge_spark_kit import by_jobs

import omnigraph as og
from omnigraph.engine import shares
from omnigraph.errors import ConstraintError, MergeConflictsError, OmnigraphError
from omnigraph.storage.staging import Staging
from omnigraph.testing.places import place
from pyspark_omnigraph import SparkGraph
from pyspark_omnigraph.engine import SparkEngine

NODES = "node City { name: String @key }\n"
OLD = (
    NODES
    + """
node Person { name: String @key  age: I32?  size: I64?  mood: String?  picture: Blob? }
edge Knows: Person -> Person
"""
)
HERE, THERE = "here", "there"
PARTS, EACH = 4, 30


def body(*properties: str, edge: str = "edge Knows: Person -> Person") -> str:
    return NODES + "node Person { name: String @key  " + "  ".join(properties) + " }\n" + edge


KEPT = ("age: I32?", "size: I64?", "mood: String?", "picture: Blob?")


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    """A graph with a table of several fragments, of which some have rows deleted, and two branches at its head."""
    made = og.init(tmp_path / "g", OLD)
    for part in range(PARTS):
        numbers = range(part * EACH, (part + 1) * EACH)
        with made.transaction() as tx:
            tx.append("Person", [person(number) for number in numbers])
            tx.append("Knows", [{"id": f"k{n}", "src": f"p{n:03}", "dst": f"p{part * EACH:03}"} for n in numbers])
    with made.transaction() as tx:
        tx.delete("Knows", "src = 'p007'")
    with made.transaction() as tx:
        tx.delete("Person", ids=["p007"])
    for name in (HERE, THERE):
        made.branches.create(name)
    return made


def person(number: int) -> dict[str, Any]:
    return {
        "name": f"p{number:03}",
        "age": number if number % 3 else None,
        "size": number * 2**33,
        "mood": "good" if number % 2 else "bad",
        "picture": f"picture {number}".encode() if number % 5 == 0 else None,
    }


def rows(graph: og.Graph, branch: str) -> dict[str, list[dict[str, Any]]]:
    snapshot = graph.snapshot(branch)
    names = [kind.name for kind in snapshot.catalog.table_types]
    return {name: sorted(snapshot.read(name).to_pylist(), key=lambda row: str(row["id"])) for name in names}


@contextmanager
def nothing_in_the_driver() -> Iterator[list[int]]:
    """Let the driver write and read no rows; give how many tasks each job had, and let small tables have several."""
    tasks: list[int] = []
    read = SparkEngine._read

    def counted(self: SparkEngine, schema: Any, parts: Any) -> Any:
        tasks.append(len(parts))
        return read(self, schema, parts)

    def forbidden(*_: Any, **__: Any) -> Any:
        pytest.fail("rows were read or written in the driver")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SparkEngine, "_read", counted)
        patch.setattr(shares, "SHARE_BYTES_MIN", 1)
        for name in ("reshape", "scan", "rows_where", "columns", "rewritten"):
            patch.setattr(Staging, name, forbidden)
        yield tasks


def applied_alike(spark: SparkSession, graph: og.Graph, new: str, **more: Any) -> tuple[SparkGraph, list[int]]:
    """Apply a schema here and by jobs; both are refused alike, or have the same rows."""
    job = by_jobs(spark, graph)
    said: list[Any] = []
    try:
        said.append(graph.schema.apply(new, HERE, **more).applied)
    except OmnigraphError as refused:
        said.append(refused)
    with nothing_in_the_driver() as tasks:
        try:
            said.append(job.schema.apply(new, THERE, **more).applied)
        except OmnigraphError as refused:
            said.append(refused)
    here, there = said
    if isinstance(here, OmnigraphError):
        assert isinstance(there, OmnigraphError), "a job refuses what is refused here"
        assert there.code == here.code
        assert told(there) == told(here)
    else:
        assert there is True, there
        assert graph.schema.show(THERE) == graph.schema.show(HERE)
    assert rows(graph, THERE) == rows(graph, HERE)
    return job, tasks


def told(refused: OmnigraphError) -> list[tuple[str, str, int]]:
    violations = refused.facts.get("violations", [])
    assert all(each["sample"] for each in violations)
    return sorted((each["constraint"], each["table_key"], each["count"]) for each in violations)


def test_columns_are_written_by_tasks_that_each_have_some_fragments(spark: SparkSession, graph: og.Graph) -> None:
    new = body(
        'years: F64? @rename_from("age")', "size: I64?", "mood: String?", "picture: Blob?",
        'land: String @backfill("IT")', "nick: String @backfill(expr=\"upper(name) || '/' || mood\")",
    )  # fmt: skip
    _, tasks = applied_alike(spark, graph, new)
    assert max(tasks) > 1, "several tasks wrote"
    first = rows(graph, THERE)["Person"][1]
    assert first == {"id": "p001", "name": "p001", "years": 1.0, "size": 2**33, "mood": "good", "picture": None,
                     "land": "IT", "nick": "P001/good"}  # fmt: skip
    with graph.transaction(THERE) as tx:
        tx.upsert(
            "Person",
            [{"name": "p001", "years": 0.5, "land": "FR", "nick": "x"}, {"name": "new", "land": "FR", "nick": "y"}],
        )
    assert graph.snapshot(THERE).count("Person") == PARTS * EACH
    assert [row["age"] for row in rows(graph, "main")["Person"][:3]] == [None, 1, 2], "main has what it had"


def test_a_hard_drop_is_rewritten_by_tasks_and_leaves_nothing_behind(spark: SparkSession, graph: og.Graph) -> None:
    new = body("age: I64?", "picture: Blob?", 'land: String @backfill("IT")')
    _, tasks = applied_alike(spark, graph, new, allow_data_loss=True)
    assert max(tasks) > 1
    head = graph.snapshot(THERE)
    kind = head.catalog.table_type("Person")
    folder = place(graph.root) / "nodes" / kind.table_id
    table = plain(graph.root, f"nodes/{kind.table_id}", head.commit.pins[kind.table_id].lance_version)
    files = [file.path for part in table.get_fragments() for file in part.metadata.files]
    assert len(files) > 1
    assert all(b"mood" not in (folder / "data" / name).read_bytes() for name in files)
    assert rows(graph, THERE)["Person"][5]["picture"] == b"picture 5"


REFUSED = {
    "required": body("age: I32", *KEPT[1:]),
    "narrowed": body("age: I32?", "size: I32", *KEPT[2:]),
    "unique": body("age: I32?", "size: I64?", "mood: String? @unique", KEPT[3]),
    "enum": body(*KEPT[:2], "mood: enum(good)?", KEPT[3]),
    "range and check": body(*KEPT, "@range(age, 5..100)", '@check(name, "^p0")'),
    "key": body(*KEPT).replace("name: String @key", "name: String").replace("mood: String?", "mood: String? @key"),
    "made of nothing": body(*KEPT, 'next: I32 @backfill(expr="age + 1")'),
    "made too large": body(*KEPT, 'more: I32? @backfill(expr="size + 1")'),
    "ends": body(*KEPT, edge="edge Knows: Person -> City"),
    "too many edges": body(*KEPT, edge="edge Knows: Person -> Person @card(2..3)"),
}


@pytest.mark.parametrize("name", ["required", "unique", "range and check", "made too large", "ends", "too many edges"])
def test_rows_that_do_not_fit_are_found_where_they_are(spark: SparkSession, graph: og.Graph, name: str) -> None:
    before = graph.snapshot(THERE).commit
    applied_alike(spark, graph, REFUSED[name], allow_data_loss=True)
    assert graph.snapshot(THERE).commit == before


def test_what_fits_is_applied_after_tasks_have_looked_at_it(spark: SparkSession, graph: og.Graph) -> None:
    new = body(
        "age: I32?", "size: U64", "mood: enum(bad, good)", "picture: Blob?",
        'nick: String @unique @backfill(expr="name")', "@range(age, 0..200)",
        edge="edge Knows: Person -> Person @card(0..1)",
    )  # fmt: skip
    applied_alike(spark, graph, new, allow_data_loss=True)
    with pytest.raises(ConstraintError), graph.transaction(THERE) as tx:
        tx.append("Person", [{"name": "z", "size": 1, "mood": "good", "nick": "p001"}])


def test_a_merge_by_jobs_finds_rows_without_a_value_that_is_required(spark: SparkSession, graph: og.Graph) -> None:
    graph.schema.apply(body(*KEPT, 'land: String @backfill("IT")'))
    with graph.transaction(THERE) as tx:
        tx.append("Person", [{"name": "new"}])
    with pytest.raises(MergeConflictsError) as here:
        graph.branches.merge(THERE, "main")
    with pytest.raises(MergeConflictsError) as there:
        by_jobs(spark, graph).merge(THERE, "main")
    assert there.value.conflict_counts == here.value.conflict_counts
    assert graph.snapshot().count("Person", "land is null") == 0
