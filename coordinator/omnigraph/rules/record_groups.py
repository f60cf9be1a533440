"""Many decoded records at once, as columns: those that have the same fields are looked at together.

Only records that nothing is wrong with become columns here. For all others the answer is None, and they are to be
looked at one by one, as :mod:`omnigraph.rules.records` does it, which says what is wrong with which.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.errors import TypeNotFoundError
from omnigraph.model.catalog import Catalog
from omnigraph.model.schema import EdgeType, TableType
from omnigraph.rules.records import EDGE_FIELDS, ENDPOINT_NAMES, NODE_FIELDS, BadRecordError, Row, batch_of_rows

Numbers: TypeAlias = npt.NDArray[np.int64]
NO_DATA: Final[Row] = {}


@dataclass(frozen=True, slots=True)
class Group:
    """Rows of one type, and which of the records each was."""

    kind: TableType
    batch: pa.RecordBatch
    places: Numbers


def groups_of(catalog: Catalog, records: Sequence[Row], only: TableType | None = None) -> list[Group] | None:
    """Return records as columns of their types, in their order; None if anything about one of them is unusual."""
    found: dict[str, list[Group]] = {}
    try:
        for kind, places in _typed(catalog, records, only):
            batch = _batch(kind, [records[place] for place in places])
            found.setdefault(kind.name, []).append(Group(kind, batch, np.asarray(places, np.int64)))
    except (_UnusualError, BadRecordError):
        return None
    return [_joined(groups) for groups in found.values()]


class _UnusualError(ValueError):
    """Something that has to be looked at one by one."""


def _typed(catalog: Catalog, records: Sequence[Row], only: TableType | None) -> Iterator[tuple[TableType, list[int]]]:
    """Yield the types that occur, with the places of their records."""
    for name, places in _by_value([record.get("type") for record in records]):
        if name is not None:
            yield _kind(catalog, name, only), places
            continue
        for edge, some in _by_value([records[place].get("edge") for place in places]):
            yield _kind(catalog, edge, only), [places[at] for at in some]


def _by_value(values: Sequence[Any]) -> Iterator[tuple[Any, list[int]]]:
    """Yield each distinct value, with its places."""
    if not {str, type(None)}.issuperset(map(type, values)):
        raise _UnusualError
    codes = {value: code for code, value in enumerate(dict.fromkeys(values))}
    coded = np.fromiter(map(codes.__getitem__, values), np.int64, len(values))
    for value, code in codes.items():
        yield value, np.flatnonzero(coded == code).tolist()


def _kind(catalog: Catalog, name: str | None, only: TableType | None) -> TableType:
    try:
        kind = catalog.type(name or "")
    except TypeNotFoundError:
        raise _UnusualError from None
    if only is not None and kind is not only:
        raise _UnusualError
    return kind


def _batch(kind: TableType, records: Sequence[Row]) -> pa.RecordBatch:
    fields: set[str] = set().union(*records)
    is_edge = isinstance(kind, EdgeType)
    # A record of the other kind has a field that this one has not: 'type' or 'edge'.
    if not fields <= (EDGE_FIELDS if is_edge else NODE_FIELDS):
        raise _UnusualError
    data = [record.get("data", NO_DATA) for record in records]
    if set(map(type, data)) != {dict}:
        raise _UnusualError
    try:
        ends = {to: [record[name] for record in records] for name, to in ENDPOINT_NAMES.items()} if is_edge else {}
    except KeyError:
        raise _UnusualError from None
    ids = {"id": [record.get("id") for record in records]} if "id" in fields else {}
    return batch_of_rows(kind, data, {**ends, **ids})


def _joined(groups: Sequence[Group]) -> Group:
    """Put groups of one type together, in the order of their records."""
    if len(groups) == 1:
        return groups[0]
    places = np.concatenate([group.places for group in groups])
    order = np.argsort(places)
    table = pa.Table.from_batches([group.batch for group in groups]).take(order)
    return Group(groups[0].kind, table.combine_chunks().to_batches()[0], places[order])
