"""What a write that is being staged says of itself, so that cleanup leaves its files alone."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from omnigraph.errors import CorruptGraphError, UnsupportedFormatError
from omnigraph.ids import CommitId, TableId, is_ulid

INTENT_NUMBER = 1
INTENT_BYTES_MAX = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """A write is being staged: into these tables, worked out against this commit, begun ``lead`` before this was said.

    The files it stages are not known beforehand, so it stands for every file of its tables that came since then.
    """

    operation: str
    base: CommitId
    tables: tuple[TableId, ...]
    host: str
    lead: timedelta = timedelta(0)

    def to_bytes(self) -> bytes:
        """Encode it."""
        body = {
            "intent": INTENT_NUMBER,
            "operation": self.operation,
            "base": self.base,
            "tables": list(self.tables),
            "host": self.host,
            "lead_seconds": self.lead.total_seconds(),
        }
        return json.dumps(body, indent=1, ensure_ascii=False).encode()

    @classmethod
    def from_bytes(cls, raw: bytes, name: str) -> "Intent":
        """Read it back; what is newer or malformed is refused, naming the file."""
        if len(raw) > INTENT_BYTES_MAX:
            raise CorruptGraphError(f"{name} has {len(raw)} bytes, more than any intent has")
        try:
            body = json.loads(raw)
            number = body["intent"]
            if type(number) is int and number > INTENT_NUMBER:
                raise UnsupportedFormatError(
                    f"{name} has form {number}, newer than {INTENT_NUMBER}, the newest known here; upgrade omnigraph"
                )
            return cls._decoded(body)
        except (LookupError, ValueError, TypeError, AttributeError, ArithmeticError) as problem:
            raise CorruptGraphError(f"{name} can not be decoded: {problem!r}") from problem

    @classmethod
    def _decoded(cls, body: Mapping[str, Any]) -> "Intent":
        named = [body["operation"], body["base"], *body["tables"]]
        if body["intent"] != INTENT_NUMBER or not all(type(each) is str and is_ulid(each) for each in named):
            raise ValueError("it is no intent, or names something by what is no id")
        return cls(
            operation=body["operation"],
            base=CommitId(body["base"]),
            tables=tuple(TableId(table) for table in body["tables"]),
            host=str(body["host"]),
            lead=timedelta(seconds=float(body["lead_seconds"])),
        )
