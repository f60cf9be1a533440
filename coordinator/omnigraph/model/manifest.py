"""The state of `__manifest` at one moment, as a value."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from omnigraph.ids import CommitId
from omnigraph.model.lineage import Branch, CommitRow, Tag, Txn

FORMAT_VERSION = 1
FORMAT_KEY = "omnigraph:format_version"


class SpanKind(StrEnum):
    """What the rows of a stored file are."""

    COMMITS = "commits"
    CATALOG = "catalog"


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """What one older file of the manifest holds, so that a look-up opens only files that can answer.

    The bounds are of commit ids, versions and times; a catalog file has none of them.
    """

    file: str
    kind: SpanKind
    tier: int
    rows: int
    bytes: int
    first_id: str = ""
    last_id: str = ""
    first_version: int = 0
    last_version: int = 0
    oldest: datetime | None = None
    newest: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaRow:
    """An accepted schema: its source text and its compiled form, under the hash of the latter."""

    hash: str
    source: str
    catalog: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRow:
    """A table that was created once: cleanup works from these, also after the type was dropped."""

    id: str
    key: str
    location: str
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestState:
    """Everything a publish may depend on or change.

    ``tail`` holds the newest commits, in the order they were published, in the same file as the
    names; ``spans`` say which older files hold the rest, oldest first.
    """

    branches: Mapping[str, Branch]
    tags: Mapping[str, Tag]
    txns: Mapping[str, Txn]
    tail: tuple[CommitRow, ...]
    spans: tuple[Span, ...]
    abandoned: Mapping[CommitId, datetime] = field(default_factory=dict)
    """Commits that were promised and will never be: whoever still tries one is refused."""
    arriving: "tuple[SchemaRow | TableRow, ...]" = ()
    """Schemas and tables that are not stored yet: the publish of this state stores them."""

    @property
    def commit_spans(self) -> tuple[Span, ...]:
        """The files that hold commits, oldest first."""
        return tuple(span for span in self.spans if span.kind is SpanKind.COMMITS)

    @property
    def catalog_spans(self) -> tuple[Span, ...]:
        """The files that hold schemas and tables."""
        return tuple(span for span in self.spans if span.kind is SpanKind.CATALOG)
