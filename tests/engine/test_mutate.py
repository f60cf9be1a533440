"""Running mutations: what each statement does to which rows, what is refused, and that a query is one commit."""

import json
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.engine.cli_kit import run, wide_terminal
from typer.testing import CliRunner

import omnigraph as og
from omnigraph.cli.app import app
from omnigraph.cli.output import Exit
from omnigraph.engine import mutating
from omnigraph.engine.mutating import MutationResult
from omnigraph.engine.transaction import Transaction
from omnigraph.errors import (
    BranchNotFoundError,
    InvalidDataError,
    InvalidInputError,
    InvalidOptionError,
    MixedMutationError,
    MutationError,
    ReadOnlyError,
    VersionConflictError,
)
from omnigraph.rules import mutation_rows

__all__ = ["wide_terminal"]  # a fixture

SCHEMA = """
node Person { name: String @key  age: I32?  bio: String?  tags: [String]?  face: Blob?  seen: DateTime? }
node Note { text: String  stars: U32?  spot: Vector(2)?  weight: F64? }
node Place { city: String  street: String  number: I32?  @key(city, street) }
edge Knows: Person -> Person { since: Date? }
edge Wrote: Person -> Note { role: enum(author, editor)? }
"""


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    graph = og.init(tmp_path / "g.omni", SCHEMA)
    with graph.transaction() as tx:
        tx.append("Person", [{"name": "Ann", "age": 41, "face": b"\x00ann"}, {"name": "Bo", "bio": "old"}])
        tx.append("Note", [{"id": "n1", "text": "one", "stars": 2**32 - 1}, {"id": "n2", "text": "two"}])
        tx.append("Knows", [{"id": "k1", "src": "Ann", "dst": "Bo", "since": date(2020, 1, 1)}])
    return graph


def done(graph: og.Graph, statements: str, /, declared: str = "", **params: Any) -> MutationResult:
    return graph.mutate(f"query q({declared}) {{ {statements} }}", params)


def counts(result: MutationResult) -> dict[str, tuple[int, int, int]]:
    return {key: (n["inserted"], n["updated"], n["deleted"]) for key, n in result.affected.items()}


def rows(graph: og.Graph, type: str, branch: str | None = None) -> dict[str, dict[str, Any]]:
    return {row.pop("id"): row for row in graph.snapshot(branch).read(type).to_pylist()}


def person(graph: og.Graph, name: str) -> dict[str, Any]:
    return rows(graph, "Person")[name]


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


# -- values are data ------------------------------------------------------------------------------------

NASTY = [
    "'",
    '"',
    "''; DROP TABLE Person; --",
    '"; drop',
    "' OR '1'='1",
    "x' OR true --",
    "%",
    "_",
    "\\",
    "\\'",
    "`id`",
    "$name",
    "{}",
    "ünïcödé 🎉 \u202e\u2028",
    "a\nb\tc",
    "\u0000",
    "null",
    "true",
    "//",
    "/* */",
]


@pytest.mark.parametrize("value", NASTY, ids=ascii)
def test_a_value_is_never_more_than_a_value(graph: og.Graph, value: str) -> None:
    before = rows(graph, "Person")
    add = (
        "insert Person { name: $v, bio: $v, tags: [$v] } insert Note { id: $v, text: $v } "
        "insert Knows { id: $v, from: $v, to: $v }"
    )
    done(graph, add, "$v: String", v=value)
    expected = {"name": value, "age": None, "bio": value, "tags": [value], "face": None, "seen": None}
    assert rows(graph, "Person") == before | {value: expected}
    change = (
        "upsert Person { name: $v, age: 1 } update Person set { age: 2 } where bio = $v and name in [$v] "
        "update Note set { stars: 5 } where text contains $v and id = $v "
        "update Knows set { since: null, to: $v } where from = $v and to starts_with $v"
    )
    assert counts(done(graph, change, "$v: String", v=value)) == {"node:Person": (0, 1, 0), "node:Note": (0, 1, 0)}
    assert rows(graph, "Person") == before | {value: expected | {"age": 2}}
    gone = done(
        graph,
        "delete Person where id = $v delete Note where id in $l delete Knows where from = $v",
        "$v: String, $l: [String]",
        v=value,
        l=[value],
    )
    assert counts(gone) == {"node:Person": (0, 0, 1), "node:Note": (0, 0, 1), "edge:Knows": (0, 0, 1)}
    assert rows(graph, "Person") == before
    assert set(rows(graph, "Note")) == {"n1", "n2"}


@pytest.mark.parametrize("value", [v for v in NASTY if "\u0000" not in v], ids=ascii)
def test_a_literal_is_never_more_than_a_value(graph: og.Graph, value: str) -> None:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    done(graph, f'insert Person {{ name: "{escaped}" }} update Person set {{ age: 2 }} where name = "{escaped}"')
    assert person(graph, value)["age"] == 2
    done(graph, f'delete Person where name in ["{escaped}"]')
    assert set(rows(graph, "Person")) == {"Ann", "Bo"}


@pytest.mark.parametrize("name", ["id) OR (1=1", "a'b", "n; drop", "ü", "na me", "name--"])
def test_an_odd_name_is_refused_wherever_it_stands(graph: og.Graph, name: str) -> None:
    head = graph.refresh()
    for text in (
        f"query q() {{ delete Person where {name} = 1 }}",
        f"query q() {{ update Person set {{ {name}: 1 }} where id is not null }}",
        f"query q() {{ insert {name} {{ name: 1 }} }}",
    ):
        with pytest.raises(MutationError):
            graph.mutate(text)
    with pytest.raises(MutationError):
        graph.mutate('query q() { insert Person { name: "Cy" } }', {name: 1})
    assert graph.refresh() == head


def test_properties_may_be_called_like_words_of_any_language(tmp_path: Path) -> None:
    words = ["select", "where", "order", "null", "true", "not", "in", "set", "query", "key", "from", "like", "end"]
    graph = og.init(tmp_path / "w.omni", "node W { " + " ".join(f"{word}: String?" for word in words) + " }")
    for word in words:
        done(graph, f'insert W {{ id: "{word}", {word}: "it" }}')
        assert counts(done(graph, f'update W set {{ {word}: "that" }} where {word} = "it"')) == {"node:W": (0, 1, 0)}
        assert counts(done(graph, f'delete W where {word} starts_with "th"')) == {"node:W": (0, 0, 1)}


# -- on the command line --------------------------------------------------------------------------------

FILE = """
query add($name: String, $age: I32?, $born: DateTime?, $tags: [String]?, $face: Blob?) {
    insert Person { name: $name, age: $age, seen: $born, tags: $tags, face: $face }
}
query drop($names: [String]) { delete Note where id in $names }
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "m.gq"
    path.write_text(FILE, encoding="utf-8")
    return str(path)


def test_the_command_takes_a_file_and_parameters(graph: og.Graph, file: str) -> None:
    given = ["--param", "name=12", "--param", "age=-3", "--param", "born=2024-01-31", "--param", 'tags=["a=b", null]']
    born = ["--param", "born=2024-01-31T10:00:00Z", "--param", "face=base64:AP8="]
    run("mutate", graph.root, file, "--name", "add", *given, expect=Exit.ERROR)
    said = run(
        "mutate", graph.root, file, "--name", "add", *given[:4], *given[6:], *born,
        "--message", "m", "--actor", "bo", "--txn", "cli:1",
    )  # fmt: skip
    head = graph.refresh()
    assert f"add on branch main: version 3 ({head.id})" in said.out
    assert [line.split() for line in said.out.splitlines()][1:] == [
        ["table", "inserted", "updated", "deleted"],
        ["node:Person", "1", "0", "0"],
    ]
    assert (head.message, head.actor) == ("m", "bo")
    row = person(graph, "12")
    assert (row["age"], row["tags"], row["face"]) == (-3, ["a=b", None], b"\x00\xff")
    assert row["seen"] == datetime(2024, 1, 31, 10, tzinfo=UTC)
    again = run("mutate", graph.root, file, "--name", "add", "--param", "name=12", "--txn", "cli:1")
    assert "landed before" in again.out


def test_the_command_takes_text_json_and_a_branch(graph: og.Graph, tmp_path: Path) -> None:
    graph.branches.create("review")
    text = "query q($n: [String]) { delete Note where id in $n }"
    told = run("mutate", graph.root, "--query", text, "--params-json", '{"n": ["n1"]}', "--branch", "review", "--json")
    assert told.json["affected"] == {"node:Note": {"inserted": 0, "updated": 0, "deleted": 1}}
    assert (told.json["branch"], told.json["query"]) == ("review", "q")
    path = tmp_path / "p.json"
    path.write_text('{"n": ["n2"]}')
    assert run("mutate", graph.root, "--query", text, "--params-json", str(path), "--json").json["version"] == 3
    assert "nothing to do" in run("mutate", graph.root, "--query", text, "--params-json", str(path)).out


def test_the_command_reads_standard_input(graph: og.Graph) -> None:
    text = 'query q() { insert Person { name: "Çy" } }'
    assert CliRunner().invoke(app, ["mutate", graph.root, "-"], input=text.encode()).exit_code == Exit.DONE
    assert "Çy" in rows(graph, "Person")


Q = "query q($a: I32, $s: String?) { update Person set { age: $a, bio: $s } where id is not null }"


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ([], Exit.USAGE, "a file or --query"),
        (["f.gq", "--query", Q], Exit.USAGE, "a file or --query"),
        (["no-such.gq"], Exit.USAGE, "can not be read"),
        (["--query", Q, "--param", "a"], Exit.USAGE, "NAME=VALUE"),
        (["--query", Q, "--param", "=1"], Exit.USAGE, "NAME=VALUE"),
        (["--query", Q, "--param", "a=x"], Exit.USAGE, "not JSON"),
        (["--query", Q, "--param", "a=1", "--param", "a=2"], Exit.USAGE, "given twice"),
        (["--query", Q, "--param", "a=1", "--params-json", '{"a": 2}'], Exit.USAGE, "given twice"),
        (["--query", Q, "--params-json", '{"a": 1, "a": 2}'], Exit.USAGE, "occurs twice"),
        (["--query", Q, "--params-json", "{"], Exit.USAGE, "not JSON"),
        (["--query", Q, "--params-json", "nowhere.json"], Exit.USAGE, "can not be read"),
        (["--query", Q, "--param", "a=1.5"], Exit.ERROR, "MUTATION_INVALID"),
        (["--query", Q, "--param", "b=1"], Exit.ERROR, "no parameter 'b'"),
        (["--query", "query q() {"], Exit.ERROR, "S1"),
        (["--query", Q, "--param", "a=1", "--branch", "none"], Exit.NOT_FOUND, "none"),
        (["--query", Q, "--param", "a=1", "--txn", "x"], Exit.USAGE, "APP:VERSION"),
        (["--query", 'query q() { insert Person { name: "Ann" } }'], Exit.ERROR, "exists already"),
    ],
)
def test_the_command_ends_with_the_code_of_what_is_wrong(
    graph: og.Graph, arguments: list[str], code: int, said: str
) -> None:
    head = graph.refresh()
    assert said in run("mutate", graph.root, *arguments, expect=code).err
    assert graph.refresh() == head
