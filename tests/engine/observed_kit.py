"""What the tests of logs and of OpenTelemetry share."""

from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.failpoints import Failpoint, FailpointError
from omnigraph.testing.crash_writers import Arrival, planned

SCHEMA = "node Person { name: String @key  age: I32? }  edge Knows: Person -> Person"
ONE_RECORD = b'{"type":"Person","data":{"name":"l"}}\n'


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    graph = og.init(tmp_path / "g", SCHEMA)
    with graph.transaction() as tx:
        tx.append("Person", [{"name": f"p{n}", "age": n} for n in range(4)])
    return graph


def die(graph: og.Graph) -> None:
    """Leave the promise of a write that failed on the way."""
    plan = Arrival(Failpoint.AFTER_SIDECAR, 1).plan("raise")
    with planned(plan), pytest.raises(FailpointError), graph.transaction() as tx:
        tx.append("Person", [{"name": "dead"}])
