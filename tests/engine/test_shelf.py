"""What writers of one machine put down for each other saves reading, and is never needed."""

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from tests.engine.crowd_kit import crowd

import omnigraph as og
from omnigraph.engine.lately import learn_ids
from omnigraph.errors import InvalidDataError
from omnigraph.storage import lance_ids, lance_written, staging, turns
from omnigraph.storage.lance_door import RowsAt
from omnigraph.storage.lance_ids import KnownIds

SCHEMA = "node Person { name: String @key }"


@pytest.fixture
def graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> og.Graph:
    monkeypatch.setattr(turns, "WAIT_SECONDS_MAX", 30.0)
    monkeypatch.setattr(turns, "CROWDED_SECONDS", 600.0)
    made = og.init(tmp_path / "g", SCHEMA)
    with made.transaction() as tx:
        tx.append("Person", [{"name": "first"}])
    return made


@pytest.fixture
def files_read(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Note which files of the manifest are read."""
    seen: list[str] = []
    read = RowsAt.read

    def watched(self: RowsAt, file: str, where: str | None = None) -> pa.Table:
        seen.append(file)
        return read(self, file, where)

    monkeypatch.setattr(RowsAt, "read", watched)
    yield seen


def gather(graph: og.Graph, *names: str) -> None:
    """Have writers wait for their turn together."""

    def writing(name: str) -> None:
        gathered.add(name, lambda tx: tx.append("Person", [{"name": name}]))

    with crowd(graph) as gathered:
        for name in names:
            writing(name)
    assert [told for told in gathered.told.values() if isinstance(told, Exception)] == []


def left(graph: og.Graph, thing: str) -> Path:
    """Return the file of something that was put down."""
    return turns._place(graph.root) / thing


def forget_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    """Know no more of ids than another process."""
    fresh = KnownIds()
    for module in (lance_ids, lance_written, staging):
        monkeypatch.setattr(module, "KNOWN_IDS", fresh)


def test_the_newest_state_is_taken_from_whoever_wrote_it(graph: og.Graph, files_read: list[str]) -> None:
    gather(graph, "a", "b", "c")
    newest = og.open(graph.root, read_only=True).snapshot().commit
    other = og.open(graph.root, read_only=True)
    files_read.clear()
    assert other._session.manifest.read().state.branches["main"].head == newest.id
    assert files_read == [], "the copy was enough"
    assert og.open(graph.root).snapshot().count("Person") == 4


@pytest.mark.parametrize("scribble", [b"", b"\n", b"{}", b"\xff\xff\xff\xff"])
def test_a_copy_that_makes_no_sense_is_not_believed(graph: og.Graph, files_read: list[str], scribble: bytes) -> None:
    gather(graph, "a", "b")
    copy = left(graph, "head")
    state = copy.read_bytes().partition(b"\n")[0]
    copy.write_bytes(state + b"\n" + scribble)
    files_read.clear()
    assert og.open(graph.root).snapshot().count("Person") == 3
    assert state.decode() in files_read


def test_a_copy_of_another_state_or_another_table_is_not_believed(graph: og.Graph, files_read: list[str]) -> None:
    gather(graph, "a", "b")
    copy = left(graph, "head")
    state, _, data = copy.read_bytes().partition(b"\n")
    with og.open(graph.root).transaction() as tx:  # a newcomer sees no crowd, and puts nothing down
        tx.append("Person", [{"name": "later"}])
    assert copy.read_bytes().partition(b"\n")[0] == state
    assert og.open(graph.root).snapshot().count("Person") == 4
    newest = graph._session.publisher.read().at.files[0]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, pa.schema({"x": pa.int64()})) as stream:
        stream.write_table(pa.table({"x": [1]}))
    copy.write_bytes(newest.encode() + b"\n" + sink.getvalue().to_pybytes())
    files_read.clear()
    assert og.open(graph.root).snapshot().count("Person") == 4
    assert newest in files_read
    assert data


def test_ids_that_others_wrote_are_known_without_reading_their_files(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    gather(graph, "a", "b", "c")
    forget_ids(monkeypatch)
    read: list[int] = []
    ids_of_files = lance_ids._ids_of_files

    def watched(handle: object, fragments: list[object], options: object) -> object:
        read.append(len(fragments))
        return ids_of_files(handle, fragments, options)  # type: ignore[arg-type]

    monkeypatch.setattr(lance_ids, "_ids_of_files", watched)
    learn_ids(graph._session)
    with graph.transaction() as tx:
        tx.append("Person", [{"name": "d"}])
    assert sum(read) <= 1, "only what was written before there was a crowd"
    for name in ("a", "c", "d"):
        with pytest.raises(InvalidDataError, match=name), graph.transaction() as tx:
            tx.append("Person", [{"name": name}])


@pytest.mark.parametrize("scribble", ["", "{", "[]", '{"a": 1}', '{"a": [null, 7]}', '"x"'])
def test_ids_that_make_no_sense_are_not_believed(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch, scribble: str
) -> None:
    gather(graph, "a", "b")
    left(graph, "ids").write_bytes(b"\n" + scribble.encode())
    forget_ids(monkeypatch)
    gather(graph, "c", "d")
    with pytest.raises(InvalidDataError, match="a"), graph.transaction() as tx:
        tx.append("Person", [{"name": "a"}])
    assert graph.snapshot().count("Person") == 5


def test_only_so_many_ids_are_kept_beside_the_turn(graph: og.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("omnigraph.engine.lately.FILES_MAX", 3)
    gather(graph, "a", "b", "c", "d", "e")
    kept = json.loads(left(graph, "ids").read_bytes().partition(b"\n")[2])
    assert len(kept) == 3
    assert {name for ids in kept.values() for name in ids} <= set("abcde")
