"""Commits, and the names that point at them."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn

from omnigraph.errors import CommitExpiredError, CorruptGraphError
from omnigraph.ids import CommitId, Incarnation, TableId
from omnigraph.model.tables import Pin

MAIN = "main"
FIRST_VERSION = 1

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def to_micros(moment: datetime) -> int:
    """Return whole microseconds since 1970 in UTC."""
    return (moment - _EPOCH) // _MICROSECOND


def from_micros(micros: int) -> datetime:
    """Read :func:`to_micros` back."""
    return _EPOCH + micros * _MICROSECOND


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A stretch of inherited history: the commits of one branch incarnation up to ``upto``."""

    incarnation: Incarnation
    upto: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkPoint:
    """A commit to start a branch from, with all that its history needs."""

    commit: CommitId
    version: int
    lineage: tuple[Segment, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """A moving name for a commit.

    ``incarnation`` is new at every create, so a branch deleted and made again is never mistaken
    for the old one. ``lineage`` is the history it inherited, oldest first.
    """

    name: str
    incarnation: Incarnation
    head: CommitId
    version: int
    created_at: datetime
    created_by: str | None
    parent: str | None
    lineage: tuple[Segment, ...]

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The whole first-parent history, newest stretch first; the inherited ones stop where it left them."""
        own = Segment(incarnation=self.incarnation, upto=self.version)
        return (own, *reversed(self.lineage))

    @property
    def fork_point(self) -> ForkPoint:
        """The head, as a place to fork from."""
        inherited = self.lineage[-1].upto if self.lineage else 0
        own = (Segment(incarnation=self.incarnation, upto=self.version),) if self.version > inherited else ()
        return ForkPoint(commit=self.head, version=self.version, lineage=self.lineage + own)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for people and JSON."""
        return {
            "name": self.name,
            "head": self.head,
            "version": self.version,
            "incarnation": self.incarnation,
            "created_at": self.created_at.isoformat(),
            "created_by": self.created_by,
            "parent": self.parent,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Tag:
    """A name for a commit that does not move."""

    name: str
    commit: CommitId
    created_at: datetime
    created_by: str | None

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for people and JSON."""
        return {
            "name": self.name,
            "commit": self.commit,
            "created_at": self.created_at.isoformat(),
            "created_by": self.created_by,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Txn:
    """The last ``txnVersion`` an application landed, so that a rerun is a no-op."""

    app_id: str
    version: int
    commit: CommitId


@dataclass(frozen=True, slots=True, kw_only=True)
class GonePins(Mapping[TableId, Pin]):
    """The pins of a commit that cleanup has removed: whoever looks at them is told so."""

    commit: CommitId
    expired_at: datetime

    def _refuse(self) -> NoReturn:
        raise CommitExpiredError(
            f"commit {self.commit} was cleaned up at {self.expired_at:%Y-%m-%d %H:%M:%S} UTC, and what it held is "
            "gone; choose a newer one, and tag what must stay",
            commit=self.commit,
        )

    def __getitem__(self, table: TableId) -> Pin:
        self._refuse()

    def __iter__(self) -> Iterator[TableId]:
        self._refuse()

    def __len__(self) -> int:
        self._refuse()


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """One graph commit: who, what, when, and the pins that are its snapshot.

    One with ``expired_at`` is history only: to look at its pins is an error that says so. ``took_ms`` is how long the
    operation took until it was published, and ``txn`` what an application called it; older commits may know neither.
    """

    id: CommitId
    branch: str
    incarnation: Incarnation
    version: int
    parents: tuple[CommitId, ...]
    actor: str | None
    operation: str
    message: str | None
    created_at: datetime
    schema_hash: str
    lineage: tuple[Segment, ...]
    pins: Mapping[TableId, Pin]
    metrics: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    user_metadata: str | None = None
    expired_at: datetime | None = None
    took_ms: int | None = None
    txn: tuple[str, int] | None = None

    def refuse_expired(self) -> None:
        """Raise if what the commit held is gone."""
        if self.expired_at is not None:
            len(self.pins)

    @property
    def fork_point(self) -> ForkPoint:
        """The commit, as a place to fork from."""
        own = Segment(incarnation=self.incarnation, upto=self.version)
        return ForkPoint(commit=self.id, version=self.version, lineage=(*self.lineage, own))

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for people and JSON."""
        return {
            "id": self.id,
            "branch": self.branch,
            "version": self.version,
            "parents": list(self.parents),
            "actor": self.actor,
            "operation": self.operation,
            "message": self.message,
            "created_at": self.created_at.isoformat(),
            "schema_hash": self.schema_hash,
            "metrics": {table: dict(values) for table, values in self.metrics.items()},
            "user_metadata": self.user_metadata,
            "expired_at": None if self.expired_at is None else self.expired_at.isoformat(),
            "took_ms": self.took_ms,
            "txn": None if self.txn is None else list(self.txn),
        }


def segments_to_json(segments: tuple[Segment, ...]) -> list[list[Any]]:
    """Return segments as plain pairs."""
    return [[s.incarnation, s.upto] for s in segments]


def segments_from_json(body: list[list[Any]]) -> tuple[Segment, ...]:
    """Read segments back."""
    return tuple(Segment(incarnation=Incarnation(i), upto=int(v)) for i, v in body)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRow:
    """A commit as the manifest stores it: searchable columns, and the rest as text until asked for.

    Publishing copies the newest rows along; keeping ``body`` as text makes that cost the same
    whether a commit pins five tables or two hundred.
    """

    id: CommitId
    incarnation: Incarnation
    version: int
    created_at: datetime
    actor: str | None
    body: str

    @classmethod
    def of(cls, commit: Commit) -> "CommitRow":
        """Encode a commit."""
        body: dict[str, Any] = {
            "branch": commit.branch,
            "parents": list(commit.parents),
            "operation": commit.operation,
            "message": commit.message,
            "schema": commit.schema_hash,
            "lineage": segments_to_json(commit.lineage),
            "pins": [pin.to_json() for _, pin in sorted(commit.pins.items())],
            "metrics": {table: dict(values) for table, values in commit.metrics.items()},
            "user_metadata": commit.user_metadata,
        }
        known = {"took_ms": commit.took_ms, "txn": None if commit.txn is None else list(commit.txn)}
        body |= {name: value for name, value in known.items() if value is not None}
        return cls(
            id=commit.id,
            incarnation=commit.incarnation,
            version=commit.version,
            created_at=commit.created_at,
            actor=commit.actor,
            body=json.dumps(body, separators=(",", ":"), ensure_ascii=False),
        )

    def to_text(self) -> str:
        """Return it as one line of JSON."""
        at = to_micros(self.created_at)
        return json.dumps([self.id, self.incarnation, self.version, at, self.actor, self.body])

    @classmethod
    def from_text(cls, text: str) -> "CommitRow":
        """Read :meth:`to_text` back."""
        commit, incarnation, version, at, actor, body = json.loads(text)
        return cls(
            id=CommitId(commit),
            incarnation=Incarnation(incarnation),
            version=int(version),
            created_at=from_micros(at),
            actor=actor,
            body=body,
        )

    def without_pins(self, at: datetime) -> "CommitRow":
        """Return the row of the commit as history only; who does not know of such rows can not decode it."""
        body = {name: value for name, value in json.loads(self.body).items() if name != "pins"}
        body["expired"] = to_micros(at)
        return replace(self, body=json.dumps(body, separators=(",", ":"), ensure_ascii=False))

    @property
    def parents(self) -> tuple[CommitId, ...]:
        """Decode what it was built on, and nothing else."""
        try:
            return tuple(CommitId(str(parent)) for parent in json.loads(self.body)["parents"])
        except (KeyError, ValueError, TypeError) as problem:
            raise self.garbage(problem) from problem

    @property
    def commit(self) -> Commit:
        """Decode the commit."""
        try:
            body = json.loads(self.body)
        except ValueError as problem:
            raise self.garbage(problem) from problem
        return self.decoded(body)

    def decoded(self, body: Mapping[str, Any]) -> Commit:
        """Return the commit, of the values that its text has."""
        try:
            return self._decoded(body)
        except (KeyError, ValueError, TypeError) as problem:
            raise self.garbage(problem) from problem

    def garbage(self, problem: Exception) -> CorruptGraphError:
        """Return the error to raise if what it says is not what a commit says."""
        return CorruptGraphError(f"commit {self.id} can not be decoded: {problem!r}", commit=self.id)

    def _decoded(self, body: Mapping[str, Any]) -> Commit:
        expired_at = from_micros(body["expired"]) if "expired" in body else None
        pins: Mapping[TableId, Pin]
        if expired_at is None:
            pins = {pin["table"]: Pin.from_json(pin) for pin in body["pins"]}
        else:
            pins = GonePins(commit=self.id, expired_at=expired_at)
        return Commit(
            id=self.id,
            branch=body["branch"],
            incarnation=self.incarnation,
            version=self.version,
            parents=tuple(body["parents"]),
            actor=self.actor,
            operation=body["operation"],
            message=body["message"],
            created_at=self.created_at,
            schema_hash=body["schema"],
            lineage=segments_from_json(body["lineage"]),
            pins=pins,
            metrics=body["metrics"],
            user_metadata=body["user_metadata"],
            expired_at=expired_at,
            took_ms=body.get("took_ms"),
            txn=_txn(body.get("txn")),
        )


def bodies_of(rows: Sequence[CommitRow]) -> list[Any]:
    """Return the values of the texts of commits, read at once: that is sooner done than one by one."""
    try:
        bodies: list[Any] = json.loads(f"[{','.join([row.body for row in rows])}]")
    except ValueError:
        bodies = []
    if len(bodies) != len(rows):  # one of them can not be read, or is two; its own error names it
        for row in rows:
            _ = row.commit
        raise CorruptGraphError("the texts of some commits do not go together")
    return bodies


def _txn(body: list[Any] | None) -> tuple[str, int] | None:
    return None if body is None else (str(body[0]), int(body[1]))
