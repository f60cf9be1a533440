"""The paths of the SQL catalog; a path's first line is a row of the table in docs/guides/spark.md."""

from tests.spark.core_kit import PEOPLE, Here, ages, refusal


def catalog(here: Here) -> None:
    """SQL: SELECT, SHOW, DESCRIBE, branches as namespaces."""
    sql = here.catalog(here.graph(*PEOPLE))
    assert sql("SELECT name, age, city FROM og.main.Person") == sorted(PEOPLE, key=repr)
    assert sql("SELECT count(*) FROM og.main.Person") == [(4,)]
    assert [row[1] for row in sql("SHOW TABLES IN og.main")] == ["Knows", "Person", "Thing"]
    assert ("age", "int", None) in sql("DESCRIBE og.main.Person")
    sql("CREATE NAMESPACE og.`a/b`")
    assert sql("SELECT count(*) FROM og.`a/b`.Person") == [(4,)]
    sql("DROP NAMESPACE og.`a/b`")
    assert [branch.name for branch in sql.graph.branches.list()] == ["main"]


def time_travel(here: Here) -> None:
    """SQL: VERSION AS OF, TIMESTAMP AS OF."""
    graph = here.graph(*PEOPLE)
    second = graph.snapshot().commit
    graph.tags.create("second", at="main")
    with graph.transaction() as tx:
        tx.append("Person", [{"name": "Eve"}])
    sql = here.catalog(graph)
    moment = second.created_at.isoformat(sep=" ").replace("+00:00", "Z")
    for past in ("VERSION AS OF 2", "VERSION AS OF 'second'", "TIMESTAMP AS OF '" + moment + "'"):
        assert sql("SELECT count(*) FROM og.main.Person " + past) == [(4,)], past
    new = "SELECT new.name FROM og.main.Person new LEFT ANTI JOIN og.main.Person VERSION AS OF 2 old ON new.id = old.id"
    assert sql(new) == [("Eve",)]


def pushdown(here: Here) -> None:
    """SQL: columns, filters and limits reach storage."""
    sql = here.catalog(here.graph(*PEOPLE))
    query = "SELECT name FROM og.main.Person WHERE age < 30 OR city = 'Rome' LIMIT 2"
    ((plan,),) = sql("EXPLAIN " + query)
    assert 'filter ["AND",["OR",["<","age",30],["=","city","Rome"]]], limit 2' in plan, plan
    assert f"BatchScan {sql.name}.main.Person[name#" in plan, plan
    assert len(sql(query)) == 2


def inserts(here: Here) -> None:
    """SQL: INSERT INTO, INSERT OVERWRITE and `writeTo`, with all columns."""
    sql = here.catalog(here.graph(*PEOPLE))
    sql("INSERT INTO og.main.Person VALUES (NULL, 'Eve', 3, NULL)")
    full = here.people(("Fay", 4)).selectExpr("'Fay' AS id", "name", "age", "CAST(NULL AS STRING) AS city")
    full.writeTo(sql.name + ".main.Person").option("actor", "etl").append()
    assert sql.graph.log(limit=1)[0].actor == "etl"
    sql("INSERT OVERWRITE og.main.Person SELECT * FROM og.main.Person WHERE age < 10")
    assert ages(sql.graph) == {"Eve": 3, "Fay": 4}
    assert sql.graph.refresh().version == 5


def partial_inserts(here: Here) -> None:
    """SQL: INSERT INTO that leaves columns out."""
    sql = here.catalog(here.graph(*PEOPLE[:1]))
    sql("INSERT INTO og.main.Person (name) VALUES ('Eve')")
    assert ages(sql.graph) == {"Ann": 41, "Eve": None}


def changes(here: Here) -> None:
    """SQL: DELETE, UPDATE, MERGE INTO."""
    sql = here.catalog(here.graph(*PEOPLE))
    sql("DELETE FROM og.main.Person WHERE name = 'Dan'")
    sql("UPDATE og.main.Person SET age = age + 1 WHERE length(city) = 4 AND age IS NOT NULL")
    assert ages(sql.graph) == {"Ann": 42, "Bob": 18, "Cyd": None}
    sql("DELETE FROM og.main.Person WHERE length(name) + age > 40")
    sql("""
        MERGE INTO og.main.Person t
        USING (SELECT * FROM VALUES ('Bob', 0), ('Cyd', 2), ('Eve', 3) AS v(name, age)) s ON t.name = s.name
        WHEN MATCHED AND s.age = 0 THEN DELETE
        WHEN MATCHED THEN UPDATE SET age = s.age
        WHEN NOT MATCHED THEN INSERT (name, age) VALUES (s.name, s.age)
    """)
    assert ages(sql.graph) == {"Cyd": 2, "Eve": 3}
    assert sql.graph.refresh().version == 6


def sql_refusals(here: Here) -> None:
    """SQL: errors in our words."""
    sql = here.catalog(here.graph(*PEOPLE))
    exists = str(refusal(lambda: sql("INSERT INTO og.main.Person VALUES (NULL, 'Ann', 1, NULL)")))
    assert "[INVALID_DATA] " in exists, exists
    assert "exist already: 'Ann'" in exists, exists
    assert "Traceback" not in exists, exists
    assert "[COMMIT_NOT_FOUND] " in str(refusal(lambda: sql("SELECT * FROM og.main.Person VERSION AS OF 99")))
    renamed = str(refusal(lambda: sql("UPDATE og.main.Person SET id = 'x' WHERE name = 'Ann'")))
    assert "[INVALID_DATA] " in renamed, renamed
    assert sql.graph.refresh().version == 2
