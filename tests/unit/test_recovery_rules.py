"""What is decided about a sidecar, for everything that can be seen."""

import itertools

import pytest

from omnigraph.rules.recovery import (
    Decision,
    Discard,
    Finished,
    LeaveAlone,
    Observation,
    RollBack,
    RollForward,
    decide,
)

TABLES: tuple[tuple[str, ...], ...] = ((), ("node:Person",), ("node:Person", "edge:Knows"))
FILES: tuple[tuple[str, ...], ...] = ((), ("data/a.lance",), ("data/a.lance", "data/b.lance"))
YES_OR_NO = (False, True)

ALL = [
    Observation(
        landed=landed,
        abandoned=abandoned,
        owner_alive=alive,
        branch_there=branch,
        schema_same=schema,
        moved_strict=moved,
        missing_files=missing,
    )
    for landed, abandoned, alive, branch, schema, moved, missing in itertools.product(
        YES_OR_NO, YES_OR_NO, YES_OR_NO, YES_OR_NO, YES_OR_NO, TABLES, FILES
    )
]


def expected(seen: Observation) -> type[Decision]:
    """The table of the architecture, as rows that each hold or do not: the first that holds decides."""
    redoable = seen.schema_same and not seen.moved_strict and not seen.missing_files
    rows: list[tuple[bool, type[Decision]]] = [
        (seen.owner_alive, LeaveAlone),
        (seen.landed, Finished),
        (seen.abandoned, RollBack),
        (not seen.branch_there, Discard),
        (redoable, RollForward),
        (not redoable, RollBack),
    ]
    return next(decision for holds, decision in rows if holds)


def test_every_observation_leads_to_the_decision_of_the_table() -> None:
    assert len(ALL) == 2**5 * 3 * 3
    assert [seen for seen in ALL if type(decide(seen)) is not expected(seen)] == []


def test_the_decision_is_a_function_of_what_is_seen() -> None:
    assert all(decide(seen) == decide(seen) for seen in ALL)


def test_whether_the_owner_lives_only_says_when_to_help() -> None:
    for seen in ALL:
        if seen.owner_alive:
            assert decide(seen) == LeaveAlone()


def test_a_commit_that_is_visible_is_never_rolled_back_or_discarded() -> None:
    for seen in ALL:
        if seen.landed:
            assert isinstance(decide(seen), Finished | LeaveAlone)


def test_work_is_redone_only_if_everything_it_needs_still_holds() -> None:
    forward = [seen for seen in ALL if decide(seen) == RollForward()]
    (only,) = forward
    assert only == Observation(
        landed=False,
        abandoned=False,
        owner_alive=False,
        branch_there=True,
        schema_same=True,
        moved_strict=(),
        missing_files=(),
    )


@pytest.mark.parametrize(
    ("abandoned", "schema", "moved", "missing", "reason"),
    [
        (True, True, (), (), "it was given up before"),
        (False, False, ("node:Person",), ("a",), "the schema of its branch has changed"),
        (False, True, ("node:Person", "edge:Knows"), ("a",), "moved meanwhile: node:Person, edge:Knows"),
        (False, True, (), ("a", "b"), "2 of its files are missing"),
    ],
)
def test_a_roll_back_says_why(
    abandoned: bool, schema: bool, moved: tuple[str, ...], missing: tuple[str, ...], reason: str
) -> None:
    seen = Observation(
        landed=False,
        abandoned=abandoned,
        owner_alive=False,
        branch_there=True,
        schema_same=schema,
        moved_strict=moved,
        missing_files=missing,
    )
    assert decide(seen) == RollBack(reason)
