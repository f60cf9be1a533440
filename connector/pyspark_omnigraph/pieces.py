"""A stream of Arrow in pieces of bytes, which the SQL catalog's Java puts together to whole columns again.

Spark takes rows one by one out of the batches that a Python source gives, and that is most of what a scan costs. So a
scan of the catalog gives it few rows, with one value each: a piece of a stream that Java reads in whole batches.
"""

from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np
import pyarrow as pa

PIECES: Final = pa.schema([pa.field("_piece", pa.binary())])
PIECE_BYTES: Final = 2**18
"""Small enough for a processor's cache, because Spark copies each a few times, and for Java not to count as huge."""
MESSAGE_BYTES_MAX: Final = 2**30
"""What one batch may take; pieces of a batch are counted in 31 bits."""


def pieces(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the stream of some batches as batches of pieces, each with whole messages; nothing if there are no rows."""
    is_begun = False
    for batch in batches:
        for part in _parts(batch):
            if not is_begun:
                yield _cut(schema.serialize())
                is_begun = True
            yield _cut(part.serialize())


def _parts(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield a batch in as many parts as it takes for each to be a message; not one without rows."""
    if batch.num_rows > 1 and batch.nbytes > MESSAGE_BYTES_MAX:
        half = batch.num_rows // 2
        yield from _parts(batch.slice(0, half))
        yield from _parts(batch.slice(half))
    elif batch.num_rows:
        yield batch


def _cut(message: pa.Buffer) -> pa.RecordBatch:
    """Return a message as rows of one value each; its bytes are not copied."""
    ends = np.append(np.arange(0, message.size, PIECE_BYTES), message.size).astype(np.int32)
    cut = pa.Array.from_buffers(pa.binary(), len(ends) - 1, [None, pa.py_buffer(ends.tobytes()), message])
    return pa.RecordBatch.from_arrays([cut], schema=PIECES)
