"""Building segments of indexes, many at once, on whatever machines there are."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace

from omnigraph.engine.session import Session
from omnigraph.engine.spread_work import each_done
from omnigraph.model.indexes import WantedIndex
from omnigraph.storage.lance_index_building import Build, Segment, Untrained

WHAT = "omnigraph: building indexes"


def built(session: Session, orders: Sequence[Build]) -> Iterator[tuple[Build, "Future[Segment | Untrained]"]]:
    """Carry out orders, and yield what came of each.

    Vectors that are too few for each of several groups of fragments may be enough for all of them together.
    """
    few: dict[tuple[str, WantedIndex], list[Build]] = defaultdict(list)
    for order, answer in each_done(session.cluster, orders, WHAT):
        if answer.exception() is None and isinstance(answer.result(), Untrained):
            few[order.uri, order.wanted].append(order)
        else:
            yield order, answer
    together = [
        replace(some[0], fragments=frozenset().union(*(one.fragments for one in some))) for some in few.values()
    ]
    yield from each_done(session.cluster, together, WHAT)
