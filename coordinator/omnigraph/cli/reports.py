"""The commands that tell of a graph as a whole: its history, and the report."""

import sys
from typing import Annotated

import typer

from omnigraph.cli import output
from omnigraph.cli.app import Json, Root, Storage, app, opened
from omnigraph.errors import InvalidOptionError

DEFAULT = "omnigraph-report.html"
METRICS_SHOWN = {
    "numTargetRowsInserted": "inserted",
    "numTargetRowsUpdated": "updated",
    "numTargetRowsDeleted": "deleted",
    "executionTimeMs": "ms",
}


@app.command()
def history(
    root: Root,
    branch: Annotated[str | None, typer.Option(help="Branch to look at; main unless said.")] = None,
    limit: Annotated[int, typer.Option(help="How many commits at most.", min=1)] = 20,
    storage: Storage = None,
    as_json: Json = False,
) -> None:
    """Show a branch's commits, newest first, with what each did in numbers by the names that Delta uses."""
    with output.reporting(as_json):
        found = opened(root, storage).history(branch, limit=limit)
        rows = [
            (
                row.version,
                output.moment(row.timestamp),
                row.operation,
                row.actor,
                row.message,
                *(row.operation_metrics.get(name) for name in METRICS_SHOWN),
            )
            for row in found
        ]
        columns = ("version", "time (UTC)", "operation", "actor", "message", *METRICS_SHOWN.values())
        output.show(found.to_dict(), as_json, output.table(None, columns, rows))


@app.command()
def report(  # noqa: PLR0913  (a command has as many options as it has)
    root: Root,
    out: Annotated[str, typer.Option("--output", "-o", help="File to write, or - for the page itself.")] = DEFAULT,
    branch: Annotated[str | None, typer.Option(help="Branch it is about; main unless said.")] = None,
    diff: Annotated[
        list[str] | None,
        typer.Option(metavar="OLD..NEW", help="Compare two branches, tags or commits; or give it twice."),
    ] = None,
    merge: Annotated[str | None, typer.Option(help="Show what merging this would meet; nothing is merged.")] = None,
    into: Annotated[str | None, typer.Option("--into", help="Branch it would be merged into.")] = None,
    commits: Annotated[int, typer.Option(help="How many commits are drawn.", min=1)] = 100,
    storage: Storage = None,
    as_json: Json = False,
) -> None:
    """Write one HTML file about a graph: commits, branches, a diff, conflicts, schema, tables, indexes, recoveries."""
    with output.reporting(as_json):
        graph = opened(root, storage)
        made = graph.report(branch=branch, diff=_points(diff), merge=merge, into=into, commits=commits)
        if out == "-":
            sys.stdout.write(made.html)
            return
        path = made.save(out)
        facts = {"path": str(path), **made.to_dict()}
        output.show(facts, as_json, output.line(f"wrote {path} ({made.bytes:,} bytes)"))


def _points(given: list[str] | None) -> tuple[str, str] | None:
    """Return two points, given as `old..new` or one after the other."""
    if not given:
        return None
    points = given[0].split("..") if len(given) == 1 else given
    if len(points) != 2 or not all(points):
        raise InvalidOptionError("--diff takes OLD..NEW, such as main@2..review, or two of them")
    return points[0], points[1]
