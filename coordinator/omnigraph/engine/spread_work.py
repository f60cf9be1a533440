"""Doing pieces of work on the machines of a cluster, or by threads of this process; what comes of it is the same.

A piece of work opens all it needs itself and refers to nothing that others see, so it may be done twice.
"""

import pickle
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

import pyarrow as pa

from omnigraph.engine.upkeep import at_once
from omnigraph.errors import OmnigraphError
from omnigraph.storage.relations import ClusterEngine, Spread

_COLUMNS: Final[dict[str, pa.DataType]] = {"number": pa.int64(), "answer": pa.binary()}
ANSWERS: Final = pa.schema(_COLUMNS)

Answer = TypeVar("Answer", covariant=True)


class Work(Protocol[Answer]):
    """A piece of work that can be pickled, as its answer can."""

    def do(self) -> Answer:
        """Do it."""


@dataclass(frozen=True, slots=True)
class Task:
    """A piece of work as a part of a relation, whose one row tells what came of it."""

    number: int
    work: Work[Any]

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Do the work; what is wrong with it is an answer too, for it would be wrong again."""
        answer: Any
        try:
            answer = self.work.do()
        except OmnigraphError as problem:
            answer = problem
        said = pa.array([pickle.dumps(answer)], pa.binary())
        yield pa.RecordBatch.from_arrays([pa.array([self.number], pa.int64()), said], schema=ANSWERS)


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
    answers = dict(zip(told.column("number").to_pylist(), told.column("answer").to_pylist(), strict=True))
    for number, work in enumerate(works):
        yield work, _future(pickle.loads(answers[number] or b""))  # noqa: S301  a task of ours has pickled it


def _future(answer: Any) -> "Future[Any]":
    future: Future[Any] = Future()
    if isinstance(answer, OmnigraphError):
        future.set_exception(answer)
    else:
        future.set_result(answer)
    return future
