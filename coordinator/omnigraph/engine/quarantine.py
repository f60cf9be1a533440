"""Writing the good rows and handing back the others: ``constraints="quarantine"``.

Rows are set aside as they come. When the transaction ends, it is decided which of them break no constraint, by the
same plans that refuse a whole write; only those are staged. Who is left out does not depend on the order of rows:

1. Rows that do not fit their type, or break what a row alone must satisfy.
2. All rows whose id occurs more than once in what is left, and appended rows whose id is there already.
3. Round by round, all rows that what is broken among the rest is due to. The rules that others depend on come first:
   unique values of nodes, ends of edges, unique values of edges, cardinalities. Whoever is left out may leave others
   without an end or with too few edges, so this goes on until nothing is broken.

What can not be mended by leaving given rows out makes the whole transaction fail.
"""

import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NoReturn

import numpy as np
import pyarrow as pa

from omnigraph.engine.deltas import ROW, Delta, in_one_piece, uri_of
from omnigraph.engine.given import Given, Rows, Writing, plain_rows
from omnigraph.engine.integrity import Integrity, Question, concerns, rows_of
from omnigraph.engine.rejected import Rejected
from omnigraph.engine.session import Session
from omnigraph.errors import ConstraintError
from omnigraph.ids import TableId
from omnigraph.model.catalog import Catalog
from omnigraph.model.schema import EdgeType, TableType
from omnigraph.model.tables import Pin
from omnigraph.rules import constraints as rules
from omnigraph.rules.conform import Rows as AnyRows
from omnigraph.rules.constraints import CardinalityRule, EndpointRule, Rule, UniqueRule, Violation
from omnigraph.rules.row_checks import RowChecks
from omnigraph.rules.sifting import Misfits, Reason, Reasons, sifted
from omnigraph.rules.values import Column
from omnigraph.storage.lance_ids import present
from omnigraph.storage.spool import Spool

ROUNDS_MAX: Final = 1_000
GIVEN_TWICE: Final = Reason("id given more than once")
EXISTS: Final = Reason("id exists already")


class Quarantine:
    """The rows of one transaction until it is decided which of them are written."""

    def __init__(self, session: Session, catalog: Catalog) -> None:
        self.rejected = Rejected()
        self._session = session
        self._catalog = catalog
        self._rules = rules.compile_rules(catalog)
        self._given: dict[TableId, Given] = {}
        self._spool: Spool | None = None

    @property
    def is_used(self) -> bool:
        """Whether rows were given."""
        return bool(self._given)

    @property
    def parts(self) -> Iterator[tuple[TableId, Writing]]:
        """The tables that rows were given for, with the verbs."""
        return ((table, verb) for table, given in self._given.items() for verb in given.verbs)

    def take(self, kind: TableType, verb: Writing, parts: Iterable[AnyRows]) -> None:
        """Set rows aside; those that are wrong in themselves are rejected at once."""
        given = self._given.get(kind.table_id)
        if given is None:
            given = self._given[kind.table_id] = Given(kind, self._deciding(kind), self._opened())
        given.open(verb)
        checks = RowChecks(kind)
        for part in parts:
            for some in sifted(kind, part, self._session.sources.mint_many):
                if isinstance(some, Misfits):
                    self.rejected.add(kind, some.rows, some.reasons)
                elif some.num_rows:
                    self._look(given, verb, checks, some)

    def _opened(self) -> Spool:
        if self._spool is None:
            self._spool = Spool().__enter__()
            weakref.finalize(self, self._spool.__exit__, None, None, None)
        return self._spool

    def _deciding(self, kind: TableType) -> list[str]:
        """Return the columns that rules about several rows look at."""
        names = ["id"]
        for rule in self._rules:
            if rule.kind.table_id == kind.table_id:
                names += rule.columns if isinstance(rule, UniqueRule) else ()
                names += [rule.column] if isinstance(rule, EndpointRule) else ()
        return list(dict.fromkeys(names))

    def _look(self, given: Given, verb: Writing, checks: RowChecks, rows: pa.Table) -> None:
        broken = checks.broken(rows)
        if broken:
            out = np.unique(np.concatenate([places for _, places in broken]))
            reasons: Reasons = [[] for _ in out]
            for name, places in broken:
                for place in np.searchsorted(out, places).tolist():
                    reasons[place].append(Reason(name))
            self.rejected.add(given.kind, plain_rows(given.kind, rows.take(pa.array(out))), reasons)
            is_good = np.ones(rows.num_rows, np.bool_)
            is_good[out] = False
            rows = rows.filter(pa.array(is_good))
        if rows.num_rows:
            given.add(verb, rows)

    # -- deciding -----------------------------------------------------------------------------------

    def settle(self, pins: Mapping[TableId, Pin]) -> None:
        """Decide which rows are written on these pins; raise if no choice of them would do."""
        for given in self._given.values():
            given.number()
            self._check_ids(given, pins.get(given.kind.table_id))
        self._rounds(pins)
        for given in self._given.values():
            for rows, reasons in given.unwanted():
                self.rejected.add(given.kind, rows, reasons)

    def wanted(self, table: TableId, verb: Writing) -> Iterator[pa.RecordBatch]:
        """Stream the rows of one verb that are to be written."""
        return self._given[table].wanted(verb)

    def _check_ids(self, given: Given, pin: Pin | None) -> None:
        relation = {"given": Delta(self._session, given.kind, given, None).new({"id": "id", "row": ROW})}
        if len(given.repeats.doubtful()):
            given.reject(rows_of(rules.REPEATED_IDS, relation, {}), GIVEN_TWICE)
            given.settle()
        if pin is None or given.is_overwrite:
            return
        for verb in given.verbs:
            there = self._there(given, verb, pin)
            if len(there):
                found = rows_of(rules.HAVING_IDS, {**relation, "broken": pa.table({"id": there})}, {})
                if verb == "append":
                    given.reject(np.intersect1d(found, given.numbers(verb)), EXISTS)
                else:
                    given.replace(np.intersect1d(found, given.numbers(verb)))
        given.settle()

    def _there(self, given: Given, verb: Writing, pin: Pin) -> Column:
        """Return which ids of one verb's rows are there already."""
        uri, version = uri_of(self._session, given.kind), pin.lance_version
        if verb == "append":
            count, options = given.count(verb), self._session.root.options
            return pa.array(present(uri, version, lambda: given.ids(verb), count, options=options), pa.string())
        ids = in_one_piece(pa.chunked_array(list(given.ids(verb)), pa.string()))
        return self._session.staging.rows_where(uri, version, "id", ids, ["id"]).column("id")

    def _rounds(self, pins: Mapping[TableId, Pin]) -> None:
        waiting = {number for number, rule in enumerate(self._rules) if concerns(rule, self._given)}
        for _ in range(ROUNDS_MAX):
            if not waiting:
                return
            first = min(_rank(self._rules[number]) for number in waiting)
            now = {number for number in waiting if _rank(self._rules[number]) == first}
            hit = self._round([self._rules[number] for number in sorted(now)], pins)
            again = {number for number, rule in enumerate(self._rules) if _tables(rule) & hit}
            waiting = (waiting - now) | {number for number in again if concerns(self._rules[number], self._given)}
        left = Integrity(self._session, self._catalog, self._given, pins).violations()
        _fail(left, f"rows depend on each other over more than {ROUNDS_MAX:,} steps")

    def _round(self, now: Sequence[Rule], pins: Mapping[TableId, Pin]) -> set[TableId]:
        """Leave out what some rules are broken by, all seen on the same rows; return the tables that changed."""
        integrity = Integrity(self._session, self._catalog, self._given, pins)
        found: list[tuple[TableId, Rows, Reason]] = []
        stuck: list[Violation] = []
        for question in (each for rule in now for each in integrity.questions(rule)):
            violations = question.answer()
            if violations:
                table, rows = integrity.blamed(question)
                found.append((table, rows, self._reason(question, table)))
                stuck += [] if len(rows) else violations
        if stuck:
            _fail(stuck, "what is broken lies in rows that were there before")
        for table, rows, reason in found:
            self._given[table].reject(rows, reason)
        return {table for table in {table for table, _, _ in found} if self._given[table].settle()}

    @staticmethod
    def _reason(question: Question, table: TableId) -> Reason:
        rule = question.rule
        return Reason(str(rule) if table == rule.kind.table_id else f"{rule} of {rule.kind.name}")


def _rank(rule: Rule) -> int:
    if isinstance(rule, CardinalityRule):
        return 3
    if isinstance(rule, EndpointRule):
        return 1
    return 2 if isinstance(rule.kind, EdgeType) else 0


def _tables(rule: Rule) -> set[TableId]:
    return {rule.kind.table_id} if isinstance(rule, UniqueRule) else {rule.kind.table_id, rule.node.table_id}


def _fail(violations: Sequence[Violation], why: str) -> NoReturn:
    listed = "; ".join(str(each) for each in violations)
    raise ConstraintError(
        f"nothing was applied: leaving rows out does not help, because {why}: {listed}",
        violations=[each.to_dict() for each in violations],
    )
