"""Other columns for a large table, written by an engine with machines of its own: a task writes some fragments.

Tasks write files that nothing refers to, and answer with one text each. What the columns are, and under which numbers,
is said here, once, for all of them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa

from omnigraph.engine.answering import ANSWERS, answer, answers
from omnigraph.engine.parts import Part
from omnigraph.engine.session import Session
from omnigraph.engine.shares import balanced, shares_wanted
from omnigraph.errors import CorruptGraphError
from omnigraph.model.schema import TableType
from omnigraph.model.staged import StagedReshape
from omnigraph.storage.lance_reshaping import ShapedColumn
from omnigraph.storage.relations import ClusterEngine, Readable, Spread
from omnigraph.storage.roots import StorageOptions
from omnigraph.storage.staging import Staging, Ticket

T = TypeVar("T", bound=Readable)


@dataclass(frozen=True, slots=True, kw_only=True)
class WritingColumns:
    """Writes the columns of some fragments that have values of their own, and says what it wrote."""

    kind: TableType
    ticket: Ticket
    columns: tuple[ShapedColumn, ...]
    fragments: tuple[int, ...]
    options: StorageOptions

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Write them; without any such column there is nothing to say."""
        staged = Staging(self.options).columns(self.ticket, self.columns, self.fragments)
        if staged is not None:
            yield answer(Part(staged=staged).to_text(self.ticket, self.kind))


@dataclass(frozen=True, slots=True, kw_only=True)
class RewritingRows:
    """Writes the rows of some fragments into new files, and says what it wrote."""

    kind: TableType
    ticket: Ticket
    staged: StagedReshape
    version: int
    fragments: tuple[int, ...]
    options: StorageOptions

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Write them."""
        staged = Staging(self.options).rewritten(self.ticket, self.staged, self.version, self.fragments)
        yield answer(Part(staged=staged).to_text(self.ticket, self.kind))


@dataclass(frozen=True, slots=True, kw_only=True)
class SpreadReshape:
    """One table that gets other columns, and the engine that writes them."""

    session: Session
    engine: ClusterEngine
    kind: TableType
    ticket: Ticket
    columns: tuple[ShapedColumn, ...]

    def staged(self, *, is_rewrite: bool) -> StagedReshape:
        """Let tasks write what has to be written, and return all of it as one piece."""
        options, staging = self.session.root.options, self.session.staging
        groups, parts = self._groups(), list[StagedReshape]()
        if any(column.make is not None for column in self.columns):
            parts = self._parts(
                WritingColumns(
                    kind=self.kind, ticket=self.ticket, columns=self.columns, fragments=group, options=options
                )
                for group in groups
            )
        staged = staging.shaped(self.ticket, self.columns, parts)
        if not is_rewrite:
            return staged
        version = staging.glimpse(self.ticket, staged)
        bare = StagedReshape(base_version=staged.base_version, schema=staged.schema)
        return staging.united_reshape(
            self._parts(
                RewritingRows(
                    kind=self.kind,
                    ticket=self.ticket,
                    staged=bare,  # a task need not know all files
                    version=version,
                    fragments=group,
                    options=options,
                )
                for group in groups
            )
        )

    def _groups(self) -> Sequence[tuple[int, ...]]:
        """Deal the fragments out, some to each task."""
        version = self.ticket.base_version
        assert version is not None  # noqa: S101  a table without rows is no work for machines
        fragments = self.session.tables.fragments(self.ticket.uri, version)
        return balanced(fragments, shares_wanted(fragments, self.engine.parallelism))

    def _parts(self, tasks: Iterator[T]) -> list[StagedReshape]:
        """Let tasks work, and return what they wrote, in the order of the table."""
        work = tuple(tasks)
        texts = answers(self.engine, Spread(ANSWERS, work))
        parts = [Part.from_text(text, self.ticket, self.kind).staged for text in texts]
        found = [part for part in parts if isinstance(part, StagedReshape)]
        if len(found) != len(work):
            raise CorruptGraphError(
                f"nothing was applied: {len(work)} tasks wrote {self.kind.table}, {len(found)} said so"
            )
        return found
