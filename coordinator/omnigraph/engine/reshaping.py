"""Which tables need other columns when a schema changes, and staging them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from omnigraph.engine.deltas import uri_of
from omnigraph.engine.engines import cluster_for
from omnigraph.engine.session import Session
from omnigraph.engine.spread_reshaping import SpreadReshape
from omnigraph.engine.table_work import step
from omnigraph.failpoints import Failpoint
from omnigraph.ids import PropertyId, TableId
from omnigraph.model.catalog import Catalog
from omnigraph.model.schema import ENDPOINT_COLUMNS, EdgeType, Property, ScalarType, TableType
from omnigraph.model.sidecar import TablePromise
from omnigraph.model.tables import Pin
from omnigraph.rules.arrow_schema import arrow_field, arrow_schema
from omnigraph.rules.formula_values import worked_out
from omnigraph.rules.formulas import Formula, columns_of
from omnigraph.rules.schema_pairs import Backfill
from omnigraph.rules.schema_values import backfilled, recast
from omnigraph.rules.values import Column, compute
from omnigraph.storage.lance_reshaping import ShapedColumn
from omnigraph.storage.layout import table_location
from omnigraph.storage.staging import Ticket


@dataclass(frozen=True, slots=True, kw_only=True)
class Reshape:
    """One table whose columns change."""

    old: TableType
    new: TableType
    columns: tuple[ShapedColumn, ...]
    is_rewrite: bool = False

    @property
    def writes(self) -> bool:
        """Whether values are written, if there are rows."""
        return self.is_rewrite or any(column.make is not None for column in self.columns)


def reshapes(
    old: Catalog, new: Catalog, backfills: Mapping[PropertyId, Backfill], *, is_hard: bool = False
) -> Iterator[Reshape]:
    """Yield the tables whose columns are others than before; one that is dropped softly keeps its files."""
    before = {kind.table_id: kind for kind in old.table_types}
    for kind in new.table_types:
        was = before.get(kind.table_id)
        if was is not None and _stored(was) != _stored(kind):
            lost = {column.id for column in was.properties} - {column.id for column in kind.properties}
            yield Reshape(old=was, new=kind, columns=_shaped(was, kind, backfills), is_rewrite=is_hard and bool(lost))


def _stored(kind: TableType) -> dict[PropertyId, tuple[str, pa.DataType, bool]]:
    """Return how properties are stored; their order means nothing, as columns are asked for by name."""
    fields = {column.id: arrow_field(column) for column in kind.properties}
    return {identity: (field.name, field.type, field.nullable) for identity, field in fields.items()}


def _shaped(old: TableType, new: TableType, backfills: Mapping[PropertyId, Backfill]) -> tuple[ShapedColumn, ...]:
    system = ("id", *ENDPOINT_COLUMNS) if isinstance(new, EdgeType) else ("id",)
    schema = arrow_schema(new)
    before = {column.id: column for column in old.properties}
    ids = [ShapedColumn(field=schema.field(name), source=name) for name in system]
    return (*ids, *(_column(before.get(column.id), column, backfills.get(column.id)) for column in new.properties))


def _column(old: Property | None, new: Property, backfill: Backfill | None) -> ShapedColumn:
    field = arrow_field(new)
    if old is None:
        match backfill:
            case None:
                return ShapedColumn(field=field, source=None)
            case str():
                return ShapedColumn(field=field, source=None, make=partial(_filled, new, backfill))
            case _:
                make = partial(_worked_out, new, backfill)
                return ShapedColumn(field=field, source=None, make=make, reads=columns_of(backfill))
    if arrow_field(old).type == field.type:
        return ShapedColumn(field=field, source=old.name)
    return ShapedColumn(field=field, source=old.name, make=partial(_recast, old, new), reads=(old.name,))


def _filled(column: Property, text: str, rows: pa.RecordBatch) -> Column:
    return backfilled(column.type, text, rows.num_rows)


def _worked_out(column: Property, formula: Formula, rows: pa.RecordBatch) -> Column:
    made = worked_out(formula, rows, column.type)
    assert not compute.any(made.wrong).as_py()  # noqa: S101  these very rows were looked at before
    return made.values


def _recast(old: Property, new: Property, rows: pa.RecordBatch) -> Column:
    assert isinstance(old.type, ScalarType)  # noqa: S101  a plan allows no other change of what is stored
    assert isinstance(new.type, ScalarType)  # noqa: S101
    return recast(rows.column(old.name), old.type.scalar, new.type.scalar)


def staged_reshape(session: Session, reshape: Reshape, pin: Pin | None) -> TablePromise:
    """Stage other columns for a table as it is, and return what is promised for it.

    A table without rows is as it was declared, and so is the dataset its first writer made or will make. From now on it
    is not, so it gets a pin although it has no rows.
    """
    step(Failpoint.BEFORE_STAGE)
    uri = uri_of(session, reshape.new)
    if pin is None:
        session.tables.ensure(uri, arrow_schema(reshape.old))
    ticket = Ticket(uri=uri, base_version=None if pin is None else pin.lance_version)
    cluster = cluster_for(session, pin.rows) if pin is not None and pin.rows and reshape.writes else None
    if cluster is None:
        staged = session.staging.reshape(ticket, reshape.columns, is_rewrite=reshape.is_rewrite)
    else:
        spread = SpreadReshape(
            session=session, engine=cluster, kind=reshape.new, ticket=ticket, columns=reshape.columns
        )
        staged = spread.staged(is_rewrite=reshape.is_rewrite)
    step(Failpoint.AFTER_STAGE)
    return TablePromise(
        table=reshape.new.table_id,
        key=reshape.new.table,
        expected=pin,
        transaction=session.sources.mint(),
        staged=staged,
        must_be_new=False,
        is_strict=True,
    )


def trial_pins(session: Session, promises: Mapping[TableId, TablePromise]) -> dict[TableId, Pin]:
    """Seal what is promised so that it can be looked at; nothing ever refers to these versions."""
    # Without a pin there are no rows, and nothing to look at.
    return {table: sealed_pin(session, promise) for table, promise in promises.items() if promise.expected is not None}


def sealed_pin(session: Session, promise: TablePromise) -> Pin:
    """Seal what was staged for a table on the version it was staged for, and return the pin it would have."""
    uri = session.root.uri(table_location(promise.key.kind, promise.table))
    base = promise.expected
    sealed = session.staging.seal(
        uri, None if base is None else base.lance_version, promise.staged, session.sources.mint()
    )
    return Pin(
        table=promise.table,
        version=(0 if base is None else base.version) + 1,
        lance_version=sealed.lance_version,
        transaction=sealed.transaction,
        rows=sealed.rows,
    )
