"""Fixtures every suite may use: one real S3 server per session, and how hard properties are tried."""

import itertools
import os
from collections.abc import Callable, Iterator

import pytest
from hypothesis import HealthCheck, settings

from omnigraph.testing.s3_server import SeaweedServer

pytest.register_assert_rewrite("omnigraph.testing.object_contract")

settings.register_profile("quick", max_examples=50, deadline=None, print_blob=True, derandomize=False)
settings.register_profile(
    "deep",
    max_examples=2_000,
    deadline=None,
    print_blob=True,
    derandomize=False,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("deep" if os.environ.get("OMNIGRAPH_DEEP") == "1" else "quick")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start with what takes minutes, so that no process is left alone with it at the end."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeaweedServer]:
    """The suite's S3 server; each xdist worker has its own."""
    with SeaweedServer(tmp_path_factory.mktemp("s3")) as server:
        server.create_bucket("omnigraph")
        yield server


@pytest.fixture(scope="session")
def _s3_numbers() -> Iterator[int]:
    return itertools.count(1)


@pytest.fixture
def s3_root(s3_server: SeaweedServer, _s3_numbers: Iterator[int]) -> Callable[[], str]:
    """Give a fresh ``s3://`` root at every call; pair it with ``s3_server.storage_options()``."""
    return lambda: s3_server.uri("omnigraph", f"test-{next(_s3_numbers):05}")
