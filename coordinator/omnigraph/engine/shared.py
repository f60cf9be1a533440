"""A transaction that several processes stage for, and one of them publishes.

Its ticket is the id of the commit it will be. Whoever has it saves rows of a type, each save in a slot of its own, and
whoever publishes takes all of them, as one commit. What counts is decided once: the saves are counted after it was said
that they are, so a save either is among them, or learns that it is not.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, cast

from omnigraph.engine.changes import Abandon
from omnigraph.engine.history import History
from omnigraph.engine.integrity import refuse
from omnigraph.engine.owners import this_process
from omnigraph.engine.parts import Verb, WorkOrder, gather
from omnigraph.engine.session import Session
from omnigraph.engine.snapshot import Snapshot
from omnigraph.errors import (
    AlreadyAppliedError,
    ConflictError,
    InvalidInputError,
    InvalidOptionError,
    MixedMutationError,
    OmnigraphError,
    TransactionNotFoundError,
    TransactionStateError,
)
from omnigraph.ids import CommitId, TableId, is_ulid
from omnigraph.model.intents import Intent
from omnigraph.model.lineage import Commit
from omnigraph.model.schema import TableType
from omnigraph.model.shared import Closing, Ending, Save, SharedTransaction, Slot, place_of
from omnigraph.observing import logger
from omnigraph.storage.lance_written import LIMITS, WriteLimits

log = logger(__name__)

TICKET_LASTS: Final = timedelta(days=6)
"""A day less than its intent does: nothing of it is cleaned up while it may still be published."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What was saved for one table by one verb."""

    table: TableId
    verb: Verb
    parts: tuple[str, ...]


class Shared:
    """One shared transaction, for whoever publishes it or gives it up."""

    def __init__(self, session: Session, history: History, ticket: CommitId) -> None:
        self._session = session
        self._history = history
        self._is_counted = False
        self.ticket = ticket

    @classmethod
    def begin(cls, session: Session, history: History, transaction: SharedTransaction) -> "Shared":
        """Write a transaction down for others to stage for; its files are safe from cleanup from now on."""
        if transaction.constraints == "quarantine":
            raise InvalidOptionError("rows staged elsewhere can not be sorted out; choose constraints 'fail' or 'off'")
        catalog = history.catalog(history.named(transaction.base))
        session.intents.put(
            Intent(
                operation=transaction.ticket,
                base=transaction.base,
                tables=tuple(sorted(kind.table_id for kind in catalog.table_types)),
                host=this_process().host,
            )
        )
        session.shared.put(transaction)
        return cls(session, history, transaction.ticket)

    def landed(self) -> CommitId | None:
        """Return the commit, if it was published."""
        found = self._history.landed(self.ticket)
        return None if found is None else found.id

    def taken(self, alone: str | None) -> Iterator[Taken]:
        """Count the saves and yield them; ``alone`` is by whom only it can be published, with rows of its own."""
        ending = count(self._session, self.ticket, alone)
        if ending.is_given_up:
            raise _given_up(self.ticket)
        if ending.alone != alone:
            whose = "without the rows that were given here" if ending.alone is None else "with rows of its own"
            raise TransactionStateError(
                f"nothing was applied: transaction {self.ticket} is being published by another, {whose}",
                ticket=self.ticket,
            )
        self._is_counted = True
        for slot in ending.slots:
            table, verb = place_of(slot)
            saved = self._session.shared.save(self.ticket, slot)
            if saved is None:
                raise _ended(self.ticket)
            yield Taken(table=table, verb=cast(Verb, verb), parts=saved.parts)

    def published(self) -> None:
        """Forget what is visible now."""
        self._session.shared.forget(self.ticket)
        self._session.intents.forget(self.ticket)

    def give_up(self) -> None:
        """Say that it will never be published, unless someone is at it."""
        ending = self._session.shared.end(self.ticket, Ending(slots=(), is_given_up=True))
        if ending.is_given_up:
            self.published()

    def failed(self, problem: OmnigraphError) -> None:
        """Give up what can not be published however often it is tried; the manifest says so to whoever is at it too.

        If it was storage that failed, all of it stays: it may be tried again.
        """
        if not self._is_counted or not isinstance(problem, InvalidInputError | ConflictError):
            return
        try:
            decided = self._session.publisher.publish(
                Abandon(manifest=self._session.manifest, commit=self.ticket, at=self._session.sources.now())
            )
        except OmnigraphError as another:
            log.warning("a shared transaction was left behind", extra={"ticket": self.ticket, "reason": str(another)})
            return
        if decided.commit is None:
            self.published()


class Saving:
    """What a writer does that has only the ticket."""

    def __init__(self, session: Session, history: History, transaction: SharedTransaction) -> None:
        self._session = session
        self._history = history
        self.transaction = transaction
        self._base = history.named(transaction.base)

    @property
    def base(self) -> Commit:
        """The commit that everything is worked out against."""
        return self._base

    def order(self, type: str, verb: Verb, *, limits: WriteLimits = LIMITS) -> WorkOrder:
        """Return all that a task needs to stage rows."""
        catalog = self._history.catalog(self._base)
        snapshot = Snapshot(self._base, lambda: catalog, self._session.tables, self._session.root)
        return snapshot.order(type, verb, limits=limits, is_checked=self.transaction.constraints != "off")

    def is_saved(self, type: str, verb: Verb, name: tuple[str, int] | None = None) -> bool:
        """Tell whether a save of this name is in already; refuse, before anything is staged, what could not get in."""
        ticket = self.transaction.ticket
        slot = self._slot(type, verb, name)
        ending = self._session.shared.ending(ticket)
        slots = self._session.shared.slots(ticket) if ending is None else ending.slots
        if slot.text in slots:
            return self._again(slot, type)
        if ending is not None:
            raise _given_up(ticket) if ending.is_given_up else _ended(ticket)
        if self._is_rerun:
            return True
        for other in slots:
            _refuse_mixture(slot, type, *place_of(other))
        self._base.refuse_expired()
        return False

    def keep(self, type: str, verb: Verb, parts: Sequence[str], name: tuple[str, int] | None = None) -> None:
        """Save what tasks staged, once, or raise an error that means it is not in."""
        if self._is_rerun:
            return
        ticket, kind = self.transaction.ticket, self._kind(type)
        gathered = gather(verb, parts, self.order(type, verb).ticket, kind)
        if self.transaction.constraints != "off":
            refuse(gathered.violations)
        slot = self._slot(type, verb, name)
        save = Save(ticket=ticket, slot=slot.text, attempt=self._session.sources.mint(), parts=tuple(parts))
        if not self._session.shared.add(save):
            self._again(slot, type)
        self._look(slot)

    @property
    def _is_rerun(self) -> bool:
        """Whether the txn of the whole has landed before, so that nothing is to be done for it."""
        if self.transaction.txn is None:
            return False
        app, version = self.transaction.txn
        last = self._session.publisher.read().state.txns.get(app)
        return last is not None and last.version >= version

    def _look(self, slot: Slot) -> None:
        """Raise if the saves were counted before this one came."""
        ticket, shared = self.transaction.ticket, self._session.shared
        if not shared.is_closing(ticket):
            found(self._session, self._history, ticket)  # or it has been forgotten meanwhile
            return
        ending = shared.ending(ticket) or count(self._session, ticket, None)
        if slot.text not in ending.slots:
            raise _given_up(ticket) if ending.is_given_up else _ended(ticket)

    def _again(self, slot: Slot, type: str) -> bool:
        """Take a save that is there for this one, if that is what its name says."""
        if slot.name is not None:
            return True
        raise AlreadyAppliedError(
            f"rows of {type} were saved for transaction {self.transaction.ticket} by {slot.verb!r} before; name saves "
            "by txnAppId and txnVersion if there are several, or if one may be tried again",
            commit=self.transaction.ticket,
        )

    def _slot(self, type: str, verb: Verb, name: tuple[str, int] | None) -> Slot:
        return Slot(self._kind(type).table_id, verb, name)

    def _kind(self, type: str) -> TableType:
        return self._history.catalog(self._base).table_type(type)


def checked_ticket(text: str) -> CommitId:
    """Return a ticket, if it can be one."""
    if type(text) is not str or not is_ulid(text.upper()):
        raise InvalidOptionError(f"{str(text)[:60]!r} is no ticket of a transaction; it is what Transaction.ticket was")
    return CommitId(text.upper())


def found(session: Session, history: History, ticket: CommitId) -> SharedTransaction:
    """Return a transaction that has this ticket, or say what became of it."""
    kept = session.shared.get(ticket)
    if kept is None and history.landed(ticket) is not None:
        raise _ended(ticket)
    if kept is None:
        raise TransactionNotFoundError(
            f"no transaction of this graph has the ticket {ticket}, or it was given up or forgotten; begin another one",
            ticket=ticket,
        )
    if session.sources.now() - kept.modified >= TICKET_LASTS:
        raise TransactionNotFoundError(
            f"transaction {ticket} has expired: a ticket lasts {TICKET_LASTS.days} days; begin another one",
            ticket=ticket,
        )
    return kept.transaction


def refuse_other_branch(transaction: SharedTransaction, branch: str | None) -> None:
    """Refuse a branch that is not the one a transaction is for."""
    if branch is not None and branch != transaction.branch:
        raise InvalidOptionError(
            f"transaction {transaction.ticket} is for branch {transaction.branch!r}, not for {branch[:200]!r}"
        )


def count(session: Session, ticket: CommitId, alone: str | None) -> Ending:
    """Decide which saves are in, unless that was decided before. Anyone may do it: the first to say it is right."""
    closing = session.shared.close(ticket, Closing(alone=alone))
    return session.shared.end(ticket, Ending(slots=session.shared.slots(ticket), alone=closing.alone))


def _refuse_mixture(slot: Slot, type: str, table: TableId, verb: str) -> None:
    """Refuse what a transaction can not have beside what was saved for it."""
    if ("delete" in (slot.verb, verb)) and slot.verb != verb:
        raise MixedMutationError(
            "a transaction has inserts/updates or deletes, never both: nothing was saved; use two transactions"
        )
    if table == slot.table and "overwrite" in (slot.verb, verb) and slot.verb != verb:
        raise InvalidOptionError(f"{type} is already being written by {verb!r}; an overwrite goes alone")


def _ended(ticket: CommitId) -> TransactionStateError:
    return TransactionStateError(
        f"nothing was applied: transaction {ticket} has ended: it was or is being published, or could not be; begin "
        "another one",
        ticket=ticket,
    )


def _given_up(ticket: CommitId) -> TransactionStateError:
    return TransactionStateError(
        f"nothing was applied: transaction {ticket} was given up; begin another one", ticket=ticket
    )
