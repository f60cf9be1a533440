"""A process killed (-9) at random moments while it publishes on local disk, again and again, on one graph."""

import random
import time
from functools import partial
from pathlib import Path

import pytest
from tests.engine.crowd_kit import wait_until

import omnigraph as og
from omnigraph.testing.commits import bare_commit
from omnigraph.testing.worker import SCHEMA, Job, Order, start

pytestmark = pytest.mark.crash

ROUNDS = 12
DELAY_SECONDS_MAX = 0.15
COMMITS_WAITED_FOR = 4  # of these all but the last were acknowledged


def is_beyond(graph: og.Graph, version: int) -> bool:
    """Tell whether a version was published."""
    return graph.refresh().version >= version


@pytest.mark.parametrize("job", ["publish", "append"])
def test_kills_at_random_moments_lose_nothing_that_was_acknowledged(tmp_path: Path, job: Job) -> None:
    dice = random.Random(20261116)
    graph = og.init(tmp_path / "g.omni", SCHEMA)
    acknowledged: list[str] = []
    for number in range(ROUNDS):
        worker = start(Order(job=job, root=graph.root, times=10_000, wait=True))
        worker.ready()
        before = graph.refresh().version
        worker.go()
        if number % 2:  # a busy machine may need longer for the first commit than all others are given
            wait_until(partial(is_beyond, graph, before + COMMITS_WAITED_FOR), "too little was published")
        time.sleep(dice.random() * DELAY_SECONDS_MAX)
        worker.kill()
        acknowledged += [line["done"] for line in worker.acknowledged()]

        log = og.open(graph.root).log(limit=None)
        assert [commit.version for commit in log] == list(range(len(log), 0, -1))
        assert set(acknowledged) <= {commit.id for commit in log}
        # At most the one commit that was on its way when the process died may be there unannounced.
        assert len(log) - 1 <= len(acknowledged) + ROUNDS
    assert len(acknowledged) > ROUNDS, "the workers came to publish something"
    people = graph.snapshot().read("Person").column("id").to_pylist()
    assert len(people) == len(set(people)) == (len(graph.log(limit=None)) - 1 if job == "append" else 0)
    assert bare_commit(graph).version == len(graph.log(limit=None))
