"""What the services of one open graph share."""

from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from omnigraph.engine.publisher import Publisher
from omnigraph.errors import ReadOnlyError
from omnigraph.ids import Sources, TableId
from omnigraph.observing import Seen, observed
from omnigraph.rules.refs import Stamp
from omnigraph.rules.who import check_actor
from omnigraph.storage.audit import Audit
from omnigraph.storage.intents import Intents
from omnigraph.storage.lance_door import Tables
from omnigraph.storage.lance_indexing import Indexes
from omnigraph.storage.manifest import Manifest
from omnigraph.storage.objects import ObjectStore
from omnigraph.storage.relations import ClusterEngine
from omnigraph.storage.roots import GraphRoot
from omnigraph.storage.shared import SharedTransactions
from omnigraph.storage.sidecars import Sidecars
from omnigraph.storage.staging import Staging
from omnigraph.storage.turns import Shelf


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One open graph: where it is, how it may be used, who uses it."""

    root: GraphRoot
    manifest: Manifest
    publisher: Publisher
    tables: Tables
    staging: Staging
    indexes: Indexes
    sidecars: Sidecars
    intents: Intents
    shared: SharedTransactions
    audit: Audit
    objects: ObjectStore
    sources: Sources
    shelf: Shelf
    actor: str | None
    read_only: bool
    cluster: ClusterEngine | None = None
    """An engine with machines of its own, for what is too much for this process."""
    crowded: set[TableId] = field(default_factory=set)
    """Tables that others wrote while a write of ours waited for its turn, last time."""

    def writable(self) -> None:
        """Refuse if the graph was opened read-only."""
        if self.read_only:
            raise ReadOnlyError("this graph was opened read-only; open it without read_only to change it")

    def observed(self, operation: str, branch: str | None = None, **more: Any) -> AbstractContextManager[Seen]:
        """Observe what is done in a block as one operation on this graph."""
        return observed(operation, self.root, branch, **more)

    def stamp(self, actor: str | None = None, began: float | None = None) -> Stamp:
        """Return who does something now, and when; ``began`` is what the monotonic clock said when it was begun."""
        who = check_actor(actor) if actor is not None else self.actor
        took = None if began is None else max(0, round((self.sources.monotonic() - began) * 1000))
        return Stamp(actor=who, at=self.sources.now(), took_ms=took)
