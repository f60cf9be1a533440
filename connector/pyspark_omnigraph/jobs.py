"""What the programs in `jobs/` do: from arguments to one commit, to files, or to a report.

Each is an entry point for `spark-submit`. What it prints last is one line of JSON, for whoever schedules it; an error
of omnigraph's is one line on standard error and an exit code, the same as the command line's.
"""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from omnigraph import logs
from omnigraph.cli.output import Exit, exit_code
from omnigraph.errors import InvalidOptionError, OmnigraphError
from pyspark_omnigraph.graph import SparkGraph, SparkTransaction

FORMATS: Final = ("parquet", "orc", "json", "csv")
VERBS: Final = {"append": "append", "merge": "upsert", "overwrite": "overwrite"}


def load(arguments: Sequence[str] | None = None) -> int:
    """Write the rows of files to types of a graph, in one commit."""
    parser = _parser("Write the rows of files to types of a graph, in one commit.")
    parser.add_argument("--mode", choices=sorted(VERBS), default="append", help="append, merge (by id) or overwrite")
    _add_sources(parser)
    _add_commit(parser)
    return _run(parser, arguments, _load)


def upsert(arguments: Sequence[str] | None = None) -> int:
    """Insert the rows of files, or replace those that have their id, in one commit."""
    parser = _parser("Insert the rows of files, or replace those that have their id, in one commit.")
    parser.set_defaults(mode="merge")
    _add_sources(parser)
    _add_commit(parser)
    return _run(parser, arguments, _load)


def delete(arguments: Sequence[str] | None = None) -> int:
    """Delete the rows whose ids are in files, with the edges at them, in one commit."""
    parser = _parser(
        "Delete the rows whose ids are in the column `id` of files, with the edges at them, in one commit."
    )
    _add_sources(parser)
    _add_commit(parser)
    return _run(parser, arguments, _delete)


def export(arguments: Sequence[str] | None = None) -> int:
    """Write types of one commit to files, a folder for each."""
    parser = _parser("Write types of one commit to files, a folder for each.")
    parser.add_argument("target", help="folder or URI that the folders are made in")
    parser.add_argument("--type", action="append", help="only this type; may be given again")
    parser.add_argument("--branch", help="the branch; main unless said")
    parser.add_argument("--format", choices=FORMATS, default="parquet", help="of the files; parquet unless said")
    at = parser.add_mutually_exclusive_group()
    at.add_argument("--tag")
    at.add_argument("--commit")
    at.add_argument("--version", type=int)
    at.add_argument("--timestamp")
    return _run(parser, arguments, _export)


def index(arguments: Sequence[str] | None = None) -> int:
    """Build what indexes lack, in one commit."""
    parser = _parser("Build what the indexes of a branch lack, in one commit.")
    _add_upkeep(parser)
    return _run(parser, arguments, _index)


def optimize(arguments: Sequence[str] | None = None) -> int:
    """Compact the tables of a branch, in one commit."""
    parser = _parser("Make few large fragments of small ones and keep their indexes, in one commit.")
    _add_upkeep(parser)
    parser.add_argument("--rows-per-fragment", type=int, help="how many rows a fragment is to have")
    parser.add_argument("--cluster", action="store_true", help="write edges in the order of their src")
    return _run(parser, arguments, _optimize)


def cleanup(arguments: Sequence[str] | None = None) -> int:
    """Let old commits expire and remove files that nothing refers to."""
    parser = _parser("Let old commits expire and remove files that nothing refers to.")
    parser.add_argument("--keep", type=int, help="how many commits of each branch stay")
    parser.add_argument("--older-than", help="only commits older than this go, like 7d")
    parser.add_argument("--grace", default="1d", help="files younger than this stay, like 12h; a day unless said")
    parser.add_argument(
        "--confirm", dest="read_only", action="store_false", help="do it; without this only say what would happen"
    )
    return _run(parser, arguments, _cleanup)


def verify(arguments: Sequence[str] | None = None) -> int:
    """Look whether all that commits refer to is there and whole."""
    parser = _parser("Look whether all that commits refer to is there and whole; ends with 1 if something is damaged.")
    parser.add_argument("--deep", action="store_true", help="read every row of every branch and tag")
    parser.set_defaults(read_only=True)
    return _run(parser, arguments, _verify)


# -- what they do ---------------------------------------------------------------------------------------


def _load(graph: SparkGraph, chosen: argparse.Namespace) -> dict[str, Any]:
    sources = _sources(graph.spark, chosen)
    with _transaction(graph, chosen) as tx:
        for type, rows in sources:
            getattr(tx, VERBS[chosen.mode])(type, rows)
    return tx.receipt.to_dict()


def _delete(graph: SparkGraph, chosen: argparse.Namespace) -> dict[str, Any]:
    sources = _sources(graph.spark, chosen)
    with _transaction(graph, chosen) as tx:
        for type, rows in sources:
            if "id" not in rows.columns:
                raise InvalidOptionError(f"the files for {type} have no column id; it names the rows to delete")
            tx.delete(type, rows.select("id"))
    return tx.receipt.to_dict()


def _export(graph: SparkGraph, chosen: argparse.Namespace) -> dict[str, Any]:
    snapshot = graph.graph.snapshot(
        chosen.branch, tag=chosen.tag, commit=chosen.commit, version=chosen.version, timestamp=chosen.timestamp
    )
    kinds = [snapshot.catalog.table_type(name) for name in chosen.type or ()] or snapshot.catalog.table_types
    written: dict[str, int] = {}
    for kind in kinds:
        rows = graph.table(str(kind.table), commit=snapshot.commit.id)
        rows.write.format(chosen.format).mode("error").save(
            f"{chosen.target.rstrip('/')}/{kind.table.kind}s/{kind.name}"
        )
        written[str(kind.table)] = snapshot.count(str(kind.table))
    return {"commit": snapshot.commit.id, "version": snapshot.commit.version, "rows": written}


def _index(graph: SparkGraph, chosen: argparse.Namespace) -> dict[str, Any]:
    return graph.ensure_indices(chosen.branch, types=chosen.type).to_dict()


def _optimize(graph: SparkGraph, chosen: argparse.Namespace) -> dict[str, Any]:
    rows = chosen.rows_per_fragment
    report = graph.optimize(chosen.branch, types=chosen.type, rows_per_fragment=rows, cluster=chosen.cluster)
    return report.to_dict()


def _cleanup(graph: SparkGraph, chosen: argparse.Namespace) -> dict[str, Any]:
    report = graph.graph.cleanup(
        keep=chosen.keep, older_than=chosen.older_than, grace=chosen.grace, dry_run=chosen.read_only
    )
    return report.to_dict()


def _verify(graph: SparkGraph, chosen: argparse.Namespace) -> dict[str, Any]:
    return graph.graph.verify(deep=chosen.deep).to_dict()


def _sources(spark: SparkSession, chosen: argparse.Namespace) -> list[tuple[str, DataFrame]]:
    """Read `Type=path` pairs; several of one type are written together."""
    found: list[tuple[str, DataFrame]] = []
    for pair in chosen.source:
        type, separator, path = pair.partition("=")
        if not separator or not type or not path:
            raise InvalidOptionError(f"a source is Type=path, as in Person=people.parquet; {pair[:200]!r} is not")
        reader = spark.read.format(chosen.format)
        if chosen.format == "csv":
            reader = reader.option("header", "true").option("inferSchema", "true").option("mode", "FAILFAST")
        found.append((type, reader.load(path)))
    return found


def _transaction(graph: SparkGraph, chosen: argparse.Namespace) -> SparkTransaction:
    if chosen.create_from is not None:
        if chosen.branch is None:
            raise InvalidOptionError("--create-from says where a branch begins; say which, with --branch")
        if chosen.branch not in {branch.name for branch in graph.graph.branches.list()}:
            graph.graph.branches.create(chosen.branch, from_=chosen.create_from)
    return graph.transaction(
        chosen.branch, message=chosen.message, txn=_txn(chosen.txn), constraints=chosen.constraints
    )


def _txn(text: str | None) -> tuple[str, int] | None:
    if text is None:
        return None
    app, separator, version = text.rpartition(":")
    if not separator or not app or not (version.isascii() and version.isdecimal()):
        raise InvalidOptionError(f"--txn is APP:VERSION, as in nightly:7; {text[:200]!r} is not")
    return app, int(version)


# -- arguments ------------------------------------------------------------------------------------------


def _parser(description: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("root", help="folder or s3://bucket/prefix of the graph")
    return parser


def _add_sources(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", nargs="+", metavar="TYPE=PATH", help="a type, and files with its rows")
    parser.add_argument("--format", choices=FORMATS, default="parquet", help="of the files; parquet unless said")


def _add_commit(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--branch", help="where to write; main unless said")
    parser.add_argument("--create-from", help="a branch, tag or commit to fork the branch from if it is missing")
    parser.add_argument("--actor", help="goes into the commit")
    parser.add_argument("--message", help="goes into the commit")
    parser.add_argument("--txn", metavar="APP:VERSION", help="a rerun with the same pair does nothing")
    parser.add_argument("--constraints", choices=("fail", "off"), help="off for trusted input")


def _add_upkeep(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--branch", help="whose tables; main unless said")
    parser.add_argument("--type", action="append", help="only this type; may be given again")
    parser.add_argument("--actor", help="goes into the commit")


def _run(
    parser: argparse.ArgumentParser,
    arguments: Sequence[str] | None,
    act: Callable[[SparkGraph, argparse.Namespace], dict[str, Any]],
) -> int:
    chosen = parser.parse_args(arguments)
    spark = SparkSession.builder.appName(f"omnigraph {act.__name__.strip('_')}").getOrCreate()
    try:
        logs.from_environment()
        actor, read_only = getattr(chosen, "actor", None), getattr(chosen, "read_only", False)
        graph = SparkGraph.for_path(spark, chosen.root, read_only=read_only, actor=actor)
        answer = act(graph, chosen)
    except OmnigraphError as refused:
        print(refused, file=sys.stderr)  # noqa: T201  for whoever reads the log of the job
        return int(exit_code(refused))
    print(json.dumps(answer))  # noqa: T201  for whoever scheduled it
    is_well = answer.get("sound", True) and not answer.get("troubles")
    return int(Exit.DONE if is_well else Exit.ERROR)
