"""Cleanup: commits that nobody holds expire, then files that nothing refers to are removed.

Everything is marked that a branch, a tag, a kept commit, a promise or a write being staged can reach; then the files
are listed, and what is not marked goes. The moment it began is the store's own: what came later stays, however it
looks. Promises are read before the manifest, so whatever is not promised any more is visible in it. A cleanup that is
killed has removed nothing that anyone could reach, and the next one goes on.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Final

from omnigraph.engine.expiring import Expiring, merge_bases
from omnigraph.engine.history import History
from omnigraph.engine.roots import AtWork, Roots, at_work, mark
from omnigraph.engine.session import Session
from omnigraph.engine.sweeping import Judge, Tally, sweep, sweep_unfinished
from omnigraph.engine.upkeep import Places
from omnigraph.errors import StorageError
from omnigraph.failpoints import MaintenancePoint, reach
from omnigraph.ids import CommitId
from omnigraph.model.cleanups import CleanupReport, Trouble
from omnigraph.observing import logger
from omnigraph.rules.retention import Policy, Retention
from omnigraph.storage import layout
from omnigraph.storage.lance_files import TableFiles
from omnigraph.storage.manifest import READER_GRACE, Reading

GRACE_DEFAULT: Final = timedelta(days=1)
NEW = "a commit that came meanwhile"

log = logger(__name__)


class Cleaning:
    """Removes what nothing refers to any more."""

    def __init__(self, session: Session, history: History) -> None:
        self._session = session
        self._history = history
        self._files = TableFiles(session.root.options)

    def clean(self, policy: Policy, grace: timedelta, *, dry_run: bool) -> CleanupReport:
        """Let commits expire and remove files, or only tell what would go."""
        with self._clock(dry_run) as now:
            work = at_work(self._session, now)
            expired = self._expire(policy, now, work, dry_run=dry_run)
            if not dry_run:
                reach(MaintenancePoint.CLEANUP_EXPIRED)
            roots = self._history.looking(lambda reading: self._roots(reading, policy, now, work, expired))
            marked = mark(self._session, self._files, roots, work)
            judge = Judge(roots, marked, work.protections, now, grace)
            tally = Tally()
            undeleted = sweep(self._session, judge.verdicts(self._session), tally, dry_run=dry_run)
            undeleted |= sweep_unfinished(self._session, judge, tally, dry_run=dry_run)
            if not dry_run:
                self._sweep_manifest(min(grace, READER_GRACE), tally)
        troubles = [*marked.troubles.values(), *(Trouble(table=t, reason=why) for t, why in undeleted.items())]
        return CleanupReport(
            dry_run=dry_run,
            expired=tuple(sorted(expired)),
            commits_kept=roots.commits,
            removed=tally.removed,
            kept=tally.kept,
            troubles=tuple(troubles),
        )

    @contextmanager
    def _clock(self, dry_run: bool) -> Iterator[datetime]:
        """Give the store's own time; a dry run writes nothing and takes ours for it."""
        if dry_run:
            yield self._session.sources.now()
            return
        key = f"{layout.STAGING}/{self._session.sources.mint()}/cleanup"
        self._session.objects.put(key, b"cleanup")
        try:
            yield self._session.objects.head(key).modified
        finally:
            try:
                self._session.objects.delete([key])
            except StorageError as problem:
                log.warning("the mark of a cleanup was left behind", extra={"key": key, "reason": str(problem)})

    def _expire(self, policy: Policy, now: datetime, work: AtWork, *, dry_run: bool) -> frozenset[CommitId]:
        """Return the commits that expire now, or would."""

        def unheld(reading: Reading) -> frozenset[CommitId]:
            retention = self._retention(reading, policy, now, work)
            rows = (row for row in self._session.manifest.every_commit(reading) if retention.holder(row) is None)
            return frozenset(row.id for row in rows if row.commit.expired_at is None)

        return self._history.looking(unheld) if dry_run else Expiring(self._session).expire(unheld, now)

    def _roots(
        self, reading: Reading, policy: Policy, now: datetime, work: AtWork, expired: frozenset[CommitId]
    ) -> Roots:
        """Gather the versions that are kept: of all commits that have not expired, and of promises."""
        retention = self._retention(reading, policy, now, work)
        roots = Roots(Places(self._history))
        for row in self._session.manifest.every_commit(reading):
            commit = row.commit
            if commit.expired_at is None and row.id not in expired:
                roots.add(commit, retention.holder(row) or NEW)
        for sidecar, _ in work.promises:
            roots.add_promise(sidecar)
        return roots

    def _retention(self, reading: Reading, policy: Policy, now: datetime, work: AtWork) -> Retention:
        return Retention(reading.state, policy, now, work.commits | merge_bases(self._session, reading))

    def _sweep_manifest(self, grace: timedelta, tally: Tally) -> None:
        swept = self._session.manifest.cleanup(grace)
        if swept.versions:
            tally.went(layout.MANIFEST, "version", swept.versions, 0)
        if swept.files:
            tally.went(layout.MANIFEST, "data", swept.files, swept.bytes)
