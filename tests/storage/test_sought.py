"""Texts that are looked for: what is met is told exactly, whatever their fingerprints are."""

from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.storage import sought as sought_module
from omnigraph.storage.sought import Sought

MIDDLE = st.text("ab", max_size=3)
ALIKE = st.builds("{:16}{}{:>16}".format, st.sampled_from("xy"), MIDDLE, st.sampled_from("xy"))
"""Texts that differ in the middle only have the same fingerprint."""
TEXTS = st.lists(st.one_of(st.text(st.characters(codec="utf-8"), max_size=20), MIDDLE, ALIKE), max_size=40)


def column(texts: list[str]) -> "pa.StringArray":
    return pa.array(texts, pa.string())


@given(TEXTS, st.lists(TEXTS, max_size=4), st.integers(1, 5))
def test_what_was_not_met_is_left_and_nothing_else(wanted: list[str], others: list[list[str]], at_once: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sought_module, "STRANGERS_MAX", at_once)
        cut = len(wanted) // 2
        sought = Sought(pa.chunked_array([wanted[:cut], wanted[cut:]], pa.string()))
        left = set(wanted)
        assert sought.left == len(left)
        for some in others:
            sought.meet(column(some))
            left -= set(some)
            assert sought.left == len(left)
            assert sorted(sought.missing().to_pylist()) == sorted(left), "each once"


@pytest.mark.parametrize("form", ["{}", "one beginning for all {:06} and one ending for all"], ids=["any", "alike"])
def test_very_many_are_met_by_several_threads(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sought_module, "ALONE_MAX", 50_000)
    count = 60_000
    sought = Sought(column([form.format(number % count) for number in range(count + 1_000)]))
    met = [column([form.format(n) for n in range(start, 2 * count, 7) if n % 1_000]) for start in range(7)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(sought.meet, met))
    assert sought.left == 60
    assert sorted(sought.missing().to_pylist()) == sorted(form.format(n) for n in range(0, count, 1_000))


def test_nothing_is_looked_for_and_nothing_is_met() -> None:
    nobody = Sought(column([]))
    nobody.meet(column(["a", ""]))
    assert nobody.left == 0
    assert nobody.missing().type == pa.string()
    someone = Sought(pa.chunked_array([["", "a"]], pa.string()))
    someone.meet(column([]))
    someone.meet(pa.array([None, None], pa.string()))
    assert someone.left == 2, "an empty text is not one that is not there"


def test_more_bytes_than_a_column_of_texts_can_have_are_no_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sought_module, "TEXT_BYTES_MAX", 30)
    sought = Sought(column(["short", "a text of so many bytes that it is too large"]))
    assert sought.missing().type == pa.large_string()
    sought.meet(column(["a text of so many bytes that it is too large"]))
    assert sought.missing().to_pylist() == ["short"]
    assert sought.missing().type == pa.string()
