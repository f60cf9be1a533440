"""One table as one commit left it: what has to be known to read it, without another look at the manifest."""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from omnigraph.engine.shares import Share, balanced, enough_for, part_read, rows_at_once, shares_wanted
from omnigraph.errors import InvalidOptionError
from omnigraph.model.schema import TableType, did_you_mean
from omnigraph.rules.arrow_schema import arrow_schema, is_blob
from omnigraph.storage.lance_door import Predicate, Scan, Tables
from omnigraph.storage.roots import StorageOptions

COLUMNS_SHOWN_MAX = 20
BLOB_ROWS_MAX = 64  # blobs may be large, and a batch of them is read whole


@dataclass(frozen=True, slots=True, kw_only=True)
class TableAt:
    """A type, where its rows are, and at which version; a type that never had rows has no version."""

    kind: TableType
    uri: str
    version: int | None
    options: StorageOptions

    def shares(
        self,
        *,
        columns: Sequence[str] | None = None,
        where: Predicate | None = None,
        limit: int | None = None,
        parallelism: int = 1,
    ) -> tuple[Share, ...]:
        """Cut a read into shares of about equal size that other processes can read; an empty table has none."""
        tables = Tables(self.options)
        schema = arrow_schema(self.kind)
        wanted = tuple(schema.names if columns is None else columns)
        refuse_unknown_columns(self.kind, schema, wanted)
        if isinstance(where, str):
            tables.scan_empty(schema, Scan(where=where)).read_all()  # a mistake is told here, not by a task
        if self.version is None:
            return ()
        fragments = tables.fragments(self.uri, self.version)
        chosen = enough_for(fragments, limit if where is None else None)
        has_blobs = any(is_blob(schema.field(name)) for name in wanted)
        part = part_read(len(wanted), len(schema), is_filtered=where is not None)
        return tuple(
            Share(
                uri=self.uri,
                version=self.version,
                fragments=group,
                columns=wanted,
                options=self.options,
                where=where,
                limit=limit,
                batch_rows=BLOB_ROWS_MAX if has_blobs else rows_at_once(chosen),
            )
            for group in balanced(chosen, shares_wanted(chosen, parallelism, part))
        )


def refuse_unknown_columns(kind: TableType, schema: pa.Schema, columns: Sequence[str]) -> None:
    """Refuse columns that a type has not, or that are named twice."""
    for name in columns:
        if name not in schema.names:
            known = ", ".join(schema.names[:COLUMNS_SHOWN_MAX]) + (
                ", …" if len(schema.names) > COLUMNS_SHOWN_MAX else ""
            )
            hint = did_you_mean(name, schema.names)
            raise InvalidOptionError(
                f"{kind.table} has no column {name[:100]!r}; there are {known}" + (f"; {hint}" if hint else "")
            )
    if len(set(columns)) != len(columns):
        raise InvalidOptionError(f"a column of {kind.table} is asked for twice")
