"""The machine finds bugs: each one planted here turns it red."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from tests.properties.test_graph_machine import GraphMachine

from omnigraph.model.lineage import Branch, ForkPoint
from omnigraph.storage.manifest import Manifest, Reading

SEQUENCES = 600


def forgets_lineage(self: Branch) -> ForkPoint:
    """Plant: a fork that loses the history it was forked from."""
    return ForkPoint(commit=self.head, version=self.version, lineage=())


def sweeps_too_much(self: Manifest, landed: Reading, grace: object) -> tuple[int, int]:
    """Plant: a cleanup that takes an old file the newest version still names."""
    doomed = [f"__manifest/data/{span.file}" for span in landed.state.commit_spans[:1]]
    self._objects.delete(doomed)
    return len(doomed), 0


PLANTS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "a swap on a freed version is believed": lambda: patch("omnigraph.storage.manifest._believe", lambda landed: None),
    "a fork forgets its history": lambda: patch.object(Branch, "fork_point", property(forgets_lineage)),
    "cleanup takes a file that is needed": lambda: patch.object(Manifest, "_sweep", sweeps_too_much),
}


@pytest.mark.parametrize("plant", PLANTS)
def test_a_planted_bug_is_found(plant: str) -> None:
    with PLANTS[plant](), pytest.raises(BaseException) as found:
        run_state_machine_as_test(
            GraphMachine,
            settings=settings(
                max_examples=SEQUENCES,
                stateful_step_count=25,
                deadline=None,
                database=None,
                derandomize=True,  # a search that finds the bug today finds it tomorrow
                report_multiple_bugs=False,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            ),
        )
    assert not isinstance(found.value, KeyboardInterrupt | SystemExit)
