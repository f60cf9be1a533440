"""Clustering: the rows of a table are written anew in the order of some columns, so that like lies beside like.

Rows get new row ids: a fragment notes its row ids in every later version of the table, a byte or less for each row as
long as they rise, and eight where they do not. Whoever compares commits then compares rows, and finds them the same.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
from lance import LanceDataset
from lance.fragment import write_fragments

from omnigraph.rules.arrow_schema import is_blob
from omnigraph.rules.values import compute
from omnigraph.storage.lance_compacting import Rewritten
from omnigraph.storage.lance_door import STORAGE_VERSION
from omnigraph.storage.lance_rows import fragment_text, fragments_of, open_at, stored_schema, translated
from omnigraph.storage.roots import StorageOptions

TAKEN_ROWS: Final = 65_536


@dataclass(frozen=True, slots=True)
class Cluster:
    """An order to write all rows of a version anew in the order of some columns; it can be sent elsewhere."""

    uri: str
    version: int
    options: StorageOptions
    columns: tuple[str, ...]
    rows_per_fragment: int

    @property
    def is_wanted(self) -> bool:
        """Whether rows lie in another order than that of the first column; a table with blobs is left as it is."""
        handle = open_at(self.uri, self.version, self.options)
        if any(is_blob(field) for field in handle.schema):
            return False
        with translated(f"the order of {self.uri} can not be read", self.options):
            return not _is_sorted(handle, self.columns[0])

    def do(self) -> Rewritten:
        """Write them anew; nothing refers to the new files yet."""
        handle = open_at(self.uri, self.version, self.options)
        with translated(f"{self.uri} can not be clustered", self.options):
            schema = stored_schema(handle)
            new = write_fragments(
                pa.RecordBatchReader.from_batches(schema, _in_order(handle, self.columns, schema)),
                handle,
                mode="append",
                schema=schema,
                data_storage_version=STORAGE_VERSION,
                max_rows_per_file=self.rows_per_fragment,
            )
            old = tuple(fragment.metadata for fragment in handle.get_fragments())
            return Rewritten(old, tuple(new), has_new_ids=True)

    def to_text(self, answer: Rewritten) -> str:
        """Tell what was written, on another machine."""
        return json.dumps([[fragment_text(one) for one in side] for side in (answer.old, answer.new)])

    def from_text(self, text: str) -> Rewritten:
        """Read what was told."""
        old, new = json.loads(text)
        return replace(Rewritten(tuple(fragments_of(old)), tuple(fragments_of(new))), has_new_ids=True)


def _in_order(handle: LanceDataset, columns: tuple[str, ...], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Stream all rows in the order of some columns, which are held in memory meanwhile."""
    keys = handle.scanner(list(columns), scan_in_order=True).to_table()
    order: Any = compute.sort_indices(keys, sort_keys=[(name, "ascending") for name in columns])
    del keys
    for start in range(0, len(order), TAKEN_ROWS):
        taken = handle.take(order.slice(start, TAKEN_ROWS), columns=schema.names)
        yield from taken.cast(schema).to_batches()


def _is_sorted(handle: LanceDataset, column: str) -> bool:
    """Tell whether rows are read in the order of a column."""
    last: list[Any] = []
    for batch in handle.scanner([column], scan_in_order=True).to_reader():
        here = pa.concat_arrays([*last, batch.column(column)])
        if compute.any(compute.less(here.slice(1), here.slice(0, max(len(here) - 1, 0)))).as_py():
            return False
        last = [here.slice(len(here) - 1)] if len(here) else []
    return True
