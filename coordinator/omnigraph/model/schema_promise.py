"""What the promise of a schema change has beside that of a write: the schema itself, and tables that come and go."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from omnigraph.errors import CorruptGraphError
from omnigraph.ids import TableId, is_ulid
from omnigraph.model.manifest import SchemaRow
from omnigraph.model.tables import TableKey


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaPromise:
    """The schema afterwards, the tables that begin with it, and those that end.

    One that ``is_stored`` was that of another commit before, so there is nothing to store.
    """

    schema: SchemaRow
    is_stored: bool = False
    added: tuple[tuple[TableId, TableKey], ...] = ()
    dropped: tuple[TableId, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "hash": self.schema.hash,
            "source": self.schema.source,
            "catalog": self.schema.catalog,
            "stored": self.is_stored,
            "added": [[table, str(key)] for table, key in self.added],
            "dropped": list(self.dropped),
        }

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> "SchemaPromise":
        """Read it back."""
        texts = [body[name] for name in ("hash", "source", "catalog")]
        tables = [*(table for table, _ in body["added"]), *body["dropped"]]
        if not all(type(text) is str for text in texts) or not all(is_ulid(table) for table in tables):
            raise CorruptGraphError("a sidecar names a schema or a table by something that is none")
        return cls(
            schema=SchemaRow(hash=texts[0], source=texts[1], catalog=texts[2]),
            is_stored=body["stored"] is True,
            added=tuple((TableId(table), TableKey.parse(key)) for table, key in body["added"]),
            dropped=tuple(TableId(table) for table in body["dropped"]),
        )
