"""What the choices of the page about tuning change: `python3 dev.py bench tuning [--quick]`.

Each choice is measured beside its opposite, in turns, in one process and on one table, and printed as a ratio.
"""

import argparse
import statistics
import tempfile
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from tests.bench.kit import Verdict, console, report, timed

import omnigraph as og

SCHEMA = """
node Person { name: String @key  mail: String? @unique  age: I32? }
edge Knows: Person -> Person { since: I32? }
"""
ROWS, QUICK_ROWS = 1_000_000, 100_000
SMALL, COMMITS, SAMPLES = 100, 300, 5
NUMBERS = count(2)


def people(first: int, rows: int, age: int = 1) -> pa.Table:
    """Return people whose names are numbers."""
    names = [f"p{number:08}" for number in range(first, first + rows)]
    mails = [f"{name}@example.org" for name in names]
    return pa.table({"name": names, "mail": mails, "age": pa.array([age] * rows, pa.int32())})


def edges(among: int, rows: int) -> pa.Table:
    """Return edges between random people."""
    random = np.random.default_rng(1)
    ends: Any = [[f"p{number:08}" for number in random.integers(0, among, rows).tolist()] for _ in range(2)]
    return pa.table({"src": ends[0], "dst": ends[1]})


def median(act: Callable[[], object], samples: int = SAMPLES) -> float:
    """Return the median of a few runs, in milliseconds."""
    return statistics.median(timed(act) for _ in range(samples)) * 1_000


def write(graph: og.Graph, verb: str, type: str, rows: pa.Table, constraints: str = "fail") -> None:
    """Make one commit."""
    with graph.transaction(constraints=constraints) as tx:
        getattr(tx, verb)(type, rows)


def upsert_few(graph: og.Graph, rows: int) -> None:
    """Change a few rows somewhere in a large table."""
    age = next(NUMBERS)
    write(graph, "upsert", "Person", people((age * 997) % (rows - SMALL), SMALL, age))


def constraints_and_indexes(folder: Path, rows: int) -> list[Verdict]:
    """Measure a large table: checks on and off, and few rows written to it before and after it is indexed."""
    graph = og.init(folder / "large", SCHEMA)
    write(graph, "append", "Person", people(0, rows))
    many, few = edges(rows, rows // 5), edges(rows, SMALL)
    on = median(lambda: write(graph, "append", "Knows", many), 3)
    off = median(lambda: write(graph, "append", "Knows", many, "off"), 3)
    before = median(lambda: upsert_few(graph, rows)), median(lambda: write(graph, "append", "Knows", few))
    building = timed(graph.ensure_indices)
    after = median(lambda: upsert_few(graph, rows)), median(lambda: write(graph, "append", "Knows", few))
    console.print(f"append {len(many):,} edges: {on:.0f} ms, with constraints off {off:.0f} ms")
    console.print(f"index {rows:,} people and their edges: {building:.1f} s")
    console.print(f"upsert {SMALL} of {rows:,} people: {before[0]:.0f} ms, indexed {after[0]:.0f} ms")
    console.print(f"append {SMALL} edges: {before[1]:.0f} ms, indexed {after[1]:.0f} ms")
    return [
        Verdict(what="edges with checks ÷ without", value=on / off),
        Verdict(what="upsert of few rows, without an index ÷ with", value=before[0] / after[0]),
        Verdict(what="append of few edges, without an index ÷ with", value=before[1] / after[1]),
    ]


def one_after_the_other(graph: og.Graph) -> tuple[float, float]:
    """Make small commits; return the milliseconds of all, and how much longer the last ones took than the first."""
    parts = [people(n * SMALL, SMALL) for n in range(COMMITS)]
    each = [timed(partial(write, graph, "append", "Person", part)) * 1_000 for part in parts]
    first, last = statistics.median(each[1:21]), statistics.median(each[-20:])
    console.print(f"commits of {SMALL} rows: {first:.0f} ms at first, {last:.0f} ms after {COMMITS}")
    return sum(each), last / first


def small_commits(folder: Path) -> list[Verdict]:
    """Measure what many small commits cost, to write and to read, and what optimize makes of it."""
    graph = og.init(folder / "small", SCHEMA)
    rows = SMALL * COMMITS
    apart, growth = one_after_the_other(graph)
    _, plain = one_after_the_other(og.init(folder / "plain", SCHEMA.replace(" @unique", "")))
    together = timed(lambda: write(graph, "append", "Person", people(rows, rows))) * 1_000
    scattered = median(lambda: graph.snapshot().read("Person", columns=["age"]))
    graph.optimize()
    compact = median(lambda: graph.snapshot().read("Person", columns=["age"]))
    console.print(f"{rows:,} rows in {COMMITS} commits: {apart:.0f} ms, in one: {together:.0f} ms")
    console.print(f"read a column of {2 * rows:,} rows: {scattered:.1f} ms, after optimize {compact:.1f} ms")
    return [
        Verdict(what=f"{COMMITS} commits ÷ one of as many rows", value=apart / together),
        Verdict(what=f"the last of {COMMITS} commits ÷ the first, with a key and a unique text", value=growth),
        Verdict(what=f"the last of {COMMITS} commits ÷ the first, with a key alone", value=plain),
        Verdict(what="read before optimize ÷ after", value=scattered / compact),
    ]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        verdicts = constraints_and_indexes(Path(folder), QUICK_ROWS if chosen.quick else ROWS)
        verdicts += small_commits(Path(folder))
    report(verdicts)


if __name__ == "__main__":
    main()
