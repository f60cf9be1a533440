"""Writing a stream to a type: each of its batches becomes one commit, and that once, however often it is tried.

Spark numbers the batches of a query, and tries the same one again after a failure. The query's id and the number of
the batch are published with the commit, so a batch that has landed is known by them for ever.

Spark makes a writer when a query begins and uses it for every batch, and another one where a batch is committed. So
tasks look up by themselves what they work against: the commit of the last batch, which is the same for all of them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

import omnigraph as og
from omnigraph import logs
from omnigraph.engine.parts import Begun, WorkOrder
from omnigraph.errors import BranchExistsError, BranchNotFoundError, TransactionStateError
from omnigraph.ids import CommitId, Incarnation
from omnigraph.observing import logger, observed
from omnigraph.storage.roots import GraphRoot
from pyspark_omnigraph.options import WriteOptions
from pyspark_omnigraph.writer import PartMessage, check_rows, part_texts, partition_id, staged_part, write_limits

log = logger("omnigraph.spark.streaming_sink")

QUERY, BATCH = "sql.streaming.queryId", "streaming.sql.batchId"
"""What Spark tells every task of a stream."""
APPLICATION: Final = "spark-stream:"


@dataclass(frozen=True)
class StreamPart(PartMessage):
    """What one task staged, of which query, and what it was worked out against."""

    query: str
    base: str
    incarnation: str
    is_rerun: bool


class OmnigraphStreamWriter(DataSourceStreamArrowWriter):
    """Writes the batches of one query to one type."""

    def __init__(self, options: WriteOptions, base: CommitId, incarnation: Incarnation) -> None:
        self._options = options
        self._base = base
        self._incarnation = incarnation

    @classmethod
    def begun(cls, options: WriteOptions, schema: StructType) -> "OmnigraphStreamWriter":
        """Begin on the newest commit of the branch, which is made if it is missing; refuse rows that can not fit."""
        graph = og.open(options.path, storage_options=dict(options.storage) or None, actor=options.actor)
        branch = _branch(graph, options)
        check_rows(graph.snapshot(commit=branch.head).catalog.table_type(options.type), options.operation, schema)
        return cls(options, branch.head, branch.incarnation)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StreamPart:  # type: ignore[override]  # as Spark documents
        """Stage one partition of a batch, unless the batch has landed before."""
        query, batch = _told_by_spark()
        graph = og.open(self._options.path, read_only=True, storage_options=dict(self._options.storage) or None)
        base, is_rerun = self._standing(graph, query, batch)
        text = "" if is_rerun else staged_part(self.order(graph, base), iterator)
        return StreamPart(partition_id(), text, query, base, self._incarnation, is_rerun)

    def order(self, graph: og.Graph, base: CommitId) -> WorkOrder:
        """Return what a task needs to stage its rows."""
        options = self._options
        return graph.snapshot(commit=base).order(
            options.type,
            options.operation,
            limits=write_limits(options.rows_per_file, options.bytes_per_file),
            is_checked=options.constraints != "off",
        )

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  (Spark's)
        """Publish what all partitions of a batch staged as one commit, or find that it has landed."""
        parts = [message for message in messages if isinstance(message, StreamPart)]
        texts = part_texts(messages)
        if not parts:
            return
        logs.from_environment()
        root = GraphRoot.parse(self._options.path, dict(self._options.storage) or None)
        with observed("stream_batch", root, self._options.branch, batch=batchId) as seen:
            seen.learn(self._published(_agreed(parts), texts, batchId))

    def _published(self, said: StreamPart, texts: Sequence[str], batch: int) -> og.Receipt:
        options = self._options
        graph = og.open(options.path, storage_options=dict(options.storage) or None, actor=options.actor)
        with graph.transaction(
            options.branch,
            message=options.message or f"batch {batch} of stream {said.query}",
            user_metadata=options.user_metadata,
            txn=(APPLICATION + said.query, batch),
            constraints=options.constraints,
            begun=Begun(base=CommitId(said.base), incarnation=Incarnation(said.incarnation)),
        ) as tx:
            if said.is_rerun and not tx.is_rerun:
                raise TransactionStateError("nothing was applied: what had landed before is gone; begin a new query")
            tx.staged(options.type, options.operation, texts)
        return tx.receipt

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  (the same)
        """Leave everything as it is: Spark calls this also after a commit that may have been published."""
        log.warning("a batch was aborted; nothing was deleted", extra={"partitions": len(messages), "batch": batchId})

    def _standing(self, graph: og.Graph, query: str, batch: int) -> tuple[CommitId, bool]:
        """Return the commit that a batch is worked out against, and whether the batch has landed.

        It is what the last batch made, or where the query began: the same for all tasks until the batch lands.
        """
        last = graph.last_txn(APPLICATION + query)
        began = graph.commit(self._base)
        if last is not None:
            if last.version >= batch:
                return last.commit, True
            landed = graph.commit(last.commit)
            if landed.incarnation == self._incarnation and landed.version > began.version:
                began = landed
        if began.expired_at is not None:  # nothing was written for so long that it was cleaned up
            began = graph.snapshot(self._options.branch).commit
        return began.id, False


def _told_by_spark() -> tuple[str, int]:
    """Return the id of the query and the number of the batch that this task works for."""
    context = TaskContext.get()
    query, batch = (None if context is None else context.getLocalProperty(name) for name in (QUERY, BATCH))
    if query is None or batch is None:
        raise TransactionStateError("rows of a stream are staged by tasks of a streaming query; this is none")
    return query, int(batch)


def _agreed(parts: Sequence[StreamPart]) -> StreamPart:
    """Return one part for all: tasks of a batch that worked against different commits make no batch."""
    if len({(part.query, part.base, part.incarnation, part.is_rerun) for part in parts}) != 1:
        raise TransactionStateError("nothing was applied: the tasks of a batch saw different commits; start it again")
    return parts[0]


def _branch(graph: og.Graph, options: WriteOptions) -> og.Branch:
    """Return the branch that is written to; one that is missing is made if the options say from where."""
    name = graph.branch if options.branch is None else options.branch
    try:
        return graph.branches.get(name)
    except BranchNotFoundError:
        if options.create_branch_from is None:
            raise
    try:
        return graph.branches.create(name, from_=options.create_branch_from)
    except BranchExistsError:
        return graph.branches.get(name)  # made by another meanwhile
