"""Constraints that sort rows out: the good ones are written in one commit, the others come back with reasons."""

import gc
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.engine.cli_kit import run
from tests.engine.constraint_kit import CASES, Case, Rows, edge, filled, person, plays_for
from tests.engine.test_constraints import record

import omnigraph as og
from omnigraph.engine import quarantine
from omnigraph.errors import (
    ConstraintError,
    InvalidDataError,
    InvalidOptionError,
    TransactionStateError,
    VersionConflictError,
)
from omnigraph.rules import constraints, row_checks
from omnigraph.testing.places import beside

GOOD = person("Good", mood="good")
"""A row that is always right; it comes with the play that it must have."""


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    return filled(tmp_path / "g")


def reasons(tx: Any, type: str) -> list[tuple[str | None, list[str]]]:
    """The ids of what was rejected, or the name if there is none, each with its reasons."""
    return [(row["id"] or row.get("name"), row["_reasons"]) for row in tx.rejected(type).read_all().to_pylist()]


def names(graph: og.Graph, type: str, column: str = "id") -> set[str]:
    return {str(value) for value in graph.snapshot().read(type).column(column).to_pylist()}


# -- each constraint on each path -----------------------------------------------------------------------


def by_verb(verb: str) -> Callable[[og.Graph, str, Rows], Any]:
    def write(graph: og.Graph, type: str, rows: Rows) -> og.Transaction:
        with graph.transaction(constraints="quarantine") as tx:
            people = [GOOD, *rows] if type == "Person" else [GOOD]
            if verb == "overwrite":
                people = [*graph.snapshot().read("Person").to_pylist(), *people]
                rows = [*graph.snapshot().read(type).to_pylist(), *rows]
            getattr(tx, verb)("Person", people)
            if type == "Plays":
                getattr(tx, verb)(type, [*rows, edge("Good", "red")])
                return tx
            if type != "Person":
                getattr(tx, verb)(type, rows)
            tx.append("Plays", [*plays_for(people, "Person")])
        return tx

    return write


def by_loading(graph: og.Graph, type: str, rows: Rows) -> Any:
    people = [GOOD, *rows] if type == "Person" else [GOOD]
    records = [record("Person", row) for row in people]
    records += [record("Plays", row) for row in plays_for(people, "Person")]
    records += [] if type == "Person" else [record(type, row) for row in rows]
    file = beside(graph.root) / "load.jsonl"
    file.write_text("\n".join(json.dumps(one) for one in records))
    return graph.load(file, constraints="quarantine")


PATHS = {
    "append": by_verb("append"),
    "upsert": by_verb("upsert"),
    "overwrite": by_verb("overwrite"),
    "load": by_loading,
}
SAYS = {"type": "age: I32", "required": "must is required", "key": "id given more than once"}


NEEDED = ("unique, committed", "unique over two columns", "at most")
"""Where an overwrite gives a row again that clashes with a new one: it is left out too, but others need it."""


@pytest.mark.parametrize("name", NEEDED)
def test_an_overwrite_that_leaves_out_what_others_need_fails_as_a_whole(graph: og.Graph, name: str) -> None:
    before = graph.refresh()
    with pytest.raises(ConstraintError, match="rows that were there before"):
        PATHS["overwrite"](graph, CASES[name].type, CASES[name].wrong)
    assert graph.refresh() == before


@pytest.mark.parametrize(
    ("name", "path"), [(name, path) for name in CASES for path in PATHS if path != "overwrite" or name not in NEEDED]
)
def test_what_is_wrong_comes_back_and_the_rest_is_written(graph: og.Graph, name: str, path: str) -> None:
    case = CASES[name]
    before = names(graph, case.type)
    done = PATHS[path](graph, case.type, case.wrong)
    found = [why for _, why in reasons(done, case.type)]
    says = SAYS.get(name, case.says)
    assert found
    assert all(any(text.startswith(says) or says in text for text in why) for why in found)
    assert len(found) == rejected_rows(case, path)
    counts = done.receipt.rejected[f"{'node' if case.type == 'Person' else 'edge'}:{case.type}"]
    assert counts.rows == len(found)
    assert sum(counts.reasons.values()) >= len(found)
    assert graph.refresh().version == 3
    assert "Good" in names(graph, "Person")
    if path != "overwrite" or case.type == "Person":
        kept = names(graph, case.type) - before
        assert len(kept) == (case.type in ("Person", "Plays"))


def rejected_rows(case: Case, path: str) -> int:
    """How many rows a case has that are wrong, each at fault as much as the others."""
    # An overwrite gives the rows that are there again, so those that clash with a new one are given rows too.
    again = path == "overwrite" and case in (CASES["at most one, committed"], CASES["unique on an edge"])
    return len(case.wrong) + again


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("name", CASES)
def test_what_is_right_is_written_whole(graph: og.Graph, name: str, path: str) -> None:
    case = CASES[name]
    done = PATHS[path](graph, case.type, case.right)
    assert done.receipt.rejected == {}
    assert reasons(done, case.type) == []
    assert graph.refresh().version == 3


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.error is ConstraintError])
def test_a_constraint_the_compiler_forgets_sorts_nothing_out(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch, name: str, path: str
) -> None:
    monkeypatch.setattr(constraints, "compile_rules", lambda catalog: ())
    monkeypatch.setattr(row_checks, "_checks", lambda kind: ())
    assert PATHS[path](graph, CASES[name].type, CASES[name].wrong).receipt.rejected == {}


# -- what depends on each other -------------------------------------------------------------------------


def sorting(graph: og.Graph, **given: Rows) -> og.Transaction:
    with graph.transaction(constraints="quarantine") as tx:
        for type, rows in given.items():
            tx.append(type, rows)
    return tx


def test_an_edge_of_a_node_that_is_left_out_is_left_out_too(graph: og.Graph) -> None:
    tx = sorting(
        graph,
        Knows=[edge("Ann", "Bad", id="to bad"), edge("Ann", "Good", id="to good")],
        Person=[GOOD, person("Bad", age=999)],
        Plays=[edge("Good", "red", id="pg"), edge("Bad", "red", id="pbad")],
    )
    assert reasons(tx, "Person") == [("Bad", ["@range(age)"])]
    assert reasons(tx, "Knows") == [("to bad", ["to an existing Person"])]
    assert reasons(tx, "Plays") == [("pbad", ["from an existing Person"])]
    assert names(graph, "Knows") == {"k", "to good"}


def test_a_node_whose_edges_are_left_out_has_too_few_and_goes_and_so_on(graph: og.Graph) -> None:
    tx = sorting(
        graph,
        Person=[person("Cy"), person("Di"), GOOD],
        Plays=[edge("Cy", "nowhere", id="pc"), edge("Di", "red", id="pd"), edge("Good", "red", id="pg")],
        Knows=[edge("Di", "Cy", id="dc"), edge("Good", "Di", id="gd")],
    )
    assert reasons(tx, "Plays") == [("pc", ["to an existing Team"])]
    assert reasons(tx, "Person") == [("Cy", ["@card(1..2) of Plays"])]
    assert reasons(tx, "Knows") == [("dc", ["to an existing Person"])]
    assert tx.receipt.to_dict()["rejected"] == {
        "node:Person": {"rows": 1, "reasons": {"@card(1..2) of Plays": 1}},
        "edge:Plays": {"rows": 1, "reasons": {"to an existing Team": 1}},
        "edge:Knows": {"rows": 1, "reasons": {"to an existing Person": 1}},
    }
    assert names(graph, "Person") == {"Ann", "Bob", "Di", "Good"}


CHAIN = """
node N { k: String @key }
edge Next: N -> N @card(1..1)
"""


def chained(tmp_path: Path, length: int) -> og.Transaction:
    graph = og.init(tmp_path / "chain", CHAIN)
    with graph.transaction(constraints="quarantine") as tx:
        tx.append("N", [{"k": f"n{number}"} for number in range(length)] + [{"k": "self"}])
        tx.append("Next", [edge(f"n{number}", f"n{number + 1}") for number in range(length)] + [edge("self", "self")])
    return tx


def test_a_chain_falls_from_its_end_to_its_start(tmp_path: Path) -> None:
    tx = chained(tmp_path, 20)
    assert tx.receipt.rejected["node:N"].rows == 20
    assert tx.receipt.rejected["edge:Next"].rows == 20
    assert tx.receipt.tables["node:N"].rows_inserted == 1


def test_a_chain_that_is_too_long_makes_everything_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quarantine, "ROUNDS_MAX", 10)
    with pytest.raises(ConstraintError, match="more than 10 steps") as refused:
        chained(tmp_path, 20)
    assert refused.value.to_dict()["violations"]
    assert og.open(str(tmp_path / "chain")).snapshot().count("N") == 0


def test_an_edge_without_an_end_uses_up_neither_a_cardinality_nor_a_unique_value(graph: og.Graph) -> None:
    tx = sorting(graph, Leads=[edge("Bob", "blue", id="good"), edge("Nobody", "blue", id="bad")])
    assert reasons(tx, "Leads") == [("bad", ["from an existing Person"])]
    assert names(graph, "Leads") == {"l", "good"}


def test_a_row_that_would_have_replaced_another_leaves_it_as_it_was(graph: og.Graph) -> None:
    with graph.transaction(constraints="quarantine") as tx:
        # Bob may have the address only if Ann gives it up, and her row is wrong.
        tx.upsert("Person", [person("Ann", email=None, age=-5), person("Bob", email="ann@x", age=8)])
    assert reasons(tx, "Person") == [("Ann", ["@range(age)"]), ("Bob", ["@unique(email)"])]
    assert tx.receipt.commit is None
    assert graph.snapshot().count("Person", "name = 'Bob' AND age = 7") == 1


def test_an_edge_led_away_from_a_node_that_needs_it_stays_where_it_was(graph: og.Graph) -> None:
    with graph.transaction(constraints="quarantine") as tx:
        tx.upsert("Plays", [edge("Bob", "blue", id="pa"), edge("Bob", "blue", id="pb")])
    assert reasons(tx, "Plays") == [("pa", ["@card(1..2)"])]
    assert graph.snapshot().count("Plays", "src = 'Ann'") == 1
    assert graph.snapshot().count("Plays", "dst = 'blue'") == 1


def test_of_rows_with_the_same_id_none_is_written_because_none_is_the_right_one(graph: og.Graph) -> None:
    with graph.transaction(constraints="quarantine") as tx:
        tx.upsert("Team", [{"name": "green"}, {"name": "red"}])
        tx.upsert("Team", [{"name": "green"}])
        tx.append("Team", [{"name": "green"}, {"name": "blue"}, {"name": "pink"}])
    found = sorted(reasons(tx, "Team"))
    assert found == [("blue", ["id exists already"]), *[("green", ["id given more than once"])] * 3]
    assert names(graph, "Team") == {"red", "blue", "pink"}
    assert tx.receipt.tables["node:Team"].rows_inserted == 1


# -- what leaving rows out does not mend ----------------------------------------------------------------


def test_an_overwrite_that_would_leave_committed_edges_hanging_fails_as_a_whole(graph: og.Graph) -> None:
    before = graph.refresh()
    with (
        pytest.raises(ConstraintError, match=r"rows that were there before.*from an existing Person") as refused,
        graph.transaction(constraints="quarantine") as tx,
    ):
        tx.overwrite("Person", [person("Ann", age=-1), person("Bob"), GOOD])
        tx.append("Plays", [edge("Good", "red")])
    assert {v["table_key"] for v in refused.value.to_dict()["violations"]} >= {"edge:Knows"}
    assert graph.refresh() == before
    with pytest.raises(TransactionStateError):
        tx.rejected("Person")


def test_an_overwrite_of_edges_that_leaves_a_committed_node_with_too_few_fails_as_a_whole(graph: og.Graph) -> None:
    with (
        pytest.raises(ConstraintError, match=r"rows that were there before: edge:Plays @card"),
        graph.transaction(constraints="quarantine") as tx,
    ):
        tx.overwrite("Plays", [edge("Ann", "blue"), edge("Bob", "nowhere")])


def test_a_deletion_is_checked_as_ever(graph: og.Graph) -> None:
    with pytest.raises(ConstraintError, match="@card"), graph.transaction(constraints="quarantine") as tx:
        tx.delete("Plays", ids=["pa"])
    with graph.transaction(constraints="quarantine") as tx:
        tx.delete("Knows", ids=["k"])
    assert tx.receipt.rejected == {}
    assert graph.snapshot().count("Knows") == 0


def test_what_is_wrong_with_a_whole_column_is_an_error(graph: og.Graph) -> None:
    wrong: dict[str, pa.Table] = {
        "no column": pa.table({"name": ["Cy"], "must": [True], "agee": [1]}),
        "convert it first": pa.table({"name": ["Cy"], "must": [True], "age": ["1"]}),
        "must is required": pa.table({"name": ["Cy"]}),
    }
    for says, rows in wrong.items():
        with pytest.raises(InvalidDataError, match=says), graph.transaction(constraints="quarantine") as tx:
            tx.append("Person", rows)


def test_a_clash_that_arises_before_the_commit_lands_is_an_error_and_drops_nothing(graph: og.Graph) -> None:
    slow = og.open(graph.root).transaction(constraints="quarantine")
    slow.append("Knows", [edge("Ann", "Bob"), edge("Ann", "Nobody")])
    with graph.transaction() as tx:
        tx.delete("Person", ids=["Bob"])
    with pytest.raises(ConstraintError, match="to an existing Person"):
        slow.__exit__(None, None, None)
    assert graph.snapshot().count("Knows") == 0
    with pytest.raises(TransactionStateError):
        slow.rejected("Knows")


def test_a_strict_upsert_is_still_strict(graph: og.Graph) -> None:
    slow = og.open(graph.root).transaction(constraints="quarantine")
    slow.upsert("Person", [person("Bob", age=8), person("Ann", age=-1)], strict=True)
    with graph.transaction() as tx:
        tx.upsert("Person", [person("Bob", age=9)])
    with pytest.raises(VersionConflictError):
        slow.__exit__(None, None, None)


# -- what comes back ------------------------------------------------------------------------------------


def test_nothing_is_published_if_nothing_is_left(graph: og.Graph) -> None:
    before = graph.refresh()
    tx = sorting(graph, Knows=[edge("Ann", "Nobody", since=1)], Person=[person("1")])
    assert (tx.receipt.commit, tx.receipt.version, dict(tx.receipt.tables)) == (None, None, {})
    assert set(tx.receipt.rejected) == {"edge:Knows", "node:Person"}
    assert graph.refresh() == before


def test_all_that_a_row_breaks_alone_is_told(graph: og.Graph) -> None:
    tx = sorting(graph, Person=[person("1", age=-1, mood="ugly"), {"name": None, "age": "x", "must": 3}])
    told = {row["name"]: set(row["_reasons"]) for row in tx.rejected("Person").read_all().to_pylist()}
    assert told["1"] == {"@check(name)", "@range(age)", "mood: enum(bad, good)"}
    assert {text.split(" is ")[0] for text in told[None]} == {"name", "age: I32: 'x'", "must: Bool: 3"}


def test_what_fits_of_a_row_that_does_not_comes_back_beside_the_reasons(graph: og.Graph) -> None:
    tx = sorting(graph, Person=[person("Cy", age="one", score=0.5), person("Di", score="x", agee=1)])
    first, second = tx.rejected("Person").read_all().to_pylist()
    assert (first["name"], first["age"], first["score"], first["must"]) == ("Cy", None, 0.5, True)
    assert (second["name"], second["score"]) == ("Di", None)
    assert first["_reasons"] == ["age: I32: 'one' is not a int32"]


def test_rejected_rows_can_be_asked_for_again_and_outlive_the_transaction(graph: og.Graph) -> None:
    tx = sorting(graph, Knows=[edge("Ann", f"Nobody{number}") for number in range(10)])
    reader = tx.rejected("edge:Knows")
    assert tx.rejected("Knows").read_all().num_rows == 10
    assert reader.schema.names == ["id", "src", "dst", "since", "_reasons"]
    del tx
    gc.collect()
    assert reader.read_all().column("dst").to_pylist() == [f"Nobody{number}" for number in range(10)]


def test_without_quarantine_there_is_nothing_to_come_back(graph: og.Graph) -> None:
    with graph.transaction() as tx:
        tx.append("Knows", [edge("Bob", "Ann")])
    assert tx.rejected("Knows").read_all().num_rows == 0
    with pytest.raises(og.OmnigraphError, match="Know"):
        tx.rejected("Know")


def test_blobs_vectors_and_lists_are_written_or_come_back_as_they_were(tmp_path: Path) -> None:
    made = og.init(
        tmp_path / "b", 'node F { k: String @key  b: Blob?  v: Vector(2)?  l: [String]?  d: Date?  @check(k, "^g") }'
    )
    rows = [
        {"k": name, "b": name.encode(), "v": [1.0, 2.0], "l": ["x", None], "d": None} for name in ("good", "bad", "gut")
    ]
    with made.transaction(constraints="quarantine") as tx:
        tx.upsert("F", [*rows, {"k": "gone", "v": [1.0]}])
    bad, gone = tx.rejected("F").read_all().to_pylist()
    assert {name: bad[name] for name in ("k", "b", "v", "l")} == {key: rows[1][key] for key in ("k", "b", "v", "l")}
    assert (gone["k"], gone["v"]) == ("gone", None)
    assert names(made, "F") == {"good", "gut"}
    assert made.snapshot().entity("F", "good") == rows[0] | {"id": "good"}


def test_a_rerun_rejects_nothing(graph: og.Graph) -> None:
    for is_rerun in (False, True):
        with graph.transaction(constraints="quarantine", txn=("app", 1)) as tx:
            tx.append("Knows", [edge("Bob", "Ann"), edge("Bob", "Nobody")])
        assert tx.receipt.rerun == is_rerun
        assert tx.rejected("Knows").read_all().num_rows == (0 if is_rerun else 1)


def test_rows_staged_elsewhere_can_not_be_sorted_out(graph: og.Graph) -> None:
    with pytest.raises(InvalidOptionError, match="sorted out"), graph.transaction(constraints="quarantine") as tx:
        tx.staged("Knows", "append", [])


def test_many_rows_are_sorted_out_on_disk_and_given_back_in_order(graph: og.Graph) -> None:
    count = 200_000
    ends = ["Bob" if number % 7 else "Nobody" for number in range(count)]
    rows = pa.table({"src": ["Ann"] * count, "dst": ends, "since": pa.array(range(count), pa.int32())})
    with graph.transaction(constraints="quarantine") as tx:
        tx.append("Knows", rows.to_reader(10_000))
    bad = [number for number in range(count) if number < 1900 or number % 7 == 0]
    back = tx.rejected("Knows").read_all()
    assert sorted(row["since"] for row in back.to_pylist()) == bad
    assert graph.snapshot().count("Knows") == 1 + count - len(bad)


# -- loading --------------------------------------------------------------------------------------------


def loaded(graph: og.Graph, name: str, text: str, **more: Any) -> og.LoadResult:
    file = beside(graph.root) / name
    file.write_text(text)
    return graph.load(file, constraints="quarantine", **more)


def test_a_record_that_is_no_row_comes_back_with_its_number(graph: og.Graph) -> None:
    lines = [
        '{"type": "Team", "data": {"name": "green"}}',
        '{"type": "Person", "data": {"name": "Cy", "must": "yes", "age": 3}}',
        '{"edge": "Knows", "from": "Ann", "to": "Bob", "data": {"sinse": 3}}',
        '{"edge": "Knows", "from": "Ann", "to": null}',
        '{"edge": "Knows", "from": "Bob", "to": "Ann", "data": {"id": "new"}}',
        '{"edge": "Knows", "from": "Bob", "to": "Cy"}',
    ]
    done = loaded(graph, "mixed.jsonl", "\n".join(lines))
    ((_, (why,)),) = reasons(done, "Person")
    assert why.startswith("must: Bool: record 2 (line 2): ")
    assert done.rejected("Person").read_all().to_pylist()[0]["age"] == 3
    told = [text for _, why in reasons(done, "Knows") for text in why]
    assert told[0].startswith("a row of Knows: record 3 (line 3): edge:Knows has no property 'sinse'")
    assert told[1].startswith("dst is required: record 4 (line 4): ")
    assert told[2] == "to an existing Person"
    assert done.receipt.rejected["edge:Knows"].rows == 3
    assert done.to_dict()["receipt"]["rejected"]["node:Person"] == {"rows": 1, "reasons": {"must: Bool": 1}}
    assert names(graph, "Team") >= {"green"}
    assert names(graph, "Knows") == {"k", "new"}


def test_a_csv_file_is_sorted_out_too(graph: og.Graph) -> None:
    rows = "".join(f"Ann,Bob,{'x' if number == 2 else 1990 + number}\n" for number in range(5))
    done = loaded(graph, "Knows.csv", f"from,to,since\n{rows}Ann,Nobody,2000\n")
    found = done.rejected("Knows").read_all().to_pylist()
    assert [(row["src"], row["dst"], row["since"]) for row in found] == [("Ann", "Bob", None), ("Ann", "Nobody", 2000)]
    assert found[0]["_reasons"][0].startswith("since: I32: record 3: ")
    assert graph.snapshot().count("Knows") == 5


def test_arrow_columns_are_sorted_out_by_value_and_refused_by_type(graph: og.Graph) -> None:
    rows = pa.table({"src": ["Ann", "Ann"], "dst": ["Bob", "Bob"], "since": [2000, 2**40]})
    done = graph.load(rows, type="Knows", constraints="quarantine")
    ((_, (why,)),) = reasons(done, "Knows")
    assert why.startswith("since: I32: record 2: ")
    with pytest.raises(InvalidDataError, match="convert it first"):
        graph.load(rows.set_column(2, "since", pa.array(["1", "2"])), type="Knows", constraints="quarantine")


@pytest.mark.parametrize("line", ['{"type": "Nothing", "data": {}}', "[1]", '{"type": "Team", "data"', "nonsense"])
def test_what_is_no_record_of_the_graph_ends_the_load(graph: og.Graph, line: str) -> None:
    before = graph.refresh()
    with pytest.raises(InvalidDataError, match="record 2"):
        loaded(graph, "broken.jsonl", '{"type": "Team", "data": {"name": "green"}}\n' + line)
    assert graph.refresh() == before


def test_a_table_all_of_whose_records_are_rejected_is_overwritten_all_the_same(tmp_path: Path) -> None:
    made = og.init(tmp_path / "t", "node T { k: String @key  n: I32? }")
    loaded(made, "T.jsonl", '{"type": "T", "data": {"k": "a"}}')
    done = loaded(made, "T.jsonl", '{"type": "T", "data": {"k": "a", "n": "x"}}', mode="overwrite")
    assert done.receipt.rejected["node:T"].rows == 1
    assert made.snapshot().count("T") == 0


# -- the command ----------------------------------------------------------------------------------------


def test_the_command_writes_what_was_rejected_into_a_file_that_loads_once_it_is_mended(graph: og.Graph) -> None:
    source, target = beside(graph.root) / "Knows.csv", beside(graph.root) / "bad.jsonl"
    source.write_text("src,dst,since\nAnn,Bob,2000\nAnn,Nobody,2001\n")
    command = ["load", graph.root, str(source), "--constraints", "quarantine", "--rejected", str(target)]
    assert "to an existing Person (1)" in run(*command).out
    (line,) = target.read_text().splitlines()
    record = json.loads(line)
    assert record.pop("reasons") == ["to an existing Person"]
    assert (record["edge"], record["from"], record["to"], record["data"]["since"]) == ("Knows", "Ann", "Nobody", 2001)
    target.with_name("mended.jsonl").write_text(json.dumps(record | {"to": "Bob"}))
    assert graph.load(target.with_name("mended.jsonl")).rows == {"edge:Knows": 1}
    before = graph.refresh()
    assert "exists already" in run(*command, expect=4).err
    assert graph.refresh() == before


def test_the_command_takes_a_file_for_rejected_rows_only_where_there_may_be_some(graph: og.Graph) -> None:
    assert "--constraints quarantine" in run("load", graph.root, "-", "--rejected", "x.jsonl", expect=2).err
