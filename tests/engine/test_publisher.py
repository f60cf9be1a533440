"""A publish lands exactly once or says truthfully that it did not, whatever storage answers. Lance itself is real."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.engine.changes import AddCommit
from omnigraph.engine.graph import Graph
from omnigraph.engine.opening import create_graph, open_graph
from omnigraph.errors import (
    CommitOutcomeUnknownError,
    ContentionError,
    GraphExistsError,
    StorageError,
    VersionConflictError,
)
from omnigraph.ids import CommitId, Sources
from omnigraph.model.lineage import Commit
from omnigraph.model.tables import Pin
from omnigraph.rules.refs import Draft, branch_named
from omnigraph.storage.lance_door import RowsAt, StoredFile, SwapLostError, SwappedRows, SwapUncertainError
from omnigraph.testing.commits import bare_commit, pins_for, session_of

SCHEMA = "node Person { name: String @key }"
Act = Callable[["Moody", RowsAt, Sequence[StoredFile], pa.Schema], RowsAt]


class Moody(SwappedRows):
    """A real dataset behind a bad line: each swap behaves as the next act says, then all is well again."""

    acts: list[Act]
    landed: list[int]
    late: list[tuple[RowsAt, Sequence[StoredFile], pa.Schema]]
    deaf = False

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.acts, self.landed, self.late = [], [], []

    def latest(self) -> RowsAt:
        if self.deaf:
            raise StorageError("the line is dead")
        return super().latest()

    def swap(self, base: RowsAt, files: Sequence[StoredFile], schema: pa.Schema) -> RowsAt:
        for slow in self.late:
            self.really(*slow)
        self.late.clear()
        act = self.acts.pop(0) if self.acts else really
        return act(self, base, files, schema)

    def really(self, base: RowsAt, files: Sequence[StoredFile], schema: pa.Schema) -> RowsAt:
        at = super().swap(base, files, schema)
        self.landed.append(at.version)
        return at


def really(line: Moody, base: RowsAt, files: Sequence[StoredFile], schema: pa.Schema) -> RowsAt:
    return line.really(base, files, schema)


def answer_is_lost(line: Moody, base: RowsAt, files: Sequence[StoredFile], schema: pa.Schema) -> RowsAt:
    line.really(base, files, schema)
    raise SwapUncertainError("no answer")


def answer_is_lost_for_good(line: Moody, base: RowsAt, files: Sequence[StoredFile], schema: pa.Schema) -> RowsAt:
    line.deaf = True
    return answer_is_lost(line, base, files, schema)


def request_is_lost(line: Moody, base: RowsAt, files: Sequence[StoredFile], schema: pa.Schema) -> RowsAt:
    raise SwapUncertainError("no answer")


def request_is_late(line: Moody, base: RowsAt, files: Sequence[StoredFile], schema: pa.Schema) -> RowsAt:
    line.late.append((base, files, schema))
    raise SwapUncertainError("no answer yet")


def another_wins(line: Moody, base: RowsAt, files: Sequence[StoredFile], schema: pa.Schema) -> RowsAt:
    raise SwapLostError("another took it")


def interrupt(line: Moody, base: RowsAt, files: Sequence[StoredFile], schema: pa.Schema) -> RowsAt:
    raise KeyboardInterrupt


@pytest.fixture
def root(tmp_path: Path) -> Path:
    og.init(tmp_path / "g", SCHEMA)
    return tmp_path / "g"


@pytest.fixture
def moody(root: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Graph, Moody]:
    """A graph opened over a bad line, and the line."""
    monkeypatch.setattr("omnigraph.engine.opening.SwappedRows", Moody)
    graph = og.open(root)
    line: Any = session_of(graph).manifest._dataset
    assert isinstance(line, Moody)
    return graph, line


def versions(root: Path | str) -> list[int]:
    return [commit.version for commit in og.open(root, read_only=True).log(limit=None)]


@pytest.mark.parametrize(
    "acts", [[answer_is_lost], [request_is_lost], [another_wins], [request_is_lost, answer_is_lost]]
)
def test_a_commit_lands_exactly_once_whatever_answers_are_lost(
    moody: tuple[Graph, Moody], root: Path, acts: list[Act]
) -> None:
    graph, line = moody
    line.acts += acts
    made = bare_commit(graph)
    assert line.acts == []
    assert (made.version, versions(root)) == (2, [2, 1])
    assert og.open(root).refresh() == made
    assert bare_commit(graph).parents == (made.id,)


@pytest.mark.parametrize("act", [answer_is_lost, request_is_lost, another_wins])
def test_names_too_are_made_and_removed_exactly_once(moody: tuple[Graph, Moody], act: Act) -> None:
    graph, line = moody
    steps: list[Callable[[], Any]] = [
        lambda: graph.branches.create("a"),
        lambda: graph.branches.rename("a", "b"),
        lambda: graph.tags.create("t", at="b"),
        lambda: graph.tags.delete("t"),
        lambda: graph.branches.delete("b"),
    ]
    for step in steps:
        line.acts.append(act)
        assert step().name
        assert line.acts == []
    assert [branch.name for branch in og.open(graph.root).branches.list()] == ["main"]


def test_a_transaction_whose_answer_is_lost_is_published_once(moody: tuple[Graph, Moody]) -> None:
    graph, line = moody
    line.acts.append(answer_is_lost)
    with graph.transaction() as tx:
        tx.append("Person", [{"name": "Ann"}])
    assert (tx.receipt.version, graph.snapshot().count("Person"), graph.refresh().version) == (2, 1, 2)


def test_a_request_that_arrives_late_is_recognised_as_our_own(moody: tuple[Graph, Moody], root: Path) -> None:
    graph, line = moody
    line.acts += [request_is_late]
    made = bare_commit(graph)
    assert (made.version, versions(root), len(line.landed)) == (2, [2, 1], 1)


def test_a_deletion_that_arrives_late_is_recognised_as_our_own(moody: tuple[Graph, Moody]) -> None:
    graph, line = moody
    graph.branches.create("x")
    line.acts += [request_is_late]
    assert graph.branches.delete("x").name == "x"


def test_an_error_that_says_not_applied_is_true_even_if_an_earlier_attempt_arrives_late(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("omnigraph.engine.opening.SwappedRows", Moody)
    clock = iter([0.0, 1.0])
    sources = Sources(monotonic=lambda: next(clock, 1_000.0), sleep=lambda _: None)
    graph = open_graph(root, storage_options=None, actor=None, read_only=False, sources=sources)
    line: Any = session_of(graph).manifest._dataset
    line.acts += [request_is_late]
    try:
        bare_commit(graph)
    except ContentionError:
        assert versions(root) == [1], "the error said that nothing was applied"


def test_an_answer_lost_for_good_is_an_unknown_outcome_that_names_the_commit(moody: tuple[Graph, Moody]) -> None:
    graph, line = moody
    line.acts.append(answer_is_lost_for_good)
    with pytest.raises(CommitOutcomeUnknownError, match="look for it before trying again") as unknown:
        bare_commit(graph, commit="01ARZ3NDEKTSV4RRFFQ69G5FAV")
    assert unknown.value.subject == "commit 01ARZ3NDEKTSV4RRFFQ69G5FAV"
    assert not unknown.value.retryable
    line.deaf = False
    assert graph.commit("01ARZ3NDEKTSV4RRFFQ69G5FAV").version == 2


def test_a_dead_line_after_a_lost_request_is_an_unknown_outcome_too(
    moody: tuple[Graph, Moody], monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, line = moody

    def dead(_: RowsAt) -> int:
        raise StorageError("the line is dead")

    def and_then_nothing(line: Moody, base: RowsAt, files: Sequence[StoredFile], schema: pa.Schema) -> RowsAt:
        monkeypatch.setattr(RowsAt, "latest_version", property(dead))
        raise SwapUncertainError("no answer")

    line.acts.append(and_then_nothing)
    with pytest.raises(CommitOutcomeUnknownError, match="commit 01ARZ3NDEKTSV4RRFFQ69G5FAV"):
        bare_commit(graph, commit="01ARZ3NDEKTSV4RRFFQ69G5FAV")


def test_a_writer_that_always_loses_gives_up_after_the_deadline_and_not_before(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("omnigraph.engine.opening.SwappedRows", Moody)
    now = [0.0]
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        now[0] += 5.0

    sources = Sources(monotonic=lambda: now[0], sleep=sleep, random=lambda: 1.0)
    graph = open_graph(root, storage_options=None, actor=None, read_only=False, sources=sources)
    line: Any = session_of(graph).manifest._dataset
    line.acts += [another_wins] * 1_000
    with pytest.raises(ContentionError, match="was not applied") as gave_up:
        bare_commit(graph, commit="01ARZ3NDEKTSV4RRFFQ69G5FAV")
    assert gave_up.value.subject == "commit 01ARZ3NDEKTSV4RRFFQ69G5FAV"
    assert gave_up.value.retryable
    assert now[0] == 125.0, "one attempt after the 120 seconds, and no more"
    assert pauses == sorted(pauses)
    assert pauses[-1] == 0.25
    assert versions(root) == [1]


def test_an_interrupt_while_publishing_carries_a_note_that_names_the_commit(moody: tuple[Graph, Moody]) -> None:
    graph, line = moody
    line.acts.append(interrupt)
    with pytest.raises(KeyboardInterrupt) as stopped:
        bare_commit(graph, commit="01ARZ3NDEKTSV4RRFFQ69G5FAV")
    assert any("commit 01ARZ3NDEKTSV4RRFFQ69G5FAV" in note for note in stopped.value.__notes__)
    assert bare_commit(graph).version == 2


# -- freed version numbers ----------------------------------------------------------------------------


@pytest.fixture
def few_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("omnigraph.storage.manifest.VERSIONS_KEPT", 3)
    monkeypatch.setattr("omnigraph.storage.manifest.PRUNE_EVERY_PUBLISHES", 1)


@pytest.mark.usefixtures("few_versions")
def test_a_writer_that_slept_while_its_next_number_was_freed_is_not_believed(
    moody: tuple[Graph, Moody], root: Path
) -> None:
    sleeper, line = moody
    sleeper.refresh()
    awake = og.open(root)
    for _ in range(8):
        bare_commit(awake)
    made = bare_commit(sleeper, stale=True)
    assert line.landed == [2, 10], "the first swap really took the freed number, and was tried again"
    assert (made.version, made.parents) == (10, (awake.log(limit=2)[1].id,))
    assert versions(root) == list(range(10, 0, -1))


@pytest.mark.usefixtures("few_versions")
def test_a_creator_that_slept_while_version_one_was_freed_does_not_think_it_won(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "raced"

    class Sleepy(SwappedRows):
        def create(self, files: Sequence[StoredFile], schema: pa.Schema) -> RowsAt:
            monkeypatch.setattr("omnigraph.engine.opening.SwappedRows", SwappedRows)
            theirs = og.init(root, SCHEMA, actor="awake")
            for _ in range(8):
                bare_commit(theirs)
            return super().create(files, schema)

    monkeypatch.setattr("omnigraph.engine.opening.SwappedRows", Sleepy)
    with pytest.raises(GraphExistsError):
        create_graph(root, SCHEMA, storage_options=None, actor="sleepy", sources=Sources())
    assert versions(root) == list(range(9, 0, -1))
    assert og.open(root).snapshot(version=1).commit.actor == "awake"


@pytest.mark.parametrize("is_dated_back", [False, True], ids=["a new id", "an id among those swept"])
@pytest.mark.parametrize("before", range(3, 12))
def test_a_writer_that_slept_while_files_it_knew_were_swept_looks_again(
    root: Path, monkeypatch: pytest.MonkeyPatch, before: int, is_dated_back: bool
) -> None:
    for name, value in {"rules.folding.TAIL_ROWS_MAX": 3, "rules.folding.FAN": 3}.items():
        monkeypatch.setattr(f"omnigraph.{name}", value)
    monkeypatch.setattr("omnigraph.storage.manifest.CLOCK_GRAIN", timedelta(0))
    sleeper, awake = og.open(root), og.open(root)
    made = [bare_commit(awake) for _ in range(before)]
    sleeper.refresh()
    made += [bare_commit(awake) for _ in range(12)]
    session_of(awake).manifest.cleanup(timedelta(0))
    dated_back = made[0].id[:-1] + ("0" if made[0].id[-1] != "0" else "1")
    last = bare_commit(sleeper, stale=True, commit=dated_back if is_dated_back else None)
    assert last.parents == (made[-1].id,)
    assert versions(root) == list(range(before + 14, 0, -1))


# -- races for one table ------------------------------------------------------------------------------


def strict_commit(graph: Graph, pin: Pin, expected: Pin | None) -> Commit:
    session = session_of(graph)
    reading = session.publisher.read()
    bound = branch_named(reading.state, "main")
    draft = Draft(
        id=CommitId(session.sources.mint()),
        branch="main",
        incarnation=bound.incarnation,
        operation="test",
        schema_hash=graph.refresh().schema_hash,
        pins={pin.table: pin},
        expected={pin.table: expected},
        table_keys={pin.table: "node:Person"},
    )
    return session.publisher.publish(AddCommit(manifest=session.manifest, draft=draft, stamp=session.stamp()))


def test_of_two_strict_writers_of_one_table_exactly_one_wins_and_the_other_has_the_facts(root: Path) -> None:
    handles = [og.open(root), og.open(root)]
    [base] = pins_for(handles[0], 1).values()
    strict_commit(handles[0], base, None)
    for number in range(1, 11):
        together = threading.Barrier(2)
        expected = base

        def contend(who: int, pin: Pin = expected, together: threading.Barrier = together) -> Any:
            moved = Pin(
                table=pin.table,
                version=pin.version + 1,
                lance_version=pin.lance_version + who + 1,
                transaction=f"{pin.version}-{who}",
                rows=1,
            )
            together.wait()
            try:
                return strict_commit(handles[who], moved, pin)
            except VersionConflictError as overtaken:
                return overtaken

        with ThreadPoolExecutor(2) as pool:
            answers = list(pool.map(contend, range(2)))
        [won] = [answer for answer in answers if isinstance(answer, Commit)]
        [lost] = [answer for answer in answers if isinstance(answer, VersionConflictError)]
        assert (lost.table_key, lost.expected, lost.actual) == ("node:Person", number, number + 1)
        base = won.pins[base.table]
    assert versions(root) == list(range(12, 0, -1))
