"""What the kinds of upkeep share: how much is done at once, and where tables lie."""

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final, TypeVar

from omnigraph.engine.history import History
from omnigraph.errors import InvalidOptionError
from omnigraph.ids import TableId
from omnigraph.model.lineage import Commit
from omnigraph.model.tables import Pin
from omnigraph.observing import Threads
from omnigraph.storage.layout import table_location

CONCURRENCY_VARIABLE: Final = "OMNIGRAPH_MAINTENANCE_CONCURRENCY"
CONCURRENCY_DEFAULT: Final = 8
CONCURRENCY_MAX: Final = 256
AHEAD: Final = 4

Given = TypeVar("Given")
Answer = TypeVar("Answer")


def concurrency() -> int:
    """Return how many things upkeep does at once."""
    text = os.environ.get(CONCURRENCY_VARIABLE, "") or str(CONCURRENCY_DEFAULT)
    if not (text.isascii() and text.isdecimal() and 1 <= int(text) <= CONCURRENCY_MAX):
        raise InvalidOptionError(f"{CONCURRENCY_VARIABLE} is {text!r}; it is a number from 1 to {CONCURRENCY_MAX}")
    return int(text)


def at_once(work: Callable[[Given], Answer], given: Iterable[Given]) -> Iterator[tuple[Given, Future[Answer]]]:
    """Do something for each, several at once, and yield what came of it in order; only a few wait to be looked at."""
    number = concurrency()
    with Threads(number) as pool:
        waiting: list[tuple[Given, Future[Answer]]] = []
        for each in given:
            waiting.append((each, pool.submit(work, each)))
            if len(waiting) > number * AHEAD:
                yield _done(waiting.pop(0))
        for one in waiting:
            yield _done(one)


def _done(one: tuple[Given, Future[Answer]]) -> tuple[Given, Future[Answer]]:
    one[1].exception()  # waits for it, and raises nothing
    return one


@dataclass(frozen=True, slots=True)
class Place:
    """Where a table lies below the root, and what people call it."""

    location: str
    key: str


class Places:
    """The tables of commits, each found through the schema of a commit that has it."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._schemas: dict[str, frozenset[TableId]] = {}
        self.known: dict[TableId, Place] = {}

    def pins(self, commit: Commit) -> Iterator[Pin]:
        """Yield the pins of the tables that a commit's schema has, and learn where they lie.

        A pin of a type that was dropped shows nobody anything.
        """
        tables = self._schemas.get(commit.schema_hash)
        if tables is None:
            kinds = self._history.catalog(commit).table_types
            for kind in kinds:
                place = Place(table_location(kind.table.kind, kind.table_id), str(kind.table))
                self.known.setdefault(kind.table_id, place)
            tables = self._schemas[commit.schema_hash] = frozenset(kind.table_id for kind in kinds)
        return (pin for pin in commit.pins.values() if pin.table in tables)
