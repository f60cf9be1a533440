"""Gathering what a report tells: bounded work, whatever the length of history or the number of tables."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version as distribution_version
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from omnigraph.engine.deltas import uri_of
from omnigraph.engine.diffing import Diff, Point, commit_at
from omnigraph.engine.history import History
from omnigraph.engine.session import Session
from omnigraph.engine.upkeep import at_once
from omnigraph.errors import InvalidOptionError, OmnigraphError
from omnigraph.model.indexes import IndexCoverage
from omnigraph.model.lineage import Commit
from omnigraph.model.merges import MergeResult
from omnigraph.model.schema import TableType
from omnigraph.model.tables import Pin
from omnigraph.report import facts
from omnigraph.report.page import render
from omnigraph.report.showing import Report
from omnigraph.rules.indexes import labels, wanted_indexes
from omnigraph.rules.refs import ordered_branches
from omnigraph.storage.manifest import Reading

if TYPE_CHECKING:
    from omnigraph.engine.graph import Graph

COMMITS_DEFAULT: Final = 100
COMMITS_MAX: Final = 1_000
TABLES_MAX: Final = 300
TABLES_COMPARED_MAX: Final = 50
ROWS_SHOWN_MAX: Final = 12
RECOVERIES_MAX: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportRequest:
    """What a report is to tell, beside what it always tells."""

    branch: str
    commits: int = COMMITS_DEFAULT
    diff: tuple[Point, Point] | None = None
    merge: str | None = None
    into: str | None = None


def report(graph: "Graph", session: Session, history: History, request: ReportRequest) -> Report:
    """Gather everything and draw it; nothing is written under the root."""
    if not 1 <= request.commits <= COMMITS_MAX:
        raise InvalidOptionError(f"a report draws 1 to {COMMITS_MAX} commits, not {request.commits}")
    if request.into is not None and request.merge is None:
        raise InvalidOptionError("into is where to merge: say what by merge")
    _, head = history.head(request.branch)
    catalog = history.catalog(head)
    kinds = catalog.table_types
    told = facts.ReportFacts(
        root=str(session.root),
        branch=request.branch,
        head=head,
        catalog=catalog,
        history=newest(session, history, request.commits),
        tables=tuple(_tables(session, kinds[:TABLES_MAX], head)),
        tables_left_out=max(0, len(kinds) - TABLES_MAX),
        recoveries=_recoveries(session),
        diff=None if request.diff is None else _diff(session, history, *request.diff),
        merge=None if request.merge is None else _merge(graph, request),
        made_at=session.sources.now(),
        made_by=f"omnigraph {distribution_version('omnigraph-spark')}",
    )
    return Report(html=render(told))


def newest(session: Session, history: History, limit: int) -> facts.History:
    """Return the newest commits of all branches, and every name, seen at one moment."""

    def look(reading: Reading) -> facts.History:
        state = reading.state
        total = len(state.tail) + sum(span.rows for span in state.commit_spans)
        enough = _whole_files(reading, limit)
        rows = list(islice(session.manifest.every_commit(reading), enough))
        rows.sort(key=lambda row: (row.created_at, row.id), reverse=True)
        tags = sorted(state.tags.values(), key=lambda tag: (tag.created_at, tag.name), reverse=True)
        return facts.History(
            commits=tuple(row.commit for row in rows[:limit]),
            total=total,
            branches=tuple(ordered_branches(state)),
            tags=tuple(tags),
        )

    return history.looking(look)


def _whole_files(reading: Reading, limit: int) -> int:
    """Return how many commits the newest files have that hold at least so many; within one they are in no order."""
    number = len(reading.state.tail)
    for span in reversed(reading.state.commit_spans):
        if number >= limit:
            break
        number += span.rows
    return number


def _tables(session: Session, kinds: tuple[TableType, ...], head: Commit) -> Iterator[facts.TableSize]:
    """Look how large every table is and what its indexes cover; one that can not be looked at says why."""

    def look(kind: TableType) -> facts.TableSize:
        pin, key = head.pins.get(kind.table_id), str(kind.table)
        return facts.TableSize(key=key, rows=0) if pin is None else _size(session, kind, pin)

    for kind, answer in at_once(look, kinds):
        problem = answer.exception()
        if problem is None:
            yield answer.result()
        elif isinstance(problem, OmnigraphError):
            pin = head.pins[kind.table_id]
            yield facts.TableSize(key=str(kind.table), rows=pin.rows, trouble=problem.message)
        else:
            raise problem


def _size(session: Session, kind: TableType, pin: Pin) -> facts.TableSize:
    uri = uri_of(session, kind)
    parts = session.tables.fragments(uri, pin.lance_version)
    survey = session.indexes.survey(uri, pin.lance_version, wanted_indexes(kind))
    named = labels([one.wanted for one in survey.coverage])
    return facts.TableSize(
        key=str(kind.table),
        rows=pin.rows,
        files=sum(part.files for part in parts),
        bytes=sum(part.bytes for part in parts),
        indexes={
            named[one.wanted]: IndexCoverage(kind=one.wanted.kind, rows=one.rows, rows_covered=one.rows_covered)
            for one in survey.coverage
        },
    )


def _diff(session: Session, history: History, old: Point, new: Point) -> facts.DiffFacts:
    found = Diff(session, history, commit_at(history, old), commit_at(history, new))
    compared = islice(found.tables.items(), TABLES_COMPARED_MAX)
    samples = {key: _some_rows(found, key) if table.rows else () for key, table in compared}
    names = [point if isinstance(point, str) else None for point in (old, new)]
    return facts.DiffFacts(
        old=found.old, new=found.new, tables=found.tables, samples=samples, old_name=names[0], new_name=names[1]
    )


def _some_rows(found: Diff, key: str) -> tuple[Mapping[str, Any], ...]:
    """Return the first rows that differ, with what they were and are; of each sort some, if they come early."""
    rows: list[Mapping[str, Any]] = []
    for batch in found.rows(key):
        rows += batch.slice(0, ROWS_SHOWN_MAX - len(rows)).to_pylist()
        if len(rows) >= ROWS_SHOWN_MAX:
            break
    return tuple(sorted(rows, key=lambda row: (row["change"], str(row["id"]))))


def _merge(graph: "Graph", request: ReportRequest) -> MergeResult:
    assert request.merge is not None  # noqa: S101  (asked only then)
    target = request.branch if request.into is None else request.into
    return graph.branches.merge(request.merge, target, dry_run=True)


def _recoveries(session: Session) -> facts.Recoveries:
    rows = session.audit.rows()
    shown = [
        facts.RecoveryFact(
            at=row.created_at,
            kind=row.kind,
            branch=row.branch,
            commit=row.commit,
            writer=row.writer,
            actor=row.original_actor,
            tables=len(row.tables),
        )
        for row in reversed(rows[-RECOVERIES_MAX:])
    ]
    return facts.Recoveries(rows=tuple(shown), total=len(rows), pending=len(session.sidecars.pending()))
