"""Ids in order can not come twice; whatever is said of an order holds for the texts themselves."""

from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.rules.ascending import WORDS_MAX, Ascending, Stretch, are_apart

BEGINNINGS = st.sampled_from(["", "person-", "a/long/beginning/that/many/share/"])
ALIKE = st.builds("".join, st.tuples(BEGINNINGS, st.text("ab0ü", max_size=12)))
LONG_MAX = 40


def order(text: str) -> tuple[int, bytes]:
    return len(text.encode()), text.encode()


def is_in_order(texts: list[str]) -> bool:
    places = [order(text) for text in texts]
    return all(one < other for one, other in pairwise(places))


def stretch_of(*parts: list[str]) -> Stretch | None:
    seen = Ascending()
    for part in parts:
        seen.look(pa.chunked_array([pa.array(part, pa.string())]))
    return seen.stretch


@given(st.lists(ALIKE, min_size=1, max_size=LONG_MAX), st.integers(0, LONG_MAX))
def test_texts_are_in_order_exactly_if_each_is_greater_than_the_one_before(texts: list[str], cut: int) -> None:
    for given_texts in (texts, sorted(texts, key=order), sorted(set(texts), key=order)):
        found = stretch_of(given_texts[:cut], given_texts[cut:])
        expected = Stretch(given_texts[0], given_texts[-1]) if is_in_order(given_texts) else None
        assert found == expected


@given(st.lists(ALIKE, min_size=3, max_size=LONG_MAX, unique=True), st.data())
def test_one_id_out_of_its_place_is_noticed(texts: list[str], data: st.DataObject) -> None:
    ordered = sorted(texts, key=order)
    one, other = sorted(data.draw(st.lists(st.integers(0, len(texts) - 1), min_size=2, max_size=2, unique=True)))
    ordered[one], ordered[other] = ordered[other], ordered[one]
    assert stretch_of(ordered) is None


@pytest.mark.parametrize("rows", [1, 2, 70_000, 200_000])
def test_numbers_that_count_are_in_order_over_any_number_of_parts(rows: int) -> None:
    ids = pa.array([f"person-{number}" for number in range(rows)])
    seen = Ascending()
    seen.look(ids.slice(0, rows // 2))
    seen.look(ids.slice(rows // 2))
    assert seen.stretch == Stretch("person-0", f"person-{rows - 1}")


def test_what_was_out_of_order_once_stays_so() -> None:
    assert stretch_of(["a", "b"], ["a"]) is None
    assert stretch_of(["a", "b"], ["a"], ["c"]) is None


def test_ids_that_are_alike_for_too_long_and_none_at_all_are_no_stretch() -> None:
    same = "x" * 8 * WORDS_MAX
    assert stretch_of([same + "1", same + "2"]) is None
    assert stretch_of() is None
    assert stretch_of([]) is None
    assert stretch_of(["a", "a"]) is None


@given(st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=4, unique=True), max_size=5))
def test_stretches_that_are_apart_share_no_id(numbers: list[list[int]]) -> None:
    parts = [[f"id-{number}" for number in sorted(part)] for part in numbers]
    apart = are_apart([stretch_of(part) for part in parts])
    every = [text for part in parts for text in part]
    if apart:
        assert len(set(every)) == len(every)
    ranges = [set(range(min(part), max(part) + 1)) for part in numbers]
    assert apart == (sum(map(len, ranges)) == len(set().union(*ranges)))


def test_what_is_not_in_order_is_apart_from_nothing() -> None:
    assert not are_apart([Stretch("a", "b"), None])
    assert are_apart([])
    assert are_apart([Stretch("a", "b")])
    assert not are_apart([Stretch("a", "c"), Stretch("c", "d")])
