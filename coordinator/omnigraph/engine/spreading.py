"""Tables and what a write does to them, as relations in parts that machines elsewhere can read.

Here nothing is looked up: whole columns are given to an engine that joins them where they are read. What is given is
small all the same: names of files, numbers of fragments, rows that go.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from omnigraph.engine.deltas import Delta, StagedChange, renamed, uri_of, valued
from omnigraph.engine.session import Session
from omnigraph.engine.shares import Share, balanced, shares_wanted
from omnigraph.model.schema import TableType
from omnigraph.model.staged import Staged, StagedAppend, StagedDelete, StagedUpsert
from omnigraph.model.tables import Pin
from omnigraph.rules.arrow_schema import arrow_schema
from omnigraph.storage.lance_rows import ROW_ADDRESS, ROW_ID
from omnigraph.storage.relations import Readable, Spread
from omnigraph.storage.roots import StorageOptions
from omnigraph.storage.staging import Staging

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
class Renamed:
    """Rows whose columns have the names a plan has for them."""

    rows: Readable
    named: Mapping[str, str]
    schema: pa.Schema

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Stream them."""
        return (renamed(batch, self.named, self.schema) for batch in self.rows.batches())


@dataclass(frozen=True, slots=True, kw_only=True)
class Valued:
    """Id and value of rows that have no null in some columns."""

    rows: Readable
    columns: tuple[str, ...]
    schema: pa.Schema

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Stream them."""
        return (valued(batch, self.columns, self.schema) for batch in self.rows.batches())


class SpreadTable:
    """One table as it is, and what a write does to it."""

    def __init__(self, session: Session, kind: TableType, change: StagedChange | None, pin: Pin | None) -> None:
        self.kind = kind
        self.change = change
        self._pin = pin
        self._session = session
        self._delta = Delta(session, kind, change, pin)
        self._uri = uri_of(session, kind)

    @property
    def adds(self) -> bool:
        """Whether rows are added or replaced."""
        return self._delta.adds

    @property
    def loses(self) -> bool:
        """Whether ids may be gone afterwards."""
        return self._delta.loses

    @property
    def is_overwritten(self) -> bool:
        """Whether nothing stays of what is there."""
        return self._delta.is_overwritten

    @property
    def stays(self) -> bool:
        """Whether rows stay that are there."""
        return self._delta.stays

    def new(self, named: Mapping[str, str]) -> Spread:
        """Return columns of the rows that are added, by the names a plan has for them."""
        schema = self._schema_of(named)
        rows = self._new_parts(list(dict.fromkeys(named.values())))
        return Spread(schema, tuple(Renamed(rows=part, named=named, schema=schema) for part in rows))

    def base(self, named: Mapping[str, str]) -> Spread:
        """Return columns of the rows that stay, those that are replaced or go included."""
        return self.before(named) if self.stays else Spread(self._schema_of(named), ())

    def before(self, named: Mapping[str, str]) -> Spread:
        """Return columns of all rows that are there."""
        schema = self._schema_of(named)
        rows = self.table_parts(list(dict.fromkeys(named.values())))
        return Spread(schema, tuple(Renamed(rows=part, named=named, schema=schema) for part in rows))

    @property
    def gone(self) -> Spread:
        """Return the ids of rows that are taken out or replaced; of an overwrite none, as no row of it stays."""
        return NO_IDS if self.change is None else gone_ids(self._session, self._uri, self.change.staged)

    @property
    def lost(self) -> Spread:
        """Return the ids that were there, and may not be afterwards."""
        return self.before({"id": "id"}) if self.is_overwritten else self.gone

    def new_values(self, columns: Sequence[str]) -> Spread:
        """Return id and value of the rows that are added and have no null in these columns."""
        return self._values(self._new_parts(["id", *columns]), columns)

    def base_values(self, columns: Sequence[str]) -> Spread:
        """Return id and value of the rows that stay and have no null in these columns."""
        return self._values(self.table_parts(["id", *columns]) if self.stays else (), columns)

    def places(self, column: str) -> Spread:
        """Return a column, as ``ref``, of all rows that are there, with where each lies, as ``place``."""
        end: Any = pa.field("ref", pa.string(), nullable=False)
        schema = pa.schema([end]).append(pa.field("place", pa.int64(), nullable=False))
        named = {"ref": column, "place": ROW_ADDRESS}
        rows = self.table_parts([column], with_places=True)
        return Spread(schema, tuple(Renamed(rows=part, named=named, schema=schema) for part in rows))

    def numbered(self) -> Spread:
        """Return id, row id and place of all rows that are there."""
        schema = IDS
        for name in ("number", "place"):
            schema = schema.append(pa.field(name, pa.int64(), nullable=False))
        named = {"id": "id", "number": ROW_ID, "place": ROW_ADDRESS}
        rows = self.table_parts(["id"], with_places=True)
        return Spread(schema, tuple(Renamed(rows=part, named=named, schema=schema) for part in rows))

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

    def _new_parts(self, columns: Sequence[str]) -> tuple[StagedFile, ...]:
        staged = None if self.change is None else self.change.staged
        if staged is None or isinstance(staged, StagedDelete):
            return ()
        options = self._session.root.options
        return tuple(
            StagedFile(uri=self._uri, fragment=text, columns=tuple(columns), options=options)
            for text in staged.fragments
        )

    def _values(self, rows: Sequence[Readable], columns: Sequence[str]) -> Spread:
        schema = self._delta.value_schema(columns)
        return Spread(schema, tuple(Valued(rows=part, columns=tuple(columns), schema=schema) for part in rows))

    def _schema_of(self, named: Mapping[str, str]) -> pa.Schema:
        stored = arrow_schema(self.kind)
        # Ids and ends are never null, and an engine that knows it need not look for nulls.
        return pa.schema([pa.field(name, stored.field(column).type, nullable=False) for name, column in named.items()])


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
