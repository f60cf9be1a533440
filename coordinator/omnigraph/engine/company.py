"""Writers that wait for their turn are taken along: one publish makes all their commits visible.

A promise is all anyone needs to finish a commit, so whoever has the turn finishes those of the writers
queued behind it on this machine: appends and upserts to the same branch, sealed one on top of the other.
A writer that was taken along finds its commit when its turn comes, and is done. Whatever does not fit is
left to its owner, who is the one to be told why.
"""

from dataclasses import replace
from datetime import timedelta
from typing import Final

from omnigraph.engine.changes import AddCommit
from omnigraph.engine.owners import is_here
from omnigraph.engine.sealing import SealedWork, Sealer
from omnigraph.engine.sealing_early import EarlySealer
from omnigraph.engine.session import Session
from omnigraph.errors import OmnigraphError
from omnigraph.model.lineage import Commit
from omnigraph.model.sidecar import Sidecar
from omnigraph.rules.refs import Stamp

COMPANY_MAX: Final = 15
COMPANY_AGE_MAX: Final = timedelta(seconds=30)


class Company:
    """The promises that can be kept together with our own."""

    def __init__(self, session: Session, sealer: Sealer, early: EarlySealer) -> None:
        self._session = session
        self._sealer = sealer
        self._early = early

    def sealed_with(self, ours: SealedWork) -> list[SealedWork]:
        """Seal what waits, on top of our own work; what does not fit is left out."""
        together: list[SealedWork] = []
        head = _after(ours)
        for sidecar in self._waiting(ours.sidecar):
            try:
                work = self._early.offered(sidecar, head) or self._sealer.seal(sidecar, head)
            except OmnigraphError:
                continue
            together.append(work)
            head = _after(work)
        return together

    def change(self, work: SealedWork) -> AddCommit:
        """Return how another's commit is published: as its owner would, if the promise still stands."""
        sidecar = work.sidecar
        return AddCommit(
            manifest=self._session.manifest,
            draft=self._sealer.draft(work),
            stamp=Stamp(actor=sidecar.actor, at=self._session.sources.now()),
            promised=lambda: self._session.sidecars.exists(sidecar.operation),
        )

    def _waiting(self, ours: Sidecar) -> list[Sidecar]:
        young = self._session.sources.now() - COMPANY_AGE_MAX
        found: list[Sidecar] = []
        commits = {ours.commit}  # a shared transaction may be promised by two at once, and is one commit
        for pending in self._session.sidecars.pending():
            if pending.operation == ours.operation or pending.modified < young:
                continue  # an old one is for recovery
            sidecar = self._read(pending.operation)
            if sidecar is None or sidecar.commit in commits:
                continue
            if self._waits(sidecar) and _goes_along(sidecar, ours):
                commits.add(sidecar.commit)
                found.append(sidecar)
            if len(found) == COMPANY_MAX:
                break
        return found

    def _waits(self, sidecar: Sidecar) -> bool:
        """Tell whether a promise of this machine has not come true yet, as far as we know."""
        known = self._session.publisher.known
        landed = known is not None and self._session.manifest.commit(known, sidecar.commit) is not None
        return is_here(sidecar.owner) and not landed

    def _read(self, operation: str) -> Sidecar | None:
        try:
            return self._session.sidecars.read(operation)
        except OmnigraphError:
            return None  # not ours to complain about


def _goes_along(sidecar: Sidecar, ours: Sidecar) -> bool:
    same = (sidecar.incarnation, sidecar.schema_hash) == (ours.incarnation, ours.schema_hash)
    merges = sidecar.merge is not None or ours.merge is not None
    merges = merges or sidecar.schema is not None or ours.schema is not None
    return same and not merges and all(promise.commutes for promise in sidecar.tables)


def _after(work: SealedWork) -> Commit:
    """Return the head as it will be once this work is visible, as far as sealing needs it."""
    return replace(work.head, pins={**work.head.pins, **work.pins})
