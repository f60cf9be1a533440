"""Contestants on Spark: the graph through its connector, plain Parquet, Delta and Iceberg."""

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from tests.bench.contestants.protocol import (
    FILTER,
    GRID,
    SINGLES,
    TABLES,
    Contestant,
    NotPossibleError,
    outer_join,
    told,
)

CATALOG = "lake"
COMMON = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.ui.showConsoleProgress": "false",
    # Those who wait for their turn on a busy machine must not be taken for dead.
    "spark.executor.heartbeatInterval": "60s",
    "spark.network.timeout": "600s",
}
MERGING = """
MERGE INTO {table} t USING {rows} s ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *
"""


class OnSpark(Contestant):
    """What all of them have in common: a session of their own on two cores, and inputs as Parquet files."""

    settings: dict[str, str] = {}

    def __init__(self, folder: Path, ivy: str, jars: list[str]) -> None:
        super().__init__(folder)
        os.environ["PYSPARK_PYTHON"] = sys.executable
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
        builder = SparkSession.builder.master("local[2]")
        here = {"spark.local.dir": str(folder / "local"), "spark.sql.warehouse.dir": str(folder / "warehouse")}
        if jars:
            here |= {"spark.jars.packages": ",".join(jars), "spark.jars.ivy": ivy}
        for name, value in {**COMMON, **here, **self.settings}.items():
            builder = builder.config(name, value.format(folder=folder))
        self.spark: SparkSession = builder.getOrCreate()
        self.spark.sparkContext.setLogLevel("OFF")

    def prepare(self) -> None:
        self.marks: dict[str, Any] = {}
        self.ids = self.points()
        singles = pq.read_table(self.file("singles"))
        self.schema = self.given("singles").schema
        self.singles = [tuple(row.values()) for row in singles.to_pylist()]
        for name in (*GRID, "delete"):
            self.given(name).createOrReplaceTempView(_view(name))

    def finish(self) -> None:
        self.spark.stop()

    def given(self, name: str) -> DataFrame:
        """Return the rows of an input."""
        return self.spark.read.parquet(self.file(name))

    def one(self, number: int) -> DataFrame:
        """Return a single row."""
        return self.spark.createDataFrame([self.singles[number % SINGLES]], self.schema).coalesce(1)

    def flights(self) -> DataFrame:
        """Look the flights up anew, as a program or a statement does that comes to them."""
        raise NotImplementedError

    def scan(self) -> int:
        return self.consumed(self.flights())

    def filtered(self) -> int:
        return self.consumed(self.flights().where(FILTER))

    def point(self) -> int:
        return self.consumed(self.flights().where(f.col("id").isin(self.ids)))

    def consumed(self, rows: DataFrame) -> int:
        """Read everything and keep nothing; nobody counts, because counting would read less."""
        rows.write.format("noop").mode("overwrite").save()
        return -1

    def counted(self, changes: DataFrame, column: str) -> dict[str, int]:
        """Count changes by kind."""
        return told({str(row[0]): int(row[1]) for row in changes.groupBy(column).count().collect()})

    def rows(self) -> pa.Table:
        found: pa.Table = self.flights().toArrow()
        return found


class SparkGraphs(OnSpark):
    """omnigraph through its connector and its SQL catalog, with every constraint checked."""

    def prepare(self) -> None:
        super().prepare()
        from tests.bench.contestants.schema import SCHEMA

        import omnigraph as og
        from pyspark_omnigraph import SparkGraph, configure

        og.init(self.root / "g.omni", SCHEMA)
        self.graph = SparkGraph.for_path(self.spark, self.root / "g.omni")
        configure(self.spark, str(self.root / "g.omni"), name=f"{CATALOG}{self.number}")

    def flights(self) -> DataFrame:
        return self.spark.table(f"{CATALOG}{self.number}.main.Flight")

    def load(self) -> None:
        with self.graph.transaction() as tx:
            for name in TABLES:
                tx.append(name, self.given(name))

    def upsert(self, name: str) -> None:
        with self.graph.transaction() as tx:
            tx.upsert("Flight", self.given(name))

    def delete(self) -> None:
        with self.graph.transaction() as tx:
            tx.delete("Flight", self.given("delete"))

    def single(self, number: int) -> None:
        with self.graph.transaction() as tx:
            tx.append("Flight", self.one(number))

    def mark(self, name: str) -> None:
        self.marks[name] = self.graph.refresh().id

    def diff(self) -> dict[str, int]:
        return self.counted(self.graph.diff(self.marks["loaded"], self.marks["changed"]).rows("Flight"), "change")

    def index(self) -> None:
        self.graph.ensure_indices(types=["Flight"])

    def fork(self) -> None:
        self.graph.branches.create("review")
        for branch, rows in (("review", "theirs"), ("main", "ours")):
            with self.graph.transaction(branch) as tx:
                tx.upsert("Flight", self.given(rows))

    def merge(self) -> None:
        assert self.graph.merge("review", "main").outcome == "Merged"


class Parquet(OnSpark):
    """Folders of files: what changes a row writes the table anew, and an older folder is kept if it is marked."""

    def prepare(self) -> None:
        super().prepare()
        self.version = 0

    @property
    def place(self) -> Path:
        """Where the flights are now."""
        return self.root / f"Flight-{self.version}"

    def flights(self) -> DataFrame:
        return self.spark.read.parquet(str(self.place))

    def load(self) -> None:
        for name in TABLES:
            place = self.place if name == "Flight" else self.root / name
            self.given(name).write.parquet(str(place))

    def anew(self, rows: DataFrame) -> None:
        """Write the table anew, and make this the newest version."""
        before = self.place
        self.version += 1
        rows.write.parquet(str(self.place))
        if before not in self.marks.values():
            shutil.rmtree(before)

    def upsert(self, name: str) -> None:
        given = self.given(name)
        self.anew(self.flights().join(given, "id", "left_anti").unionByName(given))

    def delete(self) -> None:
        self.anew(self.flights().join(self.given("delete"), "id", "left_anti"))

    def single(self, number: int) -> None:
        self.one(number).write.mode("append").parquet(str(self.place))

    def mark(self, name: str) -> None:
        self.marks[name] = self.place

    def diff(self) -> dict[str, int]:
        query = outer_join(*(f"parquet.`{self.marks[name]}`" for name in ("loaded", "changed")))
        return self.counted(self.spark.sql(query), "change")


class Tables(OnSpark):
    """What formats with SQL of their own have in common."""

    kind = ""

    @property
    def table(self) -> str:
        """What the flights are called."""
        raise NotImplementedError

    def flights(self) -> DataFrame:
        return self.spark.table(self.table)

    def upsert(self, name: str) -> None:
        self.spark.sql(MERGING.format(table=self.table, rows=_view(name)))

    def delete(self) -> None:
        # Not DELETE: Delta takes no subquery there.
        rows = _view("delete")
        self.spark.sql(f"MERGE INTO {self.table} t USING {rows} s ON t.id = s.id WHEN MATCHED THEN DELETE")


class Delta(Tables):
    """Delta Lake, with the change feed on: without it there would be nothing to compare by."""

    settings = {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.properties.defaults.enableChangeDataFeed": "true",
    }

    @property
    def table(self) -> str:
        return f"delta.`{self.root}/Flight`"

    def load(self) -> None:
        for name in TABLES:
            self.given(name).write.format("delta").save(str(self.root / name))

    def single(self, number: int) -> None:
        self.one(number).write.format("delta").mode("append").save(str(self.root / "Flight"))

    def mark(self, name: str) -> None:
        newest = self.spark.sql(f"DESCRIBE HISTORY {self.table} LIMIT 1").collect()[0]
        self.marks[name] = int(newest["version"])

    def diff(self) -> dict[str, int]:
        feed = self.spark.read.format("delta").option("readChangeFeed", "true")
        feed = feed.option("startingVersion", self.marks["loaded"] + 1).option("endingVersion", self.marks["changed"])
        return self.counted(feed.load(str(self.root / "Flight")), "_change_type")


class Iceberg(Tables):
    """Apache Iceberg, in a catalog that is a folder."""

    settings = {
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        f"spark.sql.catalog.{CATALOG}": "org.apache.iceberg.spark.SparkCatalog",
        f"spark.sql.catalog.{CATALOG}.type": "hadoop",
        f"spark.sql.catalog.{CATALOG}.warehouse": "{folder}",
    }

    @property
    def table(self) -> str:
        return f"{CATALOG}.`{self.root.name}`.Flight"

    def load(self) -> None:
        for name in TABLES:
            self.given(name).writeTo(f"{CATALOG}.`{self.root.name}`.{name}").using("iceberg").create()

    def single(self, number: int) -> None:
        self.one(number).writeTo(self.table).append()

    def mark(self, name: str) -> None:
        query = f"SELECT snapshot_id FROM {self.table}.snapshots ORDER BY committed_at DESC LIMIT 1"
        self.marks[name] = int(self.spark.sql(query).collect()[0][0])

    def diff(self) -> dict[str, int]:
        was, now = (f"{self.table} VERSION AS OF {self.marks[name]}" for name in ("loaded", "changed"))
        return self.counted(self.spark.sql(outer_join(was, now)), "change")

    def fork(self) -> None:
        raise NotPossibleError("it has branches of one table, which can be fast-forwarded, and no merge of rows")


def _view(name: str) -> str:
    return "given_" + "".join(letter if letter.isalnum() else "_" for letter in name)
