"""Counting what is asked about, so that only what comes again is kept."""

from omnigraph.storage.asked import Asked


def test_a_thing_is_asked_about_often_when_it_was_asked_about_before_and_then_begins_anew() -> None:
    asked = Asked()
    assert [asked.before("a", 2) for _ in range(7)] == [False, False, True, False, False, True, False]
    assert not asked.before("b", 2), "others do not count"


def test_what_was_asked_about_longest_ago_is_forgotten_first() -> None:
    asked = Asked(most=2)
    for thing in "aba":
        assert not asked.before(thing, 5)
    assert not asked.before("c", 5)
    assert len(asked) == 2
    assert asked.before("a", 2), "it was asked about after b"
    assert not asked.before("b", 1)
