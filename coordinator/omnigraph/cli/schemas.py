"""The commands that plan, apply and compare schemas."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from omnigraph.cli import output
from omnigraph.cli.app import Actor, Json, Root, Storage, opened, schema_app
from omnigraph.errors import SchemaChangeError
from omnigraph.model.schema_plan import SchemaPlan, SchemaResult, Step, Support

SIGNS = {"add": ("+", "green"), "drop": ("-", "red")}
CHANGED = ("~", "yellow")
File = Annotated[Path, typer.Option("--schema", help="The .pg file.", show_default=False)]
OfBranch = Annotated[str, typer.Option(help="Branch whose schema it is.")]
Loss = Annotated[
    bool,
    typer.Option("--allow-data-loss", help="Drop for good, and let numbers that do not fit their new type be null."),
]


@schema_app.command("plan")
def schema_plan(
    root: Root,
    schema: File,
    branch: OfBranch = "main",
    allow_data_loss: Loss = False,
    storage: Storage = None,
    as_json: Json = False,
) -> None:
    """Show what it takes to make a file the schema of a branch; nothing is changed."""
    with output.reporting(as_json):
        found = opened(root, storage).schema.plan(schema, branch, allow_data_loss=allow_data_loss)
        output.show(found.to_dict(), as_json, drawn(found))


@schema_app.command("apply")
def schema_apply(  # noqa: PLR0913  (a command has as many options as it has)
    root: Root,
    schema: File,
    branch: OfBranch = "main",
    allow_data_loss: Loss = False,
    message: Annotated[str | None, typer.Option(help="Goes into the commit.")] = None,
    actor: Actor = None,
    storage: Storage = None,
    as_json: Json = False,
) -> None:
    """Make a file the schema of a branch: one commit of schema and data, or nothing."""
    with output.reporting(as_json):
        graph = opened(root, storage, actor, write=True)
        try:
            done = graph.schema.apply(schema, branch, allow_data_loss=allow_data_loss, message=message)
        except SchemaChangeError:
            if not as_json:
                drawn(graph.schema.plan(schema, branch, allow_data_loss=allow_data_loss))(
                    Console(stderr=True, highlight=False)
                )
            raise
        output.show(done.to_dict(), as_json, _applied(done))


@schema_app.command("diff")
def schema_diff(
    root: Root,
    old: Annotated[str, typer.Argument(help="Branch, tag, commit or BRANCH@VERSION.", show_default=False)],
    new: Annotated[str, typer.Argument(help="The same; what became of the first.", show_default=False)],
    storage: Storage = None,
    as_json: Json = False,
) -> None:
    """Show how two schemas of a graph differ."""
    with output.reporting(as_json):
        found = opened(root, storage).schema.diff(old, new)
        output.show(found.to_dict(), as_json, drawn(found, with_cost=False))


def drawn(plan: SchemaPlan, *, with_cost: bool = True) -> Any:
    """Return a drawing of steps: what comes in green, what goes in red, what changes in yellow."""

    def draw(console: Console) -> None:
        if plan.is_empty:
            output.line("nothing differs")(console)
        for step in plan.steps:
            console.print(_line(step, with_cost=with_cost), soft_wrap=True)
            if step.problem is not None:
                problem = f"    [{step.problem.code}] {step.problem.reason}; {step.problem.instead}"
                console.print(Text(problem, style="red"), soft_wrap=True)

    return draw


def _line(step: Step, *, with_cost: bool) -> Text:
    verb = str(step.kind).partition("_")[0]
    sign, colour = SIGNS.get(verb, CHANGED)
    colour = "bold red" if step.support is Support.UNSUPPORTED else colour
    text = Text(f"{sign} {step}", style=colour)
    if with_cost:
        rows = f", {step.rows} rows" if step.rows else ""
        text.append(f"  {step.cost}{rows}", style="dim")
    return text


def _applied(done: SchemaResult) -> Any:
    def draw(console: Console) -> None:
        drawn(done.plan)(console)
        if done.applied:
            output.line(f"applied to {done.branch}, version {done.version} ({done.commit})")(console)

    return draw
