"""What the boxes of a schema diagram say, and how large they are."""

from dataclasses import dataclass
from typing import Final

from omnigraph.model.schema import ANY_NUMBER, EdgeType, EnumType, Index, NodeType, StoredType, Unique
from omnigraph.report.words import counted, short

LETTER: Final = 7.3
NODE_LETTER: Final = 9.9
EDGE_LETTER: Final = 8.4
PAD: Final = 14
HEAD: Final = 34
LINE: Final = 21
FOOT: Final = 8
NODE_WIDTH_MIN, NODE_WIDTH_MAX = 150, 270
EDGE_WIDTH_MIN, EDGE_WIDTH_MAX = 90, 200
NODE_LINES_MAX: Final = 12
EDGE_LINES_MAX: Final = 4
TYPE_CHARACTERS_MAX: Final = 14


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A property: its name, its type, and whether it is part of the key."""

    name: str
    type: str
    is_key: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A type as it is drawn."""

    title: str
    after: str
    lines: tuple[Line, ...]
    more: str | None
    tip: str
    width: float
    is_node: bool

    @property
    def height(self) -> float:
        """How high it is."""
        number = len(self.lines) + (self.more is not None)
        return HEAD + number * LINE + (FOOT if number else 0)


def node_box(kind: NodeType) -> Box:
    """Return the box of a node type: its properties, those of the key first."""
    return _box(kind, kind.name, NODE_LINES_MAX, (NODE_WIDTH_MIN, NODE_WIDTH_MAX))


def edge_box(kind: EdgeType) -> Box:
    """Return the box of an edge type: how many may leave a node, and its properties."""
    most = kind.cardinality.maximum
    number = "" if kind.cardinality == ANY_NUMBER else f" {kind.cardinality.minimum}..{'*' if most is None else most}"
    return _box(kind, kind.name, EDGE_LINES_MAX, (EDGE_WIDTH_MIN, EDGE_WIDTH_MAX), number)


def _box(kind: StoredType, title: str, most: int, widths: tuple[int, int], after: str = "") -> Box:
    keys = kind.key_columns
    ordered = sorted(kind.properties, key=lambda each: keys.index(each.name) if each.name in keys else len(keys))
    lines = []
    for each in ordered[:most]:
        shown = "enum" if isinstance(each.type, EnumType) else str(each.type)
        shown = short(shown, TYPE_CHARACTERS_MAX) + ("?" if each.nullable else "")
        lines.append(Line(name=each.name, type=shown, is_key=each.name in keys))
    rest = len(ordered) - len(lines)
    more = f"and {counted(rest, 'more property', 'more properties')}" if rest else None
    letter = NODE_LETTER if isinstance(kind, NodeType) else EDGE_LETTER
    title_letters = len(title) + len(after)
    letters = max((len(line.name) + len(line.type) + 3 + 2 * line.is_key for line in lines), default=0)
    wanted = max(letters * LETTER, title_letters * letter, (len(more) * LETTER if more else 0)) + 2 * PAD
    width = min(widths[1], max(widths[0], wanted))
    room = int((width - 2 * PAD) / LETTER)
    fitting = tuple(
        Line(name=short(line.name, room - len(line.type) - 2 - 2 * line.is_key), type=line.type, is_key=line.is_key)
        for line in lines
    )
    letters_left = int((width - 2 * PAD) / letter) - len(after)
    return Box(
        title=short(title, letters_left),
        after=after,
        lines=fitting,
        more=more,
        tip=_tip(kind),
        width=round(width),
        is_node=isinstance(kind, NodeType),
    )


def _tip(kind: StoredType) -> str:
    """Return all that there was no room for."""
    told = [f"{kind.table}"]
    if isinstance(kind, EdgeType):
        told.append(f"from {kind.source} to {kind.target}")
    if isinstance(kind, NodeType) and kind.implements:
        told.append(f"implements {', '.join(kind.implements)}")
    told += [f"{each.name}: {each.type}{'?' if each.nullable else ''}" for each in kind.properties[:40]]
    words = ((Unique, "unique"), (Index, "indexed"))
    for sort, word in words:
        told += [f"{word}: {', '.join(one.columns)}" for one in kind.constraints if isinstance(one, sort)]
    return "\n".join(told)
