"""The command that runs `.gq` queries: `mutate`."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from omnigraph.cli import output
from omnigraph.cli.app import Actor, Json, Root, Storage, app, opened
from omnigraph.cli.writes import STANDARD_STREAM, Constraints, Txn, landed, read_txn
from omnigraph.errors import InvalidOptionError
from omnigraph.model.schema import Scalar, ScalarType
from omnigraph.rules.gq_text import select
from omnigraph.rules.gq_tree import QueryText

SHOWN_CHARACTERS_MAX = 60
TEXTS = frozenset({Scalar.STRING, Scalar.DATE, Scalar.DATETIME, Scalar.BLOB})
"""The types whose values are texts in JSON, so that they need no quotes on the command line."""


@app.command()
def mutate(  # noqa: PLR0913  (a command has as many options as it has)
    root: Root,
    file: Annotated[
        str | None, typer.Argument(help="The .gq file, or - for standard input.", show_default=False)
    ] = None,
    query: Annotated[str | None, typer.Option(help="The text itself, instead of a file.")] = None,
    name: Annotated[str | None, typer.Option(help="Which query of the text, if it has several.")] = None,
    param: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="A parameter; texts as they are, the rest as JSON. May be repeated."),
    ] = None,
    params_json: Annotated[
        str | None, typer.Option(metavar="FILE|JSON", help="Parameters as one JSON object, or a file that holds it.")
    ] = None,
    branch: Annotated[str | None, typer.Option(help="Branch to change; main unless said.")] = None,
    message: Annotated[str | None, typer.Option(help="Goes into the commit.")] = None,
    txn: Txn = None,
    constraints: Constraints = "fail",
    actor: Actor = None,
    storage: Storage = None,
    as_json: Json = False,
) -> None:
    """Insert, upsert, update or delete rows, as a query says, in one commit."""
    with output.reporting(as_json):
        text = _text(file, query)
        params = _params(select(text, name), param or [], params_json)
        graph = opened(root, storage, actor, write=True)
        done = graph.mutate(
            text,
            params,
            name=name,
            branch=branch,
            message=message,
            txn=read_txn(txn),
            constraints=constraints,
            from_json=True,
        )
    title = f"{done.query} on branch {done.branch}: {landed(done.receipt)}"
    rows = [(key, *(counts[what] for what in COUNTED)) for key, counts in done.affected.items()]
    draw = output.table(title, ("table", *COUNTED), rows) if rows else output.line(title)
    output.show(done.to_dict(), as_json, draw)


COUNTED = ("inserted", "updated", "deleted")


def _text(file: str | None, query: str | None) -> str:
    if (file is None) == (query is None):
        raise InvalidOptionError("give a file or --query, and not both")
    return query if query is not None else _read(str(file), "the mutation")


def _read(file: str, what: str) -> str:
    try:
        data = sys.stdin.buffer.read() if file == STANDARD_STREAM else Path(file).read_bytes()
        return data.decode("utf-8")
    except (OSError, ValueError) as problem:  # a name with a null in it is a ValueError, and so is broken UTF-8
        raise InvalidOptionError(f"{what} can not be read from {file[:200]!r}: {problem}") from problem


def _params(query: QueryText, pairs: list[str], given: str | None) -> dict[str, Any]:
    params = {} if given is None else _object(given)
    declared = {parameter.name.text: parameter.type for parameter in query.parameters}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise InvalidOptionError(f"--param takes NAME=VALUE, not {_shown(pair)}")
        if name in params:
            raise InvalidOptionError(f"the parameter {_shown(name)} is given twice")
        kind = declared.get(name)
        is_text = kind is None or (isinstance(kind, ScalarType) and kind.scalar in TEXTS)
        params[name] = value if is_text else _json(value, f"the parameter {_shown(name)}, which is {kind},")
    return params


def _object(given: str) -> dict[str, Any]:
    text = given if given.lstrip().startswith("{") else _read(given, "the object of parameters")
    params = _json(text, "--params-json")
    if not isinstance(params, dict):
        raise InvalidOptionError('--params-json takes one JSON object, such as {"name": "Ann"}')
    return params


def _json(text: str, what: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_once)
    except (ValueError, RecursionError) as problem:
        raise InvalidOptionError(f"{what} is not JSON: {problem}") from problem


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name occurs twice in one object")
    return found


def _shown(text: str) -> str:
    return ascii(text[:SHOWN_CHARACTERS_MAX])
