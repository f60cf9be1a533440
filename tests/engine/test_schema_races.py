"""A schema change beside a write, a merge, another change and a new branch: schema and data are never apart."""

from collections.abc import Callable
from pathlib import Path
from threading import Barrier, Thread
from typing import Any

import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.engine import evolving
from omnigraph.engine.committer import Committer
from omnigraph.engine.publisher import Publisher
from omnigraph.engine.reshaping import staged_reshape
from omnigraph.errors import BranchConflictError, ConflictError, ConstraintError, OmnigraphError
from omnigraph.storage import turns
from omnigraph.testing.crash_writers import planned

OLD = "node Person { name: String @key  age: I32? }"
WIDE = "node Person { name: String @key  age: I64? }"
RENAMED = 'node Person { name: String @key  years: I32? @rename_from("age") }'
UNIQUE = "node Person { name: String @key  age: I32? @unique }"
FILLED = 'node Person { name: String @key  age: I32?  land: String @backfill("IT") }'


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    made = og.init(tmp_path / "g", OLD)
    with made.transaction() as tx:
        tx.append("Person", [{"name": f"p{number}", "age": number} for number in range(50)])
    return made


def at_once(*acts: Callable[[], object]) -> list[object]:
    """Do things in threads that begin together; return what each said."""
    barrier, said = Barrier(len(acts)), [None] * len(acts)

    def run(number: int, act: Callable[[], object]) -> None:
        barrier.wait()
        try:
            said[number] = act()  # type: ignore[call-overload]
        except OmnigraphError as refused:
            said[number] = refused  # type: ignore[call-overload]

    threads = [Thread(target=run, args=(number, act)) for number, act in enumerate(acts)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return list(said)


def is_whole(graph: og.Graph, branch: str = "main") -> list[dict[str, Any]]:
    """Look at every commit of a branch: its columns are those of its schema, and all values can be read."""
    for commit in graph.log(branch, limit=None):
        snapshot = graph.snapshot(commit=commit.id)
        for kind in snapshot.catalog.table_types:
            names = snapshot.read(kind.name).schema.names
            assert names == ["id", *(["src", "dst"] if kind.kind == "edge" else []), *(p.name for p in kind.properties)]
    return sorted(graph.snapshot(branch).read("Person").to_pylist(), key=lambda row: str(row["id"]))


def append(graph: og.Graph, **more: Any) -> og.Receipt:
    with graph.transaction() as tx:
        tx.append("Person", [{"name": "new", "age": 7, **more}])
    return tx.receipt


@pytest.mark.parametrize("wanted", [WIDE, FILLED, OLD.replace("age: I32?", 'years: I32? @rename_from("age")')])
def test_a_change_and_a_write_race_and_the_write_lands_before_it_or_not_at_all(graph: og.Graph, wanted: str) -> None:
    other = og.open(graph.root)
    changed, written = at_once(lambda: graph.schema.apply(wanted), lambda: append(other))
    assert not isinstance(changed, OmnigraphError), changed
    rows = is_whole(graph)
    assert len(rows) == (51 if isinstance(written, og.Receipt) else 50)
    assert isinstance(written, og.Receipt | ConflictError)
    assert not any("land" in row and row["land"] is None for row in rows), "every row has what the schema asks for"


def test_a_change_is_planned_anew_when_rows_came_meanwhile(graph: og.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    came: list[og.Receipt] = []

    def slowly(*given: Any) -> Any:
        done = staged_reshape(*given)
        if not came:
            came.append(append(og.open(graph.root)))
        return done

    monkeypatch.setattr(evolving, "staged_reshape", slowly)
    done = graph.schema.apply(FILLED)
    assert done.attempts == 2
    assert [row["land"] for row in is_whole(graph)] == ["IT"] * 51


def test_rows_that_came_meanwhile_are_checked_too(graph: og.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    publish = evolving.Evolution._publish
    came: list[og.Receipt] = []

    def late(self: Any, *given: Any) -> Any:
        if not came:
            came.append(append(og.open(graph.root)))  # a second one of age 7, after the head was read
        return publish(self, *given)

    monkeypatch.setattr(evolving.Evolution, "_publish", late)
    with pytest.raises(og.OmnigraphError, match="CONSTRAINT_VIOLATED"):
        graph.schema.apply(OLD.replace("age: I32?", "age: I32? @unique"))
    assert "@unique" not in graph.schema.show()


def test_two_changes_race_and_the_second_does_not_take_the_first_back(graph: og.Graph) -> None:
    other = og.open(graph.root)
    texts = (OLD.replace("age:", "nick: String? age:"), FILLED)
    said = at_once(lambda: graph.schema.apply(texts[0]), lambda: other.schema.apply(texts[1]))
    landed = [each for each in said if not isinstance(each, OmnigraphError)]
    refused = [each for each in said if isinstance(each, OmnigraphError)]
    assert landed and all(isinstance(each, BranchConflictError) for each in refused), said
    rows = is_whole(graph)
    assert len(rows) == 50 and all(row.get("land", "IT") == "IT" for row in rows)
    if refused:  # the one that is there is whole; nothing of the other is
        assert ("nick" in rows[0]) != ("land" in rows[0])
    assert len(graph.log(limit=None)) == 2 + len(landed)


def test_a_change_that_was_planned_under_another_schema_is_refused(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    came: list[Any] = []

    def slowly(*given: Any) -> Any:
        if not came:
            came.append(None)
            og.open(graph.root).schema.apply(OLD.replace("age:", "nick: String? age:"))
        return staged_reshape(*given)

    monkeypatch.setattr(evolving, "staged_reshape", slowly)
    with pytest.raises(BranchConflictError, match="schema"):
        graph.schema.apply(FILLED)
    assert ("nick" in graph.schema.show(), "land" in graph.schema.show()) == (True, False)


def test_the_same_change_by_two_is_one_commit(graph: og.Graph) -> None:
    other = og.open(graph.root)
    said = at_once(lambda: graph.schema.apply(FILLED), lambda: other.schema.apply(FILLED))
    assert sorted(each.applied for each in said) == [False, True]  # type: ignore[attr-defined]
    assert len(graph.log(limit=None)) == 3


def test_a_branch_created_meanwhile_has_one_schema_or_the_other_with_its_data(graph: og.Graph) -> None:
    other = og.open(graph.root)
    at_once(lambda: graph.schema.apply(FILLED), *[lambda n=n: other.branches.create(f"b{n}") for n in range(3)])
    for name in ("b0", "b1", "b2"):
        rows = is_whole(graph, name)
        assert len(rows) == 50 and all(row.get("land", "IT") == "IT" for row in rows)


def test_a_change_and_a_merge_race_and_both_are_whole(graph: og.Graph) -> None:
    graph.branches.create("side")
    with graph.transaction("side") as tx:
        tx.append("Person", [{"name": "x", "age": 3}])
    other = og.open(graph.root)
    changed, merged = at_once(lambda: graph.schema.apply(FILLED), lambda: other.branches.merge("side", "main"))
    assert not isinstance(changed, OmnigraphError), changed
    assert not isinstance(merged, OmnigraphError) or isinstance(merged, ConflictError), merged
    rows = is_whole(graph)
    assert len(rows) == (50 if isinstance(merged, OmnigraphError) else 51)
    if changed.plan.to_hash == graph.refresh().schema_hash:  # type: ignore[attr-defined]
        assert all(row["land"] == "IT" for row in rows)


def test_a_lost_answer_is_found_out(graph: og.Graph) -> None:
    with planned("publish.after_swap=lost@0*1"):
        done = graph.schema.apply(FILLED)
    assert done.commit == graph.refresh().id
    assert len(is_whole(graph)) == 50


# -- one is planned and staged, or sealed, then the other lands, then the first goes on ----------------


def merge(graph: og.Graph) -> og.MergeResult:
    return graph.branches.merge("side", "main")


ACTS: dict[str, Callable[[og.Graph], object]] = {
    "write": append,
    "merge": merge,
    "fill": lambda graph: graph.schema.apply(FILLED),
    "widen": lambda graph: graph.schema.apply(WIDE),
    "rename": lambda graph: graph.schema.apply(RENAMED),
    "constrain": lambda graph: graph.schema.apply(UNIQUE),
    "branch": lambda graph: graph.branches.create("late"),
}
LANDS = {
    ("fill", "write"), ("fill", "merge"), ("fill", "branch"), ("widen", "write"), ("widen", "merge"),
    ("rename", "write"), ("rename", "merge"), ("rename", "branch"), ("merge", "widen"), ("merge", "rename"),
}  # fmt: skip
REFUSED = {
    ("fill", "widen"), ("widen", "fill"), ("rename", "fill"),
    ("write", "fill"), ("write", "widen"), ("write", "rename"),
    ("merge", "fill"), ("write", "constrain"), ("merge", "constrain"), ("constrain", "write"), ("constrain", "merge"),
}  # fmt: skip


def has_happened(graph: og.Graph, act: str) -> bool:
    rows = {row["id"]: row for row in is_whole(graph)}
    names = graph.snapshot().read("Person").schema.names
    match act:
        case "write":
            return "new" in rows
        case "merge":
            return "x" in rows
        case "fill":
            return "land" in names and all(row["land"] == "IT" for row in rows.values())
        case "widen":
            return bool(graph.snapshot().read("Person").schema.field("age").type == pa.int64())
        case "constrain":
            return "@unique" in graph.schema.show()
        case "rename":
            return "years" in names
        case _:
            return "late" in {branch.name for branch in graph.branches.list()}


@pytest.mark.parametrize("door", [(Committer, "commit"), (Publisher, "publish")], ids=["promise", "swap"])
@pytest.mark.parametrize(("first", "second"), sorted(LANDS | REFUSED))
def test_whoever_is_overtaken_by_a_schema_or_overtakes_one_is_whole_or_not_there(
    graph: og.Graph, first: str, second: str, door: tuple[type, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    graph.branches.create("side")
    with graph.transaction("side") as tx:
        tx.append("Person", [{"name": "x", "age": 3}])
    goes_on, came = getattr(*door), list[str]()

    def overtaken(self: object, *given: Any) -> Any:
        if not came:
            came.append(second)
            ACTS[second](og.open(graph.root))
        return goes_on(self, *given)

    monkeypatch.setattr(turns, "WAIT_SECONDS_MAX", 0.01)  # the second does not wait for the first
    monkeypatch.setattr(*door, overtaken)
    said = at_once(lambda: ACTS[first](graph))[0]
    assert came == [second]
    assert has_happened(graph, second), "what landed first is there, and whole"
    if (first, second) in LANDS:
        assert not isinstance(said, OmnigraphError), said
        assert has_happened(graph, first)
    else:
        assert isinstance(said, ConflictError | ConstraintError), said
        assert not has_happened(graph, first)
    if second == "branch":
        assert [*graph.snapshot("late").read("Person").schema.names] == ["id", "name", "age"]
        assert len(is_whole(graph, "late")) == 50
