"""Folding a change feed over rows, written to be obvious: what every reader of a feed may rely on."""

import json
from collections.abc import Iterable
from typing import Any, TypeAlias

import omnigraph as og
from omnigraph.engine.feed import Changes
from omnigraph.rules.feed import TOLD_FIELDS

Rows: TypeAlias = dict[str, dict[str, Any]]
TOLD = tuple(field.name for field in TOLD_FIELDS)


def told(changes: Changes, type: str | None = "Person") -> list[dict[str, Any]]:
    """The rows of a feed, in their order."""
    return changes.rows(type).read_all().to_pylist()


def fold(start: Rows, feed: Iterable[dict[str, Any]]) -> Rows:
    """Apply a feed of one type to rows; whatever does not fit on what is there is a mistake of the feed."""
    rows = dict(start)
    for one in sorted(feed, key=lambda row: row["_commit_version"]):  # stable: what was comes before what is
        row = {name: value for name, value in one.items() if name not in TOLD}
        match one["_change_type"]:
            case "insert":
                assert row["id"] not in rows, f"{row['id']} came twice"
                rows[row["id"]] = row
            case "update_preimage" | "delete":
                assert rows.pop(row["id"]) == row, f"{row['id']} was another row"
            case "update_postimage":
                assert row["id"] not in rows, f"{row['id']} was not taken out before"
                rows[row["id"]] = row
            case other:
                raise AssertionError(other)
    return rows


def rows_at(graph: og.Graph, type: str, version: int, branch: str = "main") -> Rows:
    """The rows of a type at a version."""
    if version == 0:
        return {}
    return {row["id"]: row for row in graph.snapshot(branch, version=version).read(type).to_pylist()}


def of_all(feed: Iterable[dict[str, Any]], table: str) -> list[dict[str, Any]]:
    """The rows of one table among those of all types, as those of a feed of that type alone."""
    found = []
    for row in feed:
        if row["table_key"] == table:
            record = json.loads(row["row"])
            ends = {"src": record["from"], "dst": record["to"]} if "edge" in record else {}
            assert (row["src"], row["dst"]) == (ends.get("src"), ends.get("dst"))
            assert row["id"] == record["data"]["id"]
            found.append({**record["data"], **ends} | {name: row[name] for name in TOLD})
    return found
