"""What the SQL catalog asks, and the answers: branches, types, their columns, and deletions that need no job.

The catalog's Java asks through the one door that Spark has, the schema of a data source: a question is a set of
options, and what is no column is told in the metadata of the answer's last column. An error of ours is such an answer
too, so that it reaches the user as its own text and not as a page of tracebacks.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from pyspark.sql.types import StringType, StructField, StructType

import omnigraph as og
from omnigraph.engine.parts import Begun, Part
from omnigraph.engine.table_at import TableAt
from omnigraph.errors import (
    BranchNotFoundError,
    InvalidOptionError,
    OmnigraphError,
    TagNotFoundError,
    TypeNotFoundError,
)
from omnigraph.ids import is_ulid
from omnigraph.storage.staging import Staging
from pyspark_omnigraph.filters import EPOCH, exact_columns, expression, float_columns
from pyspark_omnigraph.options import WriteOptions
from pyspark_omnigraph.types import spark_schema

ANSWER: Final = "_answer"
PROPERTY: Final = "_property."
FROM: Final = "from"
COMMENT: Final = "comment"
CATALOG_ONLY: Final = ("_op", "_base", "_version", "_micros", "_cascade", "_filter")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a question of the catalog is answered with; of a type that is there, also what scans of it need."""

    told: StructType
    at: TableAt | None = None


def answer(options: Mapping[str, str]) -> Answer:
    """Answer a question of the catalog."""
    asked = Asked(options)
    question = QUESTIONS.get(options["_op"])
    try:
        if question is None:
            raise InvalidOptionError("option '_op' is set by the SQL catalog only; leave it away")
        return question(asked)
    except OmnigraphError as problem:
        return _told({"error": str(problem)})


class Asked:
    """A question: the options it came with, as Spark hands them over, in lower case."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = {name.lower(): value for name, value in options.items()}

    def get(self, name: str) -> str | None:
        """Return one option."""
        return self._options.get(name)

    def __getitem__(self, name: str) -> str:
        return self._options[name]

    @property
    def properties(self) -> dict[str, str]:
        """The properties a namespace is to have."""
        found = {name: value for name, value in self._options.items() if name.startswith(PROPERTY)}
        return {name.removeprefix(PROPERTY): value for name, value in found.items()}

    @property
    def told(self) -> dict[str, str]:
        """What a user may say too: everything but the catalog's own words."""
        own = {name: v for name, v in self._options.items() if name not in CATALOG_ONLY}
        return {name: value for name, value in own.items() if not name.startswith(PROPERTY)}

    def graph(self, *, read_only: bool) -> og.Graph:
        """Open the graph that is asked about."""
        prefix = "storage."
        storage = {n.removeprefix(prefix): v for n, v in self._options.items() if n.startswith(prefix)}
        return og.open(
            self["path"], read_only=read_only, storage_options=storage or None, actor=self._options.get("actor")
        )


def _told(facts: Mapping[str, Any], columns: StructType | None = None, at: TableAt | None = None) -> Answer:
    """Return columns with facts behind them; a list that is empty is not told: Spark would not know of what."""
    metadata = {name: value for name, value in facts.items() if value not in (None, [])}
    told = StructType([*(columns or ()), StructField(ANSWER, StringType(), nullable=True, metadata=metadata)])
    return Answer(told=told, at=at)


# -- types ----------------------------------------------------------------------------------------------


def _list_tables(asked: Asked) -> Answer:
    snapshot = asked.graph(read_only=True).snapshot(asked["branch"])
    return _told({"names": [key.name for key in snapshot.tables]})


def _load_table(asked: Asked) -> Answer:
    graph = asked.graph(read_only=True)
    try:
        snapshot = _snapshot(graph, asked)
        at = snapshot.table_at(asked["type"])
    except (BranchNotFoundError, TypeNotFoundError) as missing:
        return _told({"missing": str(missing)})
    kind = at.kind
    facts = {
        "table": str(kind.table),
        "commit": snapshot.commit.id,
        "version": str(snapshot.commit.version),
        "rows": str(snapshot.count(kind.name)),
        "exact": exact_columns(kind),
        "floats": float_columns(kind),
    }
    return _told(facts, spark_schema(kind), at)


def _snapshot(graph: og.Graph, asked: Asked) -> og.Snapshot:
    """Return what is read: the branch as it is, or at a version, a tag, a commit or a moment."""
    branch, version, micros = asked["branch"], asked.get("_version"), asked.get("_micros")
    if micros is not None:
        return graph.snapshot(branch, timestamp=EPOCH + timedelta(microseconds=int(micros)))
    if version is None:
        return graph.snapshot(branch)
    if version.isascii() and version.isdecimal():
        return graph.snapshot(branch, version=int(version))
    graph.branches.get(branch)
    if is_ulid(version):
        return graph.snapshot(commit=version)
    try:
        return graph.snapshot(tag=version)
    except TagNotFoundError:
        raise InvalidOptionError(f"{version[:100]!r} is no version number, no tag and no commit id") from None


def _delete(asked: Asked) -> Answer:
    """Delete the rows a filter holds for, at the commit the statement began on; no job of Spark's runs."""
    options = WriteOptions.parse(asked.told, overwrite=False)
    graph = asked.graph(read_only=False)
    snapshot = graph.snapshot(commit=asked["_base"])
    order = snapshot.order(options.type, "delete")
    where = expression(asked["_filter"], order.kind)
    rows = Staging(order.options).matching(order.ticket, where)
    base = Begun(base=snapshot.commit.id, incarnation=graph.branches.get(asked["branch"]).incarnation)
    with graph.transaction(
        options.branch,
        message=options.message,
        user_metadata=options.user_metadata,
        txn=options.txn,
        constraints=options.constraints,
        begun=base,
    ) as tx:
        tx.changed(options.type, put=(), inserted=(), deleted=[Part(rows=rows).to_text(order.ticket, order.kind)])
    return _told({"commit": tx.receipt.commit})


# -- branches -------------------------------------------------------------------------------------------


def _list_branches(asked: Asked) -> Answer:
    return _told({"names": [branch.name for branch in asked.graph(read_only=True).branches.list()]})


def _describe_branch(asked: Asked) -> Answer:
    graph = asked.graph(read_only=True)
    try:
        head = graph.snapshot(asked["branch"]).commit
    except BranchNotFoundError as missing:
        return _told({"missing": str(missing)})
    return _told({"head": head.id, "version": str(head.version), "location": graph.root})


def _create_branch(asked: Asked) -> Answer:
    given = asked.properties
    unknown = sorted(set(given) - {FROM})
    if unknown:
        raise InvalidOptionError(
            f"a branch has no property {unknown[0][:60]!r}; "
            f"say where it begins WITH DBPROPERTIES ('{FROM}' = 'main'), and nothing else"
        )
    branch = asked.graph(read_only=False).branches.create(asked["branch"], from_=given.get(FROM, "main"))
    return _told({"head": branch.head})


def _drop_branch(asked: Asked) -> Answer:
    graph = asked.graph(read_only=False)
    branch = graph.branches.get(asked["branch"])
    head = graph.snapshot(branch.name).commit
    if asked["_cascade"] != "true" and head.incarnation == branch.incarnation:
        raise InvalidOptionError(
            f"branch {branch.name!r} has commits of its own that would be lost; "
            "write DROP NAMESPACE … CASCADE if that is meant"
        )
    graph.branches.delete(branch.name)
    return _told({"head": branch.head})


QUESTIONS: Final[Mapping[str, Callable[[Asked], Answer]]] = {
    "list_tables": _list_tables,
    "load_table": _load_table,
    "delete": _delete,
    "list_branches": _list_branches,
    "describe_branch": _describe_branch,
    "create_branch": _create_branch,
    "drop_branch": _drop_branch,
}
