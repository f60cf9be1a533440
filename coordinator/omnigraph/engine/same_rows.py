"""Publishing tables that hold the same rows as before in other versions: with indexes, or in fewer files."""

from collections.abc import Mapping

from omnigraph.engine.changes import AddCommit
from omnigraph.engine.session import Session
from omnigraph.ids import CommitId, TableId
from omnigraph.model.lineage import Branch, Commit
from omnigraph.model.tables import Pin
from omnigraph.rules.refs import Draft
from omnigraph.storage.lance_door import Sealed


def next_pin(pin: Pin, sealed: Sealed) -> Pin:
    """Return the pin of a table that was sealed anew."""
    return Pin(
        table=pin.table,
        version=pin.version + 1,
        lance_version=sealed.lance_version,
        transaction=sealed.transaction,
        rows=sealed.rows,
    )


def publish_same_rows(  # noqa: PLR0913  (a commit is said by all of these)
    session: Session,
    held: Branch,
    head: Commit,
    pins: Mapping[TableId, Pin],
    keys: Mapping[TableId, str],
    *,
    commit: CommitId,
    operation: str,
    actor: str | None,
    began: float,
    metrics: Mapping[str, Mapping[str, int]] | None = None,
) -> Commit:
    """Make new versions of some tables visible as one commit, or raise that a table has moved."""
    draft = Draft(
        id=commit,
        branch=held.name,
        incarnation=held.incarnation,
        operation=operation,
        schema_hash=head.schema_hash,
        base_schema=head.schema_hash,
        pins=pins,
        expected={table: head.pins[table] for table in pins},
        table_keys=keys,
        metrics=metrics or {},
    )
    change = AddCommit(manifest=session.manifest, draft=draft, stamp=session.stamp(actor, began))
    return session.publisher.publish(change)
