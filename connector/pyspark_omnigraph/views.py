"""SQL where no catalog can be configured: temporary views of a graph's types, and a table function.

Some runtimes take neither jars nor settings. A view is a read of one commit, given a name: it shows what it showed when
it was made, until it is made again. The function reads a type in one task, so it is for small tables and for looking.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import omnigraph as og
from omnigraph.errors import InvalidOptionError

if TYPE_CHECKING:
    from pyspark_omnigraph.graph import SparkGraph

FUNCTION: Final = "omnigraph"


def create_views(
    graph: "SparkGraph", *, branch: str | None = None, version: int | None = None, prefix: str = ""
) -> tuple[str, ...]:
    """Make a temporary view of every type of a branch, at one commit for all of them; return their names."""
    snapshot = graph.graph.snapshot(branch, version=version)
    for key in snapshot.tables:
        graph.table(str(key), commit=snapshot.commit.id).createOrReplaceTempView(prefix + key.name)
    return tuple(prefix + key.name for key in snapshot.tables)


def register_function(spark: Any, name: str = FUNCTION) -> None:
    """Make the table function ``omnigraph(root, type, branch => …, version => …)`` known to a session."""
    from pyspark.sql.functions import udtf

    spark.udtf.register(name, udtf(GraphRows))


class GraphRows:
    """The rows of one type, as a table function; its columns depend on what it is called with."""

    @staticmethod
    def analyze(root: Any, type: Any, branch: Any = None, version: Any = None) -> Any:
        """Return the columns of the type that is asked for."""
        from pyspark.sql.udtf import AnalyzeResult

        from pyspark_omnigraph.types import spark_schema

        given = {"root": root, "type": type, "branch": branch, "version": version}
        values = {name: _constant(name, argument) for name, argument in given.items()}
        snapshot = _snapshot(values["root"], values["branch"], values["version"])
        return AnalyzeResult(spark_schema(snapshot.catalog.table_type(values["type"])))

    def eval(self, root: str, type: str, branch: str | None = None, version: int | None = None) -> Iterator[Any]:
        """Yield the rows."""
        from pyspark_omnigraph.types import arrow_out, columns_of, to_spark

        snapshot = _snapshot(root, branch, version)
        kind = snapshot.catalog.table_type(type)
        wanted = arrow_out(kind, tuple(columns_of(kind)))
        for batch in snapshot.scan(type):
            for row in to_spark(batch, wanted).to_pylist():
                yield tuple(row.values())


def _constant(name: str, argument: Any) -> Any:
    if argument is None:
        return None
    if not argument.isConstantExpression:
        raise InvalidOptionError(f"{FUNCTION}(…): {name!r} must be a constant, because it decides on the columns")
    return argument.value


def _snapshot(root: str, branch: str | None, version: int | None) -> og.Snapshot:
    return og.open(root, read_only=True).snapshot(branch, version=version)
