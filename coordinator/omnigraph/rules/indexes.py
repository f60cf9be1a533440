"""Which indexes a type has, how they are called in reports, and which fragments are indexed together."""

from collections.abc import Mapping, Sequence
from typing import Final

from omnigraph.model.indexes import LOOKUP_KINDS, IndexKind, WantedIndex
from omnigraph.model.schema import (
    ENDPOINT_COLUMNS,
    EdgeType,
    EnumType,
    Index,
    Key,
    ListType,
    PropertyType,
    Scalar,
    ScalarType,
    TableType,
    Unique,
    VectorType,
)

SEGMENT_ROWS: Final = 2_500_000
"""More rows than this are indexed in several segments. As many Lance sorts in the memory it allows itself, and there is
work for several cores; a look-up asks each segment, which up to four of them cost nothing that could be measured."""
SEGMENTS_PER_BUILD_MAX: Final = 32
SEGMENTS_MAX: Final = 64
"""An index of more segments than this is built anew: each of them is asked by every look-up."""
PARTITION_VECTORS: Final = 4_096
VECTORS_MIN: Final = 256
"""So many vectors Lance needs to learn what they are like; fewer are compared one by one at no cost."""
_WHOLE_BYTES: Final = 8
_COARSE: Final = 16


def wanted_indexes(kind: TableType) -> tuple[WantedIndex, ...]:
    """Return the indexes of a type: of ids and ends of edges, and of what its schema says is key, unique or index."""
    wanted = [WantedIndex("id", IndexKind.BTREE)]
    if isinstance(kind, EdgeType):
        wanted += [WantedIndex(name, IndexKind.BTREE) for name in ENDPOINT_COLUMNS]
    types = {each.name: each.type for each in kind.properties}
    for constraint in kind.constraints:
        if not isinstance(constraint, Key | Unique | Index):
            continue
        for name in constraint.columns:
            found = _kind_of(types[name], of_words=isinstance(constraint, Index)) if name in types else None
            if found is not None:
                wanted.append(WantedIndex(name, found))
    return tuple(dict.fromkeys(wanted))


def _kind_of(type: PropertyType, *, of_words: bool) -> IndexKind | None:
    match type:
        case EnumType() | ScalarType(scalar=Scalar.BOOL):
            return IndexKind.BITMAP
        case ScalarType(scalar=Scalar.STRING):
            return IndexKind.INVERTED if of_words else IndexKind.BTREE
        case VectorType(dimension=dimension):
            return IndexKind.IVF_SQ if dimension % _WHOLE_BYTES else IndexKind.IVF_PQ
        case ListType() | ScalarType(scalar=Scalar.BLOB):
            return None
        case ScalarType():
            return IndexKind.BTREE


def labels(wanted: Sequence[WantedIndex]) -> dict[WantedIndex, str]:
    """Return what indexes are called in reports: by their column, with the kind where a column has another one too."""
    looked_up = {one.column for one in wanted if one.kind in LOOKUP_KINDS}
    return {
        one: one.column if one.kind in LOOKUP_KINDS or one.column not in looked_up else f"{one.column}:{one.kind}"
        for one in wanted
    }


def grouped(rows: Mapping[int, int]) -> tuple[frozenset[int], ...]:
    """Deal fragments, by number and how many rows they have, into groups of about one size, indexed one by one."""
    total = sum(rows.values())
    target = total / min(SEGMENTS_PER_BUILD_MAX, -(-total // SEGMENT_ROWS)) if total else 1
    groups: list[set[int]] = []
    seen = 0
    for number in sorted(rows):
        if not groups or seen >= target * len(groups):
            groups.append(set())
        groups[-1].add(number)
        seen += rows[number]
    return tuple(frozenset(group) for group in groups)


def partitions(vectors: int) -> int:
    """Return into how many partitions so many vectors are dealt."""
    return max(1, vectors // PARTITION_VECTORS)


def sub_vectors(dimension: int) -> int:
    """Return in how many parts each vector is quantized: sixteen numbers become one byte, or eight do."""
    return dimension // _COARSE if dimension % _COARSE == 0 else dimension // _WHOLE_BYTES


def too_few_vectors(vectors: int, rows: int) -> str:
    """Say why a vector index is not built yet."""
    return f"{vectors} of {rows} rows have a vector; {VECTORS_MIN} are needed to learn what vectors are like"


def not_trainable(said: str) -> str:
    """Say why a vector index is not built although there are enough vectors: many of them may not be numbers."""
    return f"the vectors teach too little to be indexed: {said}"
