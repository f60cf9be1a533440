"""Best common ancestors over random graphs of commits, against the definition, worked out slowly."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from omnigraph.ids import CommitId
from omnigraph.rules.ancestry import Ancestor, best_common_ancestors

START = datetime(2026, 1, 1, tzinfo=UTC)


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[int, ...]]:
    """For each commit the numbers of its parents, all of them older; every history has one beginning."""
    count = draw(st.integers(1, 14))
    parents: list[tuple[int, ...]] = [()]
    for number in range(1, count):
        chosen = draw(st.sets(st.integers(0, number - 1), min_size=1, max_size=2))
        parents.append(tuple(sorted(chosen)))
    return parents


def name(number: int) -> CommitId:
    return CommitId(f"commit-{number}")


def with_ancestors(parents: list[tuple[int, ...]], number: int) -> set[int]:
    found = {number}
    for parent in parents[number]:
        found |= with_ancestors(parents, parent)
    return found


def by_definition(parents: list[tuple[int, ...]], left: set[int], right: set[int]) -> set[int]:
    """All common ancestors, less those that another one descends from."""
    sides = [{found for number in side for found in with_ancestors(parents, number)} for side in (left, right)]
    common = sides[0] & sides[1]
    return {one for one in common if not any(one in with_ancestors(parents, other) - {other} for other in common)}


def look_up(parents: list[tuple[int, ...]]) -> dict[CommitId, Ancestor]:
    return {
        name(number): Ancestor(
            id=name(number), created_at=START + timedelta(microseconds=number), parents=tuple(map(name, each))
        )
        for number, each in enumerate(parents)
    }


@given(histories(), st.data())
def test_what_is_found_is_what_the_definition_says_newest_first(
    parents: list[tuple[int, ...]], data: st.DataObject
) -> None:
    numbers = st.sets(st.integers(0, len(parents) - 1), min_size=1, max_size=3)
    left, right = data.draw(numbers), data.draw(numbers)
    found = best_common_ancestors(map(name, left), map(name, right), look_up(parents).get)
    wanted = by_definition(parents, left, right)
    assert list(found) == [name(number) for number in sorted(wanted, reverse=True)]


def test_a_criss_cross_has_two_best_common_ancestors() -> None:
    parents = [(), (0,), (0,), (1, 2), (1, 2)]
    assert best_common_ancestors([name(3)], [name(4)], look_up(parents).get) == (name(2), name(1))


def test_an_ancestor_is_its_own_best_one_and_history_behind_it_is_not_looked_at() -> None:
    commits = look_up([(), (0,), (1,), (2,), (3,)])
    asked: list[CommitId] = []

    def find(commit: CommitId) -> Ancestor | None:
        asked.append(commit)
        return commits.get(commit)

    assert best_common_ancestors([name(4)], [name(3)], find) == (name(3),)
    assert name(0) not in asked


def test_histories_that_were_cleaned_up_have_nothing_in_common() -> None:
    commits = look_up([(), (0,), (0,)])
    del commits[name(0)]
    assert best_common_ancestors([name(1)], [name(2)], commits.get) == ()
