"""The error tree: drawn as it is, stable codes, facts that survive a process, and a caret where the mistake is."""

import inspect
import pickle
import re
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph import errors
from omnigraph.errors import (
    BranchNotFoundError,
    CommitOutcomeUnknownError,
    ConflictError,
    InvalidInputError,
    MergeConflictsError,
    NotFoundError,
    OmnigraphError,
    SchemaError,
    VersionConflictError,
)

CLASSES = sorted(
    (kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, OmnigraphError)),
    key=lambda kind: kind.__name__,
)
WITH_OWN_CODE = [kind for kind in CLASSES if "code" in vars(kind)]


@dataclass(frozen=True)
class Drawn:
    """One line of the tree in the module's docstring."""

    name: str
    parent: str | None
    code: str | None


def drawn_tree() -> dict[str, Drawn]:
    found: dict[str, Drawn] = {}
    above: list[tuple[int, str]] = []
    for line in (errors.__doc__ or "").splitlines():
        match = re.match(r"^(?P<lead>[ │├└─]*)(?P<name>\w+Error)(?P<rest>.*)$", line)
        if match is None:
            continue
        depth = len(match["lead"])
        while above and above[-1][0] >= depth:
            above.pop()
        code = re.match(r"\s+([A-Z][A-Z_]+\*?)(\s|$)", match["rest"])
        parent = above[-1][1] if above else None
        found[match["name"]] = Drawn(match["name"], parent, code[1] if code else None)
        above.append((depth, match["name"]))
    return found


TREE = drawn_tree()


def test_the_drawing_holds_every_class_and_nothing_else() -> None:
    assert set(TREE) == {kind.__name__ for kind in CLASSES}


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_class_hangs_where_it_is_drawn(kind: type[OmnigraphError]) -> None:
    drawn = TREE[kind.__name__].parent
    assert kind.__bases__[0].__name__ == (drawn or "Exception")


@pytest.mark.parametrize("kind", WITH_OWN_CODE, ids=lambda kind: kind.__name__)
def test_every_code_is_drawn_beside_its_class(kind: type[OmnigraphError]) -> None:
    drawn = TREE[kind.__name__].code
    assert drawn is not None
    assert kind.code == drawn or (drawn.endswith("*") and kind.code.startswith(drawn[:-1]))


def test_no_code_is_drawn_that_no_class_has() -> None:
    own = {kind.__name__ for kind in WITH_OWN_CODE}
    assert {name for name, line in TREE.items() if line.code} <= own


def test_no_two_classes_define_the_same_code() -> None:
    codes = [kind.code for kind in WITH_OWN_CODE]
    assert len(codes) == len(set(codes))


def test_every_class_at_the_end_of_a_twig_has_a_code_of_its_own() -> None:
    twigs = [kind for kind in CLASSES if not kind.__subclasses__()]
    assert twigs
    assert [kind.__name__ for kind in twigs if kind not in WITH_OWN_CODE] == []


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_error_survives_pickling_with_its_facts(kind: type[OmnigraphError]) -> None:
    error = kind("it went wrong", table_key="node:Person", expected=1, actual=None, other=[1, "ü"])
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert (str(again), again.message, again.facts) == (str(error), error.message, error.facts)
    assert again.other == [1, "ü"]
    assert again.actual is None


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_the_text_begins_with_the_code(kind: type[OmnigraphError]) -> None:
    assert str(kind("it went wrong")) == f"[{kind.code}] it went wrong"


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_only_lost_races_call_themselves_retryable(kind: type[OmnigraphError]) -> None:
    # Who merges again without mending anything meets the same conflicts.
    lost_a_race = issubclass(kind, ConflictError) and kind is not MergeConflictsError
    assert kind.retryable is lost_a_race
    assert kind("x").to_dict()["retryable"] is lost_a_race


def test_an_unknown_outcome_is_not_retryable_and_names_what_to_look_for() -> None:
    error = CommitOutcomeUnknownError("look", subject="commit 01J")
    assert not error.retryable
    assert error.subject == "commit 01J"


def test_an_attribute_that_is_no_fact_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nonsense"):
        _ = OmnigraphError("x", fact=1).nonsense


def test_a_version_conflict_shows_the_lost_race_under_one_key() -> None:
    error = VersionConflictError("node:Person is at 8", table_key="node:Person", expected=0, actual=8)
    assert error.to_dict() == {
        "error": "[VERSION_CONFLICT] node:Person is at 8",
        "code": "conflict",
        "kind": "VERSION_CONFLICT",
        "retryable": True,
        "manifest_conflict": {"table_key": "node:Person", "expected": 0, "actual": 8},
    }


def test_a_plain_error_shows_its_facts_but_no_empty_ones() -> None:
    assert BranchNotFoundError("gone", branch="x", hint=None).to_dict() == {
        "error": "[BRANCH_NOT_FOUND] gone",
        "code": "not_found",
        "kind": "BRANCH_NOT_FOUND",
        "retryable": False,
        "branch": "x",
    }


def test_wrong_input_is_a_value_error_and_absence_a_lookup_error() -> None:
    assert all(issubclass(kind, ValueError) for kind in CLASSES if issubclass(kind, InvalidInputError))
    assert all(issubclass(kind, LookupError) for kind in CLASSES if issubclass(kind, NotFoundError))


def test_a_schema_error_shows_the_line_the_caret_and_the_hint() -> None:
    error = SchemaError.at(
        "no such type", line=3, column=10, source_line="  name: Strin", hint="did you mean 'String'?"
    )
    assert str(error).splitlines() == [
        "[SCHEMA_INVALID] line 3, column 10: no such type",
        "      name: Strin",
        "             ^",
        "  hint: did you mean 'String'?",
    ]
    assert (error.line, error.column, error.source_line) == (3, 10, "  name: Strin")
    assert pickle.loads(pickle.dumps(error)).column == 10


@given(before=st.integers(min_value=0, max_value=3_000), after=st.integers(min_value=0, max_value=3_000))
def test_the_caret_stands_under_the_right_character_however_long_the_line(before: int, after: int) -> None:
    line = "." * before + "X" + "." * after
    _, shown, caret = SchemaError.at("wrong", line=1, column=before + 1, source_line=line).message.splitlines()
    assert shown[caret.index("^")] == "X"
    assert len(shown) <= 104


@given(lead=st.text(alphabet="\t\x00\x1b\u200b\u2028 ", max_size=30))
def test_a_line_with_tabs_and_control_characters_keeps_the_caret_in_place(lead: str) -> None:
    error = SchemaError.at("wrong", line=1, column=len(lead) + 1, source_line=lead + "X")
    _, shown, caret = error.message.split("\n")
    assert shown[caret.index("^")] == "X"
    assert shown.isprintable()
