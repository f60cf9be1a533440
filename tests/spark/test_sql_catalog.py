"""A graph in SQL: branches are namespaces, types are tables, and what is read is one commit."""

from collections.abc import Callable

import pytest
from pyspark.errors import AnalysisException, IllegalArgumentException, UnsupportedOperationException
from pyspark.sql import Row, SparkSession
from pyspark.sql.functions import lit
from tests.spark.sql_kit import PEOPLE, Sql, sql

import omnigraph as og
from omnigraph.errors import InvalidOptionError
from omnigraph.testing.s3_server import SeaweedServer
from pyspark_omnigraph import SparkGraph, configure, register_function

__all__ = ["sql"]


# -- what is there ----------------------------------------------------------------------------------------


def test_namespaces_are_branches_and_tables_are_types(sql: Sql) -> None:
    sql.graph.branches.create("feature/x.1")
    assert sql.rows(f"SHOW NAMESPACES IN {sql.name}") == [("`feature/x.1`",), ("main",)]
    assert [row[1] for row in sql.rows("SHOW TABLES IN og.main")] == ["Knows", "Person", "Thing"]
    assert [row[1] for row in sql.rows("SHOW TABLES IN og.`feature/x.1`")] == ["Knows", "Person", "Thing"]


def test_describe_names_columns_and_where_the_table_stands(sql: Sql) -> None:
    described = {row[0]: row[1] for row in sql("DESCRIBE EXTENDED og.main.Person").collect()}
    assert described["id"] == "string"
    assert described["age"] == "int"
    assert "omnigraph.version=2" in described["Table Properties"]
    told = {row[0]: row[1] for row in sql("DESCRIBE NAMESPACE EXTENDED og.main").collect()}
    assert sql.graph.snapshot("main").commit.id in str(told)


def test_a_branch_is_created_used_and_dropped_by_sql(sql: Sql) -> None:
    sql("CREATE NAMESPACE og.`a/b`")
    sql("CREATE NAMESPACE IF NOT EXISTS og.`a/b`")
    with pytest.raises(AnalysisException, match="SCHEMA_ALREADY_EXISTS"):
        sql("CREATE NAMESPACE og.`a/b`")
    sql("INSERT INTO og.`a/b`.Person (name) VALUES ('Eve')")
    assert sql.rows("SELECT count(*) FROM og.`a/b`.Person") == [(5,)]
    assert sql.rows("SELECT count(*) FROM og.main.Person") == [(4,)]
    with pytest.raises(IllegalArgumentException, match=r"\[INVALID_OPTION\] branch 'a/b' has commits of its own"):
        sql("DROP NAMESPACE og.`a/b`")
    sql("DROP NAMESPACE og.`a/b` CASCADE")
    assert sql.rows(f"SHOW NAMESPACES IN {sql.name}") == [("main",)]


def test_a_branch_begins_where_its_creator_says(sql: Sql) -> None:
    sql.graph.tags.create("early", at="main")
    sql("DELETE FROM og.main.Person WHERE name = 'Ann'")
    sql("CREATE NAMESPACE og.old WITH DBPROPERTIES ('from' = 'early')")
    assert sql.rows("SELECT count(*) FROM og.old.Person") == [(4,)]
    with pytest.raises(IllegalArgumentException, match=r"\[INVALID_OPTION\] a branch has no property 'colour'"):
        sql("CREATE NAMESPACE og.other WITH DBPROPERTIES ('colour' = 'red')")


def test_use_makes_a_branch_the_one_that_is_meant(sql: Sql) -> None:
    before = sql.spark.catalog.currentCatalog(), sql.spark.catalog.currentDatabase()
    try:
        sql.spark.sql(f"USE {sql.name}")
        assert sql.rows("SELECT count(*) FROM Person") == [(4,)]
        with pytest.raises(AnalysisException, match="SCHEMA_NOT_FOUND"):
            sql.spark.sql(f"USE {sql.name}.nowhere")
    finally:
        sql.spark.catalog.setCurrentCatalog(before[0])
        sql.spark.catalog.setCurrentDatabase(before[1])


@pytest.mark.parametrize("table", ["og.main.Persn", "og.nowhere.Person", "og.a.b.Person"])
def test_what_is_not_there_is_a_table_not_found(sql: Sql, table: str) -> None:
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        sql("SELECT * FROM " + table)


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE og.main.New (a INT)",
        "ALTER TABLE og.main.Person ADD COLUMN x INT",
        "DROP TABLE og.main.Person",
        "ALTER TABLE og.main.Person RENAME TO og.main.People",
    ],
)
def test_types_are_changed_by_the_schema_and_by_nothing_else(sql: Sql, statement: str) -> None:
    with pytest.raises(UnsupportedOperationException, match=r"\[INVALID_OPTION\].* those of its schema"):
        sql(statement)
    assert sql.version == 2


def test_a_name_stands_for_one_graph_in_a_session(sql: Sql) -> None:
    configure(sql.spark, sql.graph.root, name=sql.name)
    with pytest.raises(InvalidOptionError, match="choose another name"):
        configure(sql.spark, sql.graph.root + "2", name=sql.name)


# -- reading ----------------------------------------------------------------------------------------------


def test_rows_are_read_with_their_types(sql: Sql) -> None:
    assert sql.rows("SELECT name, age, city FROM og.main.Person") == sorted(PEOPLE, key=repr)
    assert sql.rows("SELECT count(*) FROM og.main.Person") == [(4,)]
    assert sql.rows("SELECT count(*) FROM og.main.Thing") == [(0,)]
    assert sql.rows("SELECT src, dst FROM og.main.Knows") == [("Ann", "Bob"), ("Bob", "Cyd")]


def test_versions_tags_commits_and_moments_can_be_read(sql: Sql) -> None:
    second = sql.graph.snapshot("main").commit
    sql.graph.tags.create("second", at="main")
    sql("INSERT INTO og.main.Person (name) VALUES ('Eve')")
    past = ["2", "'second'", f"'{second.id}'"]
    for version in past:
        assert sql.rows("SELECT count(*) FROM og.main.Person VERSION AS OF " + version) == [(4,)]
    moment = second.created_at.isoformat(sep=" ").replace("+00:00", "Z")
    assert sql.rows("SELECT count(*) FROM og.main.Person TIMESTAMP AS OF '" + moment + "'") == [(4,)]
    assert sql.rows("SELECT count(*) FROM og.main.Person") == [(5,)]
    reading = sql.spark.read.option("versionAsOf", 2).table(f"{sql.name}.main.Person")
    assert reading.count() == 4


def test_two_versions_of_a_type_are_joined(sql: Sql) -> None:
    sql("UPDATE og.main.Person SET age = age + 1 WHERE city = 'Rome'")
    changed = sql.rows(
        "SELECT new.name, old.age, new.age FROM og.main.Person new JOIN og.main.Person VERSION AS OF 2 old"
        " ON new.id = old.id WHERE NOT (new.age <=> old.age)"
    )
    assert changed == [("Ann", 41, 42)]


@pytest.mark.parametrize(
    ("version", "told"),
    [("99", r"\[COMMIT_NOT_FOUND\].*no version 99"), ("'nowhere'", r"\[INVALID_OPTION\] 'nowhere' is no version")],
)
def test_a_version_that_is_not_there_is_told_in_our_words(sql: Sql, version: str, told: str) -> None:
    with pytest.raises(IllegalArgumentException, match=told):
        sql("SELECT * FROM og.main.Person VERSION AS OF " + version)


def test_a_data_frame_reads_the_commit_it_was_made_on(sql: Sql) -> None:
    frame = sql("SELECT * FROM og.main.Person VERSION AS OF 2")
    twice = frame.alias("a").join(frame.alias("b"), "id")
    sql("DELETE FROM og.main.Person WHERE age > 0")
    assert frame.count() == 4
    assert twice.count() == 4


def test_one_statement_reads_one_commit_however_often_it_names_a_table(sql: Sql) -> None:
    counted = sql.rows("SELECT (SELECT count(*) FROM og.main.Person), count(*) FROM og.main.Person WHERE age > 20")
    assert counted == [(4, 2)]


def test_columns_filters_and_limits_reach_the_scan(sql: Sql) -> None:
    plan = sql.plan("SELECT name FROM og.main.Person WHERE age < 30 OR city = 'Rome' LIMIT 2")
    assert 'filter ["AND",["OR",["<","age",30],["=","city","Rome"]]], limit 2' in plan
    assert ") Filter " not in plan
    assert "BatchScan " + sql.name + ".main.Person[name#" in plan
    assert len(sql.rows("SELECT name FROM og.main.Person WHERE age < 30 OR city = 'Rome' LIMIT 2")) == 2


def test_filters_of_one_scan_do_not_reach_another(sql: Sql) -> None:
    frame = sql("SELECT * FROM og.main.Person")
    assert frame.filter("name = 'Ann'").count() == 1
    assert frame.count() == 4
    both = frame.filter("name = 'Ann'").union(frame.filter("name = 'Bob'"))
    assert sorted(row["name"] for row in both.collect()) == ["Ann", "Bob"]


def test_options_that_sql_has_words_for_are_refused(sql: Sql) -> None:
    with pytest.raises(IllegalArgumentException, match=r"\[INVALID_OPTION\] option 'filter'.*write WHERE"):
        sql("SELECT * FROM og.main.Person WITH (`filter` = 'age > 3')").collect()


@pytest.mark.parametrize(
    ("option", "value", "told"),
    [
        ("tag", "second", "'tag' has no place in a read by SQL"),
        ("branch", "other", "'branch' has no place"),
        ("path", "/elsewhere", "'path' has no place"),
        ("storage.secret_access_key", "hidden", "'storage.secret_access_key' has no place.*catalog is configured"),
        ("readChangeFeed", "true", "'readChangeFeed' has no place"),
        ("message", "why", "'message' is for writing only"),
        ("filtre", "x", "there is no option 'filtre'.*did you mean 'filter'"),
    ],
)
def test_options_beside_a_table_of_sql_are_refused_not_ignored(sql: Sql, option: str, value: str, told: str) -> None:
    reading = sql.spark.read.option(option, value).table(f"{sql.name}.main.Person")
    with pytest.raises(IllegalArgumentException, match=rf"(?is)\[INVALID_OPTION\] .*{told}") as refused:
        reading.collect()
    assert "hidden" not in str(refused.value)


@pytest.mark.parametrize("option", ["_filter", "_read", "_op"])
def test_words_of_the_catalog_are_refused_without_it(sql: Sql, option: str) -> None:
    reading = sql.spark.read.format("omnigraph").options(type="Person", branch="main")
    with pytest.raises(AnalysisException, match=r"INVALID_OPTION"):
        reading.option(option, "load_table").load(sql.graph.root).collect()


# -- writing ----------------------------------------------------------------------------------------------


def test_insert_adds_rows_and_derives_their_ids(sql: Sql) -> None:
    sql("INSERT INTO og.main.Person (name, age) VALUES ('Eve', 3), ('Fay', NULL)")
    sql("INSERT INTO og.main.Knows (src, dst) SELECT 'Eve', name FROM og.main.Person WHERE name = 'Fay'")
    assert sql.rows("SELECT id, age FROM og.main.Person WHERE name IN ('Eve', 'Fay')") == [("Eve", 3), ("Fay", None)]
    assert sql.graph.snapshot("main").count("Knows") == 3
    assert sql.version == 4


def test_insert_overwrite_replaces_one_type_only(sql: Sql) -> None:
    sql("INSERT OVERWRITE og.main.Knows SELECT * FROM og.main.Knows WHERE src = 'Ann'")
    assert sql.rows("SELECT src FROM og.main.Knows") == [("Ann",)]
    assert sql.graph.snapshot("main").count("Person") == 4


def test_write_to_appends_and_overwrites_with_the_options_of_a_write(sql: Sql) -> None:
    rows = sql.spark.createDataFrame([Row(name="Eve", age=3)])
    full = rows.selectExpr(
        "CAST(NULL AS STRING) AS id", "name", "CAST(age AS INT) AS age", "CAST(NULL AS STRING) AS city"
    )
    full.writeTo(f"{sql.name}.main.Person").option("actor", "etl@night").option("message", "by hand").append()
    newest = sql.graph.log(limit=1)[0]
    assert (newest.actor, newest.message) == ("etl@night", "by hand")
    sql("DELETE FROM og.main.Knows")
    full.writeTo(f"{sql.name}.main.Person").overwrite(lit(True))
    assert sql.rows("SELECT name FROM og.main.Person") == [("Eve",)]


def test_a_refused_insert_says_why_in_our_words_and_changes_nothing(sql: Sql) -> None:
    with pytest.raises(IllegalArgumentException, match=r"^\[INVALID_DATA\] .*exist already: 'Ann'") as refused:
        sql("INSERT INTO og.main.Person (name) VALUES ('Ann')")
    assert "Traceback" not in str(refused.value)
    assert "at org.apache" not in str(refused.value)
    with pytest.raises(IllegalArgumentException, match=r"^\[CONSTRAINT_VIOLATED\] "):
        sql("INSERT INTO og.main.Knows (src, dst) VALUES ('Ann', 'Nobody')")
    assert sql.version == 2


def test_a_past_version_can_not_be_written(sql: Sql) -> None:
    with pytest.raises(AnalysisException):
        sql("INSERT INTO og.main.Person VERSION AS OF 2 (name) VALUES ('Eve')")
    assert sql.version == 2


# -- secrets ----------------------------------------------------------------------------------------------


@pytest.mark.s3
def test_credentials_are_in_no_plan_and_no_error(
    spark: SparkSession, s3_server: SeaweedServer, s3_root: Callable[[], str]
) -> None:
    root, options = s3_root(), s3_server.storage_options()
    og.init(root, "node Person { name: String @key  age: I32? }", storage_options=options)
    configure(spark, root, name="far", storage_options=options)
    spark.sql("INSERT INTO far.main.Person VALUES (NULL, 'Ann', 41), (NULL, 'Bob', 17)")
    spark.sql("UPDATE far.main.Person SET age = age + 1 WHERE length(name) = 3")
    assert spark.sql("SELECT sum(age) FROM far.main.Person WHERE age > 3").first() == (60,)
    shown = [spark.sql("EXPLAIN EXTENDED SELECT * FROM far.main.Person WHERE age > 3").collect()[0][0]]
    shown += [str(spark.sql("DESCRIBE EXTENDED far.main.Person").collect())]
    shown += [spark.sql("EXPLAIN EXTENDED UPDATE far.main.Person SET age = 1 WHERE length(name) = 3").collect()[0][0]]
    with pytest.raises(IllegalArgumentException, match="exist already: 'Ann'") as refused:
        spark.sql("INSERT INTO far.main.Person VALUES (NULL, 'Ann', 41)")
    shown += [str(refused.value)]
    assert "far.main.Person" in shown[0]
    for name in ("aws_secret_access_key", "aws_access_key_id"):
        assert options[name] not in " ".join(shown)


# -- without a catalog ------------------------------------------------------------------------------------


def test_views_show_all_types_of_one_commit(sql: Sql) -> None:
    graph = SparkGraph.for_path(sql.spark, sql.graph.root)
    assert graph.create_views(version=2, prefix="old_") == ("old_Person", "old_Thing", "old_Knows")
    sql("DELETE FROM og.main.Person WHERE name = 'Ann'")
    graph.create_views(prefix="new_")
    counted = sql.rows("SELECT (SELECT count(*) FROM old_Person), (SELECT count(*) FROM new_Person)")
    assert counted == [(4, 3)]


def test_a_table_function_reads_a_type_at_a_version(sql: Sql) -> None:
    register_function(sql.spark)
    sql("INSERT INTO og.main.Person (name) VALUES ('Eve')")
    query = f"SELECT name, age FROM omnigraph('{sql.graph.root}', 'Person', version => 2)"
    assert sql.rows(query) == sorted([(name, age) for name, age, _ in PEOPLE], key=repr)
    with pytest.raises(AnalysisException, match="TYPE_NOT_FOUND"):
        sql(f"SELECT * FROM omnigraph('{sql.graph.root}', 'Persn')")
