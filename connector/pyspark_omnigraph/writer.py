"""Writing a type from DataFrames: tasks stage, one message per partition says what, and the driver publishes once."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

import omnigraph as og
from omnigraph import logs
from omnigraph.engine.parts import Begun, WorkOrder, gather
from omnigraph.engine.shared import Saving
from omnigraph.errors import BranchExistsError, BranchNotFoundError, RefNotFoundError, TransactionStateError
from omnigraph.ids import CommitId, is_ulid
from omnigraph.model.schema import TableType
from omnigraph.observing import logger
from omnigraph.storage.lance_written import LIMITS, WriteLimits
from pyspark_omnigraph.options import Operation, WriteOptions
from pyspark_omnigraph.types import check_delete_schema, check_write_schema, from_spark
from pyspark_omnigraph.workers import begin

log = logger("omnigraph.spark.writer")


@dataclass(frozen=True)
class PartMessage(WriterCommitMessage):
    """What one task staged, as the coordinator's text; Spark carries it to the driver."""

    partition: int
    text: str


class OmnigraphWriter(DataSourceArrowWriter):
    """One write to one type; it travels to every task, and once more to where it is committed."""

    def __init__(self, options: WriteOptions, order: WorkOrder, begun: Begun, *, is_rerun: bool) -> None:
        self._options = options
        self._order = order
        self._begun = begun
        self._is_rerun = is_rerun

    @classmethod
    def begun(cls, options: WriteOptions, schema: StructType) -> "OmnigraphWriter":
        """Begin on the newest commit of the branch, or where the branch is to begin; refuse rows that can not fit."""
        graph = _opened(options)
        begun = _beginning(graph, options)
        order = graph.snapshot(commit=begun.base).order(
            options.type,
            options.operation,
            limits=write_limits(options.rows_per_file, options.bytes_per_file),
            is_checked=options.constraints != "off",
        )
        check_rows(order.kind, options.operation, schema)
        is_rerun = _landed_before(graph, options, begun)
        return cls(options, order, begun if is_rerun else graph.announce(begun, [options.type]), is_rerun=is_rerun)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> PartMessage:  # type: ignore[override]  # as Spark documents
        """Stage one partition; files of an attempt that fails are referred to by nothing."""
        if self._is_rerun:
            return PartMessage(partition=partition_id(), text="")
        return PartMessage(partition=partition_id(), text=staged_part(self._order, iterator))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Publish what all partitions staged as one commit, or raise an error that means nothing was."""
        logs.from_environment()
        texts = part_texts(messages)
        options = self._options
        graph = _opened(options)
        if self._begun.incarnation is None:
            gather(
                options.operation, texts, self._order.ticket, self._order.kind
            )  # no branch for rows that are refused
            _fork(graph, options, self._begun)
        with graph.transaction(
            options.branch,
            message=options.message,
            user_metadata=options.user_metadata,
            txn=options.txn,
            constraints=options.constraints,
            begun=self._begun,
        ) as tx:
            if self._is_rerun and not tx.is_rerun:
                raise TransactionStateError("nothing was applied: what had landed before is gone; write again")
            tx.staged(options.type, options.operation, texts)
        log.info("published", extra={"commit": tx.receipt.commit, "partitions": len(texts)})

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Leave everything as it is: Spark calls this also after a commit that may have been published."""
        log.warning("a write was aborted; nothing was deleted", extra={"partitions": len(messages)})


class SavingWriter(OmnigraphWriter):
    """One write to one type that is not published, but saved for a transaction that was begun elsewhere."""

    @classmethod
    def begun(cls, options: WriteOptions, schema: StructType) -> "SavingWriter":
        """Begin on the commit that the transaction began on; refuse rows that can not fit, or would be too late."""
        graph = _opened(options)
        saving = _saving(graph, options)
        limits = write_limits(options.rows_per_file, options.bytes_per_file)
        order = saving.order(options.type, options.operation, limits=limits)
        check_rows(order.kind, options.operation, schema)
        is_rerun = saving.is_saved(options.type, options.operation, options.txn)
        return cls(options, order, Begun(base=saving.base.id), is_rerun=is_rerun)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Save what all partitions staged, or raise an error that means it is not in the transaction."""
        logs.from_environment()
        texts, options = part_texts(messages), self._options
        if self._is_rerun:
            return
        _saving(_opened(options), options).keep(options.type, options.operation, texts, options.txn)
        log.info("saved", extra={"transaction": options.transaction, "partitions": len(texts)})


def _saving(graph: og.Graph, options: WriteOptions) -> Saving:
    return graph.saving(options.transaction or "", options.branch)


def write_limits(rows_per_file: int | None, bytes_per_file: int | None) -> WriteLimits:
    """Return how large files may get."""
    return WriteLimits(
        rows_per_file=rows_per_file or LIMITS.rows_per_file, bytes_per_file=bytes_per_file or LIMITS.bytes_per_file
    )


def check_rows(kind: TableType, operation: Operation, schema: StructType) -> None:
    """Refuse rows that can not fit, before any task runs."""
    if operation == "delete":
        check_delete_schema(kind, schema)
    else:
        check_write_schema(kind, schema)


def partition_id() -> int:
    """Return the number of the partition this task works on; the same for every attempt."""
    context = TaskContext.get()
    if context is None:
        raise TransactionStateError("rows are staged by tasks of Spark; there is no task here")
    return context.partitionId()


def staged_part(order: WorkOrder, batches: Iterable[pa.RecordBatch]) -> str:
    """Stage a share of the rows and return what was staged, as text."""
    begin()
    if order.verb == "delete":
        return order.stage(batches if order.is_placed else (batch.select(["id"]) for batch in batches))
    return order.stage(from_spark(order.kind, batches))


def part_texts(messages: Iterable[WriterCommitMessage | None]) -> list[str]:
    """Return what each partition staged, once and in order; a partition without an answer is refused."""
    found: dict[int, str] = {}
    for message in messages:
        if not isinstance(message, PartMessage):
            # Spark drops the rows of a task that it could not hand to Python, and says nothing but this.
            raise TransactionStateError("nothing was applied: a partition was written without an answer; write again")
        found.setdefault(message.partition, message.text)
    return [found[partition] for partition in sorted(found)]


def _opened(options: WriteOptions) -> og.Graph:
    return og.open(options.path, storage_options=dict(options.storage) or None, actor=options.actor)


def _beginning(graph: og.Graph, options: WriteOptions) -> Begun:
    try:
        branch = graph.branches.get(graph.branch if options.branch is None else options.branch)
    except BranchNotFoundError:
        if options.create_branch_from is None:
            raise
        return Begun(base=_named(graph, options.create_branch_from))
    return Begun(base=branch.head, incarnation=branch.incarnation)


def _landed_before(graph: og.Graph, options: WriteOptions, begun: Begun) -> bool:
    """Tell whether this very txn was published already, so that no task need do anything."""
    if options.txn is None or begun.incarnation is None:
        return False
    return graph.transaction(options.branch, txn=options.txn).is_rerun


def _named(graph: og.Graph, name: str) -> CommitId:
    """Return the commit that a branch, a tag or a commit id stands for."""
    known = {branch.name: branch.head for branch in graph.branches.list()}
    known |= {tag.name: tag.commit for tag in graph.tags.list()}
    if name not in known and not is_ulid(name.upper()):
        raise RefNotFoundError(f"createBranchFrom: no branch, tag or commit is called {name[:200]!r}", name=name[:200])
    return known[name] if name in known else graph.commit(name).id


def _fork(graph: og.Graph, options: WriteOptions, begun: Begun) -> None:
    """Make the branch that is written to, which was missing when the write began, unless it is there by now."""
    assert options.branch is not None  # noqa: S101  the options were refused otherwise
    try:
        graph.branches.create(options.branch, from_=begun.base)
    except BranchExistsError:
        log.info("the branch is there already", extra={"branch": options.branch})
