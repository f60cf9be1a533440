"""Folding, tried on thousands of publishes without a disk: few files, nothing lost, order kept, limits held."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import log
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.ids import CommitId, Incarnation
from omnigraph.model.lineage import CommitRow
from omnigraph.model.manifest import Span, SpanKind
from omnigraph.rules import folding
from omnigraph.rules.folding import Fold, plan_fold

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def row(number: int, size: int = 1) -> CommitRow:
    name = CommitId(f"{number:026}")
    return CommitRow(id=name, incarnation=Incarnation("i"), version=number, created_at=NOW, actor=None, body="x" * size)


@dataclass
class History:
    """The manifest's files as lists of commit numbers, moved about as the plans say."""

    tail: tuple[CommitRow, ...] = ()
    spans: tuple[Span, ...] = ()
    files: dict[str, list[int]] = field(default_factory=dict)
    sizes: dict[int, int] = field(default_factory=dict)
    rewrites: dict[int, int] = field(default_factory=dict)

    def publish(self, number: int, size: int = 1) -> Fold | None:
        self.sizes[number] = size
        self.tail = (*self.tail, row(number, size))
        fold = plan_fold(self.tail, self.spans)
        if fold is None:
            return None
        assert self.spans[len(self.spans) - len(fold.absorbed) :] == fold.absorbed, "only the newest are absorbed"
        older = [n for span in fold.absorbed for n in self.files.pop(span.file)]
        numbers = older + [r.version for r in self.tail[:-1]]
        for n in numbers:
            self.rewrites[n] = self.rewrites.get(n, 0) + 1
        file = f"file-{number}"
        self.files[file] = numbers
        made = Span(
            file=file,
            kind=SpanKind.COMMITS,
            tier=fold.tier,
            rows=len(numbers),
            bytes=sum(self.sizes[n] for n in numbers),
        )
        self.spans = (*self.spans[: len(self.spans) - len(fold.absorbed)], made)
        self.tail = self.tail[-1:]
        return fold

    def all_in_order(self) -> list[int]:
        return [n for span in self.spans for n in self.files[span.file]] + [r.version for r in self.tail]


def most_files(commits: int, rows: int, fan: int) -> float:
    """As many files of each size as do not make up one of the next, and a size more for every factor of ``fan``."""
    return (fan - 1) * (2 + log(max(commits / rows, 1), fan))


@pytest.mark.parametrize(("rows", "fan"), [(32, 16), (3, 3), (1, 2), (5, 4)])
def test_thousands_of_publishes_leave_few_files_and_every_commit_in_one_place(rows: int, fan: int) -> None:
    history = History()
    with patch.multiple(folding, TAIL_ROWS_MAX=rows, FAN=fan):
        for number in range(1, 8_001):
            history.publish(number)
            assert 1 <= len(history.tail) <= rows
            assert len(history.spans) <= most_files(number, rows, fan)
            if number % 500 == 0:
                assert history.all_in_order() == list(range(1, number + 1))
    assert history.all_in_order() == list(range(1, 8_001))
    assert max(history.rewrites.values()) <= 2 + log(8_000 / rows, fan), "a row is rewritten once per size"


@given(
    st.lists(st.integers(min_value=1, max_value=400), min_size=1, max_size=200),
    st.integers(min_value=1, max_value=6),
    st.integers(min_value=2, max_value=5),
)
def test_whatever_the_sizes_of_commits_the_limits_hold_and_nothing_moves(sizes: list[int], rows: int, fan: int) -> None:
    history = History()
    limits: dict[str, Any] = {"TAIL_ROWS_MAX": rows, "TAIL_BYTES_MAX": 500, "FAN": fan, "FOLD_BYTES_MAX": 3_000}
    with patch.multiple(folding, **limits):
        for number, size in enumerate(sizes, start=1):
            fold = history.publish(number, size)
            assert len(history.tail) <= rows
            assert len(history.tail) == 1 or sum(len(r.body) for r in history.tail) <= 500
            if fold is not None and fold.absorbed:
                assert history.spans[-1].bytes <= 3_000, "files are joined only up to the cap"
            assert history.all_in_order() == list(range(1, number + 1))


def test_files_stop_growing_at_the_cap_however_long_the_history() -> None:
    history = History()
    with patch.multiple(folding, TAIL_ROWS_MAX=3, FAN=3, FOLD_BYTES_MAX=2_000):
        for number in range(1, 1_001):
            history.publish(number, 100)
            assert all(span.bytes <= 2_000 for span in history.spans)
    assert max(span.bytes for span in history.spans) > 500, "files were joined at all"
    assert len(history.spans) <= 1_000 * 100 / 500, "and are far fewer than the folds there were"
    assert history.all_in_order() == list(range(1, 1_001))


@given(st.lists(st.booleans(), min_size=1, max_size=300))
@settings(max_examples=30)
def test_tiers_fall_from_old_to_new_so_that_runs_are_found(bulky: list[bool]) -> None:
    history = History()
    with patch.multiple(folding, TAIL_ROWS_MAX=2, FAN=3, FOLD_BYTES_MAX=10**9):
        for number, big in enumerate(bulky, start=1):
            history.publish(number, 100 if big else 1)
            tiers = [span.tier for span in history.spans]
            assert tiers == sorted(tiers, reverse=True)
            assert all(tiers.count(tier) <= 2 for tier in tiers)


def test_the_newest_commit_always_stays_even_if_it_is_too_big_by_itself() -> None:
    assert plan_fold((row(1, folding.TAIL_BYTES_MAX * 2),), ()) is None
    assert plan_fold((), ()) is None
    history = History()
    for number in range(1, 4):
        history.publish(number, folding.TAIL_BYTES_MAX + 1)
    assert [r.version for r in history.tail] == [3]


def test_a_tail_exactly_at_its_limits_stays_and_one_more_leaves() -> None:
    tail = tuple(row(n) for n in range(folding.TAIL_ROWS_MAX))
    assert plan_fold(tail, ()) is None
    assert plan_fold((*tail, row(99)), ()) == Fold(tier=0, absorbed=())
    heavy = (row(1), row(2, folding.TAIL_BYTES_MAX - 1))
    assert plan_fold(heavy, ()) is None
    assert plan_fold((*heavy, row(3)), ()) == Fold(tier=0, absorbed=())


def test_the_tail_is_measured_in_bytes_not_in_characters() -> None:
    wide = [
        CommitRow(
            id=CommitId(f"{n:026}"),
            incarnation=Incarnation("i"),
            version=n,
            created_at=NOW,
            actor=None,
            body="𝄞" * (folding.TAIL_BYTES_MAX // 4),
        )
        for n in (1, 2)
    ]
    assert plan_fold(tuple(wide), ()) is not None
