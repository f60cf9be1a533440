"""Differences on Spark: counts and DataFrames that say what the embedded engine says."""

import json
import math
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.engine.diff_kit import EVERYTHING, VALUES
from tests.engine.two_branches_kit import clash, graph
from tests.spark.merge_spark_kit import by_jobs, nothing_in_the_driver

import omnigraph as og
from omnigraph.errors import TypeNotFoundError
from pyspark_omnigraph import SparkGraph
from pyspark_omnigraph.diffs import SparkDiff

__all__ = ["graph"]  # a fixture


@pytest.fixture(scope="module")
def everything(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> SparkGraph:
    """A graph in which each column of each type was changed, set and emptied, each in a row of its own."""
    graph = og.init(tmp_path_factory.mktemp("diff") / "g", EVERYTHING)
    first = {name: values[0] for name, values in VALUES.items()}
    odd = [("nan", math.nan, -math.nan), ("zero", 0.0, -0.0)]
    before, after = [{"name": "same", **first}], [{"name": "same", **first}]
    for column, (one, other) in VALUES.items():
        before += [{"name": f"{column} set", **first}, {"name": f"{column} new"}, {"name": f"{column} off", **first}]
        after += [
            {"name": f"{column} set", **first, column: other},
            {"name": f"{column} new", column: one},
            {"name": f"{column} off", **first, column: None},
        ]
    before += [{"name": name, "f64": was, "f32": was, "numbers": [was, None]} for name, was, _ in odd]
    after += [{"name": name, "f64": now, "f32": now, "numbers": [now, None]} for name, _, now in odd]
    for rows in ([*before, {"name": "gone"}], [*after, {"name": "come", **first}]):
        with graph.transaction() as tx:
            tx.overwrite("Thing", rows)
    return by_jobs(spark, graph)


def by_id(rows: DataFrame) -> dict[str, dict[str, Any]]:
    return {row["id"]: row for row in rows.toArrow().to_pylist()}


def test_every_type_is_compared_by_spark_and_comes_back_as_it_is(everything: SparkGraph) -> None:
    here = {row["id"]: row for row in everything.graph.diff("main@2", "main").rows("Thing").read_all().to_pylist()}
    with nothing_in_the_driver() as came:
        diff = everything.diff("main@2", "main")
        assert diff.tables["node:Thing"].to_dict() == {"inserted": 1, "updated": 3 * len(VALUES), "deleted": 1}
        assert came == [1], "three counts"
        found = by_id(diff.rows("Thing"))
        assert came == [1], "a DataFrame brings nothing to the driver by itself"
    assert found == here
    assert {row["id"]: row["changed"] for row in found.values() if row["change"] == "update"} == {
        f"{column} {what}": [column] for column in VALUES for what in ("set", "new", "off")
    }
    assert (found["gone"]["after"], found["come"]["before"]) == (None, None)
    assert found["picture set"]["after"]["picture"] == VALUES["picture"][1]


def test_all_types_come_in_one_form_with_images_as_json(spark: SparkSession, graph: og.Graph) -> None:
    clash(graph)
    diff = by_jobs(spark, graph).diff("main", "review")
    rows = diff.rows()
    assert rows.columns == ["type", "change", "id", "src", "dst", "changed", "before", "after"]
    found = {(row["type"], row["id"]): row for row in rows.toArrow().to_pylist()}
    counted = {key.partition(":")[2]: table.rows for key, table in diff.tables.items()}
    assert {name: sum(type == name for type, _ in found) for name in counted} == counted
    ann, edge = found["Person", "Ann"], found["Knows", "k9"]
    assert (ann["change"], ann["changed"], ann["src"]) == ("update", ["age"], None)
    assert [json.loads(ann[side])["age"] for side in ("before", "after")] == [91, 90]
    assert (edge["change"], edge["src"], edge["dst"], edge["after"]) == ("delete", "Ann", "Eve", None)
    assert json.loads(edge["before"]) == {"src": "Ann", "dst": "Eve", "since": None}
    typed = by_id(diff.rows("Knows"))
    assert (typed["k9"]["src"], typed["k9"]["before"]["since"]) == ("Ann", None)


def test_images_of_every_type_are_json(everything: SparkGraph) -> None:
    rows = by_id(everything.diff("main@2", "main").rows())
    images = [json.loads(row[side]) for row in rows.values() for side in ("before", "after") if row[side]]
    assert len(images) == 2 * 3 * len(VALUES) + 2
    image = json.loads(rows["u64 set"]["before"])
    assert set(image) == {"name", *VALUES}
    assert (image["u64"], image["vector"], image["day"]) == (2**64 - 1, [1.0, 2.0, 3.0], "2026-01-01")
    assert image["picture"].startswith("blob ")
    assert image["picture"] != json.loads(rows["picture set"]["after"])["picture"]


def test_commits_that_do_not_differ_have_empty_dataframes(spark: SparkSession, graph: og.Graph) -> None:
    diff = by_jobs(spark, graph).diff("main", "main")
    assert diff.is_empty
    assert (diff.rows().count(), diff.rows("Person").count()) == (0, 0)
    assert diff.rows("Person").columns == ["change", "id", "changed", "before", "after"]
    with pytest.raises(TypeNotFoundError, match="did you mean 'Person'"):
        diff.rows("Persn")


def test_a_difference_says_what_it_is(spark: SparkSession, graph: og.Graph) -> None:
    clash(graph)
    diff, plain = SparkGraph(spark, graph).diff("main", "review"), graph.diff("main", "review")
    assert isinstance(diff, SparkDiff)
    assert (diff.old, diff.new, diff.to_dict()) == (plain.old, plain.new, plain.to_dict())
    assert diff._repr_html_() == plain._repr_html_()
    assert repr(diff) == f"<SparkDiff {plain!r}>"
