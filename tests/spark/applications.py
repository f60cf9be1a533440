"""Spark applications in processes of their own, which may be killed; tests start them and wait for them."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from py4j.java_gateway import JavaGateway
from pyspark.sql import SparkSession

from omnigraph.failpoints import ENABLE_VARIABLE, POINTS_VARIABLE

HOUSE = Path(__file__).parents[2]
PATIENCE_SECONDS = 300.0
POLL_SECONDS = 0.05


def wait_until(is_so: Callable[[], bool], what: str, may_be: Callable[[], bool] = lambda: True) -> None:
    """Wait for something that is bound to happen; give up only when it clearly never will."""
    given_up_at = time.monotonic() + PATIENCE_SECONDS
    while not is_so():
        assert may_be() and time.monotonic() < given_up_at, f"waited in vain: {what}"
        time.sleep(POLL_SECONDS)


def java_of(spark: SparkSession) -> dict[str, str]:
    """Return the variables with which a driver uses the Java process of another one, as notebooks do."""
    gateway = spark.sparkContext._gateway
    assert isinstance(gateway, JavaGateway)
    known = gateway.gateway_parameters
    return {"PYSPARK_GATEWAY_PORT": str(known.port), "PYSPARK_GATEWAY_SECRET": known.auth_token}


class Application:
    """A driver, and all that it starts: they are the processes of one session, in the sense of the system."""

    def __init__(self, folder: Path, *arguments: str, failpoints: str = "", java: dict[str, str] | None = None) -> None:
        self._output = folder / f"application-{time.monotonic_ns()}.txt"
        variables = {
            ENABLE_VARIABLE: "1",
            POINTS_VARIABLE: failpoints,
            "PYTHONPATH": os.pathsep.join(filter(None, [str(HOUSE), os.environ.get("PYTHONPATH", "")])),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(folder / "local"),
        }
        with self._output.open("wb") as output:
            self._driver = subprocess.Popen(
                [sys.executable, "-m", *arguments],
                env=os.environ | variables | (java or {}),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=folder,
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self.processes():
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        self._driver.wait()

    @property
    def said(self) -> str:
        """All that it has printed so far."""
        return self._output.read_text(encoding="utf-8", errors="replace")

    def is_alive(self) -> bool:
        """Tell whether the driver is running."""
        return self._driver.poll() is None

    def ended(self) -> int:
        """Wait for the driver and return how it ended; less than zero is a signal."""
        return self._driver.wait(PATIENCE_SECONDS)

    def processes(self) -> list[int]:
        """Return the processes that are left of it: its driver, its Java, its workers."""
        known = [entry for entry in Path("/proc").iterdir() if entry.name.isdecimal()]
        return [int(entry.name) for entry in known if _session_of(entry) == self._driver.pid]

    def gone(self) -> None:
        """Wait until no process is left of it; without a driver, none has anything to live for."""
        wait_until(lambda: not self.processes(), f"some of {self.processes()} to end")

    def kill(self) -> None:
        """Kill the driver's whole process group; its Java is in it, Python workers have a group of their own."""
        os.killpg(self._driver.pid, signal.SIGKILL)


def _session_of(entry: Path) -> int | None:
    """Return the session of a process that lives."""
    try:
        state, _, _, session = (entry / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[:4]
    except OSError:
        return None  # it has ended while we looked
    return None if state == "Z" else int(session)
