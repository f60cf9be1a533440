"""Reading staged work back: what will be written, before any version refers to it."""

from collections.abc import Iterator, Sequence

import pyarrow as pa

from omnigraph.model.staged import Staged, StagedDelete
from omnigraph.storage.lance_door import file_name
from omnigraph.storage.lance_fresh import FRESH_ROWS
from omnigraph.storage.lance_ids import staged_ids_in
from omnigraph.storage.lance_rows import DATA, ID_SCAN_ROWS, file_session, fragments_of, open_at, rows_of, translated
from omnigraph.storage.roots import StorageOptions


def read_staged_ids(uri: str, staged: Staged, *, options: StorageOptions) -> pa.RecordBatchReader:
    """Stream the ids of the rows that were written; for a deletion, of the rows that go."""
    schema = pa.schema([pa.field("id", pa.string(), nullable=False)])
    return pa.RecordBatchReader.from_batches(schema, _staged_ids(uri, staged, schema, options))


def _staged_ids(uri: str, staged: Staged, schema: pa.Schema, options: StorageOptions) -> Iterator[pa.RecordBatch]:
    with translated(f"the ids staged for {uri} can not be read", options):
        if isinstance(staged, StagedDelete):
            handle = open_at(uri, staged.base_version, options)
            for batch in rows_of(handle, [deletion.out for deletion in staged.deletions]):
                yield pa.RecordBatch.from_arrays([batch.column("id")], schema=schema)
        elif staged.fragments:
            session = file_session(uri, options)
            for ids in staged_ids_in(session, fragments_of(staged.fragments)):
                yield pa.RecordBatch.from_arrays([ids], schema=schema)


def read_staged(
    uri: str, staged: Staged, columns: Sequence[str], *, options: StorageOptions
) -> Iterator[pa.RecordBatch]:
    """Stream columns of the rows that were written; those this process has just written are not read again."""
    if isinstance(staged, StagedDelete):
        return
    with translated(f"the rows staged for {uri} can not be read", options):
        session = None
        for fragment in fragments_of(staged.fragments):
            known = FRESH_ROWS.columns(file_name(fragment), columns)
            if known is not None:
                yield from known.to_batches()
                continue
            session = session or file_session(uri, options)
            reader = session.open_reader(f"{DATA}/{file_name(fragment)}", list(columns))
            yield from reader.read_all(batch_size=ID_SCAN_ROWS).to_batches()
