"""What the commands that write have in common: options, and how they say what they did."""

from typing import Annotated, TypeAlias

import typer

from omnigraph.errors import InvalidOptionError
from omnigraph.model.receipt import Receipt

STANDARD_STREAM = "-"

Txn: TypeAlias = Annotated[
    str | None, typer.Option(metavar="APP:VERSION", help="Makes a rerun with the same pair do nothing.")
]
Constraints: TypeAlias = Annotated[
    str, typer.Option(metavar="MODE", help="What to do with rows that break constraints: fail, quarantine or off.")
]


def read_txn(text: str | None) -> tuple[str, int] | None:
    """Return an application's name and version."""
    if text is None:
        return None
    name, colon, version = text.rpartition(":")
    if not colon or not name or not (version.isascii() and version.isdigit()):
        raise InvalidOptionError(f"--txn takes APP:VERSION such as nightly:7, not {text[:60]!r}")
    return name, int(version)


def landed(receipt: Receipt) -> str:
    """Say what became of a write."""
    if receipt.rerun:
        return f"nothing, because it landed before as {receipt.commit}"
    return "nothing to do" if receipt.commit is None else f"version {receipt.version} ({receipt.commit})"
