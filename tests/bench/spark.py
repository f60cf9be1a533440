"""What Spark pays for reading and writing graphs: `python3 dev.py bench spark [--quick]`.

Everything is measured in one session, in turns with Parquet, and printed as ratios, because times on a shared machine
mean little by themselves.
"""

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from tests.bench.kit import Verdict, console, report, timed

import omnigraph as og
from pyspark_omnigraph import SparkGraph, configure

NARROW = """
node Person {
  name: String @key  age: I32  score: F64  born: Date  active: Bool  visits: I64  city: String  note: String
}
"""
WIDE = "node Wide { name: String @key " + " ".join(f"c{n}: I64" for n in range(49)) + " }"
CATALOG = "bench"
WARM_UP = 3
"""Rounds that do not count: until then Java still compiles what it runs, most of it of whoever goes through Python."""
POINT_IDS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much is measured."""

    narrow: int = 5_000_000
    wide: int = 1_000_000
    upsert_table: int = 10_000_000
    rounds: int = 5
    writes: int = 9  # of Parquet too, some take a quarter longer than others
    reads: int = 15  # some take a fifth of a second, and the median of five such is not the same twice
    fixed: int = 15
    appends: int = 200


QUICK = Size(narrow=200_000, wide=50_000, upsert_table=400_000, rounds=2, writes=2, reads=3, fixed=5, appends=40)


@dataclass(slots=True)
class Memory:
    """The most memory that Spark's Python processes took, each for itself, sampled while it runs."""

    peak: float = 0.0
    _stop: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> "Memory":
        threading.Thread(target=self._watch, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()

    def _watch(self) -> None:
        while not self._stop.wait(0.2):
            for process in Path("/proc").glob("[0-9]*"):
                try:
                    if b"pyspark.daemon" in (process / "cmdline").read_bytes():
                        lines = (process / "status").read_text().splitlines()
                        here = next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) / 1024
                        self.peak = max(self.peak, here)
                except (OSError, StopIteration):
                    continue


# -- rows ---------------------------------------------------------------------------------------------


def narrow(spark: SparkSession, rows: int, first: int = 0) -> DataFrame:
    """Return people, eight columns of all kinds."""
    number = f.col("id")
    return spark.range(first, first + rows, numPartitions=4).select(
        f.concat(f.lit("person-"), number.cast("string")).alias("name"),
        (number % 90).cast("int").alias("age"),
        (number / 7).alias("score"),
        f.date_add(f.lit("1990-01-01").cast("date"), (number % 9_000).cast("int")).alias("born"),
        (number % 2 == 0).alias("active"),
        (number * 3).alias("visits"),
        f.concat(f.lit("city "), (number % 1_000).cast("string")).alias("city"),
        f.md5(number.cast("string")).alias("note"),
    )


def wide(spark: SparkSession, rows: int) -> DataFrame:
    """Return rows of fifty columns."""
    number = f.col("id")
    columns = [((number * (n + 1)) % 1_000_003).alias(f"c{n}") for n in range(49)]
    name = f.concat(f.lit("row-"), number.cast("string")).alias("name")
    return spark.range(0, rows, numPartitions=4).select(name, *columns)


def consumed(rows: DataFrame) -> None:
    """Read everything and keep nothing."""
    rows.write.format("noop").mode("overwrite").save()


# -- measuring ----------------------------------------------------------------------------------------


def tidy(spark: SparkSession) -> None:
    """Let nobody pay for what others left: garbage is collected, and what was written goes to the disk."""
    getattr(spark, "_jvm").System.gc()  # noqa: B009  (for want of another way to ask for it)
    os.sync()


def in_turns(spark: SparkSession, acts: dict[str, Callable[[], object]], rounds: int, what: str) -> dict[str, float]:
    """Return the median seconds of each, measured in turns after some rounds that do not count.

    Every round begins with another one, and everyone begins on a tidy machine.
    """
    found: dict[str, list[float]] = {name: [] for name in acts}
    names = list(acts)
    for number in range(rounds + WARM_UP):
        first = number % len(names)
        for name in (*names[first:], *names[:first]):
            tidy(spark)
            seconds = timed(acts[name])
            if number >= WARM_UP:
                found[name].append(seconds)
    medians = {name: statistics.median(times) for name, times in found.items()}
    shown = "; ".join(f"{n} {medians[n]:.2f} s ({', '.join(f'{t:.2f}' for t in ts)})" for n, ts in found.items())
    console.print(f"{what}: {shown}")
    return medians


@dataclass(slots=True)
class Bench:
    """One session, one folder, and graphs in it."""

    spark: SparkSession
    folder: Path
    size: Size
    number: int = 0
    verdicts: list[Verdict] = field(default_factory=list)

    def say(self, what: str, value: float, limit: float | None = None) -> None:
        self.verdicts.append(Verdict(what=what, value=value, limit=limit))

    def fresh(self, schema: str) -> str:
        """Make a graph; return its root."""
        self.number += 1
        return og.init(self.folder / f"{self.number}.omni", schema).root

    def write(self, rows: DataFrame, schema: str, type: str, constraints: str) -> None:
        """Write rows to a graph that is thrown away."""
        root = self.fresh(schema)
        options = {"type": type, "constraints": constraints}
        rows.write.format("omnigraph").mode("append").options(**options).save(root)
        shutil.rmtree(root)

    def parquet(self, rows: DataFrame) -> None:
        """Write rows to Parquet that is thrown away."""
        place = self.folder / "thrown-away.parquet"
        rows.write.mode("overwrite").parquet(str(place))
        shutil.rmtree(place)

    def writes(self) -> None:
        """Measure writes of narrow and wide rows."""
        shapes = [
            ("8 columns", NARROW, "Person", narrow(self.spark, self.size.narrow), self.size.narrow),
            ("50 columns", WIDE, "Wide", wide(self.spark, self.size.wide), self.size.wide),
        ]
        for what, schema, type, rows, count in shapes:
            acts: dict[str, Callable[[], object]] = {
                "parquet": lambda rows=rows: self.parquet(rows),  # type: ignore[misc]
                "off": lambda r=rows, s=schema, t=type: self.write(r, s, t, "off"),  # type: ignore[misc]
                "checked": lambda r=rows, s=schema, t=type: self.write(r, s, t, "fail"),  # type: ignore[misc]
            }
            title = f"write of {count:,} rows of {what}"
            medians = in_turns(self.spark, acts, self.size.writes, title)
            self.say(f"{title} ÷ parquet, constraints off", medians["off"] / medians["parquet"], 0.8)
            self.say(f"{title} ÷ parquet, constraints on", medians["checked"] / medians["parquet"], 1.6)

    def reads(self) -> None:
        """Measure scans, narrow reads, filters and look-ups."""
        people, wides = self.fresh(NARROW), self.fresh(WIDE)
        for root, rows, type in (
            (people, narrow(self.spark, self.size.narrow), "Person"),
            (wides, wide(self.spark, self.size.wide), "Wide"),
        ):
            with SparkGraph.for_path(self.spark, root).transaction(constraints="off") as tx:
                tx.append(type, rows)
            rows.write.parquet(root + ".parquet")
        og.open(people).ensure_indices()
        spark = self.spark
        configure(spark, people, name=CATALOG)
        configure(spark, wides, name=CATALOG + "_wide")
        table, wide_table = f"{CATALOG}.main.Person", f"{CATALOG}_wide.main.Wide"
        columns = [name for name in spark.table(table).columns if name != "id"]
        ids = [f"person-{n * self.size.narrow // POINT_IDS}" for n in range(POINT_IDS)]
        few = self.size.narrow // 1_000

        # Both are looked up anew for every query, as a program or a statement does that comes to the table.
        def parquet() -> DataFrame:
            return spark.read.parquet(people + ".parquet")

        def wide_parquet() -> DataFrame:
            return spark.read.parquet(wides + ".parquet")

        cases: list[tuple[str, Callable[[], DataFrame], Callable[[], DataFrame], float]] = [
            (
                f"full scan of {self.size.narrow:,} rows",
                lambda: spark.table(table).select(columns),
                parquet,
                1.4,
            ),
            (
                "2 of 50 columns",
                lambda: spark.table(wide_table).select("c1", "c2"),
                lambda: wide_parquet().select("c1", "c2"),
                1.5,
            ),
            (
                "filter for 0.1 %",
                lambda: spark.table(table).where(f.col("visits") < 3 * few),
                lambda: parquet().where(f.col("visits") < 3 * few),
                1.2,
            ),
            (
                f"look-up of {POINT_IDS} ids, indexed",
                lambda: spark.table(table).where(f.col("id").isin(ids)),
                lambda: parquet().where(f.col("name").isin(ids)),
                0.5,
            ),
        ]
        for what, ours, theirs, limit in cases:
            assert ours().count() == theirs().count(), what
            acts: dict[str, Callable[[], object]] = {
                "parquet": lambda theirs=theirs: consumed(theirs()),  # type: ignore[misc]
                "omnigraph": lambda ours=ours: consumed(ours()),  # type: ignore[misc]
            }
            medians = in_turns(self.spark, acts, self.size.reads, what)
            self.say(f"{what} ÷ parquet", medians["omnigraph"] / medians["parquet"], limit)
        by_option = spark.read.format("omnigraph").option("type", "Person")
        graph = SparkGraph.for_path(spark, people)
        other: dict[str, Callable[[], object]] = {
            "data source": lambda: consumed(by_option.load(people)),
            "SparkGraph.table": lambda: consumed(graph.table("Person")),
        }
        in_turns(spark, other, self.size.rounds, "the same full scan without the catalog, with the id")

    def upserts(self) -> None:
        """Measure an upsert of one percent against writing the table anew as Parquet."""
        spark, size = self.spark, self.size
        root = self.fresh(NARROW)
        with SparkGraph.for_path(spark, root).transaction(constraints="off") as tx:
            tx.append("Person", narrow(spark, size.upsert_table))
        table = self.folder / "table.parquet"
        narrow(spark, size.upsert_table).write.parquet(str(table))
        step = 100
        changed = narrow(spark, size.upsert_table // step).withColumn(
            "name", f.concat(f.lit("person-"), (f.col("visits") / 3 * step).cast("long").cast("string"))
        )

        def upsert() -> None:
            copy = Path(root + ".copy")
            shutil.copytree(root, copy, copy_function=os.link)
            begun = time.perf_counter()
            with SparkGraph.for_path(spark, copy).transaction() as tx:
                tx.upsert("Person", changed)
            ours.append(time.perf_counter() - begun)
            receipt = tx.receipt.tables["node:Person"]
            assert receipt.rows_updated + receipt.rows_unchanged == size.upsert_table // step, receipt
            shutil.rmtree(copy)

        def rewrite() -> None:
            old = spark.read.parquet(str(table))
            begun = time.perf_counter()
            merged = old.join(changed, "name", "left_anti").unionByName(changed)
            self.parquet(merged)
            theirs.append(time.perf_counter() - begun)

        ours: list[float] = []
        theirs: list[float] = []
        for _ in range(size.rounds + 1):
            for act in (upsert, rewrite):
                tidy(spark)
                act()
        shown = [statistics.median(each[1:]) for each in (ours, theirs)]
        what = f"upsert of 1 % of {size.upsert_table:,} rows"
        console.print(f"{what}: {shown[0]:.2f} s; rewritten as parquet: {shown[1]:.2f} s")
        self.say(f"{what} ÷ rewriting the table as parquet", shown[0] / shown[1], 0.3)

    def fixed_costs(self) -> None:
        """Measure what an empty read and a write of one row cost once all is warm, and whether appends stay flat."""
        root, spark = self.fresh(NARROW), self.spark
        reading = spark.read.format("omnigraph").option("type", "Person")
        empty = [timed(lambda: reading.load(root).collect()) for _ in range(self.size.fixed + 2)][2:]

        def one(number: int) -> None:
            rows = narrow(spark, 1, number).coalesce(1)
            rows.write.format("omnigraph").mode("append").option("type", "Person").save(root)

        times = [timed(lambda n=number: one(n)) for number in range(self.size.appends)]  # type: ignore[misc]
        part = max(1, self.size.appends // 10)
        early, late = statistics.median(times[part : 2 * part]), statistics.median(times[-part:])
        console.print(
            f"empty read {statistics.median(empty) * 1e3:.0f} ms; write of one row {early * 1e3:.0f} ms, "
            f"after {self.size.appends} of them {late * 1e3:.0f} ms"
        )
        self.say(f"write of one row after {self.size.appends} of them ÷ at the start", late / early, 1.3)


def session(folder: Path) -> SparkSession:
    """Start Spark as the tests do, with the settings the guide recommends."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    made: SparkSession = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "4g")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.sql.execution.arrow.maxBytesPerBatch", str(2**31 - 1))
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "65536")
        .config("spark.local.dir", str(folder / "local"))
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .getOrCreate()
    )
    made.sparkContext.setLogLevel("ERROR")
    return made


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes: minutes become seconds, and figures rough")
    parser.add_argument("--only", nargs="*", help="some parts: fixed, writes, reads, upserts")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="omnigraph-bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        spark = session(folder)
        bench = Bench(spark, folder, QUICK if chosen.quick else Size())
        parts: dict[str, Any] = {
            "fixed": bench.fixed_costs,
            "writes": bench.writes,
            "reads": bench.reads,
            "upserts": bench.upserts,
        }
        with Memory() as memory:
            for part, measure in parts.items():
                if not chosen.only or part in chosen.only:
                    measure()
        report(bench.verdicts)
        console.print(f"largest Python worker {memory.peak:.0f} MB; pyspark {pyspark.__version__}")
        spark.stop()


if __name__ == "__main__":
    main()
