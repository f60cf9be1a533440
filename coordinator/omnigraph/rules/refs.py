"""What happens to the manifest's state when a branch, tag or commit is made or removed."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from omnigraph.errors import (
    AbandonedError,
    AlreadyAppliedError,
    BranchConflictError,
    BranchExistsError,
    BranchNotFoundError,
    ProtectedBranchError,
    TagExistsError,
    TagNotFoundError,
    VersionConflictError,
)
from omnigraph.ids import CommitId, Incarnation, TableId
from omnigraph.model.lineage import FIRST_VERSION, MAIN, Branch, Commit, CommitRow, ForkPoint, Tag, Txn
from omnigraph.model.manifest import ManifestState, SchemaRow, TableRow
from omnigraph.model.tables import Pin
from omnigraph.rules.names import check_ref_name, nearest


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """Who does something, and when; ``took_ms`` is how long it took so far, if that is known."""

    actor: str | None
    at: datetime
    took_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A commit before it has a place in history, with what it depends on.

    ``expected`` are the pins the work was planned on, ``None`` for a table that did not exist; only
    tables named there are checked. ``pins`` replace the branch's pins of the same tables.
    """

    id: CommitId
    branch: str
    incarnation: Incarnation
    operation: str
    schema_hash: str
    pins: Mapping[TableId, Pin]
    expected: Mapping[TableId, Pin | None] = field(default_factory=dict)
    table_keys: Mapping[TableId, str] = field(default_factory=dict)
    base_schema: str | None = None
    replace_all_pins: bool = False
    message: str | None = None
    user_metadata: str | None = None
    metrics: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    txn: tuple[str, int] | None = None
    extra_parents: tuple[CommitId, ...] = ()
    copied_from: tuple[CommitId, ...] = ()
    """Commits whose pins are taken over; like extra parents, they must not have expired when this is published."""
    after: datetime | None = None
    """When the newest of the extra parents was made: a child is younger than all its parents."""
    dropped: frozenset[TableId] = frozenset()
    arriving: tuple[SchemaRow | TableRow, ...] = ()
    """The schema and the tables that begin with this commit."""


def branch_named(state: ManifestState, name: str) -> Branch:
    """Return a branch, or say which name comes closest."""
    if name in state.branches:
        return state.branches[name]
    hint = nearest(name, state.branches)
    raise BranchNotFoundError(f"there is no branch {name[:200]!r}{hint}", branch=name[:200])


def tag_named(state: ManifestState, name: str) -> Tag:
    """Return a tag, or say which name comes closest."""
    if name in state.tags:
        return state.tags[name]
    raise TagNotFoundError(f"there is no tag {name[:200]!r}{nearest(name, state.tags)}", tag=name[:200])


def ordered_branches(state: ManifestState) -> tuple[Branch, ...]:
    """Return the branches, ``main`` first and the rest by name."""
    return tuple(sorted(state.branches.values(), key=lambda branch: (branch.name != MAIN, branch.name)))


def create_branch(
    state: ManifestState, name: str, incarnation: Incarnation, point: ForkPoint, parent: str | None, stamp: Stamp
) -> ManifestState:
    """Add a branch at a commit."""
    check_ref_name(name)
    taken = _taken(state, name)
    if taken:
        raise BranchExistsError(f"branch {name!r} can not be created: {taken}", branch=name)
    branch = Branch(
        name=name,
        incarnation=incarnation,
        head=point.commit,
        version=point.version,
        created_at=stamp.at,
        created_by=stamp.actor,
        parent=parent,
        lineage=point.lineage,
    )
    return replace(state, branches={**state.branches, name: branch})


def delete_branch(state: ManifestState, name: str) -> ManifestState:
    """Remove a branch; its commits stay findable until cleanup."""
    if name == MAIN:
        raise ProtectedBranchError("branch 'main' can not be deleted", branch=name)
    branch_named(state, name)
    return replace(state, branches={k: v for k, v in state.branches.items() if k != name})


def rename_branch(state: ManifestState, old: str, new: str) -> ManifestState:
    """Give a branch another name; its incarnation and history stay."""
    if old == MAIN:
        raise ProtectedBranchError("branch 'main' can not be renamed", branch=old)
    branch = branch_named(state, old)
    check_ref_name(new)
    others = replace(state, branches={k: v for k, v in state.branches.items() if k != old})
    taken = _taken(others, new)
    if taken:
        raise BranchExistsError(f"branch {old!r} can not be renamed to {new!r}: {taken}", branch=new)
    return replace(others, branches={**others.branches, new: replace(branch, name=new)})


def create_tag(state: ManifestState, name: str, commit: CommitId, stamp: Stamp) -> ManifestState:
    """Name a commit for good."""
    check_ref_name(name, "tag")
    taken = _taken(state, name)
    if taken:
        raise TagExistsError(f"tag {name!r} can not be created: {taken}", tag=name)
    tag = Tag(name=name, commit=commit, created_at=stamp.at, created_by=stamp.actor)
    return replace(state, tags={**state.tags, name: tag})


def delete_tag(state: ManifestState, name: str) -> ManifestState:
    """Remove a tag."""
    tag_named(state, name)
    return replace(state, tags={k: v for k, v in state.tags.items() if k != name})


def genesis(commit: Commit) -> ManifestState:
    """Return the first state of a graph: branch ``main`` at its first commit."""
    main = Branch(
        name=MAIN,
        incarnation=commit.incarnation,
        head=commit.id,
        version=FIRST_VERSION,
        created_at=commit.created_at,
        created_by=commit.actor,
        parent=None,
        lineage=(),
    )
    return ManifestState(branches={MAIN: main}, tags={}, txns={}, tail=(CommitRow.of(commit),), spans=())


def append_commit(state: ManifestState, draft: Draft, head: Commit, stamp: Stamp) -> tuple[ManifestState, Commit]:
    """Put a drafted commit on its branch, provided all it depends on still holds."""
    if draft.id in state.abandoned:
        raise AbandonedError(f"commit {draft.id} was given up: nothing of it was applied", commit=draft.id)
    _refuse_rerun(state, draft)
    branch = branch_held(state, draft.branch, draft.incarnation)
    _check_requirements(draft, head)
    kept = {} if draft.replace_all_pins else {k: v for k, v in head.pins.items() if k not in draft.dropped}
    commit = Commit(
        id=draft.id,
        branch=branch.name,
        incarnation=branch.incarnation,
        version=branch.version + 1,
        parents=(head.id, *draft.extra_parents),
        actor=stamp.actor,
        operation=draft.operation,
        message=draft.message,
        # Clocks of different drivers disagree; from parent to child time only goes forward.
        created_at=max(stamp.at, max(head.created_at, draft.after or head.created_at) + timedelta(microseconds=1)),
        schema_hash=draft.schema_hash,
        lineage=branch.lineage,
        pins={**kept, **draft.pins},
        metrics=draft.metrics,
        user_metadata=draft.user_metadata,
        took_ms=stamp.took_ms,
        txn=draft.txn,
    )
    moved = replace(branch, head=commit.id, version=commit.version)
    txns = dict(state.txns)
    if draft.txn is not None:
        app, version = draft.txn
        txns[app] = Txn(app_id=app, version=version, commit=commit.id)
    branches = {**state.branches, branch.name: moved}
    tail, arriving = (*state.tail, CommitRow.of(commit)), (*state.arriving, *draft.arriving)
    return replace(state, branches=branches, txns=txns, tail=tail, arriving=arriving), commit


def abandon(state: ManifestState, commit: CommitId, at: datetime) -> ManifestState:
    """Decide that a promised commit will never be."""
    return replace(state, abandoned={**state.abandoned, commit: at})


def settled(state: ManifestState, gone: Iterable[CommitId]) -> ManifestState:
    """Drop the record of given-up commits that nobody can try any more."""
    dropped = set(gone)
    return replace(state, abandoned={k: v for k, v in state.abandoned.items() if k not in dropped})


def _refuse_rerun(state: ManifestState, draft: Draft) -> None:
    if draft.txn is not None:
        app, version = draft.txn
        last = state.txns.get(app)
        if last is not None and last.version >= version:
            raise AlreadyAppliedError(
                f"version {version} of {app!r} was applied already, by commit {last.commit}", commit=last.commit
            )


def branch_held(state: ManifestState, name: str, incarnation: Incarnation) -> Branch:
    """Return the branch some work was begun on, whatever it is called now; gone or recreated is a conflict."""
    for branch in state.branches.values():
        if branch.incarnation == incarnation:
            return branch
    what = "was deleted and created again" if name in state.branches else "was deleted"
    raise BranchConflictError(f"branch {name!r} {what} while this was being written; nothing was applied", branch=name)


def refuse_other_schema(branch: str, expected: str, head: Commit) -> None:
    """Refuse work that was planned under another schema than its branch has now."""
    if head.schema_hash != expected:
        raise BranchConflictError(
            f"the schema of {branch!r} changed while this was being written; refresh and retry",
            branch=branch,
            expected=expected,
            actual=head.schema_hash,
        )


def _check_requirements(draft: Draft, head: Commit) -> None:
    if draft.base_schema is not None:
        refuse_other_schema(draft.branch, draft.base_schema, head)
    for table, expected in draft.expected.items():
        actual = head.pins.get(table)
        if actual != expected:
            key = draft.table_keys.get(table, table)
            seen, found = (pin.version if pin else 0 for pin in (expected, actual))
            raise VersionConflictError(
                f"{key} is at version {found}, but this was planned on {seen}; refresh and retry",
                table_key=key,
                expected=seen,
                actual=found,
            )


def _taken(state: ManifestState, name: str) -> str | None:
    """Say what already answers to a name; letters that differ only in case count as the same."""
    for kind, names in (("branch", state.branches), ("tag", state.tags)):
        for known in names:
            if known == name:
                return f"a {kind} of this name exists"
            if known.casefold() == name.casefold():
                return f"{kind} {known!r} differs only in upper and lower case"
    return None
