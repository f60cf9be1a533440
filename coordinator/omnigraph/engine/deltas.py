"""Tables as a write finds them and as it changes them, as relations that plans can be run over.

Cost follows the write: of a table as it is, only rows are fetched that the write could clash with, through an index
where there is one.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Protocol

import pyarrow as pa

from omnigraph.engine.session import Session
from omnigraph.model.schema import TableType
from omnigraph.model.staged import Staged, StagedDelete, StagedOverwrite, StagedUpsert
from omnigraph.model.tables import Pin
from omnigraph.rules.arrow_schema import arrow_schema
from omnigraph.rules.values import Column, compute
from omnigraph.storage.layout import table_location
from omnigraph.storage.relations import Relation
from omnigraph.storage.sought import Sought

ROW: Final = "#row"
"""A column no type can have: the number of a row among those that were given for its table."""
LOOKED_FOR_MAX: Final = 8_192
"""How many numbers or times are looked for in a table; of more, all rows are compared."""
NO_IDS: Final = pa.table({"id": pa.array([], pa.string())})


class Effect(Protocol):
    """What a write does to one table, as far as it can be told without its rows."""

    @property
    def adds(self) -> bool:
        """Whether rows are added or replaced."""

    @property
    def is_overwrite(self) -> bool:
        """Whether nothing stays of what is there."""

    @property
    def loses(self) -> bool:
        """Whether ids may be gone afterwards; an upsert replaces rows and keeps their ids."""

    @property
    def size(self) -> int:
        """How many rows are added or replaced, at most."""


class Change(Effect, Protocol):
    """What a write does to one table."""

    def rows(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Stream columns of the rows that are added, in their new form."""

    def gone_ids(self) -> Column:
        """Return the ids of rows that are taken out or replaced; of an overwrite none, as no row of it stays."""


@dataclass(frozen=True, slots=True)
class StagedChange:
    """A change that is staged already."""

    session: Session
    kind: TableType
    staged: Staged

    @property
    def adds(self) -> bool:
        """Whether rows are added or replaced."""
        return not isinstance(self.staged, StagedDelete)

    @property
    def is_overwrite(self) -> bool:
        """Whether nothing stays of what is there."""
        return isinstance(self.staged, StagedOverwrite)

    @property
    def loses(self) -> bool:
        """Whether ids may be gone afterwards."""
        mixed = isinstance(self.staged, StagedUpsert) and self.staged.rows_deleted > 0
        return mixed or isinstance(self.staged, StagedDelete | StagedOverwrite)

    @property
    def size(self) -> int:
        """How many rows are added or replaced."""
        return 0 if isinstance(self.staged, StagedDelete) else self.staged.rows

    @property
    def touched(self) -> int:
        """How many rows are added, replaced or taken out."""
        gone = self.staged.deletions if isinstance(self.staged, StagedDelete | StagedUpsert) else ()
        return self.size + sum(deletion.out.rows for deletion in gone)

    def rows(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Stream columns of the rows that are added."""
        return self.session.staging.new_rows(uri_of(self.session, self.kind), self.staged, columns)

    def gone_ids(self) -> Column:
        """Return the ids of rows that are taken out or replaced."""
        if not isinstance(self.staged, StagedDelete | StagedUpsert):
            return pa.chunked_array([], pa.string())
        return self.session.staging.gone_ids(uri_of(self.session, self.kind), self.staged)


def uri_of(session: Session, kind: TableType) -> str:
    """Return where the table of a type lies."""
    return session.root.uri(table_location(kind.table.kind, kind.table_id))


@dataclass(eq=False)
class Delta:
    """One table as it is, and what a write does to it; relations have the columns a plan asks for."""

    session: Session
    kind: TableType
    change: Change | None
    pin: Pin | None

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
        return self._version is not None

    @property
    def _version(self) -> int | None:
        """The version rows stay of; none if none do."""
        return None if self.pin is None or self.is_overwritten else self.pin.lance_version

    @property
    def _uri(self) -> str:
        return uri_of(self.session, self.kind)

    @property
    def size(self) -> int:
        """How many rows are added or replaced, at most."""
        return 0 if self.change is None else self.change.size

    def new(self, named: Mapping[str, str]) -> Relation:
        """Return columns of the rows that are added, by the names a plan has for them."""
        schema = self.schema_of(named)
        if self.change is None or not self.change.adds:
            return schema.empty_table()
        return lambda: pa.RecordBatchReader.from_batches(schema, self.new_batches(named))

    def new_batches(self, named: Mapping[str, str]) -> Iterator[pa.RecordBatch]:
        """Stream columns of the rows that are added, by the names a plan has for them."""
        columns, schema = list(dict.fromkeys(named.values())), self.schema_of(named)
        if self.change is not None and self.change.adds:
            for batch in self.change.rows(columns):
                yield renamed(batch, named, schema)

    def new_column(self, column: str) -> Column:
        """Return one column of the rows that are added."""
        kind = arrow_schema(self.kind).field(column).type
        batches = self.change.rows([column]) if self.change is not None and self.change.adds else ()
        return pa.chunked_array([batch.column(column) for batch in batches], kind)

    @cached_property
    def _gone_ids(self) -> Column:
        return pa.chunked_array([], pa.string()) if self.change is None else self.change.gone_ids()

    @property
    def gone(self) -> pa.Table:
        """Return the ids of rows that are taken out or replaced; of an overwrite none, as no row of it stays."""
        return pa.table({"id": self._gone_ids})

    @property
    def lost_ids(self) -> Column:
        """Return the ids that were there, and may not be afterwards."""
        return self.every_id if self.is_overwritten else in_one_piece(self._gone_ids)

    @property
    def every_id(self) -> Column:
        """Return the ids as they are."""
        if self.pin is None:
            return pa.array([], pa.string())
        scanned = self.session.staging.scan(self._uri, self.pin.lance_version, ["id"])
        return in_one_piece(pa.chunked_array([batch.column("id") for batch in scanned], pa.string()))

    def base_ids(self, keys: Column) -> pa.Table:
        """Return which of some ids, each given once, are there and stay, deletions aside."""
        if self._version is None:
            return NO_IDS
        return self.session.staging.rows_where(self._uri, self._version, "id", in_one_piece(keys), ["id"])

    def base_count(self, sought: Sought) -> int:
        """Return how many of the ids that are still looked for are there and stay, deletions aside."""
        if self._version is None:
            return 0
        return self.session.staging.count_where(self._uri, self._version, "id", sought)

    def base_where(self, column: str, keys: Column) -> pa.Table:
        """Return id and a text column, as ``ref``, of the rows that are there and have one of some texts."""
        if self._version is None:
            return pa.table({"id": pa.array([], pa.string()), "ref": pa.array([], pa.string())})
        found = self.session.staging.rows_where(self._uri, self._version, column, in_one_piece(keys), ["id", column])
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
        found = self.session.staging.rows_where(
            self._uri, self.pin.lance_version, "id", in_one_piece(self._gone_ids), [column]
        )
        return found.column(column)

    def new_values(self, columns: Sequence[str]) -> Relation:
        """Return id and value of the rows that are added and have no null in these columns."""
        schema = self.value_schema(columns)
        change = self.change
        if change is None or not change.adds:
            return schema.empty_table()

        def read() -> pa.RecordBatchReader:
            batches = (valued(batch, columns, schema) for batch in change.rows(["id", *columns]))
            return pa.RecordBatchReader.from_batches(schema, batches)

        return read

    def base_values(self, columns: Sequence[str]) -> Relation | None:
        """Return id and value of the rows that stay and could agree with one that is added; None if none stay."""
        if self._version is None:
            return None
        schema, wanted = self.value_schema(columns), ["id", *columns]
        version, uri, staging = self._version, self._uri, self.session.staging
        if self._is_looked_for(columns[0]):
            keys = in_one_piece(compute.drop_null(compute.unique(self.new_column(columns[0]))))
            found = staging.rows_where(uri, version, columns[0], keys, wanted)
            return pa.Table.from_batches([valued(b, columns, schema) for b in found.to_batches()], schema)

        def read() -> pa.RecordBatchReader:
            batches = (valued(b, columns, schema) for b in staging.scan(uri, version, wanted))
            return pa.RecordBatchReader.from_batches(schema, batches)

        return read

    def _is_looked_for(self, column: str) -> bool:
        """Tell whether rows are found by what is in a column: by texts any number, by a few numbers and times."""
        kind = arrow_schema(self.kind).field(column).type
        plain = pa.types.is_signed_integer(kind) or pa.types.is_date(kind) or pa.types.is_timestamp(kind)
        return pa.types.is_string(kind) or (plain and self.size <= LOOKED_FOR_MAX)

    def value_schema(self, columns: Sequence[str]) -> pa.Schema:
        """Return the types of id and value: a struct, if the value is of several columns."""
        return value_schema(self.kind, columns)

    def schema_of(self, named: Mapping[str, str]) -> pa.Schema:
        """Return the types of columns, by the names a plan has for them."""
        stored = arrow_schema(self.kind)
        types = {name: pa.int64() if column == ROW else stored.field(column).type for name, column in named.items()}
        return pa.schema([pa.field(name, kind) for name, kind in types.items()])


def value_schema(kind: TableType, columns: Sequence[str]) -> pa.Schema:
    """Return the types of id and value of a type's rows: a struct, if the value is of several columns."""
    stored = arrow_schema(kind)
    each = [pa.field(f"c{number}", stored.field(column).type) for number, column in enumerate(columns)]
    return pa.schema(
        [pa.field("id", pa.string()), pa.field("value", each[0].type if len(each) == 1 else pa.struct(each))]
    )


def renamed(batch: pa.RecordBatch, named: Mapping[str, str], schema: pa.Schema) -> pa.RecordBatch:
    """Return columns of rows by the names, and in the types, a plan has for them."""
    parts: list[Any] = [batch.column(column) for column in named.values()]
    fitting = [
        part if part.type == field.type else part.cast(field.type) for part, field in zip(parts, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(fitting, schema=schema)


def valued(batch: pa.RecordBatch, columns: Sequence[str], schema: pa.Schema) -> pa.RecordBatch:
    """Return id and value of the rows that have all of these columns."""
    for column in columns:
        batch = batch.filter(compute.is_valid(batch.column(column)))
    parts = [batch.column(column) for column in columns]
    kind: Any = schema.field("value").type
    value = parts[0] if len(parts) == 1 else pa.StructArray.from_arrays(parts, fields=list(kind))
    return pa.RecordBatch.from_arrays([batch.column("id"), value], schema=schema)


def in_one_piece(column: Column) -> Column:
    """Return a column in one piece."""
    if isinstance(column, pa.ChunkedArray):
        return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    return column
