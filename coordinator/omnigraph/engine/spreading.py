"""Tables and what a write does to them, as relations in parts that machines elsewhere can read.

Here nothing is looked up: whole columns are given to an engine that joins them where they are read. What is given is
small all the same: names of files, numbers of fragments, rows that go.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

import pyarrow as pa

from omnigraph.engine.deltas import Effect, StagedChange, renamed, uri_of, value_schema, valued
from omnigraph.engine.session import Session
from omnigraph.engine.shares import Share, balanced, shares_wanted
from omnigraph.model.schema import ENDPOINT_COLUMNS, TableType
from omnigraph.model.staged import Staged, StagedAppend, StagedDelete, StagedUpsert
from omnigraph.model.tables import Pin
from omnigraph.rules.arrow_schema import arrow_schema
from omnigraph.storage.lance_diff import SomeRows
from omnigraph.storage.lance_rows import ROW_ADDRESS, ROW_ID
from omnigraph.storage.relations import Made, Making, Readable, Relation, Spread
from omnigraph.storage.roots import StorageOptions
from omnigraph.storage.staging import Staging

NEVER_NULL: Final = ("id", *ENDPOINT_COLUMNS)
IDS = pa.schema([pa.field("id", pa.string(), nullable=False)])
NO_IDS = Spread(IDS, ())


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedFile:
    """The rows of one staged fragment."""

    uri: str
    fragment: str
    columns: tuple[str, ...]
    options: StorageOptions

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Stream columns of the rows that were written."""
        return Staging(self.options).new_rows(self.uri, _only(self.fragment), self.columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedIds:
    """The ids of a piece of staged work: of rows that were written, or of rows that go."""

    uri: str
    piece: Staged
    options: StorageOptions

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Stream the ids."""
        for ids in Staging(self.options).staged_ids(self.uri, [self.piece]):
            yield pa.RecordBatch.from_arrays([ids], schema=IDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRows:
    """Columns of rows that another version may not have, as they are stored."""

    rows: SomeRows
    columns: tuple[str, ...]

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Stream them."""
        return self.rows.stored(self.columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Renaming:
    """Gives columns the names a plan has for them."""

    named: Mapping[str, str]
    schema: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Rename them."""
        return (renamed(batch, self.named, self.schema) for batch in batches)


@dataclass(frozen=True, slots=True, kw_only=True)
class Valuing:
    """Makes id and value of rows that have no null in some columns."""

    columns: tuple[str, ...]
    schema: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Make them."""
        return (valued(batch, self.columns, self.schema) for batch in batches)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shaped:
    """Rows in the form a plan wants."""

    rows: Readable
    shape: Making

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Stream them."""
        return self.shape(self.rows.batches())


@dataclass(frozen=True, slots=True, kw_only=True)
class Chained:
    """Makes rows, and others of them."""

    first: Making
    then: Making

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Make them."""
        return self.then(self.first(batches))


def shaped(rows: Relation, given: pa.Schema, shape: Renaming | Valuing) -> Relation:
    """Return rows in the form a plan wants; parts stay parts, and what is made is made at once."""
    if isinstance(rows, Spread):
        return Spread(shape.schema, tuple(Shaped(rows=part, shape=shape) for part in rows.parts))
    if isinstance(rows, Made):
        return replace(rows, make=Chained(first=rows.make, then=shape), schema=shape.schema)
    return Made(rows=rows, given=given, make=shape, schema=shape.schema)


class SpreadChange(Effect, Protocol):
    """What a write does to one table, as relations that machines elsewhere can read."""

    def spread_rows(self, columns: Sequence[str]) -> Relation:
        """Return columns of the rows that are added, as they are stored."""

    @property
    def spread_gone(self) -> Relation:
        """Return the ids of rows that are taken out or replaced; of an overwrite none, as no row of it stays."""


class SpreadTable:
    """One table as it is, and what a write does to it."""

    def __init__(
        self, session: Session, kind: TableType, change: StagedChange | SpreadChange | None, pin: Pin | None
    ) -> None:
        self.kind = kind
        self.change = change
        self._pin = pin
        self._session = session
        self._uri = uri_of(session, kind)

    @property
    def adds(self) -> bool:
        """Whether rows are added or replaced."""
        return self.change is not None and self.change.adds

    @property
    def loses(self) -> bool:
        """Whether ids may be gone afterwards."""
        return self.change is not None and self.change.loses

    @property
    def is_overwritten(self) -> bool:
        """Whether nothing stays of what is there."""
        return self.change is not None and self.change.is_overwrite

    @property
    def stays(self) -> bool:
        """Whether rows stay that are there."""
        return self._pin is not None and not self.is_overwritten

    def new(self, named: Mapping[str, str]) -> Relation:
        """Return columns of the rows that are added, by the names a plan has for them."""
        columns = list(dict.fromkeys(named.values()))
        shape = Renaming(named=named, schema=self._schema_of(named))
        return shaped(self._new_rows(columns), stored_types(self.kind, columns), shape)

    def base(self, named: Mapping[str, str]) -> Spread:
        """Return columns of the rows that stay, those that are replaced or go included."""
        return self.before(named) if self.stays else Spread(self._schema_of(named), ())

    def before(self, named: Mapping[str, str]) -> Spread:
        """Return columns of all rows that are there."""
        schema = self._schema_of(named)
        return self._renamed(self.table_parts(list(dict.fromkeys(named.values()))), named, schema)

    @property
    def gone(self) -> Relation:
        """Return the ids of rows that are taken out or replaced; of an overwrite none, as no row of it stays."""
        if self.change is None:
            return NO_IDS
        if isinstance(self.change, StagedChange):
            return gone_ids(self._session, self._uri, self.change.staged)
        return self.change.spread_gone

    @property
    def lost(self) -> Relation:
        """Return the ids that were there, and may not be afterwards."""
        return self.before({"id": "id"}) if self.is_overwritten else self.gone

    def new_values(self, columns: Sequence[str]) -> Relation:
        """Return id and value of the rows that are added and have no null in these columns."""
        wanted = ["id", *columns]
        return shaped(self._new_rows(wanted), stored_types(self.kind, wanted), self._valuing(columns))

    def base_values(self, columns: Sequence[str]) -> Spread:
        """Return id and value of the rows that stay and have no null in these columns."""
        rows, shape = self.table_parts(["id", *columns]) if self.stays else (), self._valuing(columns)
        return Spread(shape.schema, tuple(Shaped(rows=part, shape=shape) for part in rows))

    def places(self, column: str) -> Spread:
        """Return a column, as ``ref``, of all rows that are there, with where each lies, as ``place``."""
        end: Any = pa.field("ref", pa.string(), nullable=False)
        schema = pa.schema([end]).append(pa.field("place", pa.int64(), nullable=False))
        named = {"ref": column, "place": ROW_ADDRESS}
        return self._renamed(self.table_parts([column], with_places=True), named, schema)

    def numbered(self) -> Spread:
        """Return id, row id and place of all rows that are there."""
        schema = IDS
        for name in ("number", "place"):
            schema = schema.append(pa.field(name, pa.int64(), nullable=False))
        named = {"id": "id", "number": ROW_ID, "place": ROW_ADDRESS}
        return self._renamed(self.table_parts(["id"], with_places=True), named, schema)

    def table_parts(self, columns: Sequence[str], *, with_places: bool = False) -> tuple[Share, ...]:
        """Return shares of the table as it is, one for each that can be read at once."""
        if self._pin is None:
            return ()
        version = self._pin.lance_version
        fragments = self._session.tables.fragments(self._uri, version)
        cluster = self._session.cluster
        wanted = shares_wanted(fragments, 1 if cluster is None else cluster.parallelism)
        return tuple(
            Share(
                uri=self._uri,
                version=version,
                fragments=group,
                columns=tuple(columns),
                options=self._session.root.options,
                with_places=with_places,
            )
            for group in balanced(fragments, wanted)
        )

    def _new_rows(self, columns: Sequence[str]) -> Relation:
        """Return columns of the rows that are added, as they are stored."""
        change, schema = self.change, stored_types(self.kind, columns)
        if change is None or not change.adds:
            return Spread(schema, ())
        if not isinstance(change, StagedChange):
            return change.spread_rows(columns)
        texts = () if isinstance(change.staged, StagedDelete) else change.staged.fragments
        options = self._session.root.options
        files = (StagedFile(uri=self._uri, fragment=text, columns=tuple(columns), options=options) for text in texts)
        return Spread(schema, tuple(files))

    def _renamed(self, rows: Sequence[Readable], named: Mapping[str, str], schema: pa.Schema) -> Spread:
        shape = Renaming(named=named, schema=schema)
        return Spread(schema, tuple(Shaped(rows=part, shape=shape) for part in rows))

    def _valuing(self, columns: Sequence[str]) -> Valuing:
        return Valuing(columns=tuple(columns), schema=value_schema(self.kind, columns))

    def _schema_of(self, named: Mapping[str, str]) -> pa.Schema:
        stored = arrow_schema(self.kind)
        # Ids and ends are never null, and an engine that knows it need not look for nulls.
        return pa.schema([pa.field(name, stored.field(column).type, nullable=False) for name, column in named.items()])


def stored_types(kind: TableType, columns: Sequence[str]) -> pa.Schema:
    """Return the types that columns of a table are stored in."""
    stored = arrow_schema(kind)
    return pa.schema([pa.field(name, stored.field(name).type, nullable=name not in NEVER_NULL) for name in columns])


def staged_ids(session: Session, uri: str, parts: Sequence[Staged]) -> Spread:
    """Return the ids of the rows that were written."""
    pieces = [_only(text) for part in parts if not isinstance(part, StagedDelete) for text in part.fragments]
    return _ids(session, uri, pieces)


def gone_ids(session: Session, uri: str, staged: Staged) -> Spread:
    """Return the ids of rows that staged work takes out or replaces."""
    pieces: list[Staged] = []
    if isinstance(staged, StagedUpsert) and not staged.rows_deleted:
        pieces += [_only(each.fragment) for each in staged.replacements]
    elif isinstance(staged, StagedDelete | StagedUpsert):
        # Those that go were written nowhere; the version they are in has them all.
        version = staged.base_version
        pieces += [StagedDelete(base_version=version, deletions=(each,), files=()) for each in staged.deletions]
    return _ids(session, uri, pieces)


def places_to_join(session: Session, kind: TableType, pin: Pin | None) -> Spread | None:
    """Return where the rows of a table lie if rows that come are better joined with them than looked up."""
    cluster = session.cluster
    if cluster is None or pin is None or not cluster.joins(pin.rows):
        return None
    if session.staging.has_index(uri_of(session, kind), pin.lance_version, "id"):
        return None
    return SpreadTable(session, kind, None, pin).numbered()


def _ids(session: Session, uri: str, pieces: Sequence[Staged]) -> Spread:
    return Spread(IDS, tuple(StagedIds(uri=uri, piece=piece, options=session.root.options) for piece in pieces))


def _only(fragment: str) -> StagedAppend:
    return StagedAppend(fragments=(fragment,), rows=0, bytes=0, files=())
