"""Branches and tags, as a person handles them."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

import pyarrow as pa

from omnigraph.engine.changes import CreateBranch, CreateTag, DeleteBranch, DeleteTag, RenameBranch, unexpired
from omnigraph.engine.conflict_rows import CONFLICT_SCHEMA
from omnigraph.engine.history import History
from omnigraph.engine.merging import Merger, MergeRequest
from omnigraph.engine.recovery import Recovery
from omnigraph.engine.session import Session
from omnigraph.errors import BranchExistsError, InvalidOptionError, OmnigraphError
from omnigraph.ids import Incarnation
from omnigraph.model.lineage import MAIN, Branch, ForkPoint, Tag
from omnigraph.model.merges import MergeResult
from omnigraph.observing import logger
from omnigraph.rules import refs
from omnigraph.rules.names import check_ref_name
from omnigraph.rules.who import check_actor, check_message
from omnigraph.storage.relations import Relation

log = logger(__name__)


class Branches:
    """The branches of a graph."""

    def __init__(self, session: Session, history: History, recovery: Recovery) -> None:
        self._session = session
        self._history = history
        self._recovery = recovery

    def list(self) -> tuple[Branch, ...]:
        """Return all branches, ``main`` first."""
        return refs.ordered_branches(self._session.publisher.read().state)

    def get(self, name: str) -> Branch:
        """Return one branch."""
        return refs.branch_named(self._session.publisher.read().state, name)

    def create(self, name: str, from_: str = MAIN) -> Branch:
        """Create a branch from a branch, tag or commit; one row, however many tables there are."""
        with self._session.observed("create_branch", name):
            return self._created(name, from_)

    def _created(self, name: str, from_: str) -> Branch:
        self._session.writable()
        check_ref_name(name)
        if name == MAIN:
            raise BranchExistsError("branch 'main' is there from the beginning", branch=name)
        point, parent = self._start(from_)
        change = CreateBranch(
            name=name,
            incarnation=Incarnation(self._session.sources.mint()),
            point=point,
            parent=parent,
            stamp=self._session.stamp(),
            check=unexpired(self._session.manifest, point.commit),
        )
        return self._session.publisher.publish(change)

    def delete(self, name: str, *, dry_run: bool = False) -> Branch:
        """Delete a branch; its name is free at once, its data goes with the next cleanup."""
        if dry_run:
            return self._doomed(name)
        with self._session.observed("delete_branch", name):
            self._session.writable()
            return self._session.publisher.publish(DeleteBranch(branch=self._doomed(name)))

    def _doomed(self, name: str) -> Branch:
        """Return a branch that may be deleted."""
        state = self._session.publisher.read().state
        refs.delete_branch(state, name)
        return state.branches[name]

    def rename(self, old: str, new: str) -> Branch:
        """Give a branch another name; its history stays."""
        with self._session.observed("rename_branch", old, new_name=new):
            self._session.writable()
            state = self._session.publisher.read().state
            refs.rename_branch(state, old, new)
            return self._session.publisher.publish(RenameBranch(branch=state.branches[old], new=new))

    def merge(  # noqa: PLR0913  (what a merge can be told is what its options are)
        self,
        source: str,
        into: str = MAIN,
        *,
        policy: str | Mapping[str, str] = "fail",
        dry_run: bool = False,
        delete_source: bool = False,
        message: str | None = None,
        actor: str | None = None,
    ) -> MergeResult:
        """Merge a branch, tag or commit into a branch as one commit with two parents, or raise all conflicts.

        ``policy`` is what to do with rows that both sides changed: ``fail``, ``ours``, ``theirs`` or ``cell`` (columns
        that only one side changed), for all types or by type. ``dry_run`` only says what would happen.
        """
        request = MergeRequest(
            source=source,
            target=into,
            policy=policy,
            dry_run=dry_run,
            message=check_message(message),
            actor=check_actor(actor),
        )
        with self._session.observed("merge", into, source=source) as seen:
            return seen.learn(self._merged(request, delete_source=delete_source))

    def _merged(self, request: MergeRequest, *, delete_source: bool) -> MergeResult:
        source, into, dry_run = request.source, request.target, request.dry_run
        if not dry_run:
            self._session.writable()
        if source == into:
            raise InvalidOptionError(f"branch {into!r} can not be merged into itself; name another one")
        doomed = self.delete(source, dry_run=True) if delete_source else None
        if not dry_run:
            self._recovery.heal()
        result = Merger(self._session, self._history).merge(request)
        return result if doomed is None or dry_run else replace(result, source_deleted=self._drop(doomed, result))

    def conflicts(
        self, source: str, into: str = MAIN, *, policy: str | Mapping[str, str] = "fail"
    ) -> pa.RecordBatchReader:
        """Stream what a merge would meet: ``table_key``, ``row_id``, ``kind``, ``message``, and each side as JSON."""
        request = MergeRequest(source=source, target=into, policy=policy, dry_run=True)
        rows = Merger(self._session, self._history).conflict_rows(request)
        return pa.RecordBatchReader.from_batches(CONFLICT_SCHEMA, rows)

    def conflict_relations(
        self, source: str, into: str = MAIN, *, policy: str | Mapping[str, str] = "fail"
    ) -> AbstractContextManager[Sequence[Relation]]:
        """Give the same as relations for an engine with machines of its own, which keeps them until the block ends."""
        request = MergeRequest(source=source, target=into, policy=policy, dry_run=True)
        return Merger(self._session, self._history).conflict_relations(request)

    def _drop(self, doomed: Branch, merged: MergeResult) -> bool:
        """Delete a branch that was merged, unless it has gone on since; the merge is done either way."""
        try:
            self._session.publisher.publish(DeleteBranch(branch=doomed, at=merged.source_commit))
        except OmnigraphError:
            log.warning("a merged branch was not deleted", extra={"branch": doomed.name}, exc_info=True)
            return False
        return True

    def _start(self, name: str) -> tuple[ForkPoint, str | None]:
        state = self._session.publisher.read().state
        if name in state.branches:
            return state.branches[name].fork_point, name
        commit = self._history.named(name)
        return commit.fork_point, commit.branch


class Tags:
    """The tags of a graph."""

    def __init__(self, session: Session, history: History) -> None:
        self._session = session
        self._history = history

    def list(self) -> tuple[Tag, ...]:
        """Return all tags by name."""
        state = self._session.publisher.read().state
        return tuple(state.tags[name] for name in sorted(state.tags))

    def get(self, name: str) -> Tag:
        """Return one tag."""
        return refs.tag_named(self._session.publisher.read().state, name)

    def create(self, name: str, at: str = MAIN) -> Tag:
        """Name the commit that a branch, tag or commit id stands for now."""
        with self._session.observed("create_tag", tag=name) as seen:
            self._session.writable()
            check_ref_name(name, "tag")
            commit = self._history.named(at)
            seen.commit = commit.id
            check = unexpired(self._session.manifest, commit.id)
            change = CreateTag(name=name, commit=commit.id, stamp=self._session.stamp(), check=check)
            return self._session.publisher.publish(change)

    def delete(self, name: str) -> Tag:
        """Delete a tag; what it alone held goes with the next cleanup."""
        with self._session.observed("delete_tag", tag=name) as seen:
            self._session.writable()
            tag = self.get(name)
            seen.commit = tag.commit
            return self._session.publisher.publish(DeleteTag(tag=tag))
