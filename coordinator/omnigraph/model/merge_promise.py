"""What the promise of a merge has beside that of a write: a second parent, and tables taken from it as they are."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from omnigraph.errors import CorruptGraphError
from omnigraph.ids import CommitId, TableId, is_ulid
from omnigraph.model.lineage import from_micros, to_micros
from omnigraph.model.tables import Pin, TableKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Adoption:
    """A table that becomes what the source says it is, provided it is still what was seen: no row is written."""

    table: TableId
    key: TableKey
    expected: Pin | None
    pin: Pin

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        expected = None if self.expected is None else self.expected.to_json()
        return {"table": self.table, "key": str(self.key), "expected": expected, "pin": self.pin.to_json()}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> "Adoption":
        """Read it back."""
        if not is_ulid(body["table"]):
            raise CorruptGraphError("a sidecar names a table by something that is no id")
        return cls(
            table=TableId(body["table"]),
            key=TableKey.parse(body["key"]),
            expected=None if body["expected"] is None else Pin.from_json(body["expected"]),
            pin=Pin.from_json(body["pin"]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MergePromise:
    """The commit that is merged, when it was made, the schema afterwards, and what is adopted."""

    source: CommitId
    source_at: datetime
    schema_hash: str
    adopted: tuple[Adoption, ...]

    @property
    def pins(self) -> dict[TableId, Pin]:
        """The pins that are adopted."""
        return {each.table: each.pin for each in self.adopted}

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "source": self.source,
            "source_at": to_micros(self.source_at),
            "schema": self.schema_hash,
            "adopted": [each.to_json() for each in self.adopted],
        }

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> "MergePromise":
        """Read it back."""
        if not is_ulid(body["source"]) or type(body["schema"]) is not str:
            raise CorruptGraphError("a sidecar names the source of a merge by something that is no id")
        return cls(
            source=CommitId(body["source"]),
            source_at=from_micros(int(body["source_at"])),
            schema_hash=body["schema"],
            adopted=tuple(Adoption.from_json(each) for each in body["adopted"]),
        )
