"""A rerun with the same txn does nothing, names the commit that did, and is no error."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.errors import InvalidOptionError
from omnigraph.testing.places import place

SCHEMA = "node Person { name: String @key  age: I32? }\nnode Event { what: String }\n"

Write = Callable[[og.Transaction], object]


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
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


def files(graph: og.Graph) -> list[str]:
    root = place(graph.root)
    return sorted(str(file.relative_to(root)) for file in root.rglob("*") if file.is_file())


def test_a_rerun_of_a_txn_does_nothing_and_names_the_commit_that_did(graph: og.Graph) -> None:
    first = done(graph, lambda tx: tx.append("Person", aged(Cid=1)), txn=("app", 7))
    before = files(graph)
    for handle, version in ((graph, 7), (og.open(graph.root), 7), (og.open(graph.root), 6)):
        again = done(handle, lambda tx: tx.append("Person", aged(Cid=1)), txn=("app", version))
        assert (again.rerun, again.commit, again.version, again.tables) == (True, first.commit, first.version, {})
    assert (first.rerun, files(graph)) == (False, before)
    assert not done(graph, lambda tx: tx.append("Person", aged(Dan=1)), txn=("app", 8)).rerun
    assert not done(graph, lambda tx: tx.append("Person", aged(Eve=1)), txn=("other", 1)).rerun


@pytest.mark.parametrize("version", [7, 6])
def test_of_two_handles_that_race_with_one_txn_one_lands_and_the_other_is_its_rerun(
    graph: og.Graph, version: int
) -> None:
    late = og.open(graph.root).transaction(txn=("app", version))
    late.append("Event", [{"what": "twice"}])
    first = done(graph, lambda tx: tx.append("Event", [{"what": "twice"}]), txn=("app", 7))
    late.__exit__(None, None, None)
    assert (late.receipt.rerun, late.receipt.commit) == (True, first.commit)
    assert (graph.snapshot().count("Event"), graph.refresh().id) == (1, first.commit)
    assert not list((place(graph.root) / "__recovery").iterdir())


@pytest.mark.parametrize("verb", ["append", "overwrite"])
def test_a_rerun_that_races_with_the_same_rows_is_a_rerun_and_no_error(graph: og.Graph, verb: str) -> None:
    late = og.open(graph.root).transaction(txn=("app", 7))
    getattr(late, verb)("Person", aged(Cid=1))
    first = done(graph, lambda tx: getattr(tx, verb)("Person", aged(Cid=1)), txn=("app", 7))
    late.__exit__(None, None, None)
    assert (late.receipt.rerun, late.receipt.commit) == (True, first.commit)


def test_a_rerun_is_known_after_every_file_of_the_first_run_was_cleaned_up(graph: og.Graph) -> None:
    before = set(files(graph))
    first = done(graph, lambda tx: tx.append("Person", aged(Cid=1)), txn=("app", 7))
    written = set(files(graph)) - before
    # What a cleanup may take once nothing needs it: the rows of the first run, and the version it was sealed as.
    done(graph, lambda tx: tx.overwrite("Person", aged(Zoe=1)))
    gone = [name for name in written if name.startswith("nodes/")]
    assert any("/data/" in name for name in gone)
    for name in gone:
        (place(graph.root) / name).unlink()
    head = graph.refresh().id
    for handle in (graph, og.open(graph.root)):
        again = done(handle, lambda tx: tx.append("Person", aged(Cid=1)), txn=("app", 7))
        assert (again.rerun, again.commit) == (True, first.commit)
    assert graph.refresh().id == head
    assert graph.snapshot().read("Person")["name"].to_pylist() == ["Zoe"]


def test_a_txn_without_effect_is_not_remembered(graph: og.Graph) -> None:
    assert done(graph, txn=("app", 7)).commit is None
    assert not done(graph, lambda tx: tx.append("Person", aged(Cid=1)), txn=("app", 7)).rerun


@pytest.mark.parametrize("txn", [("", 1), ("x" * 201, 1), ("a\nb", 1), ("app", -1), ("app", 2**63), ("app", True)])
def test_a_txn_has_a_printable_name_and_a_version_from_zero(graph: og.Graph, txn: Any) -> None:
    with pytest.raises(InvalidOptionError, match="of a txn"):
        graph.transaction(txn=txn)


def test_user_metadata_is_kept_whole_up_to_its_limit(graph: og.Graph) -> None:
    done(graph, lambda tx: tx.append("Person", aged(Cid=1)), user_metadata='{"run": 1}')
    assert og.open(graph.root).refresh().user_metadata == '{"run": 1}'
    with pytest.raises(InvalidOptionError, match="the user metadata has 16385 characters"):
        graph.transaction(user_metadata="x" * 16_385)
