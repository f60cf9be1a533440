"""A transaction that several processes stage for: what it is for, what each of them saved, and how it ended.

Whoever has its ticket may save rows for it, and one of them publishes all of it. The ticket is the id of the commit
that this makes, so it is known for ever whether it was made.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, TypeVar

from omnigraph.errors import CorruptGraphError, UnsupportedFormatError
from omnigraph.ids import CommitId, Incarnation, TableId, is_ulid
from omnigraph.model.lineage import from_micros, to_micros

SHARED_NUMBER: Final = 1
SHARED_BYTES_MAX: Final = 64 * 1024 * 1024
VERBS: Final = ("append", "upsert", "overwrite", "delete")
NAMED: Final = "named"
"""What the name of a save begins with after table and verb, if its writer named it."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedTransaction:
    """What a transaction is for and what it is worked out against, for all who stage for it."""

    ticket: CommitId
    branch: str
    incarnation: Incarnation
    base: CommitId
    message: str | None
    actor: str | None
    user_metadata: str | None
    txn: tuple[str, int] | None
    constraints: str
    started_at: datetime

    def to_bytes(self) -> bytes:
        """Encode it."""
        return _bytes(
            {
                "transaction": SHARED_NUMBER,
                "ticket": self.ticket,
                "branch": self.branch,
                "incarnation": self.incarnation,
                "base": self.base,
                "message": self.message,
                "actor": self.actor,
                "user_metadata": self.user_metadata,
                "txn": None if self.txn is None else list(self.txn),
                "constraints": self.constraints,
                "started_at": to_micros(self.started_at),
            }
        )

    @classmethod
    def from_bytes(cls, raw: bytes, name: str) -> "SharedTransaction":
        """Read it back; what is newer or malformed is refused, naming the file."""
        return _read(raw, name, "transaction", cls._decoded)

    @classmethod
    def _decoded(cls, body: Mapping[str, Any]) -> "SharedTransaction":
        txn = body["txn"]
        return cls(
            ticket=CommitId(_id(body, "ticket")),
            branch=_text(body["branch"]),
            incarnation=Incarnation(_id(body, "incarnation")),
            base=CommitId(_id(body, "base")),
            message=_text_or_none(body["message"]),
            actor=_text_or_none(body["actor"]),
            user_metadata=_text_or_none(body["user_metadata"]),
            txn=None if txn is None else (_text(txn[0]), int(txn[1])),
            constraints=_text(body["constraints"]),
            started_at=from_micros(int(body["started_at"])),
        )


@dataclass(frozen=True, slots=True)
class Slot:
    """The place of one save: there is one for each table and verb, and as many more as writers name."""

    table: TableId
    verb: str
    name: tuple[str, int] | None = None
    """The application and its version that a save is known by, so that it can be tried again."""

    @property
    def text(self) -> str:
        """What it is called in storage."""
        if self.name is None:
            return f"{self.table}-{self.verb}"
        app, version = self.name
        known = hashlib.sha256(app.encode()).hexdigest()[:32]  # a name may hold what no path can
        return f"{self.table}-{self.verb}-{NAMED}-{known}-{version}"


def place_of(text: str) -> tuple[TableId, str]:
    """Return the table and the verb of a slot from what it is called."""
    table, _, rest = text.partition("-")
    verb = rest.partition("-")[0]
    if not is_ulid(table) or verb not in VERBS:
        raise CorruptGraphError(f"{text!r} is not the name of what was saved for a transaction")
    return TableId(table), verb


@dataclass(frozen=True, slots=True, kw_only=True)
class Save:
    """What one writer staged for one table; ``attempt`` tells it from another try of the same."""

    ticket: CommitId
    slot: str
    attempt: str
    parts: tuple[str, ...]

    def to_bytes(self) -> bytes:
        """Encode it."""
        return _bytes(
            {
                "save": SHARED_NUMBER,
                "ticket": self.ticket,
                "slot": self.slot,
                "attempt": self.attempt,
                "parts": list(self.parts),
            }
        )

    @classmethod
    def from_bytes(cls, raw: bytes, name: str) -> "Save":
        """Read it back; what is newer or malformed is refused, naming the file."""
        return _read(raw, name, "save", cls._decoded)

    @classmethod
    def _decoded(cls, body: Mapping[str, Any]) -> "Save":
        return cls(
            ticket=CommitId(_id(body, "ticket")),
            slot=_text(body["slot"]),
            attempt=_id(body, "attempt"),
            parts=tuple(map(_text, body["parts"])),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Closing:
    """That the saves are about to be counted; ``alone`` is who has rows that nobody else has, and so must publish."""

    alone: str | None

    def to_bytes(self) -> bytes:
        """Encode it."""
        return _bytes({"closing": SHARED_NUMBER, "alone": self.alone})

    @classmethod
    def from_bytes(cls, raw: bytes, name: str) -> "Closing":
        """Read it back; what is newer or malformed is refused, naming the file."""
        return _read(raw, name, "closing", lambda body: cls(alone=_text_or_none(body["alone"])))


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a transaction ended: the slots that are in it and who must publish them, or that it was given up."""

    slots: tuple[str, ...]
    is_given_up: bool = False
    alone: str | None = None

    def to_bytes(self) -> bytes:
        """Encode it."""
        return _bytes(
            {"ending": SHARED_NUMBER, "slots": list(self.slots), "given_up": self.is_given_up, "alone": self.alone}
        )

    @classmethod
    def from_bytes(cls, raw: bytes, name: str) -> "Ending":
        """Read it back; what is newer or malformed is refused, naming the file."""
        return _read(raw, name, "ending", cls._decoded)

    @classmethod
    def _decoded(cls, body: Mapping[str, Any]) -> "Ending":
        return cls(
            slots=tuple(map(_text, body["slots"])),
            is_given_up=_truth(body["given_up"]),
            alone=_text_or_none(body["alone"]),
        )


def _bytes(body: Mapping[str, Any]) -> bytes:
    return json.dumps(body, indent=1, ensure_ascii=False).encode()


def _read(raw: bytes, name: str, what: str, decoded: Callable[[Mapping[str, Any]], T]) -> T:
    if len(raw) > SHARED_BYTES_MAX:
        raise CorruptGraphError(f"{name} has {len(raw)} bytes, more than any {what} has")
    try:
        body = json.loads(raw)
        number = body[what]
        if type(number) is int and number > SHARED_NUMBER:
            raise UnsupportedFormatError(
                f"{name} has form {number}, newer than {SHARED_NUMBER}, the newest known here; upgrade omnigraph"
            )
        if type(number) is int and number == SHARED_NUMBER:
            return decoded(body)
    except (LookupError, ValueError, TypeError, AttributeError, ArithmeticError, RecursionError) as problem:
        raise CorruptGraphError(f"{name} can not be decoded: {problem!r}") from problem
    raise CorruptGraphError(f"{name} is no {what} of a form that is known here")


def _id(body: Mapping[str, Any], name: str) -> str:
    value = _text(body[name])
    if not is_ulid(value):
        raise ValueError(f"{name} is {value!r}")
    return value


def _text(value: Any) -> str:
    if type(value) is not str:
        raise ValueError(f"{value!r} is no text")
    return value


def _text_or_none(value: Any) -> str | None:
    return None if value is None else _text(value)


def _truth(value: Any) -> bool:
    if type(value) is not bool:
        raise ValueError(f"{value!r} is neither true nor false")
    return value
