"""Staging rows that were given to a transaction: made to fit, watched as they go by, and written to files nobody sees.

Lance writes one stream on about one core. Many rows that lie in memory are cut into shares, where a file ends if they
fill several, and the shares are written side by side.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, pairwise
from threading import Event
from typing import Final

import pyarrow as pa

from omnigraph.engine.ahead import ahead
from omnigraph.engine.announcing import Announcement
from omnigraph.engine.given import Writing
from omnigraph.engine.rows_given import AnyRows, is_long, parts_of
from omnigraph.engine.session import Session
from omnigraph.engine.table_work import TableWork, step
from omnigraph.failpoints import Failpoint
from omnigraph.model.staged import Staged
from omnigraph.observing import Threads
from omnigraph.rules.arrow_schema import arrow_schema
from omnigraph.rules.conform import conform
from omnigraph.rules.row_checks import RowChecks
from omnigraph.storage.lance_cores import cores
from omnigraph.storage.staging import Ticket

SHARES_MAX: Final = 4
"""Each share has buffers of its own."""
SHARE_ROWS_MIN: Final = 2**18
"""Fewer rows are written sooner than two files would be read."""


class RowStaging:
    """Where the rows of one transaction go that are given in this process."""

    def __init__(self, session: Session, announcement: Announcement, *, is_checked: bool) -> None:
        self._session = session
        self._announcement = announcement
        self._is_checked = is_checked
        staging = session.staging
        self._stagers: dict[Writing, Callable[[Ticket, pa.RecordBatchReader], Staged]] = {
            "append": staging.append,
            "upsert": staging.upsert,
            "overwrite": staging.overwrite,
        }

    def give(self, table: TableWork, verb: Writing, rows: AnyRows) -> None:
        """Make rows fit and stage them."""
        shares = _shares(rows, table.ticket.limits.rows_per_file)
        if verb == "upsert" or len(shares) < 2:
            batches = self._conformed(table, rows, table.checks)
            self.stage(table, verb, ahead(batches) if is_long(rows) else batches)
            return
        step(Failpoint.BEFORE_STAGE)
        if table.ticket.base_version is None:
            self._session.tables.ensure(table.ticket.uri, arrow_schema(table.kind))
        table.parts += self._side_by_side(table, verb, shares)
        step(Failpoint.AFTER_STAGE)

    def stage(self, table: TableWork, verb: Writing, batches: Iterator[pa.RecordBatch]) -> None:
        """Stage rows that fit."""
        step(Failpoint.BEFORE_STAGE)
        schema = arrow_schema(table.kind)
        if table.ticket.base_version is None:
            first = next(batches, None)
            if first is None:
                return  # no rows for a table that has none: nothing to write, and no reason to make its dataset
            self._session.tables.ensure(table.ticket.uri, schema)
            batches = chain([first], batches)
        reader = pa.RecordBatchReader.from_batches(schema, batches)
        table.parts.append(self._stagers[verb](table.ticket, reader))
        step(Failpoint.AFTER_STAGE)

    def _side_by_side(self, table: TableWork, verb: Writing, shares: Sequence[pa.Table]) -> list[Staged]:
        """Write shares at the same time; what the first of them meets that can not be written is raised."""
        schema, unwanted = arrow_schema(table.kind), Event()
        checks = [RowChecks(table.kind) for _ in shares]

        def write(share: pa.Table, checks: RowChecks) -> Staged:
            batches = self._conformed(table, share, checks, unwanted)
            return self._stagers[verb](table.ticket, pa.RecordBatchReader.from_batches(schema, batches))

        with Threads(len(shares)) as pool:
            try:
                staged = list(pool.map(write, shares, checks))
            finally:
                unwanted.set()  # nobody asks for the rest of a share whose neighbour failed
        for found in checks:
            table.checks.take(found)
        return staged

    def _conformed(
        self, table: TableWork, rows: AnyRows, checks: RowChecks, unwanted: Event | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield rows as the table stores them, a batch at a time, watching their ids."""
        for part in parts_of(rows, table.kind):
            if unwanted is not None and unwanted.is_set():
                return
            self._announcement.look(table.kind.table_id)
            fitted = conform(table.kind, part, self._session.sources.mint_many)
            if fitted.num_rows:
                table.repeats.note(fitted.column("id"))
                if self._is_checked:
                    checks.look(fitted)
                yield from fitted.to_batches()


def _shares(rows: AnyRows, file_rows: int) -> Sequence[pa.Table]:
    """Cut many rows that lie in memory into as many shares as cores can work on; none if they are few."""
    if not isinstance(rows, pa.Table):
        return ()
    files = -(-rows.num_rows // file_rows)
    number = min(cores(), SHARES_MAX, max(files, rows.num_rows // SHARE_ROWS_MIN))
    if number < 2:
        return ()
    is_cut_at_files = files >= number
    bounds = [
        files * at // number * file_rows if is_cut_at_files else rows.num_rows * at // number for at in range(number)
    ]
    return [rows.slice(start, end - start) for start, end in pairwise([*bounds, rows.num_rows])]
