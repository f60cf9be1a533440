"""The page of all benchmarks: what it shows, and that no loss goes without an explanation."""

from typing import Any

import pytest
from tests.bench.contestants.stage import HOUSE, PINS, pinned, without_places
from tests.bench.page import UnexplainedError, explanations, page

EXPLAINED = """
[[loss]]
bench = "peers"
what = ["embedded: load ÷ *"]
why = "Every id is looked at."
closes = "Looking at fewer."

[[loss]]
bench = "commit"
what = ["append ÷ bare"]
why = "A promise is written."
closes = "Nothing."
"""


def ratio(act: str, peer: str, theirs: float | None, note: str = "") -> dict[str, Any]:
    by = None if theirs is None else 2.0 / theirs
    names = {"group": "embedded", "act": act, "peer": peer, "unit": "s", "note": note}
    return {**names, "ours": 2.0, "theirs": theirs, "ratio": by}


def verdict(what: str, value: float, limit: float | None) -> dict[str, Any]:
    return {"what": what, "value": value, "limit": limit, "least": False, "holds": limit is None or value <= limit}


def figures(bench: str, **given: Any) -> dict[str, Any]:
    plain = {"title": "What it costs", "day": "2026-01-02", "is_small": False, "about": [], "memory_mb": 12}
    machine = {"machine": {"cores": "2"}, "versions": {"pylance": "1"}, "peers": {}}
    return {"bench": bench, **plain, **machine, "verdicts": [], "ratios": [], **given}


PEERS = figures(
    "peers",
    about=["Ten flights."],
    ratios=[
        ratio("load", "Lance", 1.0),
        ratio("load", "Duck|Lake", 4.0),
        ratio("merge", "Lance", None, "not possible: no branches"),
        ratio("merge", "Duck|Lake", None, "not possible: no branches"),
        {**ratio("everything", "Iceberg", None, "not to be had: no build"), "ours": None},
    ],
    peers={"Lance": {"pylance": "14"}},
)
COMMIT = figures("commit", verdicts=[verdict("append ÷ bare", 3, 2), verdict("size", 1, None)])


def test_the_page_has_every_figure_and_says_why_some_are_lost() -> None:
    made = page([COMMIT, PEERS], explanations(EXPLAINED))
    assert "| load | 2.00 s | 1.00 s, **2.00** | 4.00 s, 0.50 |" in made
    assert "| merge | 2.00 s | not possible | not possible |" in made
    assert "* Lance, merge: not possible: no branches." in made
    assert "* Iceberg: not to be had: no build." in made
    assert "| append ÷ bare | 3.00 | ≤ 2 | **does not hold** |" in made
    assert "* peers: embedded: load ÷ Lance is 2.00\n\nEvery id is looked at." in made
    assert "* peers, " not in made.split("## What it was measured on")[0]
    assert "commit: 2026-01-02: cores 2; pylance 1." in made
    assert "small run" not in made


def test_a_bar_in_a_name_does_not_break_the_table() -> None:
    assert "| Duck\\|Lake |" in page([PEERS], explanations(EXPLAINED))


def test_the_same_figures_give_the_same_page_in_any_order() -> None:
    explained = explanations(EXPLAINED)
    assert page([COMMIT, PEERS], explained) == page([PEERS, COMMIT], explained)


def test_a_small_run_says_so() -> None:
    assert "figures of a small run" in page([{**COMMIT, "is_small": True}], explanations(EXPLAINED))


@pytest.mark.parametrize(("one", "named"), [(PEERS, "embedded: load ÷ Lance"), (COMMIT, "append ÷ bare")])
def test_a_loss_without_an_explanation_is_an_error_that_names_it(one: dict[str, Any], named: str) -> None:
    with pytest.raises(UnexplainedError, match=named):
        page([one], [])


def test_noise_and_memory_are_no_losses() -> None:
    fine = [ratio("load", "Lance", 1.9), ratio("peak memory, load", "Lance", 0.5)]
    assert "## Why we lose" not in page([figures("peers", ratios=fine)], [])


def test_the_explanations_that_are_kept_can_be_read() -> None:
    kept = explanations((HOUSE / "conf" / "bench-losses.toml").read_text(encoding="utf-8"))
    assert kept
    assert all(each.what and each.why.strip() and each.closes.strip() for each in kept)


def test_every_pin_is_exact() -> None:
    for needs in pinned(PINS.read_text(encoding="utf-8")).values():
        assert len(needs.versions) == len(needs.packages) + len(needs.jars) > 0


def test_what_failed_is_told_without_places() -> None:
    assert (
        without_places("can not open /a/b/c.jar from https://example.org/x: gone") == "can not open …c.jar from … gone"
    )
