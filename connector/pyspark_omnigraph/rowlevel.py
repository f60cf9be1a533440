"""UPDATE, MERGE INTO and DELETE of SQL: tasks stage the rows that come and find the rows that go; one commit for all.

The Java side streams the rows of a change as they come, each with a mark. A task sorts them by mark into a local file
and stages every kind as any other write does, so memory holds a batch and no more. Rows of a change were made from what
was read, so the change is published only if its table is still what it was then.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from omnigraph import logs
from omnigraph.engine.parts import Begun, Verb, WorkOrder
from omnigraph.errors import CorruptGraphError, InvalidDataError
from omnigraph.observing import logger
from omnigraph.rules.values import compute
from omnigraph.storage.spool import Spool
from pyspark_omnigraph.catalog import Asked
from pyspark_omnigraph.options import WriteOptions
from pyspark_omnigraph.pushdown import ROW_ID
from pyspark_omnigraph.types import from_spark
from pyspark_omnigraph.workers import begin
from pyspark_omnigraph.writer import PartMessage, part_texts, partition_id, write_limits

MARK: Final = "_change"
MARKS: Final[Mapping[str, Verb]] = {"put": "upsert", "insert": "append", "delete": "delete"}
SHOWN_MAX: Final = 3

log = logger("omnigraph.spark.rowlevel")


class ChangeWriter(DataSourceArrowWriter):
    """One row-level change of one type; it travels to every task, and once more to where it is committed."""

    def __init__(self, options: WriteOptions, orders: Mapping[str, WorkOrder], begun: Begun) -> None:
        self._options = options
        self._orders = orders
        self._begun = begun

    @classmethod
    def asked(cls, raw: Mapping[str, str]) -> "ChangeWriter":
        """Begin on the commit that the statement's rows are read from."""
        asked = Asked(raw)
        options = WriteOptions.parse(asked.told, overwrite=False)
        graph = asked.graph(read_only=False)
        begun = Begun(base=graph.commit(asked["_base"]).id, incarnation=graph.branches.get(asked["branch"]).incarnation)
        snapshot = graph.snapshot(commit=begun.base)
        limits = write_limits(options.rows_per_file, options.bytes_per_file)
        is_checked = options.constraints != "off"
        orders = {
            mark: snapshot.order(options.type, verb, limits=limits, is_checked=is_checked)
            for mark, verb in MARKS.items()
        }
        return cls(options, orders, graph.announce(begun, [options.type]))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> PartMessage:  # type: ignore[override]  # as Spark documents
        """Stage one partition: every kind of row by its own order."""
        begin()
        staged: dict[str, str] = {}
        with Spool() as spool:
            for batch in iterator:
                _sort(spool, batch)
            for mark in spool.rows:
                staged[mark] = self._staged(mark, spool.reader(mark))
        return PartMessage(partition=partition_id(), text=json.dumps(staged))

    def _staged(self, mark: str, rows: pa.RecordBatchReader) -> str:
        order = self._orders[mark]
        if mark == "delete":
            return order.stage(rows)
        return order.stage(from_spark(order.kind, _as_rows(rows, str(order.kind.table), is_known=mark == "put")))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Publish the whole change as one commit, or raise an error that means nothing was."""
        logs.from_environment()
        texts = [_parts(text) for text in part_texts(messages)]
        options = self._options
        graph = Asked(_raw(options)).graph(read_only=False)
        with graph.transaction(
            options.branch,
            message=options.message,
            user_metadata=options.user_metadata,
            txn=options.txn,
            constraints=options.constraints,
            begun=self._begun,
        ) as tx:
            tx.changed(
                options.type,
                put=[each["put"] for each in texts if "put" in each],
                inserted=[each["insert"] for each in texts if "insert" in each],
                deleted=[each["delete"] for each in texts if "delete" in each],
            )
        log.info("published", extra={"commit": tx.receipt.commit, "partitions": len(texts)})

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Leave everything as it is: Spark calls this also after a commit that may have been published."""
        log.warning("a change was aborted; nothing was deleted", extra={"partitions": len(messages)})


def _raw(options: WriteOptions) -> dict[str, str]:
    """Return what opens the graph again."""
    named = {"path": options.path, **({"actor": options.actor} if options.actor is not None else {})}
    return named | {f"storage.{name}": value for name, value in options.storage.items()}


def _sort(spool: Spool, batch: pa.RecordBatch) -> None:
    """Set rows aside by what is to be done with them; of a row that goes its id is enough."""
    marks = batch.column(MARK)
    for mark in compute.unique(marks).to_pylist():
        rows: Any = batch.filter(compute.equal(marks, mark)).drop_columns([MARK])
        if mark == "delete":
            rows = pa.RecordBatch.from_arrays([rows.column(ROW_ID)], names=["id"])
        spool.open_table(mark, rows.schema)
        spool.add(mark, rows)


def _as_rows(batches: pa.RecordBatchReader, table: str, *, is_known: bool) -> Iterator[pa.RecordBatch]:
    """Yield rows without the id they had before; a row that is known keeps its id."""
    for batch in batches:
        if is_known:
            _refuse_other_ids(batch, table)
        plain: Any = batch.drop_columns([ROW_ID])
        yield plain


def _refuse_other_ids(batch: pa.RecordBatch, table: str) -> None:
    kept = compute.fill_null(compute.equal(batch.column(ROW_ID), batch.column("id")), False)
    changed = batch.filter(compute.invert(kept))
    if changed.num_rows:
        shown = ", ".join(repr(id) for id in changed.column(ROW_ID).slice(0, SHOWN_MAX).to_pylist())
        raise InvalidDataError(
            f"nothing was applied: {changed.num_rows} rows of {table} would get another id ({shown}); "
            "an id is for good: delete the row and insert another",
            table_key=table,
            count=changed.num_rows,
        )


def _parts(text: str) -> dict[str, str]:
    found = json.loads(text)
    if not isinstance(found, dict) or not set(found) <= set(MARKS):
        raise CorruptGraphError("nothing was applied: what a task answered is not understood; write again")
    return found
