"""What rows may be given as to a transaction, and reading it a piece at a time."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import pyarrow as pa

from omnigraph.rules.conform import Rows

AnyRows: TypeAlias = "Rows | pa.RecordBatchReader | Iterable[Mapping[str, Any]]"
LONG_ROWS_MIN: Final = 65_536


def is_long(rows: AnyRows) -> bool:
    """Tell whether rows come in several parts, so that it pays to prepare one while another is written."""
    if isinstance(rows, pa.Table):
        return len(rows) > LONG_ROWS_MIN
    return isinstance(rows, pa.RecordBatchReader)


def parts_of(rows: AnyRows) -> Iterator[Rows]:
    """Yield what was given in pieces that can be looked at whole."""
    if isinstance(rows, pa.RecordBatchReader):
        yield from rows
    elif isinstance(rows, pa.Table):
        yield from rows.to_batches()
    elif isinstance(rows, pa.RecordBatch | Sequence):
        yield rows
    else:
        yield list(rows)
