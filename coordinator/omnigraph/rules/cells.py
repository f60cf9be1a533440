"""Rows that both sides changed, merged column by column: what one side left as it was, the other may change."""

from dataclasses import dataclass

import pyarrow as pa

from omnigraph.rules.row_changes import ComparedTable, field_of
from omnigraph.rules.same_rows import same_values
from omnigraph.rules.values import Column, compute


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedCells:
    """The columns of merged rows, which of them come from the source, and in which rows both sides clash."""

    columns: tuple[Column, ...]
    from_theirs: tuple[Column, ...]
    clash: Column


def merged_cells(table: ComparedTable, base: Column, ours: Column, theirs: Column) -> MergedCells:
    """Merge rows that all three have; where both sides changed a column, they must have changed it alike."""
    columns, sources = [], []
    clash: Column = pa.repeat(pa.scalar(False), len(base))
    for number in range(len(table.columns)):
        was, mine, other = (field_of(rows, number) for rows in (base, ours, theirs))
        their_change = compute.invert(same_values(was, other))
        our_change = compute.invert(same_values(was, mine))
        differ = compute.invert(same_values(mine, other))
        clash = compute.or_(clash, compute.and_(compute.and_(their_change, our_change), differ))
        columns.append(chosen(their_change, other, mine))
        sources.append(their_change)
    return MergedCells(columns=tuple(columns), from_theirs=tuple(sources), clash=clash)


def chosen(which: Column, yes: Column, no: Column) -> Column:
    """Return values of one column or of the other, row by row, whatever their type."""
    both = pa.concat_arrays([_whole(yes), _whole(no)])
    rows = pa.array(range(len(no)), pa.int64())
    return both.take(compute.if_else(which, rows, compute.add(rows, len(no))))


def _whole(column: Column) -> Column:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
