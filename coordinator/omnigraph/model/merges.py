"""What a merge is asked for, what it meets, and what it answers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from omnigraph.ids import CommitId
from omnigraph.model.drawing import html_table


class Outcome(StrEnum):
    """How a merge ended; ``Conflicts`` only if it was not meant to be applied."""

    ALREADY_UP_TO_DATE = "AlreadyUpToDate"
    FAST_FORWARD = "FastForward"
    MERGED = "Merged"
    CONFLICTS = "Conflicts"


class ConflictKind(StrEnum):
    """Why two sides do not go together."""

    DIVERGENT_INSERT = "DivergentInsert"
    DIVERGENT_UPDATE = "DivergentUpdate"
    DELETE_VS_UPDATE = "DeleteVsUpdate"
    ORPHAN_EDGE = "OrphanEdge"
    UNIQUE_VIOLATION = "UniqueViolation"
    CARDINALITY_VIOLATION = "CardinalityViolation"
    VALUE_CONSTRAINT_VIOLATION = "ValueConstraintViolation"
    SCHEMA_DIVERGENCE = "SchemaDivergence"


class Policy(StrEnum):
    """What to do with a row that both sides changed, each in its own way."""

    FAIL = "fail"
    OURS = "ours"
    THEIRS = "theirs"
    CELL = "cell"


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """One thing that does not go together: a row as the base, the target (ours) and the source (theirs) have it."""

    table_key: str
    row_id: str | None
    kind: ConflictKind
    message: str
    base: Mapping[str, Any] | None = None
    ours: Mapping[str, Any] | None = None
    theirs: Mapping[str, Any] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, without the rows themselves."""
        return {"table_key": self.table_key, "row_id": self.row_id, "kind": str(self.kind), "message": self.message}


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedTable:
    """What a merge does to one table: ``adopted`` as the source has it, or rows of it taken over one by one."""

    adopted: bool
    rows_inserted: int = 0
    rows_updated: int = 0
    rows_deleted: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return plain values; of an adopted table no row was looked at, so none is counted."""
        if self.adopted:
            return {"adopted": True}
        return {
            "adopted": False,
            "rows_inserted": self.rows_inserted,
            "rows_updated": self.rows_updated,
            "rows_deleted": self.rows_deleted,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeResult:
    """What a merge did or, as a dry run, would do; ``commit`` is None if there is none.

    ``conflicts`` are some of them, ``conflict_counts`` counts all, by table and kind.
    """

    outcome: Outcome
    source: str
    target: str
    source_commit: CommitId
    target_commit: CommitId
    bases: tuple[CommitId, ...]
    commit: CommitId | None = None
    version: int | None = None
    tables: Mapping[str, MergedTable] = field(default_factory=dict)
    conflicts: tuple[Conflict, ...] = ()
    conflict_counts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    dry_run: bool = False
    source_deleted: bool = False
    attempts: int = 1

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "outcome": str(self.outcome),
            "source": self.source,
            "target": self.target,
            "source_commit": self.source_commit,
            "target_commit": self.target_commit,
            "bases": list(self.bases),
            "commit": self.commit,
            "version": self.version,
            "tables": {key: table.to_dict() for key, table in self.tables.items()},
            "merge_conflicts": [conflict.to_dict() for conflict in self.conflicts],
            "conflict_counts": {key: dict(counts) for key, counts in self.conflict_counts.items()},
            "dry_run": self.dry_run,
            "source_deleted": self.source_deleted,
            "attempts": self.attempts,
        }

    def _repr_html_(self) -> str:
        title = f"{self.source} → {self.target}: {self.outcome}"
        keys = dict.fromkeys((*self.tables, *self.conflict_counts))
        columns = ("table", "inserted", "updated", "deleted", "conflicts")
        return html_table(title, columns, [self._cells(key) for key in keys])

    def _cells(self, key: str) -> tuple[object, ...]:
        table = self.tables.get(key)
        counts: tuple[object, ...] = ("", "", "")
        if table is not None:
            rows = (table.rows_inserted, table.rows_updated, table.rows_deleted)
            counts = ("adopted", "", "") if table.adopted else rows
        return (key, *counts, sum(self.conflict_counts.get(key, {}).values()) or "")
