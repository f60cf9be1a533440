"""What a ticket holder may do to one table: write files nobody sees, and later seal them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

import pyarrow as pa

from omnigraph.errors import InvalidOptionError
from omnigraph.model.staged import (
    RowSet,
    Staged,
    StagedAppend,
    StagedDelete,
    StagedOverwrite,
    StagedReshape,
    StagedUpsert,
)
from omnigraph.rules.fingerprints import Fingerprints, with_fingerprint
from omnigraph.rules.identity import repeated
from omnigraph.rules.values import Column, compute
from omnigraph.storage.lance_door import BIRTH_VERSION, Predicate, Sealed, file_name
from omnigraph.storage.lance_ids import KNOWN_IDS, IdStream, present, staged_ids_in
from omnigraph.storage.lance_moving import combine_upserts, reseal, take_out_too
from omnigraph.storage.lance_reshaping import (
    ShapedColumn,
    glimpse,
    rewrite,
    shape_columns,
    stage_reshape,
    write_columns,
)
from omnigraph.storage.lance_reshaping import joined as joined_reshapes
from omnigraph.storage.lance_rows import (
    PlacesSeen,
    file_session,
    fragments_of,
    has_index,
    locate,
    open_at,
    row_sets,
    translated,
)
from omnigraph.storage.lance_sealing import missing_files, seal
from omnigraph.storage.lance_staged import read_staged, read_staged_ids
from omnigraph.storage.lance_staging import rows_matching, stage_append, stage_delete, stage_overwrite, stage_upsert
from omnigraph.storage.lance_texts import count_where, rows_where
from omnigraph.storage.lance_written import LIMITS, WriteLimits
from omnigraph.storage.roots import StorageOptions
from omnigraph.storage.sought import Sought

FEW_IDS_MAX: Final = 64
FEW_IDS_CHARACTERS_MAX: Final = 4_096

Added = TypeVar("Added", StagedAppend, StagedOverwrite)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticket:
    """Where staged rows go and what they are worked out against: all a task on another machine needs."""

    uri: str
    base_version: int | None
    limits: WriteLimits = LIMITS


class Staging:
    """Stages and seals; remembers nothing."""

    def __init__(self, options: StorageOptions) -> None:
        self._options = options

    def append(self, ticket: Ticket, rows: pa.RecordBatchReader) -> StagedAppend:
        """Stage new rows."""
        return stage_append(
            ticket.uri, rows, base_version=ticket.base_version, limits=ticket.limits, options=self._options
        )

    def overwrite(self, ticket: Ticket, rows: pa.RecordBatchReader) -> StagedOverwrite:
        """Stage rows that replace all others."""
        return stage_overwrite(
            ticket.uri, rows, base_version=ticket.base_version, limits=ticket.limits, options=self._options
        )

    def upsert(self, ticket: Ticket, rows: pa.RecordBatchReader, seen: PlacesSeen | None = None) -> StagedUpsert:
        """Stage rows that are inserted or replace those with their id, which are looked up unless they were seen."""
        base = BIRTH_VERSION if ticket.base_version is None else ticket.base_version
        return stage_upsert(ticket.uri, base, rows, limits=ticket.limits, seen=seen, options=self._options)

    def delete(
        self,
        ticket: Ticket,
        where: str | None,
        ids: Any,
        among: Mapping[str, Column] | None = None,
        rows: Sequence[RowSet] = (),
    ) -> StagedDelete | None:
        """Stage the removal of rows; a table without any has nothing to remove."""
        if ticket.base_version is None or (where is None and ids is None and not among and not rows):
            return None
        return stage_delete(
            ticket.uri, ticket.base_version, where=where, ids=ids, among=among, rows=rows, options=self._options
        )

    def reshape(self, ticket: Ticket, columns: Sequence[ShapedColumn], *, is_rewrite: bool = False) -> StagedReshape:
        """Stage other columns for all rows of a table; rewritten, no file holds a column that is gone."""
        return stage_reshape(
            ticket.uri,
            ticket.base_version,
            columns,
            is_rewrite=is_rewrite,
            limits=ticket.limits,
            options=self._options,
        )

    def columns(
        self, ticket: Ticket, columns: Sequence[ShapedColumn], fragments: Sequence[int]
    ) -> StagedReshape | None:
        """Write a share of the columns that have values of their own; what comes back is to be shaped."""
        return write_columns(ticket.uri, ticket.base_version, columns, fragments, options=self._options)

    def shaped(self, ticket: Ticket, columns: Sequence[ShapedColumn], parts: Sequence[StagedReshape]) -> StagedReshape:
        """Make one piece of shares of columns, and say what all columns are."""
        written = self.united_reshape(parts) if parts else None
        return shape_columns(ticket.uri, ticket.base_version, columns, written, options=self._options)

    def united_reshape(self, parts: Sequence[StagedReshape]) -> StagedReshape:
        """Make one piece of shares of the same work."""
        return joined_reshapes(parts)

    def glimpse(self, ticket: Ticket, staged: StagedReshape) -> int:
        """Return a version to read the rows through, with the columns they shall have; nothing ever refers to it."""
        return glimpse(ticket.uri, staged, options=self._options)

    def rewritten(self, ticket: Ticket, staged: StagedReshape, version: int, fragments: Sequence[int]) -> StagedReshape:
        """Write a share of the rows of :meth:`shaped` into new files."""
        return rewrite(ticket.uri, version, staged, fragments, limits=ticket.limits, options=self._options)

    def located(self, ticket: Ticket, ids: Column) -> tuple[RowSet, ...]:
        """Return where the rows lie that have one of some ids; ids that are not there are passed over."""
        if ticket.base_version is None:
            return ()
        handle = open_at(ticket.uri, ticket.base_version, self._options)
        with translated(f"rows of {ticket.uri} can not be found", self._options):
            return row_sets(locate(handle, compute.drop_null(compute.unique(ids))).addresses)

    def matching(self, ticket: Ticket, where: Predicate | None) -> tuple[RowSet, ...]:
        """Return where the rows lie that a predicate holds for; without one, all of them."""
        if ticket.base_version is None:
            return ()
        handle = open_at(ticket.uri, ticket.base_version, self._options)
        return row_sets(rows_matching(handle, where, self._options))

    def mixed(self, ticket: Ticket, staged: StagedAppend | StagedUpsert, gone: StagedDelete) -> StagedUpsert:
        """Make one piece of rows that come and rows that go."""
        return take_out_too(ticket.uri, staged, gone, options=self._options)

    def staged_ids(self, uri: str, parts: Sequence[Staged]) -> Iterator[Column]:
        """Stream the ids of the rows that were written."""
        return self._ids(uri, parts)()

    def new_rows(self, uri: str, staged: Staged, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Stream columns of the rows that staged work adds, in their new form."""
        return read_staged(uri, staged, columns, options=self._options)

    def gone_ids(self, uri: str, staged: Staged) -> Column:
        """Return the ids of rows that staged work takes out or replaces; an overwrite names none: it is all of them."""
        match staged:
            case StagedDelete():
                parts = [batch.column("id") for batch in read_staged_ids(uri, staged, options=self._options)]
            case StagedUpsert(rows_deleted=rows) if rows:
                # Those that go were written nowhere; the version they are in has them all.
                as_deletion = StagedDelete(base_version=staged.base_version, deletions=staged.deletions, files=())
                parts = [batch.column("id") for batch in read_staged_ids(uri, as_deletion, options=self._options)]
            case StagedUpsert():
                replaced = fragments_of(each.fragment for each in staged.replacements)
                parts = list(self._ids_of(uri, replaced))
            case _:
                parts = []
        return pa.chunked_array(parts, pa.string())

    def _ids_of(self, uri: str, fragments: Sequence[Any]) -> Iterator[Column]:
        session = file_session(uri, self._options)
        with translated(f"the ids staged for {uri} can not be read", self._options):
            yield from staged_ids_in(session, fragments)

    def rows_where(self, uri: str, version: int, column: str, keys: Column, columns: Sequence[str]) -> pa.Table:
        """Return columns of the rows of a version that have one of some texts in a column."""
        handle = open_at(uri, version, self._options)
        with translated(f"rows of {uri} can not be found", self._options):
            return rows_where(handle, column, keys, columns).select(list(columns))

    def count_where(self, uri: str, version: int, column: str, sought: Sought) -> int:
        """Return how many texts that are still looked for are in a column of a version that has none twice."""
        handle = open_at(uri, version, self._options)
        with translated(f"rows of {uri} can not be counted", self._options):
            return count_where(handle, column, sought)

    def has_index(self, uri: str, version: int, column: str) -> bool:
        """Tell whether the values of a column can be looked up."""
        handle = open_at(uri, version, self._options)
        with translated(f"the indexes of {uri} can not be read", self._options):
            return has_index(handle, column)

    def scan(self, uri: str, version: int, columns: Sequence[str]) -> pa.RecordBatchReader:
        """Stream columns of a version."""
        handle = open_at(uri, version, self._options)
        with translated(f"rows of {uri} can not be read", self._options):
            return handle.scanner(list(columns)).to_reader()

    def combined(self, ticket: Ticket, parts: Sequence[Staged]) -> Staged:
        """Make one piece of work of several of the same kind on one table."""
        if len(parts) == 1:
            return parts[0]
        upserts = [part for part in parts if isinstance(part, StagedUpsert)]
        if len(upserts) == len(parts):
            return combine_upserts(ticket.uri, upserts, options=self._options)
        if upserts:
            return self._with_inserts(ticket, upserts, [part for part in parts if isinstance(part, StagedAppend)])
        overwrites = [part for part in parts if isinstance(part, StagedOverwrite)]
        appends = [part for part in parts if isinstance(part, StagedAppend)]
        if len(overwrites) == len(parts):
            return self.joined(overwrites)
        if len(appends) == len(parts):
            return self.joined(appends)
        raise InvalidOptionError("only staged work of one kind can become one piece")

    def united(self, ticket: Ticket, parts: Sequence[StagedUpsert]) -> StagedUpsert:
        """Make one upsert of several whose ids are known to be different, so that nobody need read them."""
        if len(parts) == 1:
            return parts[0]
        return combine_upserts(ticket.uri, parts, are_distinct=True, options=self._options)

    def joined(self, parts: Sequence[Added]) -> Added:
        """Make one piece of several that were written the same way."""
        return type(parts[0])(
            fragments=tuple(text for part in parts for text in part.fragments),
            rows=sum(part.rows for part in parts),
            bytes=sum(part.bytes for part in parts),
            files=tuple(name for part in parts for name in part.files),
        )

    def _with_inserts(
        self, ticket: Ticket, upserts: Sequence[StagedUpsert], inserts: Sequence[StagedAppend]
    ) -> StagedUpsert:
        """Make one upsert of upserts and of rows that are known to be new."""
        whole = upserts[0] if len(upserts) == 1 else combine_upserts(ticket.uri, upserts, options=self._options)
        return replace(
            whole,
            insertions=(*whole.insertions, *(text for part in inserts for text in part.fragments)),
            rows_inserted=whole.rows_inserted + sum(part.rows for part in inserts),
            bytes=whole.bytes + sum(part.bytes for part in inserts),
            files=(*whole.files, *(name for part in inserts for name in part.files)),
        )

    def seal(self, uri: str, base: int | None, staged: Staged, transaction: str) -> Sealed:
        """Seal work on the version it was worked out against, or that it does not depend on."""
        return seal(uri, base, staged, transaction, options=self._options)

    def seal_moved(
        self, uri: str, base: int | None, staged: StagedAppend | StagedUpsert, transaction: str
    ) -> tuple[StagedAppend | StagedUpsert, Sealed | None]:
        """Seal work on a version that came later; return the work as it is there, and None if nothing is left of it."""
        return reseal(uri, BIRTH_VERSION if base is None else base, staged, transaction, options=self._options)

    def present(self, uri: str, version: int, staged: StagedAppend | StagedUpsert) -> list[str]:
        """Return which staged ids a version holds already."""
        return present(uri, version, self._ids(uri, [staged]), staged.rows, options=self._options)

    def few_ids(self, uri: str, staged: StagedAppend) -> tuple[str, ...] | None:
        """Return the ids of rows to insert if they are few and lie in one file."""
        if len(staged.fragments) != 1 or staged.rows > FEW_IDS_MAX:
            return None
        found = tuple(str(text) for column in self._ids(uri, [staged])() for text in column.to_pylist())
        return found if sum(map(len, found)) <= FEW_IDS_CHARACTERS_MAX else None

    def only_file(self, staged: StagedAppend | StagedUpsert) -> str | None:
        """Return the file that staged rows are in if there is only one."""
        fragments = fragments_of(staged.fragments)
        return file_name(fragments[0]) if len(fragments) == 1 else None

    def told(self, ids: Mapping[str, Sequence[str]]) -> None:
        """Take another's word for which ids the files it wrote hold."""
        KNOWN_IDS.told(ids)

    def is_behind(self, uri: str, version: int, rows: int) -> bool:
        """Tell whether to find out which of a few ids a version holds means to read what others wrote lately."""
        return rows <= FEW_IDS_MAX and KNOWN_IDS.is_behind(open_at(uri, version, self._options))

    def landed(self, uri: str, base: int | None, version: int, staged: Staged) -> None:
        """Remember what a version that became visible holds; nothing depends on it but speed."""
        if not isinstance(staged, StagedOverwrite | StagedReshape):
            added = () if isinstance(staged, StagedDelete) else staged.fragments
            handle = open_at(uri, version, self._options)
            KNOWN_IDS.grew(BIRTH_VERSION if base is None else base, handle, fragments_of(added))

    def repeated(self, uri: str, parts: Sequence[Staged], doubtful: Fingerprints) -> list[str]:
        """Return which ids were staged more than once, given the fingerprints that were."""
        if not len(doubtful):
            return []
        suspects = [ids.take(pa.array(with_fingerprint(ids, doubtful))) for ids in self._ids(uri, parts)()]
        return repeated(pa.chunked_array(suspects, pa.string()))

    def _ids(self, uri: str, parts: Sequence[Staged]) -> IdStream:
        def stream() -> Iterator[Column]:
            for part in parts:
                for batch in read_staged_ids(uri, part, options=self._options):
                    yield batch.column("id")

        return stream

    def missing(self, uri: str, staged: Staged) -> tuple[str, ...]:
        """Return which staged files are gone."""
        return missing_files(uri, staged, options=self._options)
