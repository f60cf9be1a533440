"""Letting Lance compute on every core.

Lance keeps two cores for waiting on storage, and computes on the others: on a machine of two it encodes, decodes and
sorts on one, however many ask it to. Waiting takes no core, so we ask for all of them, unless somebody said otherwise.
Lance looks when it first computes something; what is set later has no effect.
"""

import os
from typing import Final

CORES_VARIABLE: Final = "LANCE_CPU_THREADS"
RESERVATION_VARIABLE: Final = "LANCE_IO_CORE_RESERVATION"


def cores() -> int:
    """Return how many cores this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        return os.cpu_count() or 1


def use_every_core() -> None:
    """Tell Lance how many threads to compute with, unless its own variables already do."""
    if RESERVATION_VARIABLE not in os.environ:
        os.environ.setdefault(CORES_VARIABLE, str(cores()))
