"""The line of a feed: the commits of a branch between two ends, of which no more is decoded than is asked for.

A feed of many commits looks at one table of each, so decoding all of every commit would be most of what it costs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

from omnigraph.engine.history import History
from omnigraph.engine.session import Session
from omnigraph.errors import CommitNotFoundError, InvalidOptionError
from omnigraph.ids import TableId
from omnigraph.model.lineage import Branch, Commit, CommitRow, bodies_of
from omnigraph.model.tables import Pin
from omnigraph.model.targets import AsOf
from omnigraph.rules.refs import branch_held
from omnigraph.rules.targets import VERSION_MAX, read_target
from omnigraph.storage.manifest import Reading

Bound: TypeAlias = int | str | datetime
"""A version of a branch, or a moment: a time, or a text such as ``2026-11-01T12:30:00Z``."""


class Link(NamedTuple):
    """One commit of a line: what every feed looks at, and the rest as it is stored."""

    row: CommitRow
    body: Mapping[str, Any]
    operation: str
    schema_hash: str
    parents: Sequence[str]
    metrics: Mapping[str, Mapping[str, int]]
    is_expired: bool

    @classmethod
    def of(cls, row: CommitRow, body: Mapping[str, Any]) -> "Link":
        """Read what every feed looks at."""
        try:
            return cls(
                row, body, body["operation"], body["schema"], body["parents"], body["metrics"], "expired" in body
            )
        except (KeyError, TypeError) as problem:
            raise row.garbage(problem) from problem

    @property
    def commit(self) -> Commit:
        """Decode all of it."""
        return self.row.decoded(self.body)

    def pin(self, table: TableId) -> Pin | None:
        """Return the pin of a table, if the commit has one; of a commit that was cleaned up that is an error."""
        if self.is_expired:
            return self.commit.pins.get(table)
        try:
            found = [pin for pin in self.body["pins"] if pin["table"] == table]
            return Pin.from_json(found[0]) if found else None
        except (KeyError, ValueError, TypeError) as problem:
            raise self.row.garbage(problem) from problem


Line: TypeAlias = Sequence[Link | None]
"""Commits, each on the one before; the first, which they come after, is None where there is no such commit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Edge:
    """One end of a range: a version or a moment."""

    version: int | None = None
    moment: datetime | None = None

    def has(self, row: CommitRow) -> bool:
        """Tell whether a commit is at this end, or before."""
        if self.version is not None:
            return row.version <= self.version
        return self.moment is not None and row.created_at <= self.moment


def line_of(
    session: Session, history: History, branch: str, *, since: Bound | None, until: Bound | None
) -> tuple[Branch, Line]:
    """Return a branch, and its commits after a version or moment and up to another."""
    held, _ = history.head(branch)
    after = _Edge(version=0) if since is None else _edge(held, "since", since, least=0)
    upto = _Edge(version=held.version) if until is None else _edge(held, "until", until, least=1)
    if after.version is not None and upto.version is not None and after.version > upto.version:
        raise InvalidOptionError(f"since is {since!r} and until is {until!r}: a range ends after it begins")

    def look(reading: Reading) -> list[CommitRow | None]:
        now = branch_held(reading.state, held.name, held.incarnation)
        base: CommitRow | None = None
        found: list[CommitRow] = []
        for row in session.manifest.history(reading, now.segments, since=after.version):
            if after.has(row):
                base = row
                break
            if row.version <= held.version and upto.has(row):
                found.append(row)
        return [base, *found[::-1]]

    base, *rows = history.looking(look)
    known = [row for row in (base, *rows) if row is not None]
    links = [Link.of(row, body) for row, body in zip(known, bodies_of(known), strict=True)]
    line = links if base is not None else [None, *links]
    _refuse_gaps(held, line)
    return held, line


def _edge(branch: Branch, name: str, given: Bound, *, least: int) -> _Edge:
    if isinstance(given, str | datetime):
        target = read_target(branch.name, timestamp=given)
        assert isinstance(target, AsOf)  # noqa: S101  a timestamp means nothing else
        return _Edge(moment=target.moment)
    if type(given) is not int or not least <= given <= VERSION_MAX:
        raise InvalidOptionError(f"{name} is {given!r}; give a version, which is a number from {least}, or a time")
    if given > branch.version:
        raise CommitNotFoundError(
            f"branch {branch.name!r} has no version {given}; it has 1 to {branch.version}",
            branch=branch.name,
            version=given,
        )
    return _Edge(version=given)


def _refuse_gaps(branch: Branch, line: Line) -> None:
    """Refuse a range of which commits are no longer known."""
    for before, link in pairwise(line):
        wanted = link.parents[:1] if link is not None else []
        if wanted != ([] if before is None else [before.row.id]):
            version = link.row.version - 1 if link is not None else 0
            raise CommitNotFoundError(
                f"version {version} of branch {branch.name!r} is not there any more, so what changed after it can not "
                "be told; begin later",
                branch=branch.name,
                version=version,
            )
