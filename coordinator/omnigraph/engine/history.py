"""From what a caller names to the commit that is meant, and from a branch to its log."""

from collections.abc import Iterator
from itertools import islice
from typing import assert_never

from omnigraph.engine.changes import commit_of
from omnigraph.engine.publisher import Publisher
from omnigraph.errors import CommitNotFoundError, InvalidOptionError, NotFoundError
from omnigraph.ids import CommitId, is_ulid
from omnigraph.model.lineage import Branch, Commit, CommitRow
from omnigraph.model.targets import AsOf, AtBranch, AtCommit, AtTag, AtVersion, ReadTarget
from omnigraph.rules.names import nearest
from omnigraph.rules.refs import branch_named, tag_named
from omnigraph.storage.manifest import Manifest, Reading

LOG_COMMITS_MAX = 1_000_000


class History:
    """Looks commits up: by name, id, version or time, always in the newest manifest."""

    def __init__(self, manifest: Manifest, publisher: Publisher) -> None:
        self._manifest = manifest
        self._publisher = publisher

    def resolve(self, target: ReadTarget, reading: Reading | None = None) -> Commit:
        """Return the commit a read target means now."""
        reading = reading or self._publisher.read()
        state = reading.state
        match target:
            case AtBranch(branch=name):
                return commit_of(self._manifest, reading, branch_named(state, name).head)
            case AtTag(tag=name):
                return commit_of(self._manifest, reading, tag_named(state, name).commit)
            case AtCommit(commit=commit):
                return self._by_id(reading, commit)
            case AtVersion(branch=name, version=version):
                return self._by_version(reading, branch_named(state, name), version)
            case AsOf(branch=name):
                return self._as_of(reading, branch_named(state, name), target)
            case _:
                assert_never(target)

    def named(self, name: str, reading: Reading | None = None) -> Commit:
        """Return the commit that a branch name, tag name or commit id stands for."""
        reading = reading or self._publisher.read()
        if name in reading.state.branches:
            return self.resolve(AtBranch(branch=name), reading)
        if name in reading.state.tags:
            return self.resolve(AtTag(tag=name), reading)
        if is_ulid(name.upper()):
            return self.resolve(AtCommit(commit=CommitId(name.upper())), reading)
        hint = nearest(name, [*reading.state.branches, *reading.state.tags])
        raise NotFoundError(f"no branch, tag or commit is called {name[:200]!r}{hint}", name=name[:200])

    def log(self, branch: str, actor: str | None, limit: int | None) -> Iterator[Commit]:
        """Yield a branch's commits, newest first."""
        if limit is not None and not 0 <= limit <= LOG_COMMITS_MAX:
            raise InvalidOptionError(f"limit is {limit}; choose 0 to {LOG_COMMITS_MAX}, or none at all")
        reading = self._publisher.read()
        segments = branch_named(reading.state, branch).segments
        rows = self._manifest.history(reading, segments, actor)
        return (row.commit for row in islice(rows, limit))

    def _by_id(self, reading: Reading, commit: CommitId) -> Commit:
        row = self._manifest.commit(reading, commit)
        if row is None:
            raise CommitNotFoundError(f"there is no commit {commit}", commit=commit)
        return row.commit

    def _by_version(self, reading: Reading, branch: Branch, version: int) -> Commit:
        row: CommitRow | None = None
        # The oldest stretch of history that reaches this far is the one that made the version.
        for segment in reversed(branch.segments):
            if version <= segment.upto:
                row = self._manifest.commit_at(reading, segment.incarnation, version)
                break
        if row is None:
            raise CommitNotFoundError(
                f"branch {branch.name!r} has no version {version}; it has 1 to {branch.version}",
                branch=branch.name,
                version=version,
            )
        return row.commit

    def _as_of(self, reading: Reading, branch: Branch, target: AsOf) -> Commit:
        for segment in branch.segments:
            row = self._manifest.commit_as_of(reading, segment, target.moment)
            if row is not None:
                return row.commit
        raise CommitNotFoundError(
            f"branch {branch.name!r} did not exist yet at {target.moment.isoformat()}", branch=branch.name
        )
