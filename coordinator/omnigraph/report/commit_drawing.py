"""The picture of commits: lines and dots as SVG, and beside each dot what the commit is."""

from collections.abc import Mapping, Sequence
from typing import Final

from omnigraph.model.lineage import Commit
from omnigraph.report.facts import History
from omnigraph.report.lanes import Dot, Lanes, Link, LinkKind, lanes_of
from omnigraph.report.markup import Markup, tag
from omnigraph.report.words import counted, minute, moment, name, short

ROW: Final = 56
LANE: Final = 22
MARGIN: Final = 18
RADIUS: Final = 6
HALF: Final = ROW // 2
INTO_PARENT: Final = (LinkKind.MERGE, LinkKind.ASIDE)
COLOURS: Final = 8
NAMES_SHOWN_MAX: Final = 4
MESSAGE_CHARACTERS_MAX: Final = 140


def commit_graph(history: History, branch: str) -> Markup:
    """Return the picture; the branch that the report is about has the first lane."""
    held = next((one for one in history.branches if one.name == branch), None)
    lanes = lanes_of(history.commits, None if held is None else held.incarnation)
    names = _names(history)
    pieces = _Pieces(lanes)
    rows = [_row(dot, names.get(dot.commit.id, ()), pieces.picture(dot)) for dot in lanes.dots]
    graph = tag("ol", rows, class_="log")
    return tag(
        "div",
        tag("div", graph, class_="scroll", tabindex=0, role="group", aria_label="Commit graph, newest commit first"),
        _left_out(lanes, history.total),
        class_="graph-box",
    )


def _names(history: History) -> dict[str, tuple[Markup, ...]]:
    """Return what points at each commit: branches, then tags."""
    found: dict[str, list[Markup]] = {}
    for branch in history.branches:
        found.setdefault(branch.head, []).append(tag("span", name(branch.name, 28), class_="ref branch"))
    for each in history.tags:
        found.setdefault(each.commit, []).append(tag("span", name(each.name, 28), class_="ref tag"))
    return {commit: _some(names) for commit, names in found.items()}


def _some(names: list[Markup]) -> tuple[Markup, ...]:
    if len(names) <= NAMES_SHOWN_MAX:
        return tuple(names)
    rest = tag("span", f"+{len(names) - NAMES_SHOWN_MAX + 1}", class_="ref more")
    return (*names[: NAMES_SHOWN_MAX - 1], rest)


def _row(dot: Dot, names: Sequence[Markup], picture: Markup) -> Markup:
    commit = dot.commit
    said = commit.message or commit.operation
    facts = [commit.operation] if commit.message else []
    facts += [*([commit.actor] if commit.actor else []), minute(commit.created_at), *_changes(commit)]
    line = [part for fact in facts for part in (tag("span", "·", class_="dot", aria_hidden="true"), tag("bdi", fact))]
    first = tag("p", *names, tag("bdi", short(said, MESSAGE_CHARACTERS_MAX), class_="said"), class_="first")
    second = tag("p", tag("b", f"{short(commit.branch, 40)}@{commit.version}"), line, class_="second")
    kind = "expired" if commit.expired_at else None
    return tag("li", picture, tag("div", first, second), title=described(commit), class_=kind)


def _changes(commit: Commit) -> list[str]:
    signs = (("rows_inserted", "+"), ("rows_updated", "~"), ("rows_deleted", "-"))
    totals = [(sign, sum(counts.get(what, 0) for counts in commit.metrics.values())) for what, sign in signs]
    told = " ".join(f"{sign}{number:,}" for sign, number in totals if number)
    return [told] if told else []


def described(commit: Commit) -> str:
    """Return all that a tip about a commit says."""
    lines = [
        f"{commit.branch}@{commit.version}  {commit.id}",
        f"{commit.operation} by {commit.actor or 'nobody named'}, {moment(commit.created_at)} UTC",
        *([short(commit.message, 300)] if commit.message else []),
        *(f"{key}: {_counts(counts)}" for key, counts in list(commit.metrics.items())[:6]),
        *(["cleaned up: what it held is gone"] if commit.expired_at else []),
    ]
    return "\n".join(lines)


def _counts(counts: Mapping[str, int]) -> str:
    told = (f"{what.replace('_', ' ')} {number:,}" for what, number in counts.items() if number)
    return ", ".join(told) or "no change"


def _left_out(lanes: Lanes, total: int) -> Markup | None:
    older = total - lanes.height - lanes.left_out
    said = []
    if older > 0:
        said.append(f"{counted(older, 'older commit')} of {total:,} {'is' if older == 1 else 'are'} not drawn")
    if lanes.left_out:
        number = counted(lanes.left_out, "commit")
        said.append(f"{number} of branches that found no free lane {'is' if lanes.left_out == 1 else 'are'} left out")
    return tag("p", "; ".join(said) + ".", class_="note") if said else None


# -- the lines ------------------------------------------------------------------------------------------


class _Pieces:
    """The lines of a picture cut into rows, so that each stays beside its commit wherever a page ends."""

    def __init__(self, lanes: Lanes) -> None:
        self._width = 2 * MARGIN + (lanes.width - 1) * LANE
        self._rows: list[list[Markup]] = [[] for _ in range(lanes.height)]
        for link in lanes.links:
            self._cut(link)

    def picture(self, dot: Dot) -> Markup:
        """Return the row of one commit."""
        return tag(
            "svg",
            self._rows[dot.row],
            _dot(dot),
            width=self._width,
            height=ROW,
            viewBox=f"0 0 {self._width} {ROW}",
            fill="none",
            stroke="currentColor",
            aria_hidden="true",
            class_="lanes",
        )

    def _cut(self, link: Link) -> None:
        child, end = link.child, link.row
        x1, x2 = _x(child.lane), _x(link.lane)
        kind = f"link {link.kind} c{(link.lane if link.kind in INTO_PARENT else child.lane) % COLOURS}"
        match link.kind:
            case LinkKind.LINE:
                self._down(kind, x1, child.row, end)
            case LinkKind.BEYOND:
                self._down(kind, x1, child.row, end)
            case LinkKind.FORK:
                self._down(kind, x1, child.row, end - 1)
                self._curve(kind, end - 1, x1, x2)
            case LinkKind.MERGE:
                self._curve(kind, child.row, x1, x2)
                self._down(kind, x2, child.row + 1, end)
            case LinkKind.ASIDE:
                beside = x2 - LANE / 2 if x2 > x1 else x2 + LANE / 2
                self._curve(kind, child.row, x1, beside)
                self._down(kind, beside, child.row + 1, end - 1)
                self._curve(kind, end - 1, beside, x2)

    def _down(self, kind: str, x: float, first: int, last: int) -> None:
        """Draw from the middle of a row straight down to that of another, or to the end of the picture."""
        for row in range(first, min(last + 1, len(self._rows))):
            top, bottom = (HALF if row == first else 0), (HALF if row == last else ROW)
            if top < bottom:
                self._add(row, kind, f"M{x:g} {top}V{bottom}")

    def _curve(self, kind: str, row: int, x1: float, x2: float) -> None:
        """Draw from the middle of a row to that of the next: the row below shows the rest of the same curve."""
        for number, top in ((row, HALF), (row + 1, HALF - ROW)):
            middle, bottom = top + HALF, top + ROW
            self._add(number, kind, f"M{x1:g} {top}C{x1:g} {middle} {x2:g} {middle} {x2:g} {bottom}")

    def _add(self, row: int, kind: str, path: str) -> None:
        self._rows[row].append(tag("path", d=path, class_=kind))


def _x(lane: int) -> int:
    return MARGIN + lane * LANE


def _dot(dot: Dot) -> Markup:
    is_merge = len(dot.commit.parents) > 1
    kind = f"commit c{dot.lane % COLOURS}{' merge' if is_merge else ''}{' expired' if dot.commit.expired_at else ''}"
    return tag("circle", cx=_x(dot.lane), cy=HALF, r=RADIUS, class_=kind)
