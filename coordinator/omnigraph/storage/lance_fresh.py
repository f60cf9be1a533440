"""Rows this process has just written, kept so that they need not be read to be checked.

A small write is read back once for every constraint that looks at it, and each time is a request or two to an object
store. Data files never change and their names are never used again, so what went into one is what is in it.
"""

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from omnigraph.rules.arrow_schema import is_blob

ROWS_MAX: Final = 1_024
BYTES_MAX: Final = 65_536
FILES_MAX: Final = 256


def is_few(rows: int, size: int) -> bool:
    """Tell whether so many rows, of so many bytes, are worth to be kept."""
    return rows <= ROWS_MAX and size <= BYTES_MAX


class FreshRows:
    """The rows of small files, those written last."""

    def __init__(self, most: int = FILES_MAX) -> None:
        self._most = most
        self._files: OrderedDict[str, pa.Table] = OrderedDict()
        self._lock = threading.Lock()

    def written(self, name: str, batches: Sequence[pa.RecordBatch]) -> None:
        """Keep the few rows that went into a file, but for blobs: those are stored in another form than given."""
        if not batches or any(map(is_blob, batches[0].schema)):
            return
        # A copy: a part of something large would keep all of it.
        kept = [batch.take(np.arange(batch.num_rows)) for batch in batches]
        with self._lock:
            self._files[name] = pa.Table.from_batches(kept)
            while len(self._files) > self._most:
                self._files.popitem(last=False)

    def columns(self, name: str, columns: Sequence[str]) -> pa.Table | None:
        """Return columns of all rows of a file, in order, if they are known."""
        with self._lock:
            rows = self._files.get(name)
        return None if rows is None else rows.select(list(columns))


FRESH_ROWS: Final = FreshRows()
