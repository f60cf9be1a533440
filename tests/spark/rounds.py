"""Two applications that write the same table at the same time, round by round.

Both meet before every round, so that all writes of a round race. What a round writes follows from its number, so that
whoever reads the log can tell what must be there.
"""

from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path
from typing import TypeAlias

from pyspark.sql import DataFrame, SparkSession
from tests.spark.applications import wait_until

from pyspark_omnigraph import SparkGraph

ONE, TWO = "one", "two"
ROUNDS = 4
ROWS = 10

Ages: TypeAlias = dict[str, int]
Edges: TypeAlias = dict[tuple[str, str], int]


def is_shared(number: int) -> bool:
    """Tell whether both replace the same people in this round; in the others each adds its own."""
    return number % 2 == 1


def ages_of(who: str, number: int) -> Ages:
    """Return the people that an application writes in a round."""
    names = [f"shared-{row}" if is_shared(number) else f"{who}-{number}-{row}" for row in range(ROWS)]
    return dict.fromkeys(names, 10 * number + (who == TWO))


def edges_of(who: str, number: int) -> Edges:
    """Return the edges that an application writes in a round: only the second one writes edges."""
    names = list(ages_of(who, number)) if who == TWO else []
    return dict.fromkeys(pairwise(names), number)


def message_of(who: str, number: int) -> str:
    """Return what the commit says."""
    return f"{who} {number}"


def take_part(
    spark: SparkSession, root: str | Path, meeting: Path, who: str, may_be: Callable[[], bool] = lambda: True
) -> None:
    """Write all rounds of one application; every write must succeed."""
    other = TWO if who == ONE else ONE
    for number in range(ROUNDS):
        (meeting / f"{who}-{number}").touch()
        wait_until((meeting / f"{other}-{number}").exists, f"{other} in round {number}", may_be)
        if who == ONE:
            _write_one_table(spark, root, number)
        else:
            _write_two_tables(spark, root, number)


def _write_one_table(spark: SparkSession, root: str | Path, number: int) -> None:
    operation = "upsert" if is_shared(number) else "insert"
    options = {"type": "Person", "operation": operation, "message": message_of(ONE, number), "actor": ONE}
    _people(spark, ONE, number).write.format("omnigraph").mode("append").options(**options).save(str(root))


def _write_two_tables(spark: SparkSession, root: str | Path, number: int) -> None:
    graph = SparkGraph.for_path(spark, root, actor=TWO)
    with graph.transaction(message=message_of(TWO, number)) as tx:
        write = tx.upsert if is_shared(number) else tx.append
        write("Person", _people(spark, TWO, number))
        edges = [(start, end, since) for (start, end), since in edges_of(TWO, number).items()]
        write("Knows", _frame(spark, edges, "src string, dst string, since int"))


def _people(spark: SparkSession, who: str, number: int) -> DataFrame:
    return _frame(spark, ages_of(who, number).items(), "name string, age int")


def _frame(spark: SparkSession, rows: Iterable[tuple[object, ...]], columns: str) -> DataFrame:
    return spark.createDataFrame(list(rows), columns).repartition(2)
