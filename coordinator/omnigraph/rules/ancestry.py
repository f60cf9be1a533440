"""Where two histories come together: the best common ancestors over the whole graph of commits."""

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime

from omnigraph.ids import CommitId
from omnigraph.model.lineage import to_micros

LEFT, RIGHT, STALE = 1, 2, 4
BOTH = LEFT | RIGHT


@dataclass(frozen=True, slots=True, kw_only=True)
class Ancestor:
    """A commit as a place in history: every parent of it is older."""

    id: CommitId
    created_at: datetime
    parents: tuple[CommitId, ...]


def best_common_ancestors(
    left: Iterable[CommitId], right: Iterable[CommitId], find: Callable[[CommitId], Ancestor | None]
) -> tuple[CommitId, ...]:
    """Return the commits that both sides descend from, and of which no other one descends; the newest first.

    Commits are visited from the newest to the oldest. A child is always younger than its parents, so whatever can be
    known about a commit is known when it is visited, and nothing older than the last one wanted is looked at.
    """
    visit = _Visit(find)
    for commit in left:
        visit.mark(commit, LEFT)
    for commit in right:
        visit.mark(commit, RIGHT)
    return visit.found()


class _Visit:
    """A walk into the past, with what is known about each commit so far."""

    def __init__(self, find: Callable[[CommitId], Ancestor | None]) -> None:
        self._find = find
        self._known: dict[CommitId, int] = {}
        self._queue: list[tuple[int, CommitId, Ancestor]] = []
        self._fresh = 0

    def mark(self, commit: CommitId, flags: int) -> None:
        """Add to what is known about a commit; one that was cleaned up has no part in history any more."""
        before = self._known.get(commit)
        if before is None:
            ancestor = self._find(commit)
            if ancestor is None:
                return
            heapq.heappush(self._queue, (-to_micros(ancestor.created_at), commit, ancestor))
        after = (before or 0) | flags
        self._known[commit] = after
        was_fresh = before is not None and not before & STALE
        self._fresh += (not after & STALE) - was_fresh

    def found(self) -> tuple[CommitId, ...]:
        """Visit commits until all that are left descend into what was found."""
        best: list[CommitId] = []
        while self._queue and self._fresh:
            _, commit, ancestor = heapq.heappop(self._queue)
            flags = self._known[commit]
            if not flags & STALE:
                self._fresh -= 1
                if flags & BOTH == BOTH:
                    best.append(commit)
                    flags |= STALE
            for parent in ancestor.parents:
                self.mark(parent, flags)
        return tuple(best)
