"""What a write answers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from omnigraph.ids import CommitId


@dataclass(frozen=True, slots=True, kw_only=True)
class TableReceipt:
    """What a write did to one table."""

    rows_inserted: int = 0
    rows_updated: int = 0
    rows_unchanged: int = 0
    rows_deleted: int = 0
    files: int = 0
    bytes: int = 0

    def to_dict(self) -> dict[str, int]:
        """Return plain values."""
        return {
            "rows_inserted": self.rows_inserted,
            "rows_updated": self.rows_updated,
            "rows_unchanged": self.rows_unchanged,
            "rows_deleted": self.rows_deleted,
            "files": self.files,
            "bytes": self.bytes,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectedRows:
    """How many rows of one table were not written, and how many of them for which reason; a row may have several."""

    rows: int
    reasons: Mapping[str, int]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {"rows": self.rows, "reasons": dict(self.reasons)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What a transaction made visible; ``commit`` is None when there was nothing to do.

    ``rerun`` says that this very txn had landed before, in ``commit``, and nothing was done now. ``rejected`` counts
    by table the rows that ``constraints="quarantine"`` left out.
    """

    branch: str
    commit: CommitId | None
    version: int | None
    tables: Mapping[str, TableReceipt] = field(default_factory=dict)
    attempts: int = 0
    milliseconds: Mapping[str, float] = field(default_factory=dict)
    rerun: bool = False
    rejected: Mapping[str, RejectedRows] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "branch": self.branch,
            "commit": self.commit,
            "version": self.version,
            "tables": {key: table.to_dict() for key, table in self.tables.items()},
            "attempts": self.attempts,
            "milliseconds": dict(self.milliseconds),
            "rerun": self.rerun,
            "rejected": {key: rows.to_dict() for key, rows in self.rejected.items()},
        }
