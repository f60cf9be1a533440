"""`__manifest` stays small, and nobody who reads or writes meanwhile notices."""

import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.engine.graph import Graph
from omnigraph.errors import ContentionError, StorageError
from omnigraph.storage import layout
from omnigraph.storage.lance_door import RowsAt, StoredFile, SwapLostError, SwappedRows
from omnigraph.storage.manifest import CLOCK_GRAIN, READER_GRACE, Manifest, Swept
from omnigraph.storage.objects import open_objects
from omnigraph.storage.roots import GraphRoot
from omnigraph.testing.commits import bare_commit, session_of
from omnigraph.testing.places import aged, place
from omnigraph.testing.s3_server import SeaweedServer

SCHEMA = "node Person { name: String @key }"
NOW = timedelta(0)
KEPT = 4


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    return og.init(tmp_path / "g", SCHEMA)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fold, prune and sweep within a few publishes."""
    monkeypatch.setattr("omnigraph.rules.folding.TAIL_ROWS_MAX", 3)
    monkeypatch.setattr("omnigraph.rules.folding.FAN", 3)
    monkeypatch.setattr("omnigraph.storage.manifest.VERSIONS_KEPT", KEPT)
    monkeypatch.setattr("omnigraph.storage.manifest.PRUNE_EVERY_PUBLISHES", 2)


def manifest_of(graph: Graph) -> Manifest:
    return session_of(graph).manifest


def stored(graph: Graph, folder: str, pattern: str) -> list[Path]:
    return sorted((place(graph.root) / folder).glob(pattern))


def data_files(graph: Graph) -> set[str]:
    return {path.name for path in stored(graph, layout.MANIFEST_DATA, "*")}


def named_files(graph: Graph) -> set[str]:
    return set(session_of(graph).publisher.read().at.files)


def age(graph: Graph, by: timedelta) -> None:
    """Make everything in the manifest that old."""
    aged(graph.root, by, layout.MANIFEST)


@pytest.mark.usefixtures("small")
def test_versions_and_transactions_stay_bounded_however_many_publishes_there_are(graph: og.Graph) -> None:
    for number in range(40):
        bare_commit(graph)
        assert len(stored(graph, layout.MANIFEST_VERSIONS, "*.manifest")) <= KEPT + 2, number
        assert len(stored(graph, layout.MANIFEST_TRANSACTIONS, "*.txn")) <= KEPT + 3, number
    assert [c.version for c in og.open(graph.root).log(limit=None)] == list(range(41, 0, -1))


def test_with_the_real_limits_a_hundred_publishes_leave_fewer_than_a_hundred_versions(graph: og.Graph) -> None:
    for _ in range(130):
        bare_commit(graph)
    assert len(stored(graph, layout.MANIFEST_VERSIONS, "*.manifest")) <= 64 + 32
    assert len(stored(graph, layout.MANIFEST_TRANSACTIONS, "*.txn")) <= 64 + 33
    assert og.open(graph.root).refresh().version == 131


@pytest.mark.usefixtures("small")
def test_sweeping_as_we_go_removes_old_files_and_spares_those_readers_may_want(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("omnigraph.storage.manifest.SWEEP_EVERY_PUBLISHES", 4)
    for _ in range(10):
        bare_commit(graph)
    young = data_files(graph)
    assert len(young) > len(named_files(graph)), "nothing is older than the readers' grace yet"
    age(graph, READER_GRACE + timedelta(minutes=1))
    for _ in range(4):
        bare_commit(graph)
    assert not (young - named_files(graph)) & data_files(graph)
    assert [c.version for c in graph.log(limit=None)] == list(range(15, 0, -1))


def test_a_cleanup_leaves_only_what_is_named_and_every_commit_readable(graph: og.Graph) -> None:
    made = [bare_commit(graph) for _ in range(80)]
    age(graph, CLOCK_GRAIN + timedelta(seconds=1))
    before = len(data_files(graph))
    swept = manifest_of(graph).cleanup(NOW)
    assert isinstance(swept, Swept)
    left = data_files(graph)
    fence_and_its_base = 1
    assert left - named_files(graph) == set()
    assert swept.files == before - (len(left) - fence_and_its_base)
    assert swept.files > 50
    assert swept.bytes > 0
    fresh = og.open(graph.root)
    assert [fresh.commit(commit.id) for commit in made] == made
    assert fresh.log(limit=None)[:-1] == made[::-1]


def test_a_cleanup_makes_no_commit_and_a_second_one_finds_nothing(graph: og.Graph) -> None:
    bare_commit(graph)
    age(graph, timedelta(minutes=1))
    manifest_of(graph).cleanup(NOW)
    age(graph, timedelta(minutes=1))
    again = manifest_of(graph).cleanup(NOW)
    assert (again.files, again.versions) == (1, 0), "only the head file that the second fence replaced"
    assert [c.version for c in graph.log()] == [2, 1]


def test_files_younger_than_the_stores_clock_can_tell_are_left(graph: og.Graph) -> None:
    for _ in range(5):
        bare_commit(graph)
    before = data_files(graph)
    swept = manifest_of(graph).cleanup(NOW)
    assert (swept.files, swept.bytes) == (0, 0)
    assert before < data_files(graph)


@pytest.mark.usefixtures("small")
def test_a_reader_that_opened_before_a_cleanup_goes_on_reading(graph: og.Graph) -> None:
    made = [bare_commit(graph) for _ in range(20)]
    reader = og.open(graph.root, read_only=True)
    old = session_of(reader).publisher.read()
    lazy = reader.iter_log()
    newest = next(lazy)
    for _ in range(12):
        bare_commit(graph)
    manifest_of(graph).cleanup()
    manifest = manifest_of(reader)
    found = [manifest.commit(old, commit.id) for commit in made]
    assert [row.commit for row in found if row is not None] == made
    assert [newest.version, *(commit.version for commit in lazy)] == list(range(21, 0, -1))


@pytest.mark.usefixtures("small")
def test_a_reader_whose_files_were_swept_looks_again_and_finds_everything(graph: og.Graph) -> None:
    made = [bare_commit(graph) for _ in range(20)]
    reader = og.open(graph.root, read_only=True)
    lazy = reader.iter_log()
    newest = next(lazy)
    for _ in range(12):
        bare_commit(graph)
    age(graph, timedelta(hours=1))
    assert manifest_of(graph).cleanup(NOW).files > 0
    assert [newest.version, *(commit.version for commit in lazy)] == list(range(21, 0, -1))
    assert [reader.commit(commit.id) for commit in made] == made
    assert reader.snapshot().version == 33


class Paused(SwappedRows):
    """Stops between writing its file and swapping it in, once, to let something else happen."""

    meanwhile: Callable[[], object] | None = None
    tries = 0
    lost = 0

    def swap(self, base: RowsAt, files: Sequence[StoredFile], schema: pa.Schema) -> RowsAt:
        self.tries += 1
        happen, self.meanwhile = self.meanwhile, None
        if happen is not None:
            happen()
        try:
            return super().swap(base, files, schema)
        except SwapLostError:
            self.lost += 1
            raise


def paused(root: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Graph, Paused]:
    with monkeypatch.context() as patched:
        patched.setattr("omnigraph.engine.opening.SwappedRows", Paused)
        graph = og.open(root)
    line: Any = manifest_of(graph)._dataset
    return graph, line


def test_a_publisher_that_staged_its_file_before_a_cleanup_loses_and_tries_again(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, line = paused(graph.root, monkeypatch)

    def clean() -> None:
        age(graph, timedelta(hours=1))
        assert manifest_of(graph).cleanup(NOW).files >= 1, "the staged file of the paused writer is among them"

    line.meanwhile = clean
    with writer.transaction() as tx:
        tx.append("Person", [{"name": "Ann"}])
    assert (line.tries, line.lost) == (2, 1)
    fresh = og.open(graph.root)
    assert (fresh.refresh().id, fresh.refresh().version) == (tx.receipt.commit, 2)
    assert fresh.snapshot().read("Person").column("id").to_pylist() == ["Ann"]


@pytest.mark.usefixtures("small")
def test_a_publisher_that_slept_through_many_publishes_and_a_cleanup_still_lands_once(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, line = paused(graph.root, monkeypatch)

    def much_happens() -> None:
        for _ in range(3 * KEPT):
            bare_commit(graph)
        age(graph, timedelta(hours=1))
        manifest_of(graph).cleanup(NOW)

    line.meanwhile = much_happens
    made = bare_commit(writer)
    assert line.tries == 2
    assert made.version == 3 * KEPT + 2
    assert [c.version for c in og.open(graph.root).log(limit=None)] == list(range(made.version, 0, -1))


def test_a_cleanup_that_loses_its_fence_tries_again(graph: og.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    cleaner, line = paused(graph.root, monkeypatch)
    line.meanwhile = lambda: bare_commit(graph)
    manifest_of(cleaner).cleanup(NOW)
    assert (line.tries, line.lost) == (2, 1)
    assert graph.refresh().version == 2


def test_a_cleanup_that_never_gets_its_fence_says_so_in_an_error_of_ours(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("omnigraph.storage.manifest.FENCE_TRIES_MAX", 3)
    cleaner, line = paused(graph.root, monkeypatch)

    def always() -> None:
        bare_commit(graph)
        line.meanwhile = always

    line.meanwhile = always
    with pytest.raises(ContentionError, match="nothing was cleaned"):
        manifest_of(cleaner).cleanup(NOW)
    assert graph.refresh().version == 4


class NoDeleting:
    """The real store, for an identity that may not delete."""

    def __init__(self, store: Any) -> None:
        self.store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    def delete(self, keys: Sequence[str]) -> None:
        raise StorageError(f"permission denied: {keys[0]}")


def test_a_prune_that_fails_is_a_warning_and_not_the_end_of_the_publish(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("omnigraph.storage.manifest.VERSIONS_KEPT", 1)
    monkeypatch.setattr("omnigraph.storage.manifest.PRUNE_EVERY_PUBLISHES", 3)
    manifest: Any = manifest_of(graph)
    monkeypatch.setattr(manifest, "_objects", NoDeleting(manifest._objects))
    assert [bare_commit(graph).version for _ in range(2)] == [2, 3]
    assert [record.getMessage() for record in caplog.records] == ["old versions of the manifest were left in place"]
    assert og.open(graph.root).refresh().version == 3


@pytest.mark.s3
def test_a_cleanup_on_s3_removes_what_is_not_named_and_keeps_every_commit(
    s3_server: SeaweedServer, s3_root: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("omnigraph.storage.manifest.VERSIONS_KEPT", KEPT)
    monkeypatch.setattr("omnigraph.storage.manifest.CLOCK_GRAIN", timedelta(seconds=1))
    root, options = s3_root(), s3_server.storage_options()
    graph = og.init(root, SCHEMA, storage_options=options)
    made = [bare_commit(graph) for _ in range(10)]
    time.sleep(2.1)  # S3 tells time in whole seconds
    swept = manifest_of(graph).cleanup(NOW)
    assert swept.files >= 10
    assert swept.versions >= 6
    objects = open_objects(GraphRoot.parse(root, options))
    left = {info.key.rsplit("/", 1)[-1] for info in objects.list(layout.MANIFEST_DATA)}
    assert left == named_files(graph)
    fresh = og.open(root, storage_options=options)
    assert fresh.log(limit=None)[:-1] == made[::-1]
    assert bare_commit(fresh).version == 12
