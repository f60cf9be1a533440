"""Turns: writers of one graph on one machine go one after the other instead of losing races to each other.

Politeness, not safety: nothing is wrong without it, so nobody waits long for it and nothing that goes wrong
with it matters. The turn is a lock on an empty file in a folder of the graph in the user's temporary folder, which the
system lets go of when its holder dies. Whoever has it may do the work of others who wait, and leaves a note for each.
Writers on other machines are met in the manifest.
"""

import errno
import hashlib
import os
import random
import select
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

fcntl: Any
try:
    import fcntl
except ImportError:  # not every system has it; writers meet in the manifest there
    fcntl = None

WAIT_SECONDS_MAX: Final = 2.0
WAIT_IN_VAIN_SECONDS_MAX: Final = 0.05
POLL_SECONDS_MIN: Final = 0.001
POLL_SECONDS_MAX: Final = 0.016
NOTE_SECONDS_MAX: Final = 60.0
CROWDED_SECONDS: Final = 1.0
RINGS_MAX: Final = 4_096
LOCK, DRAFT, NOTE, OFFER, BELL = "lock", ".draft", ".done", ".ready", ".bell"

_WAITED_IN_VAIN: set[str] = set()
"""Graphs whose turn did not come last time: somebody may be stuck with it, so the next wait is short."""


@dataclass(frozen=True, slots=True)
class Turn:
    """How it came: after waiting for others, or not at all because our work was done by one of them."""

    waited: bool
    is_ours: bool = True
    """Whether we have it; if not, somebody else does, or there is none."""
    is_done: bool = False
    note: str = ""
    """What the one who did it has to say about it."""


class Shelf:
    """What writers of one graph on one machine put down for each other: the last word on a thing, and only a shortcut.

    Whoever looks says which state of the thing it wants; what speaks of another is passed over.
    """

    def __init__(self, root: str) -> None:
        self._place = _place(root)
        self._crowded_until = 0.0

    @property
    def is_crowded(self) -> bool:
        """Whether others had the turn lately when we wanted it, so that it is worth putting anything down."""
        return time.monotonic() < self._crowded_until

    def had_to_wait(self) -> None:
        """Note that others have the turn."""
        self._crowded_until = time.monotonic() + CROWDED_SECONDS

    def put(self, thing: str, state: str, data: bytes) -> None:
        """Put something down in place of what was there."""
        with suppress(OSError):
            if fcntl is not None and _made(self._place):
                draft = self._place / f"{thing}{DRAFT}-{os.getpid()}-{threading.get_ident()}"
                draft.write_bytes(state.encode() + b"\n" + data)
                draft.replace(self._place / thing)

    def get(self, thing: str, state: str | None = None) -> bytes | None:
        """Return what lies there if it speaks of a state, or whatever lies there."""
        try:
            if fcntl is None or not _is_ours(self._place.parent):
                return None
            found, _, data = (self._place / thing).read_bytes().partition(b"\n")
        except OSError:
            return None
        return data if state is None or found == state.encode() else None


@contextmanager
def turn(root: str, work: str, offer: Callable[[], str] = lambda: "") -> Iterator[Turn]:
    """Hold the turn to publish on a graph, or go on without it: after a while, or when the work is said to be done.

    If others have it, ``offer`` is called first, and what it returns is there for them to find while we wait.
    """
    place = _place(root)
    file = _open(place)
    ours = Turn(waited=False, is_ours=file is not None)
    try:
        if file is None or _locked(file):
            _WAITED_IN_VAIN.discard(root)
        else:
            with _offering(place / work, offer()):
                ours = _wait(root, place, work, file)
        yield ours
    finally:
        if file is not None:
            with suppress(OSError):
                fcntl.flock(file, fcntl.LOCK_UN)  # closing alone would not do if this process was forked meanwhile
            os.close(file)
            if ours.is_ours:  # else whoever has it will ring
                _ring(place)


def leave_notes(root: str, notes: Mapping[str, str]) -> None:
    """Tell those who wait that their work is done, and what there is to say; notes nobody came for are removed."""
    if not notes or fcntl is None:
        return
    place = _place(root)
    with suppress(OSError):
        if not _made(place):
            return
        for work, text in notes.items():
            _write(place / work, NOTE, text)
        long_ago = time.time() - NOTE_SECONDS_MAX
        for note in (found for kind in (NOTE, OFFER) for found in place.glob(f"*{kind}")):
            if note.lstat().st_mtime < long_ago:
                note.unlink(missing_ok=True)


def offered(root: str, work: str) -> str:
    """Return what someone who waits has to offer; nothing if there is nothing."""
    place = _place(root)
    with suppress(OSError, ValueError):
        if _is_ours(place.parent):
            return (place / (work + OFFER)).read_text("utf-8")
    return ""


@contextmanager
def _offering(place: Path, text: str) -> Iterator[None]:
    """Let others find a text as long as this lasts."""
    if text:
        with suppress(OSError):
            _write(place, OFFER, text)
    try:
        yield
    finally:
        if text:
            with suppress(OSError):
                place.with_name(place.name + OFFER).unlink(missing_ok=True)


def _write(place: Path, kind: str, text: str) -> None:
    draft = place.with_name(place.name + kind + DRAFT)
    draft.write_text(text, "utf-8")
    draft.replace(place.with_name(place.name + kind))  # whoever sees it sees all of it


def _wait(root: str, place: Path, work: str, file: int) -> Turn:
    give_up_at = time.monotonic() + (WAIT_IN_VAIN_SECONDS_MAX if root in _WAITED_IN_VAIN else WAIT_SECONDS_MAX)
    note = place / (work + NOTE)
    with _bell(place / (work + BELL)) as bell:
        pause = POLL_SECONDS_MIN if bell is None else POLL_SECONDS_MAX
        while True:
            text = _read(note)  # first: who has been taken along need not keep the others waiting
            if text is not None:
                return Turn(waited=True, is_ours=False, is_done=True, note=text)
            if _locked(file):
                break
            if time.monotonic() > give_up_at:
                _WAITED_IN_VAIN.add(root)
                return Turn(waited=True, is_ours=False)
            _rest(bell, pause * (0.5 + random.random()))  # noqa: S311  no secret
            pause = min(pause * 1.5, POLL_SECONDS_MAX)  # the more wait, the less each of them needs to ask
    _WAITED_IN_VAIN.discard(root)
    text = _read(note)
    return Turn(waited=True) if text is None else Turn(waited=True, is_done=True, note=text)


@contextmanager
def _bell(path: Path) -> Iterator[int | None]:
    """Hang up a bell that whoever had the turn rings; None if there can be none."""
    try:
        os.mkfifo(path, 0o600)
        heard = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, AttributeError):
        yield None
        return
    try:
        yield heard
    finally:
        os.close(heard)
        with suppress(OSError):
            path.unlink()


def _rest(bell: int | None, seconds: float) -> None:
    """Rest for so many seconds, or until the bell rings."""
    if bell is None:
        time.sleep(seconds)
        return
    listening = select.poll()
    listening.register(bell, select.POLLIN)
    if listening.poll(seconds * 1e3):
        with suppress(OSError):
            os.read(bell, RINGS_MAX)


def _ring(place: Path) -> None:
    """Let all who wait know that there may be something for them; the bell of one who died is taken down."""
    with suppress(OSError):
        for name in os.listdir(place):  # noqa: PTH208  every write does this, and paths are slow to make
            if name.endswith(BELL):
                _ring_one(place / name)


def _ring_one(bell: Path) -> None:
    try:
        there = os.open(bell, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError as problem:
        if problem.errno == errno.ENXIO:  # nobody listens
            with suppress(OSError):
                bell.unlink()
        return
    with suppress(OSError):
        os.write(there, b".")
    os.close(there)


def _read(note: Path) -> str | None:
    """Read a note and throw it away; None if there is none."""
    try:
        text = note.read_text("utf-8")
    except (OSError, ValueError):
        return None
    note.unlink(missing_ok=True)
    return text


def _locked(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True  # this file system has no locks: there is nothing to wait for
    return True


def _place(root: str) -> Path:
    """Return the folder of a graph's files; its name is not in theirs."""
    name = hashlib.sha256(root.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return Path(tempfile.gettempdir()) / f"omnigraph-turns-{os.getuid() if fcntl else 0}" / name


def _made(place: Path) -> bool:
    """Make the folder of a graph, in one that is ours alone; tell whether it is."""
    place.parent.mkdir(mode=0o700, exist_ok=True)
    if not _is_ours(place.parent):
        return False
    place.mkdir(mode=0o700, exist_ok=True)
    return True


def _is_ours(folder: Path) -> bool:
    seen = folder.lstat()
    return stat.S_ISDIR(seen.st_mode) and seen.st_uid == os.getuid()


def _open(place: Path) -> int | None:
    """Open the lock file of a graph, in a folder that is ours alone; None if there can not be one."""
    if fcntl is None:
        return None
    try:
        if not _made(place):
            return None
        return os.open(place / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError:
        return None
