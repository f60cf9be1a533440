"""The commands that move whole files: `load` and `export`."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from omnigraph.cli import output
from omnigraph.cli.app import Actor, Json, Root, Storage, app, opened
from omnigraph.errors import InvalidOptionError

STANDARD_STREAM = "-"


@app.command()
def load(  # noqa: PLR0913  (a command has as many options as it has)
    root: Root,
    source: Annotated[str, typer.Argument(help="File, folder of Parquet files, or - for JSONL from standard input.")],
    mode: Annotated[str, typer.Option(help="append, merge or overwrite.")] = "append",
    branch: Annotated[str | None, typer.Option(help="Branch to load into; main unless said.")] = None,
    create_from: Annotated[
        str | None, typer.Option("--from", help="Branch, tag or commit to fork the branch from if it is missing.")
    ] = None,
    type_: Annotated[str | None, typer.Option("--type", help="Node or edge type the rows are of.")] = None,
    format_: Annotated[str | None, typer.Option("--format", help="jsonl, csv, parquet or arrow.")] = None,
    message: Annotated[str | None, typer.Option(help="Goes into the commit.")] = None,
    txn: Annotated[
        str | None, typer.Option(metavar="APP:VERSION", help="Makes a rerun with the same pair do nothing.")
    ] = None,
    actor: Actor = None,
    storage: Storage = None,
    as_json: Json = False,
) -> None:
    """Load a file as one commit."""
    with output.reporting(as_json), _bar("reading", quiet=as_json) as advance:
        graph = opened(root, storage, actor, write=True)
        done = graph.load(
            source,
            mode,
            branch,
            create_from=create_from,
            type=type_,
            format=format_,
            message=message,
            txn=_txn(txn),
            progress=lambda records, bytes, total: advance(bytes, total, f"{records:,} records"),
        )
    where = f"branch {done.branch}" + (f", made from {create_from}" if done.branch_created else "")
    title = f"loaded into {where}: {_commit(done.receipt)}"
    output.show(done.to_dict(), as_json, output.table(title, ("table", "rows"), list(done.rows.items())))


@app.command()
def export(  # noqa: PLR0913  (a command has as many options as it has)
    root: Root,
    target: Annotated[str, typer.Argument(help="File, folder for Parquet, or - for standard output.")],
    branch: Annotated[str | None, typer.Option(help="Branch to export; main unless said.")] = None,
    tag: Annotated[str | None, typer.Option(help="Tag to export.")] = None,
    commit: Annotated[str | None, typer.Option(help="Commit to export.")] = None,
    version: Annotated[int | None, typer.Option(help="Version along the branch.")] = None,
    timestamp: Annotated[str | None, typer.Option(help="Moment along the branch; UTC unless it says.")] = None,
    types: Annotated[list[str] | None, typer.Option("--type", help="Only this type; may be repeated.")] = None,
    format_: Annotated[str | None, typer.Option("--format", help="jsonl or parquet.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the target if it exists.")] = False,
    storage: Storage = None,
    as_json: Json = False,
) -> None:
    """Write the graph of one commit into files that load takes back."""
    with output.reporting(as_json), _bar("writing", quiet=as_json) as advance:
        done = opened(root, storage).export(
            target,
            branch,
            tag=tag,
            commit=commit,
            version=version,
            timestamp=timestamp,
            types=types,
            format=format_,
            overwrite=overwrite,
            progress=lambda rows, total: advance(rows, total, f"{rows:,} rows"),
        )
    if target == STANDARD_STREAM:
        return  # standard output holds the rows, and nothing else
    title = f"exported {done.branch}@{done.version} ({done.commit}) to {done.target}: {done.bytes:,} bytes"
    output.show(done.to_dict(), as_json, output.table(title, ("table", "rows"), list(done.rows.items())))


def _commit(receipt: Any) -> str:
    if receipt.rerun:
        return f"nothing, because it landed before as {receipt.commit}"
    return "nothing to do" if receipt.commit is None else f"version {receipt.version} ({receipt.commit})"


def _txn(text: str | None) -> tuple[str, int] | None:
    if text is None:
        return None
    name, colon, version = text.rpartition(":")
    if not colon or not name or not (version.isascii() and version.isdigit()):
        raise InvalidOptionError(f"--txn takes APP:VERSION such as nightly:7, not {text[:60]!r}")
    return name, int(version)


@contextmanager
def _bar(what: str, *, quiet: bool) -> Iterator[Callable[[int, int | None, str], None]]:
    """Draw how far a command has come, on standard error, if a person looks at it."""
    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield lambda done, total, said: None
        return
    columns = (TextColumn(what), BarColumn(), TextColumn("{task.fields[said]}"), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(what, total=None, said="")
        yield lambda done, total, said: progress.update(task, completed=done, total=total, said=said)
