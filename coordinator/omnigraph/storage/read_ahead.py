"""Reading several things at once and giving them out in order."""

from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from itertools import islice
from typing import TypeVar

from omnigraph.observing import Threads

T = TypeVar("T")
R = TypeVar("R")


def read_ahead(read: Callable[[T], R], items: Sequence[T], most: int) -> Generator[R, None, None]:
    """Yield what ``read`` makes of each item, in order, with up to ``most`` being read at a time.

    Whoever stops early waits for those that have begun; the others are never read.
    """
    left = iter(items)
    with Threads(most) as pool:
        begun: deque[Future[R]] = deque(pool.submit(read, item) for item in islice(left, most))
        while begun:
            found = begun.popleft().result()
            begun.extend(pool.submit(read, item) for item in islice(left, 1))
            yield found
