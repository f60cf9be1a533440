"""A contestant as a process: `python worker.py NAME FOLDER IVY [JAR …]`, and then line by line what to do."""

import sys
from pathlib import Path

from tests.bench.contestants.protocol import Contestant, serve


def made() -> Contestant:
    """Make the contestant of that name; only its own packages are imported."""
    name, folder, ivy, *jars = sys.argv[1:]
    if name.startswith("Spark:"):
        from tests.bench.contestants import on_spark

        kind: type[on_spark.OnSpark] = getattr(on_spark, name.removeprefix("Spark:"))
        return kind(Path(folder), ivy, jars)
    from tests.bench.contestants import embedded

    found: type[embedded.Embedded] = getattr(embedded, name)
    return found(Path(folder))


if __name__ == "__main__":
    serve(made)
