"""Transactions that several processes stage for: `__staging/<ticket>/`, beside the intent that protects their files.

`transaction.json` says what it is for, `save-<slot>.json` what was saved. `closing.json` comes before its saves are
counted, and `ended.json` names those that count. The first and the last stay when the others are forgotten: a save that
was on its way, or is tried again, learns from them whether it is in.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from omnigraph.errors import InvalidOptionError, ObjectExistsError, ObjectNotFoundError, StorageError
from omnigraph.ids import CommitId
from omnigraph.model.shared import SHARED_BYTES_MAX, Closing, Ending, Save, SharedTransaction
from omnigraph.observing import logger
from omnigraph.storage import layout
from omnigraph.storage.objects import ObjectStore

log = logger(__name__)

TRANSACTION, CLOSING, ENDED = "transaction.json", "closing.json", "ended.json"
SAVE, SUFFIX = "save-", ".json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A transaction that is there, and when it was written by the store's clock."""

    transaction: SharedTransaction
    modified: datetime


class SharedTransactions:
    """The transactions that were given a ticket."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects

    def put(self, transaction: SharedTransaction) -> None:
        """Write down what a transaction is for."""
        self._objects.put(_key(transaction.ticket, TRANSACTION), transaction.to_bytes())

    def get(self, ticket: CommitId) -> Kept | None:
        """Return a transaction, if it is there."""
        key = _key(ticket, TRANSACTION)
        try:
            raw, info = self._objects.get(key), self._objects.head(key)
        except ObjectNotFoundError:
            return None
        return Kept(transaction=SharedTransaction.from_bytes(raw, key), modified=info.modified)

    def add(self, save: Save) -> bool:
        """Write down what was saved, if nothing is in its slot; tell whether it is in."""
        key, body = _key(save.ticket, f"{SAVE}{save.slot}{SUFFIX}"), save.to_bytes()
        if len(body) > SHARED_BYTES_MAX:
            raise InvalidOptionError(
                f"nothing was saved: the write has too many files ({len(body)} bytes to tell them, at most "
                f"{SHARED_BYTES_MAX}); write larger files, or name several saves"
            )
        try:
            self._objects.put_if_absent(key, body)
        except ObjectExistsError:
            # A put whose answer was lost is repeated by the client and meets its own object.
            return self._objects.get(key) == body
        return True

    def slots(self, ticket: CommitId) -> tuple[str, ...]:
        """Return the slots that something was saved in."""
        return tuple(sorted(_slots(name for name in self._names(ticket))))

    def save(self, ticket: CommitId, slot: str) -> Save | None:
        """Return what was saved in a slot, unless it was forgotten because all of it has ended."""
        key = _key(ticket, f"{SAVE}{slot}{SUFFIX}")
        try:
            return Save.from_bytes(self._objects.get(key), key)
        except ObjectNotFoundError:
            return None

    def close(self, ticket: CommitId, closing: Closing) -> Closing:
        """Say that the saves are about to be counted, unless that was said; return who says so.

        Saves that come later look whether they are among them.
        """
        key = _key(ticket, CLOSING)
        try:
            self._objects.put_if_absent(key, closing.to_bytes())
        except ObjectExistsError:
            return Closing.from_bytes(self._objects.get(key), key)
        return closing

    def is_closing(self, ticket: CommitId) -> bool:
        """Tell whether saves are being counted, or were."""
        return bool({CLOSING, ENDED} & set(self._names(ticket)))

    def end(self, ticket: CommitId, ending: Ending) -> Ending:
        """Write down how a transaction ended, unless that was decided before; return what was decided."""
        key = _key(ticket, ENDED)
        try:
            self._objects.put_if_absent(key, ending.to_bytes())
        except ObjectExistsError:
            return Ending.from_bytes(self._objects.get(key), key)
        return ending

    def ending(self, ticket: CommitId) -> Ending | None:
        """Return how a transaction ended, if it did."""
        key = _key(ticket, ENDED)
        try:
            return Ending.from_bytes(self._objects.get(key), key)
        except ObjectNotFoundError:
            return None

    def forget(self, ticket: CommitId) -> None:
        """Forget what was saved, but not how it ended; failing is only a warning, it is forgotten with time."""
        try:
            kept = {TRANSACTION, ENDED, layout.INTENT}
            self._objects.delete([_key(ticket, name) for name in self._names(ticket) if name not in kept])
        except StorageError as problem:
            log.warning("a shared transaction was left behind", extra={"ticket": ticket, "reason": str(problem)})

    def _names(self, ticket: CommitId) -> list[str]:
        folder = layout.staging(ticket)
        return [info.key.removeprefix(folder + "/") for info in self._objects.list(folder)]


def _key(ticket: CommitId, name: str) -> str:
    return f"{layout.staging(ticket)}/{name}"


def _slots(names: Iterator[str]) -> Iterator[str]:
    for name in names:
        if name.startswith(SAVE) and name.endswith(SUFFIX):
            yield name.removeprefix(SAVE).removesuffix(SUFFIX)
