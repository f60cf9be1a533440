"""How texts are compressed: a sample of the rows is written in both ways, and each column gets what suits it.

Left to itself, Lance compresses texts by a table of frequent parts (FSST). That makes most of them small, and takes
most of the time of a write. LZ4 takes a third of that time and is read back a little sooner, but finds only what was
there before. So texts get LZ4 where it makes them about as small: ids that count, addresses, words that repeat. Texts
that FSST does not make half as small get it too, as digests and tokens, unless rows are known by them: ids stand in
every edge.

Files say themselves how their columns are compressed, so this is decided anew for each write, and no version knows of
it. Numbers are left to Lance, which packs them by their bits: with LZ4 they take three times as long to be searched.
Nothing depends on it: where a sample can not be written, everything is left to Lance.
"""

import tempfile
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from lance import LanceDataset
from lance.file import LanceFileReader, LanceFileWriter

from omnigraph.observing import logger
from omnigraph.storage.lance_door import LANCE_ERRORS, STORAGE_VERSION
from omnigraph.storage.lance_fields import with_metadata
from omnigraph.storage.roots import StorageOptions

COMPRESSION: Final = b"lance-encoding:compression"
LZ4: Final = b"lz4"
ROWS_MIN: Final = 32_768
"""A write whose first part has fewer rows is over before looking at a sample would have paid."""
SAMPLE_ROWS: Final = 4_096
TEXT_BYTES_MAX: Final = 100
"""Longer texts are compressed one by one, and LZ4 finds nothing in one of them."""
ABOUT_AS_SMALL: Final = 1.2
HALF: Final = 0.55
IDENTITY: Final = frozenset(("id", "src", "dst"))

log = logger(__name__)


def looked_at(batches: Iterable[pa.RecordBatch]) -> tuple[Iterator[pa.RecordBatch], tuple[str, ...]]:
    """Return rows as they come, and the columns of which LZ4 is to be made."""
    rows = iter(batches)
    first = next(rows, None)
    if first is None:
        return iter(()), ()
    return chain([first], rows), quick_columns(first) if first.num_rows >= ROWS_MIN else ()


def quick_columns(rows: pa.RecordBatch) -> tuple[str, ...]:
    """Return the columns that LZ4 suits better than what Lance would do."""
    some = rows.slice(max(0, rows.num_rows - SAMPLE_ROWS) // 2, SAMPLE_ROWS)
    names = [field.name for field in rows.schema if _is_short_text(some.column(field.name))]
    if not names:
        return ()
    sample = some.select(names)
    try:
        plain, quick = _sizes(sample, None), _sizes(sample, LZ4)
    except LANCE_ERRORS as problem:
        log.warning("texts are compressed as Lance does it: a sample can not be written: %s", problem)
        return ()
    return tuple(name for name in names if _is_better(sample, name, plain[name], quick[name]))


def writing(handle: LanceDataset, quick: tuple[str, ...], options: StorageOptions) -> LanceDataset:
    """Return a handle by which files are written with LZ4 for some columns; nothing in storage changes."""
    if not quick:
        return handle
    opened: Any = handle
    account = with_metadata(
        opened._ds.serialized_manifest(),  # noqa: SLF001  (what Lance's own pickles are made of)
        {name: {COMPRESSION: LZ4} for name in quick},
    )
    return LanceDataset(
        handle.uri, int(handle.version), serialized_manifest=account, storage_options=options.for_clients() or None
    )


def _is_short_text(column: Any) -> bool:
    return bool(pa.types.is_string(column.type)) and column.nbytes <= TEXT_BYTES_MAX * len(column)


def _is_better(sample: pa.RecordBatch, name: str, plain: int, quick: int) -> bool:
    if quick <= ABOUT_AS_SMALL * plain:
        return True
    column: Any = sample.column(name)
    is_identity = name in IDENTITY or ("id" in sample.schema.names and column.equals(sample.column("id")))
    return not is_identity and plain > HALF * column.nbytes


def _sizes(sample: pa.RecordBatch, codec: bytes | None) -> dict[str, int]:
    """Return how many bytes each column takes in a file."""
    metadata: Any = None if codec is None else {COMPRESSION: codec}
    schema = pa.schema([field.with_metadata(metadata) for field in sample.schema])
    with tempfile.TemporaryDirectory(prefix="omnigraph-") as folder:
        place = str(Path(folder) / "sample.lance")
        with LanceFileWriter(place, schema, version=STORAGE_VERSION) as writer:
            writer.write_batch(pa.RecordBatch.from_arrays(sample.columns, schema=schema))
        columns: Any = LanceFileReader(place).metadata().columns
    sizes = [sum(int(buffer.size) for page in column.pages for buffer in page.buffers) for column in columns]
    return dict(zip(sample.schema.names, sizes, strict=True))
