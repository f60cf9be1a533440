"""Checking what a write would leave behind: the rules of the schema, run over its delta and the tables as they are.

Cost follows the delta: of the tables as they are, only rows are fetched that the delta could clash with, through an
index where there is one.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias, assert_never

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.engine.deltas import NO_IDS, ROW, Change, Delta, Effect, StagedChange, in_one_piece
from omnigraph.engine.portions import ROWS_TOGETHER_MAX, Portions, portions_needed
from omnigraph.engine.session import Session
from omnigraph.errors import ConstraintError
from omnigraph.ids import TableId
from omnigraph.model.catalog import Catalog
from omnigraph.model.schema import ENDPOINT_COLUMNS, NodeType
from omnigraph.model.sidecar import TablePromise
from omnigraph.model.tables import Pin
from omnigraph.rules import constraints as rules
from omnigraph.rules.constraints import CardinalityRule, EndpointRule, Plan, Rule, UniqueRule, Violation
from omnigraph.rules.values import Column, compute
from omnigraph.storage.embedded import EmbeddedEngine
from omnigraph.storage.relations import Relation, RelationalEngine
from omnigraph.storage.sought import Sought
from omnigraph.storage.spool import Spool

SAMPLE_MAX: Final = 20
Rows: TypeAlias = npt.NDArray[np.int64]
"""Numbers of rows among those that were given for a table."""

ENGINE: RelationalEngine = EmbeddedEngine()


def refuse(violations: Sequence[Violation]) -> None:
    """Raise one error for all that is wrong, if anything is."""
    if violations:
        listed = "; ".join(str(each) for each in violations)
        raise ConstraintError(
            f"nothing was applied: {sum(each.count for each in violations)} rows break constraints: {listed}",
            violations=[each.to_dict() for each in violations],
        )


def reads_of(catalog: Catalog, changes: Mapping[TableId, Effect]) -> frozenset[TableId]:
    """Return the tables whose rows decide whether a write is allowed, those written excepted."""
    asked: set[TableId] = set()
    for rule in rules.compile_rules(catalog):
        if not isinstance(rule, UniqueRule) and concerns(rule, changes):
            asked |= {rule.kind.table_id, rule.node.table_id}
    return frozenset(asked - set(changes))


def staged_changes(session: Session, catalog: Catalog, promises: Iterable[TablePromise]) -> dict[TableId, StagedChange]:
    """Return what promises do to their tables."""
    return {
        promise.table: StagedChange(session, catalog.by_table_id(promise.table), promise.staged) for promise in promises
    }


def concerns(rule: Rule, changes: Mapping[TableId, Effect]) -> bool:
    """Tell whether a write can break a rule."""
    own = changes.get(rule.kind.table_id)
    match rule:
        case UniqueRule():
            return own is not None and own.adds
        case EndpointRule(node=node):
            there = changes.get(node.table_id)
            return (own is not None and own.adds) or (there is not None and there.loses)
        case CardinalityRule(node=node, least=least):
            there = changes.get(node.table_id)
            return own is not None or (there is not None and least > 0 and there.adds)
        case _:
            assert_never(rule)


@dataclass(frozen=True, slots=True)
class Question:
    """A plan over the relations of one write: whatever it returns breaks a rule."""

    rule: Rule
    plan: Plan
    relations: Mapping[str, Relation]
    back: Mapping[str, str]
    values: Mapping[str, Any] = field(default_factory=dict)
    engine: RelationalEngine = field(default_factory=lambda: ENGINE)

    def answer(self) -> list[Violation]:
        """Run the plan; count what it returns, and keep some of it."""
        count, some = self.engine.sampled(self.plan.sql, self.relations, self.values, most=SAMPLE_MAX)
        sample = [{self.back[name]: _plain(value) for name, value in row.items()} for row in some.to_pylist()]
        return [Violation(str(self.rule), str(self.rule.kind.table), count, tuple(sample))] if count else []


class Integrity:
    """The rules of one schema over one write on one set of pins."""

    def __init__(
        self, session: Session, catalog: Catalog, changes: Mapping[TableId, Change], pins: Mapping[TableId, Pin]
    ) -> None:
        self._catalog = catalog
        self._changes: Mapping[TableId, Effect] = changes
        self._deltas = {
            kind.table_id: Delta(session, kind, changes.get(kind.table_id), pins.get(kind.table_id))
            for kind in catalog.table_types
        }
        self._are_ends_there: dict[TableId, bool] = {}

    def violations(self) -> list[Violation]:
        """Run every rule this write could break."""
        found: list[Violation] = []
        for rule in rules.compile_rules(self._catalog):
            if concerns(rule, self._changes):
                found += _added_up((each.plan, v) for each in self.questions(rule) for v in each.answer())
        return found

    def questions(self, rule: Rule) -> Iterator[Question]:
        """Yield what is to be asked about one rule."""
        match rule:
            case UniqueRule():
                yield from self._unique(rule)
            case EndpointRule():
                yield from self._endpoints(rule)
            case CardinalityRule():
                yield self._cardinality(rule)
            case _:
                assert_never(rule)

    def blamed(self, question: Question) -> tuple[TableId, Rows]:
        """Return which of the given rows what a question has found is due to; none if it lies in other rows."""
        rule = question.rule
        node = rule.kind if isinstance(rule, UniqueRule) else rule.node
        ends = {} if isinstance(rule, UniqueRule) else {"ref": ENDPOINT_COLUMNS[0]}
        relations = {
            **question.relations,
            "broken": ENGINE.run(question.plan.sql, question.relations, question.values).read_all(),
            "given": self._deltas[rule.kind.table_id].new({"id": "id", "row": ROW, **ends}),
            "given_nodes": self._deltas[node.table_id].new({"id": "id", "row": ROW}),
        }
        for blame in question.plan.blames:
            used = {name: value for name, value in question.values.items() if f"${name}" in blame.sql}
            rows = rows_of(blame.sql, relations, used)
            if len(rows):
                return (node if blame.of_nodes else rule.kind).table_id, rows
        return rule.kind.table_id, np.empty(0, np.int64)

    def _unique(self, rule: UniqueRule) -> Iterator[Question]:
        delta = self._deltas[rule.kind.table_id]
        new = delta.new_values(rule.columns)
        back = {"id": "id", "other": "other", "times": "times", "value": ", ".join(rule.columns)}
        yield Question(rule, rules.REPEATED_VALUES, {"new": new}, back)
        base = delta.base_values(rule.columns)
        if base is not None:
            yield Question(rule, rules.TAKEN_VALUES, {"new": new, "base": base, "gone": delta.gone}, back)

    def _endpoints(self, rule: EndpointRule) -> Iterator[Question]:
        edges, nodes = self._deltas[rule.kind.table_id], self._deltas[rule.node.table_id]
        back = {"id": "id", "value": rule.column}
        if edges.adds and max(edges.size, nodes.size) > ROWS_TOGETHER_MAX:
            yield from self._many_endpoints(rule, back)
        # Ids are unique: if as many are there as are referred to, these are those, and there is nothing to ask.
        elif edges.adds and (nodes.loses or not self._all_ends_there(rule.node)):
            new = edges.new({"id": "id", "ref": rule.column})
            relations = {"new": new, "nodes": nodes.base_ids(compute.unique(edges.new_column(rule.column)))}
            relations |= {"gone_nodes": nodes.gone, "new_nodes": nodes.new({"id": "id"})}
            yield Question(rule, rules.MISSING_ENDPOINTS, relations, back)
        if nodes.loses and not edges.is_overwritten:
            lost = nodes.lost_ids
            relations = {"base": edges.base_where(rule.column, lost), "gone": edges.gone}
            relations |= {"gone_nodes": pa.table({"id": lost}), "new_nodes": nodes.new({"id": "id"})}
            yield Question(rule, rules.DANGLING_EDGES, relations, back)

    def _many_endpoints(self, rule: EndpointRule, back: Mapping[str, str]) -> Iterator[Question]:
        """Ask about so many ends that they are not held together: once for each portion of them."""
        edges, nodes = self._deltas[rule.kind.table_id], self._deltas[rule.node.table_id]
        count = portions_needed(max(edges.size, nodes.size))
        with Spool() as spool:
            new = Portions(spool, edges, {"id": "id", "ref": rule.column}, "ref", count)
            new_nodes = Portions(spool, nodes, {"id": "id"}, "id", count)
            for number in range(count):
                if not nodes.loses:
                    ends = Sought(new.texts(number))
                    ends.meet(new_nodes.texts(number))
                    if _are_there(ends, nodes):
                        continue  # as above
                relations: dict[str, Relation] = {
                    "new": new.relation(number),
                    "nodes": nodes.base_ids(compute.unique(new.texts(number))) if nodes.stays else NO_IDS,
                    "gone_nodes": nodes.gone,
                    "new_nodes": new_nodes.relation(number),
                }
                yield Question(rule, rules.MISSING_ENDPOINTS, relations, back)

    def _all_ends_there(self, node: NodeType) -> bool:
        """Tell whether all nodes of a type that added edges refer to are there or are added; one look for all ends."""
        if node.table_id not in self._are_ends_there:
            nodes = self._deltas[node.table_id]
            ends = Sought(pa.chunked_array(self._ends(node), pa.string()))
            if nodes.adds:
                ends.meet(nodes.new_column("id"))
            self._are_ends_there[node.table_id] = _are_there(ends, nodes)
        return self._are_ends_there[node.table_id]

    def _ends(self, node: NodeType) -> Iterator[Column]:
        """Yield the ids of a type that added edges refer to, each as often as they do."""
        for rule in rules.compile_rules(self._catalog):
            if isinstance(rule, EndpointRule) and rule.node.table_id == node.table_id:
                yield from self._deltas[rule.kind.table_id].new_column(rule.column).chunks

    def _cardinality(self, rule: CardinalityRule) -> Question:
        edges, nodes = self._deltas[rule.kind.table_id], self._deltas[rule.node.table_id]
        parts = [edges.new_column("src"), edges.base_texts_of_gone("src")]
        if rule.least > 0:
            parts.append(nodes.new_column("id"))
            if edges.is_overwritten:
                parts.append(nodes.every_id)
        touched = compute.unique(pa.chunked_array([in_one_piece(part) for part in parts], pa.string()))
        relations = {
            "touched": pa.table({"id": touched}),
            "base": edges.base_where("src", touched),
            "gone": edges.gone,
            "new": edges.new({"ref": "src"}),
            "nodes": nodes.base_ids(touched),
            "gone_nodes": nodes.gone,
            "new_nodes": nodes.new({"id": "id"}),
        }
        values = {"least": rule.least, "most": rule.most}
        return Question(rule, rules.CARDINALITY, relations, {"id": "src", "value": "edges"}, values)


def _are_there(ends: Sought, nodes: Delta) -> bool:
    """Tell whether all nodes that were not met among added ones were there before."""
    asked = ends.left
    return nodes.base_count(ends) == asked


def _added_up(found: "Iterable[tuple[Plan, Violation]]") -> Iterable[Violation]:
    """Make one of what the same plan found in several portions."""
    by_plan: dict[Plan, Violation] = {}
    for plan, each in found:
        before = by_plan.get(plan, replace(each, count=0, sample=()))
        sample = (*before.sample, *each.sample)[:SAMPLE_MAX]
        by_plan[plan] = replace(each, count=before.count + each.count, sample=sample)
    return by_plan.values()


def rows_of(sql: str, relations: Mapping[str, Relation], values: Mapping[str, Any]) -> Rows:
    """Return the numbers of rows that a query finds, each once."""
    found = ENGINE.run(sql, relations, values).read_all()
    return np.unique(found.column("row").to_numpy())


def _plain(value: Any) -> object:
    return list(value.values()) if isinstance(value, dict) else value
