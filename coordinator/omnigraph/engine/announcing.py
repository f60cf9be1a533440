"""Saying that a write is being staged, so that cleanup leaves its files alone however long that takes.

A write that takes less than a few minutes says nothing: cleanup leaves alone what is young. Tasks of a cluster are
announced before they begin.
"""

from datetime import timedelta
from typing import Final

from omnigraph.engine.owners import this_process
from omnigraph.engine.session import Session
from omnigraph.ids import CommitId, TableId
from omnigraph.model.intents import Intent

SILENT: Final = timedelta(minutes=5)


class Announcement:
    """What one write has said of itself so far."""

    def __init__(self, session: Session, base: CommitId, said: str | None = None) -> None:
        self._session = session
        self._base = base
        self._is_said = said is not None  # by whoever began the write elsewhere
        self._begun = session.sources.monotonic()
        self._tables: set[TableId] = set()
        self.operation = said

    def look(self, table: TableId) -> None:
        """Say that rows are being staged for a table, if this goes on for long."""
        if table not in self._tables and self._lasting >= SILENT:
            self.now(table)

    def now(self, table: TableId) -> None:
        """Say that rows are being staged for a table."""
        if table in self._tables or self._is_said:
            return
        self._tables.add(table)
        self.operation = self.operation or self._session.sources.mint()
        self._session.intents.put(
            Intent(
                operation=self.operation,
                base=self._base,
                tables=tuple(sorted(self._tables)),
                host=this_process().host,
                lead=self._lasting,
            )
        )

    def end(self) -> None:
        """Take back what was said: the write has ended, or is promised."""
        if self.operation is not None:
            self._session.intents.forget(self.operation)

    @property
    def _lasting(self) -> timedelta:
        return timedelta(seconds=self._session.sources.monotonic() - self._begun)
