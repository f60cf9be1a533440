"""Whether the rows that are there satisfy what a new schema asks of them and the old one did not.

Tables are looked at as they will be: under the names, and with the values, of the new schema.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import pyarrow as pa

from omnigraph.engine.deltas import uri_of
from omnigraph.engine.engines import cluster_for
from omnigraph.engine.integrity import Integrity
from omnigraph.engine.schema_looks import (
    Look,
    LookAtFormula,
    LookAtKeys,
    LookAtNumbers,
    LookAtValues,
    LookForNulls,
    looked,
)
from omnigraph.engine.session import Session
from omnigraph.engine.spread_integrity import SpreadIntegrity
from omnigraph.engine.spreading import NO_IDS, SpreadTable, stored_types
from omnigraph.ids import PropertyId, TableId
from omnigraph.model.catalog import Catalog
from omnigraph.model.schema import (
    ANY_NUMBER,
    Check,
    Constraint,
    EdgeType,
    EnumType,
    Key,
    NodeType,
    Property,
    Range,
    TableType,
    Unique,
)
from omnigraph.model.tables import Pin
from omnigraph.rules.constraints import Violation
from omnigraph.rules.row_checks import SAMPLE_MAX
from omnigraph.rules.schema_changes import identified, is_tighter
from omnigraph.rules.schema_pairs import Backfill
from omnigraph.rules.schema_values import Change, change_of
from omnigraph.rules.values import Column
from omnigraph.storage.lance_door import Scan
from omnigraph.storage.relations import Relation, Spread

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked of one type that was not asked before."""

    old: TableType
    new: TableType

    @property
    def constraints(self) -> tuple[Constraint, ...]:
        """The constraints that are new, and a key whose columns have another type: ids are made from it."""
        before = {identified(each, self.old) for each in self.old.constraints}
        return tuple(
            each
            for each in self.new.constraints
            if identified(each, self.new) not in before or (isinstance(each, Key) and self._is_retyped(each))
        )

    def _is_retyped(self, key: Key) -> bool:
        return any(new.name in key.columns and old.type != new.type for old, new in self._both)

    @property
    def _both(self) -> Iterator[tuple[Property, Property]]:
        before = {column.id: column for column in self.old.properties}
        return ((before[column.id], column) for column in self.new.properties if column.id in before)

    @property
    def added(self) -> tuple[Property, ...]:
        """The properties that were not there."""
        before = {column.id for column in self.old.properties}
        return tuple(column for column in self.new.properties if column.id not in before)

    @property
    def required(self) -> tuple[Property, ...]:
        """The properties that may no longer be null, as they were."""
        return tuple(old for old, new in self._both if old.nullable and not new.nullable)

    @property
    def words(self) -> tuple[Property, ...]:
        """The properties that may no longer be all that they were."""
        return tuple(
            new
            for old, new in self._both
            if isinstance(new.type, EnumType) and change_of(old.type, new.type) is Change.CHECKED
        )

    @property
    def numbers(self) -> tuple[tuple[Property, Property], ...]:
        """The required numbers that get a type that may not hold them, as they were and as they will be."""
        return tuple(
            (old, new)
            for old, new in self._both
            if old.type != new.type and not new.nullable and change_of(old.type, new.type) is Change.NARROWED
        )

    @property
    def of_rows(self) -> TableType:
        """The type with nothing but what each of its rows must newly satisfy by itself."""
        own = tuple(each for each in self.constraints if isinstance(each, Range | Check))
        return replace(self.new, properties=self.words, constraints=own)

    @property
    def of_all(self) -> TableType:
        """The type with nothing but what its rows must newly satisfy together."""
        own = tuple(each for each in self.constraints if isinstance(each, Unique))
        if not isinstance(self.new, EdgeType) or not isinstance(self.old, EdgeType):
            return replace(self.new, constraints=own)
        tighter = is_tighter(self.old.cardinality, self.new.cardinality)
        return replace(self.new, constraints=own, cardinality=self.new.cardinality if tighter else ANY_NUMBER)


@dataclass(frozen=True, slots=True)
class WholeTable:
    """A table as a change that puts all of its rows in the place of all of its rows."""

    session: Session
    kind: TableType
    pin: Pin | None

    @property
    def adds(self) -> bool:
        """Whether it has rows."""
        return self.size > 0

    @property
    def is_overwrite(self) -> bool:
        """Whether nothing stays of what is there: it is all there anew."""
        return True

    @property
    def loses(self) -> bool:
        """Whether ids may be gone afterwards: none is."""
        return False

    @property
    def size(self) -> int:
        """How many rows it has."""
        return 0 if self.pin is None else self.pin.rows

    def rows(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Stream columns of its rows."""
        if self.pin is not None:
            yield from self.session.staging.scan(uri_of(self.session, self.kind), self.pin.lance_version, columns)

    def gone_ids(self) -> Column:
        """Return the ids of rows that are taken out: an overwrite names none."""
        return pa.chunked_array([], pa.string())

    def spread_rows(self, columns: Sequence[str]) -> Relation:
        """Return columns of its rows, in parts that can be read anywhere."""
        shares = SpreadTable(self.session, self.kind, None, self.pin).table_parts(columns)
        return Spread(stored_types(self.kind, columns), shares)

    @property
    def spread_gone(self) -> Relation:
        """Return the same as :meth:`gone_ids`."""
        return NO_IDS


class SchemaChecks:
    """Runs what two schemas ask for differently over tables that are as the new one has them."""

    def __init__(
        self,
        session: Session,
        old: Catalog,
        new: Catalog,
        pins: Mapping[TableId, Pin],
        backfills: Mapping[PropertyId, Backfill] | None = None,
    ) -> None:
        self._session = session
        self._old, self._new = old, new
        self._pins = pins
        self._backfills = backfills or {}
        before = {kind.table_id: kind for kind in old.table_types}
        kept = [kind for kind in new.table_types if kind.table_id in before]
        self._asked = [Asked(before[kind.table_id], kind) for kind in kept]

    def unfitting(self) -> list[Violation]:
        """Return what tables as they are hold that no column of the new schema can hold."""
        return [each for asked in self._asked for each in self._unfitting(asked)]

    def _unfitting(self, asked: Asked) -> Iterator[Violation]:
        pin = self._pins.get(asked.new.table_id)
        if pin is None or not pin.rows:
            return
        looks: list[Look] = []
        for column in asked.required:
            if cluster_for(self._session, pin.rows) is None:
                yield from self._nulls(asked.old, column.name, pin)
            else:
                looks.append(LookForNulls(kind=asked.old, name=column.name))
        looks += [LookAtNumbers(kind=asked.new, old=old, new=new) for old, new in asked.numbers]
        for column in asked.added:
            formula = self._backfills.get(column.id)
            if formula is not None and not isinstance(formula, str):
                looks.append(LookAtFormula(kind=asked.new, new=column, formula=formula))
        yield from looked(self._session, asked.old, pin, looks)

    def violations(self) -> list[Violation]:
        """Return all that is wrong."""
        alone = [each for asked in self._asked for each in self._alone(asked)]
        return [*alone, *self._together()]

    @property
    def reads(self) -> frozenset[TableId]:
        """The tables that decide."""
        asked = {each.new.table_id for each in self._asked if self._alone_needed(each) or self._together_needed(each)}
        edges = [each.new for each in self._asked if self._together_needed(each)]
        ends = {name for edge in edges if isinstance(edge, EdgeType) for name in (edge.source, edge.target)}
        return frozenset(asked | {node.table_id for node in self._new.nodes if node.name in ends})

    # -- rows by themselves ---------------------------------------------------------------------------

    @staticmethod
    def _alone_needed(asked: Asked) -> bool:
        of_rows = asked.of_rows
        keyed = any(isinstance(each, Key) for each in asked.constraints)
        return bool(asked.required or of_rows.properties or of_rows.constraints or asked.numbers or keyed)

    def _alone(self, asked: Asked) -> Iterator[Violation]:
        pin = self._pins.get(asked.new.table_id)
        if pin is None or not pin.rows:
            return
        looks: list[Look] = []
        if asked.of_rows.properties or asked.of_rows.constraints:
            looks.append(LookAtValues(kind=asked.of_rows))
        looks += [LookAtKeys(kind=asked.new, key=each) for each in asked.constraints if isinstance(each, Key)]
        yield from looked(self._session, asked.new, pin, looks)

    def _nulls(self, kind: TableType, name: str, pin: Pin) -> Iterator[Violation]:
        # As text, because an expression of Arrow can not ask for vectors, blobs and some lists; a name is only letters.
        uri, where = uri_of(self._session, kind), f"`{name}` IS NULL"
        count = self._session.tables.count(uri, pin.lance_version, where)
        if count:
            some = self._session.tables.scan(
                uri, pin.lance_version, Scan(columns=["id"], where=where, limit=SAMPLE_MAX)
            ).read_all()
            sample = tuple({"id": each, name: None} for each in some.column("id").to_pylist())
            yield Violation(f"{name} is required", str(kind.table), count, sample)

    # -- rows together --------------------------------------------------------------------------------

    def _together_needed(self, asked: Asked) -> bool:
        if any(isinstance(each, Unique) for each in asked.constraints):
            return True
        if not isinstance(asked.old, EdgeType) or not isinstance(asked.new, EdgeType):
            return False
        return is_tighter(asked.old.cardinality, asked.new.cardinality) or self._has_other_ends(asked.old, asked.new)

    def _has_other_ends(self, old: EdgeType, new: EdgeType) -> bool:
        before = {node.name: node.id for node in self._old.nodes}
        after = {node.name: node.id for node in self._new.nodes}
        return (before[old.source], before[old.target]) != (after[new.source], after[new.target])

    def _together(self) -> list[Violation]:
        asked = {each.new.table_id: each for each in self._asked if self._together_needed(each)}
        if not asked:
            return []
        changes = {table: WholeTable(self._session, each.new, self._pins.get(table)) for table, each in asked.items()}
        nodes = tuple(self._bare(node, asked.get(node.table_id)) for node in self._new.nodes)
        edges = tuple(self._bare(edge, asked[edge.table_id]) for edge in self._new.edges if edge.table_id in asked)
        probe = Catalog(interfaces=(), nodes=_only(nodes, NodeType), edges=_only(edges, EdgeType))
        cluster = cluster_for(self._session, sum(change.size for change in changes.values()))
        if cluster is None:
            return Integrity(self._session, probe, changes, self._pins).violations()
        return SpreadIntegrity(self._session, probe, changes, self._pins, cluster).violations()

    @staticmethod
    def _bare(kind: TableType, asked: Asked | None) -> TableType:
        return replace(kind, constraints=()) if asked is None else asked.of_all


def _only(kinds: Sequence[TableType], wanted: type[T]) -> tuple[T, ...]:
    return tuple(kind for kind in kinds if isinstance(kind, wanted))
