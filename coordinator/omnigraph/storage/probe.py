"""The test a store must pass before a graph is created on it: of several create-only puts one wins."""

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from omnigraph.errors import ObjectExistsError, ObjectNotFoundError, OmnigraphError, StorageError, UnsafeStoreError
from omnigraph.observing import Threads
from omnigraph.storage.layout import PROBE
from omnigraph.storage.objects import ObjectStore, ObstoreObjects

__all__ = ["refuse_unsafe_store"]

FOLDER: Final = PROBE
RACE_ROUNDS: Final = 3
RACE_THREADS: Final = 8

_REMEDY = (
    "concurrent writers would overwrite each other's commits. Use a store that honours "
    "`If-None-Match: *` on PUT, such as Amazon S3, or a newer version of this one"
)


def refuse_unsafe_store(objects: ObjectStore, mint: Callable[[], str]) -> None:
    """Raise UnsafeStoreError unless create-only puts have exactly one winner; leaves nothing behind."""
    root = objects.root if isinstance(objects, ObstoreObjects) else None
    is_local = root is not None and root.is_local
    folder = f"{FOLDER}/{mint()}"
    # A local file system creates exclusively by a system call: asking in sequence is enough.
    races = [] if is_local else [f"{folder}/race-{number}" for number in range(1, RACE_ROUNDS + 1)]
    keys = [f"{folder}/sequence", *races]
    try:
        _probe(objects, keys)
    except BaseException:
        with contextlib.suppress(OmnigraphError):  # the first failure is the one to tell
            objects.delete(keys)
        raise
    objects.delete(keys)
    if root is not None and is_local:
        with contextlib.suppress(OSError):
            Path(root.uri(folder)).rmdir()


def _probe(objects: ObjectStore, keys: list[str]) -> None:
    sequence, *races = keys
    _check_sequence(objects, sequence)
    if not races:
        return
    # All races at once: a store that lets the losers of one wait lets those of all wait together.
    # The referees leave first: racers wait for each other, so nobody may be turned away while some are being started.
    with Threads(len(races) * RACE_THREADS) as pool, Threads(len(races)) as referees:
        list(referees.map(lambda key: _check_race(objects, key, pool), races))


def _check_sequence(objects: ObjectStore, key: str) -> None:
    """Put twice: the second must be refused and the first body must remain."""
    _creates(objects, key, b"first")
    if _creates(objects, key, b"second"):
        raise _unsafe("it accepted a second create-only put of the same object")
    if objects.get(key) != b"first":
        raise _unsafe("a refused create-only put changed the object")


def _check_race(objects: ObjectStore, key: str, pool: Threads) -> None:
    """Let threads create the same object at once: one must win, and its body must be the one stored."""
    start = threading.Barrier(RACE_THREADS)

    def contend(number: int) -> bytes | None:
        body = b"thread %d" % number
        start.wait()
        return body if _creates(objects, key, body) else None

    winners = [body for body in pool.map(contend, range(RACE_THREADS)) if body is not None]
    if len(winners) > 1:
        raise _unsafe(f"{len(winners)} of {RACE_THREADS} simultaneous create-only puts of one object succeeded")
    try:
        stored = objects.get(key)
    except ObjectNotFoundError:
        raise _unsafe("an object it accepted or reported as present is not there") from None
    # No winner but an object: the winner's answer was lost and its repetition met its own object. That is safe.
    if winners and stored != winners[0]:
        raise _unsafe("the object stored is not the one of the put that succeeded")


def _creates(objects: ObjectStore, key: str, body: bytes) -> bool:
    try:
        objects.put_if_absent(key, body)
    except ObjectExistsError:
        return False
    except StorageError as error:
        if error.facts.get("reason") == "unsupported":
            raise _unsafe("it does not know create-only puts") from error
        raise
    return True


def _unsafe(what: str) -> UnsafeStoreError:
    return UnsafeStoreError(f"this object store can not hold a graph: {what}; {_REMEDY}", observed=what)
