"""What upkeep costs: `python3 dev.py bench maintenance [--quick]`.

Compaction of many small fragments and indexes of many rows with one and with two workers, beside Lance's own of the
same rows in one process; look-ups by key before and after; cleanup of many files, with its peak memory. A worker has
one core: with one, the process may use one core, with two it may use two, as Lance's own may. Times on a shared machine
mean little by themselves, so ratios are what has limits.
"""

import argparse
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
from tests.bench.kit import Verdict, answer, be_a_child, child, console, report, timed
from tests.engine.upkeep_kit import aged

import omnigraph as og
from omnigraph.engine.upkeep import CONCURRENCY_VARIABLE

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
    fragment_rows: int = 2_000
    rows: int = 5_000_000
    files: int = 100_000

    @property
    def target(self) -> int:
        """How many rows a fragment has after compaction."""
        return self.fragments * self.fragment_rows // COMPACTED


QUICK = Size(fragments=60, rows=200_000, files=5_000)


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


def fragmented(root: Path, size: Size) -> og.Graph:
    """A table of many small fragments, written in few commits."""
    graph = og.init(root, SCHEMA)
    every = list(portions(size.fragments * size.fragment_rows, size.fragment_rows))
    for at in range(0, len(every), PER_COMMIT):
        with graph.transaction(constraints="off") as tx:
            for table in every[at : at + PER_COMMIT]:
                tx.append("Item", table)
    return graph


def stock(place: Path, tables: Iterator[pa.Table]) -> lance.LanceDataset:
    for number, table in enumerate(tables):
        mode = "append" if number else "create"
        lance.write_dataset(with_ids(table), str(place), mode=mode, enable_stable_row_ids=True)
    return lance.dataset(str(place))


@contextmanager
def cores(number: int) -> Iterator[None]:
    """Let processes that are started meanwhile use so many cores, of those there are."""
    every = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(every)[:number])
    try:
        yield
    finally:
        os.sched_setaffinity(0, every)


def measured(act: str, root: Path, workers: int, size: Size) -> float:
    """Return how many seconds something takes a process with so many workers."""
    os.environ[CONCURRENCY_VARIABLE] = str(workers)
    with cores(workers):
        started = child(__file__, act=act, root=str(root), target=size.target)
    del os.environ[CONCURRENCY_VARIABLE]
    return float(answer(started)["seconds"])


def compared(act: str, root: Path, plain: Path, size: Size, what: str) -> list[Verdict]:
    """Measure what we do to a graph with one and with two workers, and what Lance does to the same rows."""
    copy = root.with_name(f"{root.name}-copy")
    shutil.copytree(root, copy)
    one, two = measured(act, copy, 1, size), measured(act, root, 2, size)
    own = measured(f"stock {act}", plain, 2, size)
    shutil.rmtree(copy)
    return [
        Verdict(what=f"{what}, 1 worker, s", value=one),
        Verdict(what=f"{what}, 2 workers, s", value=two),
        Verdict(what=f"{what}, by Lance alone, s", value=own),
        Verdict(what=f"{act}: 1 ÷ 2 workers", value=one / two, limit=1.6, least=True),
        Verdict(what=f"{act}: ours with 2 workers ÷ Lance alone", value=two / own, limit=1.2),
    ]


def compaction(folder: Path, size: Size) -> list[Verdict]:
    root, plain, rows = folder / "compact", folder / "stock.lance", size.fragments * size.fragment_rows
    fragmented(root, size)
    stock(plain, portions(rows, size.fragment_rows))
    verdicts = compared("optimize", root, plain, size, f"compaction of {size.fragments} fragments")
    assert og.open(root).snapshot().count("Item") == rows
    shutil.rmtree(root)
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
    verdicts = compared("index", root, plain, size, f"{len(INDEXES)} indexes of {size.rows:,} rows")
    report = graph.ensure_indices()
    assert report.commit is None
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


def index_plainly(plain: Any) -> None:
    for column, kind in INDEXES.items():
        plain.create_scalar_index(column, kind)


def prepare(order: dict[str, Any]) -> Callable[[], object]:
    if order["act"].startswith("stock"):
        plain = lance.dataset(order["root"])
        if order["act"] == "stock optimize":
            return lambda: plain.optimize.compact_files(target_rows_per_fragment=order["target"])
        return lambda: index_plainly(plain)
    graph = og.open(order["root"])
    match order["act"]:
        case "optimize":
            return lambda: graph.optimize(rows_per_fragment=order["target"])
        case "index":
            return graph.ensure_indices
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
