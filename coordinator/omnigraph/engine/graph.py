"""A graph, as a person or a job handles it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from os import PathLike
from typing import Any

from omnigraph.engine import exporting, intake, loading, mutating
from omnigraph.engine.announcing import Announcement
from omnigraph.engine.cleaning import GRACE_DEFAULT, Cleaning
from omnigraph.engine.continuing import continued
from omnigraph.engine.diffing import Diff, Point, commit_at
from omnigraph.engine.feed import Changes, changes_of
from omnigraph.engine.feed_line import Bound
from omnigraph.engine.history import History
from omnigraph.engine.indexing import Indexing
from omnigraph.engine.optimizing import Optimizing
from omnigraph.engine.parts import Begun
from omnigraph.engine.recovery import Recovered, Recovery
from omnigraph.engine.refs import Branches, Tags
from omnigraph.engine.reporting import COMMITS_DEFAULT, ReportRequest, report
from omnigraph.engine.restoring import restored
from omnigraph.engine.schemas import Schema
from omnigraph.engine.session import Session
from omnigraph.engine.shared import Saving, checked_ticket, found, refuse_other_branch
from omnigraph.engine.snapshot import Snapshot
from omnigraph.engine.transaction import Intent, Transaction
from omnigraph.engine.verifying import Verifying
from omnigraph.errors import InvalidOptionError
from omnigraph.model.catalog import Catalog
from omnigraph.model.cleanups import CleanupReport
from omnigraph.model.commit_history import CommitHistory
from omnigraph.model.indexes import IndexReport
from omnigraph.model.lineage import MAIN, Commit, Txn
from omnigraph.model.manifest import SchemaRow
from omnigraph.model.optimizing import OptimizeReport
from omnigraph.model.targets import AtBranch, AtCommit
from omnigraph.model.verifying import VerifyReport
from omnigraph.observing import Seen
from omnigraph.report.notebook import Log, graph_card
from omnigraph.report.showing import Report
from omnigraph.rules.commit_history import history_row
from omnigraph.rules.durations import duration
from omnigraph.rules.refs import branch_named
from omnigraph.rules.retention import Policy
from omnigraph.rules.targets import commit_id, read_target
from omnigraph.rules.upkeep import check_fragment_rows
from omnigraph.rules.who import check_actor, check_constraints, check_message, check_txn
from omnigraph.storage.audit import AuditRow
from omnigraph.storage.relations import ClusterEngine

LOG_COMMITS_DEFAULT = 20
LOG_COMMITS_SHOWN = 8


class Graph:
    """One graph, bound to a branch that its methods use unless told otherwise.

    Every read looks at the newest state: a handle never goes stale, and what it returned never changes.
    """

    def __init__(self, session: Session, branch: str = MAIN) -> None:
        self._session = session
        self._history = History(session.manifest, session.publisher)
        self._recovery = Recovery(session, self._history)
        self.branch = branch
        self.healed: tuple[Recovered, ...] = ()
        """What opening this handle finished or gave up for dead writers."""
        self.branches = Branches(session, self._history, self._recovery)
        self.tags = Tags(session, self._history)
        self.schema = Schema(self, session, self._history, self._recovery.heal)

    def __repr__(self) -> str:
        mode = " read-only" if self.read_only else ""
        return f"<Graph {self._session.root} on {self.branch!r}{mode}>"

    def _repr_html_(self) -> str:
        return graph_card(repr(self), self.branches.list(), self.log(limit=LOG_COMMITS_SHOWN))

    @property
    def root(self) -> str:
        """Where the graph is stored."""
        return str(self._session.root)

    @property
    def read_only(self) -> bool:
        """Whether this handle may only read."""
        return self._session.read_only

    def on(self, branch: str) -> "Graph":
        """Return a handle bound to another branch of the same graph."""
        branch_named(self._session.publisher.read().state, branch)
        return Graph(self._session, branch)

    def with_engine(self, cluster: ClusterEngine) -> "Graph":
        """Return a handle whose large writes are checked by an engine that has machines of its own."""
        return Graph(replace(self._session, cluster=cluster), self.branch)

    def refresh(self) -> Commit:
        """Look at the newest state now, and return the head of the bound branch."""
        return self._history.resolve(AtBranch(branch=self.branch))

    def log(
        self, branch: str | None = None, *, actor: str | None = None, limit: int | None = LOG_COMMITS_DEFAULT
    ) -> Log:
        """Return a list of a branch's commits, newest first; ``limit=None`` returns all of them."""
        return Log(self.iter_log(branch, actor=actor, limit=limit))

    def iter_log(
        self, branch: str | None = None, *, actor: str | None = None, limit: int | None = None
    ) -> Iterator[Commit]:
        """Yield a branch's commits, newest first, reading history as it is needed."""
        return self._history.log(self._bound(branch), actor, limit)

    def history(self, branch: str | None = None, *, limit: int | None = None) -> CommitHistory:
        """Return a row per commit of a branch, newest first, with parameters and metrics by the names Delta has."""
        return CommitHistory(tuple(map(history_row, self.iter_log(branch, limit=limit))))

    def commit(self, id: str) -> Commit:
        """Return one commit by its id, also if its branch is gone."""
        return self._history.resolve(AtCommit(commit=commit_id(id)))

    def snapshot(
        self,
        branch: str | None = None,
        *,
        tag: str | None = None,
        commit: str | None = None,
        version: int | None = None,
        timestamp: datetime | str | None = None,
    ) -> Snapshot:
        """Return the graph as one commit left it: of a branch, tag or commit, or of a branch at a version or time."""
        target = read_target(self.branch, branch=branch, tag=tag, commit=commit, version=version, timestamp=timestamp)
        found = self._history.resolve(target)
        found.refuse_expired()
        return Snapshot(found, lambda: self.catalog(found), self._session.tables, self._session.root)

    def diff(self, old: Point, new: Point) -> Diff:
        """Return what became of rows from one commit to another: of branches, tags, commit ids or ``main@12``."""
        return Diff(self._session, self._history, commit_at(self._history, old), commit_at(self._history, new))

    def changes(
        self, branch: str | None = None, *, since: Bound | None = None, until: Bound | None = None, net: bool = False
    ) -> Changes:
        """Return what became of a branch's rows, commit by commit, after one version or moment and up to another.

        With ``net`` only what the whole range amounts to is told, as if its last commit had done all of it.
        """
        return changes_of(self._session, self._history, self._bound(branch), since=since, until=until, net=net)

    def last_txn(self, app: str) -> Txn | None:
        """Return the last ``txn`` that an application landed, and its commit; None if it never landed one."""
        return self._session.publisher.read().state.txns.get(app)

    def transaction(  # noqa: PLR0913  (what a write can be told is what its options are)
        self,
        branch: str | None = None,
        *,
        message: str | None = None,
        actor: str | None = None,
        user_metadata: str | None = None,
        txn: tuple[str, int] | None = None,
        constraints: str = "fail",
        ticket: str | None = None,
        begun: Begun | None = None,
    ) -> Transaction:
        """Begin a write that becomes one commit, or nothing.

        ``txn`` is an application's name and a version that only grows: a rerun with the same pair does nothing.
        ``ticket`` is that of a transaction that was begun elsewhere, to publish what was staged for it.
        ``begun`` is for a write that another process began, whose tasks staged rows by orders of that commit.
        """
        with Seen("commit", self._session.root, self._bound(branch)).beginning():  # which ends with the transaction
            self._session.writable()
            if ticket is not None:
                said = (message, actor, user_metadata, txn, begun)
                if constraints != "fail" or any(each is not None for each in said):
                    raise InvalidOptionError(
                        "a transaction that has a ticket is what it was begun as; give nothing else"
                    )
                self._recovery.heal()
                return continued(self._session, self._history, ticket, branch)
            intent = Intent(
                branch=self._bound(branch),
                message=check_message(message),
                actor=check_actor(actor),
                user_metadata=check_message(user_metadata, "user metadata"),
                txn=check_txn(txn),
                constraints=check_constraints(constraints),
            )
            self._recovery.heal()
            return Transaction(self._session, self._history, intent, begun)

    def saving(self, ticket: str, branch: str | None = None) -> Saving:
        """Stage rows for a transaction that was begun elsewhere and is published elsewhere."""
        self._session.writable()
        transaction = found(self._session, self._history, checked_ticket(ticket))
        refuse_other_branch(transaction, branch)
        return Saving(self._session, self._history, transaction)

    def announce(self, begun: Begun, types: Sequence[str]) -> Begun:
        """Say that tasks elsewhere begin to stage rows of some types, so that no cleanup takes their files away.

        Pass what it returns to the transaction that publishes them. An intent that nobody ends lasts seven days.
        """
        self._session.writable()
        catalog = self.catalog(self.commit(begun.base))
        announcement = Announcement(self._session, begun.base)
        for name in types:
            announcement.now(catalog.table_type(name).table_id)
        return replace(begun, operation=announcement.operation)

    def mutate(  # noqa: PLR0913  (what a mutation can be told is what its options are)
        self,
        text: str,
        params: Mapping[str, Any] | None = None,
        *,
        name: str | None = None,
        branch: str | None = None,
        message: str | None = None,
        actor: str | None = None,
        user_metadata: str | None = None,
        txn: tuple[str, int] | None = None,
        constraints: str = "fail",
        from_json: bool = False,
    ) -> mutating.MutationResult:
        """Run one query of a `.gq` text as one commit, or not at all; ``name`` says which, if there are several.

        With ``from_json``, days, moments and bytes among the parameters are texts, as JSON has them.
        """
        request = mutating.MutateRequest(
            text=text,
            params=params,
            name=name,
            branch=self._bound(branch),
            message=message,
            actor=actor,
            user_metadata=user_metadata,
            txn=txn,
            constraints=constraints,
            from_json=from_json,
        )
        with self._session.observed("mutate", request.branch) as seen:
            self._session.writable()
            return seen.learn(mutating.mutate(self, self._session, request))

    def load(  # noqa: PLR0913  (what a load can be told is what its options are)
        self,
        source: intake.Source,
        mode: str = "append",
        branch: str | None = None,
        *,
        create_from: str | None = None,
        type: str | None = None,
        format: str | None = None,
        message: str | None = None,
        actor: str | None = None,
        txn: tuple[str, int] | None = None,
        constraints: str = "fail",
        storage_options: Mapping[str, str] | None = None,
        progress: intake.Progress | None = None,
    ) -> loading.LoadResult:
        """Load files, objects, a stream or Arrow rows as one commit, or not at all.

        ``append`` inserts, ``merge`` inserts or replaces whole rows, ``overwrite`` replaces the tables that occur.
        ``storage_options`` are for a source in an object store; the graph's own are used unless they are given.
        """
        request = loading.LoadRequest(
            source=source,
            mode=mode,
            branch=self._bound(branch),
            create_from=create_from,
            type=type,
            format=format,
            message=message,
            actor=actor,
            txn=txn,
            constraints=check_constraints(constraints),
            storage_options=storage_options,
            progress=progress,
        )
        with self._session.observed("load", request.branch) as seen:
            self._session.writable()
            return seen.learn(loading.load(self, self._session, self._history, request))

    def export(  # noqa: PLR0913  (the ways to name a commit, and the options)
        self,
        target: exporting.Target,
        branch: str | None = None,
        *,
        tag: str | None = None,
        commit: str | None = None,
        version: int | None = None,
        timestamp: datetime | str | None = None,
        types: Sequence[str] | None = None,
        format: str | None = None,
        overwrite: bool = False,
        progress: exporting.Progress | None = None,
    ) -> exporting.ExportResult:
        """Write the graph of one commit into a JSONL file or a folder of Parquet files that ``load`` takes back."""
        request = exporting.ExportRequest(
            target=target, types=types, format=format, overwrite=overwrite, progress=progress
        )
        with self._session.observed("export", self._bound(branch)) as seen:
            found = self.snapshot(branch, tag=tag, commit=commit, version=version, timestamp=timestamp)
            seen.branch, seen.commit = found.commit.branch, found.commit.id
            return exporting.export(found, request)

    def ensure_indices(
        self, branch: str | None = None, *, types: Sequence[str] | None = None, actor: str | None = None
    ) -> IndexReport:
        """Build what indexes lack, of ids, ends of edges and all that is key, unique or index, and publish it at once.

        Rows that are written later are not in them until this is run again; they are found all the same. An index
        that the schema no longer asks for is dropped.
        """
        with self._session.observed("ensure_indices", self._bound(branch)) as seen:
            self._session.writable()
            work = Indexing(self._session, self._history, check_actor(actor))
            return seen.learn(work.ensure(self._bound(branch), types))

    def optimize(
        self,
        branch: str | None = None,
        *,
        types: Sequence[str] | None = None,
        rows_per_fragment: int | None = None,
        cluster: bool = False,
        actor: str | None = None,
    ) -> OptimizeReport:
        """Make few large fragments of small ones and keep their indexes, as one commit; no row changes.

        With ``cluster``, edges are written anew in the order of their ``src``, unless they lie in it. Afterwards plain
        Lance readers of the folders of `main`'s tables see what `main` is.
        """
        with self._session.observed("optimize", self._bound(branch)) as seen:
            self._session.writable()
            self._recovery.heal()
            work = Optimizing(self._session, self._history, check_actor(actor))
            rows = check_fragment_rows(rows_per_fragment)
            return seen.learn(work.optimize(self._bound(branch), types, rows, is_clustered=cluster))

    def verify(self, *, deep: bool = False) -> VerifyReport:
        """Look whether every version that a commit pins is there and whole; deep, read rows of branches and tags too.

        Nothing is changed.
        """
        with self._session.observed("verify") as seen:
            report = seen.learn(Verifying(self._session, self._history).verify(deep=deep))
            seen.more |= {"commits": report.commits, "versions": report.versions, "files": report.files}
            return report

    def cleanup(
        self,
        *,
        keep: int | None = None,
        older_than: str | timedelta | None = None,
        grace: str | timedelta = GRACE_DEFAULT,
        dry_run: bool = False,
    ) -> CleanupReport:
        """Let commits expire that are not among the newest ``keep`` of a branch and older than ``older_than``.

        Then files go that nothing refers to and that are older than ``grace``; ``dry_run`` only says what would.
        Whatever a branch, a tag, a promise or a write being staged can reach stays.
        """
        with self._session.observed("cleanup") as seen:
            if not dry_run:
                self._session.writable()
            policy = Policy.of(keep, older_than)
            work = Cleaning(self._session, self._history)
            report = seen.learn(work.clean(policy, duration(grace, "grace"), dry_run=dry_run))
            seen.more |= {"expired": len(report.expired), "files": report.files, "bytes": report.bytes}
            return report

    def heal(self) -> list[Recovered]:
        """Finish or give up what dead writers promised; every write and every read-write open begins with this."""
        self._session.writable()
        return self._recovery.sweep()

    def recover(self, *, grace: timedelta = timedelta(0)) -> list[Recovered]:
        """Settle every promise now, also one whose owner was heard of within ``grace``; it is safe, if impolite."""
        self._session.writable()
        return self._recovery.sweep(grace)

    def recoveries(self) -> list[AuditRow]:
        """Return what was recovered so far, oldest first."""
        return self._session.audit.rows()

    def report(
        self,
        path: "str | PathLike[str] | None" = None,
        *,
        branch: str | None = None,
        diff: tuple[Point, Point] | None = None,
        merge: str | None = None,
        into: str | None = None,
        commits: int = COMMITS_DEFAULT,
    ) -> Report:
        """Make one HTML page about the graph, and write it to a file if one is named.

        ``diff`` are two points to compare; ``merge`` is what would be merged into ``into``, whose conflicts are shown.
        """
        request = ReportRequest(branch=self._bound(branch), commits=commits, diff=diff, merge=merge, into=into)
        made = report(self, self._session, self._history, request)
        if path is not None:
            made.save(path)
        return made

    def _bound(self, branch: str | None) -> str:
        return self.branch if branch is None else branch

    def restore(self, branch: str, to: "str | Commit", *, message: str | None = None) -> Commit:
        """Make a branch look as it did at a commit, tag or branch, as a new commit."""
        with self._session.observed("restore", branch) as seen:
            self._session.writable()
            commit = restored(self._session, self._history, branch, to, check_message(message))
            seen.landed(commit.id, commit.version)
            return commit

    def catalog(self, commit: Commit) -> Catalog:
        """Return the types a commit has."""
        return self._history.catalog(commit)

    def accepted_schema(self, commit: Commit) -> SchemaRow:
        """Return the schema a commit was made under."""
        return self._history.accepted_schema(commit)
