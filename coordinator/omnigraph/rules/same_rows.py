"""Whether rows are the same, value by value, as typed Arrow values.

Null equals null and nothing else. NaN equals NaN, whatever its bits; -0.0 equals 0.0, as it does in
arithmetic, so writing one over the other is no change. Text is compared byte by byte.
"""

import pyarrow as pa

from omnigraph.rules.values import Column, compute


def same_rows(left: pa.RecordBatch, right: pa.RecordBatch) -> Column:
    """Return one boolean per row: whether both batches, which have the same columns, agree on it."""
    verdict: Column = pa.repeat(pa.scalar(True), left.num_rows)
    for one, other in zip(left.columns, right.columns, strict=True):
        verdict = compute.and_(verdict, same_values(one, other))
    return verdict


def same_values(left: Column, right: Column) -> Column:
    """Return one boolean per value of two columns of the same type."""
    left, right = _plain(left), _plain(right)
    if left.type != right.type:
        raise TypeError(f"{left.type} and {right.type} are not compared")
    kind = left.type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return _same_lists(left, right)
    if pa.types.is_struct(kind):
        return _same_structs(left, right)
    same = compute.fill_null(compute.equal(left, right), False)
    if pa.types.is_floating(kind):
        both_nan = compute.and_(compute.is_nan(left), compute.is_nan(right))
        same = compute.or_(same, compute.fill_null(both_nan, False))
    return compute.or_(same, _both_null(left, right))


def _same_lists(left: Column, right: Column) -> Column:
    """Compare lists of equal length element by element, all of them in one go."""
    lengths = compute.equal(compute.list_value_length(left), compute.list_value_length(right))
    alike = compute.fill_null(lengths, False)
    rows = compute.indices_nonzero(alike)
    ours, theirs = left.take(rows), right.take(rows)
    elements = same_values(compute.list_flatten(ours), compute.list_flatten(theirs))
    differing = compute.list_parent_indices(ours).filter(compute.invert(elements))
    same = alike.to_numpy(zero_copy_only=False).copy()
    same[rows.take(differing).to_numpy()] = False
    return compute.or_(pa.array(same, pa.bool_()), _both_null(left, right))


def _same_structs(left: Column, right: Column) -> Column:
    same = compute.and_(compute.is_valid(left), compute.is_valid(right))
    for number in range(left.type.num_fields):
        mine, other = compute.struct_field(left, [number]), compute.struct_field(right, [number])
        same = compute.and_(same, same_values(mine, other))
    return compute.or_(same, _both_null(left, right))


def _both_null(left: Column, right: Column) -> Column:
    return compute.and_(compute.is_null(left), compute.is_null(right))


def _plain(column: Column) -> Column:
    """Return the column without its extension type, in one piece."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    return column.storage if isinstance(column, pa.ExtensionArray) else column
