"""Operations as others see them: log records, and spans and numbers where OpenTelemetry is installed.

::

    with observed("optimize", session.root, branch="main") as seen:
        return seen.learn(work.optimize(...))

Every record that a logger of ours makes while an operation is at work carries its id, also in threads of
:class:`Threads`. One that is begun by another is part of it and has the same id.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar, copy_context
from threading import Thread
from typing import Any, Final, ParamSpec, TypeVar

from omnigraph.errors import ConflictError, InvalidInputError, MergeConflictsError, OmnigraphError, StorageError
from omnigraph.ids import Sources
from omnigraph.telemetry import COMMITS, CONFLICTS, RECOVERIES, RETRIES, ROWS, Value, code_of, telemetry

ROOT: Final = "omnigraph"
STAMPED: Final = ("operation", "operation_id", "graph", "branch", "commit")
"""What every record has, if only as None."""
REASON_CHARS_MAX: Final = 1_000

P = ParamSpec("P")
T = TypeVar("T")

_CURRENT: ContextVar["Seen | None"] = ContextVar("omnigraph_operation", default=None)
_SOURCES: Final = Sources()


class _Stamp(logging.Filter):
    """Writes the operation at work on every record."""

    def filter(self, record: logging.LogRecord) -> bool:
        seen = _CURRENT.get()
        for name in STAMPED:
            if name not in record.__dict__:
                setattr(record, name, None if seen is None else getattr(seen, name))
        return True


_STAMP: Final = _Stamp()


def logger(name: str) -> logging.Logger:
    """Return the logger of a module, whose records carry the operation they belong to."""
    found = logging.getLogger(name)
    found.addFilter(_STAMP)
    return found


log = logger(f"{ROOT}.operations")
logging.getLogger(ROOT).addHandler(logging.NullHandler())


class Seen:
    """One operation from its beginning to its end, and what is known of it."""

    def __init__(self, operation: str, graph: object, branch: str | None = None, **more: Any) -> None:
        outer = _CURRENT.get()
        self.operation = operation
        self.operation_id: str = _SOURCES.mint() if outer is None else outer.operation_id
        self.graph = str(graph)
        self.branch = branch
        self.commit: str | None = None
        self.more = more
        self.phases: dict[str, float] = {}
        self.is_idle = False
        """Nothing was done, so there is nothing to tell at the level of information."""
        self._has_landed = self._is_troubled = self._is_over = False
        self._is_outermost = outer is None
        self._rows: dict[str, int] = {}
        self._began = time.monotonic()
        self._telemetry = telemetry()
        self._span = None if self._telemetry is None else self._telemetry.begin(operation)
        if log.isEnabledFor(logging.DEBUG):
            log.debug("%s began", operation, extra=self._facts())

    def learn(self, answer: T) -> T:
        """Take from an answer what is told of operations: commit, rows, attempts, troubles; return it."""
        told: Any = getattr(answer, "receipt", answer)
        flags = [name for name in ("rerun", "dry_run") if getattr(told, name, False)]
        self.more |= dict.fromkeys(flags, True)
        if getattr(told, "commit", None) is not None:
            self.landed(told.commit, told.version, is_new=not flags)
        for name in ("attempts", "outcome"):
            value = getattr(told, name, None)
            if value:
                self.more[name] = value if isinstance(value, int) else str(value)
        tables = getattr(told, "tables", None)
        for table in tables.values() if isinstance(tables, Mapping) else ():
            for name in ROWS:
                if hasattr(table, name) and not getattr(table, "adopted", False):  # then nobody counted
                    self._rows[name] = self._rows.get(name, 0) + int(getattr(table, name))
        troubles = getattr(told, "troubles", None) or getattr(told, "findings", ())
        if troubles:
            self.more["troubles"] = len(troubles)
        self._is_troubled = bool(getattr(told, "troubles", ())) or not getattr(told, "is_sound", True)
        return answer

    def landed(self, commit: str, version: int, *, is_new: bool = True) -> None:
        """Note which commit it made, or finds made by an earlier run."""
        self.commit, self.more["version"] = commit, version
        self._has_landed = is_new

    @contextmanager
    def beginning(self) -> Iterator["Seen"]:
        """Let what is done in this block belong to the operation, which goes on later, unless the block fails."""
        try:
            with self.active():
                yield self
        except BaseException as error:
            self.end(error)
            raise

    @contextmanager
    def active(self) -> Iterator["Seen"]:
        """Let what is done in this block belong to the operation."""
        before = _CURRENT.get()
        _CURRENT.set(self)
        try:
            if self._telemetry is None or self._span is None:
                yield self
            else:
                with self._telemetry.inside(self._span):
                    yield self
        finally:
            _CURRENT.set(before)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Observe a part of it, which is part of the same operation."""
        began = time.monotonic()
        try:
            if self._telemetry is None or self._span is None or not self._span.is_recording():
                yield
            else:
                with self._telemetry.part(name, {"operation_id": self.operation_id}):
                    yield
        finally:
            self.phases[name] = self.phases.get(name, 0.0) + (time.monotonic() - began) * 1e3

    def end(self, error: BaseException | None = None) -> None:
        """Tell how it ended, once."""
        if self._is_over:
            return
        self._is_over = True
        seconds = time.monotonic() - self._began
        code = None if error is None else code_of(error)
        level = self._level(error)
        if log.isEnabledFor(level):
            facts = self._facts() | {"took_ms": round(seconds * 1e3, 1)} | _failure(error, code)
            log.log(level, "%s %s", self.operation, "ended" if error is None else "failed", extra=facts)
        self._measure(seconds, error, code)

    def _level(self, error: BaseException | None) -> int:
        if not self._is_outermost or (error is None and self.is_idle):
            return logging.DEBUG  # the one it is part of tells what came of it
        if error is None:
            return logging.WARNING if self._is_troubled else logging.INFO
        is_refusal = isinstance(error, OmnigraphError) and not isinstance(error, StorageError)
        return logging.WARNING if is_refusal else logging.ERROR

    def _facts(self) -> dict[str, Any]:
        facts = {name: getattr(self, name) for name in STAMPED} | self.more
        if self._rows:
            facts |= {"rows": sum(self._rows.values()), **self._rows}
        if self.phases:
            facts["phases"] = {name: round(spent, 3) for name, spent in self.phases.items()}
        return facts

    def _measure(self, seconds: float, error: BaseException | None, code: str | None) -> None:
        ways, span = self._telemetry, self._span
        if ways is None or span is None:
            return
        facts = self._facts() if span.is_recording() else {}
        ways.end(span, {k: v for k, v in facts.items() if isinstance(v, str | int | float)}, code)
        said: dict[str, Value] = {"omnigraph.operation": self.operation, "omnigraph.graph": self.graph}
        ways.took(seconds, said if code is None else {**said, "error.type": code})
        if not self._is_outermost:
            return
        if isinstance(error, ConflictError):
            ways.count(CONFLICTS, 1, said)
        if error is None and self._has_landed:
            ways.count(COMMITS, 1, said)
            for name, number in self._rows.items():
                if number:
                    ways.count(ROWS[name], number, said)


def _failure(error: BaseException | None, code: str | None) -> dict[str, str]:
    """Return what is told of an error: not its message, if that may show values of rows."""
    if error is None or code is None:
        return {}
    shows_rows = isinstance(error, InvalidInputError | MergeConflictsError)
    if shows_rows or not isinstance(error, OmnigraphError):
        return {"code": code}
    return {"code": code, "reason": error.message[:REASON_CHARS_MAX]}


@contextmanager
def observed(operation: str, graph: object, branch: str | None = None, **more: Any) -> Iterator[Seen]:
    """Observe what is done in the block as one operation."""
    with Seen(operation, graph, branch, **more).beginning() as seen:
        yield seen
    seen.end()


def phase(name: str) -> AbstractContextManager[None]:
    """Observe a phase of the operation at work, if there is one."""
    seen = _CURRENT.get()
    return nullcontext() if seen is None else seen.phase(name)


def retried(what: str) -> None:
    """Note that an attempt was lost to others and is made again."""
    log.debug("%s: others were faster; trying again", what)
    _count(RETRIES, {"omnigraph.retried": what})


def recovered(kind: str) -> None:
    """Note that the promise of a dead writer was settled."""
    _count(RECOVERIES, {"omnigraph.recovered": kind})


def _count(name: str, attributes: dict[str, str]) -> None:
    ways, seen = telemetry(), _CURRENT.get()
    if ways is not None:
        ways.count(name, 1, attributes if seen is None else {**attributes, "omnigraph.graph": seen.graph})


def at_work() -> Seen | None:
    """Return the operation that what is done now belongs to."""
    return _CURRENT.get()


class Threads(ThreadPoolExecutor):
    """A pool whose threads work for the operation that gave them work."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Let a thread do something, as part of the operation at work here."""
        here = copy_context()
        return super().submit(lambda: here.run(fn, *args, **kwargs))


def thread(work: Callable[[], object], name: str) -> Thread:
    """Return a thread that dies with the process and works for the operation at work here."""
    return Thread(target=copy_context().run, args=(work,), name=name, daemon=True)
