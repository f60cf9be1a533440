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
ASIDE: Final = LANE / 2
COLOURS: Final = 8
NAMES_SHOWN_MAX: Final = 4
MESSAGE_CHARACTERS_MAX: Final = 140


def commit_graph(history: History, branch: str) -> Markup:
    """Return the picture; the branch that the report is about has the first lane."""
    held = next((one for one in history.branches if one.name == branch), None)
    lanes = lanes_of(history.commits, None if held is None else held.incarnation)
    names = _names(history)
    rows = [_row(dot, names.get(dot.commit.id, ())) for dot in lanes.dots]
    graph = tag("div", _picture(lanes), tag("ol", rows, class_="log"), class_="graph")
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


def _row(dot: Dot, names: Sequence[Markup]) -> Markup:
    commit = dot.commit
    said = commit.message or commit.operation
    facts = [commit.operation] if commit.message else []
    facts += [*([commit.actor] if commit.actor else []), minute(commit.created_at), *_changes(commit)]
    line = [part for fact in facts for part in (tag("span", "·", class_="dot", aria_hidden="true"), tag("bdi", fact))]
    return tag(
        "li",
        tag("p", *names, tag("bdi", short(said, MESSAGE_CHARACTERS_MAX), class_="said"), class_="first"),
        tag("p", tag("b", f"{short(commit.branch, 40)}@{commit.version}"), line, class_="second"),
        title=described(commit),
        class_="expired" if commit.expired_at else None,
    )


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


def _picture(lanes: Lanes) -> Markup:
    width = 2 * MARGIN + (lanes.width - 1) * LANE
    height = max(1, lanes.height) * ROW
    return tag(
        "svg",
        [_line(link) for link in sorted(lanes.links, key=lambda link: link.kind != LinkKind.BEYOND)],
        [_dot(dot) for dot in lanes.dots],
        width=width,
        height=height,
        viewBox=f"0 0 {width} {height}",
        role="img",
        aria_label=f"{counted(lanes.height, 'commit')} on {counted(lanes.width, 'lane')}",
        class_="lanes",
    )


def _x(lane: int) -> float:
    return MARGIN + lane * LANE


def _y(row: int) -> float:
    return row * ROW + ROW / 2


def _line(link: Link) -> Markup:
    child = link.child
    x1, y1, x2, y2 = _x(child.lane), _y(child.row), _x(link.lane), _y(link.row)
    colour = child.lane
    match link.kind:
        case LinkKind.LINE:
            path = f"M{x1:g} {y1:g}V{y2:g}"
        case LinkKind.BEYOND:
            path = f"M{x1:g} {y1:g}V{link.row * ROW:g}"
        case LinkKind.FORK:
            path = f"M{x1:g} {y1:g}V{y2 - ROW:g}{_curve(x1, y2 - ROW, x2, y2)}"
        case LinkKind.MERGE:
            path, colour = f"M{x1:g} {y1:g}{_curve(x1, y1, x2, y1 + ROW)}V{y2:g}", link.lane
        case LinkKind.ASIDE:
            beside = x2 - ASIDE if x2 > x1 else x2 + ASIDE
            down = f"{_curve(x1, y1, beside, y1 + ROW)}V{y2 - ROW / 2:g}"
            path, colour = f"M{x1:g} {y1:g}{down}Q{beside:g} {y2:g} {x2:g} {y2:g}", link.lane
    return tag("path", d=path, class_=f"link {link.kind} c{colour % COLOURS}", fill="none", stroke="currentColor")


def _curve(x1: float, y1: float, x2: float, y2: float) -> str:
    middle = (y1 + y2) / 2
    return f"C{x1:g} {middle:g} {x2:g} {middle:g} {x2:g} {y2:g}"


def _dot(dot: Dot) -> Markup:
    is_merge = len(dot.commit.parents) > 1
    kind = f"commit c{dot.lane % COLOURS}{' merge' if is_merge else ''}{' expired' if dot.commit.expired_at else ''}"
    return tag(
        "circle",
        tag("title", described(dot.commit)),
        cx=_x(dot.lane),
        cy=_y(dot.row),
        r=RADIUS,
        class_=kind,
        stroke="currentColor",
    )
