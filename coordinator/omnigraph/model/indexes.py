"""What building indexes answers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from omnigraph.ids import CommitId


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexCoverage:
    """One index of one table: how many of its rows it covers, and how many of these were added now."""

    rows: int
    rows_covered: int
    rows_added: int = 0

    def to_dict(self) -> dict[str, int]:
        """Return plain values."""
        return {"rows": self.rows, "rows_covered": self.rows_covered, "rows_added": self.rows_added}


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexReport:
    """The indexes of a branch, by table and column; ``commit`` is None when nothing was missing."""

    branch: str
    commit: CommitId | None
    version: int | None
    tables: Mapping[str, Mapping[str, IndexCoverage]] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "branch": self.branch,
            "commit": self.commit,
            "version": self.version,
            "tables": {
                key: {column: one.to_dict() for column, one in columns.items()} for key, columns in self.tables.items()
            },
        }
