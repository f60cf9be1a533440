"""The wheel on the Sparks that people have, classic and Connect: what works is what the guide's table says.

One environment is made for each Spark, by pip. CI runs the oldest Spark, and the newest through Connect; all other
tests run on the newest, classic. `OMNIGRAPH_SPARKS=all` asks for every column of the table.
"""

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.spark.core_paths import PATHS
from tests.spark.installations import HOUSE, Installation, Seen, build_wheel, pinned_spark

GUIDE = HOUSE / "docs" / "guides" / "spark.md"
HEADING = "## What works where\n"
NEWEST = pinned_spark()
SPARKS = ("4.0", "4.1", NEWEST)
CLASSIC, CONNECT = "classic", "Connect"
TABLE = [(spark, way) for spark in SPARKS for way in (CLASSIC, CONNECT)]
PLACES = TABLE if os.environ.get("OMNIGRAPH_SPARKS") == "all" else [("4.0", CLASSIC), (NEWEST, CONNECT)]
DIFFERENCES = {
    ("partial_inserts", "4.0"): "INCOMPATIBLE_DATA_FOR_TABLE",
    ("pinned", CONNECT): "one row became 4 pairs",
    ("descriptions", CONNECT): "the job is described as 'Spark Connect",
}
"""What does not work where, and the words it fails with."""

Place = tuple[str, str]

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark"), pytest.mark.timeout(3_600)]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[Place, Seen]]:
    """What every place saw."""
    folder = tmp_path_factory.mktemp("sparks")
    try:
        yield seen_everywhere(folder)
    finally:
        shutil.rmtree(folder)  # an environment is a gigabyte, and pytest keeps what it makes


def seen_everywhere(folder: Path) -> Mapping[Place, Seen]:
    """Make the environments and run the core paths in each place, two at a time."""
    wheel = build_wheel(folder)
    sparks = sorted({spark for spark, _ in PLACES})
    with ThreadPoolExecutor(2) as pool:
        made = dict(
            zip(sparks, pool.map(lambda spark: Installation.made(folder / spark, wheel, spark), sparks), strict=True)
        )
        runs = {
            (spark, way): pool.submit(made[spark].seen, folder / f"{spark}-{way}", is_connect=way == CONNECT)
            for spark, way in PLACES
        }
        return {place: run.result() for place, run in runs.items()}


def difference(path: str, place: Place) -> str | None:
    """Return the words that a path is known to fail with in a place."""
    found = [DIFFERENCES[path, each] for each in place if (path, each) in DIFFERENCES]
    return found[0] if found else None


@pytest.mark.parametrize(("spark", "way"), PLACES)
def test_it_is_the_wheel_on_that_spark(seen: Mapping[Place, Seen], spark: str, way: str) -> None:
    found = seen[spark, way]
    assert found.spark.startswith(spark + ".")
    assert (".connect." in found.session) == (way == CONNECT)
    assert re.search(rf"/{re.escape(spark)}/lib/python3\.\d+/site-packages/omnigraph/", found.package)
    assert not Path(found.package).is_relative_to(HOUSE)


@pytest.mark.parametrize("path", [path.__name__ for path in PATHS])
@pytest.mark.parametrize(("spark", "way"), PLACES)
def test_a_path_works_or_fails_as_it_is_known_to(seen: Mapping[Place, Seen], spark: str, way: str, path: str) -> None:
    failed, known = seen[spark, way].paths[path], difference(path, (spark, way))
    if known is None:
        assert failed is None, failed
    else:
        assert failed is not None, f"{path} works on {spark} {way} now: mend the table"
        assert known in failed


def test_the_table_of_the_guide_says_what_works_where() -> None:
    columns = [spark if way == CLASSIC else f"{spark} {CONNECT}" for spark, way in TABLE]
    rows = [["", *columns], ["---"] * (len(columns) + 1)]
    for path in PATHS:
        cells = ["yes" if difference(path.__name__, place) is None else "no" for place in TABLE]
        rows.append([(path.__doc__ or "").splitlines()[0].removesuffix("."), *cells])
    section = GUIDE.read_text(encoding="utf-8").partition(HEADING)[2]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    told = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert told == rows
