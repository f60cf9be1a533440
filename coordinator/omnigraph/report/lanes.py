"""Where commits stand in a picture: a row each, newest on top, and a lane for every branch.

A lane belongs to one incarnation of a branch as long as it is drawn: from its newest commit, or the merge that took
it in, down to the commit that it was forked from. Then another branch may have it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from omnigraph.ids import CommitId, Incarnation
from omnigraph.model.lineage import Commit

LANES_MAX: Final = 12


class LinkKind(StrEnum):
    """How a commit hangs together with a parent."""

    LINE = "line"
    """Along its own lane."""
    FORK = "fork"
    """Down its own lane, and into that of the parent at the end."""
    MERGE = "merge"
    """Into the lane of the parent at once, and down that."""
    ASIDE = "aside"
    """As a merge, but beside the lane, because newer commits are in the way."""
    BEYOND = "beyond"
    """Down its own lane to commits that are not drawn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dot:
    """A commit in its place."""

    commit: Commit
    row: int
    lane: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A line from a commit down to a parent, or to the end of the picture."""

    kind: LinkKind
    child: Dot
    row: int
    lane: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Lanes:
    """A picture of commits; ``left_out`` are those for which there was no lane."""

    dots: tuple[Dot, ...]
    links: tuple[Link, ...]
    width: int
    left_out: int

    @property
    def height(self) -> int:
        """How many rows there are."""
        return len(self.dots)


def lanes_of(commits: Sequence[Commit], first: Incarnation | None = None) -> Lanes:
    """Place commits, given newest first and every child before its parents; one branch may have the first lane.

    Commits of branches for which there is no lane are left out, and the others move together.
    """
    lanes = _assigned(commits, first)
    kept = [commit for commit in commits if commit.incarnation in lanes]
    dots = {commit.id: Dot(commit=commit, row=row, lane=lanes[commit.incarnation]) for row, commit in enumerate(kept)}
    rows = _rows_by_branch(kept)
    links = [link for dot in dots.values() for link in _links(dot, dots, rows, len(kept))]
    width = 1 + max((dot.lane for dot in dots.values()), default=0)
    return Lanes(dots=tuple(dots.values()), links=tuple(links), width=width, left_out=len(commits) - len(kept))


def _assigned(commits: Sequence[Commit], first: Incarnation | None) -> dict[Incarnation, int]:
    """Give each branch the first lane that is free where it is drawn; the oldest choose first.

    None takes the lane of the branch it was forked from, so that a fork can be seen.
    """
    stretches, forked_from = _stretches(commits), _forks(commits)
    order = sorted(stretches, key=lambda one: (one != first, -stretches[one][1], stretches[one][0]))
    taken: list[list[tuple[int, int]]] = [[] for _ in range(LANES_MAX)]
    lanes: dict[Incarnation, int] = {}
    for incarnation in order:
        top, bottom = stretches[incarnation]
        for number, others in enumerate(taken):
            is_free = all(bottom < upper or lower < top for upper, lower in others)
            if is_free and lanes.get(forked_from.get(incarnation, incarnation)) != number:
                others.append((top, bottom))
                lanes[incarnation] = number
                break
    return lanes


def _forks(commits: Sequence[Commit]) -> dict[Incarnation, Incarnation]:
    """Return from which branch each was forked, as far as that is drawn."""
    branch_of = {commit.id: commit.incarnation for commit in commits}
    found: dict[Incarnation, Incarnation] = {}
    for commit in commits:
        parent = branch_of.get(commit.parents[0]) if commit.parents else None
        if parent is not None and parent != commit.incarnation:
            found[commit.incarnation] = parent
    return found


def _stretches(commits: Sequence[Commit]) -> dict[Incarnation, tuple[int, int]]:
    """Return from which half row to which each branch is drawn: a line that enters a lane or leaves it needs half."""
    row_of = {commit.id: row for row, commit in enumerate(commits)}
    branch_of = {commit.id: commit.incarnation for commit in commits}
    found: dict[Incarnation, tuple[int, int]] = {}
    for row, commit in enumerate(commits):
        parent = commit.parents[0] if commit.parents else None
        end = 2 * row
        if parent is not None:
            end = 2 * row_of.get(parent, len(commits)) - (branch_of.get(parent) != commit.incarnation)
        top, bottom = found.get(commit.incarnation, (2 * row, end))
        found[commit.incarnation] = (min(top, 2 * row), max(bottom, end))
    for row, commit in enumerate(commits):
        for other in commit.parents[1:]:
            if other in branch_of:
                top, bottom = found[branch_of[other]]
                found[branch_of[other]] = (min(top, 2 * row + 1), bottom)
    return found


def _rows_by_branch(commits: Sequence[Commit]) -> Mapping[Incarnation, tuple[int, ...]]:
    rows: dict[Incarnation, list[int]] = {}
    for row, commit in enumerate(commits):
        rows.setdefault(commit.incarnation, []).append(row)
    return {incarnation: tuple(numbers) for incarnation, numbers in rows.items()}


def _links(dot: Dot, dots: Mapping[CommitId, Dot], rows: Mapping[Incarnation, tuple[int, ...]], end: int) -> list[Link]:
    links: list[Link] = []
    for number, parent_id in enumerate(dot.commit.parents):
        parent = dots.get(parent_id)
        if parent is None:
            if number == 0:
                links.append(Link(kind=LinkKind.BEYOND, child=dot, row=end, lane=dot.lane))
            continue
        links.append(Link(kind=_kind(dot, parent, number, rows), child=dot, row=parent.row, lane=parent.lane))
    return links


def _kind(dot: Dot, parent: Dot, number: int, rows: Mapping[Incarnation, tuple[int, ...]]) -> LinkKind:
    if parent.lane == dot.lane and parent.commit.incarnation == dot.commit.incarnation:
        return LinkKind.LINE
    if number == 0:
        return LinkKind.FORK
    between = any(dot.row < row < parent.row for row in rows[parent.commit.incarnation])
    return LinkKind.ASIDE if between else LinkKind.MERGE
