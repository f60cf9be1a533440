"""What happens to the manifest's state, decided without a disk: names, commits, conflicts, history."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from omnigraph.errors import (
    BranchConflictError,
    BranchExistsError,
    BranchNotFoundError,
    InvalidNameError,
    ProtectedBranchError,
    TagExistsError,
    TagNotFoundError,
    VersionConflictError,
)
from omnigraph.ids import CommitId, Incarnation, TableId
from omnigraph.model.lineage import Commit, Segment, Txn
from omnigraph.model.manifest import ManifestState
from omnigraph.model.tables import Pin
from omnigraph.rules import refs
from omnigraph.rules.refs import Draft, Stamp

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
ANN = Stamp(actor="ann", at=NOON)
PERSON, KNOWS = TableId("T-person"), TableId("T-knows")


def pin(table: TableId, version: int) -> Pin:
    return Pin(table=table, version=version, lance_version=2**63 + version, transaction=f"x{version}", rows=version)


def genesis() -> tuple[ManifestState, Commit]:
    first = Commit(
        id=CommitId("C1"),
        branch="main",
        incarnation=Incarnation("I-main"),
        version=1,
        parents=(),
        actor="ann",
        operation="init",
        message=None,
        created_at=NOON,
        schema_hash="S1",
        lineage=(),
        pins={},
    )
    return refs.genesis(first), first


def draft(state: ManifestState, branch: str = "main", number: int = 2, **more: object) -> Draft:
    made = Draft(
        id=CommitId(f"C{number}"),
        branch=branch,
        incarnation=state.branches[branch].incarnation,
        operation="append",
        schema_hash="S1",
        pins={},
    )
    return replace(made, **more)  # type: ignore[arg-type]  # a test names the fields it cares about


def forked(state: ManifestState, name: str, parent: str = "main") -> ManifestState:
    point = state.branches[parent].fork_point
    return refs.create_branch(state, name, Incarnation(f"I-{name}"), point, parent, ANN)


def test_genesis_is_main_at_one_commit() -> None:
    state, first = genesis()
    main = state.branches["main"]
    assert (main.head, main.version, main.parent, main.lineage) == (first.id, 1, None, ())
    assert [row.commit for row in state.tail] == [first]
    assert (dict(state.tags), dict(state.txns), state.spans) == ({}, {}, ())


def test_a_new_branch_is_one_row_and_changes_no_other() -> None:
    before, _ = genesis()
    after = forked(before, "review")
    made = after.branches["review"]
    assert replace(after, branches=before.branches) == before
    assert after.branches["main"] == before.branches["main"]
    assert (made.head, made.version, made.created_at, made.created_by, made.parent) == ("C1", 1, NOON, "ann", "main")
    assert made.lineage == (Segment(incarnation=Incarnation("I-main"), upto=1),)


TAKEN = [
    ("main", "a branch of this name exists"),
    ("MAIN", "branch 'main' differs only in upper and lower case"),
    ("Review", "branch 'review' differs only"),
    ("v1", "a tag of this name exists"),
    ("V1", "tag 'v1' differs only"),
]


@pytest.mark.parametrize(("name", "why"), TAKEN)
def test_a_name_that_a_branch_or_tag_has_in_any_case_is_taken_for_both(name: str, why: str) -> None:
    state, first = genesis()
    state = refs.create_tag(forked(state, "review"), "v1", first.id, ANN)
    point = first.fork_point
    with pytest.raises(BranchExistsError, match=why) as branch:
        refs.create_branch(state, name, Incarnation("I"), point, "main", ANN)
    assert branch.value.branch == name
    with pytest.raises(TagExistsError, match=why) as tag:
        refs.create_tag(state, name, first.id, ANN)
    assert tag.value.tag == name


@pytest.mark.parametrize("name", ["", "..", "a b", "it's"])
def test_a_name_that_breaks_the_rule_makes_neither_branch_nor_tag(name: str) -> None:
    state, first = genesis()
    with pytest.raises(InvalidNameError, match="name a branch"):
        refs.create_branch(state, name, Incarnation("I"), first.fork_point, None, ANN)
    with pytest.raises(InvalidNameError, match="name a tag"):
        refs.create_tag(state, name, first.id, ANN)
    with pytest.raises(InvalidNameError):
        refs.rename_branch(forked(state, "x"), "x", name)


def test_deleting_removes_the_row_and_keeps_the_commits() -> None:
    state, _ = genesis()
    state = forked(state, "review")
    state, _ = refs.append_commit(state, draft(state, "review"), state.tail[0].commit, ANN)
    after = refs.delete_branch(state, "review")
    assert set(after.branches) == {"main"}
    assert after.tail == state.tail
    assert "review" in state.branches, "states are values"


def test_main_can_be_neither_deleted_nor_renamed() -> None:
    state, _ = genesis()
    with pytest.raises(ProtectedBranchError):
        refs.delete_branch(state, "main")
    with pytest.raises(ProtectedBranchError):
        refs.rename_branch(state, "main", "x")


def test_what_does_not_exist_is_refused_with_the_nearest_name() -> None:
    state, first = genesis()
    state = refs.create_tag(forked(state, "review"), "v1.0", first.id, ANN)
    for act in (refs.delete_branch, refs.branch_named):
        with pytest.raises(BranchNotFoundError, match="did you mean 'review'"):
            act(state, "reviw")
    with pytest.raises(BranchNotFoundError):
        refs.rename_branch(state, "reviw", "x")
    with pytest.raises(TagNotFoundError, match=r"did you mean 'v1\.0'"):
        refs.delete_tag(state, "v1.00")


def test_a_huge_unknown_name_makes_a_short_message() -> None:
    state, _ = genesis()
    with pytest.raises(BranchNotFoundError) as refused:
        refs.branch_named(state, "x" * 100_000)
    assert len(str(refused.value)) < 400


def test_a_rename_keeps_incarnation_head_and_history() -> None:
    state, _ = genesis()
    state = forked(state, "review")
    after = refs.rename_branch(state, "review", "done")
    assert set(after.branches) == {"main", "done"}
    assert after.branches["done"] == replace(state.branches["review"], name="done")


def test_a_rename_may_change_only_the_case_but_not_take_a_name() -> None:
    state, first = genesis()
    state = refs.create_tag(forked(forked(state, "review"), "other"), "v1", first.id, ANN)
    assert "Review" in refs.rename_branch(state, "review", "Review").branches
    for taken in ("other", "Main", "V1"):
        with pytest.raises(BranchExistsError):
            refs.rename_branch(state, "review", taken)


def test_a_tag_names_a_commit_and_goes_again() -> None:
    state, first = genesis()
    tagged = refs.create_tag(state, "v1", first.id, ANN)
    made = refs.tag_named(tagged, "v1")
    assert (made.commit, made.created_at, made.created_by) == ("C1", NOON, "ann")
    assert refs.delete_tag(tagged, "v1") == state


def test_branches_are_listed_main_first_then_by_name() -> None:
    state, _ = genesis()
    for name in ("b", "zz", "a", "B2"):
        state = forked(state, name)
    assert [b.name for b in refs.ordered_branches(state)] == ["main", "B2", "a", "b", "zz"]


def test_a_commit_moves_only_its_branch_and_carries_all_it_was_given() -> None:
    state, first = genesis()
    state = forked(state, "review")
    wanted = draft(state, "review", message="m", user_metadata="u", extra_parents=(CommitId("C9"),))
    after, made = refs.append_commit(state, wanted, first, Stamp(actor="bob", at=NOON + timedelta(hours=1)))
    assert (made.branch, made.version, made.parents) == ("review", 2, ("C1", "C9"))
    assert (made.actor, made.operation, made.message, made.user_metadata) == ("bob", "append", "m", "u")
    assert made.created_at == NOON + timedelta(hours=1)
    assert (after.branches["review"].head, after.branches["review"].version) == (made.id, 2)
    assert after.branches["main"] == state.branches["main"]
    assert [row.commit for row in after.tail] == [first, made]


@pytest.mark.parametrize("back", [timedelta(0), timedelta(microseconds=1), timedelta(days=400)])
def test_time_goes_forward_along_a_branch_even_if_a_clock_goes_back(back: timedelta) -> None:
    state, first = genesis()
    _, made = refs.append_commit(state, draft(state), first, Stamp(actor=None, at=NOON - back))
    assert made.created_at == first.created_at + timedelta(microseconds=1)


def test_pins_replace_those_of_the_same_table_and_keep_the_others() -> None:
    state, first = genesis()
    both = {PERSON: pin(PERSON, 1), KNOWS: pin(KNOWS, 1)}
    state, two = refs.append_commit(state, draft(state, pins=both), first, ANN)
    state, three = refs.append_commit(state, draft(state, number=3, pins={PERSON: pin(PERSON, 2)}), two, ANN)
    assert three.pins == {PERSON: pin(PERSON, 2), KNOWS: pin(KNOWS, 1)}
    _, four = refs.append_commit(state, draft(state, number=4, pins={}, replace_all_pins=True), three, ANN)
    assert four.pins == {}


@pytest.mark.parametrize(
    ("expected", "actual", "numbers"),
    [(None, 3, (0, 3)), (2, 3, (2, 3)), (3, None, (3, 0))],
)
def test_a_table_that_moved_is_a_version_conflict_with_the_facts(
    expected: int | None, actual: int | None, numbers: tuple[int, int]
) -> None:
    state, first = genesis()
    there = {PERSON: pin(PERSON, actual)} if actual else {}
    state, head = refs.append_commit(state, draft(state, pins=there), first, ANN)
    planned = {PERSON: pin(PERSON, expected) if expected else None}
    late = draft(state, number=3, pins={PERSON: pin(PERSON, 4)}, expected=planned, table_keys={PERSON: "node:Person"})
    with pytest.raises(VersionConflictError, match="refresh and retry") as lost:
        refs.append_commit(state, late, head, ANN)
    assert (lost.value.table_key, lost.value.expected, lost.value.actual) == ("node:Person", *numbers)


def test_the_same_version_number_of_another_seal_is_a_conflict_too() -> None:
    state, first = genesis()
    state, head = refs.append_commit(state, draft(state, pins={PERSON: pin(PERSON, 1)}), first, ANN)
    other = replace(pin(PERSON, 1), transaction="another", lance_version=2**63 + 77)
    with pytest.raises(VersionConflictError):
        refs.append_commit(state, draft(state, number=3, expected={PERSON: other}), head, ANN)


def test_tables_nobody_expected_anything_of_are_not_checked() -> None:
    state, first = genesis()
    state, head = refs.append_commit(state, draft(state, pins={KNOWS: pin(KNOWS, 7)}), first, ANN)
    _, made = refs.append_commit(state, draft(state, number=3, expected={PERSON: None}), head, ANN)
    assert made.version == 3


def test_a_schema_that_changed_is_a_branch_conflict_with_the_facts() -> None:
    state, first = genesis()
    with pytest.raises(BranchConflictError, match="schema") as lost:
        refs.append_commit(state, draft(state, base_schema="S0"), first, ANN)
    assert (lost.value.branch, lost.value.expected, lost.value.actual) == ("main", "S0", "S1")


def test_a_branch_deleted_or_made_again_is_a_branch_conflict() -> None:
    state, first = genesis()
    state = forked(state, "review")
    wanted = draft(state, "review")
    gone = refs.delete_branch(state, "review")
    with pytest.raises(BranchConflictError, match="was deleted while"):
        refs.append_commit(gone, wanted, first, ANN)
    again = refs.create_branch(gone, "review", Incarnation("I-second"), first.fork_point, "main", ANN)
    with pytest.raises(BranchConflictError, match="deleted and created again"):
        refs.append_commit(again, wanted, first, ANN)


def test_a_commit_follows_its_branch_through_a_rename() -> None:
    state, first = genesis()
    state = forked(state, "review")
    wanted = draft(state, "review")
    after, made = refs.append_commit(refs.rename_branch(state, "review", "done"), wanted, first, ANN)
    assert made.branch == "done"
    assert after.branches["done"].head == made.id


def test_a_txn_row_remembers_the_last_version_of_each_application() -> None:
    state, first = genesis()
    state, two = refs.append_commit(state, draft(state, txn=("etl", 7)), first, ANN)
    state, three = refs.append_commit(state, draft(state, number=3, txn=("other", 1)), two, ANN)
    state, four = refs.append_commit(state, draft(state, number=4, txn=("etl", 8)), three, ANN)
    state, _ = refs.append_commit(state, draft(state, number=5), four, ANN)
    assert state.txns == {
        "etl": Txn(app_id="etl", version=8, commit=four.id),
        "other": Txn(app_id="other", version=1, commit=three.id),
    }


def test_forks_of_forks_inherit_every_stretch_and_none_twice() -> None:
    state, head = genesis()
    for number, name in enumerate(("a", "b", "c"), start=2):
        parent = "main" if name == "a" else chr(ord(name) - 1)
        state = forked(state, name, parent)
        if name != "b":  # b makes no commit of its own
            state, head = refs.append_commit(state, draft(state, name, number), head, ANN)
    main, a, c = (Incarnation(i) for i in ("I-main", "I-a", "I-c"))
    inherited = (Segment(incarnation=main, upto=1), Segment(incarnation=a, upto=2))
    assert state.branches["b"].lineage == state.branches["c"].lineage == inherited
    assert state.branches["c"].segments == (Segment(incarnation=c, upto=3), *reversed(inherited))
    assert head.lineage == inherited
    assert head.fork_point.lineage == state.branches["c"].fork_point.lineage


def test_a_fork_of_an_old_commit_stops_where_that_commit_is() -> None:
    state, one = genesis()
    state, two = refs.append_commit(state, draft(state), one, ANN)
    state, _ = refs.append_commit(state, draft(state, number=3), two, ANN)
    state = refs.create_branch(state, "old", Incarnation("I-old"), two.fork_point, "main", ANN)
    made = state.branches["old"]
    assert (made.head, made.version) == ("C2", 2)
    assert made.lineage == (Segment(incarnation=Incarnation("I-main"), upto=2),)
