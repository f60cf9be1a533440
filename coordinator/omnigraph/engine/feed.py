"""The change feed of a branch: what became of its rows, commit by commit along its own line.

A merge is told as what it did to the branch, a restore as what it took back. Commits that change how rows are stored,
and no row, tell nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa

from omnigraph.engine.feed_line import Bound, Line, Link, line_of
from omnigraph.engine.feed_parts import Comparisons, Insertions, OfEveryType
from omnigraph.engine.feed_steps import Step, follows
from omnigraph.engine.history import History
from omnigraph.engine.row_changes import PinnedTable
from omnigraph.engine.session import Session
from omnigraph.engine.shares import Share
from omnigraph.engine.table_at import BLOB_ROWS_MAX
from omnigraph.errors import TypeNotFoundError
from omnigraph.ids import TableId
from omnigraph.model.lineage import Branch, Commit
from omnigraph.model.schema import TableType
from omnigraph.rules.feed import EVERY_TYPE, KEEPS_ROWS, Told, feed_schema, names_in, shown_table
from omnigraph.storage.lance_door import FragmentSize
from omnigraph.storage.layout import table_location
from omnigraph.storage.relations import Readable

PART_ROWS_MIN: Final = 8_192
PART_ROWS_MAX: Final = 2**20
NOWHERE: Final = PinnedTable(kind=None, pin=None)
WRITES: Final = frozenset({"append", "upsert", "transaction"})
"""Operations that change no table but those that they count rows of."""
ROWS_INSERTED, ROWS_UPDATED, ROWS_DELETED = "rows_inserted", "rows_updated", "rows_deleted"
JOINED_ROWS_MAX: Final = 8_192
"""So many rows that were only inserted are told together with rows that were put before and after."""
STEP_ROWS: Final = 1_000
"""Comparing two versions, or opening a file, costs about as much as reading so many rows."""


class Changes:
    """What became of a branch's rows after one commit and up to another; rows are read when they are asked for."""

    def __init__(self, session: Session, history: History, branch: Branch, line: Line, *, is_net: bool) -> None:
        self._session = session
        self._history = history
        self._line = line
        self._known: dict[str, dict[TableId, TableType]] = {}
        self.branch = branch
        self.is_net = is_net

    def __repr__(self) -> str:
        return f"<Changes of {self.branch.name} after {self.since} up to {self.until}>"

    @property
    def since(self) -> int:
        """The version that the changes begin after; 0 if that is before the first."""
        return 0 if self._line[0] is None else self._line[0].row.version

    @property
    def until(self) -> int:
        """The version of the last commit."""
        return 0 if self._line[-1] is None else self._line[-1].row.version

    @cached_property
    def commits(self) -> tuple[Commit, ...]:
        """The commits whose changes are told, oldest first."""
        return tuple(link.commit for link in self._line[1:] if link is not None)

    @cached_property
    def base(self) -> Commit | None:
        """The commit that the changes begin after; None if that is before the first."""
        return None if self._line[0] is None else self._line[0].commit

    @cached_property
    def last(self) -> Commit | None:
        """The commit that folding the changes leads to; None if there is none at all."""
        return None if self._line[-1] is None else self._line[-1].commit

    def schema(self, type: str | None = None) -> pa.Schema:
        """Return the columns of the rows of a type, or of those of all types."""
        return EVERY_TYPE if type is None else feed_schema(self._kind(type))

    def rows(self, type: str | None = None) -> pa.RecordBatchReader:
        """Stream the changed rows of a type, or of all; those of one type come in the order of their commits.

        A type is shown with the columns it has in the last commit. Rows of all types have their values in ``row``, as
        a JSON record that can be loaded.
        """
        batches = (batch for part in self.parts(type) for batch in part.batches())
        return pa.RecordBatchReader.from_batches(self.schema(type), (batch for batch in batches if batch.num_rows))

    def parts(self, type: str | TableType | None = None, *, parallelism: int = 1) -> tuple[Readable, ...]:
        """Cut the feed of a type, or of all, into parts that other processes can read."""
        if isinstance(type, str):
            type = self._kind(type)
        if type is not None:
            return tuple(self._parts(type, parallelism))
        every = [(kind, self._parts(kind, parallelism)) for kind in self._kinds().values()]
        return tuple(OfEveryType(kind=kind, part=part) for kind, parts in every for part in parts)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values: the range, and the commits in it."""
        told = [{"version": each.version, "commit": each.id, "operation": each.operation} for each in self.commits]
        return {"branch": self.branch.name, "since": self.since, "until": self.until, "commits": told}

    # -- types ----------------------------------------------------------------------------------------

    def _kinds(self) -> dict[TableId, TableType]:
        """Return every type there was, as the last commit that has it shows it."""
        line = [link for link in self._line if link is not None]
        found: dict[TableId, TableType] = {}
        for link in (*{link.schema_hash: link for link in line}.values(), *line[-1:]):
            found |= self._types(link)
        return found

    def _types(self, link: Link) -> Mapping[TableId, TableType]:
        """Return the types of a commit by their tables."""
        found = self._known.get(link.schema_hash)
        if found is None:
            found = {kind.table_id: kind for kind in self._history.catalog(link.commit).table_types}
            self._known[link.schema_hash] = found
        return found

    def _kind(self, name: str) -> TableType:
        """Return a type by its name in the last commit, or else in the first."""
        if self.last is None:
            raise TypeNotFoundError(f"branch {self.branch.name!r} has no commit, and so no type {name[:100]!r}")
        try:
            return self._history.catalog(self.last).table_type(name)
        except TypeNotFoundError:
            if self.base is None:
                raise
            return self._history.catalog(self.base).table_type(name)

    def _at(self, link: Link | None, table: TableId) -> PinnedTable:
        """Return where a table was, or nowhere after a cleanup; a net feed needs to know and is refused."""
        if link is None or (link.is_expired and not self.is_net):
            return NOWHERE
        kind = self._types(link).get(table)
        return PinnedTable(kind=kind, pin=None if kind is None else link.pin(table))

    # -- parts ----------------------------------------------------------------------------------------

    def _steps(self, kind: TableType) -> Iterator[Step]:
        """Yield what each commit did to a table; a commit that left it alone is left out."""
        line = self._line
        if self.is_net and len(line) > 1:
            line = (line[0], line[-1])
        new, key = self._at(line[0], kind.table_id), _key(None)
        for before, link in pairwise(line):
            assert link is not None  # noqa: S101  only the first may be missing
            old, new = new, self._at(link, kind.table_id)
            if old.kind is not new.kind or not key:
                key = _key(new.kind)
            if link.operation in KEEPS_ROWS and not self.is_net:
                continue
            if link.is_expired:
                link.commit.refuse_expired()
            told = Told(version=link.row.version, commit=link.row.id, at=link.row.created_at)
            if before is not None and before.is_expired and not self.is_net:
                inserted = _inserted_since(before, link, link.metrics.get(key, {}))
                if inserted:
                    was = before.commit
                    yield Step(told=told, old=NOWHERE, new=new, inserted=inserted, touched=inserted, expired=was)
            elif not _same(old.pin, new.pin):
                yield _counted(told, old, new, {} if self.is_net else link.metrics.get(key, {}))

    def _parts(self, kind: TableType, parallelism: int) -> Iterator[Readable]:
        steps = list(self._steps(kind))
        known = sum(STEP_ROWS + (step.touched or 0) for step in steps)
        size = min(max(known // max(parallelism, 1), PART_ROWS_MIN), PART_ROWS_MAX)
        for stretch in _stretches(steps):
            inserted = self._inserted(kind, stretch, size) if stretch[0].inserted is not None else None
            if inserted is None and stretch[0].expired is not None:
                stretch[0].expired.refuse_expired()
            yield from inserted if inserted is not None else self._compared(kind, stretch, size)

    def _inserted(self, kind: TableType, steps: Sequence[Step], size: int) -> list[Readable] | None:
        """Return the rows that a stretch of commits inserted, the last ones of the table; None if there are too few."""
        pin, there = steps[-1].new.pin, steps[-1].new.kind
        assert pin is not None and there is not None  # noqa: S101  what has rows has both
        fragments = self._session.tables.fragments(self._uri(kind), pin.lance_version)
        commits = np.cumsum([step.inserted or 0 for step in steps])
        tail = _tail(fragments, int(commits[-1]))
        if tail is None:
            return None
        names = names_in(kind, there)
        has_blobs = any(column.is_blob for column in shown_table(kind).columns)
        parts: list[Readable] = []
        end = int(commits[-1]) - sum(each.rows for each in tail)  # its first file may begin with others' rows
        for some in _sliced(tail, size):
            start, end = end, end + sum(each.rows for each in some)
            first, last = np.searchsorted(commits, [max(start, 0), end - 1], side="right")
            share = Share(
                uri=self._uri(kind),
                version=pin.lance_version,
                fragments=tuple(each.number for each in some),
                columns=("id", *(name for name in names if name is not None)),
                options=self._session.root.options,
                batch_rows=BLOB_ROWS_MAX if has_blobs else None,
            )
            parts.append(
                Insertions(
                    kind=kind,
                    names=names,
                    share=share,
                    told=tuple(step.told for step in steps[first : last + 1]),
                    ends=tuple((np.minimum(commits[first : last + 1], end) - max(start, 0)).tolist()),
                    skipped=max(-start, 0),
                )
            )
        return parts

    def _compared(self, kind: TableType, steps: Sequence[Step], size: int) -> Iterator[Readable]:
        group: list[Step] = []
        work = 0
        for step in steps:
            more = STEP_ROWS + (PART_ROWS_MAX if step.touched is None else step.touched)
            if group and work + more > size:
                yield self._comparison(kind, group)
                group, work = [], 0
            group.append(step)
            work += more
        if group:
            yield self._comparison(kind, group)

    def _comparison(self, kind: TableType, steps: Sequence[Step]) -> Comparisons:
        return Comparisons(kind=kind, uri=self._uri(kind), options=self._session.root.options, steps=tuple(steps))

    def _uri(self, kind: TableType) -> str:
        return self._session.root.uri(table_location(kind.table.kind, kind.table_id))


def _key(kind: TableType | None) -> str:
    """Return what a commit calls a type where it counts rows."""
    return "" if kind is None else str(kind.table)


def _counted(told: Told, old: PinnedTable, new: PinnedTable, counts: Mapping[str, int]) -> Step:
    """Return what a commit did to a table, as it counted it.

    A commit counts what it sealed on the table as it was; of tables it took over from elsewhere it says nothing.
    """
    if new.pin is None or new.kind is None:
        return Step(told=told, old=old, new=new)
    if old.pin is None:
        return Step(told=told, old=old, new=new, touched=new.pin.rows, inserted=new.pin.rows or None)
    inserted, updated, deleted = counts.get(ROWS_INSERTED), counts.get(ROWS_UPDATED), counts.get(ROWS_DELETED)
    if inserted is None or updated is None or deleted is None:  # of rows that lie elsewhere now, none is counted
        return Step(told=told, old=old, new=new)
    touched = inserted + updated + deleted
    if deleted or not _same(old.kind, new.kind) or inserted != new.pin.rows - old.pin.rows:
        return Step(told=told, old=old, new=new, touched=touched)
    only = None if updated or not inserted else inserted
    return Step(told=told, old=old, new=new, touched=touched, put=(inserted, updated), inserted=only)


def _inserted_since(before: Link, link: Link, counts: Mapping[str, int]) -> int:
    """Return how many rows a commit inserted into a table, where it can not be compared with the one before."""
    if link.operation not in WRITES or any(counts.get(name, 0) for name in (ROWS_UPDATED, ROWS_DELETED)):
        before.commit.refuse_expired()
    return int(counts.get(ROWS_INSERTED, 0))


def _stretches(steps: Sequence[Step]) -> Iterator[list[Step]]:
    """Yield runs of commits of one sort: those that follow each other and only inserted, and runs of others."""
    run: list[Step] = []
    for step in steps:
        if run and not _goes_on(run[0], run[-1], step):
            yield run
            run = []
        run.append(step)
    if run:
        yield run


def _goes_on(first: Step, last: Step, step: Step) -> bool:
    if first.inserted is None:
        return step.inserted is None or (follows(last, step) and step.inserted <= JOINED_ROWS_MAX)
    # A version is told from the fragments of a later one only if the later one was built on it.
    return step.inserted is not None and _same(last.new.pin, step.old.pin) and _same(last.new.kind, step.new.kind)


def _same(one: object, other: object) -> bool:
    """Tell whether two values are the same: most often they are one, and comparing what they hold takes long."""
    return one is other or one == other


def _tail(fragments: Sequence[FragmentSize], rows: int) -> list[FragmentSize] | None:
    """Return the last fragments that have so many rows, or a few more; None if all of them do not have as many."""
    found: list[FragmentSize] = []
    for fragment in reversed(fragments):
        if rows <= 0:
            break
        found.append(fragment)
        rows -= fragment.rows
    return found[::-1] if rows <= 0 else None


def _sliced(fragments: Sequence[FragmentSize], size: int) -> Iterator[list[FragmentSize]]:
    """Cut fragments into slices of about so much work; a fragment is never cut."""
    part: list[FragmentSize] = []
    rows = 0
    for fragment in fragments:
        if part and rows + STEP_ROWS + fragment.rows > size:
            yield part
            part, rows = [], 0
        part.append(fragment)
        rows += STEP_ROWS + fragment.rows
    if part:
        yield part


def changes_of(
    session: Session, history: History, branch: str, *, since: Bound | None, until: Bound | None, net: bool
) -> Changes:
    """Return the changes of a branch after a version or moment, and up to another."""
    held, line = line_of(session, history, branch, since=since, until=until)
    return Changes(session, history, held, line, is_net=net)
