"""Which ids a version of a table holds, asked without reading the table where that can be helped.

Data files never change, so the ids of small ones are kept once they were written or read by this process.
They are kept per table, not per version: what was deleted since, or lies on another branch, is still among
them. So a hit is only a suspicion, which is then looked into; a miss is certain. Large files are searched
through the index of ids, by fingerprints that are kept (`lance_kept_ids`), or in one streamed scan.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from lance import LanceDataset
from lance.bitmap import Bitmap
from lance.file import LanceFileSession
from lance.fragment import FragmentMetadata, LanceFragment

from omnigraph.rules.fingerprints import Sieve
from omnigraph.rules.values import Column, compute
from omnigraph.storage.asked import FEW_AT_ONCE_MAX
from omnigraph.storage.lance_door import file_name
from omnigraph.storage.lance_kept_ids import KEPT_IDS
from omnigraph.storage.lance_rows import (
    few_enough,
    file_session,
    fragments_at,
    ids_in,
    indexed_fragments,
    looked_up,
    open_at,
    sifted,
    translated,
)
from omnigraph.storage.roots import StorageOptions

SMALL_FILE_ROWS_MAX: Final = 16_384
IDS_HELD_MAX: Final = 1_000_000
VERSIONS_HELD_MAX: Final = 8
STAGED_FILES_HELD_MAX: Final = 256
FILES_READ_AT_ONCE: Final = 256

IdStream: TypeAlias = Callable[[], Iterator[Column]]
"""Ids as columns, as often as asked."""
ReadIds: TypeAlias = Callable[[list[LanceFragment]], Column]
"""All ids in the files of some fragments, those of deleted rows included."""


@dataclass(frozen=True, slots=True)
class _Cover:
    """A version all of whose small files are known: its fragments, the newest one's file, and the large ones."""

    fragments: Bitmap
    newest: int
    newest_file: str
    large: frozenset[int]

    @classmethod
    def of(cls, handle: LanceDataset, large: Iterable[int]) -> "_Cover":
        """Cover a version that has rows."""
        fragments = handle.fragment_ids()
        newest = max(fragments)
        return cls(fragments, newest, _file_of(handle, newest), frozenset(large))

    def is_akin(self, handle: LanceDataset) -> bool:
        """Tell whether another version descends from the one that added our newest fragment.

        A file is added once, and later fragments get higher numbers. So if it is there under the same number,
        every fragment that both versions have a number for is the same fragment.
        """
        return self.newest in handle.fragment_ids() and _file_of(handle, self.newest) == self.newest_file


@dataclass(slots=True)
class _Table:
    """What is known of one table: the ids of its small files, and the versions whose small files are all known."""

    files: set[str] = field(default_factory=set)
    ids: set[str] = field(default_factory=set)
    covers: "OrderedDict[int, _Cover]" = field(default_factory=OrderedDict)
    is_forgotten: bool = False


class KnownIds:
    """The ids of small files, of all tables this process writes to, as many as fit."""

    def __init__(self, most: int = IDS_HELD_MAX) -> None:
        self._most = most
        self._tables: OrderedDict[str, _Table] = OrderedDict()
        self._staged: OrderedDict[str, Column] = OrderedDict()
        """By file: ids that no version holds yet, so that they are no reason to suspect themselves."""
        self._lock = threading.Lock()

    def written(self, fragment: FragmentMetadata, ids: Sequence[Column]) -> None:
        """Remember the ids of a file that was just written."""
        with self._lock:
            self._hold(file_name(fragment), pa.chunked_array(ids, pa.string()))

    def told(self, ids: Mapping[str, Sequence[str]]) -> None:
        """Remember the ids of files as whoever wrote them says; of those that are known, we know better."""
        with self._lock:
            for name, some in ids.items():
                if name not in self._staged:
                    self._hold(name, pa.chunked_array([pa.array(some, pa.string())]))

    def _hold(self, name: str, ids: Column) -> None:
        self._staged[name] = ids
        while len(self._staged) > STAGED_FILES_HELD_MAX:
            self._staged.popitem(last=False)

    def staged(self, fragment: FragmentMetadata) -> Column | None:
        """Return the ids of a staged file if they are known."""
        with self._lock:
            return self._staged.get(file_name(fragment))

    def grew(self, base: int, handle: LanceDataset, added: Sequence[FragmentMetadata]) -> None:
        """Learn that a version is another one with these files added, and perhaps rows taken out."""
        with self._lock:
            table = self._table(handle.uri)
            ids = {name: self._staged.pop(name, None) for name in map(file_name, added)}
            cover = table.covers.get(base)
            if cover is None or any(each is None for each in ids.values()):
                return  # the version will be looked at when it is asked about
            if len(handle.fragment_ids() - cover.fragments) != len(added):
                return  # what was there was written anew too
            for name, each in ids.items():
                self._add(table, [name], each)
            self._cover(table, handle, cover.large)

    def is_behind(self, handle: LanceDataset) -> bool:
        """Tell whether versions of this table were looked at, but not this one."""
        with self._lock:
            table = self._tables.get(handle.uri)
            return table is not None and len(table.covers) > 0 and int(handle.version) not in table.covers

    def suspects(
        self, handle: LanceDataset, wanted: Iterable[Column], read: ReadIds, indexed: frozenset[int] = frozenset()
    ) -> tuple[list[str], frozenset[int]] | None:
        """Return which ids small files may hold, and the fragments that must be searched; None: search all.

        Small files of ``indexed`` fragments are not read to know them: they are among those to be searched.
        """
        with self._lock:
            table = self._table(handle.uri)
            seen = int(handle.version) in table.covers
            known = next((each for each in reversed(table.covers.values()) if each.is_akin(handle)), None)
        if not seen:
            self._look(table, handle, known, read, indexed)
        with self._lock:
            cover = table.covers.get(int(handle.version))
            ids = table.ids
        if cover is None:
            return None  # too large, or too much else was looked at meanwhile
        return [text for each in wanted if ids for text in each.to_pylist() if text in ids], cover.large

    def _look(
        self, table: _Table, handle: LanceDataset, known: _Cover | None, read: ReadIds, indexed: frozenset[int]
    ) -> None:
        """Look at the fragments of a version that the nearest known one has not, and read their small files."""
        fragments = handle.fragment_ids()
        large = set() if known is None else set(known.large & set(fragments))
        unknown = []
        for fragment in map(handle.get_fragment, fragments if known is None else fragments - known.fragments):
            assert fragment is not None  # noqa: S101  its number was just listed
            if fragment.physical_rows > SMALL_FILE_ROWS_MAX or int(fragment.fragment_id) in indexed:
                large.add(int(fragment.fragment_id))
            elif (name := file_name(fragment.metadata)) not in table.files:
                with self._lock:
                    staged = self._staged.get(name)
                    if staged is not None:
                        self._add(table, [name], staged)
                if staged is None:
                    unknown.append(fragment)
        for start in range(0, len(unknown), FILES_READ_AT_ONCE):
            some = unknown[start : start + FILES_READ_AT_ONCE]
            ids = read(some)
            with self._lock:
                self._add(table, [file_name(fragment.metadata) for fragment in some], ids)
            if table.is_forgotten:
                return
        with self._lock:
            self._cover(table, handle, large)

    def _table(self, uri: str) -> _Table:
        table = self._tables.setdefault(uri, _Table())
        self._tables.move_to_end(uri)
        return table

    def _cover(self, table: _Table, handle: LanceDataset, large: Iterable[int]) -> None:
        if table.is_forgotten or len(handle.fragment_ids()) == 0:
            return
        table.covers[int(handle.version)] = _Cover.of(handle, large)
        while len(table.covers) > VERSIONS_HELD_MAX:
            table.covers.popitem(last=False)

    def _add(self, table: _Table, names: Iterable[str], ids: Column) -> None:
        if table.is_forgotten:
            return
        table.files.update(names)
        table.ids.update(ids.to_pylist())
        while sum(len(one.ids) for one in self._tables.values()) > self._most:
            oldest = next(iter(self._tables.values()))
            # Whoever is looking at it just now must not go on: it would take the little it adds for all there is.
            oldest.is_forgotten = True
            oldest.files, oldest.ids, oldest.covers = set(), set(), OrderedDict()
            if oldest is table:
                return  # it does not fit alone: it stays forgotten, and is searched rather than read each time
            self._tables.popitem(last=False)


KNOWN_IDS = KnownIds()


def present(uri: str, version: int, ids: IdStream, count: int, *, options: StorageOptions) -> list[str]:
    """Return which of some ids a version holds."""
    handle = open_at(uri, version, options)
    with translated(f"ids of {uri} can not be looked for", options):
        if count == 0 or int(handle.count_rows()) == 0:
            return []
        indexed = indexed_fragments(handle, "id") if few_enough(handle, count) else frozenset()
        found = KNOWN_IDS.suspects(handle, ids(), lambda fragments: _ids_of_files(handle, fragments, options), indexed)
        if found is None:
            return _searched(handle, None, ids)
        suspects, large = found
        there = set(_really_there(handle, suspects))
        if large & indexed:
            wanted = pa.concat_arrays([chunk for column in ids() for chunk in _chunks(column)])
            known = looked_up(handle, wanted, fragments_at(handle, large & indexed)).column("id")
            there.update(str(text) for text in known.to_pylist())
        if large - indexed:
            there.update(_in_large_files(handle, fragments_at(handle, large - indexed), ids, count, options))
        return sorted(there)


def staged_ids_in(session: LanceFileSession, fragments: Iterable[FragmentMetadata]) -> Iterator[Column]:
    """Stream the ids in new files; those this process has just written are not read again."""
    for fragment in fragments:
        known = KNOWN_IDS.staged(fragment)
        yield from ids_in(session, [fragment]) if known is None else known.chunks


def _file_of(handle: LanceDataset, number: int) -> str:
    fragment: Any = handle.get_fragment(number)
    return file_name(fragment.metadata)


def _ids_of_files(handle: LanceDataset, fragments: list[LanceFragment], options: StorageOptions) -> Column:
    """Read ids: whole fragments in one scan, those with deletions file by file, because a scan leaves rows out."""
    whole = [fragment for fragment in fragments if fragment.num_deletions == 0]
    cut = [fragment.metadata for fragment in fragments if fragment.num_deletions != 0]
    parts: list[Column] = []
    if whole:
        parts += handle.scanner(["id"], fragments=whole).to_table().column("id").chunks
    if cut:
        parts += ids_in(file_session(handle.uri, options), cut)
    return pa.chunked_array(parts, pa.string())


def _really_there(handle: LanceDataset, suspects: list[str]) -> list[str]:
    if not suspects:
        return []
    chosen = pc.field("id").isin(pa.array(suspects, pa.string()))
    return [str(text) for text in handle.scanner(["id"], chosen).to_table().column("id").to_pylist()]


def _in_large_files(
    handle: LanceDataset, fragments: list[LanceFragment], ids: IdStream, count: int, options: StorageOptions
) -> list[str]:
    """Find ids in files too large to be known text by text; few are looked for by the fingerprints that are kept."""
    if count > FEW_AT_ONCE_MAX:
        return _searched(handle, fragments, ids)
    session = file_session(handle.uri, options)
    wanted = [chunk for column in ids() for chunk in _chunks(column)]
    left = KEPT_IDS.suspects(fragments, wanted, lambda fragment: ids_in(session, [fragment.metadata]))
    found: list[str] = []
    if len(left.places):
        some = pa.concat_arrays(wanted).take(pa.array(left.places))
        found += _searched(handle, left.fragments, lambda: iter([some]))
    if left.strangers:
        found += _searched(handle, left.strangers, lambda: iter(wanted))
    return found


def _searched(handle: LanceDataset, fragments: Sequence[LanceFragment] | None, ids: IdStream) -> list[str]:
    """Find ids in one scan; only their fingerprints are held while it runs."""
    stream = handle.scanner(["id"], fragments=None if fragments is None else list(fragments)).to_reader()
    candidates = pa.chunked_array([batch.column("id") for batch in sifted(stream, Sieve(ids()))], pa.string())
    if len(candidates) == 0:
        return []
    # Texts that share a fingerprint are told apart here.
    suspects = compute.unique(candidates)
    return [str(text) for column in ids() for text in column.filter(compute.is_in(column, suspects)).to_pylist()]


def _chunks(column: Column) -> list[Column]:
    return list(column.chunks) if isinstance(column, pa.ChunkedArray) else [column]
