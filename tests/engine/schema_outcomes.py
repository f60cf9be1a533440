"""What becomes of changes to a schema: each is run over all it can meet, and told on a page."""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.engine.schema_cases import CASES, Case, Given

import omnigraph as og
from omnigraph.errors import ConstraintError, OmnigraphError, SchemaChangeError
from omnigraph.model.schema_plan import Cost
from omnigraph.storage.relations import ClusterEngine

SIDE = "side"
EMPTY, FITS, VIOLATES = "empty table", "rows that fit", "rows that do not"
PAGE = Path("docs/reference/schema-changes.md")
HEAD = """# What becomes of a change to a schema

Every row of this table is run by `tests/engine/test_schema_matrix.py`, on `main` and on a branch. `metadata` touches
no row; `validation` reads rows; `column` writes one column beside the others; `rewrite` writes the table anew. A change
that is refused leaves everything as it was; the [guide](../guides/schema-evolution.md) says what to do about it.

`python3 -m tests.engine.schema_outcomes` writes this page.

| change | empty table | rows that fit | rows that do not |
|---|---|---|---|
"""


def rows_of(snapshot: og.Snapshot, types: Mapping[str, object]) -> dict[str, list[dict[str, Any]]]:
    """Everything some types hold, by id."""
    return {name: sorted(snapshot.read(name).to_pylist(), key=lambda row: str(row["id"])) for name in types}


def put(graph: og.Graph, given: Given) -> None:
    """Write rows of several types as one commit."""
    if any(given.values()):
        with graph.transaction(constraints="off") as tx:
            for name, rows in given.items():
                if rows:
                    tx.append(name, list(rows))


def outcome(root: Path, case: Case, given: Given, engine: ClusterEngine | None = None) -> str:
    """Apply a change to `main` and to a branch, look at every snapshot, and say what became of it."""
    graph = og.init(root, case.old)
    graph = graph if engine is None else graph.with_engine(engine)
    put(graph, {**case.extra, **given})
    graph.branches.create(SIDE)
    before = graph.snapshot()
    old = dict.fromkeys((*case.extra, *given))
    was = rows_of(before, old)
    said = {_applied(graph, case, branch, given) for branch in ("main", SIDE)}
    assert len(said) == 1, "a branch is no other than main"
    assert rows_of(graph.snapshot(commit=before.commit.id), old) == was, "an old snapshot shows what it showed"
    assert rows_of(og.open(root, read_only=True).snapshot(version=before.version), old) == was
    return said.pop()


def _applied(graph: og.Graph, case: Case, branch: str, given: Given) -> str:
    head = graph.snapshot(branch)
    plan = graph.schema.plan(case.new, branch, allow_data_loss=case.allow_data_loss)
    try:
        done = graph.schema.apply(case.new, branch, allow_data_loss=case.allow_data_loss)
    except OmnigraphError as refused:
        assert graph.snapshot(branch).commit == head.commit, "a refused change changes nothing"
        assert isinstance(refused, ConstraintError | SchemaChangeError), refused
        codes = [step.problem.code for step in plan.steps if step.problem is not None]
        return f"refused: `{', '.join(codes) or refused.code}`"
    assert (done.commit, done.version) == (graph.snapshot(branch).commit.id, head.version + 1)
    assert done.plan.steps and [step.kind for step in done.plan.steps] == [step.kind for step in plan.steps]
    if given == case.fits or not any(given.values()):
        wanted = case.then if given == case.fits else {name: [] for name in case.then}
        found = rows_of(graph.snapshot(branch), wanted)
        assert found == {name: sorted(rows, key=lambda row: str(row["id"])) for name, rows in wanted.items()}
        for name, rows in wanted.items():
            assert all(list(row) == list(rows[0]) for row in found[name]), "columns are in the order of the schema"
    assert not graph.schema.plan(case.new, branch).steps, "what was applied is what is there"
    return f"applied: {max((step.cost for step in done.plan.steps), key=list(Cost).index)}"


def outcomes(folder: Path, case: Case, engine: ClusterEngine | None = None) -> dict[str, str]:
    """Run one change over everything it can meet."""
    given = {EMPTY: {name: [] for name in case.fits or case.violates or {}}, FITS: case.fits, VIOLATES: case.violates}
    told: dict[str, str] = {}
    for number, (name, rows) in enumerate(given.items()):
        if rows is not None and (name == EMPTY or any(rows.values()) or (name == FITS and case.extra)):
            told[name] = outcome(folder / f"{number}", case, rows, engine)
    return told


def page_row(case: Case, told: Mapping[str, str]) -> str:
    """Return the row of the page."""
    return f"| {case.name} | " + " | ".join(told.get(name, "-") for name in (EMPTY, FITS, VIOLATES)) + " |"


def main() -> None:
    """Write the page."""
    with tempfile.TemporaryDirectory() as folder:
        rows = [page_row(case, outcomes(Path(folder) / str(n), case)) for n, case in enumerate(CASES)]
    PAGE.write_text(HEAD + "\n".join(rows) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
