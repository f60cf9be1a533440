"""What must hold after a crash and a recovery, whoever crashed and whoever recovered."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import omnigraph as og
from omnigraph.engine.recovery import RECOVERY_ACTOR
from omnigraph.errors import OmnigraphError
from omnigraph.model.lineage import Commit
from omnigraph.model.sidecar import Sidecar
from omnigraph.storage.audit import AuditRow
from omnigraph.testing.commits import session_of
from omnigraph.testing.crash_writers import ACTOR, Said, State, state_of, with_next


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A graph, as someone finds it who only looks."""

    commits: tuple[Commit, ...]
    promises: tuple[Sidecar, ...]
    audit: tuple[AuditRow, ...]
    abandoned: frozenset[str]
    manifest_version: int

    @property
    def ids(self) -> list[str]:
        """The ids of the commits, newest first."""
        return [commit.id for commit in self.commits]


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What the windows of the protocol promise: whether the work is there in the end, and what the audit says."""

    before: State
    after: State
    commits_before: int
    applied: bool
    audit: str | None
    left_behind: bool
    published_by_writer: bool


def look(root: Path) -> Seen:
    """Look without touching anything."""
    graph = og.open(root, read_only=True)
    session = session_of(graph)
    reading = session.publisher.read()
    promises = [session.sidecars.read(pending.operation) for pending in session.sidecars.pending()]
    return Seen(
        commits=tuple(graph.log(limit=None)),
        promises=tuple(promise for promise in promises if promise is not None),
        audit=tuple(graph.recoveries()),
        abandoned=frozenset(reading.state.abandoned),
        manifest_version=reading.at.version,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A crash that has happened: what it left, what its caller was told, and what must come of it."""

    crash: Seen
    promises: tuple[Sidecar, ...]
    said: Said
    expected: Expected

    def settled(self, then: str | None) -> State:
        """Return the rows that must be there, with the next write if there was one."""
        state = self.expected.after if self.expected.applied else self.expected.before
        return state if then is None else with_next(state, then)


def judge(root: Path, case: Case, then: str | None = None) -> list[str]:
    """Return everything that is wrong with a recovered graph, to which the next writer has added ``then``."""
    wrong = _crash(case)
    try:
        seen = look(root)
        wrong += _rows(state_of(og.open(root, read_only=True)), case, then)
        wrong += _history(seen, case.expected.commits_before + case.expected.applied + (then is not None))
        wrong += _promised(seen, case)
        wrong += _audited(seen, case)
    except OmnigraphError as problem:
        wrong.append(f"the graph can not be read: {problem!r}")
    return wrong


def judge_reopening(root: Path) -> list[str]:
    """Return what is wrong if opening a graph that is whole changes it."""
    before = look(root)
    try:
        again = og.open(root).recover()
    except OmnigraphError as problem:
        return [f"it does not open again: {problem!r}"]
    return ["opening the graph again changed something"] if again or look(root) != before else []


def _crash(case: Case) -> list[str]:
    wrong = []
    if bool(case.crash.promises) != case.expected.left_behind:
        wrong.append(f"the crash left {len(case.crash.promises)} sidecars behind")
    if case.said == "refused" and case.expected.applied:
        wrong.append("an error was reported for work that is or will be there")
    return wrong


def _rows(state: State, case: Case, then: str | None) -> list[str]:
    wrong = [
        f"{kind} holds {count} rows with the id {id!r}"
        for kind, rows in state.items()
        for id, count in Counter(row["id"] for row in rows).items()
        if count > 1
    ]
    either = (case.expected.before, case.expected.after)
    if state not in (either if then is None else tuple(with_next(one, then) for one in either)):
        wrong.append(f"neither all nor nothing is there: {state}")
    elif state != case.settled(then):
        lost = "what was acknowledged is gone" if case.said == "acknowledged" else "against the word of the protocol"
        wrong.append(f"the work is {'not ' if case.expected.applied else ''}there: {lost}")
    return wrong


def _history(seen: Seen, count: int) -> list[str]:
    wrong = []
    if len(seen.commits) != count:
        wrong.append(f"there are {len(seen.commits)} commits where {count} belong")
    if [commit.version for commit in seen.commits] != list(range(len(seen.commits), 0, -1)):
        wrong.append("the versions have a gap")
    for child, parent in zip(seen.commits, seen.commits[1:], strict=False):
        if child.parents[:1] != (parent.id,) or len(child.parents) != (2 if child.operation == "merge" else 1):
            wrong.append(f"commit {child.version} does not follow commit {parent.version}")
    if seen.abandoned & set(seen.ids):
        wrong.append("a visible commit is recorded as given up")
    return wrong


def _promised(seen: Seen, case: Case) -> list[str]:
    wrong = []
    if seen.promises:
        wrong.append("recovery left a sidecar")
    for promise in case.promises:
        found = [commit for commit in seen.commits if commit.id == promise.commit]
        if bool(found) != case.expected.applied:
            wrong.append(f"the promised commit {promise.commit} is {'' if found else 'not '}there")
        source = () if promise.merge is None else (promise.merge.source,)
        wrong += ["a merge has lost its second parent" for commit in found if commit.parents[1:] != source]
        actor = ACTOR if case.expected.published_by_writer else RECOVERY_ACTOR
        wrong += [f"it was published by {commit.actor}, not {actor}" for commit in found if commit.actor != actor]
    return wrong


def _audited(seen: Seen, case: Case) -> list[str]:
    if Counter(row.operation for row in seen.audit) != Counter(promise.operation for promise in case.promises):
        return [f"there are {len(seen.audit)} audit rows for {len(case.promises)} promises"]
    by_operation = {promise.operation: promise for promise in case.promises}
    wrong = []
    for row in seen.audit:
        promise = by_operation[row.operation]
        if (row.kind, row.commit) != (case.expected.audit, promise.commit):
            wrong.append(
                f"the audit says {row.kind} of {row.commit}, and {case.expected.audit} of {promise.commit} is true"
            )
        if (row.original_actor, row.writer, row.branch) != (promise.actor, promise.writer, promise.branch):
            wrong.append("the audit row does not say whose work it was")
        if [table["table_key"] for table in row.tables] != [str(table.key) for table in promise.tables]:
            wrong.append("the audit row does not name the tables")
    return wrong
