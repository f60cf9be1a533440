"""What each operation asks of an object store: `python3 dev.py bench s3 [--quick] [--markdown FILE]`.

A real S3 server stands behind a proxy that counts requests by kind and holds each one back as long as it is told. Of
the requests `in turn` each began when the one before had been answered: these are the round trips that an operation
waits for. What it takes longer when every request takes 30 ms longer, by those 30 ms, is about the same number, plus
what a busy machine adds. Counts do not depend on the machine; durations do.

`warm` is a handle that has done the same before; `cold` is a process of its own that opens the graph and does it.
"""

import argparse
import json
import statistics
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
from rich import box
from rich.progress import Progress
from rich.table import Table
from tests.bench.kit import Verdict, answer, be_a_child, child, console, report, timed

import omnigraph as og
from omnigraph import failpoints
from omnigraph.engine.graph import Graph
from omnigraph.failpoints import Failpoint, FailpointError
from omnigraph.testing.s3_proxy import Request, S3Proxy
from omnigraph.testing.s3_server import SeaweedServer

TABLES = ("Ant", "Bee", "Cat")
SCHEMA = "\n".join(f"node {name} {{ name: String @key  value: I64? }}" for name in (*TABLES, "Plain", "Indexed"))
KINDS = ("LIST", "GET", "HEAD", "PUT", "PUT new", "DELETE")
"""`PUT new` is one that must not replace anything; `DELETE` is also the POST that removes many."""
LATENCY_SECONDS = 0.03
FEED_COMMITS = 10
TABLE_COMMITS = 10
"""How many commits write a row to the table that is read: a reader asks for each of its files."""
COLD_JOBS = ("open", "open read-only", "append", "upsert", "read", "look-up", "snapshot", "branch create", "diff")


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much is measured."""

    rows: int = 100_000
    history: tuple[int, int] = (10, 200)
    fast: int = 3
    slow: int = 2
    cold: int = 1


QUICK = Size(rows=10_000, history=(10, 40), fast=2, slow=1, cold=1)


@dataclass(slots=True)
class Figures:
    """What was seen of one operation: requests and seconds of each run without latency and with."""

    what: str
    runs: list[tuple[Request, ...]] = field(default_factory=list)
    fast: list[float] = field(default_factory=list)
    slow_runs: list[tuple[Request, ...]] = field(default_factory=list)
    slow: list[float] = field(default_factory=list)

    @property
    def kinds(self) -> dict[str, float]:
        """Requests by kind, the median of the runs."""
        each = [Counter(map(kind_of, run)) for run in self.runs]
        return {kind: statistics.median(counted[kind] for counted in each) for kind in KINDS}

    @property
    def requests(self) -> float:
        """All requests, the median of the runs."""
        return statistics.median(len(run) for run in self.runs)

    @property
    def in_sequence(self) -> float:
        """How many requests follow on one another's answers, the median of the slow runs."""
        return statistics.median(map(longest_sequence, self.slow_runs))

    @property
    def quotient(self) -> float:
        """How much longer it takes with latency, by the latency; of the fastest runs, which nobody disturbed."""
        return (min(self.slow) - min(self.fast)) / LATENCY_SECONDS

    def cells(self) -> list[str]:
        """Return a line of the table."""
        up = statistics.median(sum(request.bytes_up for request in run) for run in self.runs)
        down = statistics.median(sum(request.bytes_down for request in run) for run in self.runs)
        kinds = [f"{number:.0f}" if number else "" for number in self.kinds.values()]
        times = [f"{statistics.median(each) * 1e3:,.0f}" for each in (self.fast, self.slow)]
        sizes = [f"{size / 1e3:,.0f}" for size in (up, down)]
        trips = [f"{self.in_sequence:.0f}", f"{self.quotient:.1f}"]
        return [self.what, f"{self.requests:.0f}", *kinds, *sizes, *times, *trips]


COLUMNS = ("operation", "all", *KINDS, "kB up", "kB down", "ms", "ms at +30", "in turn", "+ms ÷ 30")


def kind_of(request: Request) -> str:
    """Name what a request asks for."""
    if "list-type" in request.query:
        return "LIST"
    if request.method in ("DELETE", "POST"):
        return "DELETE"
    return "PUT new" if request.method == "PUT" and request.is_conditional else request.method


def longest_sequence(requests: tuple[Request, ...]) -> int:
    """Return how many requests there are of which each began after the one before was answered."""
    length, free_from = 0, float("-inf")
    for request in sorted(requests, key=lambda request: request.ended):
        if request.begun >= free_from:
            length, free_from = length + 1, request.ended
    return length


@dataclass(slots=True)
class Store:
    """A real store, and a line to it that is watched and can be made slow."""

    server: SeaweedServer
    proxy: S3Proxy
    size: Size
    progress: Progress
    found: list[Figures] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=lambda: count(1))

    @property
    def options(self) -> dict[str, str]:
        """Options of the watched line."""
        return {**self.server.storage_options(), "aws_endpoint": self.proxy.endpoint}

    def root(self, name: str) -> str:
        return self.server.uri("bench", name)

    def made(self, name: str, commits: int) -> Graph:
        """Make a graph with some commits, few of them to the measured table; return it over the watched line."""
        graph = og.init(self.root(name), SCHEMA, storage_options=self.server.storage_options())
        for number in range(commits):
            append(graph, f"old-{number}", tables=("Ant",) if number < TABLE_COMMITS else ("Bee",))
        return og.open(self.root(name), storage_options=self.options)

    def measure(self, what: str, act: Callable[[Any], object], before: Callable[[], Any] = lambda: None) -> Figures:
        """Do something some times without latency and with; what happens before is not measured."""
        figures = Figures(what)
        act(before())  # what a handle does only once is not measured
        for latency, times in ((0.0, self.size.fast), (LATENCY_SECONDS, self.size.slow)):
            for _ in range(times):
                given = before()
                self.proxy.reset()
                self.proxy.latency_seconds = latency
                seconds = timed(partial(act, given))
                self.proxy.latency_seconds = 0.0
                self._note(figures, latency, seconds)
        return self._kept(figures)

    def measure_cold(self, job: str, root: str, what: str) -> Figures:
        """Let processes open the graph and do something, some without latency and some with."""
        figures = Figures(what)
        for latency in (0.0, LATENCY_SECONDS):
            for _ in range(self.size.cold):
                name = f"cold-{next(self.numbers)}"
                process = child(__file__, job=job, root=root, options=self.options, name=name)
                assert process.stdout is not None
                process.stdout.readline()
                self.proxy.reset()
                self.proxy.latency_seconds = latency
                seconds = answer(process)["seconds"]
                self.proxy.latency_seconds = 0.0
                self._note(figures, latency, seconds)
        return self._kept(figures)

    def _note(self, figures: Figures, latency: float, seconds: float) -> None:
        if latency:
            figures.slow.append(seconds)
            figures.slow_runs.append(self.proxy.requests)
        else:
            figures.fast.append(seconds)
            figures.runs.append(self.proxy.requests)

    def _kept(self, figures: Figures) -> Figures:
        self.found.append(figures)
        self.progress.console.print(" · ".join(figures.cells()), style="dim")
        return figures


# -- what is done -------------------------------------------------------------------------------------


def append(graph: Graph, name: str, *, branch: str = "main", tables: tuple[str, ...] = ("Ant",)) -> None:
    with graph.transaction(branch) as tx:
        for table in tables:
            tx.append(table, [{"name": name, "value": 1}])


def upsert(graph: Graph, value: int) -> None:
    with graph.transaction() as tx:
        tx.upsert("Ant", [{"name": "old-1", "value": value}])


def delete(graph: Graph, name: str) -> None:
    with graph.transaction() as tx:
        tx.delete("Ant", ids=[name])


def load(graph: Graph, rows: int) -> None:
    """Fill two tables alike, and index one."""
    names = pa.array([f"n{number:07}" for number in range(rows)])
    values = pa.array(np.random.default_rng(1).integers(0, 2**60, rows))
    with graph.transaction() as tx:
        for table in ("Plain", "Indexed"):
            tx.append(table, pa.table({"name": names, "value": values}))
    graph.ensure_indices(types=["Indexed"])


def read(graph: Graph, table: str, rows: int) -> None:
    assert graph.snapshot().read(table).num_rows == rows


def look_up(graph: Graph, table: str, number: int) -> None:
    assert graph.snapshot().entity(table, f"n{number:07}") is not None


def promise(graph: Graph, name: str) -> None:
    """Leave a commit behind that is promised and sealed, and not published."""
    failpoints._PLANS.update(failpoints.parse(f"{Failpoint.AFTER_SEALS}=raise"))
    with suppress(FailpointError):
        append(graph, name)
    failpoints._PLANS.clear()


def prepare(order: dict[str, Any]) -> Callable[[], object]:
    """Return what a child shall do; all is imported, and the graph is not open."""
    job, root, options = order["job"], order["root"], order["options"]
    acts: dict[str, Callable[[Graph], object]] = {
        "open": lambda graph: None,
        "open read-only": lambda graph: None,
        "append": lambda graph: append(graph, order["name"]),
        "upsert": lambda graph: upsert(graph, int(order["name"].rpartition("-")[2])),
        "read": lambda graph: graph.snapshot().read("Plain"),
        "look-up": lambda graph: look_up(graph, "Indexed", 4321),
        "snapshot": lambda graph: graph.snapshot(version=3),
        "branch create": lambda graph: graph.branches.create(order["name"]),
        "diff": lambda graph: graph.diff("main@3", "main@8").tables,
        "read small": lambda graph: graph.snapshot().read("Ant"),
    }
    import omnigraph.engine.opening  # noqa: F401 - importing it is not measured

    reads = job in ("open read-only", "read", "look-up", "snapshot", "diff", "read small")
    act = acts[job]

    def open_and_do() -> None:
        act(og.open(root, storage_options=options, read_only=reads))

    return open_and_do


# -- what is measured ---------------------------------------------------------------------------------


def writes(store: Store, graph: Graph) -> None:
    """Measure writes by a warm handle."""
    each = store.numbers
    store.measure(
        "init",
        lambda name: og.init(store.root(name), SCHEMA, storage_options=store.options),
        lambda: f"init-{next(each)}",
    )
    appends(store, graph, "append one row")
    store.measure("upsert one row", lambda value: upsert(graph, value), lambda: next(each))
    store.measure(
        "append a row to each of 3 tables",
        lambda name: append(graph, name, tables=TABLES),
        lambda: f"three-{next(each)}",
    )

    def doomed() -> str:
        name = f"doomed-{next(each)}"
        append(graph, name)
        return name

    store.measure("delete one row", lambda name: delete(graph, name), doomed)

    def promised() -> None:
        promise(graph, f"promised-{next(each)}")

    store.measure("recover a promised commit", lambda _: recovered(graph), promised)


def recovered(graph: Graph) -> None:
    assert len(graph.recover()) == 1, "there was nothing to recover"


def refs(store: Store, graph: Graph) -> None:
    """Measure branches, tags, differences and merges by a warm handle."""
    each = store.numbers

    def branch() -> str:
        return graph.branches.create(f"b-{next(each)}").name

    def ahead() -> str:
        name = branch()
        append(graph, f"on-{name}", branch=name)
        return name

    def apart() -> str:
        name = ahead()
        append(graph, f"beside-{name}")
        return name

    store.measure("open", lambda _: og.open(graph.root, storage_options=store.options))
    store.measure("snapshot by version", lambda version: graph.snapshot(version=version), lambda: 3)
    store.measure("branch create", lambda name: graph.branches.create(name), lambda: f"made-{next(each)}")
    store.measure("branch delete", lambda name: graph.branches.delete(name), branch)
    store.measure("tag", lambda name: graph.tags.create(name), lambda: f"tag-{next(each)}")
    store.measure("merge, fast-forward", lambda name: graph.branches.merge(name), ahead)
    store.measure("merge, three-way", lambda name: graph.branches.merge(name), apart)

    def ten_more() -> int:
        version = graph.refresh().version
        for _ in range(FEED_COMMITS):
            append(graph, f"fed-{next(each)}")
        return version

    store.measure("diff of 10 commits", lambda v: dict(graph.diff(f"main@{v}", "main").tables), ten_more)
    store.measure(
        "change feed of 10 commits", lambda v: graph.changes(since=v, until=v + 10).rows("Ant").read_all(), ten_more
    )


def upkeep(store: Store, graph: Graph) -> None:
    """Measure upkeep and a schema change by a warm handle."""
    each = store.numbers

    def grown() -> None:
        append(graph, f"more-{next(each)}")

    store.measure("ensure_indices, one new row", lambda _: graph.ensure_indices(types=["Ant"]), grown)
    store.measure("optimize, one new row", lambda _: graph.optimize(types=["Ant"]), grown)
    store.measure("cleanup, nothing to remove", lambda _: graph.cleanup(keep=1_000))
    store.measure("cleanup, all but 5 commits", lambda _: graph.cleanup(keep=5, grace="0s"), grown)
    added: list[str] = []

    def wider() -> str:
        added.append(f"extra{next(each)}: I64?")
        return SCHEMA.replace("node Cat { ", f"node Cat {{ {'  '.join(added)}  ")

    store.measure("schema apply, one new column", lambda text: graph.schema.apply(text), wider)


def large(store: Store, rows: int) -> None:
    """Measure reads of a table, and look-ups, by a warm handle."""
    graph = store.made("large", 10)
    load(graph, rows)
    each = count(7)
    store.measure(f"read {rows:,} rows", lambda _: read(graph, "Plain", rows))
    store.measure("look-up of a key, no index", lambda n: look_up(graph, "Plain", n * 97), lambda: next(each))
    store.measure("look-up of a key, index", lambda n: look_up(graph, "Indexed", n * 97), lambda: next(each))
    names = {"read": f"read {rows:,} rows", "look-up": "look-up of a key, index"}
    for job in COLD_JOBS:
        store.measure_cold(job, graph.root, f"cold: {names.get(job, job)}")


def histories(store: Store, sizes: tuple[int, int]) -> list[Verdict]:
    """Compare requests after few commits with those after many."""
    verdicts: list[Verdict] = []
    seen: dict[str, list[Figures]] = {}
    for commits in sizes:
        graph = store.made(f"history-{commits}", commits)
        for job in ("open", "append", "read small"):
            what = f"cold: {job.removesuffix(' small')}, after {commits} commits"
            seen.setdefault(f"cold {job}", []).append(store.measure_cold(job, graph.root, what))
        seen.setdefault("append", []).append(appends(store, graph, f"append, after {commits} commits"))
    for what, (few, many) in seen.items():
        said = f"requests of {what}, after {sizes[1]} commits ÷ after {sizes[0]}"
        verdicts.append(Verdict(what=said, value=many.requests / few.requests, limit=1.2))
    return verdicts


def appends(store: Store, graph: Graph, what: str) -> Figures:
    return store.measure(what, lambda name: append(graph, name), lambda: f"new-{next(store.numbers)}")


def show(found: list[Figures], markdown: Path | None) -> None:
    """Print a line per operation, and write the same as Markdown if told where."""
    table = Table(title="On S3", title_justify="left", box=box.SIMPLE, padding=(0, 0, 0, 1))
    for name in COLUMNS:
        table.add_column(name, justify="left" if name == "operation" else "right", no_wrap=True)
    for figures in found:
        table.add_row(*figures.cells())
    console.print(table)
    if markdown is not None:
        lines = [list(COLUMNS), ["---", *["---:"] * (len(COLUMNS) - 1)], *(figures.cells() for figures in found)]
        markdown.write_text("".join(f"| {' | '.join(cells)} |\n" for cells in lines), encoding="utf-8")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes and few runs")
    parser.add_argument("--markdown", type=Path, help="write the table into this file, too")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.child:
        be_a_child(prepare(json.loads(chosen.child)))
        return
    size = QUICK if chosen.quick else Size()
    with SeaweedServer() as server, S3Proxy(server.endpoint) as proxy, Progress(console=console) as progress:
        server.create_bucket("bench")
        store = Store(server, proxy, size, progress)
        graph = store.made("small", 10)
        writes(store, graph)
        refs(store, graph)
        upkeep(store, graph)
        large(store, size.rows)
        verdicts = histories(store, size.history)
    show(store.found, chosen.markdown)
    report(verdicts)
    console.print(f"runs per median {size.fast} and {size.slow}, cold {size.cold}; pylance {lance.__version__}")


if __name__ == "__main__":
    main()
