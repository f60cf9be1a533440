"""Processes to be raced and killed, each there in milliseconds.

They are forked from one process that has imported everything and done nothing: importing takes a second, and more than
all that most of them ever do. Lance may be forked as long as it was not used.
"""

import multiprocessing
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess
from typing import Any, Final

__all__ = ["SECONDS_MAX", "Child", "bear"]

SECONDS_MAX: Final = 300.0
IMPORTED: Final = ("omnigraph.engine.opening", "omnigraph.testing.crash_writers", "omnigraph.testing.worker")

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(list(IMPORTED))
_asking = threading.Lock()
"""How a child ended can be read once. Whoever starts another one reads it of all that have ended."""


@dataclass(slots=True)
class Child:
    """A running process, seen from the test."""

    process: ForkServerProcess
    line: "Connection[Any, Any]"
    heard: list[Any] = field(default_factory=list)
    """What it said before it ended."""

    def hear(self) -> Any:
        """Wait for the next thing it says."""
        if not self.line.poll(SECONDS_MAX):
            raise AssertionError("the child says nothing")
        try:
            return self.line.recv()
        except (EOFError, ConnectionResetError):
            raise AssertionError(f"the child ended early, with {self.ended()}") from None

    def tell(self, word: object) -> None:
        """Say something to it."""
        self.line.send(word)

    def kill(self) -> None:
        """End it the hard way."""
        self.process.kill()

    def ended(self) -> int:
        """Wait until it has ended, and keep what it still had to say; return its exit code."""
        try:
            while self.line.poll(SECONDS_MAX):
                self.heard.append(self.line.recv())
        except (EOFError, ConnectionResetError):
            pass
        wait([self.process.sentinel], SECONDS_MAX)
        with _asking:
            code = self.process.exitcode
        if code is None:
            self.kill()
            raise AssertionError("the child does not end")
        return code

    @property
    def was_killed(self) -> bool:
        """Whether it ended the hard way."""
        return self.process.exitcode == -signal.SIGKILL


def bear(act: Callable[..., None], *given: object) -> Child:
    """Let a process of its own do something; it is given a line to us, and then what is given here."""
    ours, theirs = _context.Pipe()
    process = _context.Process(target=act, args=(theirs, *given), daemon=True)
    with _asking:
        process.start()
    theirs.close()  # or its end would not be heard
    return Child(process, ours)
