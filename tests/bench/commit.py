"""What a transaction costs beside bare Lance: `python3 dev.py bench commit [--quick]`.

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
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
from rich.progress import Progress
from tests.bench.kit import AS_IT_COMES, EVERY_CORE, Verdict, answer, be_a_child, child, console, peak, report, timed

import omnigraph as og
from omnigraph.engine.graph import Graph
from omnigraph.testing.commits import bare_commit
from omnigraph.testing.s3_proxy import Request, S3Proxy
from omnigraph.testing.s3_server import SeaweedServer

SCHEMA = "node Person { name: String @key  age: I32?  note: String? }\n" + "\n".join(
    f"node T{number} {{ name: String @key }}" for number in range(8)
)
PROCESSES = 8
S3_TRANSACTIONS = 20
ROWS_PER_BATCH = 100_000
EVERYWHERE = "bare-append, every core"
"""Lance's own, computing on as many cores as we let it; otherwise it is measured as it comes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much is measured."""

    history: tuple[int, int] = (10, 2_000)
    samples: int = 150
    transactions: int = 400
    rounds: int = 5
    large_rounds: int = 5
    append_rows: int = 1_000_000
    table_rows: int = 5_000_000
    upsert_rows: int = 100_000


QUICK = Size(
    history=(10, 100),
    samples=15,
    transactions=40,
    rounds=2,
    large_rounds=2,
    append_rows=100_000,
    table_rows=200_000,
    upsert_rows=5_000,
)


def people(numbers: range, age: int) -> pa.Table:
    """Return people with ids, ages and some text that hardly compresses."""
    names = [f"person-{number}" for number in numbers]
    notes = [f"{number * 2_654_435_761 % 2**61} is all there is to say" for number in numbers]
    return pa.table({"name": names, "age": pa.array([age] * len(numbers), pa.int32()), "note": notes})


def many_people(count: int) -> pa.Table:
    """Return people in batches, made a batch at a time to keep the maker's own memory out of the figures."""
    starts = range(0, count, ROWS_PER_BATCH)
    return pa.concat_tables([people(range(at, min(at + ROWS_PER_BATCH, count)), 1) for at in starts])


def stored(rows: pa.Table) -> pa.Table:
    """Return rows with the columns the graph stores: the id is the key."""
    return rows.add_column(0, "id", rows.column("name"))


def bare_dataset(uri: Path, rows: pa.Table) -> lance.LanceDataset:
    """Write a dataset as omnigraph would, without omnigraph."""
    return lance.write_dataset(rows, str(uri), data_storage_version="2.2", enable_stable_row_ids=True)


# -- one row ------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Depth:
    """A graph and a bare dataset with equally many single-row writes behind them, and more commits without rows."""

    name: str
    graph: Graph
    bare: Path
    number: int = 0
    transactions: list[float] = field(default_factory=list)
    appends: list[float] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        """Our median by Lance's."""
        return statistics.median(self.transactions) / statistics.median(self.appends)

    def transact(self) -> None:
        """Write one row as a transaction."""
        self.number += 1
        with self.graph.transaction() as tx:
            tx.append("Person", [{"name": f"n{self.number}", "age": 1, "note": "x"}])

    def append(self) -> None:
        """Write one row with Lance alone."""
        row = {"id": ["x"], "name": ["x"], "age": pa.array([1], pa.int32()), "note": ["x"]}
        lance.write_dataset(pa.table(row), str(self.bare), mode="append")


def deep(folder: Path, writes: int, commits: int, progress: Progress) -> Depth:
    """Make a graph of so many commits, of which so many wrote a row to the measured table."""
    name = f"{commits} commits, {writes} to the table"
    bare_dataset(folder / f"{name}.bare", stored(people(range(1), 1)))
    depth = Depth(name, og.init(folder / f"{name}.omni", SCHEMA), folder / f"{name}.bare")
    task = progress.add_task(name, total=commits)
    for number in range(commits):
        if number < commits - writes:
            bare_commit(depth.graph)
        else:
            depth.transact()
            depth.append()
        progress.advance(task)
    return depth


def single_rows(folder: Path, size: Size, progress: Progress) -> list[Verdict]:
    """Measure single-row transactions and appends after short and long histories, in turns."""
    few, many = size.history
    depths = [deep(folder, *shape, progress) for shape in ((few, few), (few, many), (many, many))]
    for _ in range(size.samples):
        for depth in depths:
            depth.transactions.append(timed(depth.transact) * 1e3)
            depth.appends.append(timed(depth.append) * 1e3)
    for depth in depths:
        tx, bare = sorted(depth.transactions), sorted(depth.appends)
        console.print(
            f"{depth.name}: transaction {statistics.median(tx):.2f} ms (p90 {tx[int(len(tx) * 0.9)]:.2f}), "
            f"bare append {statistics.median(bare):.2f} ms (p90 {bare[int(len(bare) * 0.9)]:.2f})"
        )
    verdicts = [Verdict(what=f"transaction ÷ bare append, {d.name}", value=d.ratio, limit=4) for d in depths]
    first = depths[0]
    # What grows with the number of fragments of one table grows for Lance too: there the ratio must not.
    history, table = depths[1:]
    grown = statistics.median(history.transactions) / statistics.median(first.transactions)
    verdicts.append(Verdict(what=f"transaction, {history.name} ÷ {first.name}", value=grown, limit=1.3))
    by_ratio = table.ratio / first.ratio
    verdicts.append(Verdict(what=f"transaction ÷ bare append, {table.name} ÷ {first.name}", value=by_ratio, limit=1.3))
    for what, ours in (("transaction", True), ("bare append", False)):
        late, early = (depth.transactions if ours else depth.appends for depth in (table, first))
        grown = statistics.median(late) / statistics.median(early)
        verdicts.append(Verdict(what=f"{what} alone, {table.name} ÷ {first.name}", value=grown, limit=None))
    return verdicts


# -- many processes -----------------------------------------------------------------------------------


SINGLE = "1 process"


def rate(root: str, tables: list[str], each: int) -> float:
    """Let one process per table write single rows; return transactions per second over all."""
    running = [child(__file__, job="write", root=root, table=table, times=each) for table in tables]
    for process in running:
        assert process.stdout is not None
        process.stdout.readline()
    begun = time.perf_counter()
    for process in running:
        assert process.stdin is not None
        print("go", file=process.stdin, flush=True)
    for process in running:
        assert process.stdout is not None
        assert process.stdout.readline(), "a child failed"
    seconds = time.perf_counter() - begun  # how long Python takes to end is not of interest
    for process in running:
        process.communicate()
    return each * len(tables) / seconds


def throughput(folder: Path, size: Size, progress: Progress) -> list[Verdict]:
    """Measure transactions per second of one process and of eight, in turns.

    Each rate of eight is compared with those of one right before and after, because the machine is not the same later.
    """
    setups = {
        SINGLE: ["T0"],
        f"{PROCESSES} processes, one table": ["T0"] * PROCESSES,
        f"{PROCESSES} processes, {PROCESSES} tables": [f"T{number}" for number in range(PROCESSES)],
    }
    rates: dict[str, list[float]] = {name: [] for name in setups}
    order = [*list(setups) * size.rounds, SINGLE]
    task = progress.add_task("many processes", total=len(order))
    for number, name in enumerate(order):
        tables = setups[name]
        graph = og.init(folder / f"rate-{number}.omni", SCHEMA)
        rates[name].append(rate(graph.root, tables, size.transactions // len(tables)))
        progress.advance(task)
    for name, found in rates.items():
        console.print(f"{name}: {statistics.median(found):.1f} transactions/s ({', '.join(f'{r:.1f}' for r in found)})")
    singles = [statistics.mean(two) for two in pairwise(rates.pop(SINGLE))]
    return [
        Verdict(
            what=f"transactions/s, {name} ÷ {SINGLE}",
            value=statistics.median(many / one for many, one in zip(found, singles, strict=True)),
            limit=1,
            least=True,
        )
        for name, found in rates.items()
    ]


# -- many rows ----------------------------------------------------------------------------------------


def large(folder: Path, size: Size, progress: Progress) -> list[Verdict]:
    """Measure large appends and upserts, ours and Lance's, in turns, each in a process of its own."""
    graph = og.init(folder / "large.omni", SCHEMA)
    bare = folder / "large.bare"
    task = progress.add_task("large writes", total=size.table_rows // ROWS_PER_BATCH + 5 * size.large_rounds)
    everything = many_people(size.table_rows)
    with graph.transaction() as tx:
        tx.append("Person", everything)
    bare_dataset(bare, stored(everything))
    del everything
    progress.advance(task, size.table_rows // ROWS_PER_BATCH)
    found: dict[str, list[dict[str, Any]]] = {}
    for number in range(size.large_rounds):
        for job in ("append", "bare-append", EVERYWHERE, "upsert", "bare-upsert"):
            place = folder / f"{job}-{number}"
            if job == "append":
                og.init(place, SCHEMA)
            elif "upsert" in job:
                shutil.copytree(graph.root if job == "upsert" else bare, place, copy_function=os.link)
            rows = size.append_rows if "append" in job else size.upsert_rows
            variables = EVERY_CORE if job == EVERYWHERE else AS_IT_COMES if "bare" in job else {}
            running = child(__file__, variables, job=job, root=str(place), rows=rows, there=size.table_rows)
            found.setdefault(job, []).append(answer(running))
            shutil.rmtree(place)
            progress.advance(task)
    seconds = {job: statistics.median(said["seconds"] for said in each) for job, each in found.items()}
    peaks = {job: statistics.median(said["peak"] - said["before"] for said in each) for job, each in found.items()}
    for job, each in found.items():
        rounds = ", ".join(format(said["seconds"], ".2f") for said in each)
        console.print(f"{job}: {seconds[job]:.2f} s ({rounds}), {peaks[job]:.0f} MB at most on top of its input")
    append = f"append of {size.append_rows:,} rows ÷ write_dataset"
    upsert = f"upsert of {size.upsert_rows:,} into {size.table_rows:,} rows ÷ merge_insert"
    return [
        Verdict(what=append, value=seconds["append"] / seconds["bare-append"], limit=1.2),
        Verdict(what=f"{append} on every core", value=seconds["append"] / seconds[EVERYWHERE]),
        Verdict(what=f"{append}, memory", value=peaks["append"] / peaks["bare-append"], limit=None),
        Verdict(what=upsert, value=seconds["upsert"] / seconds["bare-upsert"], limit=1.0),
        Verdict(what=f"{upsert}, memory", value=peaks["upsert"] / peaks["bare-upsert"], limit=None),
    ]


def prepare(order: dict[str, Any]) -> Callable[[], object]:
    """Return what a child shall do; nothing of it has been done, but all it needs is in memory."""
    root = order["root"]
    if order["job"] in ("bare-append", EVERYWHERE):
        whole = stored(many_people(order["rows"]))
        return lambda: bare_dataset(Path(root), whole)
    if order["job"] == "bare-upsert":
        given, dataset = stored(changes(order)), lance.dataset(root)
        merge = dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
        return lambda: merge.execute(given)
    graph = og.open(root)
    if order["job"] == "write":
        write_rows(graph, order["table"], 1)  # what a process does only once is not measured
        return lambda: write_rows(graph, order["table"], order["times"])
    rows = changes(order) if order["job"] == "upsert" else many_people(order["rows"])
    return lambda: write_at_once(graph, order["job"], rows)


def changes(order: dict[str, Any]) -> pa.Table:
    """Return an upsert's rows: half of them are new, half replace rows spread over the whole table."""
    half, there = order["rows"] // 2, order["there"]
    old, new = range(0, there // half * half, there // half), range(there, there + order["rows"] - half)
    return pa.concat_tables([people(old, 2), people(new, 2)]).combine_chunks()


def write_rows(graph: Graph, table: str, times: int) -> None:
    """Write rows one by one."""
    for number in range(times):
        with graph.transaction() as tx:
            tx.append(table, [{"name": f"{os.getpid()}-{times}-{number}"}])


def write_at_once(graph: Graph, verb: str, rows: pa.Table) -> None:
    """Write rows in one transaction."""
    with graph.transaction() as tx:
        getattr(tx, verb)("Person", rows)


# -- on the wire --------------------------------------------------------------------------------------


def requests() -> list[Verdict]:
    """Count what a single-row transaction asks of an object store."""
    with SeaweedServer() as server, S3Proxy(server.endpoint) as proxy:
        server.create_bucket("bench")
        options = {**server.storage_options(), "aws_endpoint": proxy.endpoint}
        graph = og.init(server.uri("bench", "g"), SCHEMA, storage_options=options)
        each: list[tuple[Request, ...]] = []
        for number in range(S3_TRANSACTIONS + 1):
            proxy.reset()
            with graph.transaction() as tx:
                tx.append("Person", [{"name": f"n{number}"}])
            each.append(proxy.requests)
    kinds = Counter(kind_of(request) for found in each[1:] for request in found)
    shown = ", ".join(f"{kind} {count / S3_TRANSACTIONS:.1f}" for kind, count in kinds.most_common())
    console.print(f"S3 requests of the first transaction {len(each[0])}; of each later one: {shown}")
    mean = statistics.mean(len(found) for found in each[1:])
    return [Verdict(what="S3 requests per single-row transaction, mean", value=mean, limit=None)]


def kind_of(request: Request) -> str:
    """Name what a request is about: the method and the folder."""
    folders = ("__recovery", "__manifest", "nodes")
    where = f"{request.path}?{request.query}"
    about = next((folder for folder in folders if folder in where), "other")
    part = next((f"/{part}" for part in ("_versions", "_transactions", "data", "_deletions") if part in where), "")
    return f"{'LIST' if 'list-type' in request.query else request.method} {about}{part}"


# -- all of it ----------------------------------------------------------------------------------------


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
            verdicts = single_rows(folder, size, progress)
            verdicts += throughput(folder, size, progress)
            verdicts += large(folder, size, progress)
        verdicts += requests()
    report(verdicts)
    console.print(f"peak memory {peak():.0f} MB; samples per median {size.samples}; pylance {lance.__version__}")


if __name__ == "__main__":
    main()
