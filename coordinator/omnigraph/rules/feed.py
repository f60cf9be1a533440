"""The rows of a change feed: in one form from its first commit to its last, whatever the schema was meanwhile.

A feed shows a type as one schema has it. Properties are matched by their identity: one that was renamed is shown under
the name it has there, one that a commit did not have yet, or has no more, is null in the rows of that commit.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.ids import CommitId
from omnigraph.model.lineage import to_micros
from omnigraph.model.schema import ENDPOINT_COLUMNS, EdgeType, TableType
from omnigraph.rules.arrow_schema import arrow_field, is_blob
from omnigraph.rules.record_text import record_lines
from omnigraph.rules.records import plain_schema
from omnigraph.rules.row_changes import DIGEST, ComparedColumn, ComparedTable
from omnigraph.rules.same_rows import same_values
from omnigraph.rules.values import Column, compute

INSERT, DELETE = "insert", "delete"
PREIMAGE, POSTIMAGE = "update_preimage", "update_postimage"
MOMENT: Final = pa.timestamp("us", tz="UTC")
TOLD_FIELDS: Final[tuple[Any, ...]] = (
    pa.field("_change_type", pa.string()),
    pa.field("_commit_version", pa.int64()),
    pa.field("_commit_id", pa.string()),
    pa.field("_commit_timestamp", MOMENT),
)
"""What a feed says of every row; no property can have such a name."""
EVERY_TYPE: Final = pa.schema(
    [*(pa.field(name, pa.string()) for name in ("table_key", "id", *ENDPOINT_COLUMNS, "row")), *TOLD_FIELDS]
)
"""The columns of a feed of all types: what is particular to a type is the text of ``row``."""
KEEPS_ROWS: Final = frozenset({"ensure_indices", "optimize"})
"""Operations that change how rows are stored, and no row."""


class Told(NamedTuple):  # a feed makes one for every commit, and tuples are sooner made
    """What a feed says of the commit that changed a row."""

    version: int
    commit: CommitId
    at: datetime


def feed_schema(kind: TableType) -> pa.Schema:
    """Return the columns of a feed of one type: its own, and what is told."""
    return pa.schema([*plain_schema(kind), *TOLD_FIELDS])


def shown_table(kind: TableType) -> ComparedTable:
    """Return how rows are compared in a feed: by all that it shows."""
    ends = [_column(name, pa.string()) for name in ENDPOINT_COLUMNS] if isinstance(kind, EdgeType) else []
    fields = [arrow_field(column) for column in kind.properties]
    own = [_column(field.name, DIGEST if is_blob(field) else field.type, is_blob=is_blob(field)) for field in fields]
    return ComparedTable(key=str(kind.table), is_edge=isinstance(kind, EdgeType), columns=(*ends, *own))


def _column(name: str, kind: pa.DataType, *, is_blob: bool = False) -> ComparedColumn:
    return ComparedColumn(name=name, old_name=name, new_name=name, type=kind, is_blob=is_blob)


def names_in(kind: TableType, there: TableType | None) -> tuple[str | None, ...]:
    """Return what the columns a feed shows of a type, its id aside, are called in a commit; None where it has none."""
    known = {} if there is None else {column.id: column.name for column in there.properties}
    ends = ENDPOINT_COLUMNS if isinstance(kind, EdgeType) else ()
    return (*ends, *(known.get(column.id) for column in kind.properties))


def shown(schema: pa.Schema, names: Sequence[str | None], rows: pa.RecordBatch) -> list[Column]:
    """Return rows of a commit as a feed of that schema shows them; what the commit does not have is null."""
    found: list[Column] = []
    for name, field in zip(("id", *names), schema, strict=False):  # which goes on with what is told
        column: Column = pa.nulls(rows.num_rows, field.type) if name is None else rows.column(name)
        found.append(column if column.type == field.type else column.cast(field.type))
    return found


def told_of(told: Sequence[Told], which: npt.NDArray[np.int64]) -> list[Column]:
    """Return version, id and time of the commits that rows are of, by their number."""
    versions = np.array([each.version for each in told], np.int64)
    moments = np.array([to_micros(each.at) for each in told], np.int64)
    ids = _texts([each.commit for each in told], which)
    return [pa.array(versions[which]), ids, pa.array(moments[which]).cast(MOMENT)]


def _texts(values: Sequence[str], which: npt.NDArray[np.int64]) -> Column:
    """Return texts by their number; of texts of one length, as ids are, numpy makes a column eight times as fast."""
    plain = [value.encode() for value in values]
    size = len(plain[0])
    if any(len(each) != size or each.endswith(b"\0") for each in plain):  # which numpy takes for no byte at all
        return pa.array(values, pa.string()).take(pa.array(which, pa.int64()))
    ends = np.arange(len(which) + 1, dtype=np.int32) * size
    texts = np.array(plain, f"S{size}")[which]
    return pa.Array.from_buffers(
        pa.string(), len(which), [None, pa.py_buffer(ends.tobytes()), pa.py_buffer(texts.tobytes())]
    )


def changed_among(old: pa.Table, new: pa.Table) -> list[pa.RecordBatch]:
    """Return what the plan ``CHANGED`` finds, of few rows: starting an engine would take longer."""
    at = compute.index_in(new.column("id"), value_set=old.column("id"))
    there = compute.is_valid(at)
    before, after = old.take(at.drop_null()), new.filter(there)
    differs = compute.invert(same_values(before.column("row"), after.column("row")))
    gone = old.filter(compute.invert(compute.is_in(old.column("id"), value_set=new.column("id"))))
    parts = [(gone, None), (before.filter(differs), after.filter(differs)), (None, new.filter(compute.invert(there)))]
    return pa.concat_tables([_paired(one, other, old.schema) for one, other in parts]).combine_chunks().to_batches()


def _paired(old: pa.Table | None, new: pa.Table | None, schema: pa.Schema) -> pa.Table:
    """Return rows beside each other, those that are on one side only beside nothing."""
    some = old if old is not None else new
    assert some is not None  # noqa: S101  one side is there
    ids, columns = some.column("id"), {}
    for side, rows in (("old", old), ("new", new)):
        for name, field in ((side, "row"), (f"{side}_at", "at")):
            kind: Any = schema.field(field).type
            columns[name] = pa.nulls(some.num_rows, kind) if rows is None else rows.column(field)
    return pa.table({"id": ids, **columns})


def of_every_type(kind: TableType, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows of a feed of one type as those of a feed of all types; ``row`` is a record that can be loaded."""
    own = len(rows.schema) - len(TOLD_FIELDS)
    record = pa.RecordBatch.from_arrays(rows.columns[:own], names=rows.schema.names[:own])
    is_edge = isinstance(kind, EdgeType)
    ends = [rows.column(name) if is_edge else pa.nulls(rows.num_rows, pa.string()) for name in ENDPOINT_COLUMNS]
    key = pa.array([str(kind.table)] * rows.num_rows, pa.string())
    lines = pa.array(record_lines(kind, record), pa.string())
    return pa.RecordBatch.from_arrays([key, rows.column("id"), *ends, lines, *rows.columns[own:]], schema=EVERY_TYPE)
