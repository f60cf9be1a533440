"""Branches and tags, as a person handles them."""

from omnigraph.engine.changes import CreateBranch, CreateTag, DeleteBranch, DeleteTag, RenameBranch
from omnigraph.engine.history import History
from omnigraph.engine.session import Session
from omnigraph.errors import BranchExistsError
from omnigraph.ids import Incarnation
from omnigraph.model.lineage import MAIN, Branch, ForkPoint, Tag
from omnigraph.rules import refs
from omnigraph.rules.names import check_ref_name


class Branches:
    """The branches of a graph."""

    def __init__(self, session: Session, history: History) -> None:
        self._session = session
        self._history = history

    def list(self) -> tuple[Branch, ...]:
        """Return all branches, ``main`` first."""
        return refs.ordered_branches(self._session.publisher.read().state)

    def get(self, name: str) -> Branch:
        """Return one branch."""
        return refs.branch_named(self._session.publisher.read().state, name)

    def create(self, name: str, from_: str = MAIN) -> Branch:
        """Create a branch from a branch, tag or commit; one row, however many tables there are."""
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
        )
        return self._session.publisher.publish(change)

    def delete(self, name: str, *, dry_run: bool = False) -> Branch:
        """Delete a branch; its name is free at once, its data goes with the next cleanup."""
        if not dry_run:
            self._session.writable()
        state = self._session.publisher.read().state
        refs.delete_branch(state, name)
        doomed = state.branches[name]
        return doomed if dry_run else self._session.publisher.publish(DeleteBranch(branch=doomed))

    def rename(self, old: str, new: str) -> Branch:
        """Give a branch another name; its history stays."""
        self._session.writable()
        state = self._session.publisher.read().state
        refs.rename_branch(state, old, new)
        return self._session.publisher.publish(RenameBranch(branch=state.branches[old], new=new))

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
        self._session.writable()
        check_ref_name(name, "tag")
        commit = self._history.named(at)
        return self._session.publisher.publish(CreateTag(name=name, commit=commit.id, stamp=self._session.stamp()))

    def delete(self, name: str) -> Tag:
        """Delete a tag; what it alone held goes with the next cleanup."""
        self._session.writable()
        tag = self.get(name)
        return self._session.publisher.publish(DeleteTag(tag=tag))
