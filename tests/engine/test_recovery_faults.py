"""Storage that fails around a promise: each outcome of requirement D6, exactly."""

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import pytest

import omnigraph as og
from omnigraph.engine import opening
from omnigraph.engine.recovery import RECOVERY_ACTOR, ROLLED_FORWARD
from omnigraph.errors import CommitOutcomeUnknownError, RecoveryRefusedError, StorageError
from omnigraph.failpoints import Failpoint, FailpointError
from omnigraph.model.sidecar import SIDECAR_BYTES_MAX, Sidecar
from omnigraph.storage.audit import Audit
from omnigraph.storage.layout import AUDIT, RECOVERY
from omnigraph.storage.objects import ObjectInfo, ObjectStore, open_objects
from omnigraph.testing.commits import session_of
from omnigraph.testing.crash_writers import ACTOR, Arrival, new_graph, planned, state_of, write, write_next
from omnigraph.testing.places import place

_T = TypeVar("_T")


@dataclass(slots=True)
class Failing:
    """An object store that refuses chosen calls, before or after doing them."""

    inner: ObjectStore
    faults: dict[tuple[str, str], str]

    def put(self, key: str, data: bytes) -> None:
        self._do("put", key, lambda: self.inner.put(key, data))

    def put_if_absent(self, key: str, data: bytes) -> None:
        self._do("put", key, lambda: self.inner.put_if_absent(key, data))

    def get(self, key: str) -> bytes:
        return self._do("get", key, lambda: self.inner.get(key))

    def head(self, key: str) -> ObjectInfo:
        return self._do("head", key, lambda: self.inner.head(key))

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        return self._do("list", prefix, lambda: self.inner.list(prefix))

    def delete(self, keys: Iterable[str]) -> None:
        wanted = [*keys]
        self._do("delete", wanted[0] if wanted else "", lambda: self.inner.delete(wanted))

    def _do(self, verb: str, key: str, act: Callable[[], _T]) -> _T:
        fault = next((how for (v, prefix), how in self.faults.items() if v == verb and key.startswith(prefix)), None)
        if fault == "refused":
            raise StorageError(f"{verb} {key} was refused", reason="permission")
        answer = act()
        if fault == "answer lost":
            raise StorageError(f"{verb} {key} was not answered", reason="unreachable")
        return answer


@dataclass(slots=True)
class Store:
    """A graph on a store whose faults can be switched on and off."""

    root: Path
    faults: dict[tuple[str, str], str] = field(default_factory=dict)

    @property
    def sidecars(self) -> list[Path]:
        return sorted((place(self.root) / RECOVERY).glob("*.json"))

    def open(self) -> og.Graph:
        return og.open(self.root)

    def crash(self) -> Sidecar:
        graph = self.open()
        with planned(Arrival(Failpoint.AFTER_SEALS, 1).plan("raise")), pytest.raises(FailpointError):
            write(graph, "transaction")
        (path,) = self.sidecars
        return Sidecar.from_bytes(path.read_bytes(), path.name)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    made = Store(tmp_path / "graph")
    new_graph(made.root)
    monkeypatch.setattr(opening, "open_objects", lambda place: Failing(open_objects(place), made.faults))
    return made


# -- the promise can not be written ---------------------------------------------------------------------


@pytest.mark.parametrize("how", ["refused", "answer lost"])
def test_a_promise_that_can_not_be_written_aborts_the_write_clean(store: Store, how: str) -> None:
    graph = store.open()
    before = state_of(graph)
    store.faults["put", RECOVERY] = how
    with pytest.raises(StorageError) as told:
        write(graph, "transaction")
    assert not isinstance(told.value, CommitOutcomeUnknownError)
    store.faults.clear()
    again = store.open()
    assert state_of(again) == before, "it is not there and recovery did not bring it"
    assert store.sidecars == []
    assert again.recoveries() == []
    write(graph, "transaction")
    assert state_of(store.open()) != before


def test_if_the_promise_can_not_be_taken_back_either_the_outcome_is_decided_all_the_same(store: Store) -> None:
    graph = store.open()
    before = state_of(graph)
    store.faults |= {("put", RECOVERY): "answer lost", ("delete", RECOVERY): "refused"}
    with pytest.raises(StorageError) as told:
        write(graph, "transaction")
    store.faults.clear()
    assert len(store.sidecars) == 1
    again = store.open()
    if not isinstance(told.value, CommitOutcomeUnknownError):
        assert state_of(again) == before, "an error means it never will be"
    assert store.sidecars == []
    assert len(again.recoveries()) == 1


# -- it can not be deleted ------------------------------------------------------------------------------


def test_a_promise_that_can_not_be_deleted_is_a_warning_and_is_audited_later(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    graph = store.open()
    store.faults["delete", RECOVERY] = "refused"
    with caplog.at_level(logging.WARNING):
        commit = write(graph, "transaction")
    assert "a sidecar was left behind" in caplog.text
    assert len(store.sidecars) == 1
    store.faults.clear()
    again = store.open()
    assert again.refresh().id == commit
    assert again.refresh().actor == ACTOR
    assert [(row.kind, row.commit) for row in again.recoveries()] == [(ROLLED_FORWARD, commit)]
    assert store.sidecars == []


def test_a_recovery_that_can_not_delete_is_loud_and_its_audit_row_stays_the_only_one(store: Store) -> None:
    sidecar = store.crash()
    store.faults["delete", RECOVERY] = "refused"
    for _ in range(3):
        with pytest.raises(StorageError):
            store.open()
    assert len(store.sidecars) == 1
    store.faults.clear()
    graph = store.open()
    assert [row.operation for row in graph.recoveries()] == [sidecar.operation]
    assert len(graph.log(actor=RECOVERY_ACTOR)) == 1
    assert store.sidecars == []


# -- they can not be listed or read ---------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["list", "get"])
def test_promises_that_can_not_be_seen_stop_writers_and_not_readers(store: Store, verb: str) -> None:
    living = store.open()
    before = state_of(living)
    store.crash()
    store.faults[verb, RECOVERY] = "refused"
    with pytest.raises(StorageError):
        store.open()
    with pytest.raises(StorageError):
        write_next(living, "Zoe")
    assert state_of(og.open(store.root, read_only=True)) == before
    assert state_of(living) == before, "nor does an open handle mind, as long as it reads"
    store.faults.clear()
    write_next(living, "Zoe")
    assert len(living.recoveries()) == 1


# -- they can not be understood -------------------------------------------------------------------------

STRANGE = {
    "empty": b"",
    "half": b'{"sidecar": 1, "operation',
    "newer": b'{"sidecar": 99}',
    "nonsense": b"\x00\xff" * 100,
    "another thing": b'{"sidecar": 1}',
    "too large": b" " * (SIDECAR_BYTES_MAX + 1),
}


@pytest.mark.parametrize("what", STRANGE)
def test_a_promise_that_can_not_be_understood_is_refused_loudly_and_kept(store: Store, what: str) -> None:
    living = store.open()
    before = state_of(living)
    name = session_of(living).sources.mint()
    path = place(store.root) / RECOVERY / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(STRANGE[what])
    for act in (store.open, living.recover, lambda: write_next(living, "Zoe")):
        with pytest.raises(RecoveryRefusedError) as told:
            act()
        assert told.value.code == "RECOVERY_REFUSED"
        assert path.name in told.value.message
        assert ("upgrade" in told.value.message) == (what == "newer")
    assert path.read_bytes() == STRANGE[what]
    assert state_of(og.open(store.root, read_only=True)) == before == state_of(living)
    path.unlink()
    write_next(store.open(), "Zoe")


def test_a_promise_of_a_process_number_no_machine_has_is_settled_or_refused_with_a_typed_error(store: Store) -> None:
    store.crash()
    (path,) = store.sidecars
    sidecar = Sidecar.from_bytes(path.read_bytes(), path.name)
    text = path.read_text(encoding="utf-8").replace(f"  {sidecar.owner.process}\n", f"  {2**70}\n")
    path.write_text(text, encoding="utf-8")
    try:
        store.open()
    except RecoveryRefusedError:
        assert len(store.sidecars) == 1


@pytest.mark.parametrize("name", ["readme.txt", "not-an-id.json", ".tmp-1234"])
def test_other_files_beside_the_promises_are_nobodys_business(store: Store, name: str) -> None:
    path = place(store.root) / RECOVERY / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("something", encoding="utf-8")
    write_next(store.open(), "Zoe")
    assert path.read_text(encoding="utf-8") == "something"


# -- the audit can not be written -----------------------------------------------------------------------


@pytest.mark.parametrize("how", ["refused", "answer lost"])
def test_an_audit_row_that_can_not_be_written_keeps_the_promise_and_is_written_once_later(
    store: Store, how: str
) -> None:
    sidecar = store.crash()
    store.faults["list", AUDIT] = how
    for _ in range(2):
        with pytest.raises(StorageError):
            store.open()
        assert len(store.sidecars) == 1
    store.faults.clear()
    graph = store.open()
    assert [row.operation for row in graph.recoveries()] == [sidecar.operation]
    assert [commit.id for commit in graph.log(actor=RECOVERY_ACTOR)] == [sidecar.commit]
    assert store.sidecars == []
    assert store.open().recoveries() == graph.recoveries()


def test_two_that_write_the_first_audit_row_at_once_both_succeed(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    living = store.open()
    sidecar = store.crash()
    (path,) = store.sidecars
    kept = path.read_bytes()
    store.open()
    path.write_bytes(kept)
    exists, answers = Audit._exists, iter([False])
    monkeypatch.setattr(Audit, "_exists", lambda self: next(answers, None) is not False and exists(self))
    living.recover()  # it had looked for the audit just before another process began it
    assert [row.operation for row in living.recoveries()] == [sidecar.operation]
