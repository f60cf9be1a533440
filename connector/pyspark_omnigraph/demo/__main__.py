"""`python -m pyspark_omnigraph.demo [FOLDER] [--json]`: see the README."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from omnigraph.cli.output import exit_code
from omnigraph.errors import OmnigraphError
from pyspark_omnigraph.demo import endings, steps
from pyspark_omnigraph.demo.data import files
from pyspark_omnigraph.demo.places import FOLDER, Places
from pyspark_omnigraph.demo.telling import Teller

INTERRUPTED: Final = 130
STEPS: Final = 10


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all steps; return the exit code."""
    parser = argparse.ArgumentParser(prog="omnigraph demo", description="A tour, on a real graph, in a minute or two.")
    parser.add_argument("folder", nargs="?", default=FOLDER, help=f"where to put the graph; {FOLDER}/ unless said")
    parser.add_argument("--json", action="store_true", help="print only one JSON value, at the end")
    chosen = parser.parse_args(arguments)
    try:
        _tour(Path(chosen.folder).resolve(), is_json=chosen.json)
    except OmnigraphError as refused:
        print(json.dumps(refused.to_dict(), default=str) if chosen.json else refused, file=sys.stderr)  # noqa: T201
        return int(exit_code(refused))
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


def _tour(folder: Path, *, is_json: bool) -> None:
    places = Places.fresh(folder)
    files()  # if they are missing, say so before anything is started
    teller = Teller(steps=STEPS, quiet=is_json)
    spark = steps.start_spark(teller, places)
    try:
        stage = steps.create(teller, places, spark)
        rows = steps.prepared(stage)
        steps.refuse(stage, rows)
        steps.load(stage, rows)
        steps.change(stage)
        steps.compare(stage)
        steps.merge(stage)
        endings.travel(stage)
        endings.survive(stage)
        endings.report(stage)
        endings.farewell(stage)
    finally:
        spark.stop()
    if is_json:
        print(json.dumps({"root": stage.root, "steps": [done.to_dict() for done in teller.done]}))  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
