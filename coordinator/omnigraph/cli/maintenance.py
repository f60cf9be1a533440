"""The commands of upkeep: clean up, compact, look whether all is well."""

from typing import Annotated

import typer

from omnigraph.cli import output
from omnigraph.cli.app import Actor, Confirm, Json, Root, Storage, app, opened

Deep = Annotated[bool, typer.Option("--deep", help="Read every row of every branch and tag.")]


@app.command()
def cleanup(  # noqa: PLR0913  (what a cleanup can be told is what its options are)
    root: Root,
    keep: Annotated[int | None, typer.Option(help="How many commits of each branch stay.", min=1)] = None,
    older_than: Annotated[str | None, typer.Option(help="Only commits older than this go, like 7d.")] = None,
    grace: Annotated[str, typer.Option(help="Files younger than this stay, like 12h.")] = "1d",
    confirm: Confirm = False,
    storage: Storage = None,
    as_json: Json = False,
) -> None:
    """Let old commits expire and remove files that nothing refers to; give --keep, --older-than, or both."""
    with output.reporting(as_json):
        graph = opened(root, storage, write=confirm)
        report = graph.cleanup(keep=keep, older_than=older_than, grace=grace, dry_run=not confirm)
        said = f"{len(report.expired)} commits, {report.files} files, {report.bytes} bytes"
        title = f"removed {said}" if confirm else f"would remove {said}; add --confirm to do it"
        rows = [*report.rows(), *((one.table, "", f"trouble: {one.reason}", "", "") for one in report.troubles)]
        draw = output.table(title, ("table", "kind", "why", "files", "bytes"), rows)
        output.show(report.to_dict(), as_json, draw)
        if report.troubles:
            raise typer.Exit(output.Exit.ERROR)


@app.command()
def optimize(  # noqa: PLR0913  (what it can be told is what its options are)
    root: Root,
    branch: Annotated[str, typer.Option(help="Branch to compact.")] = "main",
    type_: Annotated[list[str] | None, typer.Option("--type", help="Only this type; may be given again.")] = None,
    cluster: Annotated[bool, typer.Option("--cluster", help="Write edges in the order of their src.")] = False,
    actor: Actor = None,
    storage: Storage = None,
    as_json: Json = False,
) -> None:
    """Make few large fragments of small ones, keep their indexes, and let plain Lance readers see main."""
    with output.reporting(as_json):
        report = opened(root, storage, write=True).optimize(branch, types=type_, cluster=cluster, actor=actor)
        rows: list[tuple[object, ...]] = [
            (key, one.fragments_before, one.fragments_after, one.bytes_written, ", ".join(one.indexed))
            for key, one in report.tables.items()
        ]
        rows += [(one.table, "", "", "", f"trouble: {one.reason}") for one in report.troubles]
        title = f"{report.branch}@{report.version}  {report.commit}" if report.commit else "nothing to compact"
        columns = ("table", "fragments before", "after", "bytes written", "indexed")
        output.show(report.to_dict(), as_json, output.table(title, columns, rows))
        if report.troubles:
            raise typer.Exit(output.Exit.ERROR)


@app.command()
def verify(root: Root, deep: Deep = False, storage: Storage = None, as_json: Json = False) -> None:
    """Look whether all that commits refer to is there and whole; ends with 1 if something is damaged."""
    with output.reporting(as_json):
        report = opened(root, storage).verify(deep=deep)
        seen = f"{report.commits} commits, {report.versions} versions, {report.files} files"
        title = f"{'sound' if report.is_sound else 'damaged'}: {seen}" + (f", {report.rows} rows" if deep else "")
        rows = [(str(one.problem), one.table, one.held_by, one.message) for one in report.findings]
        draw = output.table(title, ("problem", "table", "held by", "message"), rows) if rows else output.line(title)
        output.show(report.to_dict(), as_json, draw)
        if not report.is_sound:
            raise typer.Exit(output.Exit.ERROR)
