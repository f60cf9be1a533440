"""Sidecars in storage: `__recovery/<operation>.json`, empty in the steady state."""

from dataclasses import dataclass
from datetime import datetime

from omnigraph.errors import InvalidOptionError, ObjectExistsError, ObjectNotFoundError, StorageError
from omnigraph.ids import is_ulid
from omnigraph.model.sidecar import SIDECAR_BYTES_MAX, Sidecar
from omnigraph.observing import logger
from omnigraph.storage import layout
from omnigraph.storage.objects import ObjectStore

log = logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """A sidecar that is there: its name, and when it was written by the store's clock."""

    operation: str
    modified: datetime


class Sidecars:
    """The promises that have not been forgotten yet."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects

    def put(self, sidecar: Sidecar) -> None:
        """Make a promise durable."""
        key, body = layout.sidecar(sidecar.operation), sidecar.to_bytes()
        if len(body) > SIDECAR_BYTES_MAX:
            raise InvalidOptionError(
                f"nothing was applied: the write has too many files to promise ({len(body)} bytes, at most "
                f"{SIDECAR_BYTES_MAX}); write larger files, or in several transactions"
            )
        try:
            self._objects.put_if_absent(key, body)
        except ObjectExistsError:
            # A put whose answer was lost is repeated by the client and meets its own object.
            if self._objects.get(key) != body:
                raise

    def pending(self) -> list[Pending]:
        """List the promises, oldest first."""
        found = []
        for info in self._objects.list(layout.RECOVERY):
            name = info.key.removeprefix(layout.RECOVERY + "/")
            operation = name.removesuffix(layout.SIDECAR_SUFFIX)
            if operation != name and is_ulid(operation):
                found.append(Pending(operation=operation, modified=info.modified))
        return sorted(found, key=lambda pending: pending.operation)

    def read(self, operation: str) -> Sidecar | None:
        """Read a promise; one that was forgotten since it was listed is none."""
        key = layout.sidecar(operation)
        try:
            raw = self._objects.get(key)
        except ObjectNotFoundError:
            return None
        return Sidecar.from_bytes(raw, key)

    def exists(self, operation: str) -> bool:
        """Tell whether a promise is still there."""
        try:
            self._objects.head(layout.sidecar(operation))
        except ObjectNotFoundError:
            return False
        return True

    def delete(self, operation: str) -> None:
        """Forget a promise; one that is gone already is not an error."""
        self._objects.delete([layout.sidecar(operation)])

    def forget(self, operation: str) -> bool:
        """Forget a promise that is kept; the work is visible already, so failing is only a warning."""
        try:
            self.delete(operation)
        except StorageError as problem:
            log.warning("a sidecar was left behind", extra={"sidecar": operation, "reason": str(problem)})
            return False
        return True
