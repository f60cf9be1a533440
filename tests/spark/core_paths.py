"""What people do with omnigraph on Spark, run on whatever Spark this Python has, and what came of each.

``main(folder, remote)`` writes ``folder/seen.json``: for each path nothing, or why it failed. With ``remote``, such as
``sc://127.0.0.1:15002`` or ``local[2]``, the session is one of Spark Connect. Only the package and PySpark are needed.
A path's first line is a row of the table in docs/guides/spark.md.
"""

import json
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from tests.spark.core_kit import PEOPLE, Here, ages, names, refusal, save
from tests.spark.core_sql_paths import (
    catalog,
    changes,
    inserts,
    partial_inserts,
    pushdown,
    sql_refusals,
    time_travel,
)

import omnigraph as og
from omnigraph.errors import ConstraintError, OmnigraphError, TypeNotFoundError

SEEN: Final = "seen.json"
THING: Final = (
    "name string, flag boolean, small int, big bigint, plain bigint, huge decimal(20,0), single float, double double, "
    "day date, moment timestamp, blob binary, vector array<float>, color string, texts array<string>, "
    "numbers array<int>, days array<date>, moments array<timestamp>"
)
DAY, NOON = date(2026, 11, 1), datetime(2026, 11, 1, 12, 30, 15, 123456, tzinfo=UTC)
SCALARS: Final = (True, -(2**31), -(2**63), 2**32 - 1, Decimal(2**64 - 1), 0.5, 1e300, DAY, NOON, b"\x00\xff")
LISTS: Final = ([1.0, 2.0, -0.5], "red", ["a", None, "ü"], [1, None], [DAY, None], [NOON])


# -- the data source --------------------------------------------------------------------------------------


def installed(here: Here) -> None:
    """The format is known, without an import or a registration."""
    graph = here.graph(*PEOPLE[:2])
    assert "pyspark_omnigraph" not in sys.modules
    assert names(here.read(graph)) == ["Ann", "Bob"]
    save(here.people(("Eve", 3)), graph)
    assert sorted(ages(graph)) == ["Ann", "Bob", "Eve"]
    assert "pyspark_omnigraph" not in sys.modules


def snapshots(here: Here) -> None:
    """Reading a branch, tag, commit, version or time, and joining two."""
    graph = here.graph(*PEOPLE[:2])
    first = graph.snapshot().commit
    graph.tags.create("then", at="main")
    graph.branches.create("review")
    with graph.transaction("review") as tx:
        tx.append("Person", [{"name": "Eve"}])
    assert names(here.read(graph)) == ["Ann", "Bob"]
    review = here.read(graph, branch="review")
    assert names(review) == ["Ann", "Bob", "Eve"]
    moment = first.created_at.isoformat()
    past: list[dict[str, Any]] = [{"tag": "then"}, {"commit": first.id}]
    past += [{"branch": "review", "versionAsOf": first.version}, {"branch": "review", "timestampAsOf": moment}]
    for options in past:
        assert names(here.read(graph, **options)) == ["Ann", "Bob"], options
    assert names(review.join(here.read(graph, tag="then"), "name", "left_anti")) == ["Eve"]


def pinned(here: Here) -> None:
    """A DataFrame stays what it was when it was made."""
    graph = here.graph(PEOPLE[0])
    frame = here.read(graph)
    with graph.transaction() as tx:
        tx.append("Person", [{"name": "Bob"}])
    pairs = frame.alias("a").crossJoin(frame.alias("b")).count()
    assert pairs == 1, f"one row became {pairs} pairs"
    assert here.read(graph).count() == 2


def less(here: Here) -> None:
    """`columns`, `filter`, and a schema of the caller's own."""
    graph = here.graph(*PEOPLE)
    frame = here.read(graph, columns="age,name", filter="age > 40 OR age = 17")
    assert frame.columns == ["age", "name"]
    assert names(frame) == ["Ann", "Bob", "Dan"]
    assert frame.count() == 3
    own = here.spark.read.format("omnigraph").option("type", "Person").schema("city string, id string")
    assert sorted(map(tuple, own.load(graph.root).where("city = 'Rome'").collect())) == [
        ("Rome", "Ann"),
        ("Rome", "Cyd"),
    ]


def operations(here: Here) -> None:
    """Appending, upserting, deleting and overwriting."""
    graph = here.graph()
    save(here.people(("Ann", 1), ("Bob", 1), ("Cyd", 1), parts=3), graph, actor="etl", message="first")
    head = graph.refresh()
    assert (head.version, head.actor, head.message) == (2, "etl", "first")
    save(here.people(("Bob", 2), ("Dan", 2)), graph, operation="upsert")
    assert ages(graph) == {"Ann": 1, "Bob": 2, "Cyd": 1, "Dan": 2}
    save(here.spark.createDataFrame([("Ann",), ("Nobody",)], "id string"), graph, operation="delete")
    assert sorted(ages(graph)) == ["Bob", "Cyd", "Dan"]
    save(here.people(("New", 9)), graph, mode="overwrite")
    assert ages(graph) == {"New": 9}
    assert graph.refresh().version == 5


def reruns(here: Here) -> None:
    """Reruns that do nothing, and branches forked by a write."""
    graph = here.graph(*PEOPLE[:1])
    for _ in range(2):
        save(
            here.people(("Eve", 3)),
            graph,
            branch="review",
            createBranchFrom="main",
            txnAppId="nightly",
            txnVersion=7,
        )
    assert (ages(graph), ages(graph, "review")) == ({"Ann": 41}, {"Ann": 41, "Eve": 3})
    assert graph.snapshot("review").commit.version == 3


def types(here: Here) -> None:
    """Every type of the schema language, there and back."""
    graph = here.graph()
    rows = here.spark.createDataFrame([("a", *SCALARS, *LISTS), ("b", *[None] * 16)], THING)
    save(rows, graph, type="Thing")
    back = here.read(graph, type="Thing").drop("id")
    assert back.schema.simpleString() == rows.schema.simpleString()
    assert sorted(back.collect(), key=repr) == sorted(rows.collect(), key=repr)
    (stored,) = graph.snapshot().read("Thing", where="name = 'a'").to_pylist()
    assert (stored["huge"], stored["moment"], stored["blob"]) == (2**64 - 1, NOON, b"\x00\xff")


def refusals(here: Here) -> None:
    """Errors of the data source, in our words."""
    graph = here.graph(*PEOPLE[:1])
    assert "[TYPE_NOT_FOUND] " in str(refusal(lambda: here.read(graph, type="Persn").collect()))
    assert "did you mean 'branch'" in str(refusal(lambda: here.read(graph, brnach="main").collect()))
    assert "[INVALID_DATA] " in str(refusal(lambda: save(here.people(("Ann", 1)), graph)))
    edges = here.spark.createDataFrame([("Ann", "Zoe")], "src string, dst string")
    assert "[CONSTRAINT_VIOLATED] " in str(refusal(lambda: save(edges, graph, type="Knows")))
    assert graph.refresh().version == 2


# -- SparkGraph -------------------------------------------------------------------------------------------


def transactions(here: Here) -> None:
    """`SparkGraph`: several DataFrames in one commit, two versions in one query."""
    from pyspark_omnigraph import SparkGraph

    graph = SparkGraph.for_path(here.spark, here.graph().root, actor="ann")
    knows = here.spark.createDataFrame([("Ann", "Bob"), ("Bob", "Cyd")], "src string, dst string")
    with graph.transaction(message="first") as tx:
        tx.append("Person", here.people(("Ann", 41), ("Bob", 17), ("Cyd", 65), parts=3))
        tx.append("Knows", knows)
    assert (tx.receipt.version, graph.log(limit=1)[0].actor) == (2, "ann")
    with graph.transaction() as tx:
        tx.upsert("Person", graph.table("Person").where("age < 50").selectExpr("name", "age + 1 AS age"))
    assert tx.receipt.tables["node:Person"].rows_updated == 2
    now, then = graph.table("Person").alias("now"), graph.table("Person", version=2).alias("then")
    assert names(now.join(then, "name").where("now.age > then.age")) == ["Ann", "Bob"]
    with graph.transaction() as tx:
        tx.delete("Person", here.spark.createDataFrame([("Ann",)], "id string"))
    assert tx.receipt.tables["edge:Knows"].rows_deleted == 1
    with graph.transaction() as tx:
        save(here.people(("Bob", 1), ("Cyd", 1)), graph.graph, mode="overwrite", transaction=tx.ticket)
        save(knows.where("src = 'Bob'"), graph.graph, mode="overwrite", type="Knows", transaction=tx.ticket)
    assert (tx.receipt.version, ages(graph.graph)) == (5, {"Bob": 1, "Cyd": 1})


def tables(here: Here) -> None:
    """`SparkGraph`: a table stays what it was when it was made."""
    from pyspark_omnigraph import SparkGraph

    graph = SparkGraph.for_path(here.spark, here.graph(PEOPLE[0]).root)
    frame = graph.table("Person")
    with graph.transaction() as tx:
        tx.append("Person", here.people(("Bob", 17)))
    assert frame.alias("a").crossJoin(frame.alias("b")).count() == 1
    assert graph.table("Person").count() == 2


def own_errors(here: Here) -> None:
    """`SparkGraph`: errors are omnigraph's own classes."""
    from pyspark_omnigraph import SparkGraph

    graph = SparkGraph.for_path(here.spark, here.graph(*PEOPLE[:1]).root)

    def strand() -> None:
        with graph.transaction() as tx:
            tx.append("Knows", here.spark.createDataFrame([("Ann", "Zoe")], "src string, dst string"))

    assert isinstance(refusal(lambda: graph.table("Persn")), TypeNotFoundError)
    assert isinstance(refusal(strand), ConstraintError)
    assert graph.refresh().version == 2


def jobs(here: Here) -> None:
    """`SparkGraph`: large writes are checked and joined by jobs, bad rows come back."""
    from pyspark_omnigraph import SparkGraph

    graph = SparkGraph.for_path(here.spark, here.graph(*PEOPLE[:2]).root)
    knows = here.spark.createDataFrame([("Ann", "Bob"), ("Ann", "Zoe")], "src string, dst string")

    def strand() -> None:
        with graph.transaction() as tx:
            tx.append("Knows", knows)

    here.spark.conf.set("spark.omnigraph.jobRowsMin", "0")  # one row is large
    try:
        assert isinstance(refusal(strand), ConstraintError)
        with graph.transaction(constraints="quarantine") as tx:
            tx.append("Knows", knows)
        assert [row["dst"] for row in tx.rejected("Knows").collect()] == ["Zoe"]
        with graph.transaction() as tx:
            tx.upsert("Person", here.people(("Bob", 18), ("Eve", 3)))
    finally:
        here.spark.conf.unset("spark.omnigraph.jobRowsMin")
    assert ages(graph.graph) == {"Ann": 41, "Bob": 18, "Eve": 3}
    assert graph.snapshot().count("Knows") == 1


def merges(here: Here) -> None:
    """`SparkGraph`: differences and merges by jobs, conflicts as a DataFrame."""
    from pyspark_omnigraph import SparkGraph

    plain = here.graph(*PEOPLE)
    plain.branches.create("review")
    for branch, rows in (("review", [("Ann", 42), ("Eve", 3)]), ("main", [("Bob", 18)])):
        with plain.transaction(branch) as tx:
            tx.upsert("Person", [{"name": name, "age": age} for name, age in rows])
    here.spark.conf.set("spark.omnigraph.jobRowsMin", "0")  # one row is large
    try:
        graph = SparkGraph(here.spark, plain)
    finally:
        here.spark.conf.unset("spark.omnigraph.jobRowsMin")
    diff = graph.diff("main@2", "review")
    assert {row["id"]: row["after"]["age"] for row in diff.rows("Person").collect()} == {"Ann": 42, "Eve": 3}
    assert sorted(row["change"] for row in diff.rows().collect()) == ["insert", "update"]
    assert graph.merge("review", dry_run=True).tables["node:Person"].rows_inserted == 1
    assert graph.conflicts("review").count() == 0
    graph.merge("review")
    assert ages(plain) == {"Ann": 42, "Bob": 18, "Cyd": None, "Dan": 65, "Eve": 3}


def defaults(here: Here) -> None:
    """`SparkGraph`: defaults in the session's settings."""
    from pyspark_omnigraph import SparkGraph

    graph = here.graph(*PEOPLE[:1])
    graph.branches.create("review")
    said = {"branch": "review", "actor": "etl@nightly"}
    for name, value in said.items():
        here.spark.conf.set("spark.omnigraph." + name, value)
    try:
        bound = SparkGraph.for_path(here.spark, graph.root)
        with bound.transaction() as tx:
            tx.append("Person", here.people(("Eve", 3)))
        head = bound.refresh()
    finally:
        for name in said:
            here.spark.conf.unset("spark.omnigraph." + name)
    assert (head.branch, head.actor, sorted(ages(graph))) == ("review", "etl@nightly", ["Ann"])


def descriptions(here: Here) -> None:
    """`SparkGraph`: jobs say in Spark's pages what they do."""
    from pyspark.sql.functions import lit, udf

    from pyspark_omnigraph import SparkGraph

    def described(_: str) -> str | None:
        from pyspark import TaskContext

        context = TaskContext.get()
        return None if context is None else context.getLocalProperty("spark.job.description")

    graph = SparkGraph.for_path(here.spark, here.graph().root)
    with graph.transaction() as tx:
        tx.append("Person", here.people(("Ann", 1)).withColumn("city", udf(described, "string")(lit(""))))
    told = graph.snapshot().read("Person").to_pylist()[0]["city"]
    assert told == "omnigraph: append node:Person", f"the job is described as {told!r}"


def views(here: Here) -> None:
    """Temporary views of all types at one commit."""
    from pyspark_omnigraph import SparkGraph

    graph = SparkGraph.for_path(here.spark, here.graph(*PEOPLE).root)
    assert set(graph.create_views(version=2, prefix="old_")) == {"old_Person", "old_Knows", "old_Thing"}
    with graph.transaction() as tx:
        tx.delete("Person", where="age > 40")
    graph.create_views(prefix="new_")
    (counted,) = here.spark.sql("SELECT (SELECT count(*) FROM old_Person), count(*) FROM new_Person").collect()
    assert tuple(counted) == (4, 2)


def function(here: Here) -> None:
    """The table function `omnigraph`."""
    from pyspark_omnigraph import register_function

    graph = here.graph(*PEOPLE[:2])
    register_function(here.spark)
    query = "SELECT name FROM omnigraph(:root, 'Person', version => 2)"
    assert names(here.spark.sql(query, args={"root": graph.root})) == ["Ann", "Bob"]


PATHS: Sequence[Callable[[Here], None]] = (
    installed,  # the first, because later ones import the package
    snapshots,
    pinned,
    less,
    operations,
    reruns,
    types,
    refusals,
    transactions,
    tables,
    own_errors,
    jobs,
    merges,
    defaults,
    descriptions,
    views,
    function,
    catalog,
    time_travel,
    pushdown,
    inserts,
    partial_inserts,
    changes,
    sql_refusals,
)


def session(remote: str | None) -> SparkSession:
    """Return a classic session in this process, or one of Spark Connect."""
    builder = SparkSession.builder
    settings = {"spark.sql.shuffle.partitions": "2", "spark.sql.session.timeZone": "UTC"}
    if remote is None:
        settings |= {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.driver.memory": "1g"}
        settings["spark.driver.bindAddress"] = "127.0.0.1"
    builder = builder.master("local[2]") if remote is None else builder.remote(remote)
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def outcome(path: Callable[[Here], None], here: Here) -> str | None:
    """Run a path, and return why it failed, if it did."""
    began = time.monotonic()
    try:
        path(here)
    except (AssertionError, PySparkException, Py4JError, OmnigraphError) as problem:
        return "".join(traceback.format_exception(problem))
    finally:
        print(f"{path.__name__}: {time.monotonic() - began:.1f} s", file=sys.stderr, flush=True)
    return None


def main(folder: Path, remote: str | None = None) -> None:
    """Run all paths and write down what was seen."""
    spark = session(remote)
    here = Here(spark, folder)
    paths = {path.__name__: outcome(path, here) for path in PATHS}
    seen = {"spark": spark.version, "session": type(spark).__module__, "package": og.__file__, "paths": paths}
    (folder / SEEN).write_text(json.dumps(seen, indent=1), encoding="utf-8")
    spark.stop()
