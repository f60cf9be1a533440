"""From rows that come and go to staged files, and to what is promised for each table."""

from collections.abc import Iterator

from omnigraph.engine.deltas import uri_of
from omnigraph.engine.merge_planning import Plan
from omnigraph.engine.session import Session
from omnigraph.engine.spread_three_way import SpreadThreeWay
from omnigraph.engine.table_work import step
from omnigraph.engine.three_way import ThreeWay
from omnigraph.failpoints import Failpoint
from omnigraph.model.lineage import Commit
from omnigraph.model.sidecar import TablePromise
from omnigraph.model.staged import RowSet, StagedDelete, StagedUpsert
from omnigraph.model.tables import Pin
from omnigraph.storage.lance_rows import PlacesSeen
from omnigraph.storage.staging import Ticket


def staged_promises(session: Session, plan: Plan, target: Commit) -> tuple[TablePromise, ...]:
    """Stage the rows of every table that is merged row by row, and return what is promised for it."""
    return tuple(_promises(session, plan, target))


def _promises(session: Session, plan: Plan, target: Commit) -> Iterator[TablePromise]:
    for table, work in plan.merged.items():
        pin = target.pins.get(table)
        staged = _staged(session, work, pin)
        if staged is None or staged.is_empty:
            continue
        yield TablePromise(
            table=table,
            key=work.kind.table,
            expected=pin,
            transaction=session.sources.mint(),
            staged=staged,
            must_be_new=False,
            is_strict=True,
        )


def _staged(session: Session, work: ThreeWay | SpreadThreeWay, pin: Pin | None) -> StagedUpsert | StagedDelete | None:
    """Stage what comes and what goes as one piece, against exactly the target's version."""
    step(Failpoint.BEFORE_STAGE)
    ticket = Ticket(uri=uri_of(session, work.kind), base_version=None if pin is None else pin.lance_version)
    put = _put(session, work, ticket) if work.adds else None
    gone = session.staging.delete(ticket, None, None, rows=_places(work, ticket)) if work.loses else None
    step(Failpoint.AFTER_STAGE)
    if put is None or gone is None or gone.is_empty:
        return put if put is not None else gone
    return session.staging.mixed(ticket, put, gone)


def _put(session: Session, work: ThreeWay | SpreadThreeWay, ticket: Ticket) -> StagedUpsert:
    if isinstance(work, SpreadThreeWay):
        return work.staged(ticket)
    seen = PlacesSeen()
    return session.staging.upsert(ticket, work.stored(seen), seen)


def _places(work: ThreeWay | SpreadThreeWay, ticket: Ticket) -> tuple[RowSet, ...]:
    return work.deleted_places(ticket) if isinstance(work, SpreadThreeWay) else work.deleted_places
