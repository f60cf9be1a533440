"""Writing one table from several processes: an order that tasks work by, and the parts they hand back.

An order says where staged rows go and what they are worked out against; it can publish nothing. A task stages its
share of the rows and answers with one text. The transaction that began on the same commit takes the texts and checks
and publishes them like rows of its own. A part that nobody takes is files that nothing refers to.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, Final, Literal, assert_never

import numpy as np
import pyarrow as pa

from omnigraph.errors import (
    CorruptGraphError,
    InvalidDataError,
    InvalidInputError,
    OmnigraphError,
    TransactionStateError,
    error_of,
)
from omnigraph.failpoints import Failpoint, reach
from omnigraph.ids import CommitId, Incarnation, Sources
from omnigraph.model.schema import TableType
from omnigraph.model.staged import RowSet, Staged, StagedOverwrite, StagedReshape, StagedUpsert, staged_from_json
from omnigraph.rules.arrow_schema import arrow_schema
from omnigraph.rules.ascending import Ascending, Stretch
from omnigraph.rules.conform import conform
from omnigraph.rules.constraints import Violation
from omnigraph.rules.identity import Minting
from omnigraph.rules.row_checks import SAMPLE_MAX, RowChecks
from omnigraph.rules.values import Column
from omnigraph.storage.lance_door import BIRTH_VERSION, Tables
from omnigraph.storage.lance_rows import PlacesSeen, row_sets
from omnigraph.storage.roots import StorageOptions
from omnigraph.storage.staging import Staging, Ticket

Verb = Literal["append", "upsert", "overwrite", "delete"]
PART_NUMBER: Final = 2
NUMBER: Final = "#number"
PLACE: Final = "#place"
"""Columns no type can have: the row id and the row address of the row that a given one replaces."""
_NAMES: Final = {"part", "table", "base", "staged", "stretch", "rows", "violations", "refused"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """Where a write began that is published elsewhere; without an incarnation, its branch was yet to be made.

    ``operation`` is the intent by which it was announced.
    """

    base: CommitId
    incarnation: Incarnation | None = None
    operation: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkOrder:
    """All that a task on another machine needs to stage its share of a write, and nothing that could publish it."""

    verb: Verb
    kind: TableType
    ticket: Ticket
    options: StorageOptions
    is_checked: bool = True
    is_placed: bool = False
    """Whether rows come with the columns NUMBER and PLACE, which say which row of the table they are, if one."""

    def stage(self, rows: Iterable[pa.RecordBatch], sources: Sources | None = None) -> str:
        """Stage one share of the rows and tell in one text what was staged, or why these rows can not be taken.

        Rows that can not be taken are an answer and no error: the same rows would be refused again. Whatever else
        goes wrong is raised, and the task may be tried again.
        """
        part: Part
        try:
            part = self._part(rows, (sources or Sources()).mint_many)
        except InvalidInputError as refused:
            part = Part(refused=refused)
        return part.to_text(self.ticket, self.kind)

    def _part(self, rows: Iterable[pa.RecordBatch], mint: Minting) -> "Part":
        if self.verb == "delete":
            return Part(rows=self._located(rows))
        checks, ids = RowChecks(self.kind), Ascending()
        seen = PlacesSeen() if self.is_placed else None
        batches = self._conformed(rows if seen is None else _placed(rows, seen), checks, ids, mint)
        first = next(batches, None)
        if first is None:
            return Part()
        schema = arrow_schema(self.kind)
        if self.ticket.base_version is None:
            Tables(self.options).ensure(self.ticket.uri, schema)
        reach(Failpoint.BEFORE_STAGE)
        staged = self._stager(seen)(self.ticket, pa.RecordBatchReader.from_batches(schema, chain([first], batches)))
        reach(Failpoint.AFTER_STAGE)
        return Part(staged=staged, stretch=ids.stretch, violations=tuple(checks.violations))

    def _stager(self, seen: PlacesSeen | None) -> Callable[[Ticket, pa.RecordBatchReader], Staged]:
        staging = Staging(self.options)
        match self.verb:
            case "append":
                return staging.append
            case "upsert":
                return partial(staging.upsert, seen=seen)
            case "overwrite":
                return staging.overwrite
            case "delete":
                raise TransactionStateError("rows to delete are found, not written")
            case _:
                assert_never(self.verb)

    def _conformed(
        self, rows: Iterable[pa.RecordBatch], checks: RowChecks, ids: Ascending, mint: Minting
    ) -> Iterator[pa.RecordBatch]:
        for batch in rows:
            fitted = conform(self.kind, batch, mint)
            if fitted.num_rows:
                ids.look(fitted.column("id"))
                if self.is_checked:
                    checks.look(fitted)
                yield from fitted.to_batches()

    def _located(self, rows: Iterable[pa.RecordBatch]) -> tuple[RowSet, ...]:
        if self.is_placed:
            places = pa.chunked_array([batch.column(PLACE) for batch in rows], pa.int64())
            return row_sets(np.unique(np.asarray(places, np.uint64)))
        ids = pa.chunked_array([_ids_in(batch, self.kind) for batch in rows], pa.string())
        return Staging(self.options).located(self.ticket, ids) if len(ids) else ()


def _placed(rows: Iterable[pa.RecordBatch], seen: PlacesSeen) -> Iterator[pa.RecordBatch]:
    """Yield rows without the columns that say where they lie, which are noted."""
    for batch in rows:
        seen.note(batch.column(NUMBER), batch.column(PLACE))
        plain: Any = batch.drop_columns([NUMBER, PLACE])
        yield plain


def _ids_in(batch: pa.RecordBatch, kind: TableType) -> Column:
    if "id" not in batch.schema.names:
        raise InvalidDataError(
            f"rows of {kind.table} are deleted by 'id', but no such column was given", table_key=str(kind.table)
        )
    ids: Column = batch.column("id")
    if ids.null_count:
        raise InvalidDataError(
            f"{ids.null_count} of the rows that are to leave {kind.table} have no id", table_key=str(kind.table)
        )
    if not (pa.types.is_string(ids.type) or pa.types.is_large_string(ids.type)):
        raise InvalidDataError(f"the ids of {kind.table} are text, but {ids.type} was given", table_key=str(kind.table))
    return ids.cast(pa.string())


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What one task did: files it staged, rows it found to delete, rows that break a rule, or why it refused."""

    staged: Staged | None = None
    stretch: Stretch | None = None
    """Its ids, if they came in order."""
    rows: tuple[RowSet, ...] = ()
    violations: tuple[Violation, ...] = ()
    refused: OmnigraphError | None = None

    def to_text(self, ticket: Ticket, kind: TableType) -> str:
        """Return it as JSON, with what it was worked out against."""
        refused = self.refused
        body = {
            "part": PART_NUMBER,
            "table": kind.table_id,
            "base": _text_of(ticket.base_version),
            "staged": None if self.staged is None else self.staged.to_json(),
            "stretch": None if self.stretch is None else [self.stretch.first, self.stretch.last],
            "rows": [each.to_json() for each in self.rows],
            "violations": [each.to_dict() for each in self.violations],
            "refused": refused and {"code": refused.code, "message": refused.message, "facts": refused.facts},
        }
        # What a rule was broken by may be any value; people read it, and text will do.
        return json.dumps(body, separators=(",", ":"), default=str)

    @classmethod
    def from_text(cls, text: str, ticket: Ticket, kind: TableType) -> "Part":
        """Read it back; one that was staged for another table or version is refused."""
        body = _read(text)
        if (body["table"], body["base"]) != (kind.table_id, _text_of(ticket.base_version)):
            raise TransactionStateError(
                f"nothing was applied: a part was staged for table {body['table']} at {body['base']}, "
                f"but {kind.table} is {kind.table_id} at {_text_of(ticket.base_version)}; stage again"
            )
        refused, staged, stretch = body["refused"], body["staged"], body["stretch"]
        part = cls(
            staged=None if staged is None else staged_from_json(staged),
            stretch=None if stretch is None else _stretch(stretch),
            rows=tuple(RowSet.from_json(each) for each in body["rows"]),
            violations=tuple(_violation(each) for each in body["violations"]),
            refused=refused and error_of(refused["code"], refused["message"], **refused["facts"]),
        )
        base = BIRTH_VERSION if ticket.base_version is None else ticket.base_version
        if isinstance(part.staged, StagedUpsert | StagedReshape) and part.staged.base_version != base:
            raise TransactionStateError(f"nothing was applied: a part of {kind.table} is based on another version")
        return part


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """The parts of one write to one table, together."""

    staged: tuple[Staged, ...]
    rows: tuple[RowSet, ...]
    violations: tuple[Violation, ...]
    stretches: tuple[Stretch | None, ...] = ()
    """The ids of each part that was staged, if they came in order."""


def gather(verb: Verb, texts: Iterable[str], ticket: Ticket, kind: TableType) -> Gathered:
    """Read the parts of one write; raise why one of them was refused, if one was."""
    parts = [Part.from_text(text, ticket, kind) for text in texts]
    for part in parts:
        if part.refused is not None:
            raise part.refused
        if part.staged is not None and part.staged.kind != verb:
            raise TransactionStateError(f"nothing was applied: a part is {part.staged.kind!r} where {verb!r} belongs")
    staged = tuple(part.staged for part in parts if part.staged is not None)
    if verb == "overwrite" and not staged and ticket.base_version is not None:
        staged = (StagedOverwrite(fragments=(), rows=0, bytes=0, files=()),)  # no rows at all empty a table
    return Gathered(
        staged=staged,
        rows=tuple(each for part in parts for each in part.rows),
        violations=_together(each for part in parts for each in part.violations),
        stretches=tuple(part.stretch for part in parts if part.staged is not None),
    )


def _together(violations: Iterable[Violation]) -> tuple[Violation, ...]:
    """Add up what several tasks found by the same rule."""
    found: dict[tuple[str, str], Violation] = {}
    for each in violations:
        key = (each.table_key, each.constraint)
        before = found.get(key, Violation(each.constraint, each.table_key, 0, ()))
        sample = (*before.sample, *each.sample)[:SAMPLE_MAX]
        found[key] = Violation(each.constraint, each.table_key, before.count + each.count, sample)
    return tuple(found.values())


def _read(text: str) -> dict[str, Any]:
    try:
        body = json.loads(text)
    except ValueError as problem:
        raise CorruptGraphError(f"nothing was applied: a part is no JSON: {problem}") from problem
    if not isinstance(body, dict) or set(body) != _NAMES or body["part"] != PART_NUMBER:
        raise CorruptGraphError(f"nothing was applied: a part is not of form {PART_NUMBER}, the only one known here")
    return body


def _stretch(ends: Any) -> Stretch:
    if not isinstance(ends, list) or [type(end) for end in ends] != [str, str]:
        raise CorruptGraphError("nothing was applied: a part does not say from which id to which it goes")
    return Stretch(*ends)


def _violation(body: dict[str, Any]) -> Violation:
    return Violation(body["constraint"], body["table_key"], body["count"], tuple(body["sample"]))


def _text_of(version: int | None) -> str | None:
    """Return a version as text, because most JSON readers lose its low bits."""
    return None if version is None else str(version)
