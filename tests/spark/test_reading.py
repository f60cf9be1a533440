"""Reading through the data source: what is read, when that is decided, and how little of it is."""

from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

import omnigraph as og


def read(spark: SparkSession, root: str, **options: Any) -> DataFrame:
    return spark.read.format("omnigraph").options(**{"type": "Person"} | options).load(root)


def names(frame: DataFrame) -> list[str]:
    return sorted(row["name"] for row in frame.select("name").collect())


def add(root: str, *people: str, branch: str = "main") -> og.Receipt:
    with og.open(root).transaction(branch) as tx:
        tx.append("Person", [{"name": name, "age": number} for number, name in enumerate(people)])
    return tx.receipt


def test_a_branch_a_tag_a_commit_a_version_and_a_moment_are_read_and_joined(spark: SparkSession, root: str) -> None:
    graph = og.open(root)
    first = add(root, "Ann", "Bob")
    graph.tags.create("then", at="main")
    graph.branches.create("review")
    add(root, "Cid", branch="review")
    when = graph.commit(str(first.commit)).created_at.isoformat()
    assert names(read(spark, root)) == ["Ann", "Bob"]
    assert names(read(spark, root, branch="review")) == ["Ann", "Bob", "Cid"]
    assert names(read(spark, root, tag="then")) == ["Ann", "Bob"]
    assert names(read(spark, root, commit=first.commit)) == ["Ann", "Bob"]
    assert names(read(spark, root, branch="review", versionAsOf=first.version)) == ["Ann", "Bob"]
    assert names(read(spark, root, branch="review", timestampAsOf=when)) == ["Ann", "Bob"]
    new = read(spark, root, branch="review").alias("new")
    old = read(spark, root, tag="then").alias("old")
    assert names(new.join(old, "name", "left_anti")) == ["Cid"]


def test_a_frame_stays_what_it_was_when_it_was_made_also_joined_with_itself(spark: SparkSession, root: str) -> None:
    add(root, "Ann")
    frame = read(spark, root)
    add(root, "Bob")
    assert frame.alias("a").crossJoin(frame.alias("b")).count() == 1
    assert names(read(spark, root)) == ["Ann", "Bob"]


def test_a_frame_with_a_schema_of_the_callers_own_stays_what_it_was_when_it_was_first_used(
    spark: SparkSession, root: str
) -> None:
    add(root, "Ann")
    frame = spark.read.format("omnigraph").option("type", "Person").schema("name string").load(root)
    assert names(frame) == ["Ann"]
    add(root, "Bob")
    assert names(frame) == ["Ann"]
    assert frame.alias("a").crossJoin(frame.alias("b")).count() == 1


def test_a_type_without_rows_is_read_as_no_rows_with_its_columns(spark: SparkSession, root: str) -> None:
    frame = read(spark, root, type="Knows")
    assert frame.columns == ["id", "src", "dst", "since"]
    assert (frame.count(), frame.collect()) == (0, [])
    named = spark.read.format("omnigraph").option("table", "edge:Knows").load(root)
    assert named.columns == frame.columns


def test_columns_and_filter_are_what_lance_reads(spark: SparkSession, root: str) -> None:
    add(root, *(f"p{number:03}" for number in range(200)))
    frame = read(spark, root, columns="age,name", filter="age >= 150 OR age = 3")
    assert frame.columns == ["age", "name"]
    assert frame.count() == 51
    assert names(frame.where("age < 100")) == ["p003"]
    assert read(spark, root, _limit="7").count() == 7


def test_many_fragments_are_divided_between_tasks_and_read_once_each(spark: SparkSession, root: str) -> None:
    for number in range(6):
        with og.open(root).transaction() as tx:
            rows = [{"name": f"{number}-{i}", "city": "x" * 100} for i in range(30_000)]
            tx.append("Person", rows)
    frame = read(spark, root)
    assert frame.rdd.getNumPartitions() > 1
    assert frame.count() == frame.select("id").distinct().count() == 180_000


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        ({"type": "Persn"}, "TYPE_NOT_FOUND", "Person"),
        ({"brnach": "main"}, "INVALID_OPTION", "did you mean 'branch'"),
        ({"branch": "nowhere"}, "BRANCH_NOT_FOUND", "nowhere"),
        ({"filter": "agee > 3"}, "INVALID_OPTION", "agee"),
        ({"columns": "nam"}, "INVALID_OPTION", "name"),
        ({"operation": "upsert"}, "INVALID_OPTION", "writing"),
    ],
)
def test_what_is_wrong_reaches_the_caller_with_our_code(
    spark: SparkSession, root: str, options: dict[str, str], code: str, says: str
) -> None:
    with pytest.raises(AnalysisException) as caught:
        read(spark, root, **options).collect()
    assert f"[{code}] " in str(caught.value)
    assert says in str(caught.value)


def test_a_schema_of_the_callers_own_reads_those_columns_and_must_be_right(spark: SparkSession, root: str) -> None:
    add(root, "Ann")
    frame = spark.read.format("omnigraph").option("type", "Person").schema("age int, id string").load(root)
    assert [tuple(row) for row in frame.collect()] == [(0, "Ann")]
    with pytest.raises(AnalysisException, match=r"INVALID_OPTION.* is int, but the schema says bigint"):
        spark.read.format("omnigraph").option("type", "Person").schema("age bigint").load(root).collect()


def test_secrets_in_storage_options_are_not_shown(spark: SparkSession, root: str) -> None:
    secret = "do-not-show-me-0123"
    with pytest.raises(AnalysisException) as caught:
        read(spark, root, **{"storage.aws_secret_access_key": secret, "storage.aws_access_key_id": "key"})
    assert "INVALID_OPTION" in str(caught.value)
    assert secret not in str(caught.value)
