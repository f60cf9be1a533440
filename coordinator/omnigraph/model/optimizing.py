"""What optimize answers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from omnigraph.ids import CommitId
from omnigraph.model.cleanups import Trouble


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizedTable:
    """One table that was compacted: its fragments before and after, what was written, and the columns indexed anew."""

    fragments_before: int
    fragments_after: int
    bytes_written: int
    indexed: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "fragments_before": self.fragments_before,
            "fragments_after": self.fragments_after,
            "bytes_written": self.bytes_written,
            "indexed": list(self.indexed),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizeReport:
    """What became of a branch's tables; ``commit`` is None when there was nothing to compact.

    ``shown`` are tables that plain readers of their folders now see as the branch has them; only `main` is shown.
    """

    branch: str
    commit: CommitId | None
    version: int | None
    tables: Mapping[str, OptimizedTable] = field(default_factory=dict)
    shown: tuple[str, ...] = ()
    troubles: tuple[Trouble, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "branch": self.branch,
            "commit": self.commit,
            "version": self.version,
            "tables": {key: one.to_dict() for key, one in self.tables.items()},
            "shown": list(self.shown),
            "troubles": [one.to_dict() for one in self.troubles],
        }
