"""DELETE, UPDATE and MERGE INTO: one commit, only the rows that change, or nothing."""

from typing import Any

import pytest
from pyspark.errors import IllegalArgumentException, PySparkException
from pyspark.sql import functions as f
from tests.plain_tables import plain
from tests.spark.sql_kit import PEOPLE, Sql, sql

import omnigraph as og

__all__ = ["sql"]


def people(sql: Sql) -> dict[str, tuple[Any, ...]]:
    return {row["name"]: (row["age"], row["city"]) for row in sql.graph.snapshot("main").read("Person").to_pylist()}


def receipt(sql: Sql, table: str = "node:Person") -> dict[str, int]:
    counts = sql.graph.log(limit=1)[0].metrics[table]
    return {name: counts["rows_" + name] for name in ("inserted", "updated", "deleted")}


AS_IT_WAS = {name: (age, city) for name, age, city in PEOPLE}


# -- DELETE -----------------------------------------------------------------------------------------------


def test_a_plain_delete_runs_no_job_and_takes_edges_along(sql: Sql) -> None:
    tracker = sql.spark.sparkContext.statusTracker()
    before = set(tracker.getJobIdsForGroup(None))
    sql("DELETE FROM og.main.Person WHERE name = 'Ann' OR age > 60")
    assert set(tracker.getJobIdsForGroup(None)) == before
    assert sorted(people(sql)) == ["Bob", "Cyd"]
    assert receipt(sql) == {"inserted": 0, "updated": 0, "deleted": 2}
    assert receipt(sql, "edge:Knows")["deleted"] == 1
    assert sql.version == 3


def test_a_delete_that_only_spark_understands_goes_row_by_row(sql: Sql) -> None:
    sql("DELETE FROM og.main.Person WHERE length(name) + age > 50 OR name IN (SELECT src FROM og.main.Knows)")
    assert sorted(people(sql)) == ["Cyd"]
    assert receipt(sql)["deleted"] == 3
    assert sql.graph.snapshot("main").count("Knows") == 0
    assert sql.version == 3


def test_a_delete_without_a_condition_empties_the_type(sql: Sql) -> None:
    sql("DELETE FROM og.main.Person")
    assert people(sql) == {}
    assert sql.graph.snapshot("main").count("Knows") == 0


@pytest.mark.parametrize("condition", ["name = 'Nobody'", "length(name) > 100", "age IS NULL AND age > 3"])
def test_a_delete_that_finds_nothing_makes_no_commit(sql: Sql, condition: str) -> None:
    sql("DELETE FROM og.main.Person WHERE " + condition)
    assert people(sql) == AS_IT_WAS
    assert sql.version == 2


# -- UPDATE -----------------------------------------------------------------------------------------------


def test_an_update_changes_the_rows_it_names(sql: Sql) -> None:
    sql("UPDATE og.main.Person SET age = age + 1, city = upper(city) WHERE city = 'Rome'")
    assert people(sql) == AS_IT_WAS | {"Ann": (42, "ROME"), "Cyd": (None, "ROME")}
    assert receipt(sql) == {"inserted": 0, "updated": 2, "deleted": 0}


def test_an_update_can_not_change_an_id(sql: Sql) -> None:
    with pytest.raises(IllegalArgumentException, match=r"^\[INVALID_DATA\] .*would get another id \('Ann'\)"):
        sql("UPDATE og.main.Person SET id = 'Anna' WHERE name = 'Ann'")
    with pytest.raises(IllegalArgumentException, match=r"^\[INVALID_DATA\] .*'id' differs from the key"):
        sql("UPDATE og.main.Person SET name = 'Anna' WHERE name = 'Ann'")
    assert sql.version == 2


def test_an_update_that_breaks_a_rule_changes_nothing(sql: Sql) -> None:
    with pytest.raises(IllegalArgumentException, match=r"^\[CONSTRAINT_VIOLATED\] .*to an existing Person: 2"):
        sql("UPDATE og.main.Knows SET dst = concat(dst, '!')")
    assert sql.version == 2


def test_options_of_a_write_reach_the_commit_of_a_change(sql: Sql) -> None:
    sql.spark.conf.set(f"spark.sql.catalog.{sql.name}b", "omnigraph.spark.OmniCatalog")
    sql.spark.conf.set(f"spark.sql.catalog.{sql.name}b.root", sql.graph.root)
    sql.spark.conf.set(f"spark.sql.catalog.{sql.name}b.actor", "ann@desk")
    sql.spark.sql(f"UPDATE {sql.name}b.main.Person SET age = 1 WHERE length(name) = 3")
    sql.spark.sql(f"DELETE FROM {sql.name}b.main.Person WHERE age = 1")
    assert [commit.actor for commit in sql.graph.log(limit=2)] == ["ann@desk", "ann@desk"]


# -- MERGE INTO -------------------------------------------------------------------------------------------


def test_a_merge_deletes_updates_and_inserts_in_one_commit(sql: Sql) -> None:
    sql("""
        MERGE INTO og.main.Person t
        USING (SELECT * FROM VALUES ('Ann', 1), ('Bob', 2), ('Eve', 3) AS v(name, age)) s ON t.name = s.name
        WHEN MATCHED AND s.age = 1 THEN DELETE
        WHEN MATCHED THEN UPDATE SET age = s.age
        WHEN NOT MATCHED THEN INSERT (name, age) VALUES (s.name, s.age)
        WHEN NOT MATCHED BY SOURCE AND t.city IS NULL THEN DELETE
    """)
    assert people(sql) == {"Bob": (2, "Oslo"), "Cyd": (None, "Rome"), "Eve": (3, None)}
    assert receipt(sql) == {"inserted": 1, "updated": 1, "deleted": 2}
    assert receipt(sql, "edge:Knows")["deleted"] == 1
    assert sql.version == 3
    assert sql.graph.snapshot("main").entity("Person", "Eve") == {"id": "Eve", "name": "Eve", "age": 3, "city": None}


def test_a_merge_that_inserts_what_is_there_is_refused_whole(sql: Sql) -> None:
    with pytest.raises(IllegalArgumentException, match=r"^\[INVALID_DATA\] .*exist already: 'Bob'"):
        sql("""
            MERGE INTO og.main.Person t USING (SELECT * FROM VALUES ('Ann', ''), ('Zed', 'Bob') AS v(old, name)) s
            ON t.name = s.old
            WHEN MATCHED THEN DELETE
            WHEN NOT MATCHED THEN INSERT (name) VALUES (s.name)
        """)
    assert sql.version == 2
    assert people(sql) == AS_IT_WAS


def test_a_merge_with_two_sources_for_one_row_is_refused(sql: Sql) -> None:
    with pytest.raises(PySparkException, match="MERGE_CARDINALITY_VIOLATION"):
        sql("""
            MERGE INTO og.main.Person t USING (SELECT * FROM VALUES ('Ann', 1), ('Ann', 2) AS v(name, age)) s
            ON t.name = s.name
            WHEN MATCHED THEN UPDATE SET age = s.age
        """)
    assert sql.version == 2


def test_a_merge_that_strands_edges_through_a_rule_is_refused_whole(sql: Sql) -> None:
    with pytest.raises(IllegalArgumentException, match=r"^\[CONSTRAINT_VIOLATED\] "):
        sql("""
            MERGE INTO og.main.Knows t USING (SELECT * FROM VALUES ('Ann', 'Ghost'), ('Cyd', 'Ann') AS v(src, dst)) s
            ON t.src = s.src
            WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (src, dst) VALUES (s.dst, 'Ghost')
        """)
    assert sql.version == 2


# -- many rows, many partitions, many files ---------------------------------------------------------------


@pytest.fixture
def crowded(sql: Sql) -> Sql:
    """Eight files of a thousand people each, beside the four."""
    for part in range(8):
        with sql.graph.transaction() as tx:
            rows = [{"name": f"p{part}-{n}", "age": n, "city": f"c{part}"} for n in range(1_000)]
            tx.append("Person", rows)
    return sql


def files(graph: og.Graph) -> dict[int, tuple[str, int]]:
    """Return a table's fragments: the file of each, and how many of its rows are deleted."""
    snapshot = graph.snapshot("main")
    kind = snapshot.catalog.table_type("Person")
    pin = snapshot.commit.pins[kind.table_id]
    dataset = plain(graph.root, f"nodes/{kind.table_id}", pin.lance_version)
    return {
        f.fragment_id: (str(f.metadata.files[0].path), int(f.metadata.num_deletions)) for f in dataset.get_fragments()
    }


def test_an_update_touches_only_the_files_its_rows_are_in(crowded: Sql) -> None:
    before = files(crowded.graph)
    crowded("UPDATE og.main.Person SET age = age + 10000 WHERE city = 'c3' AND age % 10 = 0")
    after = files(crowded.graph)
    touched = [number for number in before if after.get(number) != before[number]]
    assert len(touched) == 1
    assert after[touched[0]] == (before[touched[0]][0], 100)  # the same file, with a hundred rows taken out
    assert receipt(crowded) == {"inserted": 0, "updated": 100, "deleted": 0}
    assert crowded.rows("SELECT count(*), min(age) FROM og.main.Person WHERE age >= 10000") == [(100, 10000)]


def test_a_merge_over_many_partitions_does_what_it_says_to_every_row(crowded: Sql) -> None:
    source = crowded.spark.range(0, 2_000, 1, 16).select(
        f.concat(f.lit("p"), f.col("id") % 10, f.lit("-"), (f.col("id") / 10).cast("int")).alias("name"),
        f.col("id").cast("int").alias("n"),
    )
    source.createOrReplaceTempView("source_of_changes")
    crowded.spark.conf.set("spark.sql.shuffle.partitions", "7")
    try:
        crowded("""
            MERGE INTO og.main.Person t USING source_of_changes s ON t.name = s.name
            WHEN MATCHED AND s.n % 4 = 0 THEN DELETE
            WHEN MATCHED THEN UPDATE SET age = -s.n
            WHEN NOT MATCHED THEN INSERT (name, age, city) VALUES (s.name, s.n, 'new')
        """)
    finally:
        crowded.spark.conf.set("spark.sql.shuffle.partitions", "2")
    expected = AS_IT_WAS | {f"p{p}-{n}": (n, f"c{p}") for p in range(8) for n in range(1_000)}
    for n in range(2_000):
        name = f"p{n % 10}-{n // 10}"
        if name not in expected:
            expected[name] = (n, "new")
        elif n % 4 == 0:
            del expected[name]
        else:
            expected[name] = (-n, expected[name][1])
    assert people(crowded) == expected
    deleted = sum(n % 4 == 0 for n in range(2_000) if n % 10 < 8)
    assert receipt(crowded) == {"inserted": 400, "updated": 1_600 - deleted, "deleted": deleted}
    assert crowded.version == 11


def test_a_deletion_of_most_rows_leaves_their_files_as_they_are(crowded: Sql) -> None:
    before = files(crowded.graph)
    crowded("DELETE FROM og.main.Person WHERE age % 2 = 1")
    after = files(crowded.graph)
    assert {number: name for number, (name, _) in after.items()} == {n: name for n, (name, _) in before.items()}
    assert sum(gone for _, gone in after.values()) == 8 * 500 + 3  # Ann, Bob and Dan are of odd age


# -- others write too -------------------------------------------------------------------------------------


def test_a_change_made_from_what_is_no_longer_there_is_a_conflict(sql: Sql) -> None:
    graph = sql.graph

    def meddle(name: str) -> str:
        # Runs in the job that makes the change: between its read and its commit.
        handle = og.open(root)
        if handle.snapshot("main").entity("Person", "Meddler") is None:
            with handle.transaction() as tx:
                tx.append("Person", [{"name": "Meddler"}])
        return name

    root = graph.root
    sql.spark.udf.register("meddle", meddle)
    with pytest.raises(IllegalArgumentException, match=r"^\[VERSION_CONFLICT\] node:Person is at version 2, but"):
        sql("UPDATE og.main.Person SET age = 0 WHERE meddle(name) = 'Ann'")
    assert people(sql) == AS_IT_WAS | {"Meddler": (None, None)}


def test_a_change_lands_beside_a_write_to_another_type(sql: Sql) -> None:
    root = sql.graph.root

    def meddle(name: str) -> str:
        handle = og.open(root)
        if handle.snapshot("main").count("Thing") == 0:
            with handle.transaction() as tx:
                tx.append("Thing", [{"id": "one"}])
        return name

    sql.spark.udf.register("meddle_elsewhere", meddle)
    sql("UPDATE og.main.Person SET age = 0 WHERE meddle_elsewhere(name) = 'Ann'")
    assert people(sql)["Ann"] == (0, "Rome")
    assert sql.graph.snapshot("main").count("Thing") == 1
