"""The command that shows what became of rows, commit by commit."""

from typing import Annotated, Any

import typer

from omnigraph.cli import output
from omnigraph.cli.app import Json, Root, Storage, app, opened
from omnigraph.errors import InvalidOptionError
from omnigraph.rules.feed import TOLD_FIELDS

ROWS_SHOWN = 50
VALUES_CHARACTERS_MAX = 200
TOLD = tuple(field.name for field in TOLD_FIELDS)


@app.command()
def changes(  # noqa: PLR0913  (a command has as many options as it has)
    root: Root,
    branch: Annotated[str | None, typer.Option(help="Branch to look at; main unless said.")] = None,
    type_: Annotated[str | None, typer.Option("--type", help="Only rows of this type; all types unless said.")] = None,
    since: Annotated[int | None, typer.Option(help="Begin after this version.", min=0)] = None,
    until: Annotated[int | None, typer.Option(help="End with this version.", min=1)] = None,
    since_time: Annotated[str | None, typer.Option(help="Begin after this moment; UTC unless it says.")] = None,
    until_time: Annotated[str | None, typer.Option(help="End with this moment.")] = None,
    net: Annotated[bool, typer.Option("--net", help="Only what the whole range amounts to.")] = False,
    limit: Annotated[int, typer.Option(help="How many rows at most.", min=1)] = ROWS_SHOWN,
    storage: Storage = None,
    as_json: Json = False,
) -> None:
    """Show which rows each commit of a branch inserted, updated and deleted."""
    with output.reporting(as_json):
        first, last = _one("since", since, since_time), _one("until", until, until_time)
        found = opened(root, storage).changes(branch, since=first, until=last, net=net)
        rows = _some(found.rows(type_), limit)
        shown = [(row["_commit_version"], row["_change_type"], *_what(row)) for row in rows]
        draw = output.table(None, ("version", "change", "table", "id", "row"), shown)
        output.show({**found.to_dict(), "rows": rows}, as_json, draw if rows else output.line("nothing changed"))


def _one(name: str, version: int | None, moment: str | None) -> int | str | None:
    if version is not None and moment is not None:
        raise InvalidOptionError(f"--{name} and --{name}-time contradict each other; choose one")
    return moment if version is None else version


def _some(reader: Any, limit: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for batch in reader:
        rows += batch.slice(0, limit - len(rows)).to_pylist()
        if len(rows) >= limit:
            break
    return rows


def _what(row: dict[str, Any]) -> tuple[str | None, str, str]:
    """Return the table if it is told, the id, and the values as one short text."""
    if "table_key" in row:
        return row["table_key"], row["id"], _short(row["row"])
    values = {name: value for name, value in row.items() if name != "id" and name not in TOLD}
    return None, row["id"], _short(", ".join(f"{name}: {value}" for name, value in values.items()))


def _short(text: str) -> str:
    return text if len(text) <= VALUES_CHARACTERS_MAX else text[: VALUES_CHARACTERS_MAX - 1] + "…"
