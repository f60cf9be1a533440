"""Sealing while others have the turn: whoever has it finds the work sealed, and only has to publish it.

A table that nobody else writes is the same when the turn comes, so its writer seals it while it waits, next to the
others, and says so in a note. Where others write the same table that would be wasted, because what is sealed on a pin
fits on no other: then it is left to whoever has the turn, who seals one promise on top of the other.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace

from omnigraph.engine.changes import commit_of
from omnigraph.engine.sealing import SealedWork, Sealer, is_moved
from omnigraph.engine.session import Session
from omnigraph.errors import OmnigraphError
from omnigraph.model.lineage import Commit
from omnigraph.model.sidecar import Sidecar, TablePromise
from omnigraph.model.tables import Pin
from omnigraph.rules.refs import branch_held
from omnigraph.storage.turns import offered


@dataclass(slots=True)
class Early:
    """What was sealed before the turn came."""

    seal: Callable[[], SealedWork | None]
    work: SealedWork | None = None

    def offer(self) -> str:
        """Seal, and return what to tell the others of it: nothing if it is not worth it."""
        self.work = self.seal()
        return "" if self.work is None else _to_text(self.work)

    def on(self, head: Commit) -> SealedWork | None:
        """Return the work if it fits on a commit as it is."""
        return None if self.work is None or is_moved(self.work.sidecar, head) else replace(self.work, head=head)


@dataclass(frozen=True, slots=True)
class EarlySealer:
    """Seals before the turn, where that is likely to be of use."""

    session: Session
    sealer: Sealer

    def begin(self, sidecar: Sidecar) -> Early:
        """Return what seals a promise as soon as it has to wait."""
        return Early(lambda: self._seal(sidecar))

    def learn(self, sidecar: Sidecar, commit: Commit) -> None:
        """Note which tables of a promise had moved when it came true."""
        for promise in sidecar.tables:
            found = commit.pins.get(promise.table)
            before = promise.expected.version if promise.expected else 0
            if found is not None and found.version > before + 1:
                self.session.crowded.add(promise.table)
            else:
                self.session.crowded.discard(promise.table)

    def offered(self, sidecar: Sidecar, head: Commit) -> SealedWork | None:
        """Return another's work if its owner has sealed it, and on the very pins of a commit."""
        if is_moved(sidecar, head):
            return None
        note = offered(str(self.session.root), sidecar.operation)
        return None if not note else _from_text(note, sidecar, head)

    def _seal(self, sidecar: Sidecar) -> SealedWork | None:
        known = self.session.publisher.known
        is_plain = sidecar.merge is None and sidecar.schema is None
        if known is None or not is_plain or any(each.table in self.session.crowded for each in sidecar.tables):
            return None
        try:
            branch = branch_held(known.state, sidecar.branch, sidecar.incarnation)
            head = commit_of(self.session.manifest, known, branch.head)
            return None if is_moved(sidecar, head) else self.sealer.seal(sidecar, head)
        except (OmnigraphError, OSError):
            return None  # if it matters, it is met again when the turn has come


def _to_text(work: SealedWork) -> str:
    pins = [None if pin is None else pin.to_json() for _, pin in work.tables]
    return json.dumps({"commit": work.sidecar.commit, "pins": pins})


def _from_text(note: str, sidecar: Sidecar, head: Commit) -> SealedWork | None:
    """Read what was sealed of a promise; None if the note does not speak of it as it would have to."""
    try:
        body = json.loads(note)
        pins = [None if each is None else Pin.from_json(each) for each in body["pins"]]
        named = body["commit"]
    except (ValueError, TypeError, KeyError, OverflowError):
        return None
    if named != sidecar.commit or len(pins) != len(sidecar.tables):
        return None
    tables = tuple(zip(sidecar.tables, pins, strict=True))
    return SealedWork(sidecar=sidecar, head=head, tables=tables) if all(map(_fits, sidecar.tables, pins)) else None


def _fits(promise: TablePromise, pin: Pin | None) -> bool:
    """Tell whether a pin can be what a promise becomes on the pin it was made on."""
    if pin == promise.expected:
        return True  # what was to be written was there already
    wanted = (promise.table, promise.transaction, (promise.expected.version if promise.expected else 0) + 1)
    return pin is not None and (pin.table, pin.transaction, pin.version) == wanted
