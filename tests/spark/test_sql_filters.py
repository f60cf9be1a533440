"""Filters find the same rows whether storage answers them or Spark does; a value in them is never more than a value."""

import math
from datetime import UTC, date, datetime
from typing import Any

import pytest
from pyspark.errors import AnalysisException, ParseException
from tests.spark.sql_kit import Sql, sql

__all__ = ["sql"]

AWKWARD = [
    "",
    "plain",
    "O'Brien",
    "back\\slash",
    'quo"te',
    "tick`s",
    "per%cent_",
    "ünïcödé",
    "日本",
    "a\nb",
    "x' OR '1'='1",
]
LOOKS_AGAIN = ") Filter "
MOMENT = datetime(2020, 2, 29, 12, 30, 0, 123456, tzinfo=UTC)


def things() -> list[dict[str, Any]]:
    """Rows in which every column has every awkward value it can have, and null."""
    rows: list[dict[str, Any]] = [{"id": f"t{n}", "text": text} for n, text in enumerate(AWKWARD)]
    ratios = [0.0, -0.0, 1.5, -1.5, math.nan, math.inf, -math.inf, 1e308, 5e-324]
    rows += [{"id": f"f{n}", "ratio": ratio, "single": 1.5 if n % 2 else math.nan} for n, ratio in enumerate(ratios)]
    rows += [{"id": f"i{n}", "small": n, "big": n * 2**40} for n in (-2, -1, 0, 1, 2)]
    rows += [{"id": "imin", "small": -(2**31), "big": -(2**63)}, {"id": "imax", "small": 2**31 - 1, "big": 2**63 - 1}]
    rows += [{"id": "b1", "flag": True, "kind": "red"}, {"id": "b2", "flag": False, "kind": "green"}]
    rows += [{"id": "d1", "day": date(1969, 12, 31)}, {"id": "d2", "day": date(2020, 2, 29)}]
    rows += [{"id": "m1", "at": MOMENT}, {"id": "m2", "at": datetime(1960, 1, 1, tzinfo=UTC)}]
    rows += [{"id": "w1", "word": 7}, {"id": "w2", "word": 2**32 - 1}, {"id": "l1", "tags": ["a", "b"]}]
    return rows


@pytest.fixture
def stocked(sql: Sql) -> Sql:
    with sql.graph.transaction() as tx:
        tx.append("Thing", things())
    return sql


PUSHED = [
    "text LIKE 'per%'",
    "text = 'plain'",
    "text = ''",
    "text = 'O\\'Brien'",
    "text = 'back\\\\slash'",
    "text = 'quo\"te'",
    "text = 'tick`s'",
    "text = 'ünïcödé'",
    "text = '日本'",
    "text = 'a\\nb'",
    "text <> 'plain'",
    "text < 'p'",
    "text >= 'z'",
    "text <=> 'plain'",
    "NOT (text <=> 'plain')",
    "text IN ('plain', '日本', 'nothing')",
    "text NOT IN ('plain', '日本')",
    "startswith(text, 'O\\'')",
    "contains(text, '`')",
    "NOT contains(text, '%')",
    "text IS NULL",
    "text IS NOT NULL AND small IS NULL",
    "small = -1",
    "small <> 0",
    "small > -2147483648",
    "small <= -2147483648",
    "small BETWEEN -1 AND 1",
    "NOT (small BETWEEN -1 AND 1)",
    "big = 9223372036854775807",
    "big < -1099511627776",
    "big IN (0, 1099511627776, -9223372036854775808)",
    "flag",
    "NOT flag",
    "flag = false",
    "flag IS NULL AND id LIKE 'i%'",
    "day = DATE '2020-02-29'",
    "day < DATE '1970-01-01'",
    "at = TIMESTAMP '2020-02-29 12:30:00.123456Z'",
    "at < TIMESTAMP '1970-01-01 00:00:00Z'",
    "at > TIMESTAMP '2020-02-29 12:30:00.123455Z'",
    "kind = 'red'",
    "kind IN ('red', 'green') AND NOT (flag AND kind = 'red')",
    "(small = 1 OR text = 'plain') AND NOT (big = 0)",
    "NOT (small = 1 AND (text = 'plain' OR big > 0))",
    "id = 't3' OR id = 't4' OR id = 't5' OR id = 't6'",
]
WEAK = [
    "ratio = 0.0D",
    "ratio = -0.0D",
    "ratio > 0.0D",
    "ratio > -0.0D",
    "ratio >= 0.0D",
    "ratio < 0.0D",
    "ratio <= -0.0D",
    "ratio = 1.5D",
    "ratio > 1e300D",
    "ratio < -1e300D",
    "ratio >= double('Infinity')",
    "single > float(1.0)",
    "single = float(1.5)",
]
NOT_PUSHED = [
    "text LIKE 'per\\%%'",
    "text LIKE '%''%' OR text LIKE '%\\\\\\\\%'",
    "ratio = double('NaN')",
    "ratio <> 1.5D",
    "NOT (ratio > 1.0D)",
    "ratio IN (0.0D, 1.5D)",
    "isnan(single)",
    "word = 7",
    "word > 100",
    "text LIKE '%en'",
    "lower(text) = 'plain'",
    "length(text) > 5",
    "try_add(small, 1) = 2",
    "small = big",
    "text IN ('plain', NULL)",
    "size(tags) = 2",
    "array_contains(tags, 'a')",
    "tags IS NULL AND id LIKE 'l%'",
    "ratio > 0 OR small = 1",
]


def found_by_catalog(stocked: Sql, predicate: str) -> list[tuple[Any, ...]]:
    return stocked.rows("SELECT id FROM og.main.Thing WHERE " + predicate)


def test_pushed_filters_find_what_spark_finds(stocked: Sql) -> None:
    local = stocked("SELECT * FROM og.main.Thing").localCheckpoint()
    for predicate in PUSHED + WEAK + NOT_PUSHED:
        expected = sorted((row["id"],) for row in local.filter(predicate).select("id").collect())
        assert found_by_catalog(stocked, predicate) == expected, predicate


@pytest.mark.parametrize(("predicates", "again"), [(PUSHED, False), (WEAK, True)], ids=["exact", "weak"])
def test_filters_reach_storage_and_spark_looks_again_where_it_must(
    stocked: Sql, predicates: list[str], again: bool
) -> None:
    for predicate in predicates:
        plan = stocked.plan("SELECT id FROM og.main.Thing WHERE " + predicate)
        assert 'filter ["AND",[' in plan, predicate
        assert (LOOKS_AGAIN in plan) == again, predicate


def test_filters_that_are_not_surely_the_same_stay_with_spark(stocked: Sql) -> None:
    for predicate in NOT_PUSHED:
        assert LOOKS_AGAIN in stocked.plan("SELECT id FROM og.main.Thing WHERE " + predicate), predicate


def test_long_and_deep_filters_stay_with_spark(stocked: Sql) -> None:
    long = " OR ".join(f"(small = {n} AND text = 'x{n}')" for n in range(40))
    assert LOOKS_AGAIN in stocked.plan("SELECT id FROM og.main.Thing WHERE " + long)
    assert found_by_catalog(stocked, "small = 1 OR " + long) == [("i1",)]
    many = "text IN (" + ", ".join(f"'v{n}'" for n in range(2_000)) + ", 'plain')"
    assert found_by_catalog(stocked, many) == [("t1",)]


ATTACKS = [
    "x' OR '1'='1",
    "'; DROP TABLE Person; --",
    "plain') OR (1=1",
    "`id` = 't1'",
    '"]],["=","id","t1',
    "\\') OR true --",
    "${env:HOME}",
]


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_value_is_never_more_than_a_value(stocked: Sql, attack: str) -> None:
    frame = stocked("SELECT id FROM og.main.Thing")
    found = stocked.spark.sql(f"SELECT text FROM {stocked.name}.main.Thing WHERE text = :value", args={"value": attack})
    assert [row[0] for row in found.collect()] == [text for text in AWKWARD if text == attack]
    stocked.spark.sql(f"DELETE FROM {stocked.name}.main.Thing WHERE text = :value", args={"value": attack})
    assert frame.count() in (len(things()), len(things()) - 1)
    assert stocked.graph.snapshot("main").count("Thing") == len(things()) - AWKWARD.count(attack)


@pytest.mark.parametrize("name", ["main` OR 1=1 --", "main/../main", "'main'", "main;x"])
def test_a_name_is_never_more_than_a_name(sql: Sql, name: str) -> None:
    quoted = "`" + name.replace("`", "``") + "`"
    with pytest.raises((AnalysisException, ParseException)):
        sql.spark.sql(f"SELECT * FROM {sql.name}.{quoted}.Person")
    with pytest.raises(Exception, match=r"\[INVALID_NAME\]"):
        sql.spark.sql(f"CREATE NAMESPACE {sql.name}.{quoted}")
