"""Writes with Spark and faults in their way: failpoints in chosen tasks, and where a write is committed.

Failpoints are read from the environment when a process starts, and all writes of an application share its processes. So
that one application can serve many faults, a fault travels with the write here, and is planned where the write gets to.
"""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JError
from pyspark import TaskContext, cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSourceWriter, WriterCommitMessage
from pyspark.sql.types import StructType

import omnigraph as og
from omnigraph.engine.parts import WorkOrder
from omnigraph.engine.snapshot import Snapshot
from omnigraph.failpoints import Failpoint
from omnigraph.ids import Sources
from omnigraph.testing.crash_matrix import WRITE_POINTS, Bench, Story
from omnigraph.testing.crash_oracle import look
from omnigraph.testing.crash_writers import ACTOR, Arrival, planned, recorded, state_of
from pyspark_omnigraph import SparkGraph
from pyspark_omnigraph.options import WriteOptions
from pyspark_omnigraph.source import OmnigraphDataSource
from pyspark_omnigraph.writer import OmnigraphWriter

FAULTY = "omnigraph_with_faults"
STAGING = (Failpoint.BEFORE_STAGE, Failpoint.AFTER_STAGE)
PARTITIONS = 2
EVERY_ATTEMPT = 1_000
FAILURES = (PySparkException, Py4JError)

cloudpickle.register_pickle_by_value(  # type: ignore[no-untyped-call]  # as in the whole package
    sys.modules[__name__]  # workers can not import tests
)

# -- the writes -----------------------------------------------------------------------------------------


def people(spark: SparkSession) -> DataFrame:
    """Return new people in two partitions."""
    return spark.range(0, 4, 1, PARTITIONS).selectExpr("concat('p', id) AS name", "CAST(50 + id AS int) AS age")


def knows(spark: SparkSession) -> DataFrame:
    """Return an edge that is there already, and three that begin at new people."""
    return spark.range(0, 4, 1, PARTITIONS).selectExpr(
        "IF(id = 0, 'Ann', concat('p', id)) AS src", "IF(id = 0, 'Ben', 'p0') AS dst", "CAST(2024 AS int) AS since"
    )


def save(frame: DataFrame, root: str | Path, form: str = "omnigraph", mode: str = "append", **options: Any) -> None:
    """Write people through the data source."""
    chosen = {"type": "Person", "actor": ACTOR} | options
    frame.write.format(form).mode(mode).options(**chosen).save(str(root))


def append_people(spark: SparkSession, root: str | Path) -> None:
    """Write one table through the data source; it is committed in a worker beside the driver."""
    save(people(spark), root)


def write_two_tables(spark: SparkSession, root: str | Path) -> None:
    """Write two tables in one transaction; it is committed in the driver itself."""
    with SparkGraph.for_path(spark, root, actor=ACTOR).transaction() as tx:
        tx.append("Person", people(spark))
        tx.upsert("Knows", knows(spark))


# -- faults ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Fault:
    """Failpoints, spelled as in the environment: for tasks, and for the commit of a write."""

    tasks: str = ""
    attempts: int = EVERY_ATTEMPT
    """How many attempts of a task it strikes, from the first one on."""
    rivals: str = ""
    """What is planned for later attempts."""
    partition: int | None = None
    """Which partition it strikes, or all of them."""
    commit: str = ""
    record: str = ""
    """A folder in which it is said who came by which failpoints; then nothing fails."""

    @classmethod
    def at(cls, point: Failpoint, plan: str) -> "Fault":
        """Return what strikes whoever gets there: every attempt of one task, or the commit."""
        return cls(tasks=plan, partition=PARTITIONS - 1) if point in STAGING else cls(commit=plan)

    @contextmanager
    def in_task(self) -> Iterator[None]:
        """Plan the failpoints of the task that this is."""
        context = TaskContext.get()
        assert context is not None
        plan = self.tasks if context.attemptNumber() < self.attempts else self.rivals
        is_struck = self.partition in (None, context.partitionId())
        with self._planned(plan if is_struck else "", f"task-{context.partitionId()}"):
            yield

    @contextmanager
    def in_commit(self) -> Iterator[None]:
        """Plan the failpoints of a commit."""
        with self._planned(self.commit, "commit"):
            yield

    @contextmanager
    def _planned(self, plan: str, who: str) -> Iterator[None]:
        if not self.record:
            with planned(plan):
                yield
            return
        with recorded() as arrivals:
            yield
        seen = [[arrival.point, arrival.number] for arrival in arrivals]
        (Path(self.record) / who).write_text(json.dumps(seen), encoding="utf-8")


@dataclass(frozen=True, kw_only=True)
class FaultyOrder(WorkOrder):
    """An order whose tasks meet a fault."""

    fault: Fault

    @classmethod
    def like(cls, order: WorkOrder, fault: Fault) -> "FaultyOrder":
        """Return the same order, with a fault."""
        return cls(**{field.name: getattr(order, field.name) for field in fields(order)}, fault=fault)

    def stage(self, rows: Iterable[pa.RecordBatch], sources: Sources | None = None) -> str:
        """Stage as every task does, with failpoints planned."""
        with self.fault.in_task():
            return super().stage(rows, sources)


class FaultyWriter(OmnigraphWriter):
    """The writer of the data source, whose tasks and whose commit meet a fault."""

    fault = Fault()

    def struck_by(self, fault: Fault) -> "FaultyWriter":
        """Let the write meet a fault."""
        self.fault = fault
        self._order = FaultyOrder.like(self._order, fault)
        return self

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Commit as every write is, with failpoints planned."""
        with self.fault.in_commit():
            super().commit(messages)


class FaultySource(OmnigraphDataSource):
    """The data source under another name, with one more option for writes: the fault."""

    @classmethod
    def name(cls) -> str:
        """Return what stands in ``format(...)``."""
        return FAULTY

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return a writer that meets the fault."""
        fault = Fault(**json.loads(self.options["fault"]))
        del self.options["fault"]
        options = WriteOptions.parse(self.options, overwrite=overwrite)
        writer = FaultyWriter.begun(options, schema)
        assert isinstance(writer, FaultyWriter)
        return writer.struck_by(fault)


def save_with(fault: Fault, frame: DataFrame, root: str | Path, mode: str = "append", **options: Any) -> None:
    """Write people through the data source, with a fault in the way."""
    frame.sparkSession.dataSource.register(FaultySource)
    save(frame, root, FAULTY, mode, fault=json.dumps(asdict(fault)), **options)


@contextmanager
def faulty_tasks(fault: Fault) -> Iterator[None]:
    """Put a fault in the way of all tasks of transactions that this driver runs."""
    given: Callable[..., WorkOrder] = Snapshot.order

    def order(snapshot: Snapshot, *arguments: Any, **options: Any) -> FaultyOrder:
        return FaultyOrder.like(given(snapshot, *arguments, **options), fault)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Snapshot, "order", order)
        yield


# -- stories for the crash matrix -----------------------------------------------------------------------


def story_of(bench: Bench, name: str, write: Callable[[Path, Fault], None], notes: Path) -> Story:
    """Tell a write once, unharmed, and see where its tasks and its commit come by: everywhere, or it is no test."""
    root = bench.base()
    told = bench.copy(root)
    write(told, Fault(record=str(notes)))
    tasks = [_read(path) for path in sorted(notes.glob("task-*"))]
    assert tasks == [[Arrival(point, 1) for point in STAGING]] * PARTITIONS
    arrivals = (*tasks[0], *_read(notes / "commit"))
    assert {arrival.point for arrival in arrivals} == WRITE_POINTS
    return Story(
        name=name,
        job=name,
        root=root,
        start=look(root),
        before=state_of(og.open(root, read_only=True)),
        after=state_of(og.open(told, read_only=True)),
        arrivals=arrivals,
    )


def append_story(bench: Bench, spark: SparkSession, notes: Path) -> Story:
    """Tell the story of one table through the data source."""
    return story_of(bench, "append with Spark", lambda root, fault: save_with(fault, people(spark), root), notes)


def transaction_story(bench: Bench, spark: SparkSession, notes: Path) -> Story:
    """Tell the story of two tables in one transaction."""
    return story_of(bench, "transaction with Spark", partial(_write_two_tables, spark), notes)


def _write_two_tables(spark: SparkSession, root: Path, fault: Fault) -> None:
    with faulty_tasks(fault), fault.in_commit():
        write_two_tables(spark, root)


def _read(notes: Path) -> list[Arrival]:
    return [Arrival(Failpoint(point), number) for point, number in json.loads(notes.read_text(encoding="utf-8"))]
