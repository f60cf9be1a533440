"""Doing pieces of work on the machines of a cluster, or by threads of this process; what comes of it is the same.

A piece of work opens all it needs itself and refers to nothing that others see, so it may be done twice.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

import pyarrow as pa

from omnigraph.engine.upkeep import at_once
from omnigraph.errors import OmnigraphError, error_of
from omnigraph.storage.relations import ClusterEngine, Spread

_COLUMNS: Final[dict[str, pa.DataType]] = {"number": pa.int64(), "answer": pa.string(), "code": pa.string()}
ANSWERS: Final = pa.schema(_COLUMNS)

Answer = TypeVar("Answer")


class Work(Protocol[Answer]):
    """A piece of work that can be sent elsewhere, and whose answer is told in a text."""

    def do(self) -> Answer:
        """Do it."""

    def to_text(self, answer: Answer) -> str:
        """Tell what came of it."""

    def from_text(self, text: str) -> Answer:
        """Read what was told."""


@dataclass(frozen=True, slots=True)
class Task:
    """A piece of work as a part of a relation, whose one row tells what came of it."""

    number: int
    work: Work[Any]

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Do the work; what is wrong with it is an answer too, for it would be wrong again."""
        code = None
        try:
            text = self.work.to_text(self.work.do())
        except OmnigraphError as problem:
            text, code = problem.message, problem.code
        yield pa.RecordBatch.from_pylist([{"number": self.number, "answer": text, "code": code}], schema=ANSWERS)


AnyWork = TypeVar("AnyWork", bound=Work[Any])


def each_done(
    cluster: ClusterEngine | None, works: Sequence[AnyWork], what: str
) -> Iterator[tuple[AnyWork, "Future[Any]"]]:
    """Do all pieces, many at once, and yield what came of each, in order."""
    if cluster is None or not works:
        yield from at_once(lambda work: work.do(), works)
        return
    tasks = Spread(ANSWERS, tuple(Task(number, work) for number, work in enumerate(works)))
    told = cluster.told(tasks, what)
    answers = {row["number"]: row for row in told.to_pylist()}
    for number, work in enumerate(works):
        yield work, _future(work, answers[number])


def _future(work: Work[Any], row: dict[str, Any]) -> "Future[Any]":
    future: Future[Any] = Future()
    if row["code"] is None:
        future.set_result(work.from_text(row["answer"]))
    else:
        future.set_exception(error_of(row["code"], row["answer"]))
    return future
