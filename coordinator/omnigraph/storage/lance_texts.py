"""Finding the rows of a table that have one of some values in a column: looked up by an index, or scanned for.

Many small commits make many small files, and to open one costs as much as to read ten thousand texts. So the texts of
small files are kept once they were read: data files never change. Rows that were deleted since are still among them,
so a text that is known to be in a file with deletions is only a reason to look into it. Everything else is certain.
"""

import threading
from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from lance import LanceDataset
from lance.fragment import LanceFragment

from omnigraph.observing import Threads
from omnigraph.rules.fingerprints import Sieve
from omnigraph.rules.values import Column, compute
from omnigraph.storage.asked import BEFORE_KEEPING, FEW_AT_ONCE_MAX, Asked
from omnigraph.storage.lance_cores import cores
from omnigraph.storage.lance_door import file_names
from omnigraph.storage.lance_rows import ID_SCAN_ROWS, ROW_ADDRESS, few_enough, fragments_at, indexed_fragments, sifted
from omnigraph.storage.lance_shares import each_share
from omnigraph.storage.sought import MET_AT_ONCE, Sought

AHEAD_PER_CORE: Final = 2
SMALL_FILE_ROWS_MAX: Final = 16_384
SMALL_FILES_MIN: Final = 8
"""Fewer are read each time as long as nobody comes again and again: a scan is quicker than to keep what it finds."""
TEXTS_HELD_MAX: Final = 200_000
FILES_READ_AT_ONCE: Final = 256
FRAGMENT_BITS: Final = 32

Files: TypeAlias = tuple[str, ...]
"""The files of one fragment."""


@dataclass(slots=True)
class _Known:
    """What is known of one column of one table: which files were read, and in which of them a text is."""

    files: set[Files] = field(default_factory=set)
    places: dict[Any, list[Files]] = field(default_factory=dict)
    texts: int = 0


class KnownTexts:
    """The texts of small files, of the columns that were asked about last, as many as fit."""

    def __init__(self, most: int = TEXTS_HELD_MAX) -> None:
        self._most = most
        self._columns: OrderedDict[tuple[str, int], _Known] = OrderedDict()
        self._asked = Asked()
        self._lock = threading.Lock()

    def sure(
        self, handle: LanceDataset, column: str, keys: Column, fragments: Sequence[LanceFragment]
    ) -> tuple[Column, list[LanceFragment]]:
        """Return keys that certainly are in fragments, and the fragments that may have any of the others."""
        if len(keys) > FEW_AT_ONCE_MAX:
            return keys.slice(0, 0), self.suspects(handle, column, keys, fragments)
        named = {file_names(each.metadata): each for each in fragments}
        whole = {files for files, each in named.items() if each.metadata.deletion_file is None}
        small = [files for files, each in named.items() if each.physical_rows <= SMALL_FILE_ROWS_MAX]
        known = self._of(handle, column)
        unknown = [files for files in small if files in whole and files not in known.files]
        if len(small) < SMALL_FILES_MIN:
            unknown = [files for files in unknown if self._asked.before((handle.uri, column, files), BEFORE_KEEPING)]
        self._read(handle, column, known, {files: named[files] for files in unknown})
        with self._lock:
            places = {text: set(known.places.get(text, ())) & named.keys() for text in keys.to_pylist()}
            sure = [text for text, files in places.items() if files & whole]
            doubtful = {each for text, files in places.items() for each in files if not files & whole}
            left = [each for files, each in named.items() if files not in known.files or files in doubtful]
        return pa.array(sure, keys.type), left

    def suspects(
        self, handle: LanceDataset, column: str, keys: Column, fragments: Sequence[LanceFragment]
    ) -> list[LanceFragment]:
        """Return the fragments that may have one of the keys: of the small ones, only those that have or had it."""
        named = {file_names(each.metadata): each for each in fragments}
        small = {files: each for files, each in named.items() if each.physical_rows <= SMALL_FILE_ROWS_MAX}
        if len(small) < SMALL_FILES_MIN:
            return list(fragments)
        known = self._of(handle, column)
        unknown = {files: each for files, each in small.items() if files not in known.files}
        # A scan leaves out what is deleted here and may not be elsewhere: such a file is looked into each time.
        whole = {files: each for files, each in unknown.items() if each.num_deletions == 0}
        self._read(handle, column, known, whole)
        with self._lock:
            hits = {files for text in keys.to_pylist() for files in known.places.get(text, ())}
            return [each for files, each in named.items() if files not in known.files or files in hits]

    def _of(self, handle: LanceDataset, column: str) -> _Known:
        # By its number, because another column may have its name in a later version.
        number = next(int(each.id()) for each in handle.lance_schema.fields() if each.name() == column)
        with self._lock:
            known = self._columns.setdefault((handle.uri, number), _Known())
            self._columns.move_to_end((handle.uri, number))
            return known

    def _read(self, handle: LanceDataset, column: str, known: _Known, unknown: dict[Files, LanceFragment]) -> None:
        every = list(unknown.items())
        for start in range(0, len(every), FILES_READ_AT_ONCE):
            some = dict(every[start : start + FILES_READ_AT_ONCE])
            if known.texts + sum(int(each.physical_rows) for each in some.values()) > self._most:
                return  # what is not known is searched
            by_number = {int(each.fragment_id): files for files, each in some.items()}
            found = handle.scanner([column], fragments=list(some.values()), with_row_address=True).to_table()
            at = compute.shift_right(found.column(ROW_ADDRESS), pa.scalar(FRAGMENT_BITS, pa.uint64()))
            with self._lock:
                for number, text in zip(at.to_pylist(), found.column(column).to_pylist(), strict=True):
                    if text is not None:
                        known.places.setdefault(text, []).append(by_number[number])
                known.files.update(some)
                known.texts += found.num_rows
                self._make_room(known)

    def _make_room(self, newest: _Known) -> None:
        while sum(each.texts for each in self._columns.values()) > self._most:
            key = next(iter(self._columns))
            if self._columns[key] is newest:
                return
            del self._columns[key]


KNOWN_TEXTS = KnownTexts()


def rows_where(handle: LanceDataset, column: str, keys: Column, columns: Sequence[str]) -> pa.Table:
    """Return columns and addresses of the rows whose value in a column is among the keys: looked up, or scanned for.

    Of texts there may be any number of keys; of numbers, dates and times, a few thousand.
    """
    schema = pa.schema([handle.schema.field(name) for name in columns])
    parts = [schema.append(pa.field(ROW_ADDRESS, pa.uint64())).empty_table()]
    if len(keys) == 0 or int(handle.count_rows()) == 0:
        return parts[0]
    indexed, others = _places_to_look(handle, column, keys)
    if indexed != []:

        def look(few: Any) -> pa.Table:
            return handle.scanner(list(columns), few, fragments=indexed, with_row_address=True).to_table()

        parts += each_share(column, keys, look)
    if others != []:
        scan = _scanned_texts if pa.types.is_string(keys.type) else _scanned_values
        parts.append(scan(handle, column, keys, columns, others))
    return pa.concat_tables(parts[1:] or parts)


def _scanned_texts(
    handle: LanceDataset, column: str, keys: Column, columns: Sequence[str], fragments: list[LanceFragment] | None
) -> pa.Table:
    wanted = list(dict.fromkeys([column, *columns]))
    stream = handle.scanner(wanted, fragments=fragments, with_row_address=True, batch_size=ID_SCAN_ROWS).to_reader()
    admitted = pa.Table.from_batches(sifted(stream, Sieve([keys]), column), stream.schema)
    found = admitted.filter(compute.is_in(admitted.column(column), value_set=keys))
    return found.select([*columns, ROW_ADDRESS])


def _scanned_values(
    handle: LanceDataset, column: str, keys: Column, columns: Sequence[str], fragments: list[LanceFragment] | None
) -> pa.Table:
    few = pc.field(column).isin(keys)
    return handle.scanner(list(columns), few, fragments=fragments, with_row_address=True).to_table()


def count_where(handle: LanceDataset, column: str, sought: Sought) -> int:
    """Return how many of the texts that are still looked for are in a column that has no text twice; no row is held."""
    asked = sought.left
    if asked == 0 or int(handle.count_rows()) == 0:
        return 0
    indexed, rest = _divided(handle, column, asked)
    count = 0
    if indexed or not rest:

        def look(few: Any) -> int:
            if not rest:
                return int(handle.count_rows(few))
            return int(handle.scanner([], few, fragments=indexed, with_row_address=True).count_rows())

        count += sum(each_share(column, sought.missing(), look))
    if rest:
        sure, left = KNOWN_TEXTS.sure(handle, column, sought.missing(), rest)
        sought.meet(sure)
        if left and sought.left:
            stream = handle.scanner([column], fragments=left, batch_size=ID_SCAN_ROWS).to_reader()
            rows = sum(int(each.physical_rows) for each in left)
            _meet(sought, (batch.column(column) for batch in stream), cores() if rows > MET_AT_ONCE else 0)
        count += asked - sought.left
    return count


def _meet(sought: Sought, columns: Iterable[Column], threads: int) -> None:
    """Let texts that are looked for meet others, on every core if they are many, while the next are read."""
    if not threads:
        for column in columns:
            sought.meet(column)
        return
    with Threads(threads) as pool:
        under_way = deque[Future[None]]()
        for column in columns:
            under_way.append(pool.submit(sought.meet, column))
            if len(under_way) > AHEAD_PER_CORE * threads:
                under_way.popleft().result()
        for each in under_way:
            each.result()


def _places_to_look(
    handle: LanceDataset, column: str, keys: Column
) -> tuple[list[LanceFragment] | None, list[LanceFragment] | None]:
    """Return the fragments to search by an index, and those to scan; None means all of them."""
    indexed, rest = _divided(handle, column, len(keys))
    if not rest:
        return None, []
    if not indexed and len(rest) < SMALL_FILES_MIN:
        return [], None
    return indexed, KNOWN_TEXTS.suspects(handle, column, keys, rest)


def _divided(handle: LanceDataset, column: str, count: int) -> tuple[list[LanceFragment], list[LanceFragment]]:
    """Return the fragments in which so many texts are better looked up, and the others; of the first none if all."""
    numbers = indexed_fragments(handle, column) if few_enough(handle, count) else frozenset[int]()
    every = [int(number) for number in handle.fragment_ids()]
    rest = [number for number in every if number not in numbers]
    indexed = [number for number in every if number in numbers] if rest else []
    return fragments_at(handle, indexed), fragments_at(handle, rest)
