"""A process that does one thing to a graph and says so, made to be raced and killed.

It says everything it was told has happened. What it has said is acknowledged; a test that kills it knows what must be
there.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Literal, cast

from omnigraph.testing.nursery import Child, bear

Job = Literal["init", "publish", "create-branch", "delete-branch", "rename-branch", "create-tag", "append"]

SCHEMA = "node Person { name: String @key }\nedge Knows: Person -> Person"


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What a worker shall do, and how often."""

    job: Job
    root: str
    storage_options: Mapping[str, str] | None = None
    name: str = "main"
    times: int = 1
    wait: bool = False


@dataclass(frozen=True, slots=True)
class Worker:
    """A running worker, seen from the test."""

    child: Child

    def ready(self) -> None:
        """Wait until it has imported everything."""
        assert "ready" in self.child.hear()

    def go(self) -> None:
        """Let a waiting worker begin."""
        self.child.tell("go")

    def kill(self) -> None:
        """End it the hard way."""
        self.child.kill()

    def acknowledged(self) -> list[dict[str, Any]]:
        """Wait for its end and return all it said was done."""
        code = self.child.ended()
        if code != 0 and not self.child.was_killed:
            raise AssertionError(f"the worker ended with {code}; what it printed says why")
        return self.child.heard


def start(order: Order) -> Worker:
    """Start a worker in a process of its own."""
    return Worker(bear(_work, order))


def _work(line: "Connection[Any, Any]", order: Order) -> None:
    if order.wait:
        line.send({"ready": True})
        line.recv()
    for done in _carry_out(order):
        line.send(done)


def _carry_out(order: Order) -> Iterator[dict[str, Any]]:
    import omnigraph
    from omnigraph.errors import OmnigraphError

    try:
        if order.job == "init":
            graph = omnigraph.init(order.root, SCHEMA, storage_options=order.storage_options, actor="worker")
            yield {"done": graph.refresh().id}
            return
        graph = omnigraph.open(order.root, storage_options=order.storage_options, actor="worker")
        for number in range(order.times):
            yield {"done": _do(graph, order, number)}
    except OmnigraphError as refused:
        yield {"refused": refused.code}


def _do(graph: Any, order: Order, number: int) -> str:
    from omnigraph.testing.commits import bare_commit

    match order.job:
        case "publish":
            return str(bare_commit(graph, order.name, message=f"{os.getpid()}-{number}").id)
        case "append":
            with graph.transaction(order.name) as tx:
                tx.append("Person", [{"name": f"{os.getpid()}-{number}"}])
            return str(tx.receipt.commit)
        case "create-branch":
            return str(graph.branches.create(order.name).incarnation)
        case "delete-branch":
            return str(graph.branches.delete(order.name).incarnation)
        case "rename-branch":
            return str(graph.branches.rename(order.name, order.name + "-new").incarnation)
        case "create-tag":
            return str(graph.tags.create(order.name).commit)
        case "init":
            raise AssertionError("init opens nothing")


def orders(job: str, root: str, count: int, **more: Any) -> list[Order]:
    """Return the same order for several workers."""
    return [Order(job=cast("Job", job), root=root, wait=True, **more) for _ in range(count)]
