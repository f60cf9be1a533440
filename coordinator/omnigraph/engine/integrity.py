"""Checking what a write would leave behind: the rules of the schema, run over its delta and the tables as they are.

Cost follows the delta: of the tables as they are, only rows are fetched that the delta could clash with, through an
index where there is one.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, assert_never

import pyarrow as pa

from omnigraph.engine.session import Session
from omnigraph.errors import ConstraintError
from omnigraph.ids import TableId
from omnigraph.model.catalog import Catalog
from omnigraph.model.schema import TableType
from omnigraph.model.sidecar import TablePromise
from omnigraph.model.staged import StagedDelete, StagedOverwrite, StagedUpsert
from omnigraph.model.tables import Pin
from omnigraph.rules import constraints as rules
from omnigraph.rules.arrow_schema import arrow_schema
from omnigraph.rules.constraints import CardinalityRule, EndpointRule, Rule, UniqueRule, Violation
from omnigraph.rules.values import Column, compute
from omnigraph.storage.embedded import EmbeddedEngine, Relation
from omnigraph.storage.layout import table_location

SAMPLE_MAX: Final = 20
NO_IDS: Final = pa.table({"id": pa.array([], pa.string())})

ENGINE = EmbeddedEngine()


def refuse(violations: Sequence[Violation]) -> None:
    """Raise one error for all that is wrong, if anything is."""
    if violations:
        listed = "; ".join(str(each) for each in violations)
        raise ConstraintError(
            f"nothing was applied: {sum(each.count for each in violations)} rows break constraints: {listed}",
            violations=[each.to_dict() for each in violations],
        )


def reads_of(catalog: Catalog, promises: Iterable[TablePromise]) -> frozenset[TableId]:
    """Return the tables whose rows decide whether these promises may be kept, those written excepted."""
    written = {promise.table: promise for promise in promises}
    asked: set[TableId] = set()
    for rule in rules.compile_rules(catalog):
        if not isinstance(rule, UniqueRule) and _concerns(rule, written):
            asked |= {rule.kind.table_id, rule.node.table_id}
    return frozenset(asked - set(written))


def _concerns(rule: Rule, written: Mapping[TableId, TablePromise]) -> bool:
    """Tell whether a write can break a rule."""
    own = written.get(rule.kind.table_id)
    match rule:
        case UniqueRule():
            return own is not None and _adds(own)
        case EndpointRule(node=node):
            return (own is not None and _adds(own)) or _loses(written.get(node.table_id))
        case CardinalityRule(node=node, least=least):
            there = written.get(node.table_id)
            return own is not None or (there is not None and least > 0 and _adds(there))
        case _:
            assert_never(rule)


def _adds(promise: TablePromise) -> bool:
    return not isinstance(promise.staged, StagedDelete)


def _loses(promise: TablePromise | None) -> bool:
    """Tell whether ids may be gone afterwards; an upsert replaces rows and keeps their ids."""
    return promise is not None and isinstance(promise.staged, StagedDelete | StagedOverwrite)


class Integrity:
    """The rules of one schema over one write on one set of pins."""

    def __init__(
        self, session: Session, catalog: Catalog, promises: Sequence[TablePromise], pins: Mapping[TableId, Pin]
    ) -> None:
        self._catalog = catalog
        self._written = {promise.table: promise for promise in promises}
        self._deltas = {
            kind.table_id: Delta(session, kind, self._written.get(kind.table_id), pins.get(kind.table_id))
            for kind in catalog.table_types
        }

    def violations(self) -> list[Violation]:
        """Run every rule this write could break."""
        found: list[Violation] = []
        for rule in rules.compile_rules(self._catalog):
            if _concerns(rule, self._written):
                found += self._checked(rule)
        return found

    def _checked(self, rule: Rule) -> list[Violation]:
        match rule:
            case UniqueRule():
                return self._unique(rule)
            case EndpointRule():
                return self._endpoints(rule)
            case CardinalityRule():
                return self._cardinality(rule)
            case _:
                assert_never(rule)

    def _unique(self, rule: UniqueRule) -> list[Violation]:
        delta = self._deltas[rule.kind.table_id]
        new = delta.new_values(rule.columns)
        back = {"id": "id", "other": "other", "times": "times", "value": ", ".join(rule.columns)}
        found = _run(str(rule), rule.kind, rules.REPEATED_VALUES, {"new": new}, {}, back)
        base = delta.base_values(rule.columns)
        if base is not None:
            relations = {"new": new, "base": base, "gone": delta.gone}
            found += _run(str(rule), rule.kind, rules.TAKEN_VALUES, relations, {}, back)
        return found

    def _endpoints(self, rule: EndpointRule) -> list[Violation]:
        edges, nodes = self._deltas[rule.kind.table_id], self._deltas[rule.node.table_id]
        found: list[Violation] = []
        back = {"id": "id", "value": rule.column}
        if edges.adds:
            new = edges.new({"id": "id", "ref": rule.column})
            relations = {"new": new, "nodes": nodes.base_ids(edges.new_texts(rule.column))}
            relations |= {"gone_nodes": nodes.gone, "new_nodes": nodes.new({"id": "id"})}
            found += _run(str(rule), rule.kind, rules.MISSING_ENDPOINTS, relations, {}, back)
        if nodes.loses and not edges.is_overwritten:
            lost = nodes.lost_ids
            relations = {"base": edges.base_where(rule.column, lost), "gone": edges.gone}
            relations |= {"gone_nodes": pa.table({"id": lost}), "new_nodes": nodes.new({"id": "id"})}
            found += _run(str(rule), rule.kind, rules.DANGLING_EDGES, relations, {}, back)
        return found

    def _cardinality(self, rule: CardinalityRule) -> list[Violation]:
        edges, nodes = self._deltas[rule.kind.table_id], self._deltas[rule.node.table_id]
        parts = [edges.new_texts("src"), edges.base_texts_of_gone("src")]
        if rule.least > 0:
            parts.append(nodes.new_texts("id"))
            if edges.is_overwritten:
                parts.append(nodes.every_id)
        touched = compute.unique(pa.chunked_array([_one(part) for part in parts], pa.string()))
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
        return _run(str(rule), rule.kind, rules.CARDINALITY, relations, values, {"id": "src", "value": "edges"})


def _run(
    constraint: str,
    kind: TableType,
    sql: str,
    relations: Mapping[str, Relation],
    values: Mapping[str, Any],
    back: Mapping[str, str],
) -> list[Violation]:
    """Run a plan; what it returns breaks the constraint."""
    count = 0
    sample: list[dict[str, object]] = []
    for batch in ENGINE.run(sql, relations, values):
        count += batch.num_rows
        some = batch.slice(0, max(0, SAMPLE_MAX - len(sample))).to_pylist()
        sample += [{back[name]: _plain(value) for name, value in row.items()} for row in some]
    return [Violation(constraint, str(kind.table), count, tuple(sample))] if count else []


def _plain(value: Any) -> object:
    return list(value.values()) if isinstance(value, dict) else value


@dataclass(eq=False)
class Delta:
    """One table as it is, and what a write does to it; relations have the columns a plan asks for."""

    session: Session
    kind: TableType
    promise: TablePromise | None
    pin: Pin | None

    @property
    def adds(self) -> bool:
        """Whether rows are added or replaced."""
        return self.promise is not None and _adds(self.promise)

    @property
    def loses(self) -> bool:
        """Whether ids may be gone afterwards."""
        return _loses(self.promise)

    @property
    def is_overwritten(self) -> bool:
        """Whether nothing stays of what is there."""
        return self.promise is not None and isinstance(self.promise.staged, StagedOverwrite)

    @property
    def _version(self) -> int | None:
        """The version rows stay of; none if none do."""
        return None if self.pin is None or self.is_overwritten else self.pin.lance_version

    @property
    def _uri(self) -> str:
        return self.session.root.uri(table_location(self.kind.table.kind, self.kind.table_id))

    def new(self, named: Mapping[str, str]) -> Relation:
        """Return columns of the rows that are added, by the names a plan has for them."""
        columns = list(dict.fromkeys(named.values()))
        schema = self._schema(named)
        if self.promise is None or not self.adds:
            return schema.empty_table()
        staged, uri, staging = self.promise.staged, self._uri, self.session.staging

        def read() -> pa.RecordBatchReader:
            batches = (_renamed(batch, named, schema) for batch in staging.new_rows(uri, staged, columns))
            return pa.RecordBatchReader.from_batches(schema, batches)

        return read

    def new_texts(self, column: str) -> Column:
        """Return one text column of the rows that are added."""
        if self.promise is None or not self.adds:
            return pa.chunked_array([], pa.string())
        batches = self.session.staging.new_rows(self._uri, self.promise.staged, [column])
        return pa.chunked_array([batch.column(column) for batch in batches], pa.string())

    @cached_property
    def _gone_ids(self) -> Column:
        if self.promise is None or not isinstance(self.promise.staged, StagedDelete | StagedUpsert):
            return pa.chunked_array([], pa.string())
        return self.session.staging.gone_ids(self._uri, self.promise.staged)

    @property
    def gone(self) -> pa.Table:
        """Return the ids of rows that are taken out or replaced; of an overwrite none, as no row of it stays."""
        return pa.table({"id": self._gone_ids})

    @property
    def lost_ids(self) -> Column:
        """Return the ids that were there, and may not be afterwards."""
        return self.every_id if self.is_overwritten else _one(self._gone_ids)

    @property
    def every_id(self) -> Column:
        """Return the ids as they are."""
        if self.pin is None:
            return pa.array([], pa.string())
        scanned = self.session.staging.scan(self._uri, self.pin.lance_version, ["id"])
        return _one(pa.chunked_array([batch.column("id") for batch in scanned], pa.string()))

    def base_ids(self, keys: Column) -> pa.Table:
        """Return which of some ids are there and stay, deletions aside."""
        if self._version is None:
            return NO_IDS
        wanted = _one(compute.unique(keys))
        return self.session.staging.rows_where(self._uri, self._version, "id", wanted, ["id"])

    def base_where(self, column: str, keys: Column) -> pa.Table:
        """Return id and a text column, as ``ref``, of the rows that are there and have one of some texts."""
        if self._version is None:
            return pa.table({"id": pa.array([], pa.string()), "ref": pa.array([], pa.string())})
        found = self.session.staging.rows_where(self._uri, self._version, column, _one(keys), ["id", column])
        return found.rename_columns(["id", "ref"])

    def base_texts_of_gone(self, column: str) -> Column:
        """Return a text column of the rows that are taken out or replaced, as they are."""
        empty = pa.chunked_array([], pa.string())
        if self.pin is None:
            return empty
        if self.is_overwritten:
            scanned = self.session.staging.scan(self._uri, self.pin.lance_version, [column])
            return pa.chunked_array([batch.column(column) for batch in scanned], pa.string())
        if len(self._gone_ids) == 0:
            return empty
        found = self.session.staging.rows_where(self._uri, self.pin.lance_version, "id", _one(self._gone_ids), [column])
        return found.column(column)

    def new_values(self, columns: Sequence[str]) -> Relation:
        """Return id and value of the rows that are added and have no null in these columns."""
        schema = self._value_schema(columns)
        if self.promise is None or not self.adds:
            return schema.empty_table()
        staged, uri, staging = self.promise.staged, self._uri, self.session.staging

        def read() -> pa.RecordBatchReader:
            batches = (_valued(b, columns, schema) for b in staging.new_rows(uri, staged, ["id", *columns]))
            return pa.RecordBatchReader.from_batches(schema, batches)

        return read

    def base_values(self, columns: Sequence[str]) -> Relation | None:
        """Return id and value of the rows that stay and could agree with one that is added; None if none stay."""
        if self._version is None:
            return None
        schema, wanted = self._value_schema(columns), ["id", *columns]
        version, uri, staging = self._version, self._uri, self.session.staging
        if pa.types.is_string(arrow_schema(self.kind).field(columns[0]).type):
            keys = _one(compute.drop_null(compute.unique(self.new_texts(columns[0]))))
            found = staging.rows_where(uri, version, columns[0], keys, wanted)
            return pa.Table.from_batches([_valued(b, columns, schema) for b in found.to_batches()], schema)

        def read() -> pa.RecordBatchReader:
            batches = (_valued(b, columns, schema) for b in staging.scan(uri, version, wanted))
            return pa.RecordBatchReader.from_batches(schema, batches)

        return read

    def _value_schema(self, columns: Sequence[str]) -> pa.Schema:
        stored = arrow_schema(self.kind)
        each = [pa.field(f"c{number}", stored.field(column).type) for number, column in enumerate(columns)]
        return pa.schema(
            [pa.field("id", pa.string()), pa.field("value", each[0].type if len(each) == 1 else pa.struct(each))]
        )

    def _schema(self, named: Mapping[str, str]) -> pa.Schema:
        stored = arrow_schema(self.kind)
        return pa.schema([pa.field(name, stored.field(column).type) for name, column in named.items()])


def _renamed(batch: pa.RecordBatch, named: Mapping[str, str], schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([batch.column(column) for column in named.values()], schema=schema)


def _valued(batch: pa.RecordBatch, columns: Sequence[str], schema: pa.Schema) -> pa.RecordBatch:
    """Return id and value of the rows that have all of these columns."""
    for column in columns:
        batch = batch.filter(compute.is_valid(batch.column(column)))
    parts = [batch.column(column) for column in columns]
    kind: Any = schema.field("value").type
    value = parts[0] if len(parts) == 1 else pa.StructArray.from_arrays(parts, fields=list(kind))
    return pa.RecordBatch.from_arrays([batch.column("id"), value], schema=schema)


def _one(column: Column) -> Column:
    """Return a column in one piece."""
    if isinstance(column, pa.ChunkedArray):
        return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    return column
