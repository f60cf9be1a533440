"""One Spark session per test process, and graphs to read and write with it."""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.java import FOR_MINUTES

import omnigraph as og

SCHEMA = """
node Person { name: String @key  age: I32?  city: String? }
node Company { name: String @key }
edge Knows: Person -> Person { since: Date? }
edge WorksAt: Person -> Company @card(0..1)
"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests that need a session on one worker: a session costs half a minute and a gigabyte."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents and "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The session of this process: two cores, no pages, nothing but the loopback address."""
    place = tmp_path_factory.mktemp("spark")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        patch.delenv("PYTEST_CURRENT_TEST", raising=False)
        session = (
            SparkSession.builder.master("local[2,3]")  # a task is tried three times
            .appName("omnigraph tests")
            .config("spark.ui.enabled", "false")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.sql.session.timeZone", "UTC")
            .config("spark.sql.warehouse.dir", str(place / "warehouse"))
            .config("spark.local.dir", str(place / "local"))
            .config("spark.driver.memory", "1g")
            .config("spark.driver.extraJavaOptions", FOR_MINUTES)
            .getOrCreate()
        )
        session.sparkContext.setLogLevel("OFF" if not os.environ.get("OMNIGRAPH_SPARK_LOGS") else "WARN")
        yield session
        session.stop()


@pytest.fixture
def root(tmp_path: Path) -> str:
    """The root of a fresh graph with the schema above."""
    og.init(tmp_path / "g", SCHEMA)
    return str(tmp_path / "g")


@pytest.fixture
def rooted(tmp_path: Path) -> Callable[[str], str]:
    """Make a fresh graph of any schema."""

    def make(schema: str) -> str:
        og.init(tmp_path / "other", schema)
        return str(tmp_path / "other")

    return make
