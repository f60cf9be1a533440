"""Looking at many rows a portion at a time, so that a question about them needs memory for one portion only.

Rows belong to a portion by a text they have: equal texts are always in the same one. So what has to be compared by that
text meets, also when it comes from different tables. Rows are dealt out once, into a local file.
"""

from collections.abc import Mapping
from typing import Final

import numpy as np
import pyarrow as pa

from omnigraph.engine.deltas import Delta
from omnigraph.rules.fingerprints import fingerprints
from omnigraph.rules.values import Column
from omnigraph.storage.relations import Relation
from omnigraph.storage.spool import Spool

ROWS_TOGETHER_MAX: Final = 2**20
UPPER_HALF: Final = np.uint64(32)


class Portions:
    """Columns of the rows that a write adds to a table, dealt out by the text in one of them."""

    def __init__(self, spool: Spool, delta: Delta, named: Mapping[str, str], by: str, of: int) -> None:
        self._spool = spool
        self._by = by
        self._of = of
        self._key = f"{delta.kind.table} by {by}"
        self._schema = delta.schema_of(named)
        for number in range(of):
            spool.open_table(f"{number} {self._key}", self._schema)
        for batch in delta.new_batches(named):
            self._deal(batch)

    def _deal(self, batch: pa.RecordBatch) -> None:
        numbers = (fingerprints(batch.column(self._by)) >> UPPER_HALF) % np.uint64(self._of)
        for number in range(self._of):
            places = np.flatnonzero(numbers == number)
            if len(places):
                self._spool.add(f"{number} {self._key}", batch.take(pa.array(places, pa.int64())))

    def relation(self, number: int) -> Relation:
        """Return the rows of one portion."""
        return lambda: self._spool.reader(f"{number} {self._key}")

    def texts(self, number: int) -> Column:
        """Return the texts that the rows of one portion were dealt out by."""
        parts = [batch.column(self._by) for batch in self._spool.reader(f"{number} {self._key}")]
        return pa.chunked_array(parts, pa.string())


def portions_needed(rows: int) -> int:
    """Return how many portions keep so many rows in hand."""
    return max(1, -(-rows // ROWS_TOGETHER_MAX))
