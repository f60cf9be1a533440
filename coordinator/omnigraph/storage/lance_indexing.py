"""Indexes of columns: which fragments they cover, building what is missing, sealing that on a version.

An index is made of segments, each over some fragments. Building writes a segment that nothing refers to yet;
sealing is one detached commit, as for rows. A fragment never changes, and rows that are taken out of one are left
out of every answer, so a segment fits on every later version that still has its fragments.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from lance import LanceDataset, LanceOperation
from lance.dataset import Index, Transaction

from omnigraph.storage.lance_door import SEAL_DRAWS_MAX, VERSIONS, Sealed
from omnigraph.storage.lance_rows import indexed_fragments, open_at, translated
from omnigraph.storage.roots import StorageOptions

BTREE: Final = "BTREE"


@dataclass(frozen=True, slots=True)
class Coverage:
    """How many rows of a version an index covers, and the fragments it does not."""

    column: str
    rows: int
    rows_covered: int
    missing: frozenset[int]


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """A part of an index that was built and belongs to no version yet."""

    column: str
    fragments: frozenset[int]
    index: Any

    @property
    def files(self) -> int:
        """How many files it is made of."""
        return len(self.index.files or ())

    @property
    def bytes(self) -> int:
        """How large they are."""
        return sum(int(file.size_bytes) for file in self.index.files or ())


class Indexes:
    """The indexes of tables."""

    def __init__(self, options: StorageOptions) -> None:
        self._options = options

    def coverage(self, uri: str, version: int, columns: Sequence[str]) -> tuple[Coverage, ...]:
        """Tell for some columns what of a version their indexes cover."""
        handle = open_at(uri, version, self._options)
        with translated(f"the indexes of {uri} can not be read", self._options):
            return tuple(_coverage(handle, column) for column in columns)

    def build(self, uri: str, version: int, gap: Coverage) -> Segment:
        """Build what an index lacks; nothing refers to it yet."""
        handle = open_at(uri, version, self._options)
        with translated(f"{gap.column!r} of {uri} can not be indexed", self._options):
            index = handle.create_index_uncommitted(
                gap.column, BTREE, name=_name(handle, gap.column), fragment_ids=sorted(gap.missing), replace=True
            )
        return Segment(gap.column, gap.missing, index)

    def seal(self, uri: str, version: int, segments: Sequence[Segment], transaction: str) -> Sealed | None:
        """Add segments to a version as one detached version; None if it has lost a fragment that they cover."""
        handle = open_at(uri, version, self._options)
        with translated(f"the indexes of {uri} can not be sealed", self._options):
            there = set(handle.fragment_ids())
            if not all(segment.fragments <= there for segment in segments):
                return None
            operation = LanceOperation.CreateIndex([segment.index for segment in segments], [])
            wanted = Transaction(int(handle.version), operation, uuid=transaction)
            sealed = LanceDataset.commit(handle, wanted, detached=True, max_retries=SEAL_DRAWS_MAX)
            VERSIONS.keep(uri, sealed, self._options)
            return Sealed(lance_version=int(sealed.version), transaction=transaction, rows=int(sealed.count_rows()))

    def columns(self, uri: str, version: int) -> tuple[str, ...]:
        """Return the columns of a version that have an index of ours."""
        handle = open_at(uri, version, self._options)
        with translated(f"the indexes of {uri} can not be read", self._options):
            every = [str(index.field_names[0]) for index in handle.describe_indices() if len(index.field_names) == 1]
            return tuple(dict.fromkeys(every))

    def build_whole(self, uri: str, version: int, column: str) -> Segment:
        """Build the index of a column over all of a version; nothing refers to it yet."""
        handle = open_at(uri, version, self._options)
        every = frozenset(int(number) for number in handle.fragment_ids())
        return self.build(uri, version, Coverage(column, 0, 0, every))

    def fits(self, uri: str, version: int, segments: Sequence[Segment]) -> bool:
        """Tell whether segments were built for fragments that a version has, and there are some."""
        there = frozenset(int(number) for number in open_at(uri, version, self._options).fragment_ids())
        return bool(segments) and all(segment.fragments <= there for segment in segments)

    def replace(self, uri: str, version: int, segments: Sequence[Segment], transaction: str) -> Sealed:
        """Seal segments in the place of all that a version has for their columns."""
        handle = open_at(uri, version, self._options)
        with translated(f"the indexes of {uri} can not be sealed", self._options):
            names = {segment.index.name for segment in segments}
            old = [part for part in _parts(handle) if part.name in names]
            operation = LanceOperation.CreateIndex([segment.index for segment in segments], old)
            wanted = Transaction(int(handle.version), operation, uuid=transaction)
            sealed = LanceDataset.commit(handle, wanted, detached=True, max_retries=SEAL_DRAWS_MAX)
            VERSIONS.keep(uri, sealed, self._options)
            return Sealed(lance_version=int(sealed.version), transaction=transaction, rows=int(sealed.count_rows()))


def _parts(handle: LanceDataset) -> list[Index]:
    """Return the parts of a version's indexes as they are named to take them out."""
    return [
        Index(
            uuid=str(part.uuid),
            name=str(index.name),
            fields=[int(number) for number in index.fields],
            dataset_version=int(part.dataset_version_at_last_update),
            fragment_ids=part.fragment_ids,
            index_version=int(part.index_version),
        )
        for index in handle.describe_indices()
        for part in index.segments
    ]


def index_name(column: str) -> str:
    """Return what the index of a column is called."""
    return f"{column}_idx"


def _name(handle: LanceDataset, column: str) -> str:
    """Return the name of a column's index: as it is, or as none is that another column had before a renaming."""
    every = handle.describe_indices()
    for index in every:
        if list(index.field_names) == [column]:
            return str(index.name)
    name, taken = index_name(column), {index.name for index in every}
    while name in taken:
        name = f"_{name}"
    return name


def _coverage(handle: LanceDataset, column: str) -> Coverage:
    covered = indexed_fragments(handle, column)
    missing = [number for number in handle.fragment_ids() if number not in covered]
    rows = int(handle.count_rows())
    uncovered = sum(_rows(handle, number) for number in missing)
    return Coverage(column, rows, rows - uncovered, frozenset(missing))


def _rows(handle: LanceDataset, number: int) -> int:
    fragment: Any = handle.get_fragment(number)
    return int(fragment.count_rows())
