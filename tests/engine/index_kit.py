"""What the tests of indexes share: a type with an index of every kind, odd values, and filters that could go wrong."""

import math
import random
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import omnigraph as og
from omnigraph.model.indexes import IndexKind
from omnigraph.rules.indexes import wanted_indexes
from omnigraph.storage.lance_rows import open_at

SCHEMA = """
    node Thing {
        name: String @key
        i32: I32? @index  i64: I64? @index  u32: U32? @index  u64: U64? @index
        f32: F32? @index  f64: F64? @index  day: Date? @index  at: DateTime? @index
        ok: Bool? @index  state: enum(doing, done, open)? @index
        mail: String? @unique  bio: String? @index  vec: Vector(8)? @index  odd: Vector(3)? @index
        plain: String?
    }
    edge Likes: Thing -> Thing { since: Date? @index  weight: F64?  note: String? @index }
"""
KINDS = {
    "id": IndexKind.BTREE,
    "name": IndexKind.BTREE,
    **dict.fromkeys(["i32", "i64", "u32", "u64", "f32", "f64", "day", "at", "mail"], IndexKind.BTREE),
    "ok": IndexKind.BITMAP,
    "state": IndexKind.BITMAP,
    "bio": IndexKind.INVERTED,
    "vec": IndexKind.IVF_PQ,
    "odd": IndexKind.IVF_SQ,
}
VECTORS = ("vec", "odd")
CALCULATED_AT_ONCE = 16
"""A scan that calculates some filters takes as long as one that filters, and planning many takes longer than both."""
VALUES: dict[str, list[Any]] = {
    "i32": [None, 0, -1, 5, 2**31 - 1, -(2**31)],
    "i64": [None, 0, -1, 5, 2**63 - 1, -(2**63)],
    "u32": [None, 0, 5, 2**32 - 1],
    "u64": [None, 0, 5, 2**64 - 1],
    "f32": [None, 0.0, -0.0, math.nan, math.inf, -math.inf, 1.5],
    "f64": [None, 0.0, -0.0, math.nan, math.inf, -math.inf, 1.5],
    "day": [None, date(1970, 1, 1), date(1, 1, 1), date(9999, 12, 31), date(2026, 1, 31)],
    "at": [None, datetime(1970, 1, 1, tzinfo=UTC), datetime(2026, 1, 31, 12, 0, 0, 123456, UTC)],
    "ok": [None, True, False],
    "state": [None, "open", "doing", "done"],
    "bio": [None, "", "ä über", "日本 語", "the lazy dog", 'dogs\' "quotes"', "\\", "null", "x" * 300],
}
LITERALS: dict[str, list[str]] = {
    "i32": ["0", "-1", "5", "7"],
    "i64": ["0", "-1", "9223372036854775807"],
    "u32": ["0", "5", "4294967295"],
    "u64": ["0", "5", "18446744073709551615"],
    "f32": ["0.0", "-0.0", "1.5", "CAST('NaN' AS FLOAT)", "CAST('inf' AS FLOAT)"],
    "f64": ["0.0", "-0.0", "1.5", "CAST('NaN' AS DOUBLE)", "CAST('-inf' AS DOUBLE)"],
    "day": ["date '1970-01-01'", "date '2026-01-31'", "date '2000-01-01'"],
    "at": ["timestamp '1970-01-01 00:00:00'", "timestamp '2026-01-31 12:00:00.123456'"],
    "ok": ["true", "false"],
    "state": ["'open'", "'done'"],
    "mail": ["'m1'", "'m2'", "'ä'", "''", "'nobody'"],
    "bio": ["''", "'ä über'", "'日本 語'", "'the lazy dog'", "'null'", "'zz'"],
    "name": ["'t1'", "'t2'", "'ä'", "''", "'nobody'"],
}


def filters(column: str) -> list[str]:
    """Filters of a column that ask for every value, for none, for nulls, and for what is not so."""
    found = [f"{column} IS NULL", f"{column} IS NOT NULL"]
    for text in LITERALS[column]:
        found += [f"{column} {sign} {text}" for sign in ("=", "!=", "<", "<=", ">", ">=")]
        found += [f"NOT ({column} > {text})", f"{column} IN ({text}, {LITERALS[column][0]})"]
        found += [f"{column} NOT IN ({text})", f"{column} IS DISTINCT FROM {text}", f"{column} = {text} OR i32 = 5"]
    if column in ("bio", "mail"):
        found += [f"contains_tokens({column}, '{word}')" for word in ("dog", "ä", "日本", "the", "", "DOG")]
        found += [f"{column} LIKE 'm%'", f"starts_with({column}, '')", f"contains({column}, 'dog')"]
    if column == "ok":
        found += ["ok", "NOT ok", "ok IS NOT TRUE"]
    return found


EVERY_FILTER = [text for column in LITERALS for text in filters(column)] + [f"{name} IS NULL" for name in VECTORS]


def thing(name: str, chance: random.Random, **more: Any) -> dict[str, Any]:
    """A row of odd values; vectors are often missing, and sometimes not numbers."""
    row: dict[str, Any] = {column: chance.choice(values) for column, values in VALUES.items()}
    row["mail"] = chance.choice([None, f"{name}@x"])
    some, few = [chance.random() for _ in range(8)], [chance.random() for _ in range(3)]
    row["vec"] = chance.choice([None, [math.nan] * 8, some, some, some])
    row["odd"] = chance.choice([None, [0.0] * 3, few, few])
    return {"name": name, **row, **more}


def handle(graph: og.Graph, type: str, branch: str = "main") -> Any:
    """The version of a type's table that a branch pins."""
    snapshot = graph.snapshot(branch)
    kind = snapshot.catalog.table_type(type)
    uri = graph._session.root.uri(f"{kind.table.kind.value}s/{kind.table_id}")
    return open_at(uri, snapshot.commit.pins[kind.table_id].lance_version, graph._session.root.options)


def found(table: Any, where: str) -> list[str]:
    """The ids that a filter finds, with the help of indexes."""
    rows = table.scanner(["id"], where).to_table()
    return sorted(str(id) for id in rows.column("id").to_pylist())


def true_of(table: Any, where: list[str]) -> list[list[str]]:
    """For each filter the ids of the rows it is true of: read and calculated row by row, without any index."""
    found = []
    for start in range(0, len(where), CALCULATED_AT_ONCE):
        some = where[start : start + CALCULATED_AT_ONCE]
        rows = table.scanner({"id": "id", **{f"f{number}": text for number, text in enumerate(some)}}).to_table()
        found += [sorted(rows.filter(rows.column(name)).column("id").to_pylist()) for name in rows.column_names[1:]]
    return found


def wrong(table: Any, where: list[str]) -> list[str]:
    """The filters that find something else with indexes than without."""
    return [text for text, right in zip(where, true_of(table, where), strict=True) if found(table, text) != right]


def covered(graph: og.Graph, type: str = "Thing") -> dict[str, bool]:
    """Which wanted indexes cover every fragment, by column."""
    kind = graph.snapshot().catalog.table_type(type)
    table = handle(graph, type)
    there: dict[tuple[str, str], set[int]] = {}
    for index in table.describe_indices():
        key = (index.field_names[0], index.index_type.upper())
        there.setdefault(key, set()).update(int(n) for part in index.segments for n in part.fragment_ids)
    fragments = set(table.fragment_ids())
    return {one.column: fragments <= there.get((one.column, str(one.kind)), set()) for one in wanted_indexes(kind)}


def things(root: Path, count: int = 700, seed: int = 1, parts: int = 3) -> og.Graph:
    """A graph of odd things in several fragments."""
    graph, chance = og.init(root, SCHEMA), random.Random(seed)
    for part in range(parts):
        with graph.transaction() as tx:
            names = [f"t{number}" for number in range(part, count, parts)]
            tx.append("Thing", [thing(name, chance) for name in names])
    with graph.transaction() as tx:
        edges = [
            {"id": f"e{n}", "src": f"t{n}", "dst": f"t{n + 1}", "note": "a b", "weight": n / 7}
            for n in range(min(30, count - 1))
        ]
        tx.append("Likes", edges)
    return graph
