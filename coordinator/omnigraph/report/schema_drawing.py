"""The schema diagram: node types are boxes, edge types are labelled arrows between them."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from omnigraph.model.catalog import Catalog
from omnigraph.model.schema import EdgeType
from omnigraph.report.layers import PLACE_HEIGHT, Net, folded, ranks
from omnigraph.report.markup import Markup, tag
from omnigraph.report.schema_boxes import HEAD, LINE, PAD, Box, edge_box, node_box
from omnigraph.report.words import counted

NODES_MAX: Final = 60
EDGES_MAX: Final = 120
COLUMNS_MAX: Final = 3
COLUMN_GAP: Final = 46
LONE_GAP: Final = 24
LONE_WIDTH_MIN: Final = 760
MARGIN: Final = 8
ARROW: Final = 9


def schema_diagram(catalog: Catalog) -> Markup:
    """Return the diagram of a schema; of very many types, the first ones."""
    nodes = catalog.nodes[:NODES_MAX]
    known = {kind.name for kind in nodes}
    edges = [kind for kind in catalog.edges if kind.source in known and kind.target in known][:EDGES_MAX]
    drawing = _Drawing({kind.name: node_box(kind) for kind in nodes}, edges)
    left = len(catalog.nodes) + len(catalog.edges) - len(nodes) - len(edges)
    note = tag("p", f"{counted(left, 'more type')} not drawn.", class_="note") if left else None
    label = f"Schema diagram: {counted(len(nodes), 'node type')} and {counted(len(edges), 'edge type')}"
    picture = tag("div", drawing.svg(label), class_="scroll", tabindex=0, role="group", aria_label=label)
    return tag("div", picture, note, class_="schema")


class _Drawing:
    """A diagram being made: first where everything stands, then how it looks."""

    def __init__(self, nodes: dict[str, Box], edges: Sequence[EdgeType]) -> None:
        self._edges = edges
        tied = {name for kind in edges for name in (kind.source, kind.target)}
        self._boxes = {f"node:{name}": box for name, box in nodes.items()}
        self._boxes |= {f"edge:{kind.name}": edge_box(kind) for kind in edges}
        self._lone = [f"node:{name}" for name in nodes if name not in tied]
        found = ranks([name for name in nodes if name in tied], [(kind.source, kind.target) for kind in edges])
        self._rank = {name: folded(rank, COLUMNS_MAX) for name, rank in found.items()}
        self._net = Net()
        self._ways: dict[str, tuple[str, ...]] = {}
        self._fill(nodes)
        self._spots = self._net.placed()
        self._left = self._columns()
        self._ports = self._sorted_ports()

    def _fill(self, nodes: dict[str, Box]) -> None:
        for name, rank in self._rank.items():
            self._net.add(f"node:{name}", 2 * rank, nodes[name].height)
        for kind in self._edges:
            near, far = sorted((kind.source, kind.target), key=lambda name: self._rank[name])
            layer, key = 2 * self._rank[near] + 1, f"edge:{kind.name}"
            self._net.add(key, layer, self._boxes[key].height)
            way = [f"node:{near}", key]
            for passed in range(layer + 1, 2 * self._rank[far]):
                place = f"place:{kind.name}:{passed}"
                self._net.add(place, passed, PLACE_HEIGHT)
                way.append(place)
            if near != far:
                way.append(f"node:{far}")
            for one, other in pairwise(way):
                self._net.tie(one, other)
            self._ways[key] = tuple(way)

    def _columns(self) -> dict[int, tuple[float, float]]:
        """Return where every layer begins, and how wide it is."""
        widths: dict[int, float] = {}
        for key, spot in self._spots.items():
            wide = self._boxes[key].width if key in self._boxes else 0
            widths[spot.layer] = max(widths.get(spot.layer, 0), wide)
        found, left = {}, float(MARGIN)
        for layer in sorted(widths):
            found[layer] = (left, widths[layer])
            left += widths[layer] + COLUMN_GAP
        return found

    def _place(self, key: str) -> tuple[float, float, float, float]:
        """Return left, top, right and bottom of something."""
        spot = self._spots[key]
        left, column = self._left[spot.layer]
        wide = self._boxes[key].width if key in self._boxes else column
        start = left + (column - wide) / 2
        top = spot.top + MARGIN
        return start, top, start + wide, top + spot.height

    def _is_beside(self, kind: EdgeType) -> bool:
        """Tell whether both ends of an edge are in one column, so that it leaves and comes back on one side."""
        return self._rank[kind.source] == self._rank[kind.target]

    def _ends(self, kind: EdgeType) -> list[tuple[str, str, str, bool]]:
        """Return the ends of an edge's line: of which node, which end, what is beside it, and whether on its right."""
        key = f"edge:{kind.name}"
        way = self._ways[key]
        if self._is_beside(kind):
            return [(f"node:{kind.source}", "out", key, True), (f"node:{kind.target}", "in", key, True)]
        is_forward = way[0] == f"node:{kind.source}"
        ends = ("out", "in") if is_forward else ("in", "out")
        return [(way[0], ends[0], way[1], True), (way[-1], ends[1], way[-2], False)]

    def _sorted_ports(self) -> dict[tuple[str, str], float]:
        """Return at which height the ends of every edge's line are; those of one side of a node do not cross."""
        wanted: dict[tuple[str, bool], list[tuple[float, str, str]]] = {}
        for kind in self._edges:
            for node, end, beside, is_right in self._ends(kind):
                at = self._spots[beside].middle + (end == "in")
                wanted.setdefault((node, is_right), []).append((at, f"edge:{kind.name}", end))
        ports: dict[tuple[str, str], float] = {}
        for (node, _), lines in wanted.items():
            _, top, _, bottom = self._place(node)
            step = (bottom - top) / (len(lines) + 1)
            for number, (_, key, end) in enumerate(sorted(lines), 1):
                ports[(key, end)] = top + number * step
        return ports

    # -- how it looks -----------------------------------------------------------------------------------

    def svg(self, label: str) -> Markup:
        """Return the picture."""
        right = max((place[2] for place in map(self._place, self._spots)), default=0.0)
        bottom = max((place[3] for place in map(self._place, self._spots)), default=0.0)
        lone, wide, high = self._lone_boxes(right, bottom)
        lines = [part for kind in self._edges for part in self._lines(kind)]
        boxes = [_drawn(self._boxes[key], *self._place(key)[:2]) for key in self._spots if key in self._boxes]
        width, height = max(right, wide) + MARGIN, max(bottom, high) + MARGIN
        return tag(
            "svg",
            *lines,
            *boxes,
            *lone,
            width=width,
            height=height,
            viewBox=f"0 0 {width:g} {height:g}",
            role="img",
            aria_label=label,
            class_="types",
        )

    def _lone_boxes(self, right: float, bottom: float) -> tuple[list[Markup], float, float]:
        """Draw the types that no edge leads to or from, in rows below the others."""
        most = max(right, LONE_WIDTH_MIN)
        left, top = float(MARGIN), bottom + (LONE_GAP if bottom else MARGIN)
        drawn, widest, lowest = [], 0.0, bottom
        for key in self._lone:
            box = self._boxes[key]
            if left > MARGIN and left + box.width > most:
                left, top = float(MARGIN), lowest + LONE_GAP
            drawn.append(_drawn(box, left, top))
            widest, lowest = max(widest, left + box.width), max(lowest, top + box.height)
            left += box.width + LONE_GAP
        return drawn, widest, lowest

    def _lines(self, kind: EdgeType) -> list[Markup]:
        """Draw an edge: from its source into its label, and from there to its target."""
        key = f"edge:{kind.name}"
        way = self._ways[key]
        left, top, right, bottom = self._place(key)
        out, into = self._ports[(key, "out")], self._ports[(key, "in")]
        source, target = self._place(f"node:{kind.source}"), self._place(f"node:{kind.target}")
        if self._is_beside(kind):
            inset = min(12.0, (bottom - top) / 3)
            first, last = (top + inset, bottom - inset) if out <= into else (bottom - inset, top + inset)
            back = [(left, last), (target[2] + ARROW, into)]
            return [_path([(source[2], out), (left, first)]), _path(back), _arrow(target[2], into, is_right=False)]
        middle = (top + bottom) / 2
        passing = [(place[0], place[1] + PLACE_HEIGHT / 2, place[2]) for place in map(self._place, way[2:-1])]
        after = [(right, middle), *(point for x, y, x2 in passing for point in ((x, y), (x2, y)))]
        if way[0] == f"node:{kind.source}":
            head = [*after, (target[0] - ARROW, into)]
            return [_path([(source[2], out), (left, middle)]), _path(head), _arrow(target[0], into, is_right=True)]
        tail = [(target[2] + ARROW, into), (left, middle)]
        return [_path(tail), _path([*after, (source[0], out)]), _arrow(target[2], into, is_right=False)]


def _path(points: Sequence[tuple[float, float]]) -> Markup:
    (x, y), *rest = points
    text = f"M{x:.1f} {y:.1f}"
    for number, (to_x, to_y) in enumerate(rest):
        middle = (x + to_x) / 2
        is_straight = number % 2 == 1 and len(rest) > 1
        text += (
            f"H{to_x:.1f}"
            if is_straight and y == to_y
            else f"C{middle:.1f} {y:.1f} {middle:.1f} {to_y:.1f} {to_x:.1f} {to_y:.1f}"
        )
        x, y = to_x, to_y
    return tag("path", d=text, class_="way", fill="none", stroke="currentColor")


def _arrow(x: float, y: float, *, is_right: bool) -> Markup:
    back = x - ARROW if is_right else x + ARROW
    points = f"{x:.1f},{y:.1f} {back:.1f},{y - ARROW / 2:.1f} {back:.1f},{y + ARROW / 2:.1f}"
    return tag("polygon", points=points, class_="arrow", fill="currentColor")


def _drawn(box: Box, left: float, top: float) -> Markup:
    """Draw one box with its lines."""
    kind = "node" if box.is_node else "edge"
    parts = [
        tag("title", box.tip),
        tag(
            "rect",
            x=left,
            y=top,
            width=box.width,
            height=box.height,
            rx=10,
            class_="box",
            fill="none",
            stroke="currentColor",
        ),
    ]
    if box.is_node and (box.lines or box.more):
        parts.append(tag("path", d=f"M{left:.1f} {top + HEAD:.1f}h{box.width:g}", class_="rule", stroke="currentColor"))
    parts.append(tag("text", box.title, _after(box), x=left + PAD, y=top + 22, class_="title", fill="currentColor"))
    base = top + HEAD + 16
    for number, line in enumerate(box.lines):
        y = base + number * LINE
        mark = tag("tspan", "◆ ", class_="key") if line.is_key else None
        parts.append(tag("text", mark, line.name, x=left + PAD, y=y, class_="property", fill="currentColor"))
        parts.append(
            tag("text", line.type, x=left + box.width - PAD, y=y, text_anchor="end", class_="kind", fill="currentColor")
        )
    if box.more:
        y = base + len(box.lines) * LINE
        parts.append(tag("text", box.more, x=left + PAD, y=y, class_="kind", fill="currentColor"))
    return tag("g", *parts, class_=f"type {kind}")


def _after(box: Box) -> Markup | None:
    return tag("tspan", box.after, class_="kind") if box.after else None
