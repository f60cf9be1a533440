"""From a commit to what history says of it, by the names that Delta's history uses."""

from collections.abc import Mapping
from typing import Final

from omnigraph.model.commit_history import HistoryRow
from omnigraph.model.lineage import FIRST_VERSION, Commit

ROWS: Final = {
    "rows_inserted": "numTargetRowsInserted",
    "rows_updated": "numTargetRowsUpdated",
    "rows_deleted": "numTargetRowsDeleted",
    "rows_unchanged": "numUnchangedRows",
    "files": "numFiles",
    "bytes": "numOutputBytes",
    "files_added": "numAddedFiles",
    "files_removed": "numRemovedFiles",
    "bytes_added": "numAddedBytes",
}
"""What a commit counts, and what Delta calls it."""
OUTPUT_ROWS: Final = "numOutputRows"
EXECUTION_TIME: Final = "executionTimeMs"


def history_row(commit: Commit) -> HistoryRow:
    """Return what history says of a commit; of one that has expired too, for that much of it is kept."""
    tables = {key: _metrics(counts) for key, counts in commit.metrics.items()}
    totals: dict[str, int] = {}
    for metrics in tables.values():
        for name, value in metrics.items():
            totals[name] = totals.get(name, 0) + value
    if commit.took_ms is not None:
        totals[EXECUTION_TIME] = commit.took_ms
    return HistoryRow(
        version=commit.version,
        timestamp=commit.created_at,
        actor=commit.actor,
        operation=commit.operation,
        operation_parameters=_parameters(commit),
        operation_metrics=totals,
        table_metrics=tables,
        read_version=commit.version - 1 if commit.version > FIRST_VERSION else None,
        message=commit.message,
        user_metadata=commit.user_metadata,
        commit=commit.id,
        branch=commit.branch,
        parents=commit.parents,
    )


def _metrics(counts: Mapping[str, int]) -> dict[str, int]:
    told = {ROWS[name]: int(value) for name, value in counts.items() if name in ROWS}
    if "rows_inserted" in counts:
        told[OUTPUT_ROWS] = int(counts["rows_inserted"]) + int(counts.get("rows_updated", 0))
    return told


def _parameters(commit: Commit) -> dict[str, str]:
    said: dict[str, str] = {}
    if commit.metrics:
        said["tables"] = ", ".join(sorted(commit.metrics))
    if len(commit.parents) > 1:
        said["source"] = ", ".join(commit.parents[1:])
    if commit.txn is not None:
        said |= {"txnAppId": commit.txn[0], "txnVersion": str(commit.txn[1])}
    return said
