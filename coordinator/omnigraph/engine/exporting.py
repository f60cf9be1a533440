"""Writing the graph of one commit into files that load back into the same graph."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import pyarrow as pa

from omnigraph.engine.snapshot import Snapshot
from omnigraph.errors import InvalidOptionError
from omnigraph.ids import CommitId
from omnigraph.model.schema import TableType
from omnigraph.model.tables import TableKind
from omnigraph.rules.record_text import record_lines
from omnigraph.rules.records import plain_schema
from omnigraph.rules.values import compute
from omnigraph.storage import record_files as files
from omnigraph.storage import record_targets as targets
from omnigraph.storage.row_scratch import MEMORY_BYTES_DEFAULT, Scratch, pieces

ORDERED_ROWS_MAX: Final = 10_000_000
LINES_ROWS: Final = 4_096

ExportFormat = Literal["jsonl", "parquet"]
Target: TypeAlias = "str | PathLike[str] | Any"
Progress: TypeAlias = Callable[[int, int], None]
"""Told how many rows were written, and how many there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportRequest:
    """Where to write, what, and how."""

    target: Target
    types: Sequence[str] | None = None
    format: str | None = None
    overwrite: bool = False
    progress: Progress | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportResult:
    """What was written: of which commit, where to, and how many rows of each table."""

    target: str
    format: ExportFormat
    branch: str
    commit: CommitId
    version: int
    rows: Mapping[str, int]
    bytes: int

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "target": self.target,
            "format": self.format,
            "branch": self.branch,
            "commit": self.commit,
            "version": self.version,
            "rows": dict(self.rows),
            "bytes": self.bytes,
        }


def export(snapshot: Snapshot, request: ExportRequest) -> ExportResult:
    """Write the tables of one snapshot; the target appears whole, or not at all."""
    target: Any = request.target
    if isinstance(target, str | PathLike) and target != files.STANDARD_STREAM:
        if "://" in str(target):
            raise InvalidOptionError("an export is written to a local path, or into a binary file that is open")
        target = Path(target)
    elif target != files.STANDARD_STREAM and not hasattr(target, "write"):
        raise InvalidOptionError("a target is a path, '-', or a binary file that is open for writing")
    format = _format(target, request.format)
    kinds = _kinds(snapshot, request.types)
    export = _Export(snapshot, kinds, request)
    rows, size = export.to_lines(target) if format == "jsonl" else export.to_folder(target)
    return ExportResult(
        target=str(target) if isinstance(target, Path | str) else getattr(target, "name", "a stream"),
        format=format,
        branch=snapshot.commit.branch,
        commit=snapshot.commit.id,
        version=snapshot.version,
        rows=rows,
        bytes=size,
    )


def _format(target: Any, name: str | None) -> ExportFormat:
    is_path = isinstance(target, Path)
    found = files.check_format(name) if name is not None else files.format_of(target) if is_path else "jsonl"
    if found == "jsonl":
        return found
    if found == "parquet":
        if not is_path:
            raise InvalidOptionError("Parquet is written into a folder, one file for each type; name it")
        return found
    raise InvalidOptionError(f"a graph is exported as jsonl or parquet, not as {found}")


def _kinds(snapshot: Snapshot, names: Sequence[str] | None) -> list[TableType]:
    """Return the types to write: nodes before edges, each by name, so that loading in order is natural."""
    if isinstance(names, str):
        raise InvalidOptionError("types is one text; give a list of types")
    catalog = snapshot.catalog
    wanted = (
        catalog.table_types if names is None else {catalog.table_type(n).name: catalog.table_type(n) for n in names}
    )
    kinds = list(wanted.values()) if isinstance(wanted, dict) else list(wanted)
    return sorted(kinds, key=lambda kind: (kind.kind is not TableKind.NODE, kind.name))


class _Export:
    """Writes the types of one snapshot."""

    def __init__(self, snapshot: Snapshot, kinds: list[TableType], request: ExportRequest) -> None:
        self._snapshot = snapshot
        self._kinds = kinds
        self._overwrite = request.overwrite
        self._progress = request.progress
        self._done = 0
        self._total = sum(snapshot.count(kind.name) for kind in kinds)

    def to_lines(self, target: Any) -> tuple[dict[str, int], int]:
        """Write one JSON object per line."""
        rows: dict[str, int] = {}
        size = 0
        with targets.json_target(target, overwrite=self._overwrite) as stream:
            for kind in self._kinds:
                rows[str(kind.table)] = 0
                for batch in self._told(ordered(self._snapshot, kind)):
                    for start in range(0, batch.num_rows, LINES_ROWS):
                        part = batch.slice(start, LINES_ROWS)
                        size += targets.write_lines(stream, record_lines(kind, part))
                    rows[str(kind.table)] += batch.num_rows
        return rows, size

    def to_folder(self, target: Path) -> tuple[dict[str, int], int]:
        """Write one Parquet file per type, also for a type without rows."""
        rows: dict[str, int] = {}
        size = 0
        with targets.folder_target(target, overwrite=self._overwrite) as folder:
            for kind in self._kinds:
                batches = self._told(ordered(self._snapshot, kind))
                count, written = targets.write_parquet(folder, kind.name, plain_schema(kind), batches)
                rows[str(kind.table)] = count
                size += written
        return rows, size

    def _told(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch
            self._done += batch.num_rows
            if self._progress is not None:
                self._progress(self._done, self._total)


def ordered(snapshot: Snapshot, kind: TableType) -> Iterator[pa.RecordBatch]:
    """Yield a type's rows by id, or in table order if there are too many ids to hold."""
    schema = plain_schema(kind)
    batches = (_plain(batch, schema) for batch in snapshot.scan(kind.name))
    if snapshot.count(kind.name) > ORDERED_ROWS_MAX:
        for batch in batches:
            yield from pieces(batch)
        return
    with Scratch(schema, memory_bytes=MEMORY_BYTES_DEFAULT, folder=None) as scratch:
        ids: list[Any] = []
        scratch.fill(batches, lambda piece: ids.append(piece.column("id")))
        if ids:
            order = compute.sort_indices(pa.chunked_array(ids))
            yield from scratch.rows_at(order.to_numpy())


def _plain(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch as files hold it: in the order of the schema, and without annotations."""
    return pa.RecordBatch.from_arrays([batch.column(name) for name in schema.names], schema=schema)
