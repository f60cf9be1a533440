"""Which indexes a table is to have, and what building them answers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from omnigraph.ids import CommitId


class IndexKind(StrEnum):
    """How a column is indexed, as Lance calls it."""

    BTREE = "BTREE"
    BITMAP = "BITMAP"
    INVERTED = "INVERTED"
    IVF_PQ = "IVF_PQ"
    IVF_SQ = "IVF_SQ"


LOOKUP_KINDS: Final = frozenset({IndexKind.BTREE, IndexKind.BITMAP})
"""Those that find rows by a value."""
EXTENDED_KINDS: Final = frozenset({IndexKind.BTREE})
"""Those that know which of their rows have moved, so that they can be extended whatever was written."""
VECTOR_KINDS: Final = frozenset({IndexKind.IVF_PQ, IndexKind.IVF_SQ})
"""Those that must be trained, and may have too little to be."""


@dataclass(frozen=True, slots=True, order=True)
class WantedIndex:
    """An index that a type is to have."""

    column: str
    kind: IndexKind


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexCoverage:
    """One index of one table: how many of its rows it covers, and how many of these were added now.

    ``pending`` says why rows are left out that can not be indexed yet; they are found all the same.
    """

    kind: IndexKind
    rows: int
    rows_covered: int
    rows_added: int = 0
    pending: str | None = None

    @property
    def share(self) -> float:
        """The share of rows that are covered; of no rows, all are."""
        return self.rows_covered / self.rows if self.rows else 1.0

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "kind": str(self.kind),
            "rows": self.rows,
            "rows_covered": self.rows_covered,
            "rows_added": self.rows_added,
            "share": self.share,
            "pending": self.pending,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexReport:
    """The indexes of a branch, by table and column; ``commit`` is None when nothing was to be done.

    ``dropped`` are columns by table that had an index which the schema no longer asks for.
    """

    branch: str
    commit: CommitId | None
    version: int | None
    tables: Mapping[str, Mapping[str, IndexCoverage]] = field(default_factory=dict)
    dropped: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def pending(self) -> dict[str, str]:
        """Why rows are left out, by `table.column`."""
        every = ((f"{key}.{column}", one.pending) for key, some in self.tables.items() for column, one in some.items())
        return {name: reason for name, reason in every if reason is not None}

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "branch": self.branch,
            "commit": self.commit,
            "version": self.version,
            "tables": {
                key: {column: one.to_dict() for column, one in columns.items()} for key, columns in self.tables.items()
            },
            "dropped": {key: list(columns) for key, columns in self.dropped.items()},
        }
