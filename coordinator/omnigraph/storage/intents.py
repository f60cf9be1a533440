"""Intents in storage: `__staging/<operation>/intent.json`, there as long as a write is being staged."""

from dataclasses import dataclass
from datetime import datetime

from omnigraph.errors import ObjectNotFoundError, StorageError
from omnigraph.ids import is_ulid
from omnigraph.model.intents import Intent
from omnigraph.observing import logger
from omnigraph.storage import layout
from omnigraph.storage.objects import ObjectStore

log = logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """An intent that is there, and when it was last written by the store's clock."""

    intent: Intent
    modified: datetime

    @property
    def since(self) -> datetime:
        """Files of its tables that are as young as this may be its own."""
        return self.modified - self.intent.lead


class Intents:
    """The writes that said they are being staged."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects

    def put(self, intent: Intent) -> None:
        """Say that a write is being staged, or say it anew."""
        self._objects.put(layout.intent(intent.operation), intent.to_bytes())

    def every(self) -> list[Staged]:
        """Return all of them, oldest first; one that can not be read is refused loudly."""
        found = []
        for info in self._objects.list(layout.STAGING):
            folder, _, name = info.key.removeprefix(layout.STAGING + "/").partition("/")
            if name != layout.INTENT or not is_ulid(folder):
                continue
            try:
                raw = self._objects.get(info.key)
            except ObjectNotFoundError:
                continue  # forgotten since it was listed
            found.append(Staged(intent=Intent.from_bytes(raw, info.key), modified=info.modified))
        return sorted(found, key=lambda staged: staged.intent.operation)

    def forget(self, operation: str) -> None:
        """Forget a write that is staged no more; failing is only a warning, because it forgets itself with time."""
        try:
            self._objects.delete([layout.intent(operation)])
        except StorageError as problem:
            log.warning("an intent was left behind", extra={"intent": operation, "reason": str(problem)})
