"""What benchmarks share: figures beside their limits, children that do one thing, and how memory is measured."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from rich.console import Console
from rich.table import Table

console = Console(highlight=False, width=130)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One figure beside its limit; ``least`` turns the limit into a lower one."""

    what: str
    value: float
    limit: float | None = None
    least: bool = False

    @property
    def holds(self) -> bool:
        """Whether the limit is kept; a figure without one always is."""
        if self.limit is None:
            return True
        return self.value >= self.limit if self.least else self.value <= self.limit


def report(verdicts: list[Verdict]) -> None:
    """Print the figures and how they stand to their limits."""
    summary = Table(title="Against the limits", title_justify="left")
    for name in ("measure", "is", "limit", ""):
        summary.add_column(name, justify="left" if name == "measure" else "right")
    for one in verdicts:
        limit = "" if one.limit is None else f"{'≥' if one.least else '≤'} {one.limit:g}"
        said = "" if one.limit is None else "holds" if one.holds else "BROKEN"
        summary.add_row(one.what, f"{one.value:.2f}", limit, said)
    console.print(summary)


def timed(act: Callable[[], object]) -> float:
    """Return how many seconds something takes."""
    begun = time.perf_counter()
    act()
    return time.perf_counter() - begun


def child(bench: str, **order: Any) -> "subprocess.Popen[str]":
    """Start a benchmark's file as a process that does one thing when it is told to go."""
    command = [sys.executable, bench, "--child", json.dumps(order)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def answer(process: "subprocess.Popen[str]") -> dict[str, Any]:
    """Let a child that is ready go, and return what it says."""
    out, _ = process.communicate("go\n")
    assert process.returncode == 0, "a child failed"
    return dict(json.loads(out.splitlines()[-1]))


def be_a_child(act: Callable[[], object]) -> None:
    """Wait, do one thing, and say how long it took, how much memory, and what came out."""
    before = peak(reset=True)
    print("ready", flush=True)
    sys.stdin.readline()
    begun = time.perf_counter()
    result = act()
    seconds = time.perf_counter() - begun
    rows = result if isinstance(result, int) else None
    print(json.dumps({"seconds": seconds, "before": before, "peak": peak(), "rows": rows}), flush=True)


def peak(reset: bool = False) -> float:
    """Return this process's peak memory in MB; not the kernel's accounting, which counts a parent's too."""
    if reset:
        pa.default_memory_pool().release_unused()
        Path("/proc/self/clear_refs").write_text("5")
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024
