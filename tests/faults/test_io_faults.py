"""Faults of a disk: full, read-only, broken, at every step of a write. The caller is told what really happened.

An answer means applied; an error means not applied, now or ever; OUTCOME_UNKNOWN names the commit to look for.
"""

import contextlib
import errno
import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lance
import obstore
import pytest
from tests.faults.told_kit import Told, is_commit, visible, write

import omnigraph as og
from omnigraph import failpoints
from omnigraph.engine import publisher
from omnigraph.errors import StorageError
from omnigraph.failpoints import Failpoint
from omnigraph.storage import lance_door, lance_written

pytestmark = pytest.mark.crash

SCHEMA = "node Person { name: String @key  age: I32? }\nnode Event { what: String }"
DISK_BYTES = 12 * 2**20
PAGE_BYTES = 4096
STEPS = [point for point in Failpoint if not point.startswith("recovery.")]
BEFORE_THE_PROMISE = (Failpoint.BEFORE_STAGE, Failpoint.AFTER_STAGE, Failpoint.BEFORE_SIDECAR)
VISIBLE = (Failpoint.AFTER_SWAP, Failpoint.BEFORE_FORGET, Failpoint.AFTER_FORGET)


def sidecars(graph: og.Graph) -> list[str]:
    return sorted(path.name for path in (Path(graph.root) / "__recovery").glob("*.json"))


def check(graph: og.Graph, name: str, told: Told) -> bool:
    """See that what was told is so, now and after recovery, and that nothing is in the way; return whether it is."""
    assert told.outcome != "untyped", f"{told.error!r} reached the caller"
    seen = visible(og.open(graph.root, read_only=True), name)
    healed = og.open(graph.root)
    assert sidecars(graph) == []
    there = visible(healed, name)
    assert (seen and there) or told.outcome != "applied", "what was acknowledged is gone"
    assert not (seen or there) or told.outcome != "refused", f"was refused, and is there: {told.error}"
    if told.outcome == "unknown":
        assert told.commit is not None, f"does not name the commit: {told.error}"
        assert told.commit in str(told.error)
        assert is_commit(healed, told.commit) == there, "the name given leads to the answer"
    for turn, handle in enumerate((graph, og.open(graph.root))):
        after = write(handle, f"{name}-next{turn}")
        assert after.outcome == "applied", f"something is in the way: {after.error}"
    assert sidecars(graph) == []
    operations = [row.operation for row in healed.recoveries()]
    assert len(operations) == len(set(operations)), "a recovery is told once"
    return there


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give up after seconds, not after minutes."""
    monkeypatch.setattr(publisher, "DEADLINE_SECONDS", 2.0)


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> Callable[[Failpoint, Callable[[], object]], None]:
    """Have something done when a step is reached for the first time."""

    def install(step: Failpoint, act: Callable[[], object]) -> None:
        monkeypatch.setattr(failpoints, "_PLANS", failpoints.parse(f"{step}=call*1"))
        monkeypatch.setattr(failpoints, "_act", lambda action, point: act())

    return install


# -- an error out of the blue -------------------------------------------------------------------------


@pytest.mark.parametrize("action", ["eio", "enospc"])
@pytest.mark.parametrize("step", STEPS, ids=str)
def test_an_error_of_the_system_between_steps_is_refused_or_applied_and_the_caller_is_told_which(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: Failpoint, action: str
) -> None:
    graph = og.init(tmp_path / "g", SCHEMA)
    assert write(graph, "first").outcome == "applied"
    monkeypatch.setattr(failpoints, "_PLANS", failpoints.parse(f"{step}={action}*1"))
    told = write(graph, "x")
    assert told.outcome == ("applied" if step in VISIBLE else "refused"), told.error
    assert visible(og.open(graph.root), "x") == (step in VISIBLE)
    assert sidecars(graph) == []
    assert write(graph, "y").outcome == "applied", "the very next write in the same process lands"


@pytest.mark.parametrize("step", [step for step in STEPS if step not in BEFORE_THE_PROMISE], ids=str)
def test_a_mistake_in_our_own_code_takes_the_promise_back_before_it_is_raised(
    tmp_path: Path, at: Callable[[Failpoint, Callable[[], object]], None], step: Failpoint
) -> None:
    def blunder() -> None:
        raise ZeroDivisionError

    graph = og.init(tmp_path / "g", SCHEMA)
    at(step, blunder)
    told = write(graph, "x")
    applied = step in (Failpoint.BEFORE_FORGET, Failpoint.AFTER_FORGET, Failpoint.AFTER_SWAP)
    assert told.outcome == ("applied" if applied else "untyped"), told.error
    assert visible(og.open(graph.root), "x") == applied
    assert sidecars(graph) == []


@pytest.mark.parametrize("step", STEPS, ids=str)
def test_wherever_a_writer_stops_the_write_is_there_as_a_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: Failpoint
) -> None:
    graph = og.init(tmp_path / "g", SCHEMA)
    assert write(graph, "first").outcome == "applied"
    monkeypatch.setattr(failpoints, "_PLANS", failpoints.parse(f"{step}=raise*1"))
    told = write(graph, "x")
    assert write(graph, "y").outcome == "applied", "the very next write in the same process lands"
    assert sidecars(graph) == []
    there = visible(og.open(graph.root), "x")
    assert there or step not in VISIBLE
    assert not there or step not in BEFORE_THE_PROMISE
    assert told.outcome != "refused" or not there


class Breaking:
    """Counts the calls into the two storage libraries; one of them, or all from it on, end with EIO."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls, self._at, self._when, self._lasting = 0, 0, "before", False
        for place, names in (
            (obstore, ("put", "get", "head", "list", "delete")),
            (lance, ("dataset",)),
            (lance_door, ("write_fragments",)),
            (lance_written, ("write_fragments",)),
        ):
            for name in names:
                monkeypatch.setattr(place, name, self._watched(getattr(place, name)))
        monkeypatch.setattr(lance.LanceDataset, "commit", staticmethod(self._watched(lance.LanceDataset.commit)))

    def plan(self, at: int, when: str = "before", lasting: bool = False) -> None:
        self.calls, self._at, self._when, self._lasting = 0, at, when, lasting

    def _watched(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*given: Any, **named: Any) -> Any:
            self.calls += 1
            hit = self._at and (self.calls == self._at or (self._lasting and self.calls > self._at))
            if hit and (self._when == "before" or self.calls > self._at):
                raise OSError(errno.EIO, "Input/output error (os error 5)")
            answer = call(*given, **named)
            if hit:
                raise OSError(errno.EIO, "Input/output error (os error 5)")
            return answer

        return watched


@pytest.mark.parametrize("lasting", [False, True], ids=["once", "from then on"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_an_error_of_the_disk_at_any_call_is_told_as_what_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str, lasting: bool
) -> None:
    graph = og.init(tmp_path / "g", SCHEMA)
    assert write(graph, "first").outcome == "applied"
    breaking = Breaking(monkeypatch)
    breaking.plan(0)
    assert write(graph, "second").outcome == "applied"
    calls, outcomes = breaking.calls, []
    assert calls >= 8
    for number in range(1, calls + 1):
        breaking.plan(number, when, lasting)
        told = write(graph, f"x{number}")
        breaking.plan(0)
        try:
            check(graph, f"x{number}", told)
        except AssertionError as wrong:
            raise AssertionError(f"call {number} of {calls}: {wrong}") from wrong
        outcomes.append(told.outcome)
    print(outcomes)
    assert outcomes[0] == "refused", "a listing that fails is loud"


# -- a disk of twelve megabytes -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Disk:
    """A small file system of its own."""

    folder: Path

    @property
    def filler(self) -> Path:
        return self.folder / "filler"

    def fill(self, free_pages: int = 0) -> None:
        """Take all space but a few pages."""
        with self.filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while file.write(b"x" * PAGE_BYTES):
                pass
        size = self.filler.stat().st_size
        with self.filler.open("rb+") as file:
            file.truncate(max(0, size - free_pages * PAGE_BYTES))

    def free(self) -> None:
        self.filler.unlink(missing_ok=True)

    def mount(self, how: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{how}", str(self.folder)], check=True, capture_output=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)]
    made = subprocess.run(command, check=False, capture_output=True, text=True)
    if made.returncode != 0:
        pytest.skip(f"mounting needs a right we do not have ({made.stderr.strip()}); the limits on files are tested")
    try:
        yield Disk(folder)
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=False, capture_output=True)


@pytest.fixture
def small(disk: Disk) -> og.Graph:
    graph = og.init(disk.folder / "g", SCHEMA)
    assert write(graph, "first").outcome == "applied"
    return graph


def test_a_disk_with_room_for_some_of_a_write_takes_all_of_it_or_nothing(disk: Disk, small: og.Graph) -> None:
    outcomes: list[str] = []
    for pages in range(24):
        disk.fill(pages)
        told = write(small, f"x{pages}")
        disk.free()
        check(small, f"x{pages}", told)
        outcomes.append(told.outcome)
    assert outcomes[0] == "refused"
    assert outcomes[-1] == "applied", "two dozen pages are enough"
    print(outcomes)


def test_a_large_write_to_a_small_disk_is_refused_and_readers_go_on(disk: Disk, small: og.Graph) -> None:
    with pytest.raises(StorageError) as refused, small.transaction() as tx:
        tx.append("Event", [{"what": os.urandom(450).hex()} for _ in range(40_000)])
    assert "nothing was applied" in str(refused.value) or "can not be staged" in str(refused.value)
    assert og.open(small.root, read_only=True).snapshot().count("Person") == 1


@pytest.mark.parametrize("step", STEPS, ids=str)
def test_a_disk_that_fills_up_at_any_step_is_told_as_what_it_is(
    disk: Disk, small: og.Graph, at: Callable[[Failpoint, Callable[[], object]], None], step: Failpoint
) -> None:
    at(step, disk.fill)
    told = write(small, "x")
    disk.free()
    assert (told.outcome == "refused") == (step in BEFORE_THE_PROMISE), told.error
    assert (told.outcome == "applied") == (step in VISIBLE), told.error
    check(small, "x", told)


# -- a folder that can only be read -------------------------------------------------------------------


@pytest.mark.parametrize("step", STEPS, ids=str)
def test_a_disk_that_becomes_read_only_at_any_step_is_told_as_what_it_is(
    disk: Disk,
    small: og.Graph,
    at: Callable[[Failpoint, Callable[[], object]], None],
    step: Failpoint,
    caplog: pytest.LogCaptureFixture,
) -> None:
    at(step, lambda: disk.mount("ro"))
    with caplog.at_level(logging.WARNING, logger="omnigraph"):
        told = write(small, "x")
    left = sidecars(small)
    disk.mount("rw")
    assert (told.outcome == "refused") == (step in BEFORE_THE_PROMISE), told.error
    assert (told.outcome == "applied") == (step in VISIBLE), told.error
    if step in (Failpoint.AFTER_SWAP, Failpoint.BEFORE_FORGET):
        assert len(left) == 1
        assert "a sidecar was left behind" in caplog.messages
        assert [row.commit for row in og.open(small.root).recoveries()] == [told.commit]
    check(small, "x", told)


def test_a_read_only_folder_is_read_and_writes_to_it_are_refused(disk: Disk, small: og.Graph) -> None:
    disk.mount("ro")
    assert og.open(small.root, read_only=True).snapshot().count("Person") == 1
    told = [write(small, "x"), write(og.open(small.root), "y")]
    with pytest.raises(StorageError):
        og.init(disk.folder / "new", SCHEMA)
    disk.mount("rw")
    assert [one.outcome for one in told] == ["refused", "refused"]
    assert isinstance(told[0].error, StorageError)
    assert not check(small, "x", told[0])


# -- limits on files, which need no right -------------------------------------------------------------

LIMITED = """
import json, resource, signal, sys
import omnigraph as og
from omnigraph.errors import OmnigraphError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
graph = og.open(sys.argv[1])
before = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), before[1]))
said = {}
try:
    with graph.transaction(user_metadata="x") as tx:
        tx.append("Person", [{"name": "x", "age": 2}])
        tx.append("Event", [{"what": "x"}])
    said["x"] = "applied"
except OmnigraphError as refused:
    said["x"] = "unknown" if refused.code == "OUTCOME_UNKNOWN" else "refused"
resource.setrlimit(resource.RLIMIT_FSIZE, before)
with graph.transaction(user_metadata="y") as tx:
    tx.append("Event", [{"what": "y"}])
print(json.dumps(said))
"""


def in_a_child(graph: og.Graph, limit: int) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, graph.root, str(limit)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return said


@pytest.mark.parametrize("limit", [0, 300, 700, 1_000, 1_400, 2_500, 4_000, 100_000])
def test_files_that_may_not_grow_make_a_write_fail_whole_and_the_next_one_lands(tmp_path: Path, limit: int) -> None:
    graph = og.init(tmp_path / "g", SCHEMA)
    assert write(graph, "first").outcome == "applied"
    told = in_a_child(graph, limit)["x"]
    there = visible(og.open(graph.root), "x")
    assert told != "refused" or not there
    assert told != "applied" or there
    assert (told == "applied") == there
    assert there or limit < 100_000
    assert not there or limit > 1_000
    assert sidecars(graph) == []
    assert graph.snapshot().read("Event").column("what").to_pylist().count("y") == 1
