"""From what a caller names to the commit that is meant, and from a branch to its log."""

import json
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import islice
from typing import TypeVar, assert_never

from omnigraph.engine.changes import commit_of
from omnigraph.engine.publisher import Publisher
from omnigraph.errors import (
    BranchConflictError,
    CommitNotFoundError,
    CorruptGraphError,
    InvalidOptionError,
    RefNotFoundError,
    StorageError,
)
from omnigraph.ids import CommitId, Incarnation, is_ulid
from omnigraph.model.catalog import Catalog
from omnigraph.model.lineage import Branch, Commit, CommitRow, Segment
from omnigraph.model.manifest import ManifestState, SchemaRow
from omnigraph.model.targets import AsOf, AtBranch, AtCommit, AtTag, AtVersion, ReadTarget
from omnigraph.rules.names import nearest
from omnigraph.rules.refs import branch_held, branch_named, tag_named
from omnigraph.storage.manifest import Manifest, Reading

LOG_COMMITS_MAX = 1_000_000
LOOKS_MAX = 5
VERSION_DIGITS_MAX = 18

T = TypeVar("T")


class History:
    """Looks commits up: by name, id, version or time, always in the newest manifest."""

    def __init__(self, manifest: Manifest, publisher: Publisher) -> None:
        self._manifest = manifest
        self._publisher = publisher
        self._schemas: dict[str, SchemaRow] = {}

    def resolve(self, target: ReadTarget) -> Commit:
        """Return the commit a read target means now."""
        return self.looking(lambda reading: self._resolve(target, reading))

    def named(self, name: str) -> Commit:
        """Return the commit that a branch, a tag, a commit id or ``main@12`` stands for now."""
        return self.looking(lambda reading: self._resolve(_target_named(name, reading.state), reading))

    def landed(self, commit: CommitId) -> Commit | None:
        """Return a commit if it is there."""
        row = self.looking(lambda reading: self._manifest.commit(reading, commit))
        return None if row is None else row.commit

    def catalog(self, commit: Commit) -> Catalog:
        """Return the types a commit has; a schema is compiled once per process."""
        return _compiled(self.accepted_schema(commit).catalog)

    def accepted_schema(self, commit: Commit) -> SchemaRow:
        """Return the schema a commit was made under."""
        found = self._schemas.get(commit.schema_hash)
        if found is None:
            found = self.looking(
                lambda reading: self._manifest.schema(reading, commit.schema_hash), first=self._publisher.known
            )
            if found is None:  # what is at hand may be older than the commit
                found = self.looking(lambda reading: self._manifest.schema(reading, commit.schema_hash))
            if found is None:
                raise CorruptGraphError(f"commit {commit.id} names schema {commit.schema_hash}, which is not stored")
            self._schemas[commit.schema_hash] = found
        return found

    def head(self, branch: str, incarnation: Incarnation | None = None) -> tuple[Branch, Commit]:
        """Return a branch and its newest commit, seen at one moment; an incarnation is found under any name."""

        def look(reading: Reading) -> tuple[Branch, Commit]:
            state = reading.state
            found = branch_named(state, branch) if incarnation is None else branch_held(state, branch, incarnation)
            return found, commit_of(self._manifest, reading, found.head)

        return self.looking(look)

    def on_branch(self, commit: CommitId, branch: Branch) -> Commit:
        """Return a commit of a branch's own history; one that is not on it is a conflict."""
        found = self.resolve(AtCommit(commit=commit))
        if not any(found.incarnation == part.incarnation and found.version <= part.upto for part in branch.segments):
            raise BranchConflictError(
                f"commit {commit} is not on branch {branch.name!r}, so nothing that began there can be published on it",
                branch=branch.name,
            )
        return found

    def looking(self, look: Callable[[Reading], T], first: Reading | None = None) -> T:
        """Look at the newest state; if a file of it was replaced and removed meanwhile, look at the newer one.

        What never changes may be looked for in the state at hand ``first``.
        """
        reading = first or self._publisher.read()
        for _ in range(LOOKS_MAX):
            try:
                return look(reading)
            except StorageError:
                newer = self._publisher.read()
                if newer is reading:
                    raise
                reading = newer
        return look(reading)

    def log(self, branch: str, actor: str | None, limit: int | None) -> Iterator[Commit]:
        """Yield a branch's commits, newest first."""
        if limit is not None and not 0 <= limit <= LOG_COMMITS_MAX:
            raise InvalidOptionError(f"limit is {limit}; choose 0 to {LOG_COMMITS_MAX}, or none at all")
        segments = branch_named(self._publisher.read().state, branch).segments
        return (row.commit for row in islice(self._rows(segments, actor), limit))

    def _rows(self, segments: Sequence[Segment], actor: str | None) -> Iterator[CommitRow]:
        """Yield rows newest first; where a file has gone, go on from the same place in the newer manifest."""
        seen: int | None = None
        while True:
            reading = self._publisher.read()
            try:
                for row in self._manifest.history(reading, segments, actor):
                    if seen is None or row.version < seen:
                        yield row
                        seen = row.version
                return
            except StorageError:
                if self._publisher.read() is reading:
                    raise

    def _resolve(self, target: ReadTarget, reading: Reading) -> Commit:
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


def _target_named(name: str, state: ManifestState) -> ReadTarget:
    """Return what a name stands for; branches and tags never share one."""
    if name in state.branches:
        return AtBranch(branch=name)
    if name in state.tags:
        return AtTag(tag=name)
    if is_ulid(name.upper()):
        return AtCommit(commit=CommitId(name.upper()))
    branch, _, version = name.rpartition("@")  # which no name has in it
    if branch in state.branches and version.isascii() and version.isdecimal() and len(version) <= VERSION_DIGITS_MAX:
        return AtVersion(branch=branch, version=int(version))
    hint = nearest(name, [*state.branches, *state.tags])
    raise RefNotFoundError(f"no branch, tag or commit is called {name[:200]!r}{hint}", name=name[:200])


@lru_cache(maxsize=256)
def _compiled(catalog: str) -> Catalog:
    return Catalog.from_json(json.loads(catalog))
