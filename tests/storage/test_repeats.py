"""Counting what is asked about, so that only what comes again is kept."""

from omnigraph.storage.repeats import Repeats


def test_a_thing_is_asked_about_often_when_it_was_asked_about_before_and_then_begins_anew() -> None:
    repeats = Repeats()
    assert [repeats.had("a", 2) for _ in range(7)] == [False, False, True, False, False, True, False]
    assert not repeats.had("b", 2), "others do not count"


def test_what_was_asked_about_longest_ago_is_forgotten_first() -> None:
    repeats = Repeats(most=2)
    for thing in "aba":
        assert not repeats.had(thing, 5)
    assert not repeats.had("c", 5)
    assert len(repeats) == 2
    assert repeats.had("a", 2), "it was asked about after b"
    assert not repeats.had("b", 1)
