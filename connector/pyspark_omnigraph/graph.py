"""A graph in the driver: everything the coordinator can do, with DataFrames in and out."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import chain
from os import PathLike
from types import TracebackType
from typing import Any, Final, Self

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

import omnigraph as og
from omnigraph.engine.diffing import Point
from omnigraph.engine.feed_line import Bound
from omnigraph.engine.parts import WorkOrder
from omnigraph.errors import InvalidOptionError
from pyspark_omnigraph.describing import described, parallelism_of
from pyspark_omnigraph.diffs import SparkDiff, every
from pyspark_omnigraph.engine import ROWS_MIN, TASKS_MIN, SparkEngine, brought
from pyspark_omnigraph.errors import ours
from pyspark_omnigraph.feed import changes_frame
from pyspark_omnigraph.options import (
    STORAGE,
    Operation,
    as_texts,
    checked_constraints,
    session_defaults,
)
from pyspark_omnigraph.placing import placed
from pyspark_omnigraph.source import FORMAT
from pyspark_omnigraph.types import arrow_out, from_spark
from pyspark_omnigraph.views import create_views
from pyspark_omnigraph.writer import PartMessage, check_rows, part_texts, partition_id, staged_part, write_limits

JOB_ROWS_MIN: Final = "spark.omnigraph.jobRowsMin"
JOIN_TASKS_MIN: Final = "spark.omnigraph.joinTasksMin"
PART: Final = StructType([StructField("partition", IntegerType()), StructField("text", StringType())])
DEFAULTS: Final = ("branch", "actor")
WRITE_DEFAULTS: Final = ("message", "userMetadata", "constraints", "maxRowsPerFile", "maxBytesPerFile")


class SparkGraph:
    """A graph and a Spark session; what is not here, such as ``log`` or ``branches``, is the coordinator's."""

    def __init__(self, spark: SparkSession, graph: og.Graph, storage: Mapping[str, str] | None = None) -> None:
        self.spark = spark
        self.engine = SparkEngine(
            spark, _number(spark, JOB_ROWS_MIN, ROWS_MIN), _number(spark, JOIN_TASKS_MIN, TASKS_MIN)
        )
        """What checks large writes by jobs."""
        self.graph = graph.with_engine(self.engine)
        """The coordinator's handle."""
        self._storage = dict(storage or {})

    @classmethod
    def for_path(
        cls,
        spark: SparkSession,
        root: "str | PathLike[str]",
        *,
        read_only: bool = False,
        storage_options: Mapping[str, str] | None = None,
        actor: str | None = None,
    ) -> "SparkGraph":
        """Open the graph at ``root``; the session's ``spark.omnigraph.branch`` and ``.actor`` are the defaults."""
        said = _configured(spark, DEFAULTS)
        graph = og.open(root, read_only=read_only, storage_options=storage_options, actor=actor or said.get("actor"))
        return cls(spark, graph.on(said["branch"]) if "branch" in said else graph, storage_options)

    def __getattr__(self, name: str) -> Any:
        """Give what the coordinator's graph has."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.graph, name)

    def __repr__(self) -> str:
        return f"<SparkGraph {self.graph.root} on {self.graph.branch!r}>"

    def _repr_html_(self) -> str:
        return self.graph._repr_html_()

    def on(self, branch: str) -> "SparkGraph":
        """Return a handle bound to another branch of the same graph."""
        return SparkGraph(self.spark, self.graph.on(branch), self._storage)

    def table(  # noqa: PLR0913  (the ways to name a commit, and what to read of it)
        self,
        type: str,
        *,
        branch: str | None = None,
        tag: str | None = None,
        commit: str | None = None,
        version: int | None = None,
        timestamp: datetime | str | None = None,
        columns: tuple[str, ...] | list[str] | None = None,
        where: str | None = None,
    ) -> DataFrame:
        """Return the rows of a type as one commit left them; the DataFrame never sees a later one."""
        snapshot = self.graph.snapshot(branch, tag=tag, commit=commit, version=version, timestamp=timestamp)
        wanted = {
            "type": str(snapshot.catalog.table_type(type).table),
            "commit": snapshot.commit.id,
            "columns": None if columns is None else ",".join(columns),
            "filter": where,
            "_parallelism": parallelism_of(self.spark),
        }
        storage = {STORAGE + name: value for name, value in self._storage.items()}
        with ours():
            return self.spark.read.format(FORMAT).options(**as_texts(wanted), **storage).load(self.graph.root)

    def create_views(
        self, *, branch: str | None = None, version: int | None = None, prefix: str = ""
    ) -> tuple[str, ...]:
        """Make a temporary view of every type, all of one commit, for SQL without a catalog; return their names."""
        return create_views(self, branch=branch, version=version, prefix=prefix)

    def changes(
        self,
        branch: str | None = None,
        *,
        type: str | None = None,
        since: Bound | None = None,
        until: Bound | None = None,
        net: bool = False,
    ) -> DataFrame:
        """Return what became of the rows of a type, or of all, commit by commit, in a range that is fixed now."""
        return changes_frame(self, branch, type=type, since=since, until=until, net=net, storage=self._storage)

    def history(self, branch: str | None = None, *, limit: int | None = None) -> DataFrame:
        """Return a row per commit of a branch, newest first, with parameters and metrics by the names Delta has."""
        return self.spark.createDataFrame(self.graph.history(branch, limit=limit).to_arrow())

    def diff(self, old: Point, new: Point) -> SparkDiff:
        """Return what became of rows from one commit to another, as counts and DataFrames."""
        return SparkDiff(self.engine, self.graph.diff(old, new))

    def merge(  # noqa: PLR0913  (what a merge can be told is what its options are)
        self,
        source: str,
        into: str | None = None,
        *,
        policy: str | Mapping[str, str] = "fail",
        dry_run: bool = False,
        delete_source: bool = False,
        message: str | None = None,
        actor: str | None = None,
    ) -> og.MergeResult:
        """Merge a branch, tag or commit into a branch, or raise what is in the way; by jobs if rows are many.

        It does what ``branches.merge`` does, into the branch this handle is bound to unless another one is named.
        """
        return self.graph.branches.merge(
            source,
            self.graph.branch if into is None else into,
            policy=policy,
            dry_run=dry_run,
            delete_source=delete_source,
            message=message,
            actor=actor,
        )

    def conflicts(self, source: str, into: str | None = None, *, policy: str | Mapping[str, str] = "fail") -> DataFrame:
        """Return what a merge would meet: ``table_key``, ``row_id``, ``kind``, ``message``, and each side as JSON."""
        target = self.graph.branch if into is None else into
        with self.graph.branches.conflict_relations(source, target, policy=policy) as relations:
            return every(self.engine, relations)

    def ensure_indices(
        self, branch: str | None = None, *, types: Sequence[str] | None = None, actor: str | None = None
    ) -> og.IndexReport:
        """Build what indexes lack: tasks build segments over groups of fragments, the driver publishes them at once."""
        return self.graph.ensure_indices(branch, types=types, actor=actor)

    def optimize(
        self,
        branch: str | None = None,
        *,
        types: Sequence[str] | None = None,
        rows_per_fragment: int | None = None,
        cluster: bool = False,
        actor: str | None = None,
    ) -> og.OptimizeReport:
        """Compact: the driver plans and publishes, tasks write fragments anew and build the indexes of them."""
        return self.graph.optimize(
            branch, types=types, rows_per_fragment=rows_per_fragment, cluster=cluster, actor=actor
        )

    def transaction(  # noqa: PLR0913  (what a write can be told is what its options are)
        self,
        branch: str | None = None,
        *,
        message: str | None = None,
        actor: str | None = None,
        user_metadata: str | None = None,
        txn: tuple[str, int] | None = None,
        constraints: str | None = None,
        ticket: str | None = None,
    ) -> "SparkTransaction":
        """Begin a write of any number of DataFrames that becomes one commit, or nothing; or go on with one."""
        if ticket is not None:
            told = (message, actor, user_metadata, txn, constraints)
            if any(each is not None for each in told):
                raise InvalidOptionError("a transaction that has a ticket is what it was begun as; give nothing else")
            begun = self.graph.transaction(branch, ticket=ticket)
            return SparkTransaction(self, begun, begun.constraints)
        said = _configured(self.spark, WRITE_DEFAULTS)
        mode = checked_constraints(constraints or said.get("constraints"))
        transaction = self.graph.transaction(
            branch,
            message=message if message is not None else said.get("message"),
            actor=actor,
            user_metadata=user_metadata if user_metadata is not None else said.get("userMetadata"),
            txn=txn,
            constraints=mode,
        )
        return SparkTransaction(self, transaction, mode)


class SparkTransaction:
    """A context manager: leave the block and every DataFrame is published in one commit, raise in it and none is."""

    def __init__(self, graph: SparkGraph, transaction: og.Transaction, constraints: str) -> None:
        self._graph = graph
        self._transaction = transaction
        self._constraints = constraints

    @property
    def base(self) -> og.Commit:
        """The commit it began on."""
        return self._transaction.base

    @property
    def receipt(self) -> og.Receipt:
        """What was published; there is none before the block has ended well."""
        return self._transaction.receipt

    @property
    def ticket(self) -> str:
        """For the option ``transaction``, by which ``save`` stages for this transaction from anywhere."""
        return self._transaction.ticket

    def give_up(self) -> None:
        """End it without publishing anything, also what others staged for it."""
        self._transaction.give_up()

    def rejected(self, type: str) -> DataFrame:
        """Return the rows of a type that ``constraints="quarantine"`` left out, with the column ``_reasons``."""
        return self._graph.engine.frame(self._transaction.rejected(type).read_all())

    def joins(self, type: str) -> bool:
        """Tell whether rows to upsert or delete are joined with a type: it is large and not indexed, tasks are many."""
        return self._transaction.places(type) is not None

    def append(self, type: str, rows: Any) -> None:
        """Insert rows; one whose id exists already makes the whole transaction fail."""
        self._write("append", type, rows, self._transaction.append)

    def upsert(self, type: str, rows: Any) -> None:
        """Insert rows, or replace those that have their id."""
        self._write("upsert", type, rows, self._transaction.upsert)

    def overwrite(self, type: str, rows: Any) -> None:
        """Replace all rows of one type, and of no other."""
        self._write("overwrite", type, rows, self._transaction.overwrite)

    def delete(self, type: str, rows: DataFrame | None = None, *, where: str | None = None) -> None:
        """Delete the rows that have the ids in a DataFrame's column ``id``, or that a filter holds for."""
        if (rows is None) == (where is None):
            raise InvalidOptionError("delete takes a DataFrame with a column id, or a filter: one of them, not both")
        if rows is None:
            self._transaction.delete(type, where=where)
        else:
            self._stage("delete", type, rows)

    def __enter__(self) -> Self:
        self._transaction.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._transaction.__exit__(kind, error, trace)

    def _write(self, verb: Operation, type: str, rows: Any, here: Callable[[str, Any], None]) -> None:
        """Stage a DataFrame on the executors; whatever else the coordinator takes is staged by it."""
        if not isinstance(rows, DataFrame):
            here(type, rows)
        elif self._constraints == "quarantine":
            self._sort_out(verb, type, rows, here)
        else:
            self._stage(verb, type, rows)

    def _sort_out(self, verb: Operation, type: str, rows: DataFrame, here: Callable[[str, Any], None]) -> None:
        """Bring rows to the driver, a partition at a time: which of them are good is decided there, out of core."""
        kind = self._order(verb, type).kind
        check_rows(kind, verb, rows.schema)
        if self._transaction.is_rerun:
            return
        with ours(), described(self._graph.spark, f"omnigraph: sorting out {kind.table}"):
            batches = from_spark(kind, brought(rows))
            first = next(batches, None)
            if first is not None or verb == "overwrite":
                schema = arrow_out(kind, rows.columns) if first is None else first.schema
                here(type, pa.RecordBatchReader.from_batches(schema, chain(filter(None, [first]), batches)))

    def _stage(self, verb: Operation, type: str, rows: DataFrame) -> None:
        spark = self._graph.spark
        order = self._order(verb, type)
        check_rows(order.kind, verb, rows.schema)
        if self._transaction.is_rerun:
            return  # this txn has landed: no job need run
        places = self._transaction.places(type) if verb in ("upsert", "delete") else None
        if places is not None:
            rows, order = placed(self._graph.engine, rows, order, places), replace(order, is_placed=True)
        self._transaction.announce(type)
        with ours(), described(spark, f"omnigraph: {verb} {order.kind.table}"):
            answers = rows.mapInArrow(_stager(order), PART).collect()
        texts = part_texts(PartMessage(partition=row["partition"], text=row["text"]) for row in answers)
        self._transaction.staged(type, verb, texts)

    def _order(self, verb: Operation, type: str) -> WorkOrder:
        said = _configured(self._graph.spark, WRITE_DEFAULTS)
        rows, size = (int(said[name]) if name in said else None for name in ("maxRowsPerFile", "maxBytesPerFile"))
        snapshot = self._graph.graph.snapshot(commit=self.base.id)
        return snapshot.order(type, verb, limits=write_limits(rows, size), is_checked=self._constraints != "off")


def _stager(order: WorkOrder) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def stage(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        text = staged_part(order, batches)
        partition = pa.array([partition_id()], pa.int32())
        yield pa.RecordBatch.from_arrays([partition, pa.array([text], pa.string())], names=PART.names)

    return stage


def _number(spark: SparkSession, name: str, otherwise: int) -> int:
    said = spark.conf.get(name, None)
    if said is None:
        return otherwise
    if not said.isascii() or not said.isdecimal():
        raise InvalidOptionError(f"{name} is {said[:60]!r}; give a number", option=name)
    return int(said)


def _configured(spark: SparkSession, names: tuple[str, ...]) -> dict[str, str]:
    return session_defaults(names, lambda name: spark.conf.get(name, None))
