"""Working one step ahead: the next part is made while the last one is being written."""

import queue
import threading
from collections.abc import Iterable, Iterator
from typing import Final, TypeVar, cast

from omnigraph.observing import thread

T = TypeVar("T")

PARTS_AHEAD: Final = 2
_END: Final = object()


def ahead(parts: Iterable[T]) -> Iterator[T]:
    """Yield what an iterable yields, made by a thread of its own, at most a few parts early.

    What it raises is raised here, in its place. If nobody asks for more, the thread ends.
    """
    ready: queue.Queue[object] = queue.Queue(maxsize=PARTS_AHEAD)
    unwanted = threading.Event()
    problem: list[BaseException] = []

    def make() -> None:
        try:
            for part in parts:
                ready.put(part)
                if unwanted.is_set():
                    return
        except BaseException as raised:  # noqa: BLE001  raised again where it belongs
            problem.append(raised)
        ready.put(_END)

    maker = thread(make, "omnigraph-ahead")
    maker.start()
    try:
        while (part := ready.get()) is not _END:
            yield cast("T", part)
        if problem:
            raise problem[0]
    finally:
        unwanted.set()
        while maker.is_alive():
            try:
                ready.get_nowait()  # the maker may wait for room
            except queue.Empty:
                maker.join(0.001)
