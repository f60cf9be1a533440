"""Making Spark's Python workers quick for one task after the other."""

import gc
import os
import socket
import stat
import sys
from collections.abc import Callable
from functools import wraps
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

LOADS_MAX: Final = 4
"""After so many uses a worker has loaded all it needs."""

QUICK_ACK: Final[int | None] = getattr(socket, "TCP_QUICKACK", None)  # Linux has it
OPEN_FILES: Final = Path("/proc/self/fd")

_uses = 0


def begin() -> None:
    """Make a worker ready for a task, before it asks for the first rows of it."""
    acknowledge()
    settle()


def acknowledge() -> None:
    """Let Spark know at once that its words have arrived.

    It sends a worker first what to do and then what to do it with, and its network holds the second back until the
    first is acknowledged. A worker that was used before acknowledges with its answer, or after 40 ms: as it has none
    yet, every task waited for those.
    """
    if QUICK_ACK is None or not _is_worker():
        return
    for number in _open_files():
        try:
            if stat.S_ISSOCK(os.fstat(number).st_mode):
                with socket.socket(fileno=os.dup(number)) as found:
                    if _is_of_this_machine(found):
                        found.setsockopt(socket.IPPROTO_TCP, QUICK_ACK, 1)
        except OSError:
            continue  # closed meanwhile, or of a kind that has no such setting: it is only about time


def _open_files() -> list[int]:
    try:
        return [int(each.name) for each in OPEN_FILES.iterdir()]
    except OSError:
        return []


def _is_of_this_machine(found: socket.socket) -> bool:
    if found.family not in (socket.AF_INET, socket.AF_INET6) or found.type != socket.SOCK_STREAM:
        return False
    return ip_address(found.getpeername()[0].partition("%")[0]).is_loopback


class Unpacked:
    """What a task is sent, and acknowledges as soon as it has unpacked it."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        acknowledge()


def settle() -> None:
    """Let the garbage collector forget what a worker has loaded, which stays as long as the worker lives.

    After every task a worker of Spark's looks for garbage among all objects it has. Most of them belong to modules:
    to walk over them takes a tenth of a second of a core, more than a small read, and finds nothing.
    """
    global _uses
    if _uses < LOADS_MAX and _is_worker():
        _uses += 1
        gc.freeze()


def settling(method: Callable[P, T]) -> Callable[P, T]:
    """Settle after a method, which may have loaded something."""

    @wraps(method)
    def settled(*given: P.args, **named: P.kwargs) -> T:
        try:
            return method(*given, **named)
        finally:
            settle()

    return settled


def _is_worker() -> bool:
    """Tell whether this process is Spark's own: in a driver, the collector is its owner's business."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and str(spec.name).startswith("pyspark.")
