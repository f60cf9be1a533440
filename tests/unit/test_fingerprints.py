"""Fingerprints: equal texts have equal ones, and whoever relies on them compares the texts."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.rules.fingerprints import Sieve, fingerprints, occurring_twice, with_fingerprint

texts = st.lists(st.text(st.characters(codec="utf-8"), max_size=40), max_size=60)


@given(texts)
def test_equal_texts_have_equal_fingerprints_wherever_they_lie(values: list[str]) -> None:
    alone = fingerprints(pa.array(values, pa.string()))
    among = fingerprints(pa.array(["before", *values, "after"], pa.string()).slice(1, len(values)))
    cut = fingerprints(pa.chunked_array([values[:7], values[7:]], pa.string()))
    assert alone.tolist() == among.tolist() == cut.tolist()


@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=8), max_size=60, unique=True))
def test_short_texts_that_differ_have_different_fingerprints(values: list[str]) -> None:
    assert len(set(fingerprints(pa.array(values, pa.string())).tolist())) == len(values)


@pytest.mark.parametrize(
    "form", ["{}", "{:016d}", "https://example.org/{}", "user{}@mail.example.org", "{0}{0}", "\0{}", "é{}é"]
)
def test_ids_as_people_make_them_do_not_collide_and_spread_over_all_bits(form: str) -> None:
    found = fingerprints(pa.array([form.format(number) for number in range(20_000)]))
    assert len(occurring_twice([found])) == 0
    for shift in (0, 24, 48):
        slots = np.unique(found >> np.uint64(shift) & np.uint64(0xFFFF))
        assert 0.24 < len(slots) / 2**16 < 0.29, "20,000 draws of 65,536 leave about 26 % of them drawn"


def test_texts_that_differ_only_in_the_middle_share_one() -> None:
    ends = ["a" * 16 + middle + "z" * 16 for middle in ("one", "two")]
    assert len(set(fingerprints(pa.array(ends)).tolist())) == 1, "so the texts must be compared, always"


def test_nothing_has_no_fingerprints() -> None:
    empty = pa.array([], pa.string())
    assert len(fingerprints(empty)) == len(fingerprints(pa.chunked_array([], pa.string()))) == 0
    assert len(occurring_twice([])) == 0
    assert Sieve([empty]).admitted(pa.array(["a"])).tolist() == Sieve([empty]).admitted(empty).tolist() == []


@given(texts, texts)
def test_what_occurs_twice_is_found_across_parts(left: list[str], right: list[str]) -> None:
    parts = [fingerprints(pa.array(values, pa.string())) for values in (left, right)]
    both = left + right
    expected = {text for text in both if both.count(text) > 1}
    prints = fingerprints(pa.array(sorted(expected), pa.string()))
    assert set(occurring_twice(parts).tolist()) == set(prints.tolist())


@given(texts, texts)
def test_texts_are_found_by_their_fingerprints(held: list[str], asked: list[str]) -> None:
    wanted = np.sort(fingerprints(pa.array(held, pa.string())))
    column = pa.array([*asked, *held[:5]], pa.string())
    found = with_fingerprint(column, wanted).tolist()
    assert found == [place for place, text in enumerate(column.to_pylist()) if text in held]


@given(texts, texts)
def test_a_sieve_lets_through_what_it_holds_and_nothing_else(held: list[str], asked: list[str]) -> None:
    sieve = Sieve([pa.array(held[:3], pa.string()), pa.chunked_array([held[3:]], pa.string())])
    column = pa.array([*asked, *held[:5]], pa.string())
    through = sieve.admitted(column).tolist()
    assert through == [place for place, text in enumerate(column.to_pylist()) if text in held]
