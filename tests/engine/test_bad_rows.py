"""Rows that can not be taken: a typed error, nothing of them visible, nothing promised, and the next write is fine."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.engine.transaction import Transaction
from omnigraph.errors import InvalidDataError, OmnigraphError, TypeNotFoundError
from omnigraph.testing.places import place

SCHEMA = """
node Person { name: String @key  age: I32?  email: String }
node Note { text: String }
edge Knows: Person -> Person { since: I32?  @key(src, dst) }
"""
VERBS = ("append", "upsert", "overwrite")
HUGE = 20 * 2**20

Bad = Callable[[], Any]


def person(name: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "email": "x", **more}


def columns(**given: Any) -> pa.Table:
    return pa.table({"name": ["a", "b"], "email": ["x", "y"]} | given)


BAD: dict[str, tuple[str, Bad, str]] = {
    "a column the type has not": ("Person", lambda: [person("a", agee=1)], "no column 'agee'.*age"),
    "a column the type has not, in a table": ("Person", lambda: columns(agee=[1, 2]), "no column 'agee'"),
    "a required column left out": ("Person", lambda: [{"name": "a"}], "email is required"),
    "a required column left out of a table": ("Person", lambda: pa.table({"name": ["a"]}), "email is required"),
    "a required value that is null": ("Person", lambda: [person("a"), person("b", email=None)], r"first: row 2"),
    "a required value some rows lack": ("Person", lambda: [person("a"), {"name": "b"}], "email is required"),
    "a number for text": ("Person", lambda: [person("a", email=5)], "email does not fit"),
    "text for a number": ("Person", lambda: [person("a", age="old")], "age does not fit"),
    "text for a number, in a table": ("Person", lambda: columns(age=["1", "x"]), "age does not fit"),
    "a number out of range": ("Person", lambda: [person("a", age=2**31)], "age does not fit"),
    "a number out of range, in a table": ("Person", lambda: columns(age=pa.array([1, 2**40])), "age does not fit"),
    "a fraction for a whole number": ("Person", lambda: [person("a", age=1.5)], "age does not fit"),
    "a list for a single value": ("Person", lambda: [person("a", email=["x"])], "email does not fit"),
    "text that is not UTF-8": ("Person", lambda: columns(email=broken_text()), ""),
    "a key that is null": ("Person", lambda: [person("a"), person(None)], "name"),
    "a key that is null, in a table": ("Person", lambda: columns(name=["a", None]), "name"),
    "a key that is empty": ("Person", lambda: [person("")], "an id has 1 to"),
    "a key of an edge that is null": ("Knows", lambda: [{"src": "a", "dst": None}], "dst"),
    "a key twice": ("Person", lambda: [person("a"), person("b"), person("a", age=2)], "more than once.*'a'"),
    "a key twice, in a table": ("Person", lambda: columns(name=["a", "a"]), "more than once.*'a'"),
    "a key twice, far apart": ("Person", lambda: twice_far_apart(), "more than once.*'p0'"),
    "a key of an edge twice": ("Knows", lambda: [{"src": "a", "dst": "b"}] * 2, "more than once"),
    "a key of twenty million characters": ("Person", lambda: [person("k" * HUGE)], "an id has 1 to"),
    "a type that is not there": ("Persn", lambda: [person("a")], "Person"),
    "no rows but a number": ("Person", lambda: 7, "can not be a int"),
}


def broken_text() -> "pa.Array[Any]":
    offsets = pa.array([0, 2, 3], pa.int32()).buffers()[1]
    assert offsets is not None
    return pa.StringArray.from_buffers(2, offsets, pa.py_buffer(b"\xff\xfea"))


def twice_far_apart() -> pa.RecordBatchReader:
    schema = pa.schema([("name", pa.string()), ("email", pa.string())])

    def batches() -> Iterator[pa.RecordBatch]:
        for number in range(20):
            names = [f"p{number * 1_000 + n}" for n in range(1_000)]
            yield pa.record_batch([names, names], schema=schema)
        yield pa.record_batch([["p0"], ["again"]], schema=schema)

    return pa.RecordBatchReader.from_batches(schema, batches())


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    graph = og.init(tmp_path / "g", SCHEMA)
    with graph.transaction() as tx:
        tx.append("Person", [person("old", age=1)])
        tx.append("Knows", [{"src": "old", "dst": "old"}])
    return graph


def state(graph: og.Graph) -> tuple[str, list[Any], int, int]:
    snapshot = graph.snapshot()
    rows = snapshot.read("Person").to_pylist()
    return graph.refresh().id, rows, snapshot.count("Knows"), snapshot.count("Note")


def check_untouched(graph: og.Graph, before: tuple[str, list[Any], int, int]) -> None:
    """Nothing is visible, nothing is promised, and the handle and the graph are as good as before."""
    assert state(graph) == before
    assert not list((place(graph.root) / "__recovery").glob("*"))
    for handle in (graph, og.open(graph.root)):
        version = handle.refresh().version
        with handle.transaction() as tx:
            tx.upsert("Person", [person("next", age=version)])
        assert tx.receipt.version == version + 1
    assert {row["id"] for row in state(graph)[1]} == {"old", "next"}
    assert graph.recoveries() == []


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("what", BAD)
def test_bad_rows_are_refused_with_a_typed_error_and_leave_nothing(graph: og.Graph, what: str, verb: str) -> None:
    type_, bad, said = BAD[what]
    before = state(graph)
    expected = pytest.raises((InvalidDataError, TypeNotFoundError), match=f"(?s){said}")
    with expected as refused, graph.transaction() as tx:
        tx.append("Note", [{"text": "of the same transaction"}])
        getattr(tx, verb)(type_, bad())
    told = refused.value.to_dict()
    assert (told["kind"], told["retryable"]) in (("INVALID_DATA", False), ("TYPE_NOT_FOUND", False))
    assert len(str(refused.value)) < 2_000, "a message is for people"
    check_untouched(graph, before)


@pytest.mark.parametrize("verb", VERBS)
def test_a_bad_row_after_good_ones_in_an_earlier_call_takes_those_with_it(graph: og.Graph, verb: str) -> None:
    before = state(graph)
    with pytest.raises(InvalidDataError), graph.transaction() as tx:
        getattr(tx, verb)("Person", [person("good")])
        getattr(tx, verb)("Person", [person("good", age="x")])
    check_untouched(graph, before)


@pytest.mark.parametrize("verb", VERBS)
def test_a_key_given_in_two_calls_is_refused_at_the_end(graph: og.Graph, verb: str) -> None:
    before = state(graph)
    with pytest.raises(InvalidDataError, match="more than once") as refused, graph.transaction() as tx:
        getattr(tx, verb)("Person", [person("a"), person("b")])
        getattr(tx, verb)("Person", [person("b"), person("c")])
    assert refused.value.to_dict()["sample"] == ["b"]
    check_untouched(graph, before)


# -- sources that break -------------------------------------------------------------------------------


class SourceBrokeError(Exception):
    pass


def breaking(after: int, error: BaseException) -> pa.RecordBatchReader:
    schema = pa.schema([("name", pa.string()), ("email", pa.string())])

    def batches() -> Iterator[pa.RecordBatch]:
        for number in range(after):
            names = [f"p{number * 5_000 + n}" for n in range(5_000)]
            yield pa.record_batch([names, names], schema=schema)
        raise error

    return pa.RecordBatchReader.from_batches(schema, batches())


def breaking_rows(after: int, error: BaseException) -> Iterator[dict[str, Any]]:
    for number in range(after):
        yield person(f"p{number}")
    raise error


SOURCES: dict[str, Callable[[int, BaseException], Any]] = {"a reader": breaking, "an iterator": breaking_rows}
ERRORS = (SourceBrokeError("broke"), ValueError("broke"), OSError(5, "broke"), KeyboardInterrupt("broke"))


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("verb", VERBS)
def test_what_a_source_raises_half_way_comes_through_and_nothing_is_applied(
    graph: og.Graph, verb: str, source: str, error: BaseException
) -> None:
    before = state(graph)
    # A reader hands its error to Arrow, which keeps ours as a cause or its text; an iterator's comes as it is.
    expected: tuple[type[BaseException], ...] = (type(error), OmnigraphError, OSError, ValueError)
    with pytest.raises(expected, match="broke"), graph.transaction() as tx:
        tx.append("Note", [{"text": "of the same transaction"}])
        getattr(tx, verb)("Person", SOURCES[source](4, error))
    check_untouched(graph, before)


@pytest.mark.parametrize("after", [0, 1, 30])
def test_a_source_may_break_at_once_or_late(graph: og.Graph, after: int) -> None:
    before = state(graph)
    with pytest.raises(Exception, match="broke"), graph.transaction() as tx:
        tx.append("Person", breaking(after, SourceBrokeError("broke")))
    check_untouched(graph, before)


def test_a_transaction_whose_failed_step_was_swallowed_publishes_nothing(graph: og.Graph) -> None:
    before = state(graph)

    def swallow(tx: Transaction) -> None:
        with pytest.raises(InvalidDataError):
            tx.append("Person", [person(None)])

    with pytest.raises(OmnigraphError) as refused, graph.transaction() as tx:
        tx.append("Note", [{"text": "of the same transaction"}])
        swallow(tx)
    assert refused.value.code == "TRANSACTION_STATE"
    check_untouched(graph, before)


# -- large, and good ----------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", VERBS)
def test_a_string_of_twenty_megabytes_is_kept_whole(graph: og.Graph, verb: str) -> None:
    text = "ü" + "x" * HUGE
    with graph.transaction() as tx:
        getattr(tx, verb)("Person", [person("big", email=text), person("small")])
        if verb == "overwrite":
            tx.overwrite("Knows", [])
    rows = {row["id"]: row["email"] for row in graph.snapshot().read("Person").to_pylist()}
    assert rows["big"] == text
    assert rows["small"] == "x"
    assert not list((place(graph.root) / "__recovery").glob("*"))
