"""Whose promise it is, and whether they are still at it."""

import os
import platform

from omnigraph.model.sidecar import Owner

_IN_HAND: set[str] = set()
"""Operations this process is working on: their sidecars are nobody else's business yet."""

_failures = 0


def this_process() -> Owner:
    """Return who we are, for others to look after."""
    return Owner(host=platform.node(), process=os.getpid())


def take_in_hand(operation: str) -> None:
    """Say that this process works on an operation."""
    _IN_HAND.add(operation)


def let_go(operation: str) -> None:
    """Say that it does not any more."""
    _IN_HAND.discard(operation)


def note_failure() -> None:
    """Count a write of this process that did not go well: it may have left a promise."""
    global _failures
    _failures += 1


def failures() -> int:
    """Return how many writes of this process did not go well."""
    return _failures


def in_hand(operation: str) -> bool:
    """Tell whether this very process is still working on an operation."""
    return operation in _IN_HAND


def is_here(owner: Owner) -> bool:
    """Tell whether an owner is a living process of this machine."""
    return owner.host == this_process().host and process_exists(owner.process)


def process_exists(process: int) -> bool:
    """Tell whether a process of this machine has this number."""
    if process <= 0:
        return False  # signal 0 to such a number would ask after a whole group
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True
