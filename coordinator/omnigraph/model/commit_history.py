"""History as people of other lakehouses read it: one row per commit, with parameters and metrics by Delta's names."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, overload

from omnigraph.ids import CommitId
from omnigraph.model.drawing import html_table

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryRow:
    """One commit: what was done, by whom, how it was asked for, and what it amounted to.

    ``table_metrics`` are the same metrics by table. Those of a commit that counted nothing are empty, and
    ``executionTimeMs`` is missing where nobody knew it.
    """

    version: int
    timestamp: datetime
    actor: str | None
    operation: str
    operation_parameters: Mapping[str, str] = field(default_factory=dict)
    operation_metrics: Mapping[str, int] = field(default_factory=dict)
    table_metrics: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    read_version: int | None = None
    message: str | None = None
    user_metadata: str | None = None
    commit: CommitId
    branch: str
    parents: tuple[CommitId, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, by the names that Delta's history has where it has them."""
        return {
            "version": self.version,
            "timestamp": self.timestamp.isoformat(),
            "actor": self.actor,
            "operation": self.operation,
            "operationParameters": dict(self.operation_parameters),
            "operationMetrics": dict(self.operation_metrics),
            "tableMetrics": {key: dict(values) for key, values in self.table_metrics.items()},
            "readVersion": self.read_version,
            "message": self.message,
            "userMetadata": self.user_metadata,
            "commit": self.commit,
            "branch": self.branch,
            "parents": list(self.parents),
        }


@dataclass(frozen=True, slots=True)
class CommitHistory(Sequence[HistoryRow]):
    """The commits of a branch, newest first."""

    rows: tuple[HistoryRow, ...]

    @overload
    def __getitem__(self, at: int) -> HistoryRow: ...
    @overload
    def __getitem__(self, at: slice) -> "CommitHistory": ...
    def __getitem__(self, at: int | slice) -> "HistoryRow | CommitHistory":
        return CommitHistory(self.rows[at]) if isinstance(at, slice) else self.rows[at]

    def __len__(self) -> int:
        return len(self.rows)

    def to_dict(self) -> list[dict[str, Any]]:
        """Return plain values, a dictionary per commit."""
        return [row.to_dict() for row in self.rows]

    def to_arrow(self) -> "pa.Table":
        """Return a table with a row per commit."""
        import pyarrow as pa  # by itself this module is as quick to import as the package promises

        numbers, words = pa.map_(pa.string(), pa.int64()), pa.map_(pa.string(), pa.string())
        columns: dict[str, pa.DataType] = {
            "version": pa.int64(),
            "timestamp": pa.timestamp("us", tz="UTC"),
            "actor": pa.string(),
            "operation": pa.string(),
            "operationParameters": words,
            "operationMetrics": numbers,
            "tableMetrics": pa.map_(pa.string(), numbers),
            "readVersion": pa.int64(),
            "message": pa.string(),
            "userMetadata": pa.string(),
            "commit": pa.string(),
            "branch": pa.string(),
            "parents": pa.list_(pa.string()),
        }
        rows = [row.to_dict() | {"timestamp": row.timestamp} for row in self.rows]
        schema = pa.schema([pa.field(name, kind) for name, kind in columns.items()])
        return pa.table([pa.array([row[name] for row in rows], kind) for name, kind in columns.items()], schema=schema)

    def _repr_html_(self) -> str:
        columns = ("version", "time (UTC)", "operation", "actor", "message", "metrics")
        return html_table(f"{len(self.rows):,} commits", columns, [_cells(row) for row in self.rows])


def _cells(row: HistoryRow) -> tuple[object, ...]:
    told = ", ".join(f"{name} {value:,}" for name, value in row.operation_metrics.items() if value)
    at = row.timestamp.strftime("%Y-%m-%d %H:%M:%S")
    return str(row.version), at, row.operation, row.actor or "", row.message or "", told
