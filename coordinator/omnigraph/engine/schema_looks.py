"""Looking at the rows of a table one by one for what a new schema asks of each: here, or by tasks if they are many."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from omnigraph.engine.answering import ANSWERS, answer, answers
from omnigraph.engine.deltas import uri_of
from omnigraph.engine.engines import cluster_for
from omnigraph.engine.parts import Part, gather
from omnigraph.engine.session import Session
from omnigraph.engine.spreading import Shaped, SpreadTable, stored_types
from omnigraph.model.schema import Check, Key, Property, Range, ScalarType, TableType
from omnigraph.model.tables import Pin
from omnigraph.rules.constraints import Violation
from omnigraph.rules.formula_values import worked_out
from omnigraph.rules.formulas import Formula, columns_of
from omnigraph.rules.identity import key_ids
from omnigraph.rules.row_checks import SAMPLE_MAX, RowChecks
from omnigraph.rules.schema_values import fits
from omnigraph.rules.values import Column, compute
from omnigraph.storage.relations import ClusterEngine, Made, Relation, Spread
from omnigraph.storage.staging import Ticket


class Look(Protocol):
    """What each row must be; it can be pickled, and makes whoever keeps count."""

    @property
    def columns(self) -> tuple[str, ...]:
        """What of a row it looks at, beside its id."""

    def violations(self, batches: Iterable[pa.RecordBatch]) -> list[Violation]:
        """Return what is wrong with rows."""


@dataclass(slots=True)
class Tally:
    """How many rows break one rule, and some of them."""

    rule: str
    table_key: str
    count: int = 0
    sample: tuple[dict[str, Any], ...] = ()

    def note(self, rows: pa.Table | pa.RecordBatch, broken: Column) -> None:
        """Count the rows for which something does not hold."""
        found = rows.filter(broken)
        self.count += found.num_rows
        self.sample += tuple(found.slice(0, SAMPLE_MAX - len(self.sample)).to_pylist())

    @property
    def violations(self) -> list[Violation]:
        """What was wrong, if anything was."""
        return [Violation(self.rule, self.table_key, self.count, self.sample)] if self.count else []


@dataclass(frozen=True, slots=True, kw_only=True)
class LookForNulls:
    """A property that may no longer be null."""

    kind: TableType
    name: str

    @property
    def columns(self) -> tuple[str, ...]:
        """What of a row it looks at, beside its id."""
        return (self.name,)

    def violations(self, batches: Iterable[pa.RecordBatch]) -> list[Violation]:
        """Return which rows have no value."""
        tally = Tally(f"{self.name} is required", str(self.kind.table))
        for batch in batches:
            tally.note(batch.select(["id", self.name]), compute.is_null(batch.column(self.name)))
        return tally.violations


@dataclass(frozen=True, slots=True, kw_only=True)
class LookAtValues:
    """A type with nothing but what its rows must satisfy by themselves."""

    kind: TableType

    @property
    def columns(self) -> tuple[str, ...]:
        """What of a row it looks at, beside its id."""
        named = [column.name for column in self.kind.properties]
        named += [each.column for each in self.kind.constraints if isinstance(each, Range | Check)]
        return tuple(dict.fromkeys(named))

    def violations(self, batches: Iterable[pa.RecordBatch]) -> list[Violation]:
        """Return which rows have a value they may not have."""
        checks = RowChecks(self.kind)
        for batch in batches:
            checks.look(batch)
        return checks.violations


@dataclass(frozen=True, slots=True, kw_only=True)
class LookAtKeys:
    """A key: rows have the id that it makes of them."""

    kind: TableType
    key: Key

    @property
    def columns(self) -> tuple[str, ...]:
        """What of a row it looks at, beside its id."""
        return self.key.columns

    def violations(self, batches: Iterable[pa.RecordBatch]) -> list[Violation]:
        """Return which rows have another id."""
        names = self.key.columns
        tally = Tally(f"@key({', '.join(names)})", str(self.kind.table))
        for batch in batches:
            made = key_ids({name: pa.chunked_array([batch.column(name)]) for name in names}, names)
            other = compute.fill_null(compute.not_equal(made, batch.column("id")), True)
            tally.note(pa.table({"id": batch.column("id"), "key": made}), other)
        return tally.violations


@dataclass(frozen=True, slots=True, kw_only=True)
class LookAtNumbers:
    """A required number that gets a type which may not have it."""

    kind: TableType
    old: Property
    new: Property

    @property
    def columns(self) -> tuple[str, ...]:
        """What of a row it looks at, beside its id."""
        return (self.old.name,)

    def violations(self, batches: Iterable[pa.RecordBatch]) -> list[Violation]:
        """Return which rows have a number that does not fit."""
        tally = Tally(f"{self.new.name}: {self.new.type}", str(self.kind.table))
        old, new = self.old.type, self.new.type
        if isinstance(old, ScalarType) and isinstance(new, ScalarType):
            for batch in batches:
                there = batch.column(self.old.name)
                bad = compute.and_(compute.is_valid(there), compute.invert(fits(there, old.scalar, new.scalar)))
                tally.note(batch.select(["id", self.old.name]), bad)
        return tally.violations


@dataclass(frozen=True, slots=True, kw_only=True)
class LookAtFormula:
    """A new property whose values an expression makes of the rows that are there."""

    kind: TableType
    new: Property
    formula: Formula

    @property
    def columns(self) -> tuple[str, ...]:
        """What of a row it looks at, beside its id."""
        return columns_of(self.formula)

    def violations(self, batches: Iterable[pa.RecordBatch]) -> list[Violation]:
        """Return which rows it makes no value of, or null where one is required."""
        wrong = Tally(f"{self.new.name}: {self.new.type} by its expression", str(self.kind.table))
        nulls = Tally(f"{self.new.name} is required", str(self.kind.table))
        for batch in batches:
            made = worked_out(self.formula, batch, self.new.type)
            shown = batch.select(list(dict.fromkeys(("id", *self.columns))))
            wrong.note(shown, made.wrong)
            if not self.new.nullable:
                nulls.note(shown, compute.and_(compute.is_null(made.values), compute.invert(made.wrong)))
        return [*wrong.violations, *nulls.violations]


@dataclass(frozen=True, slots=True, kw_only=True)
class LookingAtRows:
    """Looks at rows as they come, and says what is wrong with them."""

    look: Look
    kind: TableType
    ticket: Ticket

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Look at all of them; if nothing is wrong there is nothing to say."""
        found = self.look.violations(batches)
        if found:
            yield answer(Part(violations=tuple(found)).to_text(self.ticket, self.kind))


def looked_elsewhere(engine: ClusterEngine, look: Look, kind: TableType, rows: Relation) -> Sequence[Violation]:
    """Let tasks look at rows of a type where they are, and add up what they found."""
    ticket = Ticket(uri="", base_version=None)  # nothing is staged, so nothing is meant by it
    make = LookingAtRows(look=look, kind=kind, ticket=ticket)
    tasks: Made | Spread
    if isinstance(rows, Spread):  # whoever reads a part also looks at it
        tasks = Spread(ANSWERS, tuple(Shaped(rows=part, shape=make) for part in rows.parts))
    else:
        tasks = Made(rows=rows, given=stored_types(kind, _looked_at(look)), make=make, schema=ANSWERS)
    return gather("append", answers(engine, tasks), ticket, kind).violations


def _looked_at(look: Look) -> list[str]:
    return list(dict.fromkeys(("id", *look.columns)))


def looked(session: Session, kind: TableType, pin: Pin, looks: Sequence[Look]) -> Iterator[Violation]:
    """Yield what is wrong with the rows of a table; ``kind`` says which table it is."""
    cluster = cluster_for(session, pin.rows)
    for look in looks:
        columns = _looked_at(look)
        if cluster is None:
            yield from look.violations(session.staging.scan(uri_of(session, kind), pin.lance_version, columns))
        else:
            shares = SpreadTable(session, kind, None, pin).table_parts(columns)
            yield from looked_elsewhere(cluster, look, kind, Spread(stored_types(kind, columns), shares))
