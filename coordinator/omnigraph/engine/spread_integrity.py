"""The rules of a schema over a write that is too large for this process: the same plans, over whole columns.

An engine with machines of its own reads the columns there and joins them; counts and a sample come back.
"""

from collections.abc import Iterator, Mapping

from omnigraph.engine.deltas import StagedChange
from omnigraph.engine.integrity import Integrity, Question
from omnigraph.engine.session import Session
from omnigraph.engine.spreading import NO_IDS, SpreadChange, SpreadTable
from omnigraph.ids import TableId
from omnigraph.model.catalog import Catalog
from omnigraph.model.tables import Pin
from omnigraph.rules import constraints as rules
from omnigraph.rules.constraints import CardinalityRule, EndpointRule, UniqueRule, Violation
from omnigraph.storage.relations import ClusterEngine, Found, Relation


def violations(
    session: Session, catalog: Catalog, changes: Mapping[TableId, StagedChange], pins: Mapping[TableId, Pin]
) -> list[Violation]:
    """Run every rule a staged write could break: here, or where there are machines for it if it is large."""
    cluster = session.cluster
    if cluster is not None and cluster.takes(sum(change.touched for change in changes.values())):
        return SpreadIntegrity(session, catalog, changes, pins, cluster).violations()
    return Integrity(session, catalog, changes, pins).violations()


class SpreadIntegrity(Integrity):
    """The rules of one schema over one write, asked of an engine with machines of its own."""

    def __init__(
        self,
        session: Session,
        catalog: Catalog,
        changes: Mapping[TableId, StagedChange] | Mapping[TableId, SpreadChange],
        pins: Mapping[TableId, Pin],
        engine: ClusterEngine,
    ) -> None:
        super().__init__(session, catalog, {}, pins)
        self._changes = changes
        self._engine = engine
        self._tables = {
            kind.table_id: SpreadTable(session, kind, changes.get(kind.table_id), pins.get(kind.table_id))
            for kind in catalog.table_types
        }

    def _unique(self, rule: UniqueRule) -> Iterator[Question]:
        table = self._tables[rule.kind.table_id]
        new = table.new_values(rule.columns)
        back = {"id": "id", "other": "other", "times": "times", "value": ", ".join(rule.columns)}
        yield Question(rule, rules.REPEATED_VALUES, {"new": new}, back, engine=self._engine)
        if table.stays:
            relations = {"new": new, "base": table.base_values(rule.columns), "gone": table.gone}
            yield Question(rule, rules.TAKEN_VALUES, relations, back, engine=self._engine)

    def _endpoints(self, rule: EndpointRule) -> Iterator[Question]:
        edges, nodes = self._tables[rule.kind.table_id], self._tables[rule.node.table_id]
        back, named = {"id": "id", "value": rule.column}, {"id": "id", "ref": rule.column}
        new_nodes = nodes.new({"id": "id"})
        if edges.adds:
            relations: dict[str, Relation] = {"new": edges.new(named), "nodes": nodes.base({"id": "id"})}
            relations |= {"gone_nodes": nodes.gone, "new_nodes": new_nodes}
            yield Question(rule, rules.MISSING_ENDPOINTS, relations, back, engine=self._engine)
        if nodes.loses and not edges.is_overwritten:
            relations = {"base": edges.base(named), "gone": edges.gone, "gone_nodes": nodes.lost}
            yield Question(rule, rules.DANGLING_EDGES, {**relations, "new_nodes": new_nodes}, back, engine=self._engine)

    def _cardinality(self, rule: CardinalityRule) -> Question:
        edges, nodes = self._tables[rule.kind.table_id], self._tables[rule.node.table_id]
        new, new_nodes = edges.new({"ref": "src"}), nodes.new({"id": "id"})
        others: Relation = NO_IDS
        if rule.least > 0:
            every = nodes.before({"id": "id"}) if edges.is_overwritten else NO_IDS
            others = Found(rules.EITHER, {"one": every, "other": new_nodes})
        touched: dict[str, Relation] = {"new": new, "before": edges.before({"id": "id", "ref": "src"})}
        touched |= {"gone": edges.lost, "others": others}
        relations: dict[str, Relation] = {
            "touched": Found(rules.TOUCHED, touched),
            "base": edges.base({"id": "id", "ref": "src"}),
            "gone": edges.gone,
            "new": new,
            "nodes": nodes.base({"id": "id"}),
            "gone_nodes": nodes.gone,
            "new_nodes": new_nodes,
        }
        values = {"least": rule.least, "most": rule.most}
        back = {"id": "src", "value": "edges"}
        return Question(rule, rules.CARDINALITY, relations, back, values, self._engine)
