"""What upkeep costs: `python3 dev.py bench maintenance [--quick]`.

Compaction of many small fragments and indexes of many rows with one and with two workers, which are threads or
Spark's, beside Lance's own of the same rows in one process; look-ups by key before and after; cleanup of many files,
with its peak memory. A worker has one core: with one, the process may use one core, with two it may use two, as Lance's
own may. Lance's own is measured as it comes, and as it is when it computes on every core, as we let it. Times on a
shared machine mean little by themselves, so ratios of medians are what has limits, and all is measured in turns.
"""

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession
from tests.bench.kit import AS_IT_COMES, EVERY_CORE, Verdict, answer, be_a_child, child, console, report, timed
from tests.engine.upkeep_kit import aged

import omnigraph as og
from omnigraph.engine.upkeep import CONCURRENCY_VARIABLE
from pyspark_omnigraph import SparkGraph

SCHEMA = "node Item { name: String @key  value: I64 @index  even: Bool @index  text: String? }"
INDEXES = {"id": "BTREE", "name": "BTREE", "value": "BTREE", "even": "BITMAP"}
PER_COMMIT = 50
PER_APPEND = 500_000
LOOKUPS = 20
COMPACTED = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much is measured."""

    fragments: int = 1_000
    fragment_rows: int = 10_000
    tiny_rows: int = 2_000
    rounds: int = 3
    rows: int = 5_000_000
    files: int = 100_000


QUICK = Size(fragments=60, rows=200_000, files=5_000, rounds=1)


def items(start: int, count: int) -> pa.Table:
    numbers = np.arange(start, start + count)
    names = pa.array([f"item-{number:09}" for number in numbers.tolist()])
    texts = pa.array([f"t{number % 97}" for number in numbers.tolist()])
    return pa.table({"name": names, "value": pa.array(numbers), "even": pa.array(numbers % 2 == 0), "text": texts})


def portions(count: int, each: int) -> Iterator[pa.Table]:
    return (items(start, min(each, count - start)) for start in range(0, count, each))


def with_ids(table: pa.Table) -> pa.Table:
    """The rows as our own tables have them: the key once more as the id."""
    return table.add_column(0, "id", table.column("name"))


def fragmented(root: Path, fragments: int, rows: int) -> None:
    """A table of many small fragments, written in few commits."""
    graph = og.init(root, SCHEMA)
    every = portions(fragments * rows, rows)
    while some := list(islice(every, PER_COMMIT)):
        with graph.transaction(constraints="off") as tx:
            for table in some:
                tx.append("Item", table)


def stock(place: Path, tables: Iterator[pa.Table]) -> lance.LanceDataset:
    for number, table in enumerate(tables):
        mode = "append" if number else "create"
        lance.write_dataset(with_ids(table), str(place), mode=mode, enable_stable_row_ids=True)
    return lance.dataset(str(place))


@contextmanager
def pinned(cores: int) -> Iterator[None]:
    """Let processes that are started meanwhile use so many cores, of those there are."""
    every = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(every)[:cores])
    try:
        yield
    finally:
        os.sched_setaffinity(0, every)


def measured(act: str, place: Path, workers: int, target: int, variables: dict[str, str]) -> float:
    """Return how many seconds something takes a process with so many workers; it works on a copy."""
    copy = place.with_name(f"{place.name}-copy")
    shutil.copytree(place, copy, copy_function=os.link)
    said = {CONCURRENCY_VARIABLE: str(workers), **variables}
    with pinned(workers):
        started = child(__file__, said, act=act, root=str(copy), target=target)
    seconds = float(answer(started)["seconds"])
    shutil.rmtree(copy)
    return seconds


def compared(act: str, root: Path, plain: Path, rounds: int, target: int = 0) -> dict[str, float]:
    """Measure what we do to a graph with one and with two workers, and what Lance does to the same rows."""
    found: dict[str, list[float]] = {}
    for _ in range(rounds):
        for name, what, place, workers, variables in (
            ("one", act, root, 1, {}),
            ("two", act, root, 2, {}),
            ("one of Spark", f"spark {act}", root, 1, {}),
            ("two of Spark", f"spark {act}", root, 2, {}),
            ("stock", f"stock {act}", plain, 2, AS_IT_COMES),
            ("stock, every core", f"stock {act}", plain, 2, EVERY_CORE),
        ):
            found.setdefault(name, []).append(measured(what, place, workers, target, variables))
    for name, times in found.items():
        console.print(f"{act}, {name}: " + ", ".join(f"{each:.2f} s" for each in times))
    return {name: statistics.median(times) for name, times in found.items()}


def told(act: str, what: str, seconds: dict[str, float], *, has_limits: bool = True) -> list[Verdict]:
    one, two, stock, every = (seconds[name] for name in ("one", "two", "stock", "stock, every core"))
    spark = seconds["one of Spark"] / seconds["two of Spark"]
    return [
        Verdict(what=f"{what}, 2 workers, s", value=two),
        Verdict(what=f"{act}: 1 ÷ 2 workers", value=one / two, limit=1.6 if has_limits else None, least=True),
        Verdict(what=f"{act}: 1 ÷ 2 workers of Spark", value=spark, limit=1.6 if has_limits else None, least=True),
        Verdict(what=f"{act}: 2 workers ÷ Lance alone", value=two / stock, limit=1.2 if has_limits else None),
        Verdict(what=f"{act}: 2 workers ÷ Lance alone on every core", value=two / every),
    ]


def compaction(folder: Path, size: Size) -> list[Verdict]:
    verdicts = []
    for each, has_limits in ((size.fragment_rows, True), (size.tiny_rows, False)):
        root, plain, rows = folder / "compact", folder / "stock.lance", size.fragments * each
        fragmented(root, size.fragments, each)
        stock(plain, portions(rows, each))
        seconds = compared("optimize", root, plain, size.rounds, rows // COMPACTED)
        what = f"{size.fragments:,} fragments of {each:,} rows"
        verdicts += told(f"compaction of {what}", what, seconds, has_limits=has_limits)
        graph = og.open(root)
        graph.optimize(rows_per_fragment=rows // COMPACTED)
        assert graph.snapshot().count("Item") == rows
        shutil.rmtree(root)
        shutil.rmtree(plain)
    return verdicts


def indexing(folder: Path, size: Size) -> list[Verdict]:
    root, plain = folder / "index", folder / "stock-index.lance"
    graph = og.init(root, SCHEMA)
    with graph.transaction(constraints="off") as tx:
        for table in portions(size.rows, PER_APPEND):
            tx.append("Item", table)
    stock(plain, portions(size.rows, PER_APPEND))
    names = [f"item-{number:09}" for number in range(0, size.rows, size.rows // LOOKUPS)]

    def look() -> float:
        return timed(lambda: [graph.snapshot().entity("Item", name) for name in names]) / len(names)

    before = look()
    what = f"{len(INDEXES)} indexes of {size.rows:,} rows"
    verdicts = told("index", what, compared("index", root, plain, size.rounds))
    report = graph.ensure_indices()
    assert {column: str(one.kind) for column, one in report.tables["node:Item"].items()} == INDEXES
    after = look()
    return [
        *verdicts,
        Verdict(what="look-up by key without an index, ms", value=before * 1e3),
        Verdict(what="look-up by key with an index, ms", value=after * 1e3),
    ]


def littered(root: Path, size: Size) -> None:
    """A small graph with many files that nothing refers to."""
    graph = og.init(root, SCHEMA)
    with graph.transaction() as tx:
        tx.append("Item", items(0, 1_000))
    kind = graph.snapshot().catalog.table_type("Item")
    data = root / "nodes" / kind.table_id / "data"
    for number in range(size.files):
        (data / f"{number:032x}.lance").write_bytes(b"left over")
    aged(root)


def cleaning(folder: Path, size: Size) -> list[Verdict]:
    littered(folder / "clean", size)
    said = answer(child(__file__, act="cleanup", root=str(folder / "clean")))
    assert said["rows"] >= size.files
    assert og.open(folder / "clean").snapshot().read("Item").num_rows == 1_000
    return [
        Verdict(what=f"cleanup of {size.files:,} files, s", value=said["seconds"]),
        Verdict(what="cleanup: memory beyond what it had before, MB", value=said["peak"] - said["before"], limit=200),
    ]


def sparked(root: str) -> SparkGraph:
    """A graph on Spark, with as many cores as there are for this process, and workers that have done something."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(f"local[{len(os.sched_getaffinity(0))}]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.ui.showConsoleProgress", "false")
    spark = builder.config("spark.log.level", "OFF").getOrCreate()
    small = Path(root).with_name("small")
    fragmented(small, 20, 10)
    SparkGraph.for_path(spark, small).optimize()
    SparkGraph.for_path(spark, small).ensure_indices()
    shutil.rmtree(small)
    return SparkGraph.for_path(spark, root)


def index_plainly(plain: Any) -> None:
    for column, kind in INDEXES.items():
        plain.create_scalar_index(column, kind)


def prepare(order: dict[str, Any]) -> Callable[[], object]:
    if order["act"].startswith("stock"):
        plain = lance.dataset(order["root"])
        if order["act"] == "stock optimize":
            return lambda: plain.optimize.compact_files(target_rows_per_fragment=order["target"])
        return lambda: index_plainly(plain)
    graph: Any = sparked(order["root"]) if order["act"].startswith("spark") else og.open(order["root"])
    match order["act"].removeprefix("spark "):
        case "optimize":
            return lambda: graph.optimize(rows_per_fragment=order["target"])
        case "index":
            return lambda: graph.ensure_indices()
        case _:
            pass
    graph.snapshot().read("Item")
    return lambda: graph.cleanup(keep=1).files


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
        verdicts = [*cleaning(Path(name), size), *compaction(Path(name), size), *indexing(Path(name), size)]
    report(verdicts)
    console.print(f"pylance {lance.__version__}")


if __name__ == "__main__":
    main()
