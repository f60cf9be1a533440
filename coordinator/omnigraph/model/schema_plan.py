"""What becomes of a schema: the steps from one to another, what each costs, and what stands in its way."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from omnigraph.ids import TableId
from omnigraph.model.drawing import html_table
from omnigraph.model.schema import TypeKind


class StepKind(StrEnum):
    """What one step does."""

    ADD_TYPE = "add_type"
    DROP_TYPE = "drop_type"
    RENAME_TYPE = "rename_type"
    ADD_PROPERTY = "add_property"
    DROP_PROPERTY = "drop_property"
    RENAME_PROPERTY = "rename_property"
    CHANGE_TYPE = "change_type"
    REQUIRE_PROPERTY = "require_property"
    RELAX_PROPERTY = "relax_property"
    ADD_CONSTRAINT = "add_constraint"
    DROP_CONSTRAINT = "drop_constraint"
    CHANGE_ENDPOINTS = "change_endpoints"
    CHANGE_CARDINALITY = "change_cardinality"
    CHANGE_INTERFACES = "change_interfaces"
    UPDATE_METADATA = "update_metadata"
    REORDER_PROPERTIES = "reorder_properties"


class Cost(StrEnum):
    """What a step does to the rows that are there, from nothing to everything."""

    METADATA = "metadata"
    VALIDATION = "validation"
    COLUMN = "column"
    REWRITE = "rewrite"


class Support(StrEnum):
    """Whether a step can be done."""

    SUPPORTED = "supported"
    NEEDS_DATA_LOSS = "needs_data_loss"
    UNSUPPORTED = "unsupported"


class DropMode(StrEnum):
    """What a drop does to values: a soft one leaves them in the files, where old snapshots find them."""

    SOFT = "soft"
    HARD = "hard"


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Why a step can not be done as it is asked for, and what to do instead."""

    code: str
    reason: str
    instead: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One change of one type; ``rows`` are those it reads or writes, as far as that is known before."""

    kind: StepKind
    type_kind: TypeKind
    type: str
    column: str | None = None
    before: str | None = None
    after: str | None = None
    mode: DropMode | None = None
    cost: Cost = Cost.METADATA
    support: Support = Support.SUPPORTED
    problem: Problem | None = None
    rows: int = 0
    table: TableId | None = None

    @property
    def subject(self) -> str:
        """Which type or property it is about."""
        return self.type if self.column is None else f"{self.type}.{self.column}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values; what does not apply is left out."""
        told: dict[str, Any] = {
            "kind": str(self.kind),
            "type_kind": str(self.type_kind),
            "type": self.type,
            "property": self.column,
            "before": self.before,
            "after": self.after,
            "mode": None if self.mode is None else str(self.mode),
        }
        told = {name: value for name, value in told.items() if value is not None}
        told |= {"cost": str(self.cost), "support": str(self.support), "rows": self.rows}
        if self.problem is not None:
            told |= {"code": self.problem.code, "reason": self.problem.reason, "instead": self.problem.instead}
        return told

    def __str__(self) -> str:
        words = str(self.kind).replace("_", " ")
        change = "" if self.before is None and self.after is None else f" {self.before or '·'} → {self.after or '·'}"
        mode = "" if self.mode is None else f" ({self.mode})"
        return f"{words} {self.subject}{change}{mode}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaPlan:
    """The ordered steps from one schema to another."""

    from_hash: str
    to_hash: str
    steps: tuple[Step, ...]

    @property
    def is_empty(self) -> bool:
        """Whether nothing would change."""
        return not self.steps

    @property
    def refused(self) -> tuple[Step, ...]:
        """The steps that can not be done at all."""
        return tuple(step for step in self.steps if step.support is Support.UNSUPPORTED)

    @property
    def losing(self) -> tuple[Step, ...]:
        """The steps that are done only if values may be lost."""
        return tuple(step for step in self.steps if step.support is Support.NEEDS_DATA_LOSS)

    @property
    def is_supported(self) -> bool:
        """Whether it can be done, if need be with loss."""
        return not self.refused

    @property
    def rows_touched(self) -> int:
        """How many rows are read or written: a table counts once, with the step that touches most of it."""
        most: dict[TableId | None, int] = {}
        for step in self.steps:
            most[step.table] = max(most.get(step.table, 0), step.rows)
        return sum(most.values())

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "from": self.from_hash,
            "to": self.to_hash,
            "supported": self.is_supported,
            "needs_data_loss": bool(self.losing),
            "rows_touched": self.rows_touched,
            "steps": [step.to_dict() for step in self.steps],
        }

    def _repr_html_(self) -> str:
        rows = [(str(step), step.cost, step.rows, step.support) for step in self.steps]
        return html_table("schema plan", ("step", "cost", "rows", "support"), rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaResult:
    """What became of a schema that was applied: a commit, or nothing if it was that schema already."""

    branch: str
    plan: SchemaPlan
    commit: str | None = None
    version: int | None = None
    attempts: int = 1

    @property
    def applied(self) -> bool:
        """Whether there is a commit."""
        return self.commit is not None

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "branch": self.branch,
            "applied": self.applied,
            "commit": self.commit,
            "version": self.version,
            "attempts": self.attempts,
            **self.plan.to_dict(),
        }
