"""What branches and tags may be called: a table of both kinds, and the rule as a regular expression."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from omnigraph.errors import InvalidNameError
from omnigraph.ids import Sources
from omnigraph.rules.names import NAME_CHARACTERS_MAX, check_ref_name, nearest

MESSAGE_CHARACTERS_MAX = 400

# The rule of the module's docstring, written a second time and differently.
SEGMENT = r"[A-Za-z0-9](?:[A-Za-z0-9_-]|\.(?!\.))*"
RULE = re.compile(rf"{SEGMENT}(?:/{SEGMENT})*")
ULID = re.compile(r"[0-7][0-9A-HJKMNP-TV-Za-hjkmnp-tv-z]{25}")

ACCEPTED = [
    "main",
    "a",
    "7",
    "feature/x",
    "team/ann/try-2",
    "v1.2.3",
    "a__b",
    "a_b-c.d",
    "lock",
    "a.lock.b",
    "HEAD",
    "x" * NAME_CHARACTERS_MAX,
    "a/" * 99 + "a",
    "01ARZ3NDEKTSV4RRFFQ69G5FA",  # one short of an id
    "01ARZ3NDEKTSV4RRFFQ69G5FAVX",  # one too long
    "01ARZ3NDEKTSV4RRFFQ69G5FAU",  # U is not in the alphabet
    "81ARZ3NDEKTSV4RRFFQ69G5FAV",  # beyond the largest id
    "x/01ARZ3NDEKTSV4RRFFQ69G5FAV",
]

REFUSED = [
    ("", "empty"),
    ("..", "starting each segment"),
    (".", "starting each segment"),
    ("a..b", "'..'"),
    ("a/../b", "starting each segment"),
    ("/", "'/' separates"),
    ("/a", "'/' separates"),
    ("a/", "'/' separates"),
    ("a//b", "'/' separates"),
    (".hidden", "starting each segment"),
    ("a/.hidden", "starting each segment"),
    ("-rf", "starting each segment"),
    ("__manifest", "starting each segment"),
    ("a.", "final '.'"),
    ("a./b", "final '.'"),
    ("x.lock", "'.lock'"),
    ("x.lock/y", "'.lock'"),
    ("it's", "ASCII"),
    ('a"b', "ASCII"),
    ("a`b", "ASCII"),
    ("a b", "ASCII"),
    (" a", "ASCII"),
    ("a ", "ASCII"),
    ("a\\b", "ASCII"),
    ("a\n", "ASCII"),
    ("a\x00b", "ASCII"),
    ("\x1b[31mred", "ASCII"),
    ("a:b", "ASCII"),
    ("a@{1}", "ASCII"),
    ("a%2fb", "ASCII"),
    ("naïve", "ASCII"),
    ("m\u0430in", "ASCII"),  # a Cyrillic letter that looks like an a
    ("\uff41", "ASCII"),
    ("\uff11", "ASCII"),
    ("a\u202eb", "ASCII"),
    ("\ud800", "ASCII"),
    ("x" * (NAME_CHARACTERS_MAX + 1), "201 characters"),
    ("x" * 10_240, "10240 characters"),
    ("01ARZ3NDEKTSV4RRFFQ69G5FAV", "commit id"),
    ("01arz3ndektsv4rrffq69g5fav", "commit id"),
]


@pytest.mark.parametrize("name", ACCEPTED, ids=lambda name: name[:30])
def test_a_name_that_follows_the_rule_is_returned_as_it_is(name: str) -> None:
    assert check_ref_name(name) == name


@pytest.mark.parametrize(("name", "why"), REFUSED, ids=lambda text: ascii(text[:30]))
def test_a_name_that_breaks_the_rule_is_refused_with_the_reason(name: str, why: str) -> None:
    with pytest.raises(InvalidNameError, match=re.escape(why)) as refused:
        check_ref_name(name, "tag")
    assert "can not name a tag" in str(refused.value)
    assert len(str(refused.value)) <= MESSAGE_CHARACTERS_MAX


def allowed(name: str) -> bool:
    """Say what the documentation says."""
    if not RULE.fullmatch(name) or len(name) > NAME_CHARACTERS_MAX or ULID.fullmatch(name):
        return False
    return not any(segment.endswith((".", ".lock")) for segment in name.split("/"))


near_misses = st.text(alphabet="aZ09./_-'\" \\\x00\n\x7fé.lock", max_size=30)
anything = st.text(st.characters(), max_size=300)


@given(anything | near_misses | st.from_regex(RULE, fullmatch=True) | st.from_regex(ULID, fullmatch=True))
@example("a\n")
@example("0" * 26)
def test_any_text_is_accepted_by_the_documented_rule_or_refused_typed_and_printably(name: str) -> None:
    if allowed(name):
        assert check_ref_name(name) == name
        return
    with pytest.raises(InvalidNameError) as refused:
        check_ref_name(name)
    text = str(refused.value)
    assert text.isprintable()
    assert len(text) <= MESSAGE_CHARACTERS_MAX


def test_the_nearest_known_name_is_offered_and_a_far_one_is_not() -> None:
    assert nearest("mian", ["main", "review"]) == " (did you mean 'main'?)"
    assert nearest("zzz", ["main", "review"]) == ""
    assert nearest("x" * 1_000_000, ["main"]) == ""


def test_an_id_minted_just_now_can_not_become_a_name() -> None:
    with pytest.raises(InvalidNameError, match="commit id"):
        check_ref_name(Sources().mint())
