"""What a report is made of: everything that is told, gathered before anything is drawn."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from omnigraph.model.catalog import Catalog
from omnigraph.model.diffs import TableDiff
from omnigraph.model.indexes import IndexCoverage
from omnigraph.model.lineage import Branch, Commit, Tag
from omnigraph.model.merges import MergeResult


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """The newest commits of all branches, newest first, out of ``total``; and all names."""

    commits: tuple[Commit, ...]
    total: int
    branches: tuple[Branch, ...]
    tags: tuple[Tag, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSize:
    """One table as the commit has it: rows, files, bytes, and what its indexes cover, or why that is unknown."""

    key: str
    rows: int
    files: int = 0
    bytes: int = 0
    indexes: Mapping[str, IndexCoverage] = field(default_factory=dict)
    trouble: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffFacts:
    """What differs between two commits, counted, and a few rows of each table."""

    old: Commit
    new: Commit
    tables: Mapping[str, TableDiff]
    samples: Mapping[str, tuple[Mapping[str, Any], ...]] = field(default_factory=dict)
    old_name: str | None = None
    new_name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryFact:
    """One recovery, as the audit has it."""

    at: datetime
    kind: str
    branch: str
    commit: str
    writer: str
    actor: str | None
    tables: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Recoveries:
    """The newest recoveries, newest first, out of ``total``; and how many promises wait to be settled."""

    rows: tuple[RecoveryFact, ...]
    total: int
    pending: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportFacts:
    """All that one report tells."""

    root: str
    branch: str
    head: Commit
    catalog: Catalog
    history: History
    tables: tuple[TableSize, ...]
    tables_left_out: int
    recoveries: Recoveries
    diff: DiffFacts | None = None
    merge: MergeResult | None = None
    made_at: datetime
    made_by: str
