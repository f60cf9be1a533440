"""What upkeep costs: `python3 dev.py bench maintenance [--quick]`.

Compaction of many small fragments with one and with two workers, beside Lance's own compaction of the same rows in one
process; indexes of many rows, beside Lance's own; look-ups by key before and after; cleanup of many files, with its
peak memory. Times on a shared machine mean little by themselves, so ratios are what has limits.
"""

import argparse
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
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

SCHEMA = "node Item { name: String @key  value: I64  text: String? }"
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
    return pa.table(
        {"name": names, "value": pa.array(numbers), "text": pa.array([f"t{n % 97}" for n in numbers.tolist()])}
    )


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


def compaction(folder: Path, size: Size) -> list[Verdict]:
    times = {}
    for workers in (1, 2):
        root = folder / f"compact-{workers}"
        graph = fragmented(root, size)
        os.environ[CONCURRENCY_VARIABLE] = str(workers)
        times[workers] = timed(lambda graph=graph: graph.optimize(rows_per_fragment=size.target))  # type: ignore[misc]
        del os.environ[CONCURRENCY_VARIABLE]
        assert graph.snapshot().count("Item") == size.fragments * size.fragment_rows
        shutil.rmtree(root)
    plain = stock(folder / "stock.lance", portions(size.fragments * size.fragment_rows, size.fragment_rows))
    own = timed(lambda: plain.optimize.compact_files(target_rows_per_fragment=size.target))
    return [
        Verdict(what=f"compaction of {size.fragments} fragments, 1 worker, s", value=times[1]),
        Verdict(what="the same with 2 workers, s", value=times[2]),
        Verdict(what="the same by Lance alone, s", value=own),
        Verdict(what="compaction: 1 ÷ 2 workers", value=times[1] / times[2], limit=1.6, least=True),
        Verdict(what="compaction: ours with 2 workers ÷ Lance alone", value=times[2] / own, limit=1.2),
    ]


def indexing(folder: Path, size: Size) -> list[Verdict]:
    graph = og.init(folder / "index", SCHEMA)
    with graph.transaction(constraints="off") as tx:
        for table in portions(size.rows, PER_APPEND):
            tx.append("Item", table)
    names = [f"item-{number:09}" for number in range(0, size.rows, size.rows // LOOKUPS)]
    before = timed(lambda: [graph.snapshot().entity("Item", name) for name in names]) / len(names)
    ours = timed(graph.ensure_indices)
    after = timed(lambda: [graph.snapshot().entity("Item", name) for name in names]) / len(names)
    plain = stock(folder / "stock-index.lance", portions(size.rows, PER_APPEND))
    own = timed(lambda: plain.create_scalar_index("id", "BTREE"))
    return [
        Verdict(what=f"index of {size.rows:,} ids, s", value=ours),
        Verdict(what="index: ours ÷ Lance alone", value=ours / own, limit=1.2),
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
    said = answer(child(__file__, root=str(folder / "clean")))
    assert said["rows"] >= size.files
    assert og.open(folder / "clean").snapshot().read("Item").num_rows == 1_000
    return [
        Verdict(what=f"cleanup of {size.files:,} files, s", value=said["seconds"]),
        Verdict(what="cleanup: memory beyond what it had before, MB", value=said["peak"] - said["before"], limit=200),
    ]


def prepare(order: dict[str, Any]) -> Callable[[], object]:
    graph = og.open(order["root"])
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
