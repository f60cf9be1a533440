"""Working ahead: the next part is made while the last one is being used, and several parts at once."""

import queue
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final, Generic, TypeVar, cast

T = TypeVar("T")

PARTS_AHEAD: Final = 2
_END: Final = object()


class _Maker(Generic[T]):
    """A thread that makes what an iterable yields, at most a few parts early."""

    def __init__(self, parts: Iterable[T]) -> None:
        self._ready: queue.Queue[object] = queue.Queue(maxsize=PARTS_AHEAD)
        self._unwanted = threading.Event()
        self._problem: list[BaseException] = []
        self._thread = threading.Thread(target=self._make, args=(parts,), name="omnigraph-ahead", daemon=True)
        self._thread.start()

    def _make(self, parts: Iterable[T]) -> None:
        try:
            for part in parts:
                self._ready.put(part)
                if self._unwanted.is_set():
                    return
        except BaseException as raised:  # noqa: BLE001  raised again where it belongs
            self._problem.append(raised)
        self._ready.put(_END)

    def made(self) -> Iterator[T]:
        """Yield what was made; what the iterable raised is raised in its place."""
        while (part := self._ready.get()) is not _END:
            yield cast("T", part)
        if self._problem:
            raise self._problem[0]

    def end(self) -> None:
        """Let the thread end, whether or not all was asked for."""
        self._unwanted.set()
        while self._thread.is_alive():
            try:
                self._ready.get_nowait()  # the maker may wait for room
            except queue.Empty:
                self._thread.join(0.001)


def ahead(parts: Iterable[T]) -> Iterator[T]:
    """Yield what an iterable yields, made by a thread of its own, at most a few parts early.

    What it raises is raised here, in its place. If nobody asks for more, the thread ends.
    """
    return one_after_another([parts], at_once=1)


def one_after_another(iterables: Iterable[Iterable[T]], at_once: int) -> Iterator[T]:
    """Yield what iterables yield, in their order, while so many of them are being made by threads.

    What one of them raises is raised here, in its place. If nobody asks for more, the threads end.
    """
    left = iter(iterables)
    makers = deque(_Maker(each) for each in islice(left, at_once))
    try:
        while makers:
            yield from makers[0].made()
            makers.popleft().end()
            makers.extend(_Maker(each) for each in islice(left, 1))
    finally:
        for maker in makers:
            maker.end()
