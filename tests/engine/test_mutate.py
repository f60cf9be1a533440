"""Running mutations: what each statement does to which rows, what is refused, and that a query is one commit."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.engine.cli_kit import run
from tests.engine.mutate_kit import counts, done, graph, person, rows

import omnigraph as og
from omnigraph.engine import mutating
from omnigraph.engine.transaction import Transaction
from omnigraph.errors import (
    BranchNotFoundError,
    ConstraintError,
    InvalidDataError,
    InvalidInputError,
    InvalidOptionError,
    MixedMutationError,
    MutationError,
    ReadOnlyError,
    VersionConflictError,
)
from omnigraph.rules import mutation_rows

__all__ = ["graph"]  # a fixture

# -- one commit -----------------------------------------------------------------------------------------


def test_a_query_over_several_types_is_one_commit(graph: og.Graph) -> None:
    text = """
    query add($name: String, $friend: String) {
        insert Person { name: $name, age: 30, seen: now() }
        insert Knows { from: $name, to: $friend }
        insert Note { text: "hi", spot: [0.5, 1.0] }
        update Person set { bio: "new" } where name = $friend
    }
    query other() { delete Person where id is not null }
    """
    result = graph.mutate(text, {"name": "Cy", "friend": "Bo"}, name="add", message="m", actor="ann", user_metadata="u")
    head = graph.refresh()
    assert (result.branch, result.commit, result.version, result.query) == ("main", head.id, 3, "add")
    assert (head.message, head.actor, head.user_metadata) == ("m", "ann", "u")
    assert counts(result) == {"node:Person": (1, 1, 0), "edge:Knows": (1, 0, 0), "node:Note": (1, 0, 0)}
    assert json.loads(json.dumps(result.to_dict()))["affected"]["node:Person"]["updated"] == 1
    assert person(graph, "Bo")["bio"] == "new"
    assert [r["text"] for r in rows(graph, "Note").values()].count("hi") == 1


def test_now_is_one_moment_in_the_whole_query(graph: og.Graph) -> None:
    before = datetime.now(UTC)
    done(graph, 'insert Person { name: "Cy", seen: now() } update Person set { seen: now() } where name = "Ann"')
    seen = {person(graph, name)["seen"] for name in ("Cy", "Ann")}
    assert len(seen) == 1
    assert before <= seen.pop() <= datetime.now(UTC)


@pytest.mark.parametrize(
    "statements",
    [
        'update Person set { age: 1 } where name = "nobody"',
        'update Person set { age: 41 } where name = "Ann"',
        'upsert Person { name: "Ann", age: 41 }',
        'update Person set { age: 1 } where name = "Ann" update Person set { age: 41 } where name = "Ann"',
        "delete Person where age > 100",
        'delete Wrote where role = "author"',
        'update Wrote set { role: "author" } where id is not null',
    ],
)
def test_what_changes_nothing_makes_no_commit(graph: og.Graph, statements: str) -> None:
    head = graph.refresh()
    result = done(graph, statements)
    assert (result.commit, result.version, result.affected) == (None, None, {})
    assert graph.refresh() == head


def test_it_goes_to_the_branch_it_is_told(graph: og.Graph) -> None:
    graph.branches.create("review")
    result = graph.mutate('query q() { insert Person { name: "Cy" } }', branch="review")
    assert result.branch == "review"
    assert ("Cy" in rows(graph, "Person", "review"), "Cy" in rows(graph, "Person")) == (True, False)
    graph.on("review").mutate('query q() { insert Person { name: "Di" } }')
    assert "Di" in rows(graph, "Person", "review")
    with pytest.raises(BranchNotFoundError):
        graph.mutate('query q() { insert Person { name: "Cy" } }', branch="nowhere")


def test_a_read_only_graph_is_not_changed(graph: og.Graph) -> None:
    with pytest.raises(ReadOnlyError):
        og.open(graph.root, read_only=True).mutate("query q() { delete Person where id is not null }")


def test_a_rerun_with_the_same_txn_does_nothing(graph: og.Graph) -> None:
    text = 'query q() { insert Person { name: "Cy" } }'
    first = graph.mutate(text, txn=("app", 1))
    again = graph.mutate(text, txn=("app", 1))
    assert (again.commit, again.receipt.rerun, again.affected) == (first.commit, True, {})
    with pytest.raises(InvalidDataError, match="exists already"):
        graph.mutate(text, txn=("app", 2))


def test_a_rerun_whose_twin_lands_while_it_works_does_nothing(graph: og.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    text = 'query q() { insert Person { name: "Cy" } }'
    answers = iter([False])
    real = mutating._landed_before
    first = graph.mutate(text, txn=("app", 1))
    monkeypatch.setattr(mutating, "_landed_before", lambda *a: next(answers, None) is not False and real(*a))
    again = graph.mutate(text, txn=("app", 1))
    assert (again.commit, again.receipt.rerun) == (first.commit, True)


# -- insert ---------------------------------------------------------------------------------------------


def test_an_insert_derives_or_mints_the_id(graph: og.Graph) -> None:
    done(graph, 'insert Place { city: "Ä", street: "b" } insert Note { text: "t" } insert Note { id: "x", text: "t" }')
    assert rows(graph, "Place") == {'["Ä","b"]': {"city": "Ä", "street": "b", "number": None}}
    fresh = set(rows(graph, "Note")) - {"n1", "n2", "x"}
    assert [len(id) for id in fresh] == [26]


@pytest.mark.parametrize(
    ("statements", "number", "id", "problem"),
    [
        ('insert Person { name: "Ann" }', 1, "Ann", "exists already"),
        ('insert Person { id: "Ann", name: "Ann" }', 1, "Ann", "exists already"),
        ('insert Note { id: "n1", text: "t" }', 1, "n1", "exists already"),
        (
            'insert Person { name: "Cy" }\ninsert Person { name: "Cy" }',
            2,
            "Cy",
            r"added or changed by statement 1 \(line 1\)",
        ),
        ('upsert Person { name: "Ann" }\ninsert Person { name: "Ann" }', 2, "Ann", "already"),
        ('upsert Note { id: "n3", text: "t" }\ninsert Note { id: "n3", text: "t" }', 2, "n3", "already"),
        ('upsert Note { id: "n3" }', 1, "n3", "does not exist, and a new row needs 'text'"),
        ('insert Person { name: "Cy" }\nupsert Wrote { id: "w" }', 2, "w", "needs 'from', 'to'"),
        ('upsert Person { id: "Cy" }', 1, "Cy", "needs 'name'"),
        ('upsert Person { id: "Cy", name: "Di" }', 1, "Cy", "'id' differs from the key"),
        ('insert Note { text: "t" }\ninsert Note { id: "", text: "t" }', 2, "", "an id has 1 to"),
        ('insert Note { id: "n1", text: "t" }\ninsert Person { name: "Ann" }', 1, "n1", "exists already"),
        ('insert Person { name: "Cy" }\ninsert Note { id: "n1", text: "t" }', 2, "n1", "exists already"),
    ],
)
def test_what_can_not_be_done_is_refused_with_its_place(
    graph: og.Graph, statements: str, number: int, id: str, problem: str
) -> None:
    head = graph.refresh()
    with pytest.raises(InvalidDataError, match=problem) as caught:
        done(graph, statements)
    error = caught.value
    assert (error.statement, error.line, error.id) == (number, number, id)
    assert graph.refresh() == head


def test_a_key_that_is_given_in_part_may_not_change_the_row_of_an_id(graph: og.Graph) -> None:
    done(graph, 'insert Place { city: "c", street: "s" }')
    assert counts(done(graph, """upsert Place { id: "[\\"c\\",\\"s\\"]", city: "c", number: 3 }""")) == {
        "node:Place": (0, 1, 0)
    }
    with pytest.raises(InvalidInputError, match="differs from the key"):
        done(graph, """upsert Place { id: "[\\"c\\",\\"s\\"]", city: "d" }""")


# -- upsert ---------------------------------------------------------------------------------------------


def test_an_upsert_keeps_what_is_not_given(graph: og.Graph) -> None:
    result = done(graph, 'upsert Person { name: "Ann", bio: "b" } upsert Person { name: "Cy", age: 1 }')
    assert counts(result) == {"node:Person": (1, 1, 0)}
    assert person(graph, "Ann") | {"seen": None} == {
        "name": "Ann",
        "age": 41,
        "bio": "b",
        "tags": None,
        "face": b"\x00ann",
        "seen": None,
    }
    assert (person(graph, "Cy")["age"], person(graph, "Cy")["bio"]) == (1, None)


def test_an_upsert_sets_null_only_where_it_says_so(graph: og.Graph) -> None:
    done(graph, 'upsert Person { name: "Ann", age: null } upsert Person { name: "Ann", tags: ["a", null] }')
    assert (person(graph, "Ann")["age"], person(graph, "Ann")["tags"]) == (None, ["a", None])


def test_several_upserts_of_one_row_are_one_row(graph: og.Graph) -> None:
    result = done(
        graph,
        'upsert Note { id: "n9", text: "a" } upsert Note { id: "n9", stars: 4 } upsert Note { id: "n9", text: "b" }'
        'upsert Note { id: "n1", text: "z" } upsert Note { id: "n1", weight: -1.5 }',
    )
    assert counts(result) == {"node:Note": (1, 1, 0)}
    assert rows(graph, "Note")["n9"] == {"text": "b", "stars": 4, "spot": None, "weight": None}
    assert rows(graph, "Note")["n1"] == {"text": "z", "stars": 2**32 - 1, "spot": None, "weight": -1.5}


def test_more_named_rows_than_are_followed_at_once(graph: og.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutating, "NAMED_ROWS_AT_ONCE", 3)
    first = " ".join(f'insert Note {{ id: "x{n}", text: "t" }}' for n in range(10))
    assert counts(done(graph, first)) == {"node:Note": (10, 0, 0)}
    second = " ".join(f'upsert Note {{ id: "x{n}", text: "u{n}" }}' for n in range(20))
    assert counts(done(graph, second + ' update Note set { stars: 1 } where text starts_with "u1"')) == {
        "node:Note": (10, 10, 0)
    }
    found = rows(graph, "Note")
    assert [found[f"x{n}"]["stars"] for n in range(20)] == [1 if str(n).startswith("1") else None for n in range(20)]


# -- update ---------------------------------------------------------------------------------------------


def test_an_update_sees_what_earlier_statements_did(graph: og.Graph) -> None:
    result = done(
        graph,
        """
        insert Person { name: "Cy", age: 1 }
        upsert Person { name: "Bo", age: 1 }
        update Person set { age: 2, tags: ["t"] } where age = 1
        update Person set { age: 3 } where age = 2 and name != "Cy"
        update Person set { bio: "was 41" } where age = 41
        update Person set { age: 7 } where bio = "was 41"
        insert Person { name: "Di", age: 2 }
        """,
    )
    assert counts(result) == {"node:Person": (2, 2, 0)}
    ages = {name: row["age"] for name, row in rows(graph, "Person").items()}
    assert ages == {"Ann": 7, "Bo": 3, "Cy": 2, "Di": 2}
    assert person(graph, "Di")["tags"] is None


def test_an_update_before_an_insert_does_not_touch_it(graph: og.Graph) -> None:
    done(graph, 'update Person set { age: 9 } where id is not null insert Person { name: "Cy" }')
    assert [person(graph, name)["age"] for name in ("Ann", "Bo", "Cy")] == [9, 9, None]


def test_a_named_row_that_no_longer_matches_is_left_alone(graph: og.Graph) -> None:
    done(graph, 'upsert Person { name: "Ann", age: 1 } update Person set { bio: "x" } where age = 41')
    assert (person(graph, "Ann")["age"], person(graph, "Ann")["bio"]) == (1, None)


def test_edges_can_be_updated_ends_included(graph: og.Graph) -> None:
    result = done(graph, 'update Knows set { from: "Bo", to: "Ann", since: null } where from = "Ann"')
    assert counts(result) == {"edge:Knows": (0, 1, 0)}
    assert rows(graph, "Knows") == {"k1": {"src": "Bo", "dst": "Ann", "since": None}}


def test_an_update_keeps_blobs_and_can_set_them(graph: og.Graph) -> None:
    big = b"B" * 100_000
    done(graph, "update Person set { age: 5 } where id is not null")
    assert (person(graph, "Ann")["face"], person(graph, "Bo")["face"]) == (b"\x00ann", None)
    done(graph, "update Person set { face: $b } where age = 5", "$b: Blob", b=big)
    assert {bytes(row["face"]) for row in rows(graph, "Person").values()} == {big}
    done(graph, 'upsert Person { name: "Ann", bio: "kept" }')
    assert person(graph, "Ann")["face"] == big


def test_large_values_are_set_a_few_rows_at_a_time(graph: og.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutation_rows, "SET_BYTES_AT_ONCE", 2_000)
    with graph.transaction() as tx:
        tx.append("Note", [{"id": f"x{n}", "text": "t"} for n in range(50)])
    result = done(graph, 'update Note set { text: $t } where text = "t"', "$t: String", t="y" * 900)
    assert counts(result) == {"node:Note": (0, 50, 0)}


def test_many_rows_are_updated_at_once(graph: og.Graph) -> None:
    with graph.transaction() as tx:
        tx.append("Note", [{"id": f"x{n:05}", "text": str(n % 7), "stars": n} for n in range(20_000)])
    result = done(graph, 'update Note set { weight: 0.5 } where text = "3" and stars < 15000')
    assert counts(result) == {"node:Note": (0, len([n for n in range(15_000) if n % 7 == 3]), 0)}


CONDITIONS = {
    "stars = 4294967295": {"n1"},
    "stars in [4294967295, 1]": {"n1"},
    'stars > 5 or text = "two"': {"n1", "n2"},
    "not stars = 1": {"n1"},
    "stars is null": {"n2", "n3"},
    "spot is null and stars >= 0": {"n1"},
    "spot is not null": {"n3"},
    "weight in [0.0]": {"n3"},
    "not (weight > 0.0 or stars > 5)": set(),
    "not (weight > 0.0)": {"n3"},
    " ".join(["not"] * 60) + ' text = "one"': {"n1"},
    "(" * 30 + 'text = "one"' + ' or id = "x" and id = "n1")' * 30: {"n1"},
    " or ".join([f'id = "n{n}"' for n in range(2, 900)]): {"n2", "n3"},
    " or ".join([f'(id = "n{n}" and not text contains "\'")' for n in range(2, 400)]): {"n2", "n3"},
}


@pytest.mark.parametrize("condition", CONDITIONS, ids=lambda text: text[:40])
@pytest.mark.parametrize("is_pending", [False, True])
def test_a_condition_finds_the_same_rows_whether_committed_or_not(
    graph: og.Graph, condition: str, is_pending: bool
) -> None:
    done(graph, 'insert Note { id: "n3", text: "three", spot: [1, 2], weight: 0 }')
    touch = " ".join(f'upsert Note {{ id: "n{n}" }}' for n in (1, 2, 3)) if is_pending else ""
    done(graph, f'{touch} update Note set {{ text: "hit" }} where {condition}')
    assert {id for id, row in rows(graph, "Note").items() if row["text"] == "hit"} == CONDITIONS[condition]


# -- delete ---------------------------------------------------------------------------------------------


def test_overlapping_deletes_count_each_row_once(graph: og.Graph) -> None:
    result = done(
        graph,
        'delete Note where stars > 1 delete Note where id = "n1" delete Note where not stars = 0 '
        "delete Knows where since is not null",
    )
    assert counts(result) == {"node:Note": (0, 0, 1), "edge:Knows": (0, 0, 1)}
    assert set(rows(graph, "Note")) == {"n2"}


def test_a_null_is_matched_by_neither_a_test_nor_its_opposite(graph: og.Graph) -> None:
    done(graph, "delete Person where age < 100 delete Person where not age < 100")
    assert set(rows(graph, "Person")) == {"Bo"}


def test_deleted_nodes_take_their_edges_along(graph: og.Graph) -> None:
    with graph.transaction() as tx:
        tx.append("Knows", [{"id": "k2", "src": "Bo", "dst": "Bo"}, {"id": "k3", "src": "Bo", "dst": "Ann"}])
    result = done(graph, 'delete Person where name = "Ann" delete Knows where id in ["k1", "nothing"]')
    assert counts(result) == {"node:Person": (0, 0, 1), "edge:Knows": (0, 0, 2)}
    assert set(rows(graph, "Knows")) == {"k2"}


# -- races ----------------------------------------------------------------------------------------------


def disturbed_once(monkeypatch: pytest.MonkeyPatch, graph: og.Graph, statement: str) -> None:
    """Let someone else write right before the next mutation publishes."""
    other = og.open(graph.root)
    real = Transaction._publish
    state = {"left": 1}

    def publish(self: Transaction) -> Any:
        if state["left"]:
            state["left"] = 0
            done(other, statement)
        return real(self)

    monkeypatch.setattr(Transaction, "_publish", publish)


def test_an_update_of_a_row_that_changed_meanwhile_is_a_conflict(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    disturbed_once(monkeypatch, graph, 'update Person set { bio: "theirs" } where name = "Ann"')
    with pytest.raises(VersionConflictError):
        done(graph, 'update Person set { age: 1 } where name = "Ann"')
    assert (person(graph, "Ann")["age"], person(graph, "Ann")["bio"]) == (41, "theirs")


def test_inserts_of_two_at_once_both_land(graph: og.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    disturbed_once(monkeypatch, graph, 'insert Person { name: "Di" }')
    done(graph, 'insert Person { name: "Cy" }')
    assert {"Cy", "Di"} <= set(rows(graph, "Person"))


def test_an_insert_of_a_row_that_came_meanwhile_is_refused(graph: og.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    disturbed_once(monkeypatch, graph, 'insert Person { name: "Cy", bio: "theirs" }')
    with pytest.raises(InvalidInputError):
        done(graph, 'insert Person { name: "Cy" }')
    assert person(graph, "Cy")["bio"] == "theirs"


def test_an_upsert_of_a_row_that_came_meanwhile_changes_it(graph: og.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    disturbed_once(monkeypatch, graph, 'insert Person { name: "Cy", bio: "theirs" }')
    result = done(graph, 'upsert Person { name: "Cy", age: 1 }')
    assert counts(result) == {"node:Person": (0, 1, 0)}
    assert (person(graph, "Cy")["age"], person(graph, "Cy")["bio"]) == (1, "theirs")


# -- what is wrong with the text ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("query q() { insert Persn { name: 1 } }", "T10"),
        ("query q() { insert Person { name: 1 } }", "T3"),
        ("query q($a: I32) { update Person set { age: $a } where id is not null }", "P2"),
        ("query q() {", "S1"),
        ("", "Q1"),
    ],
)
def test_mistakes_come_with_their_place_and_nothing_happens(graph: og.Graph, text: str, rule: str) -> None:
    head = graph.refresh()
    with pytest.raises(MutationError) as caught:
        graph.mutate(text)
    assert (caught.value.rule, caught.value.line) == (rule, 1)
    assert graph.refresh() == head


def test_adding_and_deleting_in_one_query_is_refused(graph: og.Graph) -> None:
    with pytest.raises(MixedMutationError, match="split into separate mutations"):
        done(graph, 'insert Person { name: "Cy" } delete Person where name = "Ann"')


def test_a_text_is_a_text(graph: og.Graph) -> None:
    with pytest.raises(InvalidOptionError, match="a mutation is a text, not a bytes"):
        graph.mutate(b"query q() {}")  # type: ignore[arg-type]  # that is the mistake


# -- constraints ----------------------------------------------------------------------------------------


def test_a_mutation_can_be_trusted_but_not_sorted_out(tmp_path: Path) -> None:
    graph = og.init(tmp_path / "g", "node A { k: String @key  n: I32?  @range(n, 0..9) }\nedge E: A -> A")
    text = 'query q() { insert A { k: "a" n: 99 } insert E { from: "a" to: "nowhere" } }'
    with pytest.raises(ConstraintError):
        graph.mutate(text)
    with pytest.raises(InvalidOptionError, match="applied whole"):
        graph.mutate(text, constraints="quarantine")
    with pytest.raises(InvalidOptionError, match="constraints is 'maybe'"):
        graph.mutate(text, constraints="maybe")
    assert graph.snapshot().count("A") == 0
    graph.mutate(text, constraints="off")
    assert (graph.snapshot().count("A"), graph.snapshot().count("E")) == (1, 1)


def test_the_command_passes_on_how_constraints_are_treated(tmp_path: Path) -> None:
    graph = og.init(tmp_path / "g", "node A { k: String @key }\nedge E: A -> A")
    command = ["mutate", graph.root, "--query", 'query q() { insert E { from: "a" to: "b" } }']
    assert run(*command, expect=5).err
    assert "applied whole" in run(*command, "--constraints", "quarantine", expect=2).err
    run(*command, "--constraints", "off")
    assert graph.snapshot().count("E") == 1
