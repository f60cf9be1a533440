"""What a row alone must satisfy: enum, range, check. Nulls are exempt: that a value is required is checked before."""

import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.model.schema import Bound, Check, EnumType, Range, TableType
from omnigraph.rules.constraints import Violation
from omnigraph.rules.values import Column, compute

SAMPLE_MAX: Final = 20

Broken: TypeAlias = npt.NDArray[np.bool_]
Places: TypeAlias = npt.NDArray[np.int64]


class RowChecks:
    """The checks of one table, with what they found so far."""

    def __init__(self, kind: TableType) -> None:
        self._kind = kind
        self._checks = list(_checks(kind))
        self._counts: dict[str, int] = {}
        self._samples: dict[str, list[dict[str, object]]] = {}

    def look(self, rows: pa.Table | pa.RecordBatch) -> None:
        """Check some rows and keep count of those that are wrong."""
        for name, column, broken in self._broken(rows):
            self._note(name, column, rows, broken)

    def take(self, later: "RowChecks") -> None:
        """Add what checks of the same table found in rows that come after these."""
        for found in later.violations:
            self._counts[found.constraint] = self._counts.get(found.constraint, 0) + found.count
            sample = self._samples.setdefault(found.constraint, [])
            sample += found.sample[: SAMPLE_MAX - len(sample)]

    def broken(self, rows: pa.Table | pa.RecordBatch) -> list[tuple[str, Places]]:
        """Return which constraints some rows break, each with the places of the rows, and keep no count."""
        return [(name, places) for name, _, places in self._broken(rows)]

    def _broken(self, rows: pa.Table | pa.RecordBatch) -> Iterator[tuple[str, str, Places]]:
        for name, column, broken_in in self._checks:
            places = np.flatnonzero(broken_in(_whole(rows.column(column))))
            if len(places):
                yield name, column, places

    @property
    def violations(self) -> list[Violation]:
        """What was wrong, by constraint."""
        return [
            Violation(name, str(self._kind.table), count, tuple(self._samples[name]))
            for name, count in self._counts.items()
        ]

    def _note(self, name: str, column: str, rows: pa.Table | pa.RecordBatch, broken: Places) -> None:
        self._counts[name] = self._counts.get(name, 0) + len(broken)
        sample = self._samples.setdefault(name, [])
        for place in broken[: max(0, SAMPLE_MAX - len(sample))].tolist():
            row = {"id": rows.column("id")[place].as_py(), column: rows.column(column)[place].as_py()}
            sample.append(row)


def _checks(kind: TableType) -> Iterable[tuple[str, str, Callable[[Column], Broken]]]:
    for column in kind.properties:
        if isinstance(column.type, EnumType):
            values = pa.array(column.type.values, pa.string())
            yield f"{column.name}: {column.type}", column.name, _Outside(values)
    for constraint in kind.constraints:
        if isinstance(constraint, Range):
            yield f"@range({constraint.column})", constraint.column, _Beyond(constraint)
        elif isinstance(constraint, Check):
            yield f"@check({constraint.column})", constraint.column, _Unmatched(constraint.pattern)


class _Outside:
    def __init__(self, values: Column) -> None:
        self._values = values

    def __call__(self, column: Column) -> Broken:
        known = compute.or_(compute.is_in(column, value_set=self._values), compute.is_null(column))
        return np.asarray(compute.invert(known))


class _Beyond:
    """Outside of bounds; a NaN lies within none."""

    def __init__(self, constraint: Range) -> None:
        self._least, self._most = constraint.minimum, constraint.maximum

    def __call__(self, column: Column) -> Broken:
        broken = self._compared(column, self._least, compute.less)
        broken |= self._compared(column, self._most, compute.greater)
        if pa.types.is_floating(column.type):
            broken |= np.asarray(compute.fill_null(compute.is_nan(column), False))
        return broken

    @staticmethod
    def _compared(column: Column, bound: Bound | None, beyond: Callable[[Column, Column], Column]) -> Broken:
        """Return where a column is beyond a bound; a bound its type can not hold is compared by its side alone."""
        if bound is None:
            return np.zeros(len(column), np.bool_)
        try:
            limit = pa.scalar(bound, column.type)
        except (pa.ArrowInvalid, OverflowError):
            is_below = bound < 0
            always = is_below == (beyond is compute.greater)  # nothing is less than a bound below all values
            return np.array(compute.is_valid(column)) if always else np.zeros(len(column), np.bool_)
        return np.array(compute.fill_null(beyond(column, limit), False))


class _Unmatched:
    def __init__(self, pattern: str) -> None:
        self._search = _expression(pattern).search

    def __call__(self, column: Column) -> Broken:
        return np.array([text is not None and self._search(text) is None for text in column.to_pylist()], np.bool_)


@lru_cache(maxsize=256)
def _expression(pattern: str) -> "re.Pattern[str]":
    return re.compile(pattern)


def _whole(column: Column) -> Column:
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
        if isinstance(column, pa.ChunkedArray):
            column = column.chunk(0)
    return column
