"""What became of the rows of a graph between two commits, counted."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDiff:
    """How many rows of one table were inserted, updated and deleted, and which columns only one side has."""

    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    columns_added: tuple[str, ...] = ()
    columns_removed: tuple[str, ...] = ()

    @property
    def rows(self) -> int:
        """How many rows differ."""
        return self.inserted + self.updated + self.deleted

    @property
    def is_empty(self) -> bool:
        """Whether nothing differs."""
        return not (self.rows or self.columns_added or self.columns_removed)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        columns = {"columns_added": list(self.columns_added), "columns_removed": list(self.columns_removed)}
        counts: dict[str, Any] = {"inserted": self.inserted, "updated": self.updated, "deleted": self.deleted}
        return counts | {name: value for name, value in columns.items() if value}
