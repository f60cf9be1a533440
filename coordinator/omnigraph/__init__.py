"""omnigraph: a branchable, versioned property-graph lakehouse for Spark.

::

    import omnigraph as og

    graph = og.init("people.omni", schema="node Person { name: String @key  age: I32? }")
    with graph.transaction(message="first load") as tx:
        tx.append("Person", [{"name": "Ann", "age": 41}])
    graph.branches.create("review")
    graph.snapshot(version=2).read("Person")

Importing this package does not import Lance; opening a graph does.
"""

from collections.abc import Mapping
from importlib.metadata import version as _distribution_version
from os import PathLike
from typing import TYPE_CHECKING

from omnigraph import logs
from omnigraph.errors import OmnigraphError
from omnigraph.ids import Sources
from omnigraph.model.cleanups import CleanupReport
from omnigraph.model.commit_history import CommitHistory, HistoryRow
from omnigraph.model.diffs import TableDiff
from omnigraph.model.indexes import IndexCoverage, IndexReport
from omnigraph.model.lineage import Branch, Commit, Tag, Txn
from omnigraph.model.merges import Conflict, MergedTable, MergeResult
from omnigraph.model.optimizing import OptimizeReport
from omnigraph.model.receipt import Receipt, TableReceipt
from omnigraph.model.tables import TableKey
from omnigraph.model.verifying import VerifyReport
from omnigraph.report.showing import Report

if TYPE_CHECKING:
    from omnigraph.engine.diffing import Diff
    from omnigraph.engine.exporting import ExportResult
    from omnigraph.engine.feed import Changes
    from omnigraph.engine.graph import Graph
    from omnigraph.engine.loading import LoadResult
    from omnigraph.engine.snapshot import Snapshot
    from omnigraph.engine.transaction import Transaction

__all__ = [
    "Branch",
    "Changes",
    "CleanupReport",
    "Commit",
    "CommitHistory",
    "Conflict",
    "Diff",
    "ExportResult",
    "Graph",
    "HistoryRow",
    "IndexCoverage",
    "IndexReport",
    "LoadResult",
    "MergeResult",
    "MergedTable",
    "OmnigraphError",
    "OptimizeReport",
    "Receipt",
    "Report",
    "Snapshot",
    "TableDiff",
    "TableKey",
    "TableReceipt",
    "Tag",
    "Transaction",
    "Txn",
    "VerifyReport",
    "__version__",
    "init",
    "logs",
    "open",
]

__version__ = _distribution_version("omnigraph-spark")

_LATE = {
    "Changes": "omnigraph.engine.feed",
    "Diff": "omnigraph.engine.diffing",
    "ExportResult": "omnigraph.engine.exporting",
    "Graph": "omnigraph.engine.graph",
    "LoadResult": "omnigraph.engine.loading",
    "Snapshot": "omnigraph.engine.snapshot",
    "Transaction": "omnigraph.engine.transaction",
}


def init(
    root: "str | PathLike[str]",
    schema: "str | PathLike[str]",
    *,
    storage_options: Mapping[str, str] | None = None,
    actor: str | None = None,
) -> "Graph":
    """Create a graph at ``root`` with a schema, given as text or as the path of a `.pg` file.

    A root that holds a graph already is refused, and so is a store that can not promise
    exactly one winner when two writers put the same object.
    """
    from omnigraph.engine.opening import create_graph

    return create_graph(root, schema, storage_options=storage_options, actor=actor, sources=Sources())


def open(
    root: "str | PathLike[str]",
    *,
    read_only: bool = False,
    storage_options: Mapping[str, str] | None = None,
    actor: str | None = None,
) -> "Graph":
    """Open the graph at ``root``; with ``read_only=True`` nothing under it is ever written."""
    from omnigraph.engine.opening import open_graph

    return open_graph(root, storage_options=storage_options, actor=actor, read_only=read_only, sources=Sources())


def __getattr__(name: str) -> object:
    """Import the classes that need Lance only when someone asks for them."""
    if name in _LATE:
        from importlib import import_module

        return getattr(import_module(_LATE[name]), name)
    raise AttributeError(f"module 'omnigraph' has no attribute {name!r}")
