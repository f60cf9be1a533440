"""Turns: one writer after the other on one machine, and nobody stuck behind one who is."""

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from omnigraph.storage import turns
from omnigraph.storage.turns import Shelf, Turn, leave_notes, turn

HOLDER = """
import sys, time
from omnigraph.storage.turns import turn
with turn(sys.argv[1], "theirs"):
    print("mine", flush=True)
    time.sleep(60)
"""


@pytest.fixture(autouse=True)
def apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Keep lock files of these tests to themselves, in this process and in its children."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(turns, "_WAITED_IN_VAIN", set())
    yield
    tempfile.tempdir = None


def holder(root: str) -> "subprocess.Popen[str]":
    """Start a process that takes the turn and keeps it."""
    process = subprocess.Popen([sys.executable, "-c", HOLDER, root], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "mine\n"
    return process


def ended(process: "subprocess.Popen[str]") -> None:
    """Kill a holder."""
    with process:
        process.kill()


def lock_files(tmp_path: Path) -> list[Path]:
    """Return the lock files there are."""
    return list(tmp_path.glob("omnigraph-turns-*/*/lock"))


def test_a_dead_holder_lets_go(tmp_path: Path) -> None:
    process = holder("g")
    ended(process)
    begun = time.monotonic()
    with turn("g", "ours"):
        assert "g" not in turns._WAITED_IN_VAIN
    assert time.monotonic() - begun < turns.WAIT_SECONDS_MAX


def test_nobody_waits_long_for_one_who_is_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "WAIT_SECONDS_MAX", 0.3)
    process = holder("g")
    try:
        waited = []
        for _ in range(2):
            begun = time.monotonic()
            with turn("g", "ours") as ours:
                waited.append(time.monotonic() - begun)
                assert ours == Turn(waited=True, is_ours=False)
        assert waited[0] >= 0.3
        assert waited[1] < waited[0], "having waited in vain once, we wait shorter"
    finally:
        ended(process)
    with turn("g", "ours"):
        assert "g" not in turns._WAITED_IN_VAIN, "once it is free again, all is as before"


def test_threads_and_graphs_take_turns_each_for_themselves() -> None:
    inside, most = 0, 0

    def work() -> None:
        nonlocal inside, most
        for _ in range(20):
            with turn("g", "ours"):
                inside += 1
                most = max(most, inside)
                time.sleep(0.001)
                inside -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1
    with turn("one", "ours"), turn("another", "ours"):
        assert not turns._WAITED_IN_VAIN


def test_one_who_waits_is_told_that_the_work_is_done(tmp_path: Path) -> None:
    process = holder("g")
    try:
        leave_notes("g", {"ours": "as you wished", "another's": ""})
        begun = time.monotonic()
        with turn("g", "ours") as ours:
            assert ours == Turn(waited=True, is_ours=False, is_done=True, note="as you wished")
        assert time.monotonic() - begun < turns.WAIT_SECONDS_MAX
        (left,) = tmp_path.glob("omnigraph-turns-*/*/*.done")
        assert "another's" in left.name
    finally:
        ended(process)


def test_notes_that_nobody_came_for_are_removed(tmp_path: Path) -> None:
    with turn("g", "ours") as ours:
        assert ours == Turn(waited=False)
    leave_notes("g", {"long ago": ""})
    (old,) = tmp_path.glob("omnigraph-turns-*/*/*.done")
    os.utime(old, (1, 1))
    leave_notes("g", {"now": ""})
    (new,) = tmp_path.glob("omnigraph-turns-*/*/*.done")
    assert "now" in new.name


def test_a_folder_that_is_not_ours_is_left_alone_and_the_write_goes_on(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / f"omnigraph-turns-{os.getuid()}").symlink_to(elsewhere)
    with turn("g", "ours"):
        pass
    leave_notes("g", {"another's": "what nobody else should read"})
    assert list(elsewhere.iterdir()) == []


def test_a_link_in_place_of_the_file_is_not_followed(tmp_path: Path) -> None:
    with turn("g", "ours"):
        pass
    (file,) = lock_files(tmp_path)
    file.unlink()
    victim = tmp_path / "victim"
    file.symlink_to(victim)
    with turn("g", "ours"):
        pass
    assert not victim.exists()


def test_the_name_of_a_graph_is_not_in_the_name_of_its_file(tmp_path: Path) -> None:
    with turn("s3://bucket/../../secret?key=x", "ours"):
        pass
    (file,) = lock_files(tmp_path)
    assert file.parent.parent.parent == tmp_path
    assert "secret" not in str(file.relative_to(tmp_path))


def test_without_a_temporary_folder_writes_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone" / "away"))
    with turn("g", "ours") as ours:
        assert ours == Turn(waited=False, is_ours=False)
    leave_notes("g", {"another's": ""})
    assert not (tmp_path / "gone").exists()


def test_what_is_left_for_one_graph_costs_others_nothing(tmp_path: Path) -> None:
    for number in range(20):
        with turn(f"another {number}", "ours"):
            leave_notes(f"another {number}", {"theirs": ""})
    with turn("g", "ours"):
        leave_notes("g", {"theirs": ""})
    (lock,) = [file for file in lock_files(tmp_path) if (file.parent / "theirs.done").exists()][:1]
    assert sorted(file.name for file in lock.parent.iterdir()) == ["lock", "theirs.done"]


def test_what_is_put_down_is_found_by_others_if_they_want_that_very_state() -> None:
    Shelf("g").put("head", "file 7", b"seven\nlines")
    assert Shelf("g").get("head", "file 7") == b"seven\nlines"
    assert Shelf("g").get("head") == b"seven\nlines"
    assert Shelf("g").get("head", "file 8") is None
    assert Shelf("g").get("ids") is None
    assert Shelf("another").get("head", "file 7") is None
    Shelf("g").put("head", "file 8", b"")
    assert Shelf("g").get("head", "file 7") is None
    assert Shelf("g").get("head", "file 8") == b""


def test_a_shelf_that_is_not_ours_is_neither_used_nor_believed(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / f"omnigraph-turns-{os.getuid()}").symlink_to(elsewhere)
    Shelf("g").put("head", "file 7", b"what nobody else should read")
    assert list(elsewhere.iterdir()) == []
    turns._place("g").mkdir()
    (turns._place("g") / "head").write_bytes(b"file 7\nwhat somebody else wants us to believe")
    assert Shelf("g").get("head", "file 7") is None


def test_a_graph_is_crowded_for_a_while_after_someone_had_to_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    shelf = Shelf("g")
    seen = [shelf.is_crowded]
    shelf.had_to_wait()
    seen.append(shelf.is_crowded)
    monkeypatch.setattr(turns, "CROWDED_SECONDS", 0.0)
    shelf.had_to_wait()
    seen.append(shelf.is_crowded)
    assert seen == [False, True, False]


def bells(tmp_path: Path) -> list[Path]:
    """Return the bells of those who wait."""
    return list(tmp_path.glob("omnigraph-turns-*/*/*.bell"))


@pytest.mark.parametrize("has_bells", [True, False], ids=["bells", "none"])
def test_one_who_waits_is_woken_when_the_turn_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_bells: bool
) -> None:
    pause = 1.5
    monkeypatch.setattr(turns, "WAIT_SECONDS_MAX", 60.0)
    monkeypatch.setattr(turns, "POLL_SECONDS_MIN", pause)
    monkeypatch.setattr(turns, "POLL_SECONDS_MAX", pause)
    if not has_bells:
        monkeypatch.delattr(os, "mkfifo")
    came: list[float] = []

    def waiter() -> None:
        with turn("g", "theirs") as ours:
            came.append(time.monotonic())
            assert ours.waited

    thread = threading.Thread(target=waiter)
    with turn("g", "ours"):
        thread.start()
        while has_bells and not bells(tmp_path):
            time.sleep(0.001)
        time.sleep(0.1)
    over = time.monotonic()
    thread.join()
    assert (came[0] - over < pause / 4) == has_bells
    assert bells(tmp_path) == []


def test_the_bell_of_one_who_died_is_taken_down(tmp_path: Path) -> None:
    with turn("g", "ours"):
        os.mkfifo(turns._place("g") / "dead.bell")
    assert bells(tmp_path) == []
