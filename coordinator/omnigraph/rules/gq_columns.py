"""The names a mutation may use for a type's columns: its properties, ``id``, and ``from`` and ``to`` of an edge."""

from collections.abc import Mapping
from dataclasses import dataclass

from omnigraph.model.mutations import ColumnRef
from omnigraph.model.schema import EdgeType, Scalar, ScalarType, TableType, did_you_mean
from omnigraph.rules.gq_messages import RefusedError, Rule, shown
from omnigraph.rules.schema_text import Word

ENDS = {"from": "src", "to": "dst"}
TEXT = ScalarType(scalar=Scalar.STRING)
BLOB = ScalarType(scalar=Scalar.BLOB)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A column a value is meant for, under the name the text uses for it."""

    name: str
    column: ColumnRef
    nullable: bool

    @property
    def is_end(self) -> bool:
        """Tell whether it is an end of an edge."""
        return self.column.name in ENDS.values()


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Everything a statement about one type may name."""

    owner: str
    targets: Mapping[str, Target]

    @classmethod
    def of(cls, kind: TableType) -> "Columns":
        """Return the names of a type."""
        ends = ENDS if isinstance(kind, EdgeType) else {}
        own = {
            p.name: Target(name=p.name, column=ColumnRef(name=p.name, type=p.type), nullable=p.nullable)
            for p in kind.properties
        }
        fixed = {
            name: Target(name=name, column=ColumnRef(name=column, type=TEXT), nullable=False)
            for name, column in {"id": "id", **ends}.items()
        }
        return cls(owner=kind.name, targets={**fixed, **own, **fixed})

    @property
    def required(self) -> tuple[Target, ...]:
        """The columns a new row can not do without; an id is derived or minted."""
        return tuple(target for target in self.targets.values() if not target.nullable and target.name != "id")

    def target(self, name: Word) -> Target:
        """Return the column a name means; the error suggests the nearest."""
        found = self.targets.get(name.text)
        if found is None:
            raise RefusedError(
                name.mark, Rule.UNKNOWN_PROPERTY, f"{self.owner} has no property {shown(name.text)}", self._hint(name)
            )
        return found

    def filterable(self, name: Word) -> Target:
        """Return the column a predicate may ask about; blobs are kept apart from the rows, so none may."""
        target = self.target(name)
        if target.column.type == BLOB:
            problem = f"{name.text!r} is a Blob, which can not stand in a where"
            raise RefusedError(name.mark, Rule.UNKNOWN_PROPERTY, problem)
        return target

    def shown(self, column: str) -> str:
        """Return the name the text uses for a stored column."""
        return next(target.name for target in self.targets.values() if target.column.name == column)

    def _hint(self, name: Word) -> str | None:
        for end, column in ENDS.items():
            if name.text == column and end in self.targets:
                return f"write {end}"
        return did_you_mean(name.text, self.targets)
