"""From what a caller typed to one read target; whatever contradicts itself is refused."""

from datetime import UTC, datetime, timedelta, timezone
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.errors import InvalidOptionError
from omnigraph.model.targets import AsOf, AtBranch, AtCommit, AtTag, AtVersion, ReadTarget
from omnigraph.rules.targets import VERSION_MAX, commit_id, read_target

COMMIT = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
MOMENT = datetime(2026, 11, 1, 12, 30, tzinfo=UTC)
VALUES: dict[str, Any] = {"tag": "v1", "commit": COMMIT, "version": 3, "timestamp": MOMENT}


@pytest.mark.parametrize(
    ("given_", "meant"),
    [
        ({}, AtBranch(branch="home")),
        ({"branch": "x"}, AtBranch(branch="x")),
        ({"tag": "v1"}, AtTag(tag="v1")),
        ({"commit": COMMIT}, AtCommit(commit=commit_id(COMMIT))),
        ({"commit": COMMIT.lower()}, AtCommit(commit=commit_id(COMMIT))),
        ({"version": 3}, AtVersion(branch="home", version=3)),
        ({"version": VERSION_MAX}, AtVersion(branch="home", version=VERSION_MAX)),
        ({"branch": "x", "version": 1}, AtVersion(branch="x", version=1)),
        ({"timestamp": MOMENT}, AsOf(branch="home", moment=MOMENT)),
        ({"branch": "x", "timestamp": "2026-11-01"}, AsOf(branch="x", moment=datetime(2026, 11, 1, tzinfo=UTC))),
    ],
)
def test_what_is_named_is_what_is_meant(given_: dict[str, Any], meant: ReadTarget) -> None:
    assert read_target("home", **given_) == meant


@pytest.mark.parametrize("pair", list(combinations(VALUES, 2)), ids="+".join)
@pytest.mark.parametrize("branch", [None, "x"])
def test_two_ways_to_name_a_snapshot_contradict_each_other(pair: tuple[str, str], branch: str | None) -> None:
    with pytest.raises(InvalidOptionError) as refused:
        read_target("main", branch=branch, **{name: VALUES[name] for name in pair})
    assert all(name in str(refused.value) for name in pair)


@pytest.mark.parametrize("name", ["tag", "commit"])
def test_a_branch_beside_a_tag_or_commit_is_refused(name: str) -> None:
    with pytest.raises(InvalidOptionError, match=f"'{name}' names a snapshot by itself; leave 'branch' away"):
        read_target("main", branch="x", **{name: VALUES[name]})


@pytest.mark.parametrize("version", [0, -1, True, False, VERSION_MAX + 1, 2**64])
def test_what_is_no_version_is_refused(version: int) -> None:
    with pytest.raises(InvalidOptionError, match="is not a version"):
        read_target("main", version=version)


@pytest.mark.parametrize("version", [1.5, "3", "three"])
def test_a_version_that_is_no_whole_number_is_refused_typed(version: Any) -> None:
    with pytest.raises(InvalidOptionError, match="is not a version"):
        read_target("main", version=version)


@pytest.mark.parametrize("more", [{}, {"version": 1}, {"timestamp": MOMENT}])
def test_an_empty_branch_name_is_never_taken_for_the_default_branch(more: dict[str, Any]) -> None:
    try:
        target: Any = read_target("main", branch="", **more)
    except InvalidOptionError:
        return
    assert target.branch == ""


@pytest.mark.parametrize(
    "text", ["", "main", COMMIT[:-1], COMMIT + "0", "'" * 26, "U" * 26, "8" + "Z" * 25, "é" * 26, "x" * 10_000]
)
def test_what_is_no_commit_id_is_refused_in_a_short_message(text: str) -> None:
    with pytest.raises(InvalidOptionError, match="is not a commit id") as refused:
        read_target("main", commit=text)
    assert len(str(refused.value)) < 300


def test_a_time_without_a_zone_is_refused() -> None:
    with pytest.raises(InvalidOptionError, match="no time zone"):
        read_target("main", timestamp=datetime(2026, 11, 1))  # noqa: DTZ001 - the point of the test


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-11-01", datetime(2026, 11, 1, tzinfo=UTC)),
        (" 2026-11-01T12:30:00 ", MOMENT),
        ("2026-11-01 12:30", MOMENT),
        ("2026-11-01T12:30:00Z", MOMENT),
        ("2026-11-01T13:30:00+01:00", MOMENT),
        ("2026-11-01T12:30:00.000001", MOMENT + timedelta(microseconds=1)),
    ],
)
def test_text_is_a_moment_and_in_utc_if_it_names_no_zone(text: str, moment: datetime) -> None:
    assert read_target("main", timestamp=text) == AsOf(branch="main", moment=moment)


@pytest.mark.parametrize("text", ["", "yesterday", "2026-13-01", "2026-11-01T25:00", "1767225600", "x" * 10_000])
def test_text_that_is_no_time_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(InvalidOptionError, match="write 2026-11-01 or") as refused:
        read_target("main", timestamp=text)
    assert len(str(refused.value)) < 300


@given(
    st.datetimes(min_value=datetime(1970, 1, 2), max_value=datetime(2200, 1, 1)),  # noqa: DTZ001 - zones are added
    st.integers(min_value=-23 * 60, max_value=23 * 60),
)
def test_text_with_a_zone_names_the_same_instant(moment: datetime, minutes: int) -> None:
    there = moment.replace(tzinfo=timezone(timedelta(minutes=minutes)))
    target = read_target("main", timestamp=there.isoformat())
    assert isinstance(target, AsOf)
    assert target.moment == there
