"""Rows that were not written, and why: on local disk, for as long as somebody may ask for them."""

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from omnigraph.model.receipt import RejectedRows
from omnigraph.model.schema import TableType
from omnigraph.rules.record_text import json_texts, record_lines
from omnigraph.rules.records import plain_schema
from omnigraph.rules.sifting import Reasons
from omnigraph.storage.record_targets import json_target, write_lines
from omnigraph.storage.spool import Spool

REASONS: Final = "_reasons"


def rejected_schema(kind: TableType) -> pa.Schema:
    """Return the columns of rejected rows: those of their type, and the reasons."""
    return plain_schema(kind).append(pa.field(REASONS, pa.list_(pa.string())))


class Rejected:
    """Takes rows with reasons, counts both, and gives them back by type as often as asked."""

    def __init__(self) -> None:
        self._spool: Spool | None = None
        self._rows: dict[str, int] = {}
        self._reasons: dict[str, dict[str, int]] = {}

    def add(self, kind: TableType, rows: pa.Table, reasons: Reasons) -> None:
        """Take rows in the plain columns of their type, with as many lists of reasons."""
        table, schema = str(kind.table), rejected_schema(kind)
        if self._spool is None:
            self._spool = Spool().__enter__()
            weakref.finalize(self, self._spool.__exit__, None, None, None)
        self._spool.open_table(table, schema)
        texts = pa.array([[str(reason) for reason in why] for why in reasons], pa.list_(pa.string()))
        whole = pa.Table.from_arrays([*rows.columns, pa.chunked_array([texts])], schema=schema)
        for batch in whole.combine_chunks().to_batches():
            self._spool.add(table, batch)
        self._count(table, reasons)

    def _count(self, table: str, reasons: Reasons) -> None:
        self._rows[table] = self._rows.get(table, 0) + len(reasons)
        counts = self._reasons.setdefault(table, {})
        for why in reasons:
            for constraint in {reason.constraint for reason in why}:
                counts[constraint] = counts.get(constraint, 0) + 1

    @property
    def counts(self) -> dict[str, RejectedRows]:
        """How many rows of each table were rejected, and for what."""
        return {
            table: RejectedRows(rows=rows, reasons=dict(sorted(self._reasons[table].items())))
            for table, rows in self._rows.items()
        }

    def reader(self, kind: TableType) -> pa.RecordBatchReader:
        """Stream the rejected rows of one type, with their reasons."""
        return pa.RecordBatchReader.from_batches(rejected_schema(kind), self._batches(kind))

    def _batches(self, kind: TableType) -> Iterator[pa.RecordBatch]:
        # A generator of this object, so that the file stays as long as somebody reads.
        if self._spool is not None and str(kind.table) in self._rows:
            yield from self._spool.reader(str(kind.table))


@contextmanager
def rejected_file(path: str) -> Iterator[Callable[[TableType, Iterable[pa.RecordBatch]], None]]:
    """Give what writes rejected rows as records with ``reasons``, into a file that appears when the block ends well."""
    with json_target(Path(path), overwrite=False) as stream:
        yield lambda kind, batches: _write(stream, kind, batches)


def _write(stream: Any, kind: TableType, batches: Iterable[pa.RecordBatch]) -> None:
    for batch in batches:
        *columns, reasons = batch.columns
        lines = record_lines(kind, pa.RecordBatch.from_arrays(columns, schema=plain_schema(kind)))
        texts = json_texts(reasons)
        write_lines(stream, [f'{line[:-1]},"reasons":{text}}}' for line, text in zip(lines, texts, strict=True)])


def counted_together(one: Mapping[str, RejectedRows], other: Mapping[str, RejectedRows]) -> dict[str, RejectedRows]:
    """Add up what was rejected at two places."""
    found = dict(one)
    for table, more in other.items():
        before = found.get(table, RejectedRows(rows=0, reasons={}))
        names = sorted({*before.reasons, *more.reasons})
        reasons = {name: before.reasons.get(name, 0) + more.reasons.get(name, 0) for name in names}
        found[table] = RejectedRows(rows=before.rows + more.rows, reasons=reasons)
    return found


def read_together(*places: Callable[[str], pa.RecordBatchReader]) -> Callable[[str], pa.RecordBatchReader]:
    """Return what streams the rejected rows of a type from several places."""

    def read(type: str) -> pa.RecordBatchReader:
        readers = [place(type) for place in places]
        return pa.RecordBatchReader.from_batches(readers[0].schema, chain.from_iterable(readers))

    return read
