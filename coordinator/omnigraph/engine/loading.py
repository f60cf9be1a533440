"""Loading files into a graph: everything is read and checked first, then it becomes one commit, or nothing.

Records of different types may come in any order. They are turned into columns a few megabytes at a time and
set aside on local disk, one stream per table; only when the input has ended is a branch forked, if one is
asked for, and a transaction begun. What is held in memory does not grow with the input, but for eight bytes for
each row that a transaction keeps.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal

import pyarrow as pa

from omnigraph.engine.history import History
from omnigraph.engine.intake import Intake, Progress, Source
from omnigraph.engine.origins import Origins, with_records
from omnigraph.engine.rejected import Rejected, counted_together, read_together, rejected_schema
from omnigraph.engine.session import Session
from omnigraph.engine.transaction import Transaction
from omnigraph.errors import BranchNotFoundError, InvalidOptionError, OmnigraphError
from omnigraph.ids import CommitId
from omnigraph.model.catalog import Catalog
from omnigraph.model.lineage import Commit
from omnigraph.model.receipt import Receipt
from omnigraph.model.schema import did_you_mean
from omnigraph.rules.names import check_ref_name
from omnigraph.rules.who import check_actor, check_message, check_txn
from omnigraph.storage.record_files import check_format
from omnigraph.storage.record_sources import OBJECT_SCHEME
from omnigraph.storage.spool import Spool

if TYPE_CHECKING:
    from omnigraph.engine.graph import Graph

Mode = Literal["append", "merge", "overwrite"]
MODES: Final[tuple[Mode, ...]] = ("append", "merge", "overwrite")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRequest:
    """What to load, how, and where to."""

    source: Source
    mode: str
    branch: str
    create_from: str | None = None
    type: str | None = None
    format: str | None = None
    message: str | None = None
    actor: str | None = None
    txn: tuple[str, int] | None = None
    constraints: str = "fail"
    storage_options: Mapping[str, str] | None = None
    progress: Progress | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadResult:
    """What a load did: the rows read for each table, and the receipt of its one commit."""

    branch: str
    branch_created: bool
    receipt: Receipt
    rows: Mapping[str, int]
    left_out: Callable[[str], pa.RecordBatchReader] = field(repr=False, compare=False)

    def rejected(self, type: str) -> pa.RecordBatchReader:
        """Return the rows of a type that ``constraints="quarantine"`` left out, with the column ``_reasons``."""
        return self.left_out(type)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "branch": self.branch,
            "branch_created": self.branch_created,
            "rows": dict(self.rows),
            "receipt": self.receipt.to_dict(),
        }


def load(graph: "Graph", session: Session, history: History, request: LoadRequest) -> LoadResult:
    """Read and check the whole input, then publish it; a rerun reads nothing."""
    _check(request)
    landed = _landed(graph, session, request)
    if landed is not None:
        return _rerun(graph, history.named(landed), request)
    start = _start(graph, request)
    catalog = graph.catalog(history.named(request.branch if start is None else start))
    with Spool() as rows, Spool() as origins:
        taken, refused = Origins(rows, origins), Rejected()
        sorted_out = refused if request.constraints == "quarantine" else None
        Intake(catalog, taken, session.sources.mint_many, sorted_out).read(
            request.source,
            only=None if request.type is None else catalog.table_type(request.type),
            format=None if request.format is None else check_format(request.format),
            options=_options(session, request),
            progress=request.progress,
        )
        if start is not None:
            graph.branches.create(request.branch, from_=start)
        done = _publish(graph, catalog, taken, request)
        return LoadResult(
            branch=request.branch,
            branch_created=start is not None,
            receipt=replace(done.receipt, rejected=counted_together(refused.counts, done.receipt.rejected)),
            rows=taken.counts,
            left_out=read_together(lambda type: refused.reader(catalog.table_type(type)), done.rejected),
        )


def _check(request: LoadRequest) -> None:
    """Refuse early what would be refused after everything was read."""
    if request.mode not in MODES:
        hint = did_you_mean(str(request.mode), MODES)
        text = f"there is no mode {str(request.mode)[:60]!r}; there are {', '.join(MODES)}"
        raise InvalidOptionError(text + (f"; {hint}" if hint else ""))
    check_message(request.message)
    check_actor(request.actor)
    check_txn(request.txn)


def _start(graph: "Graph", request: LoadRequest) -> str | None:
    """Return what to fork the branch from, or None if it is there."""
    try:
        graph.branches.get(request.branch)
    except BranchNotFoundError:
        if request.create_from is None:
            raise
        check_ref_name(request.branch)
        return request.create_from
    return None


def _landed(graph: "Graph", session: Session, request: LoadRequest) -> CommitId | None:
    """Return the commit of an earlier run with the same txn, also of one that died and is finished only now."""
    if request.txn is None:
        return None
    graph.heal()
    app, version = request.txn
    last = session.publisher.read().state.txns.get(app)
    return last.commit if last is not None and last.version >= version else None


def _rerun(graph: "Graph", commit: Commit, request: LoadRequest) -> LoadResult:
    """Say which commit an earlier run made; nothing was read, so nothing was left out."""
    catalog = graph.catalog(commit)
    return LoadResult(
        branch=request.branch,
        branch_created=False,
        receipt=Receipt(branch=commit.branch, commit=commit.id, version=commit.version, rerun=True),
        rows={},
        left_out=lambda type: rejected_schema(catalog.table_type(type)).empty_table().to_reader(),
    )


def _options(session: Session, request: LoadRequest) -> Mapping[str, str] | None:
    """Return how to reach a source in an object store: as the graph is reached, unless it is said."""
    if request.storage_options is not None or not str(request.source).startswith(OBJECT_SCHEME):
        return request.storage_options
    return None if session.root.is_local else session.root.options


def _publish(graph: "Graph", catalog: Catalog, rows: Origins, request: LoadRequest) -> Transaction:
    table: str | None = None
    try:
        transaction = graph.transaction(
            request.branch,
            message=request.message,
            actor=request.actor,
            txn=request.txn,
            constraints=request.constraints,
        )
        with transaction as tx:
            write = {"append": tx.append, "merge": tx.upsert, "overwrite": tx.overwrite}[request.mode]
            for kind in catalog.table_types:
                table = str(kind.table)
                if table in rows.counts:
                    write(table, rows.reader(kind))
            table = None
    except OmnigraphError as problem:
        told = with_records(problem, catalog, rows, table)
        if told is problem:
            raise
        raise told from problem
    return tx
