"""The names of tables and the pins that say which version of each is visible."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from omnigraph.errors import InvalidNameError
from omnigraph.ids import TableId


class TableKind(StrEnum):
    """What the rows of a table are."""

    NODE = "node"
    EDGE = "edge"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class TableKey:
    """Name of a node or edge table, unique inside a graph: ``node:Person``."""

    kind: TableKind
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"

    @classmethod
    def parse(cls, text: str) -> "TableKey":
        """Read ``node:Person`` back; anything else is an error."""
        kind, colon, name = text.partition(":")
        if not colon or not name or kind not in tuple(TableKind):
            raise InvalidNameError(f"{text!r} is not a table key; write node:<Type> or edge:<Type>", name=text)
        return cls(kind=TableKind(kind), name=name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """The manifest's record that a table is one sealed Lance version.

    ``version`` counts the graph's own changes of the table; ``lance_version`` is the number Lance
    gave the sealed version (64 bits, the top one set), and ``transaction`` the uuid we chose for it.
    """

    table: TableId
    version: int
    lance_version: int
    transaction: str
    rows: int

    def to_json(self) -> dict[str, Any]:
        """Return plain values; the Lance version as text, because most JSON readers lose its low bits."""
        return {
            "table": self.table,
            "version": self.version,
            "lance": str(self.lance_version),
            "txn": self.transaction,
            "rows": self.rows,
        }

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> "Pin":
        """Read a pin back."""
        return cls(
            table=body["table"],
            version=int(body["version"]),
            lance_version=int(body["lance"]),
            transaction=body["txn"],
            rows=int(body["rows"]),
        )
