"""Fixtures every suite may use: one real S3 server per session, and how hard properties are tried."""

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from omnigraph.testing import on_s3
from omnigraph.testing.s3_server import SeaweedServer

ON_S3 = os.environ.get("OMNIGRAPH_TEST_STORE") == "s3"
ABOUT_FOLDERS = frozenset((Path(__file__).parent / "on_s3" / "local.txt").read_text(encoding="utf-8").split())

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
    if ON_S3:
        for item in items:
            if item.nodeid.partition("[")[0] in ABOUT_FOLDERS:
                item.add_marker(pytest.mark.skip(reason="is about a folder on a disk"))


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeaweedServer]:
    """The suite's S3 server; each xdist worker has its own."""
    with SeaweedServer(tmp_path_factory.mktemp("s3")) as server:
        server.create_bucket("omnigraph")
        yield server


@pytest.fixture(scope="session", autouse=ON_S3)
def _graphs_on_s3(s3_server: SeaweedServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Make every graph of the session on its S3 server, wherever a test says it should be."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in on_s3.settings(s3_server, tmp_path_factory.mktemp("ages") / "ages.jsonl").items():
            patch.setenv(name, value)
        on_s3.move_graphs()
        yield


@pytest.fixture(scope="session")
def _s3_numbers() -> Iterator[int]:
    return itertools.count(1)


@pytest.fixture
def s3_root(s3_server: SeaweedServer, _s3_numbers: Iterator[int]) -> Callable[[], str]:
    """Give a fresh ``s3://`` root at every call; pair it with ``s3_server.storage_options()``."""
    return lambda: s3_server.uri("omnigraph", f"test-{next(_s3_numbers):05}")
