"""Turns: writers of one graph on one machine go one after the other instead of losing races to each other.

Politeness, not safety: nothing is wrong without it, so nobody waits long for it and nothing that goes wrong
with it matters. The turn is a lock on an empty file in the user's temporary folder, which the system lets
go of when its holder dies. Writers on other machines are met in the manifest.
"""

import hashlib
import os
import random
import stat
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

fcntl: Any
try:
    import fcntl
except ImportError:  # not every system has it; threads still take turns there
    fcntl = None

WAIT_SECONDS_MAX: Final = 2.0
WAIT_IN_VAIN_SECONDS_MAX: Final = 0.05
POLL_SECONDS_MAX: Final = 0.003

_THREADS: dict[str, threading.Lock] = {}
_WAITED_IN_VAIN: set[str] = set()
"""Graphs whose turn did not come last time: somebody may be stuck with it, so the next wait is short."""


@contextmanager
def turn(root: str) -> Iterator[None]:
    """Hold the turn to publish on a graph, or go on without it after a short wait."""
    patience = WAIT_IN_VAIN_SECONDS_MAX if root in _WAITED_IN_VAIN else WAIT_SECONDS_MAX
    give_up_at = time.monotonic() + patience
    lock = _THREADS.setdefault(root, threading.Lock())
    mine = lock.acquire(timeout=patience)
    file = _open(root) if fcntl is not None else None
    try:
        held = mine and (file is None or _waited_for(file, give_up_at))
        (_WAITED_IN_VAIN.discard if held else _WAITED_IN_VAIN.add)(root)
        yield
    finally:
        if file is not None:
            os.close(file)
        if mine:
            lock.release()


def _waited_for(file: int, give_up_at: float) -> bool:
    while not _locked(file):
        if time.monotonic() > give_up_at:
            return False
        time.sleep(POLL_SECONDS_MAX * random.random())  # noqa: S311  no secret
    return True


def _locked(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True  # this file system has no locks: there is nothing to wait for
    return True


def _open(root: str) -> int | None:
    """Open the lock file of a graph, in a folder that is ours alone; None if there can not be one."""
    folder = Path(tempfile.gettempdir()) / f"omnigraph-turns-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        seen = folder.lstat()
        if not stat.S_ISDIR(seen.st_mode) or seen.st_uid != os.getuid():
            return None
        name = hashlib.sha256(root.encode("utf-8", "surrogatepass")).hexdigest()[:32]
        return os.open(folder / f"{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError:
        return None
