"""What a cleanup answers: what goes, what stays and for whom, and what could not be done."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from omnigraph.ids import CommitId
from omnigraph.model.drawing import html_table


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovedFiles:
    """Files of one kind that went from one place, or would."""

    table: str
    kind: str
    files: int
    bytes: int

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {"table": self.table, "kind": self.kind, "files": self.files, "bytes": self.bytes}


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptFiles:
    """Files that stay, and who holds them: a branch, a tag, a promise, a write that is being staged, or their age."""

    table: str
    held_by: str
    files: int
    bytes: int

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {"table": self.table, "held_by": self.held_by, "files": self.files, "bytes": self.bytes}


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """A table that something could not be done for; the others were gone on with."""

    table: str
    reason: str

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {"table": self.table, "reason": self.reason}


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanupReport:
    """What a cleanup did or, as a dry run, would do."""

    dry_run: bool
    expired: tuple[CommitId, ...]
    commits_kept: int
    removed: tuple[RemovedFiles, ...]
    kept: tuple[KeptFiles, ...]
    troubles: tuple[Trouble, ...] = ()

    @property
    def files(self) -> int:
        """How many files go."""
        return sum(one.files for one in self.removed)

    @property
    def bytes(self) -> int:
        """How large they are."""
        return sum(one.bytes for one in self.removed)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "dry_run": self.dry_run,
            "expired": list(self.expired),
            "commits_kept": self.commits_kept,
            "files": self.files,
            "bytes": self.bytes,
            "removed": [one.to_dict() for one in self.removed],
            "kept": [one.to_dict() for one in self.kept],
            "troubles": [one.to_dict() for one in self.troubles],
        }

    def rows(self) -> Iterable[tuple[str, str, str, int, int]]:
        """Yield a line for everything that goes, then for everything that stays: table, what, why, files, bytes."""
        goes = "would go" if self.dry_run else "gone"
        for gone in self.removed:
            yield gone.table, gone.kind, goes, gone.files, gone.bytes
        for kept in self.kept:
            yield kept.table, "", f"held by {kept.held_by}", kept.files, kept.bytes

    def _repr_html_(self) -> str:
        title = f"{len(self.expired):,} commits, {self.files:,} files, {self.bytes:,} bytes"
        return html_table(title, ("table", "kind", "why", "files", "bytes"), list(self.rows()))
