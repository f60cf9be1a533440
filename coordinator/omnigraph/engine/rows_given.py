"""What rows may be given as to a transaction, and reading it a piece at a time.

pandas is never imported here: whoever gives a DataFrame has done so.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike
from typing import Any, Final, TypeAlias

import pyarrow as pa

from omnigraph.engine.intake import Intake
from omnigraph.engine.origins import Origins
from omnigraph.engine.rejected import Rejected
from omnigraph.engine.session import Session
from omnigraph.errors import InvalidDataError
from omnigraph.model.catalog import Catalog
from omnigraph.model.schema import TableType
from omnigraph.rules.conform import Rows
from omnigraph.rules.values import ARROW_ERRORS, Column
from omnigraph.storage.record_sources import OBJECT_SCHEME
from omnigraph.storage.spool import Spool

Frame: TypeAlias = Any
"""A pandas DataFrame."""
AnyRows: TypeAlias = "Rows | pa.RecordBatchReader | Iterable[Mapping[str, Any]] | str | PathLike[str] | Frame"
LONG_ROWS_MIN: Final = 65_536
FRAME_ROWS: Final = 65_536


@contextmanager
def unfiled(
    session: Session, catalog: Catalog, kind: TableType, rows: AnyRows, rejected: Rejected | None
) -> Iterator[AnyRows]:
    """Give rows as they are, or what the files hold that a path, a pattern or an address means; none twice in memory.

    Files are read as a load reads them: all of it is made to fit, and set aside on local disk, before any is given.
    """
    if not isinstance(rows, str | PathLike):
        yield rows
        return
    is_stored = str(rows).startswith(OBJECT_SCHEME) and not session.root.is_local
    with Spool() as spool, Spool() as origins:
        taken = Origins(spool, origins)
        Intake(catalog, taken, session.sources.mint_many, rejected).read(
            rows, only=kind, format=None, options=session.root.options if is_stored else None, progress=None
        )
        yield taken.reader(kind)


def is_long(rows: Any) -> bool:
    """Tell whether rows come in several parts, so that it pays to prepare one while another is written."""
    if isinstance(rows, pa.Table) or _is_frame(rows):
        return len(rows) > LONG_ROWS_MIN
    return isinstance(rows, pa.RecordBatchReader)


def parts_of(rows: Any, kind: TableType) -> Iterator[Rows]:
    """Yield what was given in pieces that can be looked at whole."""
    if isinstance(rows, pa.RecordBatchReader):
        yield from rows
    elif isinstance(rows, pa.Table):
        yield from rows.to_batches()
    elif _is_frame(rows):
        yield from _parts_of_frame(rows, kind)
    elif isinstance(rows, pa.RecordBatch | Sequence):
        yield rows
    elif isinstance(rows, Iterable):
        yield list(rows)
    else:
        raise InvalidDataError(f"rows of {kind.table} can not be a {type(rows).__name__}", table_key=str(kind.table))


def _is_frame(rows: Any) -> bool:
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(rows, pandas.DataFrame)


def _parts_of_frame(frame: Frame, kind: TableType) -> Iterator[pa.Table]:
    """Yield a DataFrame as Arrow columns; an index counts if it has a name, and what pandas calls missing is null."""
    if any(name is not None for name in frame.index.names):
        frame = frame.reset_index()
    for name in frame.columns:
        if not isinstance(name, str):
            raise InvalidDataError(
                f"columns of {kind.table} have texts as names, but one of the DataFrame's is {name!r:.60}",
                table_key=str(kind.table),
            )
    for start in range(0, len(frame), FRAME_ROWS):
        some = frame.iloc[start : start + FRAME_ROWS]
        columns = [_column(some.iloc[:, place], kind) for place in range(len(frame.columns))]
        yield pa.Table.from_arrays(columns, names=list(frame.columns))


def _column(series: Any, kind: TableType) -> Column:
    made: Any = pa.array
    try:
        return made(series, from_pandas=True)
    except (*ARROW_ERRORS, ValueError, TypeError) as problem:
        raise InvalidDataError(
            f"{kind.table}.{series.name} does not fit: {problem}; nothing was applied",
            table_key=str(kind.table),
            column=series.name,
        ) from problem
