"""Writers that gather while somebody else has the turn."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import omnigraph as og
from omnigraph.errors import OmnigraphError
from omnigraph.storage import turns
from omnigraph.testing.places import place


@dataclass(slots=True)
class Crowd:
    """Writers that all begin while somebody else has the turn."""

    root: str
    threads: list[threading.Thread] = field(default_factory=list)
    told: dict[str, "og.Receipt | Exception"] = field(default_factory=dict)

    def add(self, name: str, act: Callable[[Any], None], branch: str = "main", handle: og.Graph | None = None) -> None:
        """Start a writer and wait until its promise is there, and it waits for its turn."""

        def work() -> None:
            graph = handle or og.open(self.root)
            try:
                with graph.transaction(branch=branch, message=name, actor=f"actor-{name}") as tx:
                    act(tx)
                self.told[name] = tx.receipt
            except OmnigraphError as refused:
                self.told[name] = refused

        self.threads.append(threading.Thread(target=work))
        self.threads[-1].start()
        wait_until(lambda: len(self.promises) >= len(self.threads), f"{name} made no promise")
        wait_until(lambda: len(self.bells) >= len(self.threads), f"{name} does not wait for its turn")

    @property
    def promises(self) -> list[Path]:
        return list((place(self.root) / "__recovery").glob("*.json"))

    @property
    def bells(self) -> list[Path]:
        return list(turns._place(self.root).glob(f"*{turns.BELL}"))


@contextmanager
def crowd(graph: og.Graph) -> Iterator[Crowd]:
    """Hold the turn while writers gather; when the block ends they go, and are waited for."""
    gathered = Crowd(graph.root)
    with turns.turn(graph.root, "test"):
        yield gathered
    for thread in gathered.threads:
        thread.join()


def wait_until(holds: Callable[[], bool], otherwise: str) -> None:
    """Wait for something that must come soon."""
    given_up_at = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < given_up_at, otherwise
        time.sleep(0.005)
