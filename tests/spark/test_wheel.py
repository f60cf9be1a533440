"""The wheel where the sources are not: the start page, and jobs by spark-submit as the pages about platforms say.

Nothing is downloaded for it: environments get the wheel alone, and a line that leads to the packages of this one. A
minute, most of it for Java to start.
"""

import json
import os
import re
import socket
import subprocess
import sys
import sysconfig
import time
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark
import pytest
from pyarrow import parquet
from tests.guards.test_docs import COMMAND, Block, blocks
from tests.java import FOR_MINUTES
from tests.spark.installations import HOUSE, PIP, build_wheel

import omnigraph as og

DOCS = HOUSE / "docs"
SPARK_HOME = Path(pyspark.__file__).parent
SCHEMA = "node Person { name: String @key  age: I32? } edge Knows: Person -> Person"
WHERE = "import json, omnigraph, pyspark_omnigraph as p; print(json.dumps([omnigraph.__file__, p.__file__]))"

pytestmark = [pytest.mark.long]


@dataclass(frozen=True)
class Place:
    """A folder that is all a job gets to see of the world, with the wheel in it."""

    folder: Path
    wheel: Path

    @property
    def python(self) -> Path:
        """The Python of the environment that has the wheel."""
        return self.folder / "environment" / "bin" / "python"

    def run(self, *command: str, **environment: str) -> str:
        """Run a command in the folder, without anything that leads to the checkout; return what it printed."""
        done = subprocess.run(
            command, cwd=self.folder, env=clean(**environment), capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, " ".join(command) + "\n" + done.stdout[-2_000:] + done.stderr[-6_000:]
        return done.stdout

    def submitted(self, script: Block, **environment: str) -> dict[str, Any]:
        """Run the script of a page, with this folder for the bucket; return the line of JSON that the job printed."""
        text = script.body.replace("s3://BUCKET/omnigraph", str(self.folder)).replace("s3://BUCKET", str(self.folder))
        assert "BUCKET" not in text
        path = f"{SPARK_HOME / 'bin'}:{os.environ['PATH']}"
        said = self.run("bash", "-euc", text, PATH=path, SPARK_HOME=str(SPARK_HOME), **environment)
        return dict(json.loads(said.splitlines()[-1]))


def clean(**environment: str) -> dict[str, str]:
    ours = ("PYTHON", "PYSPARK", "SPARK", "VIRTUAL_ENV", "PYTEST", "OMNIGRAPH")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return kept | {"JAVA_TOOL_OPTIONS": FOR_MINUTES, "SPARK_LOCAL_IP": "127.0.0.1", **environment}


def page_block(page: str, file: str) -> Block:
    (found,) = (block for block in blocks(DOCS / page) if block.file == file)
    return found


def packages_of_this_environment(folder: Path) -> None:
    """Let an environment find what this one has, but not the checkout: such a line is not followed any further."""
    (site,) = folder.glob("lib/python3*/site-packages")
    (site / "rest.pth").write_text(sysconfig.get_path("purelib") + "\n")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """An environment made as the page about EMR says, but for where the dependencies come from."""
    folder = tmp_path_factory.mktemp("elsewhere")
    wheel = build_wheel(folder)
    assert page_block("guides/emr.md", "archive.sh").body.startswith("python3.11 -m venv --copies environment\n")
    venv.EnvBuilder(symlinks=False).create(folder / "environment")
    install = (*PIP, "--python", str(folder / "environment"), "install", "--no-deps", "--no-compile", str(wheel))
    subprocess.run(install, check=True)
    packages_of_this_environment(folder / "environment")
    return Place(folder, wheel)


@pytest.fixture(scope="module")
def files(place: Place) -> Place:
    """The files that jobs load, and what the pages say to put beside them."""
    parquet.write_table(
        pa.table({"name": ["Ann", "Bo"], "age": pa.array([41, None], pa.int32())}), place.folder / "people.parquet"
    )
    parquet.write_table(pa.table({"src": ["Ann"], "dst": ["Bo"]}), place.folder / "knows.parquet")
    loads = {page_block(page, "load.py").body for page in ("guides/emr.md", "guides/databricks.md")}
    assert len(loads) == 1
    (place.folder / "load.py").write_text(loads.pop())
    (place.folder / "emr.conf").write_text((HOUSE / "conf" / "spark" / "emr.conf").read_text())
    return place


@pytest.fixture
def root(files: Place) -> Iterator[Path]:
    graph = files.folder / "graph"
    og.init(graph, SCHEMA)
    yield graph
    graph.rename(files.folder / f"graph-{time.monotonic_ns()}")


def test_the_package_comes_from_the_wheel_and_not_from_the_sources(place: Place) -> None:
    found = json.loads(place.run(str(place.python), "-c", WHERE))
    assert all(Path(file).is_relative_to(place.folder / "environment") for file in found)
    assert not any(Path(file).is_relative_to(HOUSE) for file in found)
    assert "where to put the graph" in place.run(str(place.python), "-m", "pyspark_omnigraph.demo", "--help")


def test_the_start_page_runs_where_only_the_wheel_is(place: Place) -> None:
    page = DOCS / "start.md"
    code: list[str] = []
    for block in blocks(page):
        if block.file:
            (place.folder / block.file).write_text(block.body)
        elif block.language == "python":
            code.append(block.body)
        elif block.body.startswith(COMMAND):
            program = place.python.with_name("omnigraph")
            commands = [f"{program} {line.removeprefix(COMMAND)}" for line in block.body.splitlines()]
            code += [f"import subprocess; subprocess.run({command!r}, shell=True, check=True)" for command in commands]
    assert len(code) > 7
    (place.folder / "start.py").write_text("\n".join(code))
    said = place.run(str(place.python), "start.py")
    assert "one more person" in said
    assert og.open(place.folder / "people.omni").snapshot("review").count("Person") == 3


@contextmanager
def cluster(folder: Path) -> Iterator[str]:
    """Run a standalone cluster, a master and a worker in processes of their own; give the master's address."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    master = f"spark://127.0.0.1:{port}"
    program, common = str(SPARK_HOME / "bin" / "spark-class"), ("--host", "127.0.0.1", "--webui-port", "0")
    package = "org.apache.spark.deploy"
    commands = [
        (program, f"{package}.master.Master", *common, "--port", str(port)),
        (
            program,
            f"{package}.worker.Worker",
            *common,
            "--work-dir",
            str(folder / "work"),
            "--cores",
            "2",
            "--memory",
            "1g",
            master,
        ),
    ]
    logs = [folder / "master.log", folder / "worker.log"]
    running: list[subprocess.Popen[bytes]] = []
    try:
        for command, log in zip(commands, logs, strict=True):
            with log.open("wb") as told:
                running.append(
                    subprocess.Popen(
                        command, cwd=folder, env=clean(SPARK_HOME=str(SPARK_HOME)), stdout=told, stderr=told
                    )
                )
        wait_for(logs[1], "Successfully registered with master")
        yield master
    finally:
        for process in reversed(running):
            process.terminate()
            process.wait()


def wait_for(log: Path, words: str) -> None:
    deadline = time.monotonic() + 120
    while words not in log.read_text():
        assert time.monotonic() < deadline, log.read_text()[-4_000:]
        time.sleep(0.1)


def test_a_job_runs_with_the_archive_as_the_page_about_emr_says(files: Place, root: Path) -> None:
    last = page_block("guides/emr.md", "archive.sh").body.splitlines()[-1]
    assert last == "tar -czf environment.tar.gz -C environment ."
    files.run("bash", "-euc", last)
    submit = page_block("guides/emr.md", "submit.sh")
    # A standalone cluster runs no Python drivers; the driver runs here, beside an `environment` as it would on YARN.
    assert "--deploy-mode cluster " in submit.body
    with cluster(files.folder) as master:
        here = Block(
            submit.page,
            submit.line,
            submit.language,
            submit.file,
            submit.body.replace("--deploy-mode cluster", f"--master {master}"),
        )
        receipt = files.submitted(here)
        again = files.submitted(here)
    assert {key: table["rows_inserted"] for key, table in receipt["tables"].items()} == {
        "node:Person": 2,
        "edge:Knows": 1,
    }
    head = og.open(root).refresh()
    assert (head.id, head.version, head.message) == (receipt["commit"], 2, "nightly load")
    assert again["rerun"] is True
    unpacked = list((files.folder / "work").glob("*/*/environment/bin/python"))
    assert unpacked, "the executors have not used the archive"


def test_a_job_runs_with_one_file_where_the_dependencies_are_there(files: Place, root: Path) -> None:
    bare = files.folder / "bare"
    venv.EnvBuilder(symlinks=True).create(bare)
    packages_of_this_environment(bare)
    refused = subprocess.run(
        [str(bare / "bin" / "python"), "-c", "import omnigraph"], env=clean(), capture_output=True, check=False
    )
    assert b"No module named 'omnigraph'" in refused.stderr
    receipt = files.submitted(page_block("guides/emr.md", "pyfiles.sh"), PYSPARK_PYTHON=str(bare / "bin" / "python"))
    assert receipt["tables"]["node:Person"]["rows_inserted"] == 2
    assert og.open(root).refresh().id == receipt["commit"]


def test_the_jar_is_in_the_wheel_where_the_pages_say(place: Place) -> None:
    for page in ("guides/emr.md", "guides/databricks.md"):
        (member,) = re.findall(r"\S+\.jar", page_block(page, "jar.sh").body)
        listed = place.run(sys.executable, "-m", "zipfile", "-l", str(place.wheel))
        assert member in listed


def test_the_job_of_the_page_about_databricks_is_one(files: Place) -> None:
    job = json.loads(page_block("guides/databricks.md", "job.json").body)
    (task,) = job["tasks"]
    assert task["libraries"] == [{"whl": f"/Volumes/CATALOG/SCHEMA/VOLUME/{files.wheel.name}"}]
    asked = task["spark_python_task"]["parameters"]
    said = files.run(str(files.python), "load.py", "--help")
    assert all(option in said for option in asked if option.startswith("--"))
