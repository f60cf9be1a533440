"""What the command line prints: tables for people, JSON for machines, and exit codes for both."""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from enum import IntEnum
from typing import Any, NoReturn, TextIO

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from omnigraph.errors import (
    AlreadyExistsError,
    ConflictError,
    ConstraintError,
    InvalidNameError,
    InvalidOptionError,
    NotFoundError,
    OmnigraphError,
    RecoveryRefusedError,
)


class Exit(IntEnum):
    """How a command ended."""

    DONE = 0
    ERROR = 1
    USAGE = 2
    NOT_FOUND = 3
    CONFLICT = 4
    VIOLATIONS = 5
    RECOVERY_REFUSED = 6


_EXITS: tuple[tuple[tuple[type[OmnigraphError], ...], Exit], ...] = (
    ((InvalidNameError, InvalidOptionError), Exit.USAGE),
    ((ConstraintError,), Exit.VIOLATIONS),
    ((NotFoundError,), Exit.NOT_FOUND),
    ((RecoveryRefusedError,), Exit.RECOVERY_REFUSED),
    ((ConflictError, AlreadyExistsError), Exit.CONFLICT),
)


def exit_code(error: OmnigraphError) -> Exit:
    """Return the exit code an error deserves."""
    return next((code for kinds, code in _EXITS if isinstance(error, kinds)), Exit.ERROR)


@contextmanager
def reporting(as_json: bool) -> Iterator[None]:
    """Turn our errors into a message and an exit code; anything else is a bug and keeps its traceback."""
    try:
        yield
    except OmnigraphError as error:
        stop(error, as_json)


def stop(error: OmnigraphError, as_json: bool) -> NoReturn:
    """Print an error and end with its exit code."""
    if as_json:
        sys.stderr.write(_json(error.to_dict(), sys.stderr) + "\n")
    else:
        Console(stderr=True, highlight=False).print(Text(str(error), style="red"), soft_wrap=True)
    raise typer.Exit(exit_code(error))


def show(value: Any, as_json: bool, draw: Callable[[Console], None]) -> None:
    """Print a value as JSON, or let it be drawn."""
    if as_json:
        sys.stdout.write(_json(value, sys.stdout) + "\n")
    else:
        draw(Console(highlight=False))


def _json(value: Any, stream: TextIO) -> str:
    """Return JSON in letters the stream can carry: escapes are JSON too."""
    is_unicode = (stream.encoding or "").lower().startswith("utf")
    return json.dumps(value, default=str, ensure_ascii=not is_unicode)


def table(title: str | None, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> Callable[[Console], None]:
    """Return a drawing of rows; what comes from the graph is printed as text, never as markup."""
    drawn = Table(header_style="bold", box=None, pad_edge=False)
    for column in columns:
        drawn.add_column(
            column,
            justify="right" if column in ("version", "rows") else "left",
            overflow="fold",
            no_wrap=column in ("commit", "head"),  # ids are copied by hand
        )
    for row in rows:
        drawn.add_row(*(Text("" if cell is None else str(cell)) for cell in row))

    def draw(console: Console) -> None:
        if title is not None:
            console.print(Text(title, style="bold"), soft_wrap=True)
        console.print(drawn)

    return draw


def line(text: str) -> Callable[[Console], None]:
    """Return a drawing of one line."""
    return lambda console: console.print(Text(text), soft_wrap=True)


def moment(value: datetime) -> str:
    """Return a time for people: to the second, in UTC."""
    return value.strftime("%Y-%m-%d %H:%M:%S")
