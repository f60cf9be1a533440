"""Commits without data, for tests and benchmarks of the manifest alone."""

from collections.abc import Mapping

from omnigraph.engine.changes import AddCommit
from omnigraph.engine.graph import Graph
from omnigraph.engine.session import Session
from omnigraph.ids import CommitId, TableId
from omnigraph.model.lineage import Commit
from omnigraph.model.tables import Pin
from omnigraph.rules.refs import Draft, branch_named


def session_of(graph: Graph) -> Session:
    """Return what the services of a graph share."""
    return graph._session  # noqa: SLF001 - the kit looks where users do not


def bare_commit(
    graph: Graph,
    branch: str = "main",
    *,
    commit: str | None = None,
    message: str | None = None,
    pins: Mapping[TableId, Pin] | None = None,
    stale: bool = False,
) -> Commit:
    """Publish a commit that writes no rows; ``pins`` lets it name versions that need not exist.

    ``stale`` begins from whatever the handle knew, like a writer that slept since.
    """
    session = session_of(graph)
    known = session.publisher.known if stale else None
    reading = known if known is not None and branch in known.state.branches else session.publisher.read()
    bound = branch_named(reading.state, branch)
    head = session.manifest.commit(session.manifest.read() if stale else reading, bound.head)
    draft = Draft(
        id=CommitId(commit or session.sources.mint()),
        branch=bound.name,
        incarnation=bound.incarnation,
        operation="test",
        schema_hash=head.commit.schema_hash if head is not None else "",
        pins=pins or {},
        message=message,
    )
    change = AddCommit(manifest=session.manifest, draft=draft, stamp=session.stamp())
    return session.publisher.publish(change)


def pins_for(graph: Graph, count: int) -> dict[TableId, Pin]:
    """Return pins of ``count`` tables, as large as real ones."""
    mint = session_of(graph).sources.mint
    tables = [TableId(mint()) for _ in range(count)]
    return {
        table: Pin(table=table, version=1, lance_version=2**63 + number, transaction=mint(), rows=1_000)
        for number, table in enumerate(tables)
    }
