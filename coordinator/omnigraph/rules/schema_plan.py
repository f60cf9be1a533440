"""A plan: what it takes to make a text the schema of a graph, and the catalog it then has."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from omnigraph.ids import PropertyId, TableId
from omnigraph.model.catalog import Catalog
from omnigraph.model.schema_plan import SchemaPlan
from omnigraph.rules.schema_changes import Given, steps_between
from omnigraph.rules.schema_compile import describe_schema
from omnigraph.rules.schema_pairs import Backfill, successor


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A plan with all that is needed to carry it out."""

    old: Catalog
    new: Catalog
    plan: SchemaPlan
    backfills: Mapping[PropertyId, Backfill]


def plan_schema(
    old: Catalog, text: str, rows: Mapping[TableId, int], mint: Callable[[], str], *, may_lose: bool = False
) -> Planned:
    """Return how a schema becomes that of a text, or raise a SchemaError if the text is no schema."""
    after = successor(old, describe_schema(text), mint)
    steps = steps_between(old, after.catalog, Given(rows=rows, backfills=after.backfills, may_lose=may_lose))
    plan = SchemaPlan(from_hash=old.hash, to_hash=after.catalog.hash, steps=(*after.problems, *steps))
    return Planned(old=old, new=after.catalog, plan=plan, backfills=after.backfills)
