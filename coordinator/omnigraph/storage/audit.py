"""`_graph_commit_recoveries.lance`: one row per recovery, and never two."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any

import pyarrow as pa

from omnigraph.errors import StorageError
from omnigraph.storage.lance_door import StoredFile, SwapLostError, SwappedRows, SwapUncertainError
from omnigraph.storage.objects import ObjectStore

APPEND_TRIES_MAX = 100
FILES_MAX = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRow:
    """What a recovery did, for whom, and to which tables."""

    operation: str
    kind: str
    commit: str
    original_actor: str | None
    writer: str
    branch: str
    tables: tuple[Mapping[str, Any], ...]
    created_at: datetime

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "operation": self.operation,
            "kind": self.kind,
            "commit": self.commit,
            "original_actor": self.original_actor,
            "writer": self.writer,
            "branch": self.branch,
            "tables": [dict(table) for table in self.tables],
            "created_at": self.created_at.isoformat(),
        }


@lru_cache(maxsize=1)
def audit_schema() -> pa.Schema:
    """Return the columns of the audit dataset."""
    fields: list[pa.Field[Any]] = [
        pa.field("operation_id", pa.string(), nullable=False),
        pa.field("recovery_kind", pa.string(), nullable=False),
        pa.field("graph_commit_id", pa.string(), nullable=False),
        pa.field("recovery_for_actor", pa.string()),
        pa.field("sidecar_writer_kind", pa.string(), nullable=False),
        pa.field("branch", pa.string(), nullable=False),
        pa.field("per_table_outcomes_json", pa.string(), nullable=False),
        pa.field("created_at", pa.timestamp("us", tz="UTC"), nullable=False),
    ]
    return pa.schema(fields)


class Audit:
    """The audit dataset; it exists only once something was recovered."""

    def __init__(self, dataset: SwappedRows, objects: ObjectStore, folder: str) -> None:
        self._dataset = dataset
        self._objects = objects
        self._folder = folder

    def rows(self) -> list[AuditRow]:
        """Return all rows, oldest first."""
        if not self._exists():
            return []
        at = self._dataset.latest()
        found = [_row(row) for file in at.files for row in at.read(file).to_pylist()]
        return sorted(found, key=lambda row: (row.created_at, row.operation))

    def add(self, row: AuditRow) -> bool:
        """Record a recovery, unless it is recorded already; of several that do at once, one row results."""
        table = pa.Table.from_pylist([_columns(row)], schema=audit_schema())
        for _ in range(APPEND_TRIES_MAX):
            try:
                return self._try_add(row.operation, table)
            except (SwapLostError, SwapUncertainError):
                continue
        raise StorageError("the audit row of a recovery could not be written: other recoveries were faster; try again")

    def _try_add(self, operation: str, table: pa.Table) -> bool:
        if not self._exists():
            self._dataset.create([self._dataset.write(table, None)], audit_schema())
            return True
        at = self._dataset.latest()
        known = [at.read(file) for file in at.files]
        if any(operation in part.column("operation_id").to_pylist() for part in known):
            return False
        files: list[StoredFile] = list(at.stored)
        if len(files) >= FILES_MAX:
            table, files = pa.concat_tables([*known, table]).combine_chunks(), []
        self._dataset.swap(at, [*files, self._dataset.write(table, at)], audit_schema())
        return True

    def _exists(self) -> bool:
        return next(iter(self._objects.list(f"{self._folder}/_versions")), None) is not None


def _columns(row: AuditRow) -> dict[str, Any]:
    return {
        "operation_id": row.operation,
        "recovery_kind": row.kind,
        "graph_commit_id": row.commit,
        "recovery_for_actor": row.original_actor,
        "sidecar_writer_kind": row.writer,
        "branch": row.branch,
        "per_table_outcomes_json": json.dumps([dict(table) for table in row.tables]),
        "created_at": row.created_at,
    }


def _row(columns: Mapping[str, Any]) -> AuditRow:
    return AuditRow(
        operation=columns["operation_id"],
        kind=columns["recovery_kind"],
        commit=columns["graph_commit_id"],
        original_actor=columns["recovery_for_actor"],
        writer=columns["sidecar_writer_kind"],
        branch=columns["branch"],
        tables=tuple(json.loads(columns["per_table_outcomes_json"])),
        created_at=columns["created_at"],
    )
