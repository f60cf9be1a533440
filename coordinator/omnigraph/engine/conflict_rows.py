"""Conflicts as rows: what each side has is JSON, because every type has other columns."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import Final

import pyarrow as pa

from omnigraph.engine.merge_planning import Plan
from omnigraph.engine.spread_three_way import SpreadThreeWay
from omnigraph.model.catalog import Catalog
from omnigraph.model.merges import Conflict
from omnigraph.rules.merging import constraint_conflicts, row_conflict
from omnigraph.rules.row_changes import ComparedTable
from omnigraph.rules.settling import CONFLICTING, CONFLICTS, SIDES
from omnigraph.storage.relations import Found, Made, Relation

CONFLICT_SCHEMA: Final = pa.schema([(name, pa.string()) for name in ("table_key", "row_id", "kind", "message", *SIDES)])
CONFLICTS_TOGETHER: Final = 1_000


def conflict_batches(conflicts: Iterable[Conflict]) -> Iterator[pa.RecordBatch]:
    """Yield conflicts as rows."""
    left = iter(conflicts)
    while some := list(islice(left, CONFLICTS_TOGETHER)):
        yield pa.RecordBatch.from_pylist([each.to_dict() | _sides(each) for each in some], schema=CONFLICT_SCHEMA)


def conflict_relations(plan: Plan, catalog: Catalog) -> list[Relation]:
    """Return conflicts as relations: those of rows stay where they were found, the others are at hand."""
    spread = [each for each in plan.merged.values() if isinstance(each, SpreadThreeWay)]
    if not spread:
        return [conflict_table(plan.conflicts(catalog))]
    broken = (conflict for each in plan.violations for conflict in constraint_conflicts(each, catalog))
    return [conflict_table(broken), *map(_told, spread)]


def conflict_table(conflicts: Iterable[Conflict]) -> pa.Table:
    """Return conflicts that are not many as a table."""
    return pa.Table.from_batches(conflict_batches(conflicts), CONFLICT_SCHEMA)


def _told(work: SpreadThreeWay) -> Made:
    found = Found(CONFLICTING, {"heaps": work.heaps})
    make = TellingConflicts(table=work.table)
    return Made(rows=found, given=work.settling.heaps[CONFLICTS], make=make, schema=CONFLICT_SCHEMA)


@dataclass(frozen=True, slots=True, kw_only=True)
class TellingConflicts:
    """Makes rows that conflict into what people read."""

    table: ComparedTable

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Make them."""
        rows = chain.from_iterable(batch.to_pylist() for batch in batches)
        return conflict_batches(row_conflict(self.table, row) for row in rows)


def _sides(conflict: Conflict) -> dict[str, str | None]:
    rows = {name: getattr(conflict, name) for name in SIDES}
    return {
        name: None if row is None else json.dumps(row, default=str, ensure_ascii=False) for name, row in rows.items()
    }
