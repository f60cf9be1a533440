"""What the demo prints: numbered steps in plain words, small tables, and how long each step took."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

INDENT: Final = "   "


@dataclass(frozen=True, kw_only=True)
class Done:
    """A step that has ended: what it was, how long it took, and the facts it found."""

    step: int
    title: str
    seconds: float
    facts: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {"step": self.step, "title": self.title, "seconds": round(self.seconds, 1), **self.facts}


class Teller:
    """Tells people what goes on; what it prints is text, never markup, since part of it comes from files."""

    def __init__(self, steps: int, *, quiet: bool = False) -> None:
        self.console = Console(highlight=False, quiet=quiet)
        self.steps = steps
        self.done: list[Done] = []
        self._status = self.console.status("")

    @contextmanager
    def step(self, title: str) -> Iterator[dict[str, Any]]:
        """Begin a step and take its time; what is put into the dictionary are its facts."""
        number, facts = len(self.done) + 1, dict[str, Any]()
        self.console.print()
        self.console.print(Text(f"{number} of {self.steps}  {title}", style="bold"), soft_wrap=True)
        began = time.monotonic()
        with self.console.status("") as self._status:  # what a terminal shows while it waits
            yield facts
        seconds = time.monotonic() - began
        self.done.append(Done(step=number, title=title, seconds=seconds, facts=facts))
        self.console.print(Text(f"{INDENT}{seconds:.1f} s", style="dim"))

    def doing(self, what: str) -> None:
        """Show on a terminal what is being waited for."""
        self._status.update(Text(f"{what} …"))

    def say(self, text: str) -> None:
        """Print one thing that happened."""
        self.console.print(Text(INDENT + text), soft_wrap=True)

    def quote(self, text: str) -> None:
        """Print what was run, as it was run."""
        for line in text.strip().splitlines():
            self.console.print(Text(f"{INDENT}> {line.strip()}", style="cyan"), soft_wrap=True)

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Print rows; a column of whole numbers stands on the right."""
        drawn = Table(header_style="bold", box=None, pad_edge=False)
        for position, column in enumerate(columns):
            are_numbers = bool(rows) and all(isinstance(row[position], int) for row in rows)
            drawn.add_column(column, justify="right" if are_numbers else "left", overflow="fold")
        for row in rows:
            drawn.add_row(*(Text(shown(cell)) for cell in row))
        self.console.print(Padding(drawn, (0, 0, 0, len(INDENT)), expand=False))

    def rule(self, title: str) -> None:
        """Print a line across, with a title."""
        self.console.print()
        self.console.rule(Text(title), align="left")


def shown(cell: object) -> str:
    """Return a value for people: thousands apart, nothing where there is nothing."""
    if cell is None:
        return "nothing"
    return f"{cell:,}" if isinstance(cell, int) and not isinstance(cell, bool) else str(cell)
