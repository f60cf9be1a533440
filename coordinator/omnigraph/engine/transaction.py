"""A write over any number of tables that becomes one commit, or nothing.

Rows are staged as they are given: files that nothing refers to. When the block ends, the committer
promises, seals and publishes. Whatever fails before that leaves only files nobody sees.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import pyarrow as pa

from omnigraph.engine.announcing import Announcement
from omnigraph.engine.committer import Committer, Progress
from omnigraph.engine.given import Writing
from omnigraph.engine.history import History
from omnigraph.engine.integrity import reads_of, refuse, staged_changes
from omnigraph.engine.owners import this_process
from omnigraph.engine.parts import Begun, Verb, gather
from omnigraph.engine.promising import Promising
from omnigraph.engine.quarantine import Quarantine
from omnigraph.engine.rejected import rejected_schema
from omnigraph.engine.row_staging import RowStaging
from omnigraph.engine.rows_given import AnyRows, parts_of, unfiled
from omnigraph.engine.session import Session
from omnigraph.engine.shared import Shared
from omnigraph.engine.spread_integrity import violations
from omnigraph.engine.spreading import places_to_join
from omnigraph.engine.table_work import TableWork, work_for
from omnigraph.errors import InvalidOptionError, MixedMutationError, OmnigraphError, TransactionStateError
from omnigraph.ids import CommitId, TableId
from omnigraph.model.lineage import Commit
from omnigraph.model.receipt import Receipt, RejectedRows, TableReceipt
from omnigraph.model.schema import TableType
from omnigraph.model.shared import SharedTransaction
from omnigraph.model.sidecar import ReadPin, Sidecar, TablePromise
from omnigraph.observing import Seen, at_work, phase
from omnigraph.storage.relations import Spread


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """What a transaction is for, as its caller said it."""

    branch: str
    message: str | None = None
    actor: str | None = None
    user_metadata: str | None = None
    txn: tuple[str, int] | None = None
    constraints: str = "fail"


class Transaction:
    """A context manager: leave the block and everything is published, raise in it and nothing is."""

    def __init__(
        self,
        session: Session,
        history: History,
        intent: Intent,
        begun: Begun | None = None,
        shared: Shared | None = None,
    ) -> None:
        self._session = session
        self._history = history
        self._intent = intent
        self._shared = shared
        is_ours = begun is None and shared is None
        self._began = session.sources.monotonic() if is_ours else None  # of what others began, who knows
        self._branch, self._base = history.head(intent.branch, None if begun is None else begun.incarnation)
        if begun is not None:
            self._base = history.on_branch(begun.base, self._branch)
        self._catalog = history.catalog(self._base)
        self._tables: dict[TableId, TableWork] = {}
        self._quarantine = Quarantine(session, self._catalog) if intent.constraints == "quarantine" else None
        self._announcement = Announcement(session, self._base.id, None if begun is None else begun.operation)
        self._staging = RowStaging(session, self._announcement, is_checked=intent.constraints != "off")
        self._open = True
        self._is_alone = self._is_given_up = False
        self._receipt: Receipt | None = None
        self._landed_before = self._earlier_commit()
        self._seen = at_work() or Seen("commit", session.root)
        self._seen.branch = self._branch.name

    @property
    def base(self) -> Commit:
        """The commit it began on; everything is worked out against it."""
        return self._base

    @property
    def constraints(self) -> str:
        """How constraints are treated: ``fail``, ``quarantine`` or ``off``."""
        return self._intent.constraints

    @property
    def ticket(self) -> str:
        """By which others stage for this transaction, by the option ``transaction`` or ``graph.saving``.

        It is the id of the commit that this will be. Asking for it writes the transaction down, for six days.
        """
        if self._shared is None:
            self._usable()
            self._shared = Shared.begin(
                self._session,
                self._history,
                SharedTransaction(
                    ticket=CommitId(self._session.sources.mint()),
                    branch=self._branch.name,
                    incarnation=self._branch.incarnation,
                    base=self._base.id,
                    message=self._intent.message,
                    actor=self._actor,
                    user_metadata=self._intent.user_metadata,
                    txn=self._intent.txn,
                    constraints=self._intent.constraints,
                    started_at=self._session.sources.now(),
                ),
            )
        return self._shared.ticket

    def give_up(self) -> None:
        """End it without publishing anything, also what others staged for it."""
        self._usable()
        self._open, self._is_given_up = False, True
        with self._seen.beginning():
            self._announcement.end()
            if self._shared is not None:
                self._shared.give_up()
        self._seen.more["given_up"] = True
        self._seen.end()

    @property
    def is_rerun(self) -> bool:
        """Whether this very txn has landed before: then nothing is done, and rows need not be made at all."""
        return self._landed_before is not None

    @property
    def receipt(self) -> Receipt:
        """What was published; there is none before the block has ended well."""
        if self._receipt is None:
            raise TransactionStateError("this transaction has not been published, so it has no receipt")
        return self._receipt

    def rejected(self, type: str) -> pa.RecordBatchReader:
        """Return the rows of a type that ``constraints="quarantine"`` left out, with the column ``_reasons``."""
        kind, receipt = self._catalog.table_type(type), self.receipt
        if self._quarantine is None or not receipt.rejected:
            return rejected_schema(kind).empty_table().to_reader()
        return self._quarantine.rejected.reader(kind)

    def append(self, type: str, rows: AnyRows) -> None:
        """Insert rows; one whose id exists already makes the whole transaction fail. Readers and files are streamed."""
        with self._working("append", type) as table:
            if table is not None:
                self._give(table, "append", rows)

    def upsert(self, type: str, rows: AnyRows, *, strict: bool = False) -> None:
        """Insert rows, or replace those that have their id; rows that are there already, value for value, stay.

        ``strict`` is for rows made from what was read: if anyone wrote to the type since this transaction began, it
        fails with a conflict instead of replacing what was not seen.
        """
        with self._working("upsert", type) as table:
            if table is not None:
                table.is_strict |= strict
                self._give(table, "upsert", rows)

    def overwrite(self, type: str, rows: AnyRows) -> None:
        """Replace all rows of one type, and of no other; no rows at all empty it."""
        with self._working("overwrite", type) as table:
            if table is not None:
                self._give(table, "overwrite", rows)

    def delete(self, type: str, where: str | None = None, *, ids: Sequence[str] | None = None) -> None:
        """Delete the rows of a type that a filter holds for, or that have these ids."""
        if (where is None) == (ids is None):
            raise InvalidOptionError("delete takes a filter or ids: one of them, and not both")
        if isinstance(ids, str):
            raise InvalidOptionError("ids is one text; give a list of ids")
        with self._working("delete", type) as table:
            if table is None:
                return
            if where is not None:
                table.predicates.append(where)
            else:
                table.deleted_ids.append(pa.array(list(ids or ()), pa.string()))
            if table.predicates and table.deleted_ids:
                raise InvalidOptionError(f"delete rows of {table.key} by filter or by ids, not by both at once")

    def places(self, type: str) -> Spread | None:
        """Return id, row id and place of a type's rows, to be joined with rows elsewhere; None if there is no need.

        Tasks look rows up by an index, or in a small table. A large one without an index would be read by each task.
        """
        kind = self._catalog.table_type(type)
        return places_to_join(self._session, kind, self._base.pins.get(kind.table_id))

    def announce(self, type: str) -> None:
        """Say that tasks elsewhere begin to stage rows of a type, so that no cleanup takes their files away."""
        self._usable()
        self._announcement.now(self._catalog.table_type(type).table_id)

    def staged(self, type: str, verb: Verb, parts: Iterable[str]) -> None:
        """Take what tasks elsewhere staged by an order of the snapshot this began on; each part once.

        It is checked and published like rows that were given here.
        """
        with self._working(verb, type) as table:
            if table is None:
                return
            self._take(table, verb, parts)

    def _take(self, table: TableWork, verb: Verb, texts: Iterable[str]) -> None:
        if self._quarantine is not None and verb != "delete":
            raise InvalidOptionError("rows staged elsewhere can not be sorted out; choose constraints 'fail' or 'off'")
        gathered = gather(verb, texts, table.ticket, table.kind)
        table.parts += gathered.staged
        table.deleted_rows += gathered.rows
        table.found += gathered.violations
        table.staged_elsewhere += gathered.staged
        table.stretches += gathered.stretches

    def changed(self, type: str, *, put: Iterable[str], inserted: Iterable[str], deleted: Iterable[str]) -> None:
        """Take the rows of one type that tasks elsewhere put, inserted and found to delete, as one change.

        All of it was made from what was read, so the table may not have changed since; nodes that go take their
        edges along. Nothing else can be in the same transaction.
        """
        if self._tables:
            raise MixedMutationError("a change of rows goes alone: nothing was applied; use a transaction of its own")
        parts: dict[Verb, list[str]] = {"upsert": list(put), "append": list(inserted), "delete": list(deleted)}
        for verb, texts in parts.items():
            with self._working("upsert", type) as table:
                if table is None or not texts:
                    continue
                table.is_strict = True
                self._take(table, verb, texts)
        for table in self._tables.values():
            table.verbs = {verb for verb, texts in parts.items() if texts}

    def __enter__(self) -> Self:
        self._usable()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._seen.beginning():
            self._leave(error)
        self._seen.end(error)

    def _leave(self, error: BaseException | None) -> None:
        was_open, self._open = self._open, False
        try:
            if error is None and was_open:
                self._receipt = self._publish()
                self._seen.learn(self._receipt)
            elif self._shared is not None:
                self._shared.give_up()
        finally:
            self._announcement.end()
        if error is None and not was_open:
            why = "it was given up" if self._is_given_up else "a step of this transaction failed"
            raise TransactionStateError(f"{why}, so nothing was applied")

    # -- staging ------------------------------------------------------------------------------------

    @contextmanager
    def _working(self, verb: Verb, type: str) -> Iterator[TableWork | None]:
        """Give the table a verb works on, or None if the whole transaction is a rerun; a failure ends it."""
        self._usable()
        try:
            kind = self._catalog.table_type(type)
            self._refuse_mixture(verb, kind)
            with self._seen.active(), phase("stage"):  # what the caller does beside it is no part of it
                yield None if self._landed_before is not None else self._table(verb, kind)
        except BaseException:
            self._open = False
            raise

    def _usable(self) -> None:
        if not self._open:
            raise TransactionStateError("this transaction has ended; begin another one")

    def _refuse_mixture(self, verb: Verb, kind: TableType) -> None:
        for table in self._tables.values():
            if ("delete" in table.verbs) != (verb == "delete"):
                raise MixedMutationError(
                    "a transaction has inserts/updates or deletes, never both: nothing was applied; "
                    "split into separate mutations, or use a branch and a merge"
                )
            if table.kind is kind and ("overwrite" in table.verbs) != (verb == "overwrite"):
                raise InvalidOptionError(
                    f"{table.key} is already being written by {min(table.verbs)!r}; an overwrite goes alone"
                )

    def _table(self, verb: Verb, kind: TableType) -> TableWork:
        return work_for(self._session, self._tables, kind, self._base.pins.get(kind.table_id), verb)

    def _give(self, table: TableWork, verb: Writing, rows: AnyRows) -> None:
        """Stage rows, or set them aside until it is known which of them are good."""
        quarantine = self._quarantine
        rejected = None if quarantine is None else quarantine.rejected
        with unfiled(self._session, self._catalog, table.kind, rows, rejected) as plain:
            if quarantine is not None:
                quarantine.take(table.kind, verb, parts_of(plain, table.kind))
                return
            self._staging.give(table, verb, plain)

    # -- publishing ---------------------------------------------------------------------------------

    def _earlier_commit(self) -> CommitId | None:
        if self._shared is not None and not self._is_alone and (landed := self._shared.landed()) is not None:
            return landed
        if self._intent.txn is None:
            return None
        app, version = self._intent.txn
        last = self._session.publisher.read().state.txns.get(app)
        return last.commit if last is not None and last.version >= version else None

    def _publish(self) -> Receipt:
        before = self._landed_before
        receipt = self._publish_unless_twin() if before is None else self._rerun(before)
        if self._shared is not None:
            self._shared.published()
        return receipt

    def _publish_unless_twin(self) -> Receipt:
        try:
            self._take_shared()
            return self._publish_once()
        except OmnigraphError as problem:
            # Whatever was in the way may be this very work, done by a twin of ours that was faster.
            twin = self._earlier_commit()
            if twin is not None:
                return self._rerun(twin)
            if self._shared is not None:
                self._shared.failed(problem)
            raise

    def _take_shared(self) -> None:
        """Take what others saved for this transaction."""
        if self._shared is None:
            return
        self._is_alone = bool(self._tables)
        for each in self._shared.taken(self._session.sources.mint() if self._is_alone else None):
            kind = self._catalog.by_table_id(each.table)
            self._refuse_mixture(each.verb, kind)
            self._take(self._table(each.verb, kind), each.verb, each.parts)

    def _publish_once(self) -> Receipt:
        is_checked = self._intent.constraints != "off"
        is_settled = self._settle()
        promises = Promising(self._session, self._catalog, self._base.pins, self._tables).promises(
            is_sorted_out=self._quarantine is not None
        )
        if is_checked and not is_settled:
            broken = [violation for table in self._tables.values() for violation in table.violations]
            changes = staged_changes(self._session, self._catalog, promises)
            refuse(broken + violations(self._session, self._catalog, changes, self._base.pins))
        if not promises:
            return Receipt(branch=self._branch.name, commit=None, version=None, rejected=self._rejected_counts)
        progress = Progress()
        commit = Committer(self._session, self._history).commit(
            self._sidecar(promises, is_checked=is_checked),
            self._session.stamp(self._intent.actor, self._began),
            progress,
        )
        return Receipt(
            branch=commit.branch,
            commit=commit.id,
            version=commit.version,
            tables={key: TableReceipt(**metrics) for key, metrics in commit.metrics.items()},
            attempts=progress.attempts,
            milliseconds=progress.milliseconds,
            rejected=self._rejected_counts,
        )

    def _settle(self) -> bool:
        """Stage the good ones of the rows that were set aside; tell whether there were any rows to decide about."""
        if self._quarantine is None or not self._quarantine.is_used:
            return False
        self._quarantine.settle(self._base.pins)
        for table, verb in self._quarantine.parts:
            self._staging.stage(self._tables[table], verb, self._quarantine.wanted(table, verb))
        return True

    @property
    def _rejected_counts(self) -> Mapping[str, RejectedRows]:
        return {} if self._quarantine is None else self._quarantine.rejected.counts

    def _sidecar(self, promises: tuple[TablePromise, ...], *, is_checked: bool) -> Sidecar:
        verbs = sorted({verb for table in self._tables.values() for verb in table.verbs})
        changes = staged_changes(self._session, self._catalog, promises)
        read = reads_of(self._catalog, changes) if is_checked else ()
        return Sidecar(
            operation=self._session.sources.mint(),
            commit=CommitId(self._session.sources.mint()) if self._shared is None else self._shared.ticket,
            branch=self._branch.name,
            incarnation=self._branch.incarnation,
            base=self._base.id,
            schema_hash=self._base.schema_hash,
            writer=verbs[0] if len(verbs) == 1 else "transaction",
            actor=self._actor,
            message=self._intent.message,
            user_metadata=self._intent.user_metadata,
            txn=self._intent.txn,
            started_at=self._session.sources.now(),
            owner=this_process(),
            tables=promises,
            is_checked=is_checked,
            reads=tuple(self._read_pin(table) for table in sorted(read)),
        )

    @property
    def _actor(self) -> str | None:
        return self._intent.actor if self._intent.actor is not None else self._session.actor

    def _read_pin(self, table: TableId) -> ReadPin:
        key = self._catalog.by_table_id(table).table
        return ReadPin(table=table, key=key, expected=self._base.pins.get(table))

    def _rerun(self, commit: CommitId) -> Receipt:
        found = self._history.named(commit)
        return Receipt(branch=found.branch, commit=found.id, version=found.version, rerun=True)
