"""A table to stage into, with short words for what is done to it."""

from itertools import count
from typing import Any

import lance
import pyarrow as pa

from omnigraph.ids import Sources
from omnigraph.model.schema import TableType
from omnigraph.model.staged import Staged, StagedUpsert
from omnigraph.rules.arrow_schema import arrow_schema
from omnigraph.rules.conform import conform
from omnigraph.rules.schema_compile import FreshIds, compile_schema
from omnigraph.storage.lance_door import Sealed, Tables
from omnigraph.storage.lance_sealing import seal
from omnigraph.storage.lance_staged import read_staged_ids
from omnigraph.storage.lance_staging import stage_append, stage_delete, stage_upsert
from omnigraph.storage.roots import StorageOptions

sources = Sources()
mint = sources.mint_many
OPTIONS = StorageOptions()
SCHEMA = "node N { k: String @key  n: I64? }"


def kind_of(schema: str) -> TableType:
    return compile_schema(schema, FreshIds(sources.mint)).type("N")


class Table:
    """A table under test, its pinned version, and short words for what is done to it."""

    def __init__(self, uri: str, schema: str = SCHEMA, options: StorageOptions = OPTIONS) -> None:
        self.uri, self.kind, self.options = uri, kind_of(schema), options
        self.version: int | None = None
        self.names = count()
        Tables(options).ensure(uri, arrow_schema(self.kind))

    def rows(self, rows: list[dict[str, Any]]) -> pa.RecordBatchReader:
        return conform(self.kind, rows, mint).to_reader()

    def append(self, rows: list[dict[str, Any]], **more: Any) -> Any:
        return stage_append(self.uri, self.rows(rows), base_version=self.version, options=self.options, **more)

    def upsert(self, rows: list[dict[str, Any]], **more: Any) -> StagedUpsert:
        return stage_upsert(self.uri, self.version, self.rows(rows), options=self.options, **more)

    def delete(self, **how: Any) -> Any:
        return stage_delete(self.uri, self.version or 1, options=self.options, **how)

    def seal(self, staged: Staged) -> Sealed:
        sealed = seal(self.uri, self.version, staged, f"t{next(self.names)}", {"why": "test"}, options=self.options)
        self.version = sealed.lance_version
        return sealed

    def ids_staged(self, staged: Staged) -> list[Any]:
        return list(read_staged_ids(self.uri, staged, options=self.options).read_all().column("id").to_pylist())

    @property
    def handle(self) -> Any:
        return lance.dataset(self.uri, version=self.version or 1, storage_options=self.options.for_clients() or None)

    @property
    def content(self) -> dict[str, Any]:
        rows = self.handle.scanner(blob_handling="all_binary").to_table().to_pylist()
        assert len({row["id"] for row in rows}) == len(rows)
        return {row["id"]: row for row in rows}

    @property
    def numbers(self) -> dict[str, Any]:
        return {name: row["n"] for name, row in self.content.items()}

    @property
    def row_ids(self) -> dict[str, int]:
        rows = self.handle.scanner(columns=["id"], with_row_id=True).to_table().to_pylist()
        return {row["id"]: row["_rowid"] for row in rows}


def numbered(*numbers: int, n: int | None = None) -> list[dict[str, Any]]:
    return [{"k": f"k{number}", "n": number if n is None else n} for number in numbers]
