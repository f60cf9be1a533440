"""The durable promise a writer makes before its first seal: enough to finish the work, or to let it go."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from omnigraph.errors import CorruptGraphError, UnsupportedFormatError
from omnigraph.ids import CommitId, Incarnation, TableId, is_ulid
from omnigraph.model.lineage import from_micros, to_micros
from omnigraph.model.merge_promise import MergePromise
from omnigraph.model.schema_promise import SchemaPromise
from omnigraph.model.staged import (
    Staged,
    StagedAppend,
    StagedDelete,
    StagedOverwrite,
    StagedReshape,
    StagedUpsert,
    staged_from_json,
)
from omnigraph.model.tables import Pin, TableKey

SIDECAR_NUMBER = 3
MERGE_NUMBER = 2
PLAIN_NUMBER = 1
"""The form of a promise that is no merge and changes no schema: whoever does not know of those can finish it."""
SIDECAR_BYTES_MAX = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The process that made the promise; on its own machine one can see whether it still lives."""

    host: str
    process: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePromise:
    """What is promised for one table: seal ``staged`` on ``expected`` under ``transaction``.

    ``must_be_new`` are inserts that may not meet an id that is there already; ``is_new_on_expected`` tells whether
    that was made sure of. ``is_strict`` work was made from what was read, and fits on nothing but that.
    ``few_ids`` are the ids of the rows to insert if these are few: whoever helps need not read them from a file.
    """

    table: TableId
    key: TableKey
    expected: Pin | None
    transaction: str
    staged: Staged
    must_be_new: bool
    is_strict: bool = False
    is_new_on_expected: bool = True
    few_ids: tuple[str, ...] | None = None

    @property
    def metrics(self) -> dict[str, int]:
        """What the commit will say about the table."""
        counts = {"rows_inserted": 0, "rows_updated": 0, "rows_unchanged": 0, "rows_deleted": 0}
        match self.staged:
            case StagedAppend(rows=rows):
                counts["rows_inserted"] = rows
            case StagedOverwrite(rows=rows):
                counts["rows_inserted"] = rows
                counts["rows_deleted"] = self.expected.rows if self.expected else 0
            case StagedDelete(deleted=deleted):
                counts["rows_deleted"] = deleted
            case StagedReshape(rows=rows):
                counts["rows_updated"] = rows
            case StagedUpsert(rows_inserted=inserted, rows_updated=updated, rows_unchanged=unchanged):
                counts |= {"rows_inserted": inserted, "rows_updated": updated, "rows_unchanged": unchanged}
                counts["rows_deleted"] = self.staged.rows_deleted
        size = 0 if isinstance(self.staged, StagedDelete) else self.staged.bytes
        return counts | {"files": len(self.staged.files), "bytes": size}

    @property
    def commutes(self) -> bool:
        """Whether the work fits on a table that has moved: it only adds rows, or replaces them by id."""
        deletes = isinstance(self.staged, StagedUpsert) and self.staged.rows_deleted > 0
        return isinstance(self.staged, StagedAppend | StagedUpsert) and not self.is_strict and not deletes

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "table": self.table,
            "key": str(self.key),
            "expected": None if self.expected is None else self.expected.to_json(),
            "transaction": self.transaction,
            "staged": self.staged.to_json(),
            "must_be_new": self.must_be_new,
            "strict": self.is_strict,
            "new_on_expected": self.is_new_on_expected,
            "few_ids": None if self.few_ids is None else list(self.few_ids),
        }

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> "TablePromise":
        """Read it back."""
        if not is_ulid(body["table"]) or not is_ulid(body["transaction"]):
            raise CorruptGraphError("a sidecar names a table or a transaction by something that is no id")
        return cls(
            table=TableId(body["table"]),
            key=TableKey.parse(body["key"]),
            expected=None if body["expected"] is None else Pin.from_json(body["expected"]),
            transaction=str(body["transaction"]),
            staged=staged_from_json(body["staged"]),
            must_be_new=_truth(body, "must_be_new"),
            is_strict=_truth(body, "strict"),
            is_new_on_expected=_truth(body, "new_on_expected"),
            few_ids=None if body["few_ids"] is None else _texts(body, "few_ids"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPin:
    """A table that was not written but decided that the write is allowed, as it was then."""

    table: TableId
    key: TableKey
    expected: Pin | None

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        pin = None if self.expected is None else self.expected.to_json()
        return {"table": self.table, "key": str(self.key), "expected": pin}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> "ReadPin":
        """Read it back."""
        if not is_ulid(body["table"]):
            raise CorruptGraphError("a sidecar names a table by something that is no id")
        pin = None if body["expected"] is None else Pin.from_json(body["expected"])
        return cls(table=TableId(body["table"]), key=TableKey.parse(body["key"]), expected=pin)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sidecar:
    """One promised commit, whole: whoever holds it can redo what is left of the work."""

    operation: str
    commit: CommitId
    branch: str
    incarnation: Incarnation
    base: CommitId
    schema_hash: str
    writer: str
    actor: str | None
    message: str | None
    user_metadata: str | None
    txn: tuple[str, int] | None
    started_at: datetime
    owner: Owner
    tables: tuple[TablePromise, ...]
    is_checked: bool = True
    """Whether constraints hold; if not, nobody checks them later either."""
    reads: tuple[ReadPin, ...] = ()
    merge: MergePromise | None = None
    schema: SchemaPromise | None = None
    """The schema its branch has afterwards, if it is another one."""

    @property
    def number(self) -> int:
        """The lowest form that says all of it."""
        if self.schema is not None:
            return SIDECAR_NUMBER
        return PLAIN_NUMBER if self.merge is None else MERGE_NUMBER

    def to_bytes(self) -> bytes:
        """Encode it."""
        body = {
            "sidecar": self.number,
            "operation": self.operation,
            "commit": self.commit,
            "branch": self.branch,
            "incarnation": self.incarnation,
            "base": self.base,
            "schema": self.schema_hash,
            "writer": self.writer,
            "actor": self.actor,
            "message": self.message,
            "user_metadata": self.user_metadata,
            "txn": None if self.txn is None else list(self.txn),
            "started_at": to_micros(self.started_at),
            "owner": [self.owner.host, self.owner.process],
            "tables": [table.to_json() for table in self.tables],
            "checked": self.is_checked,
            "reads": [read.to_json() for read in self.reads],
            **({} if self.merge is None else {"merge": self.merge.to_json()}),
            **({} if self.schema is None else {"schema_change": self.schema.to_json()}),
        }
        return json.dumps(body, indent=1, ensure_ascii=False).encode()

    @classmethod
    def from_bytes(cls, raw: bytes, name: str) -> "Sidecar":
        """Read it back; what is newer or malformed is refused, naming the file."""
        body = _object(raw, name)
        number = body.get("sidecar")
        if type(number) is int and number > SIDECAR_NUMBER:
            raise UnsupportedFormatError(
                f"{name} has form {number}, newer than {SIDECAR_NUMBER}, the newest known here; upgrade omnigraph"
            )
        if type(number) is not int or number < PLAIN_NUMBER:
            raise CorruptGraphError(f"{name} is not a sidecar")
        try:
            found = cls._decoded(body)
        except (LookupError, ValueError, TypeError, AttributeError, ArithmeticError) as problem:
            raise CorruptGraphError(f"{name} can not be decoded: {problem!r}") from problem
        if number != found.number:
            raise CorruptGraphError(f"{name} is not a sidecar")
        return found

    @classmethod
    def _decoded(cls, body: Mapping[str, Any]) -> "Sidecar":
        for field in ("operation", "commit", "incarnation", "base"):
            if not is_ulid(body[field]):
                raise ValueError(f"{field} is {body[field]!r}")
        txn = body["txn"]
        host, process = body["owner"]
        return cls(
            operation=body["operation"],
            commit=CommitId(body["commit"]),
            branch=_text(body, "branch"),
            incarnation=Incarnation(body["incarnation"]),
            base=CommitId(body["base"]),
            schema_hash=_text(body, "schema"),
            writer=_text(body, "writer"),
            actor=_text_or_none(body, "actor"),
            message=_text_or_none(body, "message"),
            user_metadata=_text_or_none(body, "user_metadata"),
            txn=None if txn is None else (str(txn[0]), int(txn[1])),
            started_at=from_micros(int(body["started_at"])),
            owner=Owner(host=str(host), process=int(process)),
            tables=tuple(TablePromise.from_json(table) for table in body["tables"]),
            is_checked=_truth(body, "checked"),
            reads=tuple(ReadPin.from_json(read) for read in body["reads"]),
            merge=MergePromise.from_json(body["merge"]) if "merge" in body else None,
            schema=SchemaPromise.from_json(body["schema_change"]) if "schema_change" in body else None,
        )


def _object(raw: bytes, name: str) -> Mapping[str, Any]:
    if len(raw) > SIDECAR_BYTES_MAX:
        raise CorruptGraphError(f"{name} has {len(raw)} bytes, more than any sidecar has")
    try:
        body = json.loads(raw, parse_constant=_refuse_constant, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as problem:
        raise CorruptGraphError(f"{name} is not valid JSON: {problem}") from problem
    if not isinstance(body, dict):
        raise CorruptGraphError(f"{name} is not a sidecar")
    return body


def _text(body: Mapping[str, Any], name: str) -> str:
    value = body[name]
    if type(value) is not str:
        raise ValueError(f"{name} is {value!r}")
    return value


def _texts(body: Mapping[str, Any], name: str) -> tuple[str, ...]:
    value = body[name]
    if type(value) is not list or any(type(each) is not str for each in value):
        raise ValueError(f"{name} is {value!r}")
    return tuple(value)


def _truth(body: Mapping[str, Any], name: str) -> bool:
    value = body[name]
    if type(value) is not bool:
        raise ValueError(f"{name} is {value!r}")
    return value


def _text_or_none(body: Mapping[str, Any], name: str) -> str | None:
    return None if body[name] is None else _text(body, name)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no number")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    body = dict(pairs)
    if len(body) != len(pairs):
        raise ValueError("a name occurs twice")
    return body
