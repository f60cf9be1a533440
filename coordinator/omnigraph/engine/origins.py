"""Rows on their way in, with where each came from, so that an error about a row can name its record.

Both lie on disk. What is asked later, about the few rows that an error shows, takes one more look at all of them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from omnigraph.engine.integrity import refuse
from omnigraph.errors import ConstraintError, InvalidDataError, OmnigraphError
from omnigraph.model.catalog import Catalog
from omnigraph.model.schema import TableType
from omnigraph.rules import records
from omnigraph.rules.constraints import Violation
from omnigraph.rules.record_groups import Numbers
from omnigraph.rules.values import Column, compute
from omnigraph.storage.spool import Spool

WHERE: Final = pa.schema([("record", pa.int64()), ("file", pa.int32())])
JOINED_ROWS: Final = 32_768
JOINED_BYTES: Final = 4 * 2**20
PLACES_SHOWN_MAX: Final = 5
EDGE_COUNT: Final = "edges"

Place: TypeAlias = tuple[str | None, int]
"""The name of a file, if there are several, and the number of a record in it."""


class Origins:
    """The rows of a load, in a spool, and their origins, in another."""

    def __init__(self, rows: Spool, origins: Spool) -> None:
        self._rows = rows
        self._origins = origins
        self._files: list[str] = []
        self.has_many_files = False

    @property
    def counts(self) -> dict[str, int]:
        """How many rows each table was given."""
        return self._rows.rows

    def begin_file(self, name: str) -> None:
        """Rows that follow are of this file."""
        self._files.append(name)

    def open_table(self, kind: TableType) -> None:
        """Name a table, also one that will be given no rows."""
        self._rows.open_table(str(kind.table), records.plain_schema(kind))
        self._origins.open_table(str(kind.table), WHERE)

    def add(self, kind: TableType, batch: pa.RecordBatch, numbers: Numbers) -> None:
        """Set rows aside, with the numbers of their records."""
        self.open_table(kind)
        file = np.full(len(numbers), len(self._files) - 1, np.int32)
        self._rows.add(str(kind.table), batch)
        self._origins.add(
            str(kind.table), pa.RecordBatch.from_arrays([pa.array(numbers), pa.array(file)], schema=WHERE)
        )

    def reader(self, kind: TableType) -> pa.RecordBatchReader:
        """Stream a table's rows."""
        schema = records.plain_schema(kind)
        return pa.RecordBatchReader.from_batches(schema, _joined(self._rows.reader(str(kind.table))))

    def places(self, kind: TableType, column: str, values: Iterable[object]) -> dict[object, list[Place]]:
        """Return the first few records that have one of some texts in a column."""
        wanted = pa.array(sorted({value for value in values if isinstance(value, str)}), pa.string())
        found: dict[object, list[Place]] = {}
        if str(kind.table) not in self.counts or not len(wanted):
            return found
        both = zip(self._rows.reader(str(kind.table)), self._origins.reader(str(kind.table)), strict=True)
        for batch, where in both:
            texts = _column(kind, batch, column)
            for at in np.flatnonzero(compute.is_in(texts, value_set=wanted)).tolist():
                there = found.setdefault(texts[at].as_py(), [])
                if len(there) < PLACES_SHOWN_MAX:
                    there.append(self._place(where.column("file")[at].as_py(), where.column("record")[at].as_py()))
        return found

    def _place(self, file: int, record: int) -> Place:
        return self._files[file] if self.has_many_files else None, record


def _column(kind: TableType, batch: pa.RecordBatch, column: str) -> Column:
    if column != "id":
        return batch.column(column)
    ids = records.ids_of(kind, dict(zip(batch.schema.names, batch.columns, strict=True)))
    return ids.combine_chunks() if isinstance(ids, pa.ChunkedArray) else ids


def _joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Put small batches together: each that is written has a price."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        held.append(batch)
        if sum(each.num_rows for each in held) >= JOINED_ROWS or sum(each.nbytes for each in held) >= JOINED_BYTES:
            yield from _one(held)
            held = []
    yield from _one(held)


def _one(batches: list[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
    return batches if len(batches) < 2 else pa.Table.from_batches(batches).combine_chunks().to_batches()


# -- errors ---------------------------------------------------------------------------------------------


def with_records(error: OmnigraphError, catalog: Catalog, rows: Origins, table: str | None) -> OmnigraphError:
    """Return an error about rows with the records they came from, or the error itself if it shows none of them.

    ``table`` is the one that was being written, for an error that does not say.
    """
    if isinstance(error, ConstraintError):
        return _constraint_error(error, catalog, rows)
    sample, key = error.facts.get("sample"), error.facts.get("table_key") or table
    if not isinstance(error, InvalidDataError) or not sample or key is None:
        return error
    found = rows.places(catalog.table_type(key), "id", sample)
    if not found:
        return error
    told = "; ".join(f"{value!r} is {_shown(found[value])}" for value in sample if value in found)
    facts = {**error.facts, "table_key": key, "records": {str(value): _plain(found[value]) for value in found}}
    return InvalidDataError(f"{error.message}; {told}", **facts)


def _constraint_error(error: ConstraintError, catalog: Catalog, rows: Origins) -> OmnigraphError:
    told = [_told(each, catalog, rows) for each in error.facts.get("violations", ())]
    try:
        refuse(told)
    except ConstraintError as better:
        return better
    return error


def _told(violation: Mapping[str, Any], catalog: Catalog, rows: Origins) -> Violation:
    kind, sample = catalog.table_type(violation["table_key"]), violation["sample"]
    column = "src" if sample and set(sample[0]) == {"src", EDGE_COUNT} else "id"
    found = rows.places(kind, column, (row.get(column) for row in sample))
    told = tuple({**row, **_facts(found.get(row.get(column), ()))} for row in sample)
    return Violation(violation["constraint"], violation["table_key"], violation["count"], told)


def _facts(places: Sequence[Place]) -> dict[str, object]:
    """Return places as a sample shows them."""
    if not places:
        return {}
    if len(places) > 1:
        return {"records": _plain(places)}
    file, record = places[0]
    return {"record": record} if file is None else {"file": file, "record": record}


def _plain(places: Sequence[Place]) -> list[object]:
    return [record if file is None else f"{file}:{record}" for file, record in places]


def _shown(places: Sequence[Place]) -> str:
    return ("record " if len(places) == 1 else "records ") + ", ".join(map(str, _plain(places)))
