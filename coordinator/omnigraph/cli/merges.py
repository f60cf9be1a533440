"""The commands that compare and merge."""

from typing import Annotated, Any

import typer
from rich.console import Console

from omnigraph.cli import output
from omnigraph.cli.app import Actor, Json, Name, Root, Storage, app, branch_app, opened
from omnigraph.errors import InvalidOptionError, MergeConflictsError
from omnigraph.model.merges import Conflict, MergedTable, MergeResult, Outcome

ROWS_SHOWN = 50
VALUE_CHARACTERS_MAX = 80


@app.command()
def diff(  # noqa: PLR0913  (a command has as many options as it has)
    root: Root,
    old: Annotated[str, typer.Argument(help="Branch, tag, commit or BRANCH@VERSION.", show_default=False)],
    new: Annotated[str, typer.Argument(help="The same; what became of the first.", show_default=False)],
    type_: Annotated[str | None, typer.Option("--type", help="Show the rows of this type.")] = None,
    limit: Annotated[int, typer.Option(help="How many rows at most.", min=1)] = ROWS_SHOWN,
    storage: Storage = None,
    as_json: Json = False,
) -> None:
    """Show which rows were inserted, updated and deleted between two commits."""
    with output.reporting(as_json):
        found = opened(root, storage).diff(old, new)
        if type_ is None:
            facts = found.to_dict()
            rows = [(key, each.inserted, each.updated, each.deleted) for key, each in found.tables.items()]
            draw = output.table(None, ("table", "inserted", "updated", "deleted"), rows)
            output.show(facts, as_json, draw if rows else output.line("nothing differs"))
            return
        changes = _some(found.rows(type_), limit)
        shown = [(row["change"], row["id"], *_images(row)) for row in changes]
        draw = output.table(None, ("change", "id", "before", "after"), shown)
        output.show({**found.to_dict(), "rows": changes}, as_json, draw)


@branch_app.command("merge")
def branch_merge(  # noqa: PLR0913  (the same)
    root: Root,
    source: Name,
    into: Annotated[str, typer.Option("--into", help="Branch to merge into.")] = "main",
    policy: Annotated[
        list[str] | None,
        typer.Option(metavar="[TYPE=]POLICY", help="fail, ours, theirs or cell; for one type or for all. Repeatable."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would happen.")] = False,
    delete_source: Annotated[
        bool, typer.Option("--delete-source", help="Delete the branch once it is merged.")
    ] = False,
    message: Annotated[str | None, typer.Option(help="Goes into the commit.")] = None,
    actor: Actor = None,
    storage: Storage = None,
    as_json: Json = False,
) -> None:
    """Merge a branch into another, row by row, as one commit."""
    with output.reporting(as_json):
        graph = opened(root, storage, actor, write=not dry_run)
        chosen = _policies(policy)
        try:
            result = graph.branches.merge(
                source, into, policy=chosen, dry_run=dry_run, delete_source=delete_source, message=message, actor=actor
            )
        except MergeConflictsError as refused:
            if not as_json:
                _conflicts(refused.conflicts)(Console(stderr=True, highlight=False))
            raise
        output.show(result.to_dict(), as_json, _drawn(result))
        if result.outcome is Outcome.CONFLICTS:
            raise typer.Exit(output.Exit.CONFLICT)


def _policies(given: list[str] | None) -> dict[str, str]:
    chosen: dict[str, str] = {}
    for text in given or ["fail"]:
        name, equals, policy = text.rpartition("=")
        if equals and not name:
            raise InvalidOptionError(f"--policy takes POLICY or TYPE=POLICY, not {text[:60]!r}")
        chosen[name or "*"] = policy
    return chosen


def _drawn(result: MergeResult) -> Any:
    def draw(console: Console) -> None:
        output.line(_said(result))(console)
        if result.tables:
            rows = [(key, *_counts(table)) for key, table in result.tables.items()]
            output.table(None, ("table", "inserted", "updated", "deleted"), rows)(console)
        if result.conflicts:
            _conflicts(result.conflicts)(console)

    return draw


def _said(result: MergeResult) -> str:
    what = f"{result.source} into {result.target}"
    would = "would be " if result.dry_run else ""
    match result.outcome:
        case Outcome.ALREADY_UP_TO_DATE:
            text = f"{what}: already up to date"
        case Outcome.CONFLICTS:
            total = sum(number for counts in result.conflict_counts.values() for number in counts.values())
            text = f"{what}: {total} conflicts"
        case _:
            how = "fast-forwarded" if result.outcome is Outcome.FAST_FORWARD else "merged"
            landed = "" if result.commit is None else f", version {result.version} ({result.commit})"
            text = f"{what}: {would}{how}{landed}"
    return f"{text}; deleted branch {result.source}" if result.source_deleted else text


def _counts(table: MergedTable) -> tuple[object, ...]:
    if table.adopted:
        return ("as the source has it", None, None)
    return (table.rows_inserted, table.rows_updated, table.rows_deleted)


def _conflicts(conflicts: tuple[Conflict, ...]) -> Any:
    rows = [
        (each.table_key, each.row_id, each.kind, _row(each.base), _row(each.ours), _row(each.theirs))
        for each in conflicts[:ROWS_SHOWN]
    ]
    left = len(conflicts) - len(rows)
    title = None if left <= 0 else f"the first {len(rows)} conflicts"
    return output.table(title, ("table", "id", "kind", "base", "ours", "theirs"), rows)


def _some(reader: Any, limit: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for batch in reader:
        rows += batch.slice(0, limit - len(rows)).to_pylist()
        if len(rows) >= limit:
            break
    return rows


def _images(row: dict[str, Any]) -> tuple[str | None, str | None]:
    """Return both images: of an update only what differs."""
    names = row["changed"]
    before, after = (
        image if image is None or names is None else {name: image[name] for name in names}
        for image in (row["before"], row["after"])
    )
    return _row(before), _row(after)


def _row(row: Any) -> str | None:
    if row is None:
        return None
    return ", ".join(f"{name}: {_short(value)}" for name, value in row.items())


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= VALUE_CHARACTERS_MAX else text[: VALUE_CHARACTERS_MAX - 1] + "…"
