"""Constraints, compiled once from the catalog: what a row alone must satisfy, and what rows must satisfy together.

Every path that writes asks here and nowhere else. What rows must satisfy together is said as plans: queries over
relations whose names and columns are ours, so no name and no value of a user is ever part of one, and any engine that
knows SQL can run them. Relations:

- ``new``: the rows a write adds to a table, in their new form; ``gone``: the ids of rows it takes out or replaces
- ``base``: rows of the table as it is, at least all those that could match
- ``nodes``, ``new_nodes``, ``gone_nodes``: the same for the node type an edge refers to
- ``touched``: the ids of nodes whose edges are to be counted
- ``given``, ``given_nodes``: the rows of ``new`` and of ``new_nodes`` with a number, ``row``, to find them again by
- ``broken``: what a plan returned
- ``before``: all rows of the table as it was; ``others``: further ids that are asked about

Columns: ``id``; ``ref``, the id of a node an edge refers to; ``place``, where a row lies; ``value``, what must be
unique: one column or a struct of several, of rows that have no null among them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

from omnigraph.model.catalog import Catalog
from omnigraph.model.schema import ENDPOINT_COLUMNS, EdgeType, NodeType, TableType, Unique

ANY_COUNT: Final = 2**62
SCHEMAS_HELD_MAX: Final = 256


@dataclass(frozen=True, slots=True)
class Blame:
    """A query for the given rows that what a plan returned is due to, by number; of the node type if it says so."""

    sql: str
    of_nodes: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """A query whose rows break a rule, and queries for whom to blame: the first that names anyone counts."""

    sql: str
    blames: tuple[Blame, ...] = ()


HAVING_IDS: Final = "SELECT g.row AS row FROM given g WHERE g.id IN (SELECT id FROM broken)"
REPEATED_IDS: Final = "SELECT row FROM given WHERE id IN (SELECT id FROM given GROUP BY id HAVING count(*) > 1)"

MISSING_ENDPOINTS: Final = Plan(
    """
SELECT e.id AS id, e.ref AS value FROM new e
WHERE e.ref NOT IN (SELECT id FROM nodes WHERE id NOT IN (SELECT id FROM gone_nodes))
  AND e.ref NOT IN (SELECT id FROM new_nodes)
""",
    (Blame(HAVING_IDS),),
)

DANGLING_EDGES: Final = Plan("""
SELECT e.id AS id, e.ref AS value FROM base e
WHERE e.ref IN (SELECT id FROM gone_nodes) AND e.ref NOT IN (SELECT id FROM new_nodes)
  AND e.id NOT IN (SELECT id FROM gone)
""")

# Of a node with too many edges all that were given, since none of them is the one too many.
_EDGES_TOO_MANY: Final = Blame("""
SELECT g.row AS row FROM given g WHERE g.ref IN (SELECT id FROM broken WHERE value > $most)
""")
# Nodes that were not there before and have too few edges.
_NODES_TOO_EARLY: Final = Blame(
    """
SELECT g.row AS row FROM given_nodes g
WHERE g.id NOT IN (SELECT id FROM nodes) AND g.id IN (SELECT id FROM broken WHERE value < $least)
""",
    of_nodes=True,
)
# Edges that were led away from a node that was there before, and now has too few.
_EDGES_LED_AWAY: Final = Blame("""
SELECT g.row AS row FROM given g JOIN base b ON b.id = g.id
WHERE b.ref <> g.ref AND b.ref IN (SELECT id FROM broken WHERE value < $least)
""")

CARDINALITY: Final = Plan(
    """
WITH after AS (
  SELECT ref FROM base WHERE id NOT IN (SELECT id FROM gone) UNION ALL SELECT ref FROM new
), alive AS (
  SELECT id FROM nodes WHERE id NOT IN (SELECT id FROM gone_nodes) UNION SELECT id FROM new_nodes
), counted AS (
  SELECT t.id AS id, count(a.ref) AS edges FROM touched t LEFT JOIN after a ON a.ref = t.id GROUP BY t.id
)
SELECT id, edges AS value FROM counted
WHERE edges > $most OR (edges < $least AND id IN (SELECT id FROM alive))
""",
    (_EDGES_TOO_MANY, _NODES_TOO_EARLY, _EDGES_LED_AWAY),
)

REPEATED_VALUES: Final = Plan(
    "SELECT min(id) AS id, count(*) AS times, value FROM new GROUP BY value HAVING count(*) > 1",
    (Blame("SELECT g.row AS row FROM given g JOIN new n ON n.id = g.id JOIN broken b ON n.value = b.value"),),
)

TAKEN_VALUES: Final = Plan(
    """
SELECT n.id AS id, b.id AS other, n.value AS value FROM base b JOIN new n ON b.value = n.value
WHERE b.id <> n.id AND b.id NOT IN (SELECT id FROM gone)
""",
    (Blame(HAVING_IDS),),
)

# The ids of nodes whose edges are to be counted: those edges were led to, those edges were taken from, and others.
TOUCHED: Final = """
SELECT ref AS id FROM new UNION SELECT b.ref AS id FROM before b WHERE b.id IN (SELECT id FROM gone)
UNION SELECT id FROM others
"""

EITHER: Final = "SELECT id FROM one UNION ALL SELECT id FROM other"
IDS_GIVEN_TWICE: Final = "SELECT id FROM new GROUP BY id HAVING count(*) > 1"
IDS_TAKEN: Final = "SELECT n.id AS id FROM new n JOIN base b ON b.id = n.id"
EDGES_OF_GONE: Final = "SELECT e.place AS place FROM base e WHERE e.ref IN (SELECT id FROM gone_nodes)"


@dataclass(frozen=True, slots=True, kw_only=True)
class UniqueRule:
    """No two rows of a table agree on all of these columns; a row with a null among them agrees with none."""

    kind: TableType
    columns: tuple[str, ...]

    def __str__(self) -> str:
        return f"@unique({', '.join(self.columns)})"


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointRule:
    """An end of an edge is a node that exists."""

    kind: EdgeType
    column: str
    node: NodeType

    def __str__(self) -> str:
        return f"{'from' if self.column == ENDPOINT_COLUMNS[0] else 'to'} an existing {self.node.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CardinalityRule:
    """So many edges of a type leave each node of its source type."""

    kind: EdgeType
    node: NodeType
    least: int
    most: int

    def __str__(self) -> str:
        return f"@card({self.least}..{'*' if self.most == ANY_COUNT else self.most})"


Rule: TypeAlias = UniqueRule | EndpointRule | CardinalityRule

_RULES: dict[str, tuple[Rule, ...]] = {}


@dataclass(frozen=True, slots=True)
class Violation:
    """How often one constraint is broken, with some of the rows that break it."""

    constraint: str
    table_key: str
    count: int
    sample: tuple[dict[str, object], ...]

    def to_dict(self) -> dict[str, object]:
        """Return plain values."""
        return {
            "constraint": self.constraint,
            "table_key": self.table_key,
            "count": self.count,
            "sample": [dict(row) for row in self.sample],
        }

    def __str__(self) -> str:
        shown = ", ".join(_shown(row) for row in self.sample[:3])
        return f"{self.table_key} {self.constraint}: {self.count} ({shown}{', …' if self.count > 3 else ''})"


def _shown(row: dict[str, object]) -> str:
    rest = ", ".join(f"{name} {_short(value)}" for name, value in row.items() if name != "id")
    return ": ".join(part for part in (_short(row["id"]) if "id" in row else "", rest) if part)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"


def compile_rules(catalog: Catalog) -> tuple[Rule, ...]:
    """Return what rows must satisfy together; compiled once per schema and process."""
    found = _RULES.get(catalog.hash)
    if found is None:
        found = tuple(_compiled(catalog))
        while len(_RULES) >= SCHEMAS_HELD_MAX:
            _RULES.pop(next(iter(_RULES)), None)
        _RULES[catalog.hash] = found
    return found


def _compiled(catalog: Catalog) -> Iterator[Rule]:
    for kind in catalog.table_types:
        for constraint in kind.constraints:
            if isinstance(constraint, Unique):
                yield UniqueRule(kind=kind, columns=constraint.columns)
    nodes = {node.name: node for node in catalog.nodes}
    for edge in catalog.edges:
        for column, end in zip(ENDPOINT_COLUMNS, (edge.source, edge.target), strict=True):
            yield EndpointRule(kind=edge, column=column, node=nodes[end])
        least, most = edge.cardinality.minimum, edge.cardinality.maximum
        if least > 0 or most is not None:
            yield CardinalityRule(
                kind=edge, node=nodes[edge.source], least=least, most=ANY_COUNT if most is None else most
            )
