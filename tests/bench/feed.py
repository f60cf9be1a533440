"""What change feeds and streams cost: `python3 dev.py bench feed [--quick]`.

Everything is measured in one run, in turns, and printed as ratios, because times on a shared machine mean little by
themselves. A feed of many small commits stands beside one reading of the whole table, the commits of a stream's later
batches beside those of its first.
"""

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pyspark
from pyspark.sql import SparkSession
from rich.progress import Progress
from tests.bench.kit import Verdict, console, report, timed
from tests.bench.merge import SCHEMA, people, stream

import omnigraph as og
from omnigraph.engine.graph import Graph

ROWS_PER_COMMIT = 100
FEED_LIMIT = 0.2
BATCH_LIMIT = 1.3
AROUND = 10
"""How many batches are looked at, at either end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much is measured."""

    rows: int = 5_000_000
    commits: int = 1_000
    rounds: int = 5
    batches: int = 1_000


QUICK = Size(rows=200_000, commits=100, rounds=3, batches=60)


def populated(folder: Path, size: Size, progress: Progress, verb: str) -> tuple[Graph, int]:
    """Make a large table and small commits after it; return the version they come after."""
    graph = og.init(folder / f"{verb}.omni", SCHEMA)
    with graph.transaction() as tx:
        tx.append("Person", stream(size.rows, 1))
    graph.ensure_indices()
    first = graph.refresh().version
    task = progress.add_task(f"small commits, {verb}", total=size.commits)
    for number in range(size.commits):
        start = size.rows + number * ROWS_PER_COMMIT if verb == "append" else number * ROWS_PER_COMMIT * 7
        with graph.transaction() as tx:
            getattr(tx, verb)("Person", people(np.arange(start, start + ROWS_PER_COMMIT), 2))
        progress.advance(task)
    return graph, first


def counted(reader: pa.RecordBatchReader) -> int:
    """Read all rows, and hold none."""
    return sum(batch.num_rows for batch in reader)


def read_table(graph: Graph) -> int:
    return counted(graph.snapshot().scan("Person"))


def read_feed(graph: Graph, since: int, *, net: bool = False) -> int:
    return counted(graph.changes(since=since, net=net).rows("Person"))


def feeds(folder: Path, size: Size, progress: Progress) -> list[Verdict]:
    """Read the feed of many small commits beside the whole table."""
    verdicts: list[Verdict] = []
    for verb, limit in (("append", FEED_LIMIT), ("upsert", None)):
        graph, first = populated(folder, size, progress, verb)
        seconds: dict[str, list[float]] = {"feed": [], "table": [], "net": []}
        for _ in range(size.rounds):
            fresh = og.open(graph.root, read_only=True)
            seconds["table"].append(timed(partial(read_table, fresh)))
            seconds["feed"].append(timed(partial(read_feed, fresh, first)))
            seconds["net"].append(timed(partial(read_feed, fresh, first, net=True)))
        each = {name: statistics.median(times) for name, times in seconds.items()}
        console.print(f"{verb}: " + ", ".join(f"{name} {value * 1e3:,.0f} ms" for name, value in each.items()))
        what = f"feed of {size.commits:,} commits that {verb} {ROWS_PER_COMMIT} rows ÷ table of {size.rows:,}"
        verdicts.append(Verdict(what=what, value=each["feed"] / each["table"], limit=limit))
        verdicts.append(Verdict(what="the same, net", value=each["net"] / each["table"]))
        shutil.rmtree(graph.root, ignore_errors=True)
    return verdicts


def batches(folder: Path, size: Size) -> list[Verdict]:
    """Let a stream write many small batches, and compare the commits of its last with those of its first."""
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.streaming.numRecentProgressUpdates", str(size.batches + 10))
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    source = og.init(folder / "source.omni", "node Tick { name: String @key }")
    for number in range(size.batches):
        with source.transaction() as tx:
            tx.append("Tick", [{"name": f"tick-{number}"}])
    target = og.init(folder / "target.omni", "node Tick { name: String @key }")
    feed = spark.readStream.format("omnigraph").option("readChangeFeed", "true").option("type", "Tick")
    ticks = feed.option("startingVersion", 1).option("maxCommitsPerTrigger", 1).load(source.root).select("name")
    writer = ticks.writeStream.format("omnigraph").option("type", "Tick")
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True)
    running = query.start(target.root)
    running.awaitTermination()
    assert target.snapshot().count("Tick") == size.batches
    told: list[Any] = [json.loads(each.json) for each in running.recentProgress]
    seconds = [each["durationMs"]["addBatch"] / 1e3 for each in told if each["numInputRows"]]
    spark.stop()
    early, late = (statistics.median(some) for some in (seconds[AROUND // 2 : AROUND + AROUND // 2], seconds[-AROUND:]))
    console.print(f"batches: {early * 1e3:.0f} ms at {AROUND}, {late * 1e3:.0f} ms at {len(seconds):,}")
    return [Verdict(what=f"batch {len(seconds):,} of a stream ÷ batch {AROUND}", value=late / early, limit=BATCH_LIMIT)]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes: minutes become seconds, and figures rough")
    parser.add_argument("--without-spark", action="store_true", help="only what needs no Spark")
    chosen = parser.parse_args()
    size = QUICK if chosen.quick else Size()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with tempfile.TemporaryDirectory(prefix="omnigraph-bench-") as name:
        folder = Path(name)
        with Progress(console=console, transient=True) as progress:
            verdicts = feeds(folder, size, progress)
        if not chosen.without_spark:
            verdicts += batches(folder, size)
        shutil.rmtree(folder, ignore_errors=True)
    report(verdicts)
    console.print(f"rounds {size.rounds}; pylance {lance.__version__}; pyspark {pyspark.__version__}")


if __name__ == "__main__":
    main()
