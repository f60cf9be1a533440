"""The commands. Each takes the root first, and `--json` for machines."""

import io
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import omnigraph
from omnigraph import logs
from omnigraph.cli import output
from omnigraph.errors import InvalidOptionError
from omnigraph.model.lineage import Commit

if TYPE_CHECKING:
    from omnigraph.engine.graph import Graph

app = typer.Typer(
    name="omnigraph",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
branch_app = typer.Typer(help="Create, list, delete and rename branches.", no_args_is_help=True)
tag_app = typer.Typer(help="Create, list and delete tags.", no_args_is_help=True)
commit_app = typer.Typer(help="Look at history.", no_args_is_help=True)
schema_app = typer.Typer(help="Look at the schema, and change it.", no_args_is_help=True)
app.add_typer(branch_app, name="branch")
app.add_typer(tag_app, name="tag")
app.add_typer(commit_app, name="commit")
app.add_typer(schema_app, name="schema")

Root = Annotated[str, typer.Argument(help="Folder or s3://bucket/prefix of the graph.", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Actor = Annotated[str | None, typer.Option("--actor", help="Who does it; goes into the commit.")]
Confirm = Annotated[bool, typer.Option("--confirm", help="Do it; without this only say what would happen.")]
Name = Annotated[str, typer.Argument(show_default=False)]
Storage = Annotated[
    list[str] | None,
    typer.Option("--storage", metavar="KEY=VALUE", help="Storage option; keep secrets in the environment instead."),
]


def main() -> None:
    """Run the command line."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal that can not show a name still shows the rest
    app()


@app.callback()
def logging(
    log_json: Annotated[bool, typer.Option("--log-json", help="Log to standard error, a line of JSON each.")] = False,
    log_level: Annotated[
        str | None, typer.Option("--log-level", help="debug, info, warning or error; logs to standard error.")
    ] = None,
) -> None:
    """Keep a branchable, versioned property graph, in a folder or on S3."""
    with output.reporting(as_json=False):
        if log_json or log_level is not None:
            (logs.to_json if log_json else logs.to_text)(level=log_level or "info")
        else:
            logs.from_environment()


def storage_options(pairs: list[str] | None) -> dict[str, str] | None:
    """Read `--storage key=value` pairs."""
    if not pairs:
        return None
    for pair in pairs:
        if "=" not in pair:
            raise InvalidOptionError("--storage takes KEY=VALUE")  # the pair itself may hold a secret
    return dict(pair.split("=", 1) for pair in pairs)


def opened(root: str, storage: list[str] | None, actor: str | None = None, *, write: bool = False) -> "Graph":
    """Open the graph a command is about: read-only, unless the command writes."""
    return omnigraph.open(root, read_only=not write, storage_options=storage_options(storage), actor=actor)


@app.command()
def version(as_json: Json = False) -> None:
    """Print the version."""
    output.show({"omnigraph": omnigraph.__version__}, as_json, output.line(f"omnigraph {omnigraph.__version__}"))


@app.command()
def init(
    root: Root,
    schema: Annotated[Path, typer.Option("--schema", help="The .pg file.", show_default=False)],
    actor: Actor = None,
    storage: Storage = None,
    as_json: Json = False,
) -> None:
    """Create a graph."""
    with output.reporting(as_json):
        graph = omnigraph.init(root, schema, storage_options=storage_options(storage), actor=actor)
        head = graph.refresh()
        types = len(graph.catalog(head).tables)
        tables = "1 table" if types == 1 else f"{types} tables"
        text = f"created {graph.root}: {tables}, branch main at version {head.version} ({head.id})"
        output.show({"root": graph.root, "commit": head.id, "tables": types}, as_json, output.line(text))


@app.command()
def snapshot(
    root: Root,
    branch: Annotated[str | None, typer.Option(help="Branch to look at; main unless said.")] = None,
    tag: Annotated[str | None, typer.Option(help="Tag to look at.")] = None,
    commit: Annotated[str | None, typer.Option(help="Commit to look at.")] = None,
    version: Annotated[int | None, typer.Option(help="Version along the branch.")] = None,
    timestamp: Annotated[str | None, typer.Option(help="Moment along the branch; UTC unless it says.")] = None,
    storage: Storage = None,
    as_json: Json = False,
) -> None:
    """Show what the graph held at a commit: every table with its rows."""
    with output.reporting(as_json):
        found = opened(root, storage).snapshot(branch, tag=tag, commit=commit, version=version, timestamp=timestamp)
        facts = found.to_dict()
        title = f"{found.commit.branch}@{found.version}  {found.commit.id}  {output.moment(found.commit.created_at)}"
        draw = output.table(title, ("table", "rows"), list(facts["tables"].items()))
        output.show(facts, as_json, draw)


@app.command()
def recover(
    root: Root,
    list_: Annotated[bool, typer.Option("--list", help="Only show what was recovered so far.")] = False,
    storage: Storage = None,
    as_json: Json = False,
) -> None:
    """Finish or give up what dead writers promised, now; opening a graph for writing does it too, politely."""
    with output.reporting(as_json):
        if list_:
            rows = [row.to_dict() for row in opened(root, storage).recoveries()]
            shown = [(r["created_at"][:19], r["kind"], r["branch"], r["commit"], r["original_actor"]) for r in rows]
            columns = ("time (UTC)", "kind", "branch", "commit", "actor")
            output.show(rows, as_json, output.table(None, columns, shown))
            return
        graph = opened(root, storage, write=True)
        done = [found.to_dict() for found in (*graph.healed, *graph.recover())]
        told = [(r["kind"], r["branch"], r["commit"], r["reason"]) for r in done]
        draw = output.table(None, ("kind", "branch", "commit", "reason"), told)
        output.show(done, as_json, draw if done else output.line("nothing to recover"))


@app.command()
def index(
    root: Root,
    branch: Annotated[str, typer.Option(help="Branch to index.")] = "main",
    type_: Annotated[list[str] | None, typer.Option("--type", help="Only this type; may be given again.")] = None,
    actor: Actor = None,
    storage: Storage = None,
    as_json: Json = False,
) -> None:
    """Build what indexes lack: of ids, ends of edges, and all that the schema says is key, unique or index."""
    with output.reporting(as_json):
        report = opened(root, storage, write=True).ensure_indices(branch, types=type_, actor=actor).to_dict()
        rows = [
            (key, column, one["kind"], one["rows"], one["rows_covered"], one["rows_added"], one["pending"] or "")
            for key, columns in report["tables"].items()
            for column, one in columns.items()
        ]
        names = ("table", "column", "kind", "rows", "covered", "added", "pending")
        output.show(report, as_json, output.table(None, names, rows))


@branch_app.command("create")
def branch_create(
    root: Root,
    name: Name,
    from_: Annotated[str, typer.Option("--from", help="Branch, tag or commit to start from.")] = "main",
    actor: Actor = None,
    storage: Storage = None,
    as_json: Json = False,
) -> None:
    """Create a branch."""
    with output.reporting(as_json):
        made = opened(root, storage, actor, write=True).branches.create(name, from_=from_)
        output.show(made.to_dict(), as_json, output.line(f"created branch {made.name} at version {made.version}"))


@branch_app.command("list")
def branch_list(root: Root, storage: Storage = None, as_json: Json = False) -> None:
    """List the branches, main first."""
    with output.reporting(as_json):
        found = opened(root, storage).branches.list()
        rows = [(b.name, b.version, b.head, b.parent, output.moment(b.created_at), b.created_by) for b in found]
        columns = ("branch", "version", "head", "from", "created (UTC)", "by")
        output.show([b.to_dict() for b in found], as_json, output.table(None, columns, rows))


@branch_app.command("delete")
def branch_delete(
    root: Root, name: Name, confirm: Confirm = False, storage: Storage = None, as_json: Json = False
) -> None:
    """Delete a branch."""
    with output.reporting(as_json):
        gone = opened(root, storage, write=confirm).branches.delete(name, dry_run=not confirm)
        said = _deletion("branch", name, confirm)
        output.show({"deleted": confirm, **gone.to_dict()}, as_json, output.line(said))


@branch_app.command("rename")
def branch_rename(
    root: Root, old: Name, new: Name, actor: Actor = None, storage: Storage = None, as_json: Json = False
) -> None:
    """Rename a branch; its history stays."""
    with output.reporting(as_json):
        made = opened(root, storage, actor, write=True).branches.rename(old, new)
        output.show(made.to_dict(), as_json, output.line(f"renamed branch {old} to {new}"))


@tag_app.command("create")
def tag_create(
    root: Root,
    name: Name,
    at: Annotated[str, typer.Option("--at", help="Branch, tag or commit to name.")] = "main",
    actor: Actor = None,
    storage: Storage = None,
    as_json: Json = False,
) -> None:
    """Name a commit for good."""
    with output.reporting(as_json):
        made = opened(root, storage, actor, write=True).tags.create(name, at=at)
        output.show(made.to_dict(), as_json, output.line(f"tag {made.name} names commit {made.commit}"))


@tag_app.command("list")
def tag_list(root: Root, storage: Storage = None, as_json: Json = False) -> None:
    """List the tags."""
    with output.reporting(as_json):
        found = opened(root, storage).tags.list()
        rows = [(t.name, t.commit, output.moment(t.created_at), t.created_by) for t in found]
        draw = output.table(None, ("tag", "commit", "created (UTC)", "by"), rows)
        output.show([t.to_dict() for t in found], as_json, draw)


@tag_app.command("delete")
def tag_delete(
    root: Root, name: Name, confirm: Confirm = False, storage: Storage = None, as_json: Json = False
) -> None:
    """Delete a tag."""
    with output.reporting(as_json):
        graph = opened(root, storage, write=confirm)
        gone = graph.tags.delete(name) if confirm else graph.tags.get(name)
        said = _deletion("tag", name, confirm)
        output.show({"deleted": confirm, **gone.to_dict()}, as_json, output.line(said))


@commit_app.command("list")
def commit_list(
    root: Root,
    branch: Annotated[str, typer.Option(help="Branch to list.")] = "main",
    limit: Annotated[int, typer.Option(help="How many at most.", min=1)] = 20,
    filter_: Annotated[str | None, typer.Option("--filter", metavar="actor=NAME", help="Only these.")] = None,
    storage: Storage = None,
    as_json: Json = False,
) -> None:
    """List a branch's commits, newest first."""
    with output.reporting(as_json):
        found = opened(root, storage).log(branch, actor=_actor_filter(filter_), limit=limit)
        rows = [(c.version, c.id, output.moment(c.created_at), c.operation, c.actor, c.message) for c in found]
        columns = ("version", "commit", "time (UTC)", "operation", "actor", "message")
        output.show([c.to_dict() for c in found], as_json, output.table(None, columns, rows))


@commit_app.command("show")
def commit_show(root: Root, commit: Name, storage: Storage = None, as_json: Json = False) -> None:
    """Show one commit."""
    with output.reporting(as_json):
        found = opened(root, storage).commit(commit)
        output.show(found.to_dict(), as_json, output.table(None, ("", ""), _facts(found)))


@schema_app.command("show")
def schema_show(
    root: Root,
    branch: Annotated[str, typer.Option(help="Branch whose schema to show.")] = "main",
    source: Annotated[bool, typer.Option("--source", help="The text as it was accepted.")] = False,
    storage: Storage = None,
    as_json: Json = False,
) -> None:
    """Show a branch's schema."""
    with output.reporting(as_json):
        graph = opened(root, storage)
        text = graph.schema.source(branch) if source else graph.schema.show(branch)
        facts = {"schema": text, "hash": graph.snapshot(branch).commit.schema_hash}
        output.show(facts, as_json, output.line(text.rstrip("\n")))


def _actor_filter(text: str | None) -> str | None:
    if text is None:
        return None
    field, equals, value = text.partition("=")
    if field != "actor" or not equals or not value:
        raise InvalidOptionError(f"--filter takes actor=NAME, not {text[:60]!r}")
    return value


def _deletion(what: str, name: str, done: bool) -> str:
    return f"deleted {what} {name}" if done else f"would delete {what} {name}; add --confirm to do it"


def _facts(commit: Commit) -> list[tuple[str, Any]]:
    facts = commit.to_dict()
    return [(name, value) for name, value in facts.items() if value not in (None, {}, [])]


from omnigraph.cli import changes as _changes  # noqa: E402, F401  (its commands need what is defined above)
from omnigraph.cli import demo as _demo  # noqa: E402, F401  (the same)
from omnigraph.cli import files as _files  # noqa: E402, F401  (its commands need what is defined above)
from omnigraph.cli import maintenance as _maintenance  # noqa: E402, F401  (the same)
from omnigraph.cli import merges as _merges  # noqa: E402, F401  (the same)
from omnigraph.cli import mutate as _mutate  # noqa: E402, F401  (the same)
from omnigraph.cli import reports as _reports  # noqa: E402, F401  (the same)
from omnigraph.cli import schemas as _schemas  # noqa: E402, F401  (the same)
