"""`__manifest`: read it, find commits in it, replace it by compare-and-swap, keep it small.

A publish writes one file (names, spans and the newest commits), now and then a second one when the
tail is folded away, and swaps the list of files. Old versions are removed as we go. Removing them
frees their numbers, and a writer that slept through :data:`VERSIONS_KEPT` publishes would find the
number after its own free again, take it, and be told it won. So a swap is believed only if the
newest version is fewer than :data:`VERSIONS_KEPT` ahead; otherwise the caller must look for what it
published. A swap that landed on a freed number is invisible and harmless: the newest version rules.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import pyarrow as pa

from omnigraph.errors import (
    ContentionError,
    GraphNotFoundError,
    StorageError,
)
from omnigraph.failpoints import Failpoint, LostAnswerError, reach
from omnigraph.ids import CommitId, Incarnation
from omnigraph.model.lineage import CommitRow, Segment
from omnigraph.model.manifest import (
    FORMAT_VERSION,
    ManifestState,
    SchemaRow,
    Span,
    SpanKind,
    TableRow,
)
from omnigraph.observing import logger
from omnigraph.rules import manifest_rows as rows
from omnigraph.rules.folding import plan_fold
from omnigraph.storage import layout
from omnigraph.storage.lance_door import RowsAt, StoredFile, SwapLostError, SwappedRows, SwapUncertainError
from omnigraph.storage.manifest_format import refuse_other_formats, stamp_of
from omnigraph.storage.objects import ObjectInfo, ObjectStore
from omnigraph.storage.turns import Shelf

VERSIONS_KEPT = 64
PRUNE_EVERY_PUBLISHES = 32
SWEEP_EVERY_PUBLISHES = 512
READER_GRACE = timedelta(minutes=10)
CLOCK_GRAIN = timedelta(seconds=2)
OPEN_TRIES_MAX = 5
FENCE_TRIES_MAX = 100
ROWS_READ_WHOLE_MAX = 512
FILES_READ_TOGETHER = 16
BYTES_READ_WHOLE_MAX = 262_144
HEAD_COPY = "head"

log = logger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """The manifest as it was at one version: the state, and the files to look further in."""

    state: ManifestState
    at: RowsAt


@dataclass(frozen=True, slots=True)
class Search:
    """What is looked for: as a predicate for large files, and exactly, as a test of a row."""

    where: str
    fits: Callable[[CommitRow], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """What a cleanup of the manifest removed."""

    versions: int
    files: int
    bytes: int


class Manifest:
    """The `__manifest` dataset of one graph."""

    def __init__(self, dataset: SwappedRows, objects: ObjectStore, shelf: Shelf) -> None:
        self._dataset = dataset
        self._objects = objects
        self.shelf = shelf

    # -- reading ------------------------------------------------------------------------------------

    def read(self) -> Reading:
        """Read the newest state: one listing, one small object, one file."""
        for tries_left in reversed(range(OPEN_TRIES_MAX)):
            at = self._latest()
            refuse_other_formats(stamp_of(at))
            try:
                return Reading(rows.decode_head(self._head(at)), at)
            except StorageError:
                # A head file that was replaced and swept since we opened its version is no loss: there is a newer one.
                if not tries_left or at.latest_version == at.version:
                    raise
        raise AssertionError("unreachable")

    def _head(self, at: RowsAt) -> pa.Table:
        """Read the head file, or the copy that its writer put down for the others on this machine."""
        copy = self.shelf.get(HEAD_COPY, at.files[0])
        if copy is not None:
            with suppress(pa.ArrowInvalid, OSError):
                table = pa.ipc.open_stream(copy).read_all()
                if table.schema.equals(rows.manifest_schema(FORMAT_VERSION)):
                    return table
        return at.read(at.files[0])

    def refresh(self, known: Reading) -> Reading:
        """Read the newest state, without reading again what has not changed."""
        return known if known.at.latest_version == known.at.version else self.read()

    def stamp(self) -> int:
        """Return the format version the graph is stamped with."""
        return stamp_of(self._latest())

    def _latest(self) -> RowsAt:
        for tries_left in reversed(range(OPEN_TRIES_MAX)):
            try:
                return self._dataset.latest()
            except StorageError:
                # Absence is established by listing, never by the text of an error. A version that was
                # pruned between Lance's listing and its read is simply gone: look again.
                if not self.exists():
                    raise GraphNotFoundError("there is no graph here; create one with omnigraph.init") from None
                if not tries_left:
                    raise
        raise AssertionError("unreachable")

    def exists(self) -> bool:
        """Tell whether a graph was created here."""
        return any(layout.manifest_version_of(info.key) for info in self._objects.list(layout.MANIFEST_VERSIONS))

    # -- looking things up --------------------------------------------------------------------------

    def commit(self, reading: Reading, commit: CommitId) -> CommitRow | None:
        """Find a commit by id: in the tail, or in the one file whose bounds admit it."""
        search = Search(f"id = '{commit}'", lambda row: row.id == commit)
        spans = [span for span in reading.state.commit_spans if span.first_id <= commit <= span.last_id]
        return next(self._newest_first(reading, spans, search), None)

    def commit_at(self, reading: Reading, incarnation: Incarnation, version: int) -> CommitRow | None:
        """Find the commit a branch incarnation made at a version."""
        search = Search(
            f"incarnation = '{incarnation}' AND version = {version}",
            lambda row: row.incarnation == incarnation and row.version == version,
        )
        spans = [span for span in reading.state.commit_spans if span.first_version <= version <= span.last_version]
        return next(self._newest_first(reading, spans, search), None)

    def commit_as_of(self, reading: Reading, segment: Segment, moment: datetime) -> CommitRow | None:
        """Find the last commit of a segment made at or before a moment."""
        search = Search(
            f"incarnation = '{segment.incarnation}' AND version <= {segment.upto}",
            lambda row: (
                row.incarnation == segment.incarnation and row.version <= segment.upto and row.created_at <= moment
            ),
        )
        spans = [
            span
            for span in reading.state.commit_spans
            if span.oldest is not None and span.oldest <= moment and span.first_version <= segment.upto
        ]
        return next(self._newest_first(reading, spans, search), None)

    def history(
        self, reading: Reading, segments: Sequence[Segment], actor: str | None = None, *, since: int | None = None
    ) -> Iterator[CommitRow]:
        """Yield the commits of a branch's segments, newest first, reading older files as they are needed.

        Whoever wants all down to a version says so, and several files are read at a time.
        """
        upto = {segment.incarnation: segment.upto for segment in segments}
        names = ", ".join(f"'{incarnation}'" for incarnation in upto)
        search = Search(
            f"incarnation IN ({names})",
            lambda row: row.version <= upto.get(row.incarnation, 0) and (actor is None or row.actor == actor),
        )
        spans = [span for span in reading.state.commit_spans if since is None or span.last_version >= since]
        return self._newest_first(reading, spans, search, together=1 if since is None else FILES_READ_TOGETHER)

    def every_commit(self, reading: Reading) -> Iterator[CommitRow]:
        """Yield the commits of all branches, those of newer files first, reading older ones as they are needed."""
        return self._newest_first(reading, reading.state.commit_spans, Search("true", lambda row: True))

    def _newest_first(
        self, reading: Reading, spans: Sequence[Span], search: "Search", *, together: int = 1
    ) -> Iterator[CommitRow]:
        """Yield matching commits of the tail, then of older files, some at a time and only when they are needed.

        Along one branch, commits were published in the order of their versions, so newest first is the
        order of the files and, within them, of the versions.
        """
        yield from _by_version(filter(search.fits, reading.state.tail))
        older = tuple(reversed(spans))
        for start in range(0, len(older), together):
            some = older[start : start + together]
            # Planning a filter costs more than reading small files whole.
            where = search.where if sum(span.rows for span in some) > ROWS_READ_WHOLE_MAX * together else None
            found = rows.decode_commits(reading.at.read_together([span.file for span in some], where))
            yield from _by_version(filter(search.fits, found))

    def schema(self, reading: Reading, digest: str) -> SchemaRow | None:
        """Find an accepted schema by its hash."""
        for span in reading.state.catalog_spans:
            where = f"id = '{digest}'" if span.bytes > BYTES_READ_WHOLE_MAX else None
            for row in reading.at.read(span.file, where).to_pylist():
                if row["kind"] == rows.SCHEMA and row["id"] == digest:
                    return rows.decode_schema(row)
        return None

    # -- writing ------------------------------------------------------------------------------------

    def create(self, state: ManifestState, schema: SchemaRow, tables: Sequence[TableRow]) -> Reading:
        """Write genesis as one atomic version, or lose to whoever was first."""
        columns = rows.manifest_schema(FORMAT_VERSION)
        catalog_rows = [rows.schema_row(schema), *(rows.table_row(table) for table in tables)]
        catalog = self._dataset.write(rows.encode(catalog_rows, columns), None)
        state = replace(state, spans=(_catalog_span(catalog, len(catalog_rows)),))
        head = self._dataset.write(rows.encode(rows.head_rows(state), columns), None)
        return Reading(state, self._dataset.create([head, catalog], columns))

    def swap(self, base: Reading, state: ManifestState, written: Sequence[StoredFile] = ()) -> Reading:
        """Replace the state that was read, or raise that someone else did, or that nobody can tell.

        ``written`` are files that the state names and that are not in the manifest yet.
        """
        columns = rows.manifest_schema(FORMAT_VERSION)
        state, filed = self._file(base, state, columns)
        state, folded = self._fold(base, state, columns)
        table = rows.encode(rows.head_rows(state), columns)
        head = self._dataset.write(table, base.at)
        at_hand = {file.name: file for file in (*base.at.stored, *written, *filed, *folded)}
        files = [head, *(at_hand[span.file] for span in state.spans)]
        try:
            reach(Failpoint.BEFORE_SWAP)
        except OSError as problem:
            raise StorageError(f"nothing was applied: {problem}") from problem
        landed = Reading(state, self._dataset.swap(base.at, files, columns))
        try:
            reach(Failpoint.AFTER_SWAP)
        except (LostAnswerError, OSError) as lost:
            raise SwapUncertainError(str(lost)) from lost
        _believe(landed)
        if self.shelf.is_crowded:
            self.shelf.put(HEAD_COPY, head.name, _as_bytes(table))
        self._keep_small(landed)
        return landed

    def commits_in(self, reading: Reading, span: Span) -> list[CommitRow]:
        """Return the commits of one older file, as they lie in it."""
        return rows.decode_commits(reading.at.read(span.file))

    def write_commits(self, base: Reading, span: Span, commits: Sequence[CommitRow]) -> tuple[Span, StoredFile]:
        """Write commits into a file that can take the place of an older one."""
        table = rows.encode([rows.commit_row(row) for row in commits], rows.manifest_schema(FORMAT_VERSION))
        file = self._dataset.write(table, base.at)
        return rows.span_of(file.name, span.tier, table, file.bytes), file

    def restamp(self, found: int, target: int) -> None:
        """Write the next format stamp over one that was found; if another process did, that is fine."""
        at = self._latest()
        if stamp_of(at) == found:
            try:
                self._dataset.swap(at, at.stored, rows.manifest_schema(target))
            except (SwapLostError, SwapUncertainError):
                log.info("another process may have moved the manifest first", extra={"stamp": target})

    def _fold(
        self, base: Reading, state: ManifestState, columns: pa.Schema
    ) -> tuple[ManifestState, tuple[StoredFile, ...]]:
        fold = plan_fold(state.tail, state.commit_spans)
        if fold is None:
            return state, ()
        leaving = rows.encode([rows.commit_row(row) for row in state.tail[:-1]], columns)
        older = [base.at.read(span.file) for span in fold.absorbed]
        joined = pa.concat_tables([*older, leaving]).combine_chunks()
        file = self._dataset.write(joined, base.at)
        span = rows.span_of(file.name, fold.tier, joined, file.bytes)
        gone = {old.file for old in fold.absorbed}
        spans = (*(old for old in state.spans if old.file not in gone), span)
        return replace(state, tail=state.tail[-1:], spans=spans), (file,)

    def _file(
        self, base: Reading, state: ManifestState, columns: pa.Schema
    ) -> tuple[ManifestState, tuple[StoredFile, ...]]:
        """Put schemas and tables that arrive into a file, together with those of the last one if it is small."""
        if not state.arriving:
            return state, ()
        arriving = [
            rows.schema_row(each) if isinstance(each, SchemaRow) else rows.table_row(each) for each in state.arriving
        ]
        absorbed = [span for span in state.catalog_spans[-1:] if span.bytes <= BYTES_READ_WHOLE_MAX]
        older = [base.at.read(span.file) for span in absorbed]
        joined = pa.concat_tables([*older, rows.encode(arriving, columns)]).combine_chunks()
        file = self._dataset.write(joined, base.at)
        spans = (*(span for span in state.spans if span not in absorbed), _catalog_span(file, joined.num_rows))
        return replace(state, spans=spans, arriving=()), (file,)

    # -- keeping it small ---------------------------------------------------------------------------

    def cleanup(self, grace: timedelta = READER_GRACE) -> Swept:
        """Remove old versions and unreferenced files.

        It first swaps in the state it read: whoever staged a file on an older version has lost by
        then, so an unreferenced file older than this swap belongs to nobody, however long its writer
        sleeps. ``grace`` spares readers of a slightly older version the trouble of looking again.
        """
        fence = self._fence()
        versions = self._prune(fence)
        files, size = self._sweep(fence, grace)
        return Swept(versions=versions, files=files, bytes=size)

    def _fence(self) -> Reading:
        for _ in range(FENCE_TRIES_MAX):
            base = self.read()
            try:
                return self.swap(base, base.state)
            except (SwapLostError, SwapUncertainError):
                continue
        raise ContentionError("nothing was cleaned: other writers were faster; try again")

    def _keep_small(self, landed: Reading) -> None:
        """Prune and sweep now and then; the publish is durable, so failing here is only a warning."""
        try:
            if landed.at.version % PRUNE_EVERY_PUBLISHES == 0:
                self._prune(landed)
            if landed.at.version % SWEEP_EVERY_PUBLISHES == 0:
                self._sweep(landed, READER_GRACE)
        except StorageError as problem:
            log.warning("old versions of the manifest were left in place", extra={"reason": str(problem)})

    def _prune(self, landed: Reading) -> int:
        oldest_kept = landed.at.version - VERSIONS_KEPT
        versions = [
            info.key
            for info in self._objects.list(layout.MANIFEST_VERSIONS)
            if (version := layout.manifest_version_of(info.key)) is not None and version <= oldest_kept
        ]
        transactions = [
            info.key
            for info in self._objects.list(layout.MANIFEST_TRANSACTIONS)
            if (based_on := layout.transaction_base_of(info.key)) is not None and based_on < oldest_kept
        ]
        self._objects.delete(versions + transactions)
        return len(versions)

    def _sweep(self, landed: Reading, grace: timedelta) -> tuple[int, int]:
        """Delete files the newest version does not name and that are older than it by ``grace``."""
        own = _newest_version(self._objects.list(layout.MANIFEST_VERSIONS))
        if own is None or layout.manifest_version_of(own.key) != landed.at.version:
            return 0, 0  # someone published meanwhile: their sweep, not ours
        # Both times are the store's own, so no clock of ours is trusted.
        horizon = own.modified - max(grace, CLOCK_GRAIN)
        named = {f"{layout.MANIFEST_DATA}/{file}" for file in landed.at.files}
        dead = [
            info
            for info in self._objects.list(layout.MANIFEST_DATA)
            if info.key not in named and info.modified < horizon
        ]
        self._objects.delete([info.key for info in dead])
        return len(dead), sum(info.size for info in dead)


def _by_version(found: Iterable[CommitRow]) -> list[CommitRow]:
    return sorted(found, key=lambda row: row.version, reverse=True)


def _believe(landed: Reading) -> None:
    """Raise unless the version we wrote is certainly part of the newest one's history."""
    try:
        ahead = landed.at.latest_version - landed.at.version
    except StorageError as problem:
        raise SwapUncertainError(str(problem)) from problem
    if ahead >= VERSIONS_KEPT:
        raise SwapUncertainError(f"version {landed.at.version} was written, but the newest is {ahead} ahead of it")


def _as_bytes(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return sink.getvalue().to_pybytes()


def _catalog_span(file: StoredFile, count: int) -> Span:
    return Span(file=file.name, kind=SpanKind.CATALOG, tier=0, rows=count, bytes=file.bytes)


def _newest_version(infos: Iterable[ObjectInfo]) -> ObjectInfo | None:
    found = [(version, info) for info in infos if (version := layout.manifest_version_of(info.key)) is not None]
    return max(found, key=lambda pair: pair[0])[1] if found else None
