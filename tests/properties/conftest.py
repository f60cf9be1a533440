"""Random histories are short: what happens to small files after dozens of commits happens to them after three."""

from collections.abc import Iterator

import pytest

from omnigraph.rules import rollups


@pytest.fixture(scope="module", autouse=True)
def rolled_up_early() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rollups, "FAN", 3)
        patch.setattr(rollups, "LOOK_EVERY", 1)
        patch.setattr(rollups, "TIERS", (2, 6))
        yield
