"""The commands that move whole files: `load` and `export`."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from omnigraph.cli import output
from omnigraph.cli.app import Actor, Json, Root, Storage, app, opened
from omnigraph.cli.writes import STANDARD_STREAM, Constraints, Txn, landed, read_txn
from omnigraph.errors import InvalidOptionError
from omnigraph.model.schema import TableType

if TYPE_CHECKING:  # importing them takes longer than most commands
    import pyarrow as pa

    from omnigraph.engine.loading import LoadResult


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
    txn: Txn = None,
    constraints: Constraints = "fail",
    rejected: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Where the rows go that quarantine leaves out, as JSONL."),
    ] = None,
    actor: Actor = None,
    storage: Storage = None,
    as_json: Json = False,
) -> None:
    """Load a file as one commit."""
    with output.reporting(as_json), _keeping(rejected, constraints) as keep, _bar("reading", quiet=as_json) as advance:
        graph = opened(root, storage, actor, write=True)
        done = graph.load(
            source,
            mode,
            branch,
            create_from=create_from,
            type=type_,
            format=format_,
            message=message,
            txn=read_txn(txn),
            constraints=constraints,
            progress=lambda records, bytes, total: advance(bytes, total, f"{records:,} records"),
        )
        for kind in graph.snapshot(done.branch).catalog.table_types:
            if str(kind.table) in done.receipt.rejected:
                keep(kind, done.rejected(str(kind.table)))
    where = f"branch {done.branch}" + (f", made from {create_from}" if done.branch_created else "")
    title = f"loaded into {where}: {landed(done.receipt)}"
    output.show(done.to_dict(), as_json, output.table(title, *_counted(done)))


@contextmanager
def _keeping(file: str | None, constraints: str) -> "Iterator[Callable[[TableType, Iterable[pa.RecordBatch]], None]]":
    """Give what keeps rejected rows, in a file if there is to be one."""
    if file is None:
        yield lambda kind, rows: None
        return
    if constraints != "quarantine":
        raise InvalidOptionError("--rejected takes rows that were left out; add --constraints quarantine")
    from omnigraph.engine.rejected import rejected_file

    with rejected_file(file) as keep:
        yield keep


def _counted(done: "LoadResult") -> tuple[tuple[str, ...], list[tuple[object, ...]]]:
    """Return what a load did as a table: rows that were read for each type, and rows that were rejected, if any."""
    rejected = done.receipt.rejected
    if not rejected:
        return ("table", "rows"), list(done.rows.items())
    tables = dict.fromkeys([*done.rows, *rejected])
    reasons = {key: ", ".join(f"{why} ({n:,})" for why, n in each.reasons.items()) for key, each in rejected.items()}
    counts = {key: each.rows for key, each in rejected.items()}
    return ("table", "rows", "rejected", "because of"), [
        (key, done.rows.get(key, 0), counts.get(key, 0), reasons.get(key)) for key in tables
    ]


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
