"""Bringing peers here, each into a folder of its own, and talking to the processes they run in."""

import json
import os
import re
import select
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

HOUSE: Final = Path(__file__).resolve().parents[3]
PINS: Final = HOUSE / "conf" / "peers.txt"
PEERS: Final = HOUSE / "build" / "peers"
ANSWER_SECONDS_MAX: Final = 180
"""The longest act takes some ten seconds; a peer was seen to wait for itself for ever."""
WORKER: Final = Path(__file__).with_name("worker.py")
PLACES: Final = re.compile(r"\b\w+://[^\s'\"]+|(?<![\w.])/(?:[^\s:'\"]+/)+")


class NotToBeHadError(Exception):
    """A peer could not be brought here, or does not run here; the text says what failed."""


@dataclass(frozen=True, slots=True)
class Pinned:
    """What a peer needs."""

    packages: tuple[str, ...] = ()
    jars: tuple[str, ...] = ()

    @property
    def versions(self) -> dict[str, str]:
        """Return names and versions of what is pinned."""
        named = dict(each.split("==") for each in self.packages)
        return named | {each.split(":")[1]: each.split(":")[2] for each in self.jars}


def pinned(text: str) -> dict[str, Pinned]:
    """Read the pins of all peers."""
    found: dict[str, Pinned] = {}
    name = ""
    for line in (each.strip() for each in text.splitlines()):
        if line.startswith("["):
            name = line.strip("[]")
            found[name] = Pinned()
        elif line.startswith("jar:"):
            found[name] = Pinned(found[name].packages, (*found[name].jars, line.removeprefix("jar:").strip()))
        elif line and not line.startswith("#"):
            found[name] = Pinned((*found[name].packages, line), found[name].jars)
    return found


def without_places(text: str) -> str:
    """Return a message without addresses and folders, which are nobody's business."""
    return PLACES.sub("…", text)


def bring(name: str, needs: Pinned) -> Path | None:
    """Install a peer's packages, unless that was done for these very pins; return the folder."""
    if not needs.packages:
        return None
    folder, stamp = PEERS / name, PEERS / f"{name}.txt"
    wanted = "\n".join(needs.packages)
    if stamp.exists() and stamp.read_text() == wanted:
        return folder
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--upgrade", "--target", str(folder)]
    done = subprocess.run([*command, *needs.packages], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or ["pip failed"]
        raise NotToBeHadError(without_places(errors[-1]))
    stamp.write_text(wanted)
    return folder


@dataclass(slots=True)
class Process:
    """A contestant that runs, and what it said so far about each act."""

    name: str
    is_ours: bool
    running: "subprocess.Popen[str]"
    errors: Path
    seconds: dict[str, list[float]] = field(default_factory=dict)
    memory: dict[str, float] = field(default_factory=dict)
    sizes: dict[str, list[float]] = field(default_factory=dict)
    cannot: dict[str, str] = field(default_factory=dict)
    out: str = ""
    """Why it did not go on."""

    def ask(self, act: str, *given: object) -> dict[str, Any]:
        """Let it do one thing, and return what it says."""
        assert self.running.stdin is not None
        try:
            print(json.dumps({"act": act, "given": given}), file=self.running.stdin, flush=True)
        except BrokenPipeError:
            raise NotToBeHadError(f"{act}: {self.last_words()}") from None
        return self.heard(act)

    def heard(self, act: str) -> dict[str, Any]:
        """Return its next answer; who gives none for too long is ended."""
        assert self.running.stdout is not None
        if not select.select([self.running.stdout], [], [], ANSWER_SECONDS_MAX)[
            0
        ]:  # of an answer, all is there or none
            self.running.kill()
            raise NotToBeHadError(f"{act}: no answer within {ANSWER_SECONDS_MAX} seconds")
        line = self.running.stdout.readline()
        if not line:
            raise NotToBeHadError(f"{act}: {self.last_words()}")
        return dict(json.loads(line))

    def last_words(self) -> str:
        """Return what it ended with: the last line that names an error."""
        lines = [line.strip() for line in self.errors.read_text(errors="replace").splitlines() if line.strip()]
        causes = [line for line in lines if re.search(r"(Error|Exception)\b", line) and not line.startswith("at ")]
        return without_places((causes or lines or ["it ended"])[-1])[:400]

    def end(self) -> None:
        """Let it end."""
        self.running.stdin and self.running.stdin.close()
        try:
            self.running.wait(30)
        except subprocess.TimeoutExpired:
            self.running.kill()


def start(name: str, kind: str, folder: Path, needs: Pinned, *, is_ours: bool) -> Process:
    """Start a contestant's process with its own packages before all others; it says when it is ready."""
    own = bring(name, needs)
    folder.mkdir(parents=True)
    ours = (HOUSE, HOUSE / "coordinator", HOUSE / "connector")
    paths = ":".join(str(each) for each in ((own,) if own else ()) + ours)
    errors = folder.with_suffix(".errors")
    command = [sys.executable, str(WORKER), kind, str(folder), str(PEERS / "ivy"), *needs.jars]
    with errors.open("w") as said:
        running = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
            env={**os.environ, "PYTHONPATH": paths},
        )
    return Process(name, is_ours, running, errors)
