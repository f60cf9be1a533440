"""The schema of a graph's branches, as a person or a job handles it."""

from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from omnigraph.engine.evolving import ApplyRequest, Evolution
from omnigraph.engine.history import History
from omnigraph.engine.session import Session
from omnigraph.errors import InvalidOptionError
from omnigraph.model.schema_plan import SchemaPlan, SchemaResult
from omnigraph.report.notebook import schema_card
from omnigraph.rules.schema_changes import Given, steps_between
from omnigraph.rules.schema_print import print_schema
from omnigraph.rules.who import check_actor, check_message

if TYPE_CHECKING:
    from omnigraph.engine.graph import Graph

SCHEMA_FILE_SUFFIX = ".pg"


class Schema:
    """The schema of a graph's branches."""

    def __init__(self, graph: "Graph", session: Session, history: History, heal: Callable[[], object]) -> None:
        self._graph = graph
        self._session = session
        self._history = history
        self._heal = heal
        self._evolution = Evolution(session, history)

    def _repr_html_(self) -> str:
        return schema_card(self._graph.snapshot().catalog)

    def show(self, branch: str | None = None) -> str:
        """Return a branch's schema as text, in the form omnigraph prints it."""
        return print_schema(self._graph.snapshot(branch=branch).catalog)

    def source(self, branch: str | None = None) -> str:
        """Return the text that was accepted, comments and all."""
        commit = self._graph.snapshot(branch=branch).commit
        return self._graph.accepted_schema(commit).source

    def plan(
        self, new: "str | PathLike[str]", branch: str | None = None, *, allow_data_loss: bool = False
    ) -> SchemaPlan:
        """Return the steps that make a text, or a `.pg` file, the schema of a branch; nothing is changed."""
        head = self._graph.snapshot(branch=branch).commit
        return self._evolution.plan(schema_text(new), head, may_lose=allow_data_loss).plan

    def apply(
        self,
        new: "str | PathLike[str]",
        branch: str | None = None,
        *,
        allow_data_loss: bool = False,
        message: str | None = None,
        actor: str | None = None,
    ) -> SchemaResult:
        """Make a text, or a `.pg` file, the schema of a branch: one commit of schema and data, or nothing.

        What is dropped stays in older snapshots. With ``allow_data_loss`` no file of the new commit holds it any more,
        and numbers that do not fit their new type become null.
        """
        request = ApplyRequest(
            text=schema_text(new),
            branch=self._graph.branch if branch is None else branch,
            allow_data_loss=allow_data_loss,
            message=check_message(message),
            actor=check_actor(actor),
        )
        with self._session.observed("apply_schema", request.branch) as seen:
            self._session.writable()
            self._heal()
            return seen.learn(self._evolution.apply(request))

    def diff(self, old: str, new: str) -> SchemaPlan:
        """Return how the schema of one branch, tag or commit differs from that of another, as steps."""
        before, after = (self._history.catalog(self._history.named(name)) for name in (old, new))
        return SchemaPlan(from_hash=before.hash, to_hash=after.hash, steps=steps_between(before, after, Given()))


def schema_text(schema: "str | PathLike[str]") -> str:
    """Return schema text, read from a file if a path was given: a path object, or one line ending in `.pg`."""
    is_path = not isinstance(schema, str) or (schema.strip().endswith(SCHEMA_FILE_SUFFIX) and "\n" not in schema)
    if not is_path:
        return str(schema)
    try:
        return Path(schema).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise InvalidOptionError(f"the schema file can not be read: {problem}") from problem
