"""How values become rows of `__manifest`, and back."""

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any

import pyarrow as pa

from omnigraph.errors import CorruptGraphError
from omnigraph.ids import CommitId, Incarnation
from omnigraph.model.lineage import (
    Branch,
    CommitRow,
    Tag,
    Txn,
    from_micros,
    segments_from_json,
    segments_to_json,
    to_micros,
)
from omnigraph.model.manifest import FORMAT_KEY, ManifestState, SchemaRow, Span, SpanKind, TableRow

BRANCH, TAG, TXN, SPAN, COMMIT, SCHEMA, TABLE = "branch", "tag", "txn", "span", "commit", "schema", "table"
ABANDONED = "abandoned"

Row = dict[str, Any]


@lru_cache(maxsize=8)
def manifest_schema(format_version: int) -> pa.Schema:
    """Return the columns of `__manifest`, stamped with the format version."""
    fields: list[pa.Field[Any]] = [
        pa.field("kind", pa.string(), nullable=False),
        pa.field("id", pa.string(), nullable=False),
        pa.field("incarnation", pa.string()),
        pa.field("version", pa.int64()),
        pa.field("created_at", pa.timestamp("us", tz="UTC")),
        pa.field("actor", pa.string()),
        pa.field("body", pa.string(), nullable=False),
    ]
    return pa.schema(fields, metadata={FORMAT_KEY: str(format_version)})


def encode(rows: Iterable[Row], schema: pa.Schema) -> pa.Table:
    """Return rows as one Arrow table."""
    return pa.Table.from_pylist(list(rows), schema=schema)


def head_rows(state: ManifestState) -> list[Row]:
    """Return the rows that every publish writes anew: names, spans and the newest commits."""
    rows = [_branch_row(branch) for branch in state.branches.values()]
    rows += [_tag_row(tag) for tag in state.tags.values()]
    rows += [_txn_row(txn) for txn in state.txns.values()]
    rows += [_row(ABANDONED, commit, "{}", created_at=at) for commit, at in state.abandoned.items()]
    rows += [_span_row(number, span) for number, span in enumerate(state.spans)]
    return rows + [commit_row(commit) for commit in state.tail]


def decode_head(table: pa.Table) -> ManifestState:
    """Read the head rows back; rows of an unknown kind mean a format we do not know."""
    kinds: dict[str, list[Row]] = {BRANCH: [], TAG: [], TXN: [], SPAN: [], COMMIT: [], ABANDONED: []}
    for row in _plain(table):
        if row["kind"] not in kinds:
            raise CorruptGraphError(f"__manifest holds a row of unknown kind {row['kind']!r}", row_kind=row["kind"])
        kinds[row["kind"]].append(row)
    try:
        spans = sorted(kinds[SPAN], key=lambda row: int(row["version"]))
        return ManifestState(
            branches={row["id"]: _branch(row) for row in kinds[BRANCH]},
            tags={row["id"]: _tag(row) for row in kinds[TAG]},
            txns={row["id"]: _txn(row) for row in kinds[TXN]},
            tail=tuple(decode_commit(row) for row in kinds[COMMIT]),
            spans=tuple(_span(row) for row in spans),
            abandoned={CommitId(row["id"]): row["created_at"] for row in kinds[ABANDONED]},
        )
    except (KeyError, ValueError, TypeError) as problem:
        raise CorruptGraphError(f"__manifest can not be decoded: {problem!r}; restore it from a copy") from problem


def commit_row(commit: CommitRow) -> Row:
    """Return the row of a commit."""
    return _row(
        COMMIT,
        commit.id,
        commit.body,
        incarnation=commit.incarnation,
        version=commit.version,
        created_at=commit.created_at,
        actor=commit.actor,
    )


def decode_commits(table: pa.Table) -> list[CommitRow]:
    """Read the rows of commits back: column by column, because a long history is read as a whole."""
    times: Any = table.column("created_at")
    names = ("id", "incarnation", "version", "actor", "body")
    columns: list[list[Any]] = [table.column(name).to_pylist() for name in names]
    moments = map(from_micros, times.cast(pa.int64()).to_pylist())
    return [
        CommitRow(id=id, incarnation=incarnation, version=version, created_at=at, actor=actor, body=body)
        for id, incarnation, version, actor, body, at in zip(*columns, moments, strict=True)
    ]


def _plain(table: pa.Table) -> list[dict[str, Any]]:
    """Return rows as plain values; Arrow takes five times as long to make a moment of a number."""
    number = table.schema.names.index("created_at")
    times: Any = table.column(number)
    plain = table.set_column(number, "created_at", times.cast(pa.int64())).to_pylist()
    for row in plain:
        if row["created_at"] is not None:
            row["created_at"] = from_micros(row["created_at"])
    return plain


def decode_commit(row: Mapping[str, Any]) -> CommitRow:
    """Read a commit row back."""
    return CommitRow(
        id=CommitId(row["id"]),
        incarnation=Incarnation(row["incarnation"]),
        version=int(row["version"]),
        created_at=row["created_at"],
        actor=row["actor"],
        body=row["body"],
    )


def schema_row(schema: SchemaRow) -> Row:
    """Return the row of an accepted schema."""
    return _row(SCHEMA, schema.hash, _dump({"source": schema.source, "catalog": schema.catalog}))


def decode_schema(row: Mapping[str, Any]) -> SchemaRow:
    """Read a schema row back."""
    try:
        body = json.loads(row["body"])
        return SchemaRow(hash=row["id"], source=body["source"], catalog=body["catalog"])
    except (KeyError, ValueError, TypeError) as problem:
        raise CorruptGraphError(f"schema {row['id']} can not be decoded: {problem!r}") from problem


def table_row(table: TableRow) -> Row:
    """Return the row of a created table."""
    return _row(TABLE, table.id, _dump({"key": table.key, "location": table.location}), created_at=table.created_at)


def span_of(file: str, tier: int, commits: pa.Table, size: int) -> Span:
    """Describe a file of commit rows by the bounds of what is in it."""
    columns: Any = commits
    ids, versions, times = (sorted(columns.column(name).to_pylist()) for name in ("id", "version", "created_at"))
    return Span(
        file=file,
        kind=SpanKind.COMMITS,
        tier=tier,
        rows=commits.num_rows,
        bytes=size,
        first_id=ids[0],
        last_id=ids[-1],
        first_version=versions[0],
        last_version=versions[-1],
        oldest=times[0],
        newest=times[-1],
    )


def _row(kind: str, row_id: str, body: str, **columns: Any) -> Row:
    return {"kind": kind, "id": row_id, "body": body, **columns}


def _dump(body: Mapping[str, Any]) -> str:
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False)


def _branch_row(branch: Branch) -> Row:
    body = {
        "head": branch.head,
        "created_by": branch.created_by,
        "parent": branch.parent,
        "lineage": segments_to_json(branch.lineage),
    }
    return _row(
        BRANCH,
        branch.name,
        _dump(body),
        incarnation=branch.incarnation,
        version=branch.version,
        created_at=branch.created_at,
    )


def _branch(row: Mapping[str, Any]) -> Branch:
    body = json.loads(row["body"])
    return Branch(
        name=row["id"],
        incarnation=Incarnation(row["incarnation"]),
        head=CommitId(body["head"]),
        version=int(row["version"]),
        created_at=row["created_at"],
        created_by=body["created_by"],
        parent=body["parent"],
        lineage=segments_from_json(body["lineage"]),
    )


def _tag_row(tag: Tag) -> Row:
    body = _dump({"commit": tag.commit, "created_by": tag.created_by})
    return _row(TAG, tag.name, body, created_at=tag.created_at)


def _tag(row: Mapping[str, Any]) -> Tag:
    body = json.loads(row["body"])
    return Tag(
        name=row["id"],
        commit=CommitId(body["commit"]),
        created_at=row["created_at"],
        created_by=body["created_by"],
    )


def _txn_row(txn: Txn) -> Row:
    return _row(TXN, txn.app_id, _dump({"commit": txn.commit}), version=txn.version)


def _txn(row: Mapping[str, Any]) -> Txn:
    body = json.loads(row["body"])
    return Txn(app_id=row["id"], version=int(row["version"]), commit=CommitId(body["commit"]))


def _span_row(number: int, span: Span) -> Row:
    return _row(SPAN, span.file, _span_body(span), version=number)


@lru_cache(maxsize=1_024)
def _span_body(span: Span) -> str:
    """Encode a span once: it is written again by every publish, unchanged."""
    body = {
        "kind": span.kind.value,
        "tier": span.tier,
        "rows": span.rows,
        "bytes": span.bytes,
        "ids": [span.first_id, span.last_id],
        "versions": [span.first_version, span.last_version],
        "times": [_micros(span.oldest), _micros(span.newest)],
    }
    return _dump(body)


def _span(row: Mapping[str, Any]) -> Span:
    body = json.loads(row["body"])
    oldest, newest = body["times"]
    return Span(
        file=row["id"],
        kind=SpanKind(body["kind"]),
        tier=int(body["tier"]),
        rows=int(body["rows"]),
        bytes=int(body["bytes"]),
        first_id=body["ids"][0],
        last_id=body["ids"][1],
        first_version=int(body["versions"][0]),
        last_version=int(body["versions"][1]),
        oldest=None if oldest is None else from_micros(oldest),
        newest=None if newest is None else from_micros(newest),
    )


def _micros(moment: datetime | None) -> int | None:
    return None if moment is None else to_micros(moment)
