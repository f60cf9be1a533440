"""A process that does one thing to a graph and says so, made to be raced and killed.

It reads one JSON object from standard input, and prints one line of JSON for everything it was told
has happened. What is printed is acknowledged; a test that kills it knows what must be there.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, cast

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


@dataclass(slots=True)
class Worker:
    """A running worker, seen from the test."""

    process: "subprocess.Popen[str]"
    said: list[dict[str, Any]] = field(default_factory=list)

    def ready(self) -> None:
        """Wait until it has imported everything and opened the graph."""
        self._next("ready")

    def go(self) -> None:
        """Let a waiting worker begin."""
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        """End it the hard way."""
        self.process.send_signal(signal.SIGKILL)

    def acknowledged(self) -> list[dict[str, Any]]:
        """Wait for its end and return all it said was done."""
        out, err = self.process.communicate(timeout=300)
        self.said += [json.loads(line) for line in out.splitlines() if line.strip()]
        if self.process.returncode not in (0, -signal.SIGKILL):
            raise AssertionError(f"the worker ended with {self.process.returncode}:\n{err}")
        return [line for line in self.said if "ready" not in line]

    def _next(self, key: str) -> None:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError(f"the worker ended early: {self.process.stderr and self.process.stderr.read()}")
        assert key in json.loads(line)


def start(order: Order) -> Worker:
    """Start a worker in a process of its own."""
    process = subprocess.Popen(
        [sys.executable, "-m", "omnigraph.testing.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert process.stdin is not None
    process.stdin.write(json.dumps(asdict(order)) + "\n")
    process.stdin.flush()
    return Worker(process)


def main() -> None:
    """Carry out the order on standard input."""
    import omnigraph.engine.opening  # noqa: F401 - import before saying ready

    order = Order(**json.loads(sys.stdin.readline()))
    if order.wait:
        _say({"ready": True})
        sys.stdin.readline()
    for done in _carry_out(order):
        _say(done)


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


def _say(line: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def orders(job: str, root: str, count: int, **more: Any) -> list[Order]:
    """Return the same order for several workers."""
    return [Order(job=cast("Job", job), root=root, wait=True, **more) for _ in range(count)]


if __name__ == "__main__":
    main()
