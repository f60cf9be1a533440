"""Large writes on Spark: constraints, upserts and deletions as joins, with what the engine in the driver would say."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as t
from tests.engine.constraint_kit import CASES, Rows, edge, filled, person, plays_for

import omnigraph as og
from omnigraph.engine.integrity import ENGINE
from omnigraph.errors import ConstraintError, InvalidDataError, InvalidInputError, InvalidOptionError
from omnigraph.rules import constraints as rules
from omnigraph.storage.relations import Found, Relation, Spread
from pyspark_omnigraph import SparkGraph
from pyspark_omnigraph.engine import SparkEngine
from pyspark_omnigraph.graph import JOB_ROWS_MIN, JOIN_TASKS_MIN
from pyspark_omnigraph.types import columns_of, spark_type


@pytest.fixture
def every_row(spark: SparkSession) -> Iterator[None]:
    """Let one row be worth a job, and two tasks a join."""
    spark.conf.set(JOB_ROWS_MIN, "0")
    spark.conf.set(JOIN_TASKS_MIN, "2")
    yield
    spark.conf.unset(JOB_ROWS_MIN)
    spark.conf.unset(JOIN_TASKS_MIN)


@pytest.fixture
def graph(spark: SparkSession, every_row: None, tmp_path: Path) -> SparkGraph:
    return SparkGraph(spark, filled(tmp_path / "g"))


def frame(graph: SparkGraph, type: str, rows: Rows) -> DataFrame:
    """Rows as a DataFrame with the columns that occur; what is text where a number belongs, stays text."""
    known = columns_of(graph.snapshot().catalog.table_type(type))
    names = list(dict.fromkeys(name for row in rows for name in row))
    fields = [
        t.StructField(name, t.StringType() if _is_text(row.get(name) for row in rows) else spark_type(known[name]))
        for name in names
    ]
    values = [tuple(_as(row.get(each.name), each.dataType) for each in fields) for row in rows]
    return graph.spark.createDataFrame(values, t.StructType(fields))


def _as(value: Any, kind: t.DataType) -> Any:
    return str(value) if value is not None and isinstance(kind, t.StringType) else value


def _is_text(values: Iterable[Any]) -> bool:
    return any(isinstance(value, str) for value in values)


def write(graph: SparkGraph, verb: str, type: str, rows: Rows) -> None:
    kept = graph.snapshot().read(type).to_pylist() if verb == "overwrite" else []
    with graph.transaction() as tx:
        getattr(tx, verb)(type, frame(graph, type, [*kept, *rows]))
        if plays := plays_for(rows, type):
            tx.append("Plays", frame(graph, "Plays", plays))


VERBS = ("append", "upsert", "overwrite")
IS_DEEP = os.environ.get("OMNIGRAPH_DEEP") == "1"
"""In a normal run each case has one verb, in turns; all cases by all verbs take ten minutes."""
EACH_ONCE = [(name, verb) for n, name in enumerate(CASES) for v, verb in enumerate(VERBS) if IS_DEEP or n % 3 == v]


@pytest.mark.parametrize(("name", "verb"), EACH_ONCE)
def test_the_cases_of_every_constraint_hold_on_spark(graph: SparkGraph, name: str, verb: str) -> None:
    case, before = CASES[name], graph.refresh()
    with pytest.raises(InvalidInputError) as refused:
        write(graph, verb, case.type, case.wrong)
    assert isinstance(refused.value, case.error)
    assert (case.says if name != "type" else "Person.age is I32") in str(refused.value)
    assert graph.refresh() == before
    write(graph, verb, case.type, case.right)
    assert graph.refresh().version == before.version + 1


def test_bad_rows_of_dataframes_come_back_as_a_dataframe_with_reasons(graph: SparkGraph) -> None:
    people = [person("Cy", age=1), person("Di", age=200), person("Ed", email="ann@x"), {"name": "Fi", "must": None}]
    with graph.transaction(constraints="quarantine") as tx:
        tx.append("Person", frame(graph, "Person", people).repartition(3))
        tx.append("Plays", frame(graph, "Plays", [edge(name, "red") for name in ("Cy", "Di", "Ed", "Fi", "Gus")]))
    assert {key: table.rows_inserted for key, table in tx.receipt.tables.items()} == {"node:Person": 1, "edge:Plays": 1}
    left = {row["name"]: row["_reasons"] for row in tx.rejected("Person").collect()}
    assert set(left) == {"Di", "Ed", "Fi"}
    assert left["Di"] == ["@range(age)"]
    assert "@unique(email)" in left["Ed"]
    dangling = tx.rejected("Plays").selectExpr("src", "explode(_reasons) AS why").collect()
    assert {(row["src"], row["why"]) for row in dangling} == {
        (name, "from an existing Person") for name in ("Di", "Ed", "Fi", "Gus")
    }
    assert tx.rejected("Team").count() == 0
    with graph.transaction(constraints="quarantine") as tx:
        tx.delete("Leads", graph.spark.sql("SELECT 'l' AS id"))
    assert tx.receipt.tables["edge:Leads"].rows_deleted == 1


# -- plans ----------------------------------------------------------------------------------------------


class Part:
    """Rows that can be read anywhere."""

    def __init__(self, *rows: dict[str, Any]) -> None:
        self._rows = list(rows)

    def batches(self) -> Iterator[pa.RecordBatch]:
        return iter(pa.Table.from_pylist(self._rows).to_batches())


IDS = pa.schema([pa.field("id", pa.string(), nullable=False)])
ENDS = pa.schema([pa.field("id", pa.string(), nullable=False), pa.field("ref", pa.string(), nullable=False)])


def ids(*names: str) -> Spread:
    return Spread(IDS, tuple(Part({"id": name}) for name in names))


def ends(**refs: str) -> Spread:
    return Spread(ENDS, tuple(Part({"id": id, "ref": ref}) for id, ref in refs.items()))


QUESTIONS: dict[str, tuple[str, dict[str, Relation], dict[str, Any]]] = {
    "missing endpoints": (
        rules.MISSING_ENDPOINTS.sql,
        {"new": ends(e="x", f="a", g="b"), "nodes": ids("a", "b"), "gone_nodes": ids("b"), "new_nodes": ids()},
        {},
    ),
    "dangling edges": (
        rules.DANGLING_EDGES.sql,
        {"base": ends(e="a", f="b", g="a"), "gone": ids("g"), "gone_nodes": ids("a", "b"), "new_nodes": ids("b")},
        {},
    ),
    "cardinality": (
        rules.CARDINALITY.sql,
        {
            "touched": Found(
                rules.TOUCHED,
                {
                    "new": Spread(ENDS.remove(0), (Part({"ref": "a"}, {"ref": "a"}),)),
                    "before": ends(e="a", f="b", g="c"),
                    "gone": ids("f"),
                    "others": ids("d"),
                },
            ),
            "base": ends(e="a", f="b", g="c"),
            "gone": ids("f"),
            "new": Spread(ENDS.remove(0), (Part({"ref": "a"}, {"ref": "a"}),)),
            "nodes": ids("a", "b", "c", "d"),
            "gone_nodes": ids("d"),
            "new_nodes": ids(),
        },
        {"least": 1, "most": 2},
    ),
    "ids given twice": (rules.IDS_GIVEN_TWICE, {"new": ids("a", "b", "a")}, {}),
    "ids taken": (rules.IDS_TAKEN, {"new": ids("a", "b"), "base": ids("b", "c")}, {}),
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_plan_finds_on_spark_what_it_finds_in_the_driver(spark: SparkSession, name: str) -> None:
    sql, relations, values = QUESTIONS[name]
    here = sorted(map(tuple, (row.values() for row in ENGINE.run(sql, relations, values).read_all().to_pylist())))
    assert here, "a plan that finds nothing shows nothing"
    engine = SparkEngine(spark, 0)
    there = engine.run(sql, relations, values).read_all().to_pylist()
    assert sorted(map(tuple, (row.values() for row in there))) == here
    count, some = engine.sampled(sql, relations, values, most=1)
    assert (count, some.num_rows) == (len(here), 1)
    assert tuple(some.to_pylist()[0].values()) in here


VALUES: dict[str, tuple[Any, list[Any]]] = {
    "text": (pa.string(), ["a", "a", "b", ""]),
    "numbers": (pa.int64(), [1, 1, -2, 0]),
    "unsigned": (pa.uint64(), [2**64 - 1, 2**64 - 1, 0, 1]),
    "fractions": (pa.float64(), [float("nan"), float("nan"), 0.5, float("inf")]),
    "days": (pa.date32(), [1, 1, 2, -3]),
    "moments": (pa.timestamp("us", tz="UTC"), [1, 1, 2, -3]),
    "both": (
        pa.struct([pa.field("c0", pa.string()), pa.field("c1", pa.timestamp("us", tz="UTC"))]),
        [{"c0": "a", "c1": 1}, {"c0": "a", "c1": 1}, {"c0": "a", "c1": 2}, {"c0": "b", "c1": 1}],
    ),
}


@pytest.mark.parametrize("name", VALUES)
def test_values_of_every_type_are_the_same_on_spark(spark: SparkSession, name: str) -> None:
    kind, values = VALUES[name]
    table = pa.table({"id": pa.array(["p", "q", "r", "s"]), "value": pa.array(values, kind)})
    relations: dict[str, Relation] = {"new": table}
    here = ENGINE.run(rules.REPEATED_VALUES.sql, relations).read_all().to_pylist()
    count, found = SparkEngine(spark, 0).sampled(rules.REPEATED_VALUES.sql, relations, most=5)
    assert count == len(here) == 1
    assert repr(found.to_pylist()) == repr([dict(row) for row in here])


# -- upserts and deletions as joins ---------------------------------------------------------------------

WIDE = """
node Item { code: I64 @key  name: String?  size: F64?  tags: [String]?  at: DateTime?  raw: Blob? }
edge Next: Item -> Item { weight: I32? }
"""


def items(spark: SparkSession, first: int, last: int, name: str) -> DataFrame:
    return spark.range(first, last, 1, 3).selectExpr(
        "id AS code",
        f"concat('{name}', id) AS name",
        "IF(id % 7 = 0, NULL, id / 2.0D) AS size",
        "IF(id % 3 = 0, array('x', NULL, string(id)), array()) AS tags",
        "timestamp_seconds(id) AS at",
        "IF(id % 5 = 0, encode(string(id), 'utf-8'), NULL) AS raw",
    )


@pytest.fixture
def wide(spark: SparkSession, every_row: None, tmp_path: Path) -> SparkGraph:
    graph = SparkGraph(spark, og.init(tmp_path / "wide", WIDE))
    for first in (0, 300, 600):
        with graph.transaction() as tx:
            tx.append("Item", items(spark, first, first + 300, "n"))
    return graph


def stored(graph: Any) -> dict[str, Any]:
    return {row["id"]: row for row in graph.snapshot().read("Item").to_pylist()}


def test_an_upsert_joins_rows_with_those_they_replace(wide: SparkGraph, spark: SparkSession, tmp_path: Path) -> None:
    other = og.init(tmp_path / "beside", WIDE)
    with other.transaction() as copy:
        copy.append("Item", wide.snapshot().read("Item", columns=["code", "name", "size", "tags", "at", "raw"]))
    change = items(spark, 850, 950, "m").union(items(spark, 10, 20, "n")).union(items(spark, 299, 302, "k"))
    with wide.transaction() as tx:
        assert tx.joins("Item"), "the table is large enough by the session's word, and has no index"
        tx.upsert("Item", change)
    with other.transaction() as beside:
        beside.upsert("Item", change.toArrow())
    written, expected = tx.receipt.tables["node:Item"], beside.receipt.tables["node:Item"]
    assert (written.rows_inserted, written.rows_updated, written.rows_unchanged) == (50, 53, 10)
    assert (expected.rows_inserted, expected.rows_updated, expected.rows_unchanged) == (50, 53, 10)
    assert stored(wide) == stored(other)


def test_an_id_given_twice_is_refused_by_whoever_meets_it(wide: SparkGraph, spark: SparkSession) -> None:
    for first in (5, 5_000):
        twice = items(spark, first, first + 1, "a").union(items(spark, first, first + 1, "b"))
        with pytest.raises(InvalidDataError, match="more than once"), wide.transaction() as tx:
            tx.upsert("Item", twice)
    with pytest.raises(InvalidDataError, match=r"2 ids of node:Item exist already.*\[898\]"), wide.transaction() as tx:
        tx.append("Item", items(spark, 898, 910, "a"))
    assert wide.refresh().version == 4


def test_rows_without_an_id_are_new_and_each_lands_once(wide: SparkGraph, spark: SparkSession) -> None:
    with wide.transaction() as tx:
        tx.append("Next", spark.range(0, 90).selectExpr("format_string('[%d]', id) AS src", "'[1]' AS dst"))
    known = wide.table("Next").limit(30).selectExpr("id", "src", "dst", "7 AS weight")
    new = spark.range(0, 40).selectExpr("NULL AS id", "'[2]' AS src", "'[3]' AS dst", "8 AS weight")
    with wide.transaction() as tx:
        assert tx.joins("Next")
        tx.upsert("Next", known.union(new))
    counts = tx.receipt.tables["edge:Next"]
    assert (counts.rows_inserted, counts.rows_updated) == (40, 30)
    assert wide.snapshot().count("Next") == 130


def test_deletions_are_joined_and_take_edges_along(wide: SparkGraph, spark: SparkSession) -> None:
    with wide.transaction() as tx:
        tx.append(
            "Next",
            spark.range(0, 200).selectExpr(
                "format_string('[%d]', id) AS src", "format_string('[%d]', id + 500) AS dst", "1 AS weight"
            ),
        )
    gone = (
        spark.range(190, 510)
        .selectExpr("format_string('[%d]', id) AS id")
        .union(spark.sql("SELECT 'nobody' AS id UNION ALL SELECT '[200]'"))
    )
    with wide.transaction() as tx:
        assert tx.joins("Item")
        tx.delete("Item", gone)
    deleted = {key: counts.rows_deleted for key, counts in tx.receipt.tables.items()}
    assert deleted == {"node:Item": 320, "edge:Next": 20}, "ten lead from items that go, and ten lead to them"
    assert wide.snapshot().count("Item") == 580
    assert wide.snapshot().count("Next", "src = '[189]'") == 1
    assert wide.snapshot().count("Next", "src = '[190]' OR src = '[0]'") == 0


def test_an_index_or_a_small_table_needs_no_join(wide: SparkGraph, spark: SparkSession, root: str) -> None:
    wide.ensure_indices()
    with wide.transaction() as tx:
        assert not tx.joins("Item")
        tx.upsert("Item", items(spark, 899, 902, "z"))
    assert tx.receipt.tables["node:Item"].rows_updated == 1
    with SparkGraph.for_path(spark, root).transaction() as tx:
        tx.append("Person", spark.sql("SELECT 'p' AS name"))
    for setting, value in ((JOB_ROWS_MIN, "2"), (JOIN_TASKS_MIN, "3")):
        with SparkGraph.for_path(spark, root).transaction() as tx:
            assert tx.joins("Person"), "there is a row, and two tasks run at once"
        spark.conf.set(setting, value)
        with SparkGraph.for_path(spark, root).transaction() as tx:
            assert not tx.joins("Person"), f"{setting} is {value}, there is one row and two tasks run at once"
        spark.conf.set(setting, "0")
    spark.conf.set(JOB_ROWS_MIN, "many")
    with pytest.raises(InvalidOptionError, match="jobRowsMin is 'many'; give a number"):
        SparkGraph.for_path(spark, root)


def test_violations_are_counted_where_they_are_and_a_few_are_shown(wide: SparkGraph, spark: SparkSession) -> None:
    with pytest.raises(ConstraintError) as refused, wide.transaction() as tx:
        tx.append("Next", spark.range(0, 5_000).selectExpr("format_string('[%d]', id) AS src", "'[0]' AS dst"))
    (violation,) = refused.value.to_dict()["violations"]
    assert (violation["constraint"], violation["count"]) == ("from an existing Item", 4_100)
    assert len(violation["sample"]) == 20
    assert set(violation["sample"][0]) == {"id", "src"}
