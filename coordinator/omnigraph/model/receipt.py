"""What a write answers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from omnigraph.ids import CommitId


@dataclass(frozen=True, slots=True, kw_only=True)
class TableReceipt:
    """What a write did to one table."""

    rows_inserted: int = 0

    def to_dict(self) -> dict[str, int]:
        """Return plain values."""
        return {"rows_inserted": self.rows_inserted}


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What a transaction made visible; ``commit`` is None when there was nothing to do."""

    branch: str
    commit: CommitId | None
    version: int | None
    tables: Mapping[str, TableReceipt] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "branch": self.branch,
            "commit": self.commit,
            "version": self.version,
            "tables": {key: table.to_dict() for key, table in self.tables.items()},
        }
