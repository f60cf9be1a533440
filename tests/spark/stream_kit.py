"""Streams from a graph to a graph: what the tests of streaming share, and the program that is killed.

python -m tests.spark.stream_kit SOURCE SINK CHECKPOINT
"""

import json
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import (
    DataSourceStreamReader,
    DataSourceStreamWriter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType
from tests.spark.fault_kit import Fault, FaultyOrder

import omnigraph as og
from omnigraph.engine.parts import WorkOrder
from omnigraph.ids import CommitId
from pyspark_omnigraph.options import WriteOptions
from pyspark_omnigraph.source import OmnigraphDataSource
from pyspark_omnigraph.streaming import FeedStreamReader, Offset
from pyspark_omnigraph.streaming_sink import OmnigraphStreamWriter

cloudpickle.register_pickle_by_value(  # type: ignore[no-untyped-call]  # as in the whole package
    sys.modules[__name__]  # workers can not import tests
)

SOURCE_SCHEMA = "node Person { name: String @key  age: I32? }"
SINK_SCHEMA = "node Event { key: String @key  what: String  age: I32? }"
FAULTY_STREAM = "omnigraph_faulty_stream"
EVENT = "concat_ws('/', _commit_version, _change_type, id) AS key"


def feed(spark: SparkSession, root: str | Path, form: str = "omnigraph", **options: Any) -> DataFrame:
    """Stream what changes."""
    said = {"readChangeFeed": "true", "type": "Person"} | options
    return spark.readStream.format(form).options(**said).load(str(root))


def sink(frame: DataFrame, root: str | Path, checkpoint: str | Path, form: str = "omnigraph", **options: Any) -> None:
    """Write all that a stream has now, in batches, and wait for the end; raise why it failed."""
    said = {"type": "Event", "checkpointLocation": str(checkpoint)} | options
    query = frame.writeStream.format(form).options(**said).trigger(availableNow=True).start(str(root))
    query.awaitTermination()


def events(spark: SparkSession, root: str | Path, **options: Any) -> DataFrame:
    """Stream what changes in one graph as rows of another; a row that is told twice would be refused there."""
    return feed(spark, root, **options).selectExpr(EVENT, "_change_type AS what", "age")


def expected(graph: og.Graph, since: int = 0) -> list[tuple[str, str, int | None]]:
    """The events that a graph has had."""
    rows = graph.changes(since=since).rows("Person").read_all().to_pylist()
    made = [(f"{r['_commit_version']}/{r['_change_type']}/{r['id']}", r["_change_type"], r["age"]) for r in rows]
    return sorted(made)


def landed(graph: og.Graph) -> list[tuple[str, str, int | None]]:
    """The events that have come."""
    return sorted((row["key"], row["what"], row["age"]) for row in graph.snapshot().read("Event").to_pylist())


# -- faults -------------------------------------------------------------------------------------------------


class FaultyStreamWriter(OmnigraphStreamWriter):
    """The writer of streams, whose tasks and whose commits meet a fault."""

    fault = Fault()

    def order(self, graph: og.Graph, base: CommitId) -> WorkOrder:
        """Stage as every task does, with failpoints planned."""
        return FaultyOrder.like(super().order(graph, base), self.fault)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Commit as every batch is, with failpoints planned."""
        with self.fault.in_commit():
            super().commit(messages, batchId)


class FaultyStreamReader(FeedStreamReader):
    """The reader of streams, whose process is killed in one place as long as a file says so."""

    place = ""
    while_there = ""

    def initialOffset(self) -> Offset:  # noqa: N802
        self._meet("initialOffset")
        return super().initialOffset()

    def latestOffset(self, start: Offset | None = None, limit: Any = None) -> Offset:  # noqa: N802
        self._meet("latestOffset")
        return super().latestOffset(start, limit)

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        found = super().partitions(start, end)
        self._meet("partitions")
        return found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        self._meet("read.before")
        for batch in super().read(partition):
            yield batch
            self._meet("read")

    def _meet(self, place: str) -> None:
        if place == self.place and Path(self.while_there).exists():
            os.kill(os.getpid(), signal.SIGKILL)


class FaultyStreamSource(OmnigraphDataSource):
    """The data source under another name, with one more option for streams: the fault."""

    def __init__(self, options: dict[str, str]) -> None:
        self.killed_at = options.get("killedat", "")
        super().__init__({name: value for name, value in options.items() if name != "killedat"})

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        reader = FaultyStreamReader.begun(self._pin(), schema)
        assert isinstance(reader, FaultyStreamReader)
        reader.place, _, reader.while_there = self.killed_at.partition(":")
        return reader

    @classmethod
    def name(cls) -> str:
        return FAULTY_STREAM

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        options = {name: value for name, value in self.options.items() if name != "fault"}
        parsed = WriteOptions.parse(options, overwrite=overwrite, is_stream=True)
        writer = FaultyStreamWriter.begun(parsed, schema)
        assert isinstance(writer, FaultyStreamWriter)
        writer.fault = Fault(**json.loads(self.options["fault"]))
        return writer

    def __getstate__(self) -> dict[str, Any]:
        if "fault" not in self.options:
            self._pin()
        return self.__dict__


def sink_with(fault: Fault, frame: DataFrame, root: str | Path, checkpoint: str | Path) -> None:
    """Write a stream, with a fault in the way."""
    frame.sparkSession.dataSource.register(FaultyStreamSource)
    sink(frame, root, checkpoint, FAULTY_STREAM, fault=json.dumps(asdict(fault)))


def main(source: str, target: str, checkpoint: str) -> None:
    """Be the query that is killed."""
    from tests.spark.writing_child import session

    spark = session()
    sink(events(spark, source, startingVersion=1, maxCommitsPerTrigger=1), target, checkpoint)
    print("done")


if __name__ == "__main__":
    main(*sys.argv[1:])
