"""What the statements of a mutation make of the rows of one table.

No statement looks at another row than the one it changes, so each row can be followed through the
statements on its own, and any number of rows as columns: a batch of committed rows goes in, what became of
them comes out. Rows that are named (inserted, or upserted by key or id) are followed apart from those that
are only found by a predicate.
"""

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.acero as acero

from omnigraph.errors import InvalidDataError
from omnigraph.model.mutations import Insert, Predicate, Update, Upsert
from omnigraph.model.schema import EdgeType, TableType
from omnigraph.rules.arrow_schema import arrow_schema
from omnigraph.rules.gq_columns import ENDS
from omnigraph.rules.gq_predicates import Expression, to_arrow
from omnigraph.rules.identity import ID_CHARACTERS_MAX, key_ids
from omnigraph.rules.records import plain_schema
from omnigraph.rules.values import Column, column_of, compute

SET_BYTES_AT_ONCE = 32 * 2**20
SHOWN_CHARACTERS_MAX = 100

plan: Any = acero
"""Arrow's little query engine, untyped like the rest of Arrow here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Which statement of a query: its number, counted from 1, and the line it begins on."""

    number: int
    line: int

    def __str__(self) -> str:
        return f"statement {self.number} (line {self.line})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Put:
    """An insert or an upsert: values for the row of one id."""

    place: Place
    id: str
    is_insert: bool
    is_fresh: bool
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """An update: the same values for every row a predicate is true for."""

    place: Place
    predicate: Predicate
    where: Expression
    values: Mapping[str, Any]
    """By column, Arrow scalars of its type."""


@dataclass(kw_only=True)
class TableScript:
    """The statements about one table, in their order."""

    kind: TableType
    puts: dict[str, list[Put]] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)

    @cached_property
    def schema(self) -> pa.Schema:
        """The table's columns; blobs are bytes."""
        return plain_schema(self.kind)

    @property
    def asked_ids(self) -> list[str]:
        """The ids that may exist: those that were given, not minted."""
        return [id for id, puts in self.puts.items() if not puts[0].is_fresh]

    def put(self, statement: Insert | Upsert, place: Place, mint: Callable[[], str]) -> None:
        """Add an insert or an upsert."""
        id = self._given_id(statement, place)
        fresh = id is None
        row = mint() if id is None else id
        is_insert = isinstance(statement, Insert)
        put = Put(place=place, id=row, is_insert=is_insert, is_fresh=fresh, values=statement.values)
        self.puts.setdefault(row, []).append(put)

    def change(self, statement: Update, place: Place) -> None:
        """Add an update."""
        values = {name: column_of([value], self.schema.field(name).type)[0] for name, value in statement.values.items()}
        where = to_arrow(statement.where)
        self.changes.append(Change(place=place, predicate=statement.where, where=where, values=values))

    def _given_id(self, statement: Insert | Upsert, place: Place) -> str | None:
        values, key = statement.values, self.kind.key_columns
        given: str | None = values.get("id")
        derived: str | None = None
        if key and all(name in values for name in key):
            columns = {name: column_of([values[name]], self.schema.field(name).type) for name in key}
            derived = key_ids(columns, key)[0].as_py()
            if given is not None and given != derived:
                problem = f"'id' differs from the key ({', '.join(key)}) it is made from; leave 'id' away"
                raise _refused(self.kind, place, given, problem)
        id = derived if given is None else given
        if id is not None and not 1 <= len(id) <= ID_CHARACTERS_MAX:
            raise _refused(self.kind, place, id, f"an id has 1 to {ID_CHARACTERS_MAX:,} characters")
        return id

    # -- what can be refused before a row is read ---------------------------------------------------

    def refusal(self, existing: Container[str]) -> "tuple[int, InvalidDataError] | None":
        """Return the first statement that can not be done, given which ids exist, and why."""
        found = [problem for id, puts in self.puts.items() if (problem := self._problem(id, puts, id in existing))]
        return min(found, key=lambda problem: problem[0], default=None)

    def _problem(self, id: str, puts: Sequence[Put], exists: bool) -> "tuple[int, InvalidDataError] | None":
        earlier: Place | None = None
        for put in puts:
            if put.is_insert and (exists or earlier is not None):
                since = "exists already" if earlier is None else f"was added or changed by {earlier} already"
                return put.place.number, _refused(self.kind, put.place, id, since)
            if not exists and earlier is None:
                missing = self._missing(put)
                if missing:
                    problem = f"does not exist, and a new row needs {', '.join(missing)}"
                    return put.place.number, _refused(self.kind, put.place, id, problem)
            earlier = put.place
        return None

    def _missing(self, put: Put) -> list[str]:
        shown = {column: name for name, column in ENDS.items()} if isinstance(self.kind, EdgeType) else {}
        required = [f.name for f in arrow_schema(self.kind) if not f.nullable and f.name != "id"]
        return [repr(shown.get(name, name)) for name in required if put.values.get(name) is None]

    # -- rows found by predicates -------------------------------------------------------------------

    def updated(self, rows: pa.Table) -> Iterator[pa.Table]:
        """Yield what the updates make of committed rows, without the rows that none of them is about."""
        at_once = max(1, SET_BYTES_AT_ONCE // self._set_bytes)
        for start in range(0, rows.num_rows, at_once):
            yield self._updated(rows.slice(start, at_once))

    def _updated(self, rows: pa.Table) -> pa.Table:
        touched: Column = pa.repeat(pa.scalar(False), rows.num_rows)
        for change in self.changes:
            mask = holding(rows, change.where)
            touched = compute.or_(touched, mask)
            rows = _assigned(rows, mask, change.values)
        return rows.filter(touched)

    @cached_property
    def _set_bytes(self) -> int:
        """How much the updates may add to one row."""
        sizes: dict[str, int] = {}
        for change in self.changes:
            for name, value in change.values.items():
                sizes[name] = max(sizes.get(name, 1), pa.array([value.as_py()], value.type).nbytes)
        return max(1, sum(sizes.values()))

    # -- rows that are named ------------------------------------------------------------------------

    def new_rows(self, ids: Sequence[str]) -> pa.Table:
        """Return the rows of ids that did not exist, as they are in the end."""
        columns = [pa.array(ids, pa.string()) if f.name == "id" else pa.nulls(len(ids), f.type) for f in self.schema]
        return self._followed(pa.Table.from_arrays(columns, schema=self.schema), exist=False)

    def existing_rows(self, rows: pa.Table) -> pa.Table:
        """Return committed rows that are named, as they are in the end."""
        return self._followed(rows, exist=True)

    def _followed(self, rows: pa.Table, *, exist: bool) -> pa.Table:
        numbers = {str(id): number for number, id in enumerate(rows.column("id").to_pylist())}
        is_there = np.full(rows.num_rows, exist)
        steps: list[Put | Change] = [*self.changes, *(put for id in numbers for put in self.puts[id])]
        written = _Writing(numbers)
        for step in sorted(steps, key=lambda step: step.place.number):
            if isinstance(step, Put):
                written.put(step)
                continue
            rows = written.onto(rows, is_there)
            mask = compute.and_(holding(rows, step.where), pa.array(is_there))
            rows = _assigned(rows, mask, step.values)
        return written.onto(rows, is_there)


class _Writing:
    """Values of single rows that wait to be written into columns, all at once."""

    def __init__(self, numbers: Mapping[str, int]) -> None:
        self._numbers = numbers
        self._waiting: dict[str, dict[int, Any]] = {}
        self._added: set[int] = set()

    def put(self, put: Put) -> None:
        number = self._numbers[put.id]
        self._added.add(number)
        for name, value in put.values.items():
            self._waiting.setdefault(name, {})[number] = value

    def onto(self, rows: pa.Table, is_there: "np.ndarray[Any, np.dtype[np.bool_]]") -> pa.Table:
        """Return the rows with what waits written over them; from then on the rows are there."""
        for name, values in self._waiting.items():
            if name != "id":
                rows = _replaced(rows, name, _scattered(rows.column(name), values))
        is_there[sorted(self._added)] = True
        self._waiting, self._added = {}, set()
        return rows


def holding(rows: pa.Table, where: Expression) -> Column:
    """Return one boolean per row: whether an expression is true of it; unknown is not."""
    source = plan.Declaration("table_source", plan.TableSourceNodeOptions(rows))
    asked = plan.Declaration("project", plan.ProjectNodeOptions([where], ["holds"]))
    known = plan.Declaration.from_sequence([source, asked]).to_table(use_threads=False).column("holds")
    return compute.fill_null(known, False).combine_chunks()


def _assigned(rows: pa.Table, mask: Column, values: Mapping[str, Any]) -> pa.Table:
    if not compute.any(mask).as_py():
        return rows
    for name, value in values.items():
        rows = _replaced(rows, name, compute.if_else(mask, value, rows.column(name)))
    return rows


def _scattered(column: Column, values: Mapping[int, Any]) -> Column:
    """Return the column with other values at some rows."""
    new = column_of(list(values.values()), column.type)
    order = np.arange(len(column))
    order[list(values)] = len(column) + np.arange(len(values))
    chunked: Any = pa.chunked_array
    return chunked([*column.chunks, *new.chunks], column.type).take(pa.array(order))


def _replaced(rows: pa.Table, name: str, column: Column) -> pa.Table:
    number = rows.schema.get_field_index(name)
    return rows.set_column(number, rows.schema.field(number), column)


def _refused(kind: TableType, place: Place, id: str, problem: str) -> InvalidDataError:
    shown = ascii(id[:SHOWN_CHARACTERS_MAX]) if id else "''"
    return InvalidDataError(
        f"{place}: {kind.table} {shown}: {problem}; nothing was applied",
        statement=place.number,
        line=place.line,
        table_key=str(kind.table),
        id=id,
    )
