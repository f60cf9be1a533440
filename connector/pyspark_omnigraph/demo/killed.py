"""A writer that dies: `python -m pyspark_omnigraph.demo.killed ROOT FLIGHTS`, with a failpoint in its environment.

It adds airports and the flights to them, two tables in one commit. The failpoint kills it when one of them is sealed.
"""

import sys
from typing import Final

from pyarrow import parquet

import omnigraph as og
from omnigraph.failpoints import ENABLE_VARIABLE, POINTS_VARIABLE, Failpoint
from pyspark_omnigraph.demo.data import MISSING_AIRPORTS

ACTOR: Final = "a writer that dies"
DEADLY: Final = {ENABLE_VARIABLE: "1", POINTS_VARIABLE: f"{Failpoint.AFTER_FIRST_SEAL}=kill"}


def main(root: str, flights: str) -> None:
    """Write both tables; whoever started it sees to it that this does not return."""
    graph = og.open(root, actor=ACTOR)
    with graph.transaction(message="four airports, and the flights that were put aside") as tx:
        tx.append("Airport", MISSING_AIRPORTS)
        tx.append("Flight", parquet.read_table(flights).drop_columns(["_reasons"]))


if __name__ == "__main__":
    main(*sys.argv[1:])
