"""What benchmarks share: figures beside their limits, children that do one thing, and how memory is measured."""

import json
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from rich.console import Console
from rich.table import Table

from omnigraph.storage.lance_cores import CORES_VARIABLE, RESERVATION_VARIABLE, cores

OUT_VARIABLE: Final = "OMNIGRAPH_BENCH_OUT"
"""A folder: if it is named, every benchmark also writes its figures there, as JSON."""
PACKAGES: Final = ("pylance", "pyarrow", "duckdb", "numpy", "obstore", "pyspark", "pandas")

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


@dataclass(frozen=True, slots=True)
class Ratio:
    """What an act costs us, beside what it costs a peer; a note says why there is nothing to compare."""

    group: str
    act: str
    peer: str
    ours: float | None
    theirs: float | None
    unit: str
    note: str = ""

    @property
    def ratio(self) -> float | None:
        """Ours by theirs, where both are more than nothing."""
        return self.ours / self.theirs if self.ours and self.theirs else None


def report(
    verdicts: Sequence[Verdict],
    ratios: Sequence[Ratio] = (),
    *,
    about: Sequence[str] = (),
    peers: Mapping[str, Mapping[str, str]] | None = None,
) -> None:
    """Print the figures and how they stand to their limits; write everything down where the variable says."""
    if verdicts:
        summary = Table(title="Against the limits", title_justify="left")
        for name in ("measure", "is", "limit", ""):
            summary.add_column(name, justify="left" if name == "measure" else "right")
        for one in verdicts:
            limit = "" if one.limit is None else f"{'≥' if one.least else '≤'} {one.limit:g}"
            said = "" if one.limit is None else "holds" if one.holds else "BROKEN"
            summary.add_row(one.what, f"{one.value:.2f}", limit, said)
        console.print(summary)
    if OUT_VARIABLE in os.environ:
        folder = Path(os.environ[OUT_VARIABLE])
        folder.mkdir(parents=True, exist_ok=True)
        whole = figures(verdicts, ratios, about=about, peers=peers or {})
        text = json.dumps(whole, indent=1, ensure_ascii=False)
        (folder / f"{whole['bench']}.json").write_text(text + "\n", encoding="utf-8")


def figures(
    verdicts: Sequence[Verdict],
    ratios: Sequence[Ratio],
    *,
    about: Sequence[str],
    peers: Mapping[str, Mapping[str, str]],
) -> dict[str, Any]:
    """Return all figures of the benchmark that runs, with what they were measured on; no names and no places."""
    title = (sys.modules["__main__"].__doc__ or "").strip().splitlines()[:1]
    return {
        "bench": Path(sys.argv[0]).stem,
        "title": title[0].partition(": `")[0].rstrip(".") if title else "",
        "day": time.strftime("%Y-%m-%d", time.gmtime()),
        "is_small": "--quick" in sys.argv,
        "about": list(about),
        "verdicts": [{**asdict(one), "holds": one.holds} for one in verdicts],
        "ratios": [{**asdict(one), "ratio": one.ratio} for one in ratios],
        "memory_mb": round(peak()),
        "machine": machine(),
        "versions": {name: metadata.version(name) for name in PACKAGES},
        "peers": {name: dict(each) for name, each in peers.items()},
    }


def machine() -> dict[str, str]:
    """Return what the machine is, and nothing by which it could be found."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    kilobytes = next(int(line.split()[1]) for line in lines if line.startswith("MemTotal:"))
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home) / "bin" / "java") if home else "java"
    try:
        said = subprocess.run([program, "-version"], capture_output=True, text=True, check=False).stderr
    except OSError:
        said = ""
    java = re.search(r'version "([^"]+)', said)
    return {
        "cores": str(cores()),
        "memory": f"{kilobytes / 2**20:.0f} GB",
        "system": f"{platform.system()} {platform.machine()}",
        "Python": platform.python_version(),
        "Java": java[1] if java else "none",
    }


def timed(act: Callable[[], object]) -> float:
    """Return how many seconds something takes."""
    begun = time.perf_counter()
    act()
    return time.perf_counter() - begun


AS_IT_COMES = {RESERVATION_VARIABLE: "2"}
"""What Lance does if nobody says otherwise; said, so that we do not."""
EVERY_CORE = {CORES_VARIABLE: str(cores())}


def child(bench: str, variables: dict[str, str] | None = None, **order: Any) -> "subprocess.Popen[str]":
    """Start a benchmark's file as a process that does one thing when it is told to go.

    What this process told Lance about cores is not handed on: each child says it for itself, or is told by variables.
    """
    command = [sys.executable, bench, "--child", json.dumps(order)]
    plain = {name: value for name, value in os.environ.items() if name not in (CORES_VARIABLE, RESERVATION_VARIABLE)}
    environment = {**plain, **(variables or {})}
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)


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
