"""What differences and merges cost: `python3 dev.py bench merge [--quick]`.

Everything is measured in one run, in turns, and printed as ratios, because times on a shared machine mean little by
themselves. Large work runs in processes of their own, so that peak memory is theirs alone. Beside them stands what one
would do without files to compare: a full outer join of all rows in Parquet, by DuckDB with as much memory and as many
threads as our own engine has, and by Spark in the session that our own jobs run in.
"""

import argparse
import json
import shutil
import statistics
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import lance
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
from pyspark.sql import SparkSession
from rich.progress import Progress
from tests.bench.kit import Verdict, answer, be_a_child, child, console, report, timed
from tests.bench.spark import session

import omnigraph as og
from omnigraph.engine.graph import Graph
from omnigraph.storage.embedded import MEMORY_BYTES
from pyspark_omnigraph import SparkGraph
from pyspark_omnigraph.graph import JOB_ROWS_MIN

SCHEMA = "node Person { name: String @key  age: I32?  note: String? }"
ROWS_PER_BATCH = 100_000
FORWARDS_PER_SAMPLE = 4
SCATTER = 7_919  # a prime that divides none of the sizes: multiples of it lie all over a table
BASE, FORWARD, OURS, THEIRS, APART = "base", "forward", "ours", "theirs", "apart"

TWO = """
SELECT count(*) FROM {old} o FULL OUTER JOIN {new} n ON o.id = n.id
WHERE o.id IS NULL OR n.id IS NULL OR (o.age, o.note) IS DISTINCT FROM (n.age, n.note)
"""
THREE = """
SELECT count(*) FROM {base} b FULL OUTER JOIN {ours} o ON b.id = o.id
FULL OUTER JOIN {theirs} t ON coalesce(b.id, o.id) = t.id
WHERE (o.age, o.note) IS DISTINCT FROM (t.age, t.note)
  AND (b.age, b.note) IS DISTINCT FROM (o.age, o.note) AND (b.age, b.note) IS DISTINCT FROM (t.age, t.note)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much is measured."""

    rows: tuple[int, int] = (50_000, 5_000_000)
    changed: int = 100_000
    conflicts: int = 1_000
    samples: int = 15
    rounds: int = 3


QUICK = Size(rows=(20_000, 200_000), changed=10_000, conflicts=100, samples=5, rounds=2)


# -- rows ---------------------------------------------------------------------------------------------


def people(numbers: "np.ndarray[Any, Any]", age: int) -> pa.Table:
    """Return people of one age, with some text that hardly compresses."""
    names = [f"person-{number}" for number in numbers.tolist()]
    notes = [f"{number * 2_654_435_761 % 2**61} is all there is to say" for number in numbers.tolist()]
    return pa.table({"name": names, "age": pa.array([age] * len(names), pa.int32()), "note": notes})


def stream(count: int, age: int) -> pa.RecordBatchReader:
    """Stream people, made a batch at a time."""

    def batches() -> Iterator[pa.RecordBatch]:
        for start in range(0, count, ROWS_PER_BATCH):
            yield from people(np.arange(start, min(start + ROWS_PER_BATCH, count)), age).to_batches()

    return pa.RecordBatchReader.from_batches(people(np.arange(1), age).schema, batches())


def scattered(first: int, count: int, of: int) -> "np.ndarray[Any, Any]":
    """Return numbers of rows that lie all over a table, no two the same."""
    return (np.arange(first, first + count) * SCATTER) % of


def populated(folder: Path, rows: int, size: Size) -> Graph:
    """Make a graph of people with the branches that are measured."""
    graph = og.init(folder / f"{rows}.omni", SCHEMA)
    with graph.transaction() as tx:
        tx.append("Person", stream(rows, 1))
    graph.ensure_indices()
    for name in (BASE, FORWARD, OURS, THEIRS, APART):
        graph.branches.create(name)
    with graph.transaction(FORWARD) as tx:
        tx.overwrite("Person", stream(rows, 2))
    each = min(size.changed, rows // 10)
    clash = min(size.conflicts, each // 10)
    with graph.transaction(OURS) as tx:
        tx.upsert("Person", people(scattered(0, each, rows), 3))
    with graph.transaction(THEIRS) as tx:
        tx.upsert("Person", people(scattered(each - clash, each, rows), 4))
    with graph.transaction(APART) as tx:
        tx.upsert("Person", people(scattered(0, rows // 100, rows), 5))
    return graph


def to_parquet(graph: Graph, branch: str, file: Path) -> None:
    """Write all rows of a branch into one file."""
    reader = graph.snapshot(branch).scan("Person")
    with pq.ParquetWriter(str(file), reader.schema) as writer:
        for batch in reader:
            writer.write_batch(batch)


# -- children -----------------------------------------------------------------------------------------


def prepare(order: dict[str, Any]) -> Callable[[], int]:
    """Return what a child shall do; nothing of it has been done."""
    if order["job"] == "join":
        return lambda: joined(order["files"])
    graph = og.open(order["root"])
    graph.refresh()
    if order["job"] == "diff":
        return lambda: graph.diff(BASE, APART).tables["node:Person"].rows
    if order["job"] == "anew":
        return lambda: graph.diff(BASE, FORWARD).tables["node:Person"].rows
    if order["job"] == "rows":
        return lambda: sum(batch.num_rows for batch in graph.diff(BASE, APART).rows("Person"))
    if order["job"] == "dry":
        return lambda: counted(graph.branches.merge(THEIRS, OURS, dry_run=True))
    return lambda: counted(graph.branches.merge(THEIRS, order["into"], policy="theirs"))


def joined(files: dict[str, str]) -> int:
    """Join all rows of two or three files."""
    connection = duckdb.connect(config={"memory_limit": f"{MEMORY_BYTES}B", "threads": 2})
    query = (TWO if len(files) == 2 else THREE).format(**{name: f"read_parquet(${name})" for name in files})
    (found,) = connection.execute(query, files).fetchall()[0]
    return int(found)


def counted(result: og.MergeResult) -> int:
    """Return how many rows conflict, or else how many came."""
    conflicts = sum(number for counts in result.conflict_counts.values() for number in counts.values())
    return conflicts or sum(table.rows_updated for table in result.tables.values())


# -- measures -----------------------------------------------------------------------------------------


def forwards(graphs: dict[int, Graph], size: Size, progress: Progress) -> list[Verdict]:
    """Forward a branch by one that changed every row, of a small table and of a large one."""
    seconds: dict[int, list[float]] = {rows: [] for rows in graphs}
    samples = FORWARDS_PER_SAMPLE * size.samples  # they are short, and so easily disturbed
    task = progress.add_task("fast-forward", total=samples)
    for number in range(samples):
        for rows, graph in graphs.items():
            into = f"into-{number}"
            graph.branches.create(into, from_=BASE)
            seconds[rows].append(timed(lambda graph=graph, into=into: graph.branches.merge(FORWARD, into)))  # type: ignore[misc]
        progress.advance(task)
    few, many = (statistics.median(seconds[rows]) for rows in size.rows)
    console.print(f"fast-forward: {few * 1e3:.1f} ms of {size.rows[0]:,} rows, {many * 1e3:.1f} ms of {size.rows[1]:,}")
    return [
        Verdict(what=f"fast-forward, {size.rows[1]:,} ÷ {size.rows[0]:,} changed rows", value=many / few, limit=1.2)
    ]


def one_row(graphs: dict[int, Graph], size: Size, progress: Progress) -> list[Verdict]:
    """Merge one changed row with another one, in a small table and in a large one."""
    seconds: dict[int, list[float]] = {rows: [] for rows in graphs}
    task = progress.add_task("one row on each side", total=size.samples)
    for number in range(size.samples):
        for rows, graph in graphs.items():
            for side, name in enumerate((f"one-{number}", f"other-{number}")):
                graph.branches.create(name, from_=BASE)
                with graph.transaction(name) as tx:
                    tx.upsert("Person", people(scattered(2 * number + side, 1, rows), 9))
            merge = (f"other-{number}", f"one-{number}")
            seconds[rows].append(timed(lambda graph=graph, merge=merge: graph.branches.merge(*merge)))  # type: ignore[misc]
        progress.advance(task)
    few, many = (statistics.median(seconds[rows]) for rows in size.rows)
    console.print(f"one row each: {few * 1e3:.1f} ms of {size.rows[0]:,} rows, {many * 1e3:.1f} ms of {size.rows[1]:,}")
    return [Verdict(what=f"one row on each side, {size.rows[1]:,} ÷ {size.rows[0]:,} rows", value=many / few, limit=2)]


def in_parquet(folder: Path, graph: Graph) -> tuple[dict[str, str], dict[str, str]]:
    """Write the branches that are joined into files, unless they are there; return the two and the three."""
    files = {name: folder / f"{name}.parquet" for name in (BASE, OURS, THEIRS, APART)}
    for name, file in files.items():
        if not file.exists():
            to_parquet(graph, name, file)
    three = {name: str(files[name]) for name in (BASE, OURS, THEIRS)}
    return {"old": str(files[BASE]), "new": str(files[APART])}, three


def beside_joins(folder: Path, graph: Graph, size: Size, progress: Progress) -> list[Verdict]:
    """Compare and merge a large table, beside joins of all its rows."""
    two, three = in_parquet(folder, graph)
    orders: dict[str, dict[str, Any]] = {
        "join of two": {"job": "join", "files": two},
        "diff": {"job": "diff"},
        "diff, rows": {"job": "rows"},
        "join of three": {"job": "join", "files": three},
        "merge, dry run": {"job": "dry"},
        "merge": {"job": "merge"},
        "diff of all rows": {"job": "anew"},
    }
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in orders}
    task = progress.add_task("large work", total=size.rounds)
    for number in range(size.rounds):
        graph.branches.create(f"merge-{number}", from_=OURS)
        for name, order in orders.items():
            found[name].append(answer(child(__file__, root=graph.root, into=f"merge-{number}", **order)))
        progress.advance(task)
    told = {name: statistics.median(one["seconds"] for one in each) for name, each in found.items()}
    for name, each in found.items():
        highest = max(one["peak"] - one["before"] for one in each)
        console.print(f"{name}: {told[name]:.2f} s, {each[0]['rows']:,} rows, {highest:,.0f} MB more at its peak")
    assert found["diff"][0]["rows"] == found["join of two"][0]["rows"] == found["diff, rows"][0]["rows"]
    assert found["merge, dry run"][0]["rows"] == found["join of three"][0]["rows"]
    two_s, three_s = told["join of two"], told["join of three"]
    return [
        Verdict(what="diff of versions 1 % apart ÷ DuckDB's full outer join", value=told["diff"] / two_s, limit=0.2),
        Verdict(what="the same with all its rows ÷ DuckDB's full outer join", value=told["diff, rows"] / two_s),
        Verdict(
            what="conflicts of two sides ÷ DuckDB's join of three", value=told["merge, dry run"] / three_s, limit=0.5
        ),
        Verdict(what="the whole merge ÷ DuckDB's join of three", value=told["merge"] / three_s),
    ]


def beside_spark(folder: Path, graph: Graph, size: Size, progress: Progress) -> list[Verdict]:
    """Compare and merge a large table in one Spark session, beside Spark's own joins of all its rows."""
    two, three = in_parquet(folder, graph)
    spark = session(folder)
    handles = {"": SparkGraph(spark, graph)}
    spark.conf.set(JOB_ROWS_MIN, "0")
    handles[" by jobs"] = SparkGraph(spark, graph)
    acts: dict[str, Callable[[], int]] = {"join of two": lambda: joined_by(spark, TWO, two)}
    for how, handle in handles.items():
        acts |= {f"diff{how}": lambda handle=handle: handle.diff(BASE, APART).tables["node:Person"].rows}  # type: ignore[misc]
    acts["join of three"] = lambda: joined_by(spark, THREE, three)
    for how, handle in handles.items():
        acts |= {f"merge, dry run{how}": lambda handle=handle: counted(handle.merge(THEIRS, OURS, dry_run=True))}  # type: ignore[misc]
    seconds: dict[str, list[float]] = {name: [] for name in acts}
    found: dict[str, int] = {}
    task = progress.add_task("beside Spark", total=size.rounds + 1)
    for number in range(size.rounds + 1):
        for name, act in acts.items():
            took = timed(lambda name=name, act=act: found.update({name: act()}))  # type: ignore[misc]
            seconds[name] += [took] if number else []  # the first round does not count: processes start in it
        progress.advance(task)
    merges = [whole_merge(handle, f"spark-{number}") for number, handle in enumerate(handles.values())]
    spark.stop()
    told = {name: statistics.median(each) for name, each in seconds.items()}
    for name, each in seconds.items():
        console.print(
            f"Spark, {name}: {told[name]:.2f} s ({', '.join(f'{t:.2f}' for t in each)}), {found[name]:,} rows"
        )
    assert found["diff"] == found["diff by jobs"] == found["join of two"]
    assert found["merge, dry run"] == found["merge, dry run by jobs"] == found["join of three"]
    two_s, three_s = told["join of two"], told["join of three"]
    return [
        Verdict(what="SparkGraph.diff, 1 % apart ÷ Spark's full outer join", value=told["diff"] / two_s, limit=0.2),
        Verdict(what="the same by jobs ÷ Spark's full outer join", value=told["diff by jobs"] / two_s),
        Verdict(
            what="SparkGraph.merge finds conflicts ÷ Spark's join of three",
            value=told["merge, dry run"] / three_s,
            limit=0.5,
        ),
        Verdict(what="the same by jobs ÷ Spark's join of three", value=told["merge, dry run by jobs"] / three_s),
        *(
            Verdict(what=f"the whole merge{how} ÷ Spark's join of three", value=took / three_s)
            for how, took in zip(handles, merges, strict=True)
        ),
    ]


def joined_by(spark: SparkSession, query: str, files: dict[str, str]) -> int:
    """Join all rows of two or three files by Spark."""
    rows: dict[str, Any] = {name: spark.read.parquet(file) for name, file in files.items()}
    return int(spark.sql(query, **rows).collect()[0][0])


def whole_merge(graph: SparkGraph, into: str) -> float:
    """Return how long a merge takes that is settled and published."""
    graph.branches.create(into, from_=OURS)
    return timed(lambda: graph.merge(THEIRS, into, policy="theirs"))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes: minutes become seconds, and figures rough")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.child:
        be_a_child(prepare(json.loads(chosen.child)))
        return
    size = QUICK if chosen.quick else Size()
    with tempfile.TemporaryDirectory(prefix="omnigraph-bench-") as name:
        folder = Path(name)
        with Progress(console=console, transient=True) as progress:
            graphs = {rows: populated(folder, rows, size) for rows in size.rows}
            verdicts = forwards(graphs, size, progress)
            verdicts += one_row(graphs, size, progress)
            verdicts += beside_joins(folder, graphs[size.rows[1]], size, progress)
            verdicts += beside_spark(folder, graphs[size.rows[1]], size, progress)
        shutil.rmtree(folder, ignore_errors=True)
    report(verdicts)
    console.print(
        f"samples {size.samples}, rounds {size.rounds}; "
        f"joins by duckdb {duckdb.__version__} and pyspark {pyspark.__version__}; pylance {lance.__version__}"
    )


if __name__ == "__main__":
    main()
