"""Indexes of columns: which fragments they cover, and sealing what was built on a version.

An index is made of segments, each over some fragments. Building writes a segment that nothing refers to yet;
sealing is one detached commit, as for rows. A fragment never changes, and rows that are taken out of one are left
out of every answer of the segment, so a segment fits on every later version that still has its fragments and column.
Segments are never merged with older ones: of a row that moved, the older one still tells what it was. For the same
reason an index that is no BTREE is only extended by fragments to which no row of it has moved.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lance import LanceDataset, LanceOperation
from lance.dataset import Transaction

from omnigraph.model.indexes import EXTENDED_KINDS, IndexKind, WantedIndex
from omnigraph.storage.lance_door import SEAL_DRAWS_MAX, VERSIONS, Sealed
from omnigraph.storage.lance_index_building import Build, Segment, fields_of, parts_of_indexes
from omnigraph.storage.lance_row_moves import rows_moved
from omnigraph.storage.lance_rows import index_kind, open_at, translated
from omnigraph.storage.roots import StorageOptions


@dataclass(frozen=True, slots=True)
class Coverage:
    """What an index of a version covers: the rows, the fragments it does not, and of how many segments it is made."""

    wanted: WantedIndex
    name: str
    rows: int
    rows_covered: int
    missing: frozenset[int]
    segments: int = 0
    is_outdated: bool = False
    """Whether it tells what rows were that have moved to what is missing, so that it must be built anew."""


@dataclass(frozen=True, slots=True)
class Survey:
    """The indexes of a version beside those that are wanted."""

    rows: Mapping[int, int]
    """How many rows each fragment has."""
    coverage: tuple[Coverage, ...]
    unwanted: Mapping[str, str]
    """The names of indexes that nobody asks for, and their columns."""


class Indexes:
    """The indexes of tables."""

    def __init__(self, options: StorageOptions) -> None:
        self._options = options

    def survey(self, uri: str, version: int, wanted: Sequence[WantedIndex]) -> Survey:
        """Tell what of a version the wanted indexes cover, and which indexes are there besides."""
        handle = open_at(uri, version, self._options)
        with translated(f"the indexes of {uri} can not be read", self._options):
            rows = {int(each.fragment_id): int(each.count_rows()) for each in handle.get_fragments()}
            there = {WantedIndex(str(one.field_names[0]), kind): one for one, kind in _ours(handle)}
            every = handle.describe_indices()
            taken = {str(one.name) for one in every}
            coverage = []
            for one in wanted:
                found = there.get(one)
                segments = () if found is None else tuple(found.segments)
                covered = {int(number) for part in segments for number in part.fragment_ids}
                missing = frozenset(rows) - covered
                name = _free_name(one, taken) if found is None else str(found.name)
                taken.add(name)
                rest = sum(rows[number] for number in missing)
                total = sum(rows.values())
                is_outdated = one.kind not in EXTENDED_KINDS and rows_moved(handle, frozenset(covered), missing)
                coverage.append(Coverage(one, name, total, total - rest, missing, len(segments), is_outdated))
            kept = {one.name for one in coverage}
            unwanted = {str(one.name): ", ".join(map(str, one.field_names)) for one in every if one.name not in kept}
            return Survey(rows, tuple(coverage), unwanted)

    def order(self, uri: str, version: int, coverage: Coverage, fragments: Iterable[int]) -> Build:
        """Return what builds an index over some fragments, here or on another machine."""
        return Build(
            uri=uri,
            version=version,
            options=self._options,
            wanted=coverage.wanted,
            name=coverage.name,
            fragments=frozenset(fragments),
        )

    def fitting(self, uri: str, version: int, segments: Iterable[Segment]) -> list[Segment]:
        """Return the segments that were built for fragments and columns which a version has."""
        handle = open_at(uri, version, self._options)
        there = frozenset(int(number) for number in handle.fragment_ids())
        return [
            each
            for each in segments
            if each.fragments <= there and each.fields == fields_of(handle, each.wanted.column)
        ]

    def seal(
        self, uri: str, version: int, segments: Sequence[Segment], drop: Iterable[str], transaction: str
    ) -> Sealed | None:
        """Seal a version with more segments and without some indexes; None if it has lost what segments are for."""
        handle = open_at(uri, version, self._options)
        with translated(f"the indexes of {uri} can not be sealed", self._options):
            if len(self.fitting(uri, version, segments)) < len(segments):
                return None
            names = frozenset(drop)
            old = [part for part in parts_of_indexes(handle) if part.name in names]
            operation = LanceOperation.CreateIndex([segment.index for segment in segments], old)
            wanted = Transaction(int(handle.version), operation, uuid=transaction)
            sealed = LanceDataset.commit(handle, wanted, detached=True, max_retries=SEAL_DRAWS_MAX)
            VERSIONS.keep(uri, sealed, self._options)
            return Sealed(lance_version=int(sealed.version), transaction=transaction, rows=int(sealed.count_rows()))


def _ours(handle: LanceDataset) -> Iterable[tuple[Any, IndexKind]]:
    """Yield the indexes of one column each, of a kind that we build."""
    for index in handle.describe_indices():
        kind = index_kind(index)
        if kind is not None and len(index.field_names) == 1:
            yield index, kind


def _free_name(wanted: WantedIndex, taken: set[str]) -> str:
    """Return a name for an index that no other has, such as one of a column that was renamed."""
    name = f"{wanted.column}_idx"
    while name in taken:
        name = f"_{name}"
    return name
