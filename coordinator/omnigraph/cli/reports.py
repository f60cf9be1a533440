"""The commands that tell of a graph as a whole: its history, and the report."""

from typing import Annotated

import typer

from omnigraph.cli import output
from omnigraph.cli.app import Json, Root, Storage, app, opened

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
            (row.version, output.moment(row.timestamp), row.operation, row.actor, row.message)
            + tuple(row.operation_metrics.get(name) for name in METRICS_SHOWN)
            for row in found
        ]
        columns = ("version", "time (UTC)", "operation", "actor", "message", *METRICS_SHOWN.values())
        output.show(found.to_dict(), as_json, output.table(None, columns, rows))
