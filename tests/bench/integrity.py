"""What constraints cost: `python3 dev.py bench integrity [--quick] [--load-mb N]`.

Everything is measured in one run, in turns, and printed as ratios, because times on a shared machine
mean little by themselves. Large writes run in processes of their own, so that peak memory is theirs alone.
"""

import argparse
import json
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import duckdb
import lance
import pyarrow as pa
import pyarrow.compute as pc
from rich.progress import Progress
from tests.bench.kit import Verdict, answer, be_a_child, child, console, report

import omnigraph as og
from omnigraph.engine.graph import Graph

SCHEMA = """
node Person { name: String @key  note: String? }
edge Knows: Person -> Person { @key(src, dst) }
edge Likes: Person -> Person
edge Cites: Person -> Person
edge Follows: Person -> Person @card(0..1)
"""
EDGES = {
    "Knows": "ends and a key",
    "Likes": "ends, new ids",
    "Cites": "ends, given ids",
    "Follows": "ends and @card(0..1)",
}
LIMITED = ("Knows", "Likes")
# Making ids takes most of a write without constraints. With given ids nothing hides what the checks cost: this is shown
# to be watched, and has no limit, because reading five million ids takes as long as writing a million edges.
WITH_IDS = "Cites"
MODES = ("fail", "off")
ROWS_PER_BATCH = 100_000
# Multiples of a prime, by a count of nodes that it does not divide: every node once before any comes again.
STEPS = {"src": 7_919, "dst": 104_729}
compute: Any = pc


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much is measured."""

    nodes: tuple[int, int] = (1_000_000, 5_000_000)
    edges_there: int = 1_000_000
    edges: int = 1_000_000
    few_edges: int = 1_000
    rounds: int = 3
    samples: int = 9
    load_mb: int = 1_000


QUICK = Size(
    nodes=(100_000, 500_000), edges_there=100_000, edges=100_000, few_edges=1_000, rounds=2, samples=3, load_mb=40
)


# -- rows ---------------------------------------------------------------------------------------------


def names(numbers: Any) -> Any:
    """Return the names of people."""
    return compute.binary_join_element_wise("person-", compute.cast(pa.array(numbers), pa.string()), "")


def batches(first: int, count: int) -> Iterator[range]:
    """Yield numbers in batches."""
    for start in range(first, first + count, ROWS_PER_BATCH):
        yield range(start, min(start + ROWS_PER_BATCH, first + count))


def people(count: int) -> pa.RecordBatchReader:
    """Stream people, with some text that hardly compresses."""
    schema = pa.schema([("name", pa.string()), ("note", pa.string())])
    made = (
        pa.RecordBatch.from_arrays(
            [names(part), pa.array([f"{n * 2_654_435_761 % 2**61} is all there is to say" for n in part])],
            schema=schema,
        )
        for part in batches(0, count)
    )
    return pa.RecordBatchReader.from_batches(schema, made)


def edges(kind: str, first: int, count: int, nodes: int) -> pa.Table:
    """Return edges between people anywhere in the graph; no two of the first ``nodes`` begin at one."""
    parts = []
    for part in batches(first, count):
        ends = {end: names([n * step % nodes for n in part]) for end, step in STEPS.items()}
        ids = {"id": pa.array([f"{kind}-{n:020}" for n in part])} if kind == WITH_IDS else {}
        parts.append(pa.table({**ids, **ends}))
    return pa.concat_tables(parts)


def write_json(file: Path, megabytes: int) -> int:
    """Write people and edges between them, mixed, of so many megabytes; return how many records they are."""
    number = written = 0
    with file.open("w") as out:
        while written < megabytes * 1_000_000:
            lines = []
            for n in range(number, number + 10_000):
                text = f"{n * 2_654_435_761 % 2**61} is all there is to say about {n}; " * 3
                person = f'{{"type": "Person", "data": {{"name": "person-{n}", "note": "{text}"}}}}\n'
                edge = f'{{"edge": "Likes", "from": "person-{n}", "to": "person-{n * 7_919 % (n + 1)}"}}\n'
                lines.append(person + edge)
            written += out.write("".join(lines))
            number += 10_000
    return 2 * number


# -- children -----------------------------------------------------------------------------------------


def prepare(order: dict[str, Any]) -> Callable[[], int]:
    """Return what a child shall do; nothing of it has been done, but all it needs is in memory."""
    graph = og.open(order["root"])
    if order["job"] == "load":
        return lambda: sum(graph.load(order["file"]).rows.values())
    rows = edges(order["edge"], order["first"], order["rows"], order["nodes"])
    return lambda: append(graph, order["edge"], rows, order["constraints"])


def append(graph: Graph, edge: str, rows: pa.Table, constraints: str) -> int:
    """Append edges in one transaction; return how many the graph has then."""
    with graph.transaction(constraints=constraints) as tx:
        tx.append(edge, rows)
    return graph.snapshot().count(edge)


# -- graphs -------------------------------------------------------------------------------------------


def populated(folder: Path, nodes: int) -> Graph:
    """Make a graph with so many nodes and no edges."""
    graph = og.init(folder / f"{nodes}.omni", SCHEMA)
    with graph.transaction(constraints="off") as tx:
        tx.append("Person", people(nodes))
    return graph


def copied(graph: Graph, place: Path) -> Graph:
    """Return a graph of its own with the same files."""
    shutil.copytree(graph.root, place, copy_function=os.link)
    return og.open(place)


# -- many edges ---------------------------------------------------------------------------------------


def large(folder: Path, graph: Graph, size: Size, progress: Progress) -> list[Verdict]:
    """Measure large appends of edges with constraints and without, in turns, each in a process of its own."""
    nodes = size.nodes[1]
    task = progress.add_task("many edges", total=len(EDGES) * (1 + len(MODES) * size.rounds))
    start = copied(graph, folder / "start")
    for edge in EDGES:
        append(start, edge, edges(edge, 0, size.edges_there, nodes), "off")
        progress.advance(task)
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for number in range(size.rounds):
        for edge in EDGES:
            for mode in MODES if number % 2 else reversed(MODES):
                place = folder / f"{edge}-{mode}-{number}"
                copied(start, place)
                order: dict[str, Any] = {"edge": edge, "constraints": mode, "first": size.edges_there}
                running = child(__file__, job="append", root=str(place), nodes=nodes, rows=size.edges, **order)
                said = answer(running)
                assert said["rows"] == size.edges_there + size.edges
                found.setdefault((edge, mode), []).append(said)
                shutil.rmtree(place)
                progress.advance(task)
    shutil.rmtree(folder / "start")
    verdicts: list[Verdict] = []
    for edge, meaning in EDGES.items():
        what = f"append of {size.edges:,} edges to {nodes:,} nodes and {size.edges_there:,} edges, {meaning}"
        medians = [middle(found[edge, mode], f"{what}, constraints={mode!r}") for mode in MODES]
        (seconds, memory), (seconds_off, memory_off) = medians
        limit = 2 if edge in LIMITED else None
        verdicts.append(Verdict(what=f"{what}: time, checked ÷ off", value=seconds / seconds_off, limit=limit))
        verdicts.append(Verdict(what=f"{what}: memory, checked ÷ off", value=memory / memory_off, limit=limit))
    return verdicts


def middle(found: list[dict[str, Any]], what: str) -> tuple[float, float]:
    """Print what children said; return the median of their times and of their peaks on top of their input."""
    seconds = statistics.median(said["seconds"] for said in found)
    memory = statistics.median(said["peak"] - said["before"] for said in found)
    highest = max(said["peak"] for said in found)
    rounds = ", ".join(format(said["seconds"], ".2f") for said in found)
    console.print(
        f"{what}: {seconds:.2f} s ({rounds}), {found[0]['rows']:,} rows then, "
        f"{memory:.0f} MB at most on top of its input, {highest:.0f} MB in all"
    )
    return seconds, memory


# -- few edges ----------------------------------------------------------------------------------------


SETUPS = {"indexed": "fail", "not indexed": "fail", "off": "off"}
"""How small appends are measured: whether ids are indexed, or constraints off."""


def small(folder: Path, graphs: dict[int, Graph], size: Size, progress: Progress) -> list[Verdict]:
    """Measure small appends of edges to a small and a large graph, in turns."""
    task = progress.add_task("few edges", total=size.samples * len(graphs) * len(SETUPS))
    places = {
        (nodes, setup): copied(graph, folder / f"few-{nodes}-{setup}")
        for nodes, graph in graphs.items()
        for setup in SETUPS
    }
    for (nodes, setup), graph in places.items():
        if setup == "indexed":
            begun = time.perf_counter()
            graph.ensure_indices()
            console.print(f"index of {nodes:,} ids: {time.perf_counter() - begun:.2f} s")
    found: dict[tuple[int, str], list[float]] = {key: [] for key in places}
    for number in range(-1, size.samples):
        for (nodes, setup), graph in places.items():
            rows = edges("Likes", (number + 1) * size.few_edges, size.few_edges, nodes)
            begun = time.perf_counter()
            append(graph, "Likes", rows, SETUPS[setup])
            if number >= 0:  # what a process does only once is not measured
                found[nodes, setup].append((time.perf_counter() - begun) * 1e3)
                progress.advance(task)
    medians = {key: statistics.median(times) for key, times in found.items()}
    for (nodes, setup), milliseconds in medians.items():
        console.print(
            f"append of {size.few_edges:,} edges to {nodes:,} nodes, {setup}: {milliseconds:.1f} ms, "
            f"{places[nodes, setup].snapshot().count('Likes'):,} rows then"
        )
    few, many = size.nodes
    what = f"append of {size.few_edges:,} edges: time, {many:,} ÷ {few:,} nodes"
    return [
        Verdict(
            what=f"{what}, {setup}",
            value=medians[many, setup] / medians[few, setup],
            limit=1.3 if setup == "indexed" else None,
        )
        for setup in SETUPS
    ]


# -- files --------------------------------------------------------------------------------------------


def loads(folder: Path, size: Size, progress: Progress) -> list[Verdict]:
    """Measure loads of a file and of one a quarter as large, each in a process of its own."""
    sizes = (size.load_mb // 4, size.load_mb)
    task = progress.add_task("load", total=2 * len(sizes))
    found: list[dict[str, Any]] = []
    for megabytes in sizes:
        file = folder / f"{megabytes}.jsonl"
        records = write_json(file, megabytes)
        progress.advance(task)
        place = folder / f"load-{megabytes}.omni"
        og.init(place, SCHEMA)
        said = answer(child(__file__, job="load", root=str(place), file=str(file)))
        assert said["rows"] == records
        found.append(said)
        there = file.stat().st_size / 1e6
        console.print(
            f"load of {there:,.0f} MB of JSON, {records:,} records: {said['seconds']:.1f} s, "
            f"{there / said['seconds']:.1f} MB/s, peak {said['peak']:.0f} MB, {said['before']:.0f} MB before"
        )
        file.unlink()
        shutil.rmtree(place)
        progress.advance(task)
    few, many = found
    growth = (many["peak"] - few["peak"]) * 2**20 / (many["rows"] - few["rows"])
    return [
        Verdict(what=f"load: peak memory, {sizes[1]:,} ÷ {sizes[0]:,} MB of JSON", value=many["peak"] / few["peak"]),
        Verdict(what="load: bytes of peak memory for each further record (8 are its fingerprint)", value=growth),
    ]


# -- all of it ----------------------------------------------------------------------------------------


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes: minutes become seconds, and figures rough")
    parser.add_argument("--load-mb", type=int, help="size of the file to load, in megabytes")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.child:
        be_a_child(prepare(json.loads(chosen.child)))
        return
    size = QUICK if chosen.quick else Size()
    if chosen.load_mb:
        size = replace(size, load_mb=chosen.load_mb)
    with tempfile.TemporaryDirectory(prefix="omnigraph-bench-") as name:
        folder = Path(name)
        with Progress(console=console, transient=True) as progress:
            graphs = {nodes: populated(folder, nodes) for nodes in size.nodes}
            verdicts = large(folder, graphs[size.nodes[1]], size, progress)
            verdicts += small(folder, graphs, size, progress)
            verdicts += loads(folder, size, progress)
    report(verdicts)
    console.print(
        f"rounds {size.rounds}, samples of few edges {size.samples}; "
        f"pylance {lance.__version__}, duckdb {duckdb.__version__}"
    )


if __name__ == "__main__":
    main()
