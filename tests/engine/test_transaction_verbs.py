"""Append, upsert, overwrite and delete: what each does, what its receipt says, and what may not go together."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.errors import (
    InvalidDataError,
    InvalidOptionError,
    MixedMutationError,
    OmnigraphError,
    TransactionStateError,
    VersionConflictError,
)
from omnigraph.testing.places import place

SCHEMA = """
node Person { name: String @key  age: I32? }
node Event { what: String }
edge Knows: Person -> Person { since: I32? }
"""

Write = Callable[[og.Transaction], object]


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    """A graph that holds Ann, 41, and Bob, 7."""
    graph = og.init(tmp_path / "g", SCHEMA, actor="ann")
    done(graph, lambda tx: tx.append("Person", aged(Ann=41, Bob=7)))
    return graph


def aged(**ages: int | None) -> list[dict[str, Any]]:
    return [{"name": name, "age": age} for name, age in ages.items()]


def done(graph: og.Graph, *writes: Write, **how: Any) -> og.Receipt:
    with graph.transaction(**how) as tx:
        for write in writes:
            write(tx)
    return tx.receipt


def ages(graph: og.Graph) -> dict[str, int | None]:
    return {row["id"]: row["age"] for row in graph.snapshot().read("Person").to_pylist()}


def counts(receipt: og.Receipt, key: str = "node:Person") -> tuple[int, int, int, int]:
    """Inserted, updated, unchanged, deleted."""
    table = receipt.tables[key]
    return table.rows_inserted, table.rows_updated, table.rows_unchanged, table.rows_deleted


def files(graph: og.Graph) -> list[str]:
    root = place(graph.root)
    return sorted(str(file.relative_to(root)) for file in root.rglob("*") if file.is_file())


# -- each verb ----------------------------------------------------------------------------------------


def test_upsert_replaces_by_id_inserts_what_is_new_and_leaves_what_is_the_same(graph: og.Graph) -> None:
    receipt = done(graph, lambda tx: tx.upsert("Person", aged(Ann=41, Bob=8, Cid=None)))
    assert ages(graph) == {"Ann": 41, "Bob": 8, "Cid": None}
    assert counts(receipt) == (1, 1, 1, 0)
    assert graph.refresh().operation == "upsert"


def test_an_upsert_of_rows_that_are_there_value_for_value_makes_no_commit(graph: og.Graph) -> None:
    before = graph.refresh()
    receipt = done(graph, lambda tx: tx.upsert("Person", aged(Bob=7, Ann=41)))
    assert (receipt.commit, receipt.version, receipt.tables) == (None, None, {})
    assert graph.refresh() == before


def test_overwrite_replaces_all_rows_of_its_type_and_of_no_other(graph: og.Graph) -> None:
    done(graph, lambda tx: tx.append("Event", [{"id": "e", "what": "x"}]))
    receipt = done(graph, lambda tx: tx.overwrite("Person", aged(Bob=1, Cid=2, Dan=3)))
    assert (ages(graph), graph.snapshot().count("Event")) == ({"Bob": 1, "Cid": 2, "Dan": 3}, 1)
    assert counts(receipt) == (3, 0, 0, 2)
    assert set(receipt.tables) == {"node:Person"}
    assert graph.refresh().operation == "overwrite"


def test_overwrite_with_no_rows_empties_a_table_and_old_versions_keep_theirs(graph: og.Graph) -> None:
    receipt = done(graph, lambda tx: tx.overwrite("Person", []))
    assert (ages(graph), counts(receipt)) == ({}, (0, 0, 0, 2))
    assert graph.snapshot(version=2).count("Person") == 2
    assert counts(done(graph, lambda tx: tx.append("Person", aged(Ann=1)))) == (1, 0, 0, 0)


def test_overwriting_a_table_that_never_had_rows_with_none_makes_no_commit(graph: og.Graph) -> None:
    assert done(graph, lambda tx: tx.overwrite("Event", [])).commit is None


@pytest.mark.parametrize(
    "deletion",
    [
        lambda tx: tx.delete("Person", ids=["Bob", "Nobody"]),
        lambda tx: tx.delete("Person", "age < 10"),
        lambda tx: tx.delete("node:Person", where="name = 'Bob'"),
    ],
    ids=["ids", "filter", "key"],
)
def test_delete_takes_rows_out_by_ids_or_by_a_filter(graph: og.Graph, deletion: Write) -> None:
    receipt = done(graph, deletion)
    assert (ages(graph), counts(receipt)) == ({"Ann": 41}, (0, 0, 0, 1))
    assert graph.refresh().operation == "delete"
    assert graph.snapshot(version=2).count("Person") == 2, "what was there before stays readable"


@pytest.mark.parametrize(
    "deletion",
    [
        lambda tx: tx.delete("Person", ids=["Nobody"]),
        lambda tx: tx.delete("Person", ids=[]),
        lambda tx: tx.delete("Person", "age > 100"),
        lambda tx: tx.delete("Event", "what = 'x'"),
    ],
    ids=["no such id", "no ids", "no match", "never written"],
)
def test_a_delete_that_meets_nothing_makes_no_commit(graph: og.Graph, deletion: Write) -> None:
    before = graph.refresh()
    assert done(graph, deletion).commit is None
    assert graph.refresh() == before


def test_deleting_a_node_takes_its_edges_along_each_once(graph: og.Graph) -> None:
    ends = [("Ann", "Bob"), ("Bob", "Ann"), ("Bob", "Bob"), ("Ann", "Ann")]
    done(graph, lambda tx: tx.append("Knows", [{"src": src, "dst": dst} for src, dst in ends]))
    receipt = done(graph, lambda tx: tx.delete("Person", ids=["Bob"]))
    counts = {key: table.rows_deleted for key, table in receipt.tables.items()}
    assert counts == {"node:Person": 1, "edge:Knows": 3}
    assert graph.snapshot().read("Knows", columns=["src", "dst"]).to_pylist() == [{"src": "Ann", "dst": "Ann"}]


@pytest.mark.parametrize("choice", [{}, {"where": "age > 1", "ids": ["Ann"]}])
def test_delete_wants_a_filter_or_ids(graph: og.Graph, choice: dict[str, Any]) -> None:
    with pytest.raises(InvalidOptionError, match="one of them, and not both"):
        done(graph, lambda tx: tx.delete("Person", **choice))
    assert graph.refresh().version == 2


@pytest.mark.parametrize("where", ["agee > 1", "age >", "x" * 70_000])
def test_a_filter_that_can_not_be_understood_deletes_nothing(graph: og.Graph, where: str) -> None:
    with pytest.raises(InvalidOptionError):
        done(graph, lambda tx: tx.delete("Person", where))
    assert (graph.refresh().version, len(ages(graph))) == (2, 2)


def test_a_filter_that_can_not_be_understood_is_refused_on_a_table_without_rows_too(graph: og.Graph) -> None:
    with pytest.raises(InvalidOptionError):
        done(graph, lambda tx: tx.delete("Event", "whaat >"))


def test_one_text_is_not_taken_for_many_ids(graph: og.Graph) -> None:
    done(graph, lambda tx: tx.append("Person", aged(A=1, n=2)))
    with pytest.raises(OmnigraphError):
        done(graph, lambda tx: tx.delete("Person", ids="Ann"))


def test_several_verbs_on_several_tables_are_one_commit(graph: og.Graph) -> None:
    receipt = done(
        graph,
        lambda tx: tx.upsert("Person", aged(Bob=8)),
        lambda tx: tx.append("Event", [{"what": "x"}]),
        lambda tx: tx.overwrite("Knows", [{"src": "Ann", "dst": "Bob"}]),
    )
    assert (receipt.version, graph.refresh().operation) == (3, "transaction")
    assert [counts(receipt, key) for key in ("node:Person", "node:Event", "edge:Knows")] == [
        (0, 1, 0, 0),
        (1, 0, 0, 0),
        (1, 0, 0, 0),
    ]
    assert graph.refresh().metrics == {key: table.to_dict() for key, table in receipt.tables.items()}


# -- several calls on one table -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verb", "after", "counted"),
    [
        ("append", {"Ann": 41, "Bob": 7, "Cid": 1, "Dan": 2}, (2, 0, 0, 0)),
        ("upsert", {"Ann": 41, "Bob": 7, "Cid": 1, "Dan": 2}, (2, 0, 0, 0)),
        ("overwrite", {"Cid": 1, "Dan": 2}, (2, 0, 0, 2)),
    ],
)
def test_rows_given_in_several_calls_are_written_together(
    graph: og.Graph, verb: str, after: dict[str, int], counted: tuple[int, ...]
) -> None:
    receipt = done(graph, *(lambda tx, row=row: getattr(tx, verb)("Person", [row]) for row in aged(Cid=1, Dan=2)))
    assert (ages(graph), counts(receipt), receipt.version) == (after, counted, 3)


def test_upserts_in_several_calls_add_up(graph: og.Graph) -> None:
    receipt = done(
        graph,
        lambda tx: tx.upsert("Person", aged(Ann=42)),
        lambda tx: tx.upsert("Person", aged(Bob=7, Cid=1)),
    )
    assert (ages(graph), counts(receipt)) == ({"Ann": 42, "Bob": 7, "Cid": 1}, (1, 1, 1, 0))


def test_deletes_in_several_calls_add_up(graph: og.Graph) -> None:
    by_ids = done(
        graph, lambda tx: tx.delete("Person", ids=["Ann"]), lambda tx: tx.delete("Person", ids=["Bob", "Ann"])
    )
    assert (ages(graph), counts(by_ids)) == ({}, (0, 0, 0, 2))
    done(graph, lambda tx: tx.append("Person", aged(Ann=1, Bob=2, Cid=3)))
    by_filter = done(graph, lambda tx: tx.delete("Person", "age = 1"), lambda tx: tx.delete("Person", "age >= 3"))
    assert (ages(graph), counts(by_filter)) == ({"Bob": 2}, (0, 0, 0, 2))


@pytest.mark.parametrize("verb", ["append", "upsert", "overwrite"])
@pytest.mark.parametrize("calls", [[["Cid", "Cid"]], [["Cid"], ["Cid"]], [["Ann"], ["Ann"]]])
def test_an_id_given_twice_is_refused_whatever_the_verb(graph: og.Graph, verb: str, calls: list[list[str]]) -> None:
    with pytest.raises(InvalidDataError, match="more than once") as refused:
        done(graph, *(lambda tx, c=c: getattr(tx, verb)("Person", [{"name": n} for n in c]) for c in calls))
    assert (refused.value.count, refused.value.sample) == (1, calls[0][:1])
    assert (graph.refresh().version, ages(graph)) == (2, {"Ann": 41, "Bob": 7})


# -- what may not go together -------------------------------------------------------------------------

BUILD: dict[str, Write] = {
    "append": lambda tx: tx.append("Event", [{"what": "x"}]),
    "upsert": lambda tx: tx.upsert("Event", [{"id": "e", "what": "x"}]),
    "overwrite": lambda tx: tx.overwrite("Event", [{"what": "x"}]),
}


@pytest.mark.parametrize("verb", BUILD)
def test_a_delete_does_not_go_with_anything_else_and_is_refused_before_anything_is_written(
    graph: og.Graph, verb: str
) -> None:
    before = files(graph)
    with pytest.raises(MixedMutationError, match="split into separate mutations"):
        done(graph, lambda tx: tx.delete("Person", ids=["Bob"]), BUILD[verb])
    assert files(graph) == before
    with pytest.raises(MixedMutationError, match="never both"), graph.transaction() as tx:
        BUILD[verb](tx)
        staged = files(graph)
        tx.delete("Person", "age < 10")
    assert files(graph) == staged
    assert (graph.refresh().version, len(ages(graph)), graph.snapshot().count("Event")) == (2, 2, 0)


@pytest.mark.parametrize("verb", BUILD)
def test_a_table_takes_every_verb_alone(graph: og.Graph, verb: str) -> None:
    assert done(graph, BUILD[verb]).version == 3


@pytest.mark.parametrize(
    ("first", "second"), [(a, b) for a in BUILD for b in BUILD if a != b and "overwrite" in (a, b)]
)
def test_an_overwrite_of_a_table_goes_with_no_other_write_to_it(graph: og.Graph, first: str, second: str) -> None:
    with pytest.raises(InvalidOptionError, match=f"already being written by '{first}'"):
        done(graph, BUILD[first], BUILD[second])
    assert graph.refresh().version == 2


def test_new_rows_and_replaced_ones_go_together(graph: og.Graph) -> None:
    receipt = done(
        graph,
        lambda tx: tx.append("Person", [{"name": "New", "age": 1}]),
        lambda tx: tx.upsert("Person", [{"name": "Ann", "age": 99}, {"name": "Newer", "age": 2}]),
    )
    counted = receipt.tables["node:Person"]
    assert (counted.rows_inserted, counted.rows_updated) == (2, 1)
    assert {name: ages(graph)[name] for name in ("New", "Newer", "Ann")} == {"New": 1, "Newer": 2, "Ann": 99}
    with pytest.raises(InvalidDataError, match="exist already"):
        done(graph, lambda tx: tx.append("Person", [{"name": "Newer"}]), lambda tx: tx.upsert("Person", []))
    with pytest.raises(InvalidDataError, match="more than once"):
        done(
            graph,
            lambda tx: tx.append("Person", [{"name": "Twin"}]),
            lambda tx: tx.upsert("Person", [{"name": "Twin", "age": 1}]),
        )


def test_rows_made_from_what_was_read_are_not_put_over_what_was_not(graph: og.Graph) -> None:
    slow = graph.transaction()
    slow.upsert("Person", [{"name": "Ann", "age": 50}], strict=True)
    done(graph, lambda tx: tx.upsert("Person", [{"name": "Bob", "age": 51}]))
    with pytest.raises(VersionConflictError):
        slow.__exit__(None, None, None)
    assert (ages(graph)["Ann"], ages(graph)["Bob"]) != (50, 51)


def test_rows_of_one_table_are_deleted_by_filter_or_by_ids_not_by_both(graph: og.Graph) -> None:
    with pytest.raises(InvalidOptionError, match="not by both at once"):
        done(graph, lambda tx: tx.delete("Person", "age = 7"), lambda tx: tx.delete("Person", ids=["Ann"]))
    assert len(ages(graph)) == 2


# -- rows as a stream ---------------------------------------------------------------------------------


def batches(stop_at: int | None = None) -> Iterator[pa.RecordBatch]:
    for number in range(4):
        if number == stop_at:
            raise ConnectionResetError("the source went away")
        yield pa.record_batch({"name": [f"s{number}-{row}" for row in range(500)]})


def reader(stop_at: int | None = None) -> pa.RecordBatchReader:
    return pa.RecordBatchReader.from_batches(pa.schema([("name", pa.string())]), batches(stop_at))


def dictionaries(stop_at: int | None = None) -> Iterator[dict[str, Any]]:
    for batch in batches(stop_at):
        yield from batch.to_pylist()


@pytest.mark.parametrize("source", [reader, dictionaries])
@pytest.mark.parametrize(("verb", "rows"), [("append", 2_002), ("upsert", 2_002), ("overwrite", 2_000)])
def test_rows_may_come_from_a_reader_or_a_generator(
    graph: og.Graph, verb: str, rows: int, source: Callable[[], Any]
) -> None:
    receipt = done(graph, lambda tx: getattr(tx, verb)("Person", source()))
    assert receipt.tables["node:Person"].rows_inserted == 2_000
    assert graph.snapshot().count("Person") == rows


@pytest.mark.parametrize("source", [reader, dictionaries])
@pytest.mark.parametrize("verb", ["append", "upsert", "overwrite"])
def test_a_source_that_raises_half_way_is_heard_and_nothing_of_it_is_kept(
    graph: og.Graph, verb: str, source: Callable[[int], Any]
) -> None:
    with pytest.raises(ConnectionResetError, match="went away"):
        done(graph, lambda tx: getattr(tx, verb)("Person", source(2)))
    assert (graph.refresh().version, ages(graph)) == (2, {"Ann": 41, "Bob": 7})
    assert counts(done(graph, lambda tx: getattr(tx, verb)("Person", source(9))))[0] == 2_000


# -- after a failure ----------------------------------------------------------------------------------


def test_a_transaction_whose_step_failed_can_not_be_gone_on_with(graph: og.Graph) -> None:
    refused = pytest.raises(TransactionStateError, match="a step of this transaction failed, so nothing was applied")
    with refused, graph.transaction() as tx:
        tx.append("Person", aged(Cid=1))
        with pytest.raises(InvalidDataError):
            tx.append("Person", [{"nmae": "Dan"}])
        with pytest.raises(TransactionStateError, match="begin another one"):
            tx.append("Person", aged(Dan=1))
        with pytest.raises(TransactionStateError, match="begin another one"):
            tx.delete("Person", ids=["Ann"])
    assert graph.refresh().version == 2
    with pytest.raises(TransactionStateError, match="no receipt"):
        _ = tx.receipt


# -- work on a table that moved -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "write",
    [lambda tx: tx.overwrite("Person", aged(Zoe=1)), lambda tx: tx.delete("Person", ids=["Ann"])],
    ids=["overwrite", "delete"],
)
def test_strict_work_on_a_table_that_moved_is_a_conflict_with_the_facts(graph: og.Graph, write: Write) -> None:
    tx = graph.transaction()
    write(tx)
    done(og.open(graph.root), lambda other: other.append("Person", aged(Cid=1)))
    with pytest.raises(VersionConflictError) as lost:
        tx.__exit__(None, None, None)
    race = {"table_key": "node:Person", "expected": 1, "actual": 2}
    assert (lost.value.to_dict()["manifest_conflict"], lost.value.retryable) == (race, True)
    assert (graph.refresh().version, ages(graph)) == (3, {"Ann": 41, "Bob": 7, "Cid": 1})
    assert not list((place(graph.root) / "__recovery").iterdir())


def test_an_upsert_that_was_overtaken_lands_on_the_newer_table_and_counts_what_it_did_there(graph: og.Graph) -> None:
    tx = graph.transaction()
    tx.upsert("Person", aged(Bob=9, Cid=1))
    done(og.open(graph.root), lambda other: other.upsert("Person", aged(Cid=0, Ann=50)))
    tx.__exit__(None, None, None)
    assert ages(graph) == {"Ann": 50, "Bob": 9, "Cid": 1}
    assert (counts(tx.receipt), tx.receipt.version) == ((0, 2, 0, 0), 4)
