"""The steps of the demo up to the merge: each does one thing to the graph, says what happened, and returns."""

import os
import platform
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

import omnigraph as og
from omnigraph.errors import ConstraintError, MergeConflictsError
from omnigraph.model.merges import Conflict
from pyspark_omnigraph.demo.data import PACKAGE, SCHEMA, frames, unpacked
from pyspark_omnigraph.demo.places import Places, check_java, errors_into
from pyspark_omnigraph.demo.telling import Teller
from pyspark_omnigraph.graph import SparkGraph
from pyspark_omnigraph.session import configure

CATALOG: Final = "og"
LOADED: Final = "loaded"
REVIEW: Final = "review"
UNMERGED: Final = "unmerged"
WINDIEST: Final = "EWR 2013-02-12 08:00"
ONE_AIRBUS: Final = """
UPDATE og.review.Plane SET manufacturer = 'AIRBUS' WHERE manufacturer = 'AIRBUS INDUSTRIE'
"""
UNUSED_AIRPORTS: Final = """
DELETE FROM og.review.Airport
WHERE faa NOT IN (SELECT src FROM og.review.Flight UNION SELECT dst FROM og.review.Flight)
"""
ONE_DOUGLAS: Final = """
UPDATE og.main.Plane SET manufacturer = 'MCDONNELL DOUGLAS' WHERE manufacturer LIKE 'MCDONNELL DOUGLAS %'
"""
AIRBUS_SAS: Final = """
UPDATE og.main.Plane SET manufacturer = 'AIRBUS SAS'
WHERE manufacturer = 'AIRBUS INDUSTRIE' AND model IN ('A330-223', 'A340-313')
"""
SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
}


@dataclass(frozen=True, kw_only=True)
class Stage:
    """What the steps share: who tells, where things are, the session and the graph."""

    teller: Teller
    places: Places
    spark: SparkSession
    graph: SparkGraph

    @property
    def root(self) -> str:
        """The graph's root, as people type it."""
        return str(self.places.root)


def start_spark(teller: Teller, places: Places) -> SparkSession:
    """Start a session with two cores; what Java says goes into a file."""
    with teller.step("Start Spark") as facts:
        teller.doing("Java starts")
        check_java()
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # workers need the Python that has omnigraph
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        builder = SparkSession.builder.master("local[2]").appName("omnigraph demo")
        for name, value in SETTINGS.items():
            builder = builder.config(name, value)
        with errors_into(places.spark_log):
            spark = builder.getOrCreate()
        spark.sparkContext.setLogLevel("ERROR")
        facts["spark"] = spark.version
        teller.say(
            f"Spark {spark.version} on two cores, Python {platform.python_version()}, omnigraph {og.__version__}. "
            f"There is no server to start, for Spark or for the graph. Spark's own log: {places.spark_log}"
        )
    return spark


def create(teller: Teller, places: Places, spark: SparkSession) -> Stage:
    """Create the graph: one commit, seven empty tables."""
    with teller.step("Create a graph") as facts:
        teller.doing("the SQL catalog is loaded")
        graph = SparkGraph(spark, og.init(places.root, schema=SCHEMA, actor="demo"))
        configure(spark, graph.graph.root, name=CATALOG)
        facts |= {"root": str(places.root), "version": graph.refresh().version}
        types = [str(kind.table) for kind in graph.snapshot().catalog.table_types]
        teller.say(f"{places.root} has {len(types)} types: {', '.join(types)}.")
        teller.say("Its schema has keys, ranges and patterns, and every end of an edge must exist.")
    return Stage(teller=teller, places=places, spark=spark, graph=graph)


def refuse(stage: Stage, rows: dict[str, DataFrame]) -> None:
    """Try to load everything as it is; the files have holes, so nothing is applied."""
    tell = stage.teller
    with tell.step(f"Load a year of flights from New York, as the package {PACKAGE} has it") as facts:
        before, found = stage.graph.refresh(), list[dict[str, Any]]()
        try:
            with stage.graph.transaction() as tx:
                for type, frame in rows.items():
                    tell.doing(f"Spark writes {type}")
                    tx.append(type, frame)
                tell.doing("the constraints are checked")
        except ConstraintError as refused:
            found = refused.to_dict()["violations"]
        tell.say("Spark wrote all rows of all types, and omnigraph refused to make them visible:")
        tell.table(
            ("type", "must be", "rows that are not", "such as"),
            [(each["table_key"], each["constraint"], each["count"], _example(each["sample"][0])) for each in found],
        )
        facts["violations"] = {f"{each['table_key']} {each['constraint']}": each["count"] for each in found}
        now = stage.graph.snapshot()
        facts["unchanged"] = now.commit == before
        tell.say(f"Nothing was applied: the graph is at version {now.version}, with {now.count('Flight')} flights.")


def load(stage: Stage, rows: dict[str, DataFrame]) -> None:
    """Load what is good in one commit, and keep the rest in files."""
    tell, graph = stage.teller, stage.graph
    with tell.step("Load it again: one commit over all types, with the bad rows put aside") as facts:
        message = "a year of flights from New York"
        with graph.transaction(message=message, constraints="quarantine") as tx:
            for type, frame in rows.items():
                tell.doing(f"Spark reads {type}, and the rows are sorted out")
                tx.append(type, frame)
        graph.tags.create(LOADED)
        receipt, aside = tx.receipt, dict[str, int]()
        for key, rejected in receipt.rejected.items():
            type = key.partition(":")[2]
            aside[key] = rejected.rows
            tx.rejected(type).write.parquet(str(stage.places.put_aside / type))
        tell.table(
            ("type", "rows in the commit", "put aside"),
            [(key, table.rows_inserted, aside.get(key, 0)) for key, table in receipt.tables.items()],
        )
        tell.say(f"That is commit {receipt.commit}, version {receipt.version} of main; the tag `{LOADED}` names it.")
        tell.say(f"The rows that were put aside are in {stage.places.put_aside}, each with its reasons.")
        facts |= {
            "version": receipt.version,
            "rows": {key: table.rows_inserted for key, table in receipt.tables.items()},
            "put_aside": aside,
        }


def change(stage: Stage) -> None:
    """Branch, and let two teams tidy up: one on the branch, one on main."""
    tell, graph = stage.teller, stage.graph
    with tell.step("Branch it, and change both sides") as facts:
        graph.branches.create(REVIEW)
        tell.say(f"The branch `{REVIEW}` is one row in the manifest; nothing is copied.")
        tell.say(f"On `{REVIEW}`: Airbus goes by two names, and most airports are never flown to.")
        _sql(stage, ONE_AIRBUS, UNUSED_AIRPORTS)
        tell.say("On `main`: McDonnell Douglas goes by three names, and two long-range jets get Airbus's full name.")
        _sql(stage, ONE_DOUGLAS, AIRBUS_SAS)
        tell.say("On `main`: the hour of impossible wind comes back, without the wind. Two types, one commit.")
        hour, at = (
            stage.spark.read.parquet(str(stage.places.put_aside / type)).drop("_reasons")
            for type in ("Weather", "MeasuredAt")
        )
        with graph.transaction(message="the hour of impossible wind, without the wind") as tx:
            tx.append("Weather", hour.selectExpr("id", "origin", "hour", "temp", "CAST(NULL AS DOUBLE) AS wind_speed"))
            tx.append("MeasuredAt", at)
        facts["versions"] = {name: graph.branches.get(name).version for name in ("main", REVIEW)}
        said = ", ".join(f"`{name}` is at version {version}" for name, version in facts["versions"].items())
        tell.say(f"Each statement was one commit: {said}.")


def compare(stage: Stage) -> None:
    """Show what each side did since they parted."""
    tell = stage.teller
    with tell.step("What did each side do?") as facts:
        rows: list[tuple[object, ...]] = []
        for side in (REVIEW, "main"):
            found = stage.graph.diff(LOADED, side)
            rows += [(side, key, each.inserted, each.updated, each.deleted) for key, each in found.tables.items()]
            facts[side] = {key: each.to_dict() for key, each in found.tables.items()}
        tell.table(("on", "type", "inserted", "updated", "deleted"), rows)
        changed = stage.graph.diff(LOADED, REVIEW).rows("Plane").orderBy("id").limit(3).collect()
        tell.say(f"Row by row, such as the first three planes on `{REVIEW}`:")
        tell.table(
            ("plane", "changed", "was", "is"),
            [(row.id, ", ".join(row.changed), row.before.manufacturer, row.after.manufacturer) for row in changed],
        )
        tell.say("Only rows of files that differ were read; no flight was.")


def merge(stage: Stage) -> None:
    """Merge, meet a conflict, show both sides of it, and settle it by a policy."""
    tell, graph = stage.teller, stage.graph
    with tell.step(f"Merge `{REVIEW}` into `main`") as facts:
        before, conflicts = graph.refresh(), tuple[Conflict, ...]()
        tell.doing("both sides are compared with what they come from")
        try:
            graph.merge(REVIEW, "main")
        except MergeConflictsError as refused:
            conflicts = refused.conflicts
        tell.say(f"Refused: {len(conflicts)} planes were given another name on each side. Nothing was applied.")
        tell.table(("plane", "kind", "base", "ours (main)", f"theirs ({REVIEW})"), [_sides(each) for each in conflicts])
        facts["conflicts"] = {each.row_id: str(each.kind) for each in conflicts}
        facts["unchanged"] = graph.refresh() == before
        graph.branches.create(UNMERGED, from_=before.id)
        tell.say(f"The branch `{UNMERGED}` keeps main as it is now, so that you can try this yourself.")
        settled = graph.merge(REVIEW, "main", policy={"Plane": "theirs"}, message="tidied planes and airports")
        head = graph.refresh()
        done = ", ".join(
            f"{key} adopted as it is" if table.adopted else f"{key} {table.rows_updated:,} rows taken over"
            for key, table in settled.tables.items()
        )
        tell.say(f"With the policy `theirs` for planes: {settled.outcome}, version {head.version}; {done}.")
        tell.say(f"The merge commit has {len(head.parents)} parents.")
        facts |= {"outcome": str(settled.outcome), "version": head.version, "parents": len(head.parents)}


def prepared(stage: Stage) -> dict[str, DataFrame]:
    """Return the DataFrames to load; the flights are unpacked into a folder that goes when Spark stops."""
    folder = Path(tempfile.mkdtemp(dir=_local_folder(stage.spark)))
    return frames(stage.spark, unpacked(folder))


def _local_folder(spark: SparkSession) -> str:
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001  there is no other way to ask for it
    return str(jvm.org.apache.spark.SparkFiles.getRootDirectory())


def _sql(stage: Stage, *statements: str) -> None:
    for statement in statements:
        stage.teller.quote(statement)
        stage.teller.doing("Spark runs it")
        stage.spark.sql(statement)


def _sides(conflict: Conflict) -> tuple[object, ...]:
    sides = (conflict.base, conflict.ours, conflict.theirs)
    return (conflict.row_id, conflict.kind, *(side and side["manufacturer"] for side in sides))


def _example(row: dict[str, Any]) -> str:
    """Return what is wrong with a row, in a few words: the value that breaks the constraint."""
    return next((f"{name} {value}" for name, value in row.items() if name != "id"), str(row.get("id")))
