"""What a publish costs, and that it stays flat: `python3 dev.py bench manifest [--commits N]`.

Everything is measured in one run and printed as ratios, because times on a shared machine mean little by
themselves. Object-store requests are counted on the wire, against a real S3-compatible server.
"""

import argparse
import random
import shutil
import statistics
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import lance
import pyarrow as pa
from rich.progress import Progress
from rich.table import Table
from tests.bench.kit import Verdict, console, peak, timed
from tests.bench.kit import report as report_limits

import omnigraph as og
from omnigraph.engine.graph import Graph
from omnigraph.storage.objects import open_objects
from omnigraph.storage.roots import GraphRoot
from omnigraph.testing.commits import bare_commit, pins_for, session_of
from omnigraph.testing.s3_proxy import S3Proxy
from omnigraph.testing.s3_server import SeaweedServer

DEPTHS = (20, 200, 1_000, 5_000)
SAMPLES = 60
S3_PUBLISHES = 40
BUCKET = "bench"
SCHEMA = "node Person { name: String @key }\nedge Knows: Person -> Person"

Times = dict[str, list[float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Depth:
    """One graph, grown to a number of commits, and what was measured on it."""

    commits: int
    graph: Graph
    ids: list[str]
    times: Times
    requests_open: int
    requests_open_and_read: int
    requests_publish: list[int]

    def median(self, what: str) -> float:
        """Return the median of one measure in milliseconds."""
        return statistics.median(self.times[what])


def bare_append(folder: Path) -> Callable[[], object]:
    """Return what everything is compared with: one row appended to a Lance dataset of its own."""
    row = pa.table({"id": ["x"], "body": ["y" * 600]})
    uri = str(folder / "bare")
    lance.write_dataset(row, uri)
    return lambda: lance.write_dataset(row, uri, mode="append")


def at_depth(source: Graph, folder: Path, s3: "Wire") -> Depth:
    """Copy the graph as it is now, stale files and all, and count its requests on S3."""
    ids: list[str] = [commit.id for commit in source.log(limit=None)]
    root = folder / f"depth-{len(ids)}.omni"
    shutil.copytree(source.root, root)
    to_open, to_read, per_publish = s3.count(source)
    return Depth(
        commits=len(ids),
        graph=og.open(root),
        ids=ids,
        times={"publish": [], "head": [], "any": []},
        requests_open=to_open,
        requests_open_and_read=to_read,
        requests_publish=per_publish,
    )


def measure(depths: list[Depth], folder: Path, progress: Progress) -> list[float]:
    """Measure all depths in turn, round after round, so that the machine's moods fall on all alike."""
    append = bare_append(folder)
    appends: list[float] = []
    task = progress.add_task("measuring", total=SAMPLES)
    for _ in range(SAMPLES):
        appends.append(timed(append) * 1e3)
        for depth in depths:
            root, graph = depth.graph.root, depth.graph
            wanted = random.choice(depth.ids)
            depth.times["publish"].append(timed(lambda: bare_commit(graph)) * 1e3)  # noqa: B023 - called at once
            depth.times["head"].append(timed(lambda: og.open(root, read_only=True).snapshot()) * 1e3)  # noqa: B023
            depth.times["any"].append(
                timed(lambda: og.open(root, read_only=True).snapshot(commit=wanted)) * 1e3  # noqa: B023
            )
        progress.advance(task)
    return appends


@dataclass(frozen=True, slots=True)
class Wire:
    """A real S3 server behind a counting proxy."""

    server: SeaweedServer
    proxy: S3Proxy

    def count(self, graph: Graph) -> tuple[int, int, list[int]]:
        """Copy the graph to S3 and count the requests of an open, of a read, and of publishes."""
        root = self.server.uri(BUCKET, f"copy-{random.random()}")
        self._copy(graph, root)
        options = {**self.server.storage_options(), "aws_endpoint": self.proxy.endpoint}
        self.proxy.reset()
        opened = og.open(root, storage_options=options)
        to_open = len(self.proxy.requests)
        opened.snapshot().count("Person")
        to_read = len(self.proxy.requests)
        per_publish: list[int] = []
        for _ in range(S3_PUBLISHES):
            self.proxy.reset()
            bare_commit(opened)
            per_publish.append(len(self.proxy.requests))
        return to_open, to_read, per_publish

    def _copy(self, graph: Graph, root: str) -> None:
        source = open_objects(GraphRoot.parse(graph.root))
        target = open_objects(GraphRoot.parse(root, self.server.storage_options()))
        named = session_of(graph).manifest.read().at.files
        for info in source.list("__manifest"):
            if "/data/" not in info.key or info.key.rsplit("/", 1)[1] in named:
                target.put(info.key, source.get(info.key))


@contextmanager
def wire() -> Iterator[Wire]:
    """Start the server and the proxy."""
    with SeaweedServer() as server, S3Proxy(server.endpoint) as proxy:
        server.create_bucket(BUCKET)
        yield Wire(server, proxy)


def branch_times(folder: Path) -> dict[int, tuple[float, float]]:
    """Measure creating and deleting branches of graphs with 5 and with 200 tables, taking turns."""
    graphs = {count: graph_with_tables(folder, count) for count in (5, 200)}
    created: dict[int, list[float]] = {count: [] for count in graphs}
    deleted: dict[int, list[float]] = {count: [] for count in graphs}
    for number in range(SAMPLES):
        for count, graph in graphs.items():
            name = f"b{number}"
            created[count].append(timed(lambda: graph.branches.create(name)) * 1e3)  # noqa: B023 - called at once
            deleted[count].append(timed(lambda: graph.branches.delete(name)) * 1e3)  # noqa: B023
    return {count: (statistics.median(created[count]), statistics.median(deleted[count])) for count in graphs}


def graph_with_tables(folder: Path, count: int) -> Graph:
    """Make a graph with a row in each of ``count`` tables."""
    schema = "\n".join(f"node T{number} {{ name: String @key }}" for number in range(count))
    graph = og.init(folder / f"tables-{count}.omni", schema)
    with graph.transaction() as tx:
        for number in range(count):
            tx.append(f"T{number}", [{"name": "x"}])
    return graph


def deepen(graph: Graph, commits: int, progress: Progress) -> None:
    """Publish until the branch has this many commits."""
    version = graph.refresh().version
    task = progress.add_task(f"publishing to {commits} commits", total=commits - version)
    while version < commits:
        version = bare_commit(graph).version
        progress.advance(task)


def size_of(graph: Graph) -> tuple[int, int]:
    """Return files and bytes under `__manifest`."""
    found = list(open_objects(GraphRoot.parse(graph.root)).list("__manifest"))
    return len(found), sum(info.size for info in found)


def report(depths: list[Depth], appends: list[float], branches: dict[int, tuple[float, float]]) -> None:
    """Print the figures and how they stand to their limits."""
    append = statistics.median(appends)
    table = Table(title=f"Manifest: medians in ms; bare Lance append {append:.2f} ms", title_justify="left")
    names = ("commits", "files", "publish", "p90", "worst", "÷ bare append", "open+head", "open+any commit")
    for name in (*names, "S3: open", "open+read", "publish mean", "most"):
        table.add_column(name, justify="right")
    for d in depths:
        publishes = sorted(d.times["publish"])
        p90, worst = publishes[int(len(publishes) * 0.9)], publishes[-1]
        times = (d.median("publish"), p90, worst, d.median("publish") / append, d.median("head"), d.median("any"))
        files = len(session_of(d.graph).manifest.read().at.files)
        mean = statistics.mean(d.requests_publish)
        requests = (f"{d.requests_open}", f"{d.requests_open_and_read}", f"{mean:.1f}", f"{max(d.requests_publish)}")
        table.add_row(f"{d.commits}", f"{files}", *(f"{value:.2f}" for value in times), *requests)
    console.print(table)
    first, last = depths[0], depths[-1]
    few, many = branches[5], branches[200]
    verdicts = [
        Verdict(
            what="publish, deepest ÷ shallowest", value=last.median("publish") / first.median("publish"), limit=1.5
        ),
        Verdict(
            what="open and read the head, deepest ÷ shallowest",
            value=last.median("head") / first.median("head"),
            limit=1.5,
        ),
        Verdict(
            what="open and read any commit, deepest ÷ shallowest",
            value=last.median("any") / first.median("any"),
            limit=1.5,
        ),
        Verdict(
            what="publish ÷ bare Lance append, worst depth",
            value=max(d.median("publish") for d in depths) / append,
            limit=3.0,
        ),
        Verdict(what="branch create, 200 tables ÷ 5", value=many[0] / few[0], limit=1.5),
        Verdict(what="branch delete, 200 tables ÷ 5", value=many[1] / few[1], limit=1.5),
        Verdict(
            what="S3 requests per publish, mean, worst depth",
            value=max(statistics.mean(d.requests_publish) for d in depths),
            limit=10,
        ),
        Verdict(what="S3 requests per open, worst depth", value=max(d.requests_open for d in depths), limit=4),
    ]
    report_limits(verdicts)
    console.print(
        f"branch create/delete: 5 tables {few[0]:.2f}/{few[1]:.2f} ms, 200 tables {many[0]:.2f}/{many[1]:.2f}"
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--commits", type=int, default=DEPTHS[-1], help="the deepest history to measure")
    deepest = parser.parse_args().commits
    with tempfile.TemporaryDirectory(prefix="omnigraph-bench-") as name, wire() as s3:
        folder = Path(name)
        graph = og.init(folder / "g.omni", SCHEMA)
        bare_commit(graph, pins=pins_for(graph, 5))
        depths: list[Depth] = []
        with Progress(console=console, transient=True) as progress:
            for commits in [d for d in DEPTHS if d < deepest] + [deepest]:
                deepen(graph, commits, progress)
                depths.append(at_depth(graph, folder, s3))
            appends = measure(depths, folder, progress)
        report(depths, appends, branch_times(folder))
        before = size_of(graph)
        swept = session_of(graph).manifest.cleanup(timedelta(0))
        after = size_of(graph)
        console.print(
            f"under __manifest after {graph.refresh().version} commits: {before[0]} files, {before[1]:,} bytes"
        )
        console.print(f"after cleanup: {after[0]} files, {after[1]:,} bytes (removed {swept.files} files)")
        console.print(f"peak memory {peak():.0f} MB; samples per median {SAMPLES}; pylance {lance.__version__}")


if __name__ == "__main__":
    main()
