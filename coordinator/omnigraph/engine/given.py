"""Rows that were given for one table and wait for a verdict, on local disk, each with its number."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.engine.deltas import ROW
from omnigraph.engine.repeats import Repeats
from omnigraph.model.schema import TableType
from omnigraph.rules.arrow_schema import arrow_schema, is_blob
from omnigraph.rules.records import plain_schema
from omnigraph.rules.sifting import Reason, Reasons
from omnigraph.rules.values import Column, compute
from omnigraph.storage.spool import Spool

Writing = Literal["append", "upsert", "overwrite"]
Rows: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]


@dataclass(slots=True)
class _Part:
    """The rows of one verb; the columns that decide lie apart, so that asking does not read all the others."""

    whole: str
    keys: str
    count: int = 0
    start: int = 0


class Given:
    """What a write would do to one table with the rows that are still wanted of those it was given."""

    def __init__(self, kind: TableType, keys: Sequence[str], spool: Spool) -> None:
        self.kind = kind
        self.repeats = Repeats()
        self._keys = list(keys)
        self._spool = spool
        self._parts: dict[Writing, _Part] = {}
        self._wanted: Mask = np.zeros(0, np.bool_)
        self._replacing: Mask = np.zeros(0, np.bool_)
        self._rejected: list[tuple[Reason, Rows]] = []

    def open(self, verb: Writing) -> None:
        """Name a verb, also one that will be given no rows."""
        if verb not in self._parts:
            table, schema = str(self.kind.table), arrow_schema(self.kind)
            part = _Part(f"{verb} {table}", f"{verb} {table} keys")
            self._spool.open_table(part.whole, schema)
            self._spool.open_table(part.keys, pa.schema([schema.field(name) for name in self._keys]))
            self._parts[verb] = part

    def add(self, verb: Writing, rows: pa.Table) -> None:
        """Take rows as the table stores them."""
        part = self._parts[verb]
        self.repeats.note(rows.column("id"))
        for batch in rows.to_batches():
            self._spool.add(part.whole, batch)
            self._spool.add(part.keys, batch.select(self._keys))
            part.count += batch.num_rows

    def number(self) -> None:
        """Give all rows their numbers, and want all of them; none may be added after this."""
        total = 0
        for part in self._parts.values():
            part.start = total
            total += part.count
        self._wanted = np.ones(total, np.bool_)
        self._replacing = np.zeros(total, np.bool_)

    @property
    def verbs(self) -> tuple[Writing, ...]:
        """The verbs that were used."""
        return tuple(self._parts)

    def count(self, verb: Writing) -> int:
        """Return how many rows one verb was given."""
        return self._parts[verb].count if verb in self._parts else 0

    def numbers(self, verb: Writing) -> Rows:
        """Return the numbers of one verb's rows."""
        part = self._parts[verb]
        return np.arange(part.start, part.start + part.count)

    def replace(self, rows: Rows) -> None:
        """Note which rows take the place of others that are there."""
        self._replacing[rows] = True

    def reject(self, rows: Rows, reason: Reason) -> None:
        """Do not want some rows any more."""
        self._rejected.append((reason, rows))

    def settle(self) -> bool:
        """Leave out what was rejected since; tell whether anything was that was wanted."""
        before = int(self._wanted.sum())
        for _, rows in self._rejected:
            self._wanted[rows] = False
        return int(self._wanted.sum()) < before

    # -- as a change --------------------------------------------------------------------------------

    @property
    def adds(self) -> bool:
        """Whether rows are added or replaced."""
        return True

    @property
    def is_overwrite(self) -> bool:
        """Whether nothing stays of what is there."""
        return "overwrite" in self._parts

    @property
    def loses(self) -> bool:
        """Whether ids may be gone afterwards."""
        return self.is_overwrite

    @property
    def size(self) -> int:
        """How many rows were given."""
        return sum(part.count for part in self._parts.values())

    def rows(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Stream some of the columns that decide, of the rows that are wanted."""
        return self._keys_of(columns, self._wanted, self._parts)

    def ids(self, verb: Writing) -> Iterator[Column]:
        """Stream the ids of one verb's rows that are wanted."""
        some = {verb: self._parts[verb]}
        return (batch.column("id") for batch in self._keys_of(["id"], self._wanted, some))

    def gone_ids(self) -> Column:
        """Return the ids of rows that are replaced."""
        some = self._keys_of(["id"], self._wanted & self._replacing, self._parts)
        return pa.chunked_array([batch.column("id") for batch in some], pa.string())

    def _keys_of(self, columns: Sequence[str], mask: Mask, parts: Mapping[Writing, _Part]) -> Iterator[pa.RecordBatch]:
        for part in parts.values():
            for numbers, batch in self._read(part, part.keys):
                picked = [pa.array(numbers) if name == ROW else batch.column(name) for name in columns]
                yield _masked(pa.RecordBatch.from_arrays(picked, names=list(columns)), mask[numbers])

    def _read(self, part: _Part, name: str) -> Iterator[tuple[Rows, pa.RecordBatch]]:
        start = part.start
        for batch in self._spool.reader(name):
            yield np.arange(start, start + batch.num_rows), batch
            start += batch.num_rows

    # -- whole rows ---------------------------------------------------------------------------------

    def wanted(self, verb: Writing) -> Iterator[pa.RecordBatch]:
        """Stream the rows of one verb that are wanted."""
        part = self._parts[verb]
        for numbers, batch in self._read(part, part.whole):
            good = _masked(batch, self._wanted[numbers])
            if good.num_rows:
                yield good

    def unwanted(self) -> Iterator[tuple[pa.Table, Reasons]]:
        """Stream the others in plain columns, with the reasons."""
        if self._wanted.all():
            return
        for part in self._parts.values():
            for numbers, batch in self._read(part, part.whole):
                out = numbers[~self._wanted[numbers]]
                if len(out):
                    yield plain_rows(self.kind, _masked(batch, ~self._wanted[numbers])), self._reasons_of(out)

    def _reasons_of(self, out: Rows) -> Reasons:
        found: Reasons = [[] for _ in out]
        for reason, rows in self._rejected:
            # Both are ascending: a range of the rows is all that can be among these.
            first, end = np.searchsorted(rows, [out[0], out[-1] + 1])
            for place in np.searchsorted(out, rows[first:end]).tolist():
                found[place].append(reason)
        return found


def plain_rows(kind: TableType, rows: pa.RecordBatch | pa.Table) -> pa.Table:
    """Return stored rows as files hold them: blobs are bytes."""
    columns: list[Column] = [
        compute.struct_field(column, 0) if is_blob(field) else column
        for field, column in zip(arrow_schema(kind), rows.columns, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=plain_schema(kind))


def _masked(batch: pa.RecordBatch, mask: Mask) -> pa.RecordBatch:
    whole: Any = batch
    return batch if mask.all() else whole.filter(pa.array(mask))
