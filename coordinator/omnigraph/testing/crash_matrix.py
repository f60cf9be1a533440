"""The crash matrix: every failpoint, every writer, every fault, and every way to recover from it.

    python -m omnigraph.testing.crash_matrix --write docs/internals/crash-matrix.md

A story is something done to a graph: a writer's write, or the recovery of another's. Each of its arrivals at
a failpoint is made to fail once per fault; what is left of the graph is copied for each way to recover, and
judged by the oracle. Which failpoints a story comes by is found out by recording it once, unharmed.
"""

import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Literal, TypeAlias, get_args

import omnigraph as og
from omnigraph.engine.recovery import DISCARDED, ROLLED_BACK, ROLLED_FORWARD
from omnigraph.errors import OmnigraphError
from omnigraph.failpoints import Failpoint
from omnigraph.model.sidecar import Sidecar
from omnigraph.testing import crash_page, places
from omnigraph.testing.crash_oracle import Case, Expected, Seen, judge, judge_reopening, look
from omnigraph.testing.crash_page import Cell
from omnigraph.testing.crash_writers import (
    MERGE,
    OPEN,
    SIDE,
    WRITERS,
    Arrival,
    Fault,
    Order,
    Said,
    State,
    act_here,
    act_in_child,
    diverge,
    new_graph,
    recorded,
    state_of,
    write,
    write_next,
)

Who = Literal["next open", "next write", "two at once"]

NEXT = "Zoe"
FAULTS: tuple[Fault, ...] = get_args(Fault)
WHO: tuple[Who, ...] = get_args(Who)
RECOVERIES = {
    "recovery of sealed work": ROLLED_FORWARD,
    "recovery of published work": ROLLED_FORWARD,
    "recovery of work on a deleted branch": DISCARDED,
    "recovery of superseded work": ROLLED_BACK,
}
STORIES: tuple[str, ...] = (*WRITERS, *RECOVERIES)
WRITE_POINTS = frozenset(point for point in Failpoint if not point.startswith("recovery."))


class HarnessError(AssertionError):
    """The harness did not do what it says it does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """Something to be disturbed: what is done, to which graph, and what comes of it when nothing is in its way."""

    name: str
    job: str
    root: Path
    start: Seen
    before: State
    after: State
    arrivals: tuple[Arrival, ...]

    @property
    def is_write(self) -> bool:
        """Whether it is a write, and not a recovery."""
        return self.job != OPEN

    @property
    def promises(self) -> tuple[Sidecar, ...]:
        """What was promised before the story begins."""
        return self.start.promises

    def expected(self, arrival: Arrival, said: Said, crash: Seen) -> Expected:
        """Say what must come of a fault at an arrival."""
        if not self.is_write:
            kind = RECOVERIES[self.name]
            was_there = any(promise.commit in self.start.ids for promise in self.promises)
            return Expected(
                before=self.before,
                after=self.after,
                commits_before=len(self.start.commits) - was_there,
                applied=kind == ROLLED_FORWARD,
                audit=kind,
                left_behind=said != "acknowledged",
                published_by_writer=was_there,
            )
        place = self.arrivals.index(arrival)
        promised = place > self.arrivals.index(Arrival(Failpoint.BEFORE_SIDECAR, 1))
        forgotten = place >= self.arrivals.index(Arrival(Failpoint.AFTER_FORGET, 1)) or said == "acknowledged"
        return Expected(
            before=self.before,
            after=self.after,
            commits_before=len(self.start.commits),
            applied=promised,
            audit=ROLLED_FORWARD if promised and not forgotten else None,
            left_behind=promised and not forgotten,
            published_by_writer=any(promise.commit in crash.ids for promise in crash.promises),
        )


Disturb: TypeAlias = Callable[[Story, Path, og.Graph, Arrival, Fault], Said]
"""Tells a story to a graph, with a fault at an arrival; a handle is given that was open all along."""


class Bench:
    """A folder to crash graphs in."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = count(1)
        self._base: Path | None = None

    def copy(self, root: Path) -> Path:
        """Copy a graph, whatever state it is in."""
        return places.copy(root, self._folder / f"graph-{next(self._numbers):05}")

    def base(self) -> Path:
        """Give the graph every story begins with, in a fresh copy."""
        if self._base is None:
            self._base = self._folder / "base"
            new_graph(self._base)
        return self.copy(self._base)

    # -- stories ------------------------------------------------------------------------------------

    def story(self, name: str) -> Story:
        """Tell a story once, unharmed, and see where it comes by."""
        job = name if name in WRITERS else OPEN
        root = self.base() if job in WRITERS else self._left_behind(name)
        if name == MERGE:
            diverge(root)
        start = look(root)
        told = self.copy(root)
        before = state_of(og.open(root, read_only=True))
        with recorded() as arrivals:
            graph = og.open(told)
            if job in WRITERS:
                write(graph, job)
        missing = WRITE_POINTS - {arrival.point for arrival in arrivals} if job in WRITERS else ()
        if missing or not arrivals:
            raise HarnessError(f"{name} never comes by {sorted(missing)}")
        after = state_of(og.open(told, read_only=True))
        if (before == after) != (name not in WRITERS and name != "recovery of sealed work"):
            raise HarnessError(f"{name} does not do what it is called")
        return Story(name=name, job=job, root=root, start=start, before=before, after=after, arrivals=tuple(arrivals))

    def _left_behind(self, name: str) -> Path:
        """Make a graph in which a killed writer left a promise of one kind."""
        root = self.base()
        point = Failpoint.AFTER_SWAP if name == "recovery of published work" else Failpoint.AFTER_SEALS
        survivor = og.open(root)
        if name == "recovery of work on a deleted branch":
            survivor.branches.create(SIDE)
            act_in_child(Order(root=str(root), job="transaction", branch=SIDE), Arrival(point, 1))
            survivor.branches.delete(SIDE)
        elif name == "recovery of superseded work":
            act_in_child(Order(root=str(root), job="delete"), Arrival(point, 1))
            with places.without_promises(root):
                write_next(survivor, "Kim")
        else:
            act_in_child(Order(root=str(root), job="transaction"), Arrival(point, 1))
        return root

    # -- cells --------------------------------------------------------------------------------------

    def cells(self, story: Story, faults: tuple[Fault, ...] = FAULTS) -> Iterator[Cell]:
        """Run every cell of a story."""
        for arrival in story.arrivals:
            for fault in faults:
                yield from self.crash(story, arrival, fault)

    def crash(self, story: Story, arrival: Arrival, fault: Fault, disturb: Disturb | None = None) -> Iterator[Cell]:
        """Let one fault happen, and recover from it in every way; a story of other writers says how it is disturbed."""
        root = self.base()
        living = og.open(root)  # it was there before anything happened, and has seen nothing since
        places.copy(story.root, root)
        said = (disturb or _disturb)(story, root, living, arrival, fault)
        crash = look(root)
        case = Case(
            crash=crash,
            promises=story.promises or crash.promises,
            said=said,
            expected=story.expected(arrival, said, crash),
        )
        roots: dict[Who, Path] = {"next open": self.copy(root), "next write": root, "two at once": self.copy(root)}
        for who in WHO:
            wrong = _recovered(roots[who], who, living, case)
            seen = look(roots[who])
            yield Cell(
                story=story.name,
                arrival=str(arrival),
                fault=fault,
                who=who,
                applied=len(seen.commits) > case.expected.commits_before + 1,
                audit=", ".join(row.kind for row in seen.audit) or None,
                wrong=tuple(wrong),
            )
            places.remove(roots[who])


def _disturb(story: Story, root: Path, living: og.Graph, arrival: Arrival, fault: Fault) -> Said:
    if fault == "kill":
        return act_in_child(Order(root=str(root), job=story.job), arrival)
    if story.is_write:
        return act_here(partial(write, living, story.job), arrival, fault)
    return act_here(partial(og.open, root), arrival, fault)


def _recovered(root: Path, who: Who, living: og.Graph, case: Case) -> list[str]:
    """Recover, let the next writer write, open once more; return what was wrong on the way."""
    wrong = []
    try:
        if who == "next write":
            write_next(living, NEXT)
        else:
            wrong += _open_at_once(root, 2 if who == "two at once" else 1)
            wrong += judge(root, case)
            write_next(og.open(root), NEXT)
    except OmnigraphError as problem:
        wrong.append(f"life does not go on: {problem!r}")
    return wrong + judge(root, case, NEXT) + judge_reopening(root)


def _open_at_once(root: Path, handles: int) -> list[str]:
    """Open a graph, so that it is recovered, by several at the same moment."""
    barrier = threading.Barrier(handles)

    def recover() -> list[str]:
        barrier.wait()
        try:
            og.open(root).recover()
        except OmnigraphError as problem:
            return [f"a recovery failed: {problem!r}"]
        return []

    with ThreadPoolExecutor(handles) as pool:
        answers = [pool.submit(recover) for _ in range(handles)]
        return [text for answer in answers for text in answer.result()]


def main(arguments: list[str]) -> None:
    """Run the whole matrix and write its page."""
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder))
        sections = {name: list(bench.cells(bench.story(name))) for name in STORIES}
    for cell in (cell for cells in sections.values() for cell in cells if cell.wrong):
        print(cell, file=sys.stderr)
    page = crash_page.render(sections)
    if arguments[:1] == ["--write"]:
        Path(arguments[1]).write_text(page, encoding="utf-8")
        crash_page.write_summary(page)
    else:
        sys.stdout.write(page)


if __name__ == "__main__":
    main(sys.argv[1:])
