"""An object store in memory, for tests that are not about storage."""

import threading
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime

from omnigraph.errors import InvalidNameError, ObjectExistsError, ObjectNotFoundError
from omnigraph.storage.objects import ObjectInfo, check_prefix
from omnigraph.storage.roots import check_key

__all__ = ["MemoryObjects"]


def _utc_now() -> datetime:
    return datetime.now(UTC)


class MemoryObjects:
    """Objects of one process; passes the same contract as the real store."""

    def __init__(self, now: Callable[[], datetime] = _utc_now) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._objects: dict[str, tuple[bytes, datetime]] = {}

    def put(self, key: str, data: bytes) -> None:
        """Store ``data`` whole under ``key``, replacing what was there."""
        check_key(key)
        with self._lock:
            self._objects[key] = (bytes(data), self._now())

    def put_if_absent(self, key: str, data: bytes) -> None:
        """Store ``data`` if the key is free, else raise ObjectExistsError; of several callers one wins."""
        check_key(key)
        with self._lock:
            if key in self._objects:
                raise ObjectExistsError(f"{key!r} exists already", operation="put", key=key)
            self._objects[key] = (bytes(data), self._now())

    def get(self, key: str) -> bytes:
        """Return the whole object, or raise ObjectNotFoundError."""
        return self._found("get", key)[0]

    def head(self, key: str) -> ObjectInfo:
        """Return size and time of the object, or raise ObjectNotFoundError."""
        data, modified = self._found("head", key)
        return ObjectInfo(key=key, size=len(data), modified=modified)

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Yield every object below the folder ``prefix``; a missing one yields nothing."""
        folder = check_prefix(prefix)
        start = f"{folder}/" if folder else ""
        with self._lock:
            found = [(key, *value) for key, value in self._objects.items() if key.startswith(start)]
        return (ObjectInfo(key=key, size=len(data), modified=modified) for key, data, modified in found)

    def delete(self, keys: Iterable[str]) -> None:
        """Remove the objects; those that are missing are not an error."""
        if isinstance(keys, str):
            raise InvalidNameError("delete takes several keys, not one string", key=keys)
        for key in keys:
            check_key(key)
            with self._lock:
                self._objects.pop(key, None)

    def _found(self, operation: str, key: str) -> tuple[bytes, datetime]:
        check_key(key)
        with self._lock:
            if key not in self._objects:
                raise ObjectNotFoundError(f"there is no object {key!r}", operation=operation, key=key)
            return self._objects[key]
