"""Which commits expire, and saying so in the manifest before any file of theirs is touched.

Whoever wants to build on a commit, by a branch, a tag, a merge or a restore, is refused from then on, and whoever was
faster is seen: both go through the same swap.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from omnigraph.engine.ancestry import CommitGraph
from omnigraph.engine.session import Session
from omnigraph.errors import ContentionError, StorageError
from omnigraph.ids import CommitId
from omnigraph.model.lineage import MAIN
from omnigraph.model.manifest import ManifestState, Span
from omnigraph.rules.refs import ordered_branches
from omnigraph.storage.lance_door import StoredFile, SwapLostError, SwapUncertainError
from omnigraph.storage.manifest import Reading

TRIES_MAX: Final = 200
EVERY_PAIR_MAX: Final = 32


class Expiring:
    """Takes the pins of commits that nobody holds out of the manifest."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def expire(self, doomed: Callable[[Reading], frozenset[CommitId]], at: datetime) -> frozenset[CommitId]:
        """Publish that commits have expired; who is to go is asked anew of every state this is tried on."""
        rewritten: dict[str, _Rewritten] = {}
        done: set[CommitId] = set()
        for _ in range(TRIES_MAX):
            reading = self._session.publisher.read()
            try:
                found = doomed(reading)
                if not found:
                    return frozenset(done)
                state, written = self._without(reading, found, at, rewritten)
                self._session.manifest.swap(reading, state, written)
                done |= found
            except SwapLostError:
                continue
            except SwapUncertainError:
                done |= found  # if it was not done, the same commits are found again
            except StorageError:
                if self._session.publisher.read() is reading:
                    raise
        raise ContentionError("nothing was cleaned: other writers were faster; try again")

    def _without(
        self, reading: Reading, doomed: frozenset[CommitId], at: datetime, rewritten: dict[str, "_Rewritten"]
    ) -> tuple[ManifestState, Sequence[StoredFile]]:
        """Return the state in which these commits have no pins; a file that was rewritten before is used again."""
        spans: list[Span] = []
        written: list[StoredFile] = []
        for span in reading.state.spans:
            known = rewritten.get(span.file)
            if known is None or known.doomed != doomed:
                known = self._rewritten(reading, span, doomed, at)
                rewritten[span.file] = known
            spans.append(known.span)
            written += known.written
        tail = tuple(row.without_pins(at) if row.id in doomed else row for row in reading.state.tail)
        return replace(reading.state, tail=tail, spans=tuple(spans)), written

    def _rewritten(self, reading: Reading, span: Span, doomed: frozenset[CommitId], at: datetime) -> "_Rewritten":
        if span not in reading.state.commit_spans or not any(span.first_id <= id <= span.last_id for id in doomed):
            return _Rewritten(doomed, span)
        rows = self._session.manifest.commits_in(reading, span)
        if not any(row.id in doomed for row in rows):
            return _Rewritten(doomed, span)
        changed = [row.without_pins(at) if row.id in doomed else row for row in rows]
        new, file = self._session.manifest.write_commits(reading, span, changed)
        return _Rewritten(doomed, new, (file,))


@dataclass(frozen=True, slots=True)
class _Rewritten:
    """What takes the place of one older file of the manifest."""

    doomed: frozenset[CommitId]
    span: Span
    written: tuple[StoredFile, ...] = ()


def merge_bases(session: Session, reading: Reading) -> dict[CommitId, str]:
    """Return the commits that merges of living branches start from, and between which two that is.

    Of very many branches only those with `main` and with the branch they came from are looked for.
    """
    graph = CommitGraph(session.manifest, reading)
    found: dict[CommitId, str] = {}
    for left, right in _pairs(reading.state):
        one, other = reading.state.branches[left], reading.state.branches[right]
        for base in _bases(graph, [one.head], [other.head]):
            found.setdefault(base, f"merges of {left} and {right}")
    return found


def _pairs(state: ManifestState) -> Iterator[tuple[str, str]]:
    names = [branch.name for branch in ordered_branches(state)]
    if len(names) <= EVERY_PAIR_MAX:
        yield from ((left, right) for number, left in enumerate(names) for right in names[number + 1 :])
        return
    for branch in state.branches.values():
        for other in dict.fromkeys((MAIN, branch.parent)):
            if other is not None and other in state.branches and other != branch.name:
                yield other, branch.name


def _bases(graph: CommitGraph, left: Sequence[CommitId], right: Sequence[CommitId]) -> Iterator[CommitId]:
    """Yield the best common ancestors and, where there are several, those of them too."""
    best = graph.bases(left, right)
    yield from best
    for number, other in enumerate(best[1:], 1):
        yield from _bases(graph, best[:number], [other])
