"""The things that can be published."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from omnigraph.errors import AbandonedError, BranchConflictError, CorruptGraphError, OmnigraphError
from omnigraph.ids import CommitId, Incarnation
from omnigraph.model.lineage import Branch, Commit, ForkPoint, Tag
from omnigraph.model.manifest import ManifestState
from omnigraph.rules import refs
from omnigraph.rules.refs import Draft, Stamp
from omnigraph.storage.manifest import Manifest, Reading


def commit_of(manifest: Manifest, reading: Reading, commit: CommitId) -> Commit:
    """Return a commit a name points at; its absence means the manifest contradicts itself."""
    row = manifest.commit(reading, commit)
    if row is None:
        raise CorruptGraphError(f"a branch or tag points at commit {commit}, which is not there", commit=commit)
    return row.commit


def unexpired(manifest: Manifest, commit: CommitId) -> Callable[[Reading], None]:
    """Return a check that a commit still has what it held."""
    return lambda reading: commit_of(manifest, reading, commit).refuse_expired()


@dataclass(frozen=True, slots=True, kw_only=True)
class AddCommit:
    """Put one commit on a branch."""

    manifest: Manifest
    draft: Draft
    stamp: Stamp
    promised: Callable[[], bool] = lambda: True
    """Whether the promise still stands, asked after the state was read: a helper must not finish what was settled."""
    traceable: bool = True

    @property
    def subject(self) -> str:
        """Name the commit."""
        return f"commit {self.draft.id}"

    def landed(self, reading: Reading) -> Commit | None:
        """Find the commit by its id."""
        row = self.manifest.commit(reading, self.draft.id)
        return None if row is None else row.commit

    def propose(self, reading: Reading) -> tuple[ManifestState, Commit]:
        """Append the commit if all it depends on still holds."""
        for source in (*self.draft.extra_parents, *self.draft.copied_from):
            # What a cleanup has taken from its commit may be gone by the time this is visible.
            commit_of(self.manifest, reading, source).refuse_expired()
        branch = refs.branch_held(reading.state, self.draft.branch, self.draft.incarnation)
        return self.propose_on(reading.state, commit_of(self.manifest, reading, branch.head))

    def propose_on(self, state: ManifestState, head: Commit) -> tuple[ManifestState, Commit]:
        """Append the commit to a state whose head of the branch is at hand."""
        if not self.promised():
            raise AbandonedError(f"commit {self.draft.id} was settled by someone else meanwhile", commit=self.draft.id)
        return refs.append_commit(state, self.draft, head, self.stamp)


@dataclass(frozen=True, slots=True, kw_only=True)
class AddTogether:
    """Put a commit on a branch, and those of others on top of it as far as they fit; they are nobody's condition."""

    first: AddCommit
    others: tuple[AddCommit, ...] = ()
    traceable: bool = True

    @property
    def subject(self) -> str:
        """Name the commit this is about."""
        return self.first.subject

    def landed(self, reading: Reading) -> "Together | None":
        """Find the commit this is about."""
        commit = self.first.landed(reading)
        return None if commit is None else Together(commit=commit)

    def propose(self, reading: Reading) -> "tuple[ManifestState, Together]":
        """Append them one after the other."""
        state, commit = self.first.propose(reading)
        head, others = commit, []
        for other in self.others:
            try:
                if other.landed(reading) is None:
                    state, head = other.propose_on(state, head)
                    others.append(head)
            except OmnigraphError:
                continue  # its owner will find out why
        return state, Together(commit=commit, others=tuple(others))


@dataclass(frozen=True, slots=True, kw_only=True)
class Together:
    """The answer of :class:`AddTogether`: the commit it is about, and those of others that are surely visible too."""

    commit: Commit
    others: tuple[Commit, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Abandoned:
    """The answer of :class:`Abandon`: the commit, if it was there after all."""

    commit: Commit | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Abandon:
    """Decide, in the manifest, that a promised commit will never be: either it is there, or it never will be."""

    manifest: Manifest
    commit: CommitId
    at: datetime
    traceable: bool = True

    @property
    def subject(self) -> str:
        """Name the commit."""
        return f"the giving up of commit {self.commit}"

    def landed(self, reading: Reading) -> Abandoned | None:
        """Tell whether the matter is decided, one way or the other."""
        row = self.manifest.commit(reading, self.commit)
        if row is not None:
            return Abandoned(commit=row.commit)
        return Abandoned(commit=None) if self.commit in reading.state.abandoned else None

    def propose(self, reading: Reading) -> tuple[ManifestState, Abandoned]:
        """Record the decision, unless the commit is there."""
        row = self.manifest.commit(reading, self.commit)
        if row is not None:
            return reading.state, Abandoned(commit=row.commit)
        return refs.abandon(reading.state, self.commit, self.at), Abandoned(commit=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settle:
    """Drop the record of given-up commits whose promises are gone: nobody can try them any more."""

    commits: frozenset[CommitId]
    traceable: bool = True

    @property
    def subject(self) -> str:
        """Say what is dropped."""
        return f"the record of {len(self.commits)} given-up commits"

    def landed(self, reading: Reading) -> int | None:
        """Tell whether none of them is recorded."""
        return None if self.commits & set(reading.state.abandoned) else len(self.commits)

    def propose(self, reading: Reading) -> tuple[ManifestState, int]:
        """Drop the rows."""
        return refs.settled(reading.state, self.commits), len(self.commits)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateBranch:
    """Add a branch."""

    name: str
    incarnation: Incarnation
    point: ForkPoint
    parent: str | None
    stamp: Stamp
    check: Callable[[Reading], None] = lambda reading: None
    """Raises if the commit it begins at can not be built upon in a state."""
    traceable: bool = True

    @property
    def subject(self) -> str:
        """Name the branch."""
        return f"branch {self.name}"

    def landed(self, reading: Reading) -> Branch | None:
        """Find the branch by its incarnation."""
        return next((b for b in reading.state.branches.values() if b.incarnation == self.incarnation), None)

    def propose(self, reading: Reading) -> tuple[ManifestState, Branch]:
        """Add the row."""
        self.check(reading)
        state = refs.create_branch(reading.state, self.name, self.incarnation, self.point, self.parent, self.stamp)
        return state, state.branches[self.name]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteBranch:
    """Remove the branch that was seen, not one created since under its name; if told so, only as it was then."""

    branch: Branch
    at: CommitId | None = None
    traceable: bool = False

    @property
    def subject(self) -> str:
        """Name the branch."""
        return f"the deletion of branch {self.branch.name}"

    def landed(self, reading: Reading) -> Branch | None:
        """Tell whether the incarnation is gone."""
        gone = all(b.incarnation != self.branch.incarnation for b in reading.state.branches.values())
        return self.branch if gone else None

    def propose(self, reading: Reading) -> tuple[ManifestState, Branch]:
        """Remove the row."""
        same_branch(reading.state, self.branch)
        if self.at is not None and reading.state.branches[self.branch.name].head != self.at:
            raise BranchConflictError(
                f"branch {self.branch.name!r} was written to meanwhile, so it was not deleted", branch=self.branch.name
            )
        return refs.delete_branch(reading.state, self.branch.name), self.branch


@dataclass(frozen=True, slots=True, kw_only=True)
class RenameBranch:
    """Give the branch that was seen another name."""

    branch: Branch
    new: str
    traceable: bool = False

    @property
    def subject(self) -> str:
        """Name both names."""
        return f"the renaming of branch {self.branch.name} to {self.new}"

    def landed(self, reading: Reading) -> Branch | None:
        """Tell whether the incarnation goes by the new name."""
        found = reading.state.branches.get(self.new)
        return found if found and found.incarnation == self.branch.incarnation else None

    def propose(self, reading: Reading) -> tuple[ManifestState, Branch]:
        """Move the row to the new name."""
        same_branch(reading.state, self.branch)
        state = refs.rename_branch(reading.state, self.branch.name, self.new)
        return state, state.branches[self.new]


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTag:
    """Add a tag."""

    name: str
    commit: CommitId
    stamp: Stamp
    check: Callable[[Reading], None] = lambda reading: None
    """Raises if the commit can not be named in a state."""
    traceable: bool = False

    @property
    def subject(self) -> str:
        """Name the tag."""
        return f"tag {self.name}"

    def landed(self, reading: Reading) -> Tag | None:
        """Find the tag with our commit and our time; another may have both, so this is asked only in doubt."""
        found = reading.state.tags.get(self.name)
        ours = found is not None and (found.commit, found.created_at) == (self.commit, self.stamp.at)
        return found if ours else None

    def propose(self, reading: Reading) -> tuple[ManifestState, Tag]:
        """Add the row."""
        self.check(reading)
        state = refs.create_tag(reading.state, self.name, self.commit, self.stamp)
        return state, state.tags[self.name]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTag:
    """Remove a tag."""

    tag: Tag
    traceable: bool = False

    @property
    def subject(self) -> str:
        """Name the tag."""
        return f"the deletion of tag {self.tag.name}"

    def landed(self, reading: Reading) -> Tag | None:
        """Tell whether the tag is gone."""
        return None if self.tag.name in reading.state.tags else self.tag

    def propose(self, reading: Reading) -> tuple[ManifestState, Tag]:
        """Remove the row."""
        return refs.delete_tag(reading.state, self.tag.name), self.tag


def same_branch(state: ManifestState, seen: Branch) -> None:
    """Refuse to act on a branch that took the name of the one that was seen."""
    now = refs.branch_named(state, seen.name)
    if now.incarnation != seen.incarnation:
        raise BranchConflictError(
            f"branch {seen.name!r} was deleted and created again meanwhile; refresh and retry", branch=seen.name
        )
