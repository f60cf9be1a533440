"""What verify answers."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from omnigraph.model.drawing import html_table


class Problem(StrEnum):
    """What can be found."""

    UNREADABLE = "unreadable"
    """A version that a commit pins can not be opened or read."""
    MISSING_FILE = "missing_file"
    """A file that a version refers to is not there."""
    WRONG_VERSION = "wrong_version"
    """A version is not the one that was sealed: its rows or its transaction are others."""
    DUPLICATE_IDS = "duplicate_ids"
    """An id occurs more than once in a table."""
    DUPLICATE_VALUES = "duplicate_values"
    """A value that must be unique occurs more than once."""
    DANGLING_ENDS = "dangling_ends"
    """An edge leads to or from a node that is not there."""
    FOREIGN_VERSION = "foreign_version"
    """Someone wrote to the folder of a table without omnigraph; the graph does not see it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is not as it should be, and by which branch, tag or commit it was reached."""

    problem: Problem
    table: str
    held_by: str
    message: str

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {"problem": str(self.problem), "table": self.table, "held_by": self.held_by, "message": self.message}


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyReport:
    """What was looked at, and what was found; ``rows`` were read if it was deep."""

    deep: bool
    commits: int
    versions: int
    files: int
    rows: int
    findings: tuple[Finding, ...]

    @property
    def is_sound(self) -> bool:
        """Whether nothing of the graph is damaged; what others wrote beside it does not damage it."""
        return all(finding.problem is Problem.FOREIGN_VERSION for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "sound": self.is_sound,
            "deep": self.deep,
            "commits": self.commits,
            "versions": self.versions,
            "files": self.files,
            "rows": self.rows,
            "findings": [finding.to_dict() for finding in self.findings],
        }

    def _repr_html_(self) -> str:
        title = f"{'sound' if self.is_sound else 'damaged'}: {self.commits:,} commits, {self.versions:,} versions"
        rows = [(str(f.problem), f.table, f.held_by, f.message) for f in self.findings]
        return html_table(title, ("problem", "table", "held by", "message"), rows)
