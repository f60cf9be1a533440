"""A write under a fault: what its caller was told, and whether it is there."""

from dataclasses import dataclass
from typing import Literal

import omnigraph as og
from omnigraph.errors import CommitNotFoundError, CommitOutcomeUnknownError, OmnigraphError
from omnigraph.failpoints import FailpointError


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What the caller was told of a write."""

    outcome: Literal["applied", "refused", "unknown", "untyped"]
    commit: str | None = None
    error: BaseException | None = None


def write(graph: og.Graph, name: str) -> Told:
    """Write one person and one event, and say what we were told."""
    try:
        with graph.transaction(user_metadata=name) as tx:
            tx.append("Person", [{"name": name, "age": 2}])
            tx.append("Event", [{"what": name}])
    except CommitOutcomeUnknownError as unknown:
        return Told(outcome="unknown", commit=unknown.to_dict().get("commit"), error=unknown)
    except OmnigraphError as refused:
        return Told(outcome="refused", error=refused)
    except (Exception, FailpointError) as other:  # noqa: BLE001 - that there is none is what is tested
        return Told(outcome="untyped", error=other)
    return Told(outcome="applied", commit=tx.receipt.commit)


def visible(graph: og.Graph, name: str) -> bool:
    """Tell whether a write is there: as a whole, once, with its commit, or not at all."""
    snapshot = graph.snapshot()
    people = snapshot.read("Person").column("id").to_pylist().count(name)
    events = snapshot.read("Event").column("what").to_pylist().count(name)
    commits = [commit.user_metadata for commit in graph.log(limit=None)].count(name)
    assert people == events == commits <= 1, f"{people} people, {events} events, {commits} commits"
    return bool(people)


def is_commit(graph: og.Graph, commit: str) -> bool:
    try:
        graph.commit(commit)
    except CommitNotFoundError:
        return False
    return True
