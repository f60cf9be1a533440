"""Which engine runs a plan: the one in this process, or one with machines of its own if the rows are many."""

from omnigraph.engine.integrity import ENGINE
from omnigraph.engine.session import Session
from omnigraph.storage.relations import ClusterEngine, RelationalEngine


def cluster_for(session: Session, rows: int) -> ClusterEngine | None:
    """Return the engine with machines of its own, if there is one and so many rows are worth it."""
    cluster = session.cluster
    return cluster if cluster is not None and cluster.takes(rows) else None


def engine_for(session: Session, rows: int) -> RelationalEngine:
    """Return the engine that so many rows are given to."""
    cluster = cluster_for(session, rows)
    return ENGINE if cluster is None else cluster
