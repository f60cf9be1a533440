import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

import pytest

from omnigraph.errors import ObjectExistsError, ObjectNotFoundError, StorageError, UnsafeStoreError
from omnigraph.ids import Sources
from omnigraph.observing import Threads
from omnigraph.storage.objects import open_objects
from omnigraph.storage.probe import refuse_unsafe_store
from omnigraph.storage.roots import GraphRoot
from omnigraph.testing.memory import MemoryObjects
from omnigraph.testing.s3_proxy import S3Proxy
from omnigraph.testing.s3_server import SeaweedServer

T = TypeVar("T")


@pytest.fixture
def mint() -> Callable[[], str]:
    return Sources().mint


class Careless(MemoryObjects):
    """Takes a create-only put for a plain one."""

    def put_if_absent(self, key: str, data: bytes) -> None:
        self.put(key, data)


class Lying(MemoryObjects):
    """Refuses the second put and stores it all the same."""

    def put_if_absent(self, key: str, data: bytes) -> None:
        taken = any(True for _ in self.list(key.rpartition("/")[0]))
        self.put(key, data)
        if taken:
            raise ObjectExistsError("exists", key=key)


class CheckThenAct(MemoryObjects):
    """Looks first and puts later, as a store without conditional puts does."""

    def put_if_absent(self, key: str, data: bytes) -> None:
        try:
            self.head(key)
        except ObjectNotFoundError:
            time.sleep(0.001)
            self.put(key, data)
        else:
            raise ObjectExistsError("exists", key=key)


class Forgetful(MemoryObjects):
    """Says yes to the first racer and keeps another body."""

    def put_if_absent(self, key: str, data: bytes) -> None:
        super().put_if_absent(key, data if key.endswith("sequence") else b"another body")


class Ignorant(MemoryObjects):
    """Does not know the request at all."""

    def put_if_absent(self, key: str, data: bytes) -> None:
        raise StorageError("could not put", operation="put", key=key, reason="unsupported")


@pytest.mark.parametrize(
    ("store", "observed"),
    [
        (Careless(), "accepted a second create-only put"),
        (Lying(), "changed the object"),
        (CheckThenAct(), "simultaneous create-only puts"),
        (Forgetful(), "not the one of the put that succeeded"),
        (Ignorant(), "does not know create-only puts"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, MemoryObjects) else "",
)
def test_an_unsafe_store_is_refused_with_a_remedy_and_left_clean(
    store: MemoryObjects, observed: str, mint: Callable[[], str]
) -> None:
    store.put("__probe/of/another", b"kept")
    with pytest.raises(UnsafeStoreError, match="If-None-Match") as refused:
        refuse_unsafe_store(store, mint)
    assert observed in str(refused.value)
    assert [info.key for info in store.list()] == ["__probe/of/another"]


@pytest.mark.timeout(60)
def test_a_race_that_is_lost_early_waits_for_those_that_are_still_being_started(
    mint: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    starters: list[int] = []

    class Hesitant(Threads):
        def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
            if threading.current_thread() is not threading.main_thread():  # a referee, who starts racers
                me = threading.get_ident()
                if me in starters and me != starters[0]:
                    time.sleep(0.05)
                starters.append(me)
            return super().submit(fn, *args, **kwargs)

    monkeypatch.setattr("omnigraph.storage.probe.Threads", Hesitant)
    store = Forgetful()
    with pytest.raises(UnsafeStoreError, match="not the one of the put that succeeded"):
        refuse_unsafe_store(store, mint)
    assert list(store.list()) == []


def test_a_safe_store_passes_and_is_left_clean(mint: Callable[[], str]) -> None:
    store = MemoryObjects()
    refuse_unsafe_store(store, mint)
    assert list(store.list()) == []


def test_two_probes_at_once_do_not_disturb_each_other(mint: Callable[[], str]) -> None:
    store = MemoryObjects()
    threads = [threading.Thread(target=refuse_unsafe_store, args=(store, mint)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert list(store.list()) == []


def test_a_lost_answer_does_not_condemn_a_safe_store(mint: Callable[[], str]) -> None:
    class LosesTheWinnersAnswer(MemoryObjects):
        def put_if_absent(self, key: str, data: bytes) -> None:
            super().put_if_absent(key, data)
            super().put_if_absent(key, data)  # the client repeats, and meets its own object

    store = LosesTheWinnersAnswer()
    refuse_unsafe_store(store, mint)
    assert list(store.list()) == []


def test_a_failure_of_the_store_is_told_as_it_is(mint: Callable[[], str]) -> None:
    class Refuses(MemoryObjects):
        def put_if_absent(self, key: str, data: bytes) -> None:
            raise StorageError("permission denied", operation="put", key=key, reason="permission")

        def delete(self, keys: Iterable[str]) -> None:
            raise StorageError("can not delete either")

    with pytest.raises(StorageError, match="permission denied") as failed:
        refuse_unsafe_store(Refuses(), mint)
    assert not isinstance(failed.value, UnsafeStoreError)


def test_a_local_root_passes_and_is_left_clean(tmp_path: Path, mint: Callable[[], str]) -> None:
    refuse_unsafe_store(open_objects(GraphRoot.parse(tmp_path / "graph")), mint)
    assert [entry for entry in tmp_path.rglob("*") if entry.is_file()] == []
    assert list((tmp_path / "graph" / "__probe").iterdir()) == []


@pytest.fixture
def proxy(s3_server: SeaweedServer) -> Iterator[S3Proxy]:
    with S3Proxy(s3_server.endpoint) as running:
        yield running


@pytest.mark.s3
def test_a_real_s3_server_passes_and_is_left_clean(
    s3_server: SeaweedServer, s3_root: Callable[[], str], mint: Callable[[], str]
) -> None:
    store = open_objects(GraphRoot.parse(s3_root(), s3_server.storage_options()))
    refuse_unsafe_store(store, mint)
    assert list(store.list()) == []


@pytest.mark.s3
def test_a_server_that_does_not_implement_conditional_puts_is_refused(
    s3_server: SeaweedServer, proxy: S3Proxy, s3_root: Callable[[], str], mint: Callable[[], str]
) -> None:
    proxy.on_request = lambda request: 501 if request.method == "PUT" else None
    options = s3_server.storage_options() | {"aws_endpoint": proxy.endpoint}
    with pytest.raises(UnsafeStoreError, match="does not know create-only puts"):
        refuse_unsafe_store(open_objects(GraphRoot.parse(s3_root(), options)), mint)
