"""The page of all benchmarks: `python tests/bench/page.py FIGURES LOSSES PAGE` writes it from what they measured.

The same figures give the same page. A loss that nobody has explained is an error that names it.
"""

import json
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

NOISE: Final = 1.1
"""How much more than a peer's a figure of ours has to be to be called a loss: less is not told from the same."""
EXCEPT: Final = "peak memory"
"""What is told and not judged: small amounts, and as much the allocator's doing as ours."""
HEAD: Final = """# Benchmarks

This page is written by `make bench`, from the last run of each benchmark, all on one machine; `python3 dev.py
bench-page` is the same. Figures on a shared machine mean little by themselves, so everything is measured in turns with
something else in the same run, and ratios are what to look at. Less is better unless a limit says ≥.
"""
SMALL: Final = """> **These are figures of a small run**, made to see that everything works.
> They are not what to expect of real sizes.
"""
PEERS: Final = """## Beside what you would pick instead

{about}

Each contestant runs in a process of its own. All do the same on the same rows in turns, and after each act the rows of
all are compared with what they must be, value for value. Ours has every constraint of its schema on: ends of edges,
unique ids and values, ranges. No peer checks any of this.

The column of omnigraph has our figures. Those of a peer have the peer's, and then ours ÷ theirs: **bold** where we lose
by more than {noise:.0f} %. The end of the page says why.
"""
LOST: Final = """## Why we lose

Each figure above that is a tenth or more above a peer's, and each limit that did not hold.
"""


class UnexplainedError(Exception):
    """A loss that no explanation speaks of."""


@dataclass(frozen=True, slots=True)
class Loss:
    """A figure that is worse than another one, or than its limit."""

    bench: str
    what: str
    value: float


@dataclass(frozen=True, slots=True)
class Explained:
    """Why figures are lost, and what would change that; ``what`` may have wildcards."""

    bench: str
    what: tuple[str, ...]
    why: str
    closes: str

    def speaks_of(self, loss: Loss) -> bool:
        """Tell whether it is about this loss."""
        return self.bench == loss.bench and any(fnmatchcase(loss.what, each) for each in self.what)


def explanations(text: str) -> list[Explained]:
    """Read the hand-kept explanations."""
    found = tomllib.loads(text).get("loss", [])
    return [Explained(each["bench"], tuple(each["what"]), each["why"], each["closes"]) for each in found]


def losses(figures: Mapping[str, Any]) -> list[Loss]:
    """Return what one benchmark lost."""
    bench = str(figures["bench"])
    broken = [Loss(bench, one["what"], one["value"]) for one in figures["verdicts"] if not one["holds"]]
    worse = [Loss(bench, named(one), one["ratio"]) for one in figures["ratios"] if is_lost(one)]
    return broken + worse


def is_lost(one: Mapping[str, Any]) -> bool:
    """Tell whether a peer does better, by more than noise."""
    return one["ratio"] is not None and one["ratio"] > NOISE and not one["act"].startswith(EXCEPT)


def named(one: Mapping[str, Any]) -> str:
    """Return what a ratio is called."""
    return f"{one['group']}: {one['act']} ÷ {one['peer']}"


def page(all_figures: Sequence[Mapping[str, Any]], explained: Sequence[Explained]) -> str:
    """Return the page."""
    ordered = sorted(all_figures, key=lambda each: (not each["ratios"], each["bench"]))
    lost = [loss for each in ordered for loss in losses(each)]
    if unexplained := [loss for loss in lost if not any(each.speaks_of(loss) for each in explained)]:
        raise UnexplainedError(
            "no explanation in conf/bench-losses.toml speaks of: "
            + "; ".join(f"{loss.bench}, {loss.what} ({loss.value:.2f})" for loss in unexplained)
        )
    parts = [HEAD]
    if any(each["is_small"] for each in ordered):
        parts.append(SMALL)
    for each in ordered:
        parts += beside_peers(each) if each["ratios"] else against_limits(each)
    if lost:
        parts += [LOST, *told(lost, explained)]
    parts += ["## What it was measured on\n", *measured_on(ordered)]
    return "\n".join(parts)


def beside_peers(figures: Mapping[str, Any]) -> list[str]:
    """Return the part about peers: a table for each group, an act in each row and a peer in each column."""
    parts = [PEERS.format(about=" ".join(figures["about"]), noise=(NOISE - 1) * 100)]
    for group in dict.fromkeys(one["group"] for one in figures["ratios"]):
        rows = [one for one in figures["ratios"] if one["group"] == group]
        missing = [one for one in rows if one["ours"] is None]
        rows = [one for one in rows if one["ours"] is not None]
        peers = list(dict.fromkeys(one["peer"] for one in rows))
        cells = {(one["act"], one["peer"]): one for one in rows}
        lines = [
            [
                act,
                amount(cells[act, peers[0]]["ours"], cells[act, peers[0]]["unit"]),
                *(cell(cells[act, p]) for p in peers),
            ]
            for act in dict.fromkeys(one["act"] for one in rows)
        ]
        parts.append(f"### {group[0].upper()}{group[1:]}\n")
        if rows:
            parts.append(table(("", "omnigraph", *peers), lines))
        reasons = dict.fromkeys((one["peer"], one["act"], one["note"]) for one in rows if one["note"])
        parts += [f"* {peer}, {act}: {note}." for peer, act, note in reasons]
        parts += [f"* {one['peer']}: {one['note']}." for one in missing]
        parts.append("")
    return parts


def own(one: Mapping[str, Any]) -> str:
    """Return what we need."""
    return amount(one["ours"], one["unit"])


def cell(one: Mapping[str, Any]) -> str:
    """Return what a peer needs, and our share of it."""
    if one["theirs"] is None:
        return "not possible"
    ratio = "" if one["ratio"] is None else f", {one['ratio']:.2f}"
    bold = f", **{one['ratio']:.2f}**" if is_lost(one) else ratio
    return amount(one["theirs"], one["unit"]) + bold


def amount(value: float, unit: str) -> str:
    """Return a figure that can be read."""
    digits = 0 if value >= 100 else 1 if value >= 10 else 2 if value >= 1 else 3
    return f"{value:,.{digits}f} {unit}"


def against_limits(figures: Mapping[str, Any]) -> list[str]:
    """Return the part about one benchmark with limits."""
    lines = []
    for one in figures["verdicts"]:
        limit = "" if one["limit"] is None else f"{'≥' if one['least'] else '≤'} {one['limit']:g}"
        said = "" if one["limit"] is None else "holds" if one["holds"] else "**does not hold**"
        lines.append((one["what"], f"{one['value']:.2f}", limit, said))
    about = [f"{each}\n" for each in figures["about"]]
    heading = f"## {figures['bench'].capitalize()}: {figures['title'][:1].lower()}{figures['title'][1:]}\n"
    return [heading, *about, table(("measure", "is", "limit", ""), lines), ""]


def told(lost: Sequence[Loss], explained: Sequence[Explained]) -> Iterable[str]:
    """Yield each explanation that is needed, with all it speaks of."""
    for each in explained:
        mine = [loss for loss in lost if each.speaks_of(loss)]
        if mine:
            yield "\n".join(f"* {loss.bench}: {loss.what} is {loss.value:.2f}" for loss in mine) + "\n"
            yield f"{each.why.strip()} *What would close it:* {each.closes.strip()}\n"


def measured_on(ordered: Sequence[Mapping[str, Any]]) -> Iterable[str]:
    """Yield machines, versions and days; benchmarks of one run share a line."""
    seen: dict[str, list[str]] = {}
    for each in ordered:
        described = ", ".join(f"{name} {value}" for name, value in each["machine"].items())
        versions = ", ".join(f"{name} {value}" for name, value in each["versions"].items())
        seen.setdefault(f"{each['day']}: {described}; {versions}", []).append(each["bench"])
    for text, benches in seen.items():
        yield f"* {', '.join(benches)}: {text}."
    for each in ordered:
        for peer, versions in each["peers"].items():
            yield f"* {peer}: {', '.join(f'{name} {value}' for name, value in versions.items())}."
    yield (
        "* Peak memory of the benchmark's own process: "
        + ", ".join(f"{each['bench']} {each['memory_mb']:,} MB" for each in ordered if each["memory_mb"])
        + ".\n"
    )


def table(names: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Return a table; a bar in a cell does not end it."""
    rows = [names, ["---", *["---:"] * (len(names) - 1)], *lines]
    return "\n".join("| " + " | ".join(each.replace("|", "\\|") for each in row) + " |" for row in rows) + "\n"


def main() -> None:
    """Write the page, or say what is missing."""
    folder, losses_file, target = (Path(each) for each in sys.argv[1:4])
    every = [json.loads(file.read_text(encoding="utf-8")) for file in sorted(folder.glob("*.json"))]
    if not every:
        sys.exit("no benchmark has written figures yet")
    try:
        made = page(every, explanations(losses_file.read_text(encoding="utf-8")))
    except UnexplainedError as missing:
        sys.exit(str(missing))
    target.write_text(made, encoding="utf-8")


if __name__ == "__main__":
    main()
