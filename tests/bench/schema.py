"""What schema changes cost: `python3 dev.py bench schema [--quick]`.

The same change is applied to a small and to a large table, in turns, and printed as a ratio: what touches no row must
not know how many there are. Beside them stands what does touch rows, so that one sees the difference.
"""

import argparse
import statistics
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
from rich.progress import Progress
from tests.bench.kit import Verdict, console, report, timed

import omnigraph as og
from omnigraph.engine.graph import Graph

ROWS_PER_BATCH = 100_000
RATIO_MAX = 1.3
NUMBERS = count(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much is measured."""

    rows: tuple[int, int] = (5_000, 5_000_000)
    samples: int = 40


QUICK = Size(rows=(5_000, 200_000), samples=10)


def schema(*properties: str) -> str:
    """Return the schema of the table with these properties."""
    return "node Person { name: String @key  " + "  ".join(properties) + " }"


def stream(rows: int) -> pa.RecordBatchReader:
    """Stream people, made a batch at a time."""

    def batches() -> Iterator[pa.RecordBatch]:
        for start in range(0, rows, ROWS_PER_BATCH):
            numbers = np.arange(start, min(start + ROWS_PER_BATCH, rows))
            names = [f"person-{number}" for number in numbers.tolist()]
            yield pa.RecordBatch.from_pydict({"name": names, "age": pa.array(numbers % 90, pa.int32())})

    fields: list[Any] = [pa.field("name", pa.string()), pa.field("age", pa.int32())]
    shape = pa.schema(fields)
    return pa.RecordBatchReader.from_batches(shape, (batch.cast(shape) for batch in batches()))


def populated(folder: Path, rows: int) -> Graph:
    """Make a graph with one table of so many rows."""
    graph = og.init(folder / f"{rows}.omni", schema("age: I32?"))
    with graph.transaction() as tx:
        tx.append("Person", stream(rows))
    return graph


class Changes:
    """One graph whose schema is changed again and again; every change is new to it."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._name = "age"

    def rename(self) -> None:
        """Rename the one property there is."""
        old, self._name = self._name, f"age{next(NUMBERS)}"
        self._graph.schema.apply(schema(f'{self._name}: I32? @rename_from("{old}")'))

    def add(self) -> None:
        """Add a nullable property."""
        self._graph.schema.apply(schema(f"{self._name}: I32?", "note: String?"))

    def drop(self) -> None:
        """Drop it again, softly."""
        self._graph.schema.apply(schema(f"{self._name}: I32?"))

    def fill(self) -> None:
        """Add a property with a value for every row."""
        self._graph.schema.apply(schema(f"{self._name}: I32?", 'land: String @backfill("IT")'))


def compared(graphs: tuple[Graph, Graph], size: Size, progress: Progress) -> list[Verdict]:
    """Apply the same changes to both graphs in turns, and compare medians."""
    both = [Changes(graph) for graph in graphs]
    kinds: dict[str, Callable[[Changes], None]] = {
        "rename a property": Changes.rename,
        "add a nullable property": Changes.add,
        "drop a property": Changes.drop,
    }
    spent: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in kinds}
    task = progress.add_task("changes", total=size.samples)
    for _ in range(size.samples):
        for name, act in kinds.items():
            for number, changes in enumerate(both):
                spent[name][number].append(timed(lambda act=act, changes=changes: act(changes)) * 1e3)  # type: ignore[misc]
        progress.advance(task)
    verdicts = []
    for name, (small, large) in spent.items():
        console.print(f"{name}: {statistics.median(small):.1f} ms and {statistics.median(large):.1f} ms")
        ratio = statistics.median(large) / statistics.median(small)
        verdicts.append(Verdict(what=f"{name}, large ÷ small table", value=ratio, limit=RATIO_MAX))
    filled = [timed(changes.fill) for changes in both]
    console.print(f"add a property with values: {filled[0] * 1e3:.1f} ms and {filled[1] * 1e3:.1f} ms")
    return verdicts


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes: minutes become seconds, and figures rough")
    size = QUICK if parser.parse_args().quick else Size()
    with tempfile.TemporaryDirectory(prefix="omnigraph-bench-") as name, Progress(console=console) as progress:
        small, large = (populated(Path(name), rows) for rows in size.rows)
        verdicts = compared((small, large), size, progress)
    report(verdicts)
    console.print(f"samples {size.samples}; {size.rows[0]:,} and {size.rows[1]:,} rows; pylance {lance.__version__}")


if __name__ == "__main__":
    main()
