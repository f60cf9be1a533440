import errno
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from obstore.exceptions import GenericError

from omnigraph.errors import ObjectNotFoundError, StorageError
from omnigraph.storage.objects import ObjectStore, ObstoreObjects, open_objects
from omnigraph.storage.roots import GraphRoot
from omnigraph.testing.memory import MemoryObjects
from omnigraph.testing.object_contract import ObjectStoreContract
from omnigraph.testing.s3_server import SeaweedServer

NOBODY = 65_534


class TestMemory(ObjectStoreContract):
    @pytest.fixture
    def store(self) -> ObjectStore:
        return MemoryObjects()

    @pytest.fixture
    def other_store(self) -> ObjectStore:
        return MemoryObjects()


class TestLocal(ObjectStoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> ObjectStore:
        return open_objects(GraphRoot.parse(tmp_path / "graph"))

    @pytest.fixture
    def other_store(self, tmp_path: Path) -> ObjectStore:
        return open_objects(GraphRoot.parse(tmp_path / "graph-two"))


@pytest.mark.s3
class TestS3(ObjectStoreContract):
    @pytest.fixture
    def uri(self, s3_root: Callable[[], str]) -> str:
        return s3_root()

    @pytest.fixture
    def store(self, s3_server: SeaweedServer, uri: str) -> ObjectStore:
        return open_objects(GraphRoot.parse(uri, s3_server.storage_options()))

    @pytest.fixture
    def other_store(self, s3_server: SeaweedServer, uri: str) -> ObjectStore:
        return open_objects(GraphRoot.parse(f"{uri}-two", s3_server.storage_options()))


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "graph"


@pytest.fixture
def local(place: Path) -> ObstoreObjects:
    return open_objects(GraphRoot.parse(place))


def test_reading_a_root_that_does_not_exist_creates_nothing(local: ObstoreObjects, place: Path) -> None:
    assert list(local.list()) == list(local.list("a")) == []
    for read in (local.get, local.head):
        with pytest.raises(ObjectNotFoundError):
            read("a")
    local.delete(["a", "b/c"])
    assert not place.parent.exists()


def test_an_opened_reader_sees_a_root_that_appears_later(local: ObstoreObjects, place: Path) -> None:
    assert list(local.list()) == []
    open_objects(GraphRoot.parse(place)).put("a/b", b"1")
    assert local.get("a/b") == b"1"


def test_the_root_is_created_by_the_first_write(local: ObstoreObjects, place: Path) -> None:
    local.put("a/b", b"1")
    assert (place / "a" / "b").read_bytes() == b"1"


def test_a_root_that_is_a_file_is_a_storage_error(local: ObstoreObjects, place: Path) -> None:
    place.parent.mkdir(parents=True)
    place.write_text("not a folder")
    for use in (lambda: local.put("a", b""), lambda: local.get("a"), lambda: list(local.list())):
        with pytest.raises(StorageError, match="is a file, not a folder"):
            use()


def test_a_write_that_never_finished_is_not_listed_and_does_not_block_the_next(
    local: ObstoreObjects, place: Path
) -> None:
    local.put("a/kept", b"")
    (place / "a" / "torn#1").write_bytes(b"half")
    assert [info.key for info in local.list()] == ["a/kept"]
    local.put_if_absent("a/torn", b"whole")
    assert local.get("a/torn") == b"whole"


def test_a_killed_writer_leaves_the_old_or_the_new_body(local: ObstoreObjects, place: Path) -> None:
    sizes = (3_000_000, 2_000_000)
    local.put("body", b"0" * sizes[0])
    program = (
        "import sys\n"
        "from omnigraph.storage.objects import open_objects; from omnigraph.storage.roots import GraphRoot\n"
        "store = open_objects(GraphRoot.parse(sys.argv[1])); print('ready', flush=True)\n"
        f"while True:\n    store.put('body', b'1' * {sizes[1]}); store.put('body', b'0' * {sizes[0]})\n"
    )
    for pause in (0.0, 0.011, 0.023):
        with subprocess.Popen([sys.executable, "-c", program, str(place)], stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None and writer.stdout.readline() == b"ready\n"
            time.sleep(pause)
            writer.kill()
        body = local.get("body")
        assert len(body) in sizes and len(set(body)) == 1
        assert [info.key for info in local.list()] == ["body"]


def test_puts_deletes_and_listings_do_not_disturb_each_other(local: ObstoreObjects) -> None:
    stop = time.monotonic() + 0.7

    def write(number: int) -> None:
        while time.monotonic() < stop:
            local.put(f"busy/{number % 2}/{number}", b"1")
            local.delete([f"busy/{number % 2}/{number}"])

    failures: list[BaseException] = []

    def guarded(number: int) -> None:
        try:
            write(number) if number else [
                list(local.list("busy")) for _ in iter(lambda: time.monotonic() < stop, False)
            ]
        except BaseException as failure:  # noqa: BLE001
            failures.append(failure)

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_links_out_of_the_root_are_neither_read_nor_written_nor_listed(
    local: ObstoreObjects, place: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "private").write_text("private")
    local.put("own", b"1")
    (place / "folder").symlink_to(outside)
    (place / "file").symlink_to(outside / "private")
    for use in (
        lambda: local.get("folder/private"),
        lambda: local.head("file"),
        lambda: local.put("folder/new", b""),
        lambda: local.put_if_absent("folder/new", b""),
        lambda: local.delete(["folder/private"]),
    ):
        with pytest.raises(StorageError, match="outside the graph root") as refused:
            use()
        assert refused.value.facts["reason"] == "outside"
    assert "folder/private" not in {info.key for info in local.list()}
    assert list(local.list("folder")) == []
    assert [entry.name for entry in outside.iterdir()] == ["private"]


def test_a_root_reached_through_a_link_works(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    linked = open_objects(GraphRoot.parse(tmp_path / "link"))
    linked.put("a/b", b"1")
    assert linked.get("a/b") == b"1"
    assert [info.key for info in linked.list("a")] == ["a/b"]


def test_files_with_names_we_never_write_are_not_ours(local: ObstoreObjects, place: Path) -> None:
    local.put("own", b"1")
    (place / "back\\slash").write_text("")
    assert [info.key for info in local.list()] == ["own"]
    (place / "line\nbreak").write_text("")
    with pytest.raises(StorageError, match="rename or remove it") as refused:
        list(local.list())
    assert refused.value.facts["reason"] == "foreign_name"


@contextmanager
def as_nobody(folder: Path) -> Iterator[None]:
    """Be a user who owns a folder and no more, if we are the superuser, who is never refused."""
    if os.geteuid() != 0:
        yield
        return
    os.chown(folder, NOBODY, NOBODY)
    shared = Path(tempfile.gettempdir())
    for above in folder.parents:
        if above != shared and above.is_relative_to(shared):
            above.chmod(0o755)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_real_permission_problem_says_what_to_do(local: ObstoreObjects, place: Path) -> None:
    local.put("a/b", b"1")
    (place / "a").chmod(0o500)
    try:
        with as_nobody(place / "a"), pytest.raises(StorageError, match="permission denied") as refused:
            local.put("a/c", b"")
    finally:
        (place / "a").chmod(0o700)
    assert not (place / "a" / "c").exists()
    assert refused.value.facts == {"operation": "put", "key": "a/c", "reason": "permission"}


@pytest.mark.parametrize(
    ("number", "reason", "advice"),
    [
        (errno.EACCES, "permission", "permission denied"),
        (errno.EROFS, "permission", "permission denied"),
        (errno.ENOSPC, "disk_full", "free some space"),
        (errno.EDQUOT, "disk_full", "free some space"),
    ],
)
def test_operating_system_refusals_are_recognised_by_their_number(
    local: ObstoreObjects, monkeypatch: pytest.MonkeyPatch, number: int, reason: str, advice: str
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise GenericError(f"Generic LocalFileSystem error: Unable to do it: words (os error {number})")

    monkeypatch.setattr("obstore.put", refuse)
    with pytest.raises(StorageError, match=advice) as refused:
        local.put("a/b", b"1")
    assert refused.value.facts == {"operation": "put", "key": "a/b", "reason": reason}


def test_a_write_that_fails_midway_leaves_nothing_half_written(local: ObstoreObjects, place: Path) -> None:
    # A file size limit fails like a full disk: in the middle of writing the body.
    program = (
        "import resource, signal, sys\n"
        "from omnigraph.storage.objects import open_objects; from omnigraph.storage.roots import GraphRoot\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "open_objects(GraphRoot.parse(sys.argv[1])).put('a/b', b'1' * 100_000)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(place)], capture_output=True, text=True, check=False)
    assert "[STORAGE] could not put" in done.stderr
    assert list(local.list()) == []
    assert list((place / "a").iterdir()) == []
