"""A process that does much with a graph on S3 and says all it can about it; whoever started it looks for secrets.

It is told by one JSON object on standard input. What it learns goes to standard output, log records with all they carry
to standard error, where Lance writes too, and what is stored below the root into a file.
"""

import json
import logging
import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

SCHEMA = "node Person { name: String @key  age: I32? }\nnode Event { what: String }\nedge Knows: Person -> Person"


def leaks(said: bytes, secrets: Mapping[str, str]) -> list[str]:
    """Name the secrets that occur, as they are or as a URL, JSON or a repr would have them."""
    found = []
    for name, value in secrets.items():
        forms = {value, quote(value), quote(value, safe=""), quote_plus(value), json.dumps(value)[1:-1]}
        if any(form.encode() in said for form in forms):
            found.append(name)
    return found


class _All(logging.Formatter):
    """Shows what a record carries, not only its message."""

    def format(self, record: logging.LogRecord) -> str:
        return f"{super().format(record)} {record.__dict__!r}"


@dataclass(frozen=True, slots=True)
class Teller:
    """Does things to one graph, and tells."""

    root: str
    options: dict[str, str]
    dump: Path

    def tell(self, *things: object) -> None:
        for thing in things:
            print(repr(thing), str(thing), flush=True)

    @contextmanager
    def refused(self) -> Iterator[None]:
        """Expect an error, and tell all that is known about it and about what led to it."""
        from omnigraph.errors import OmnigraphError

        try:
            yield
        except OmnigraphError as problem:
            print("refused", problem.code)
            self.tell(problem, problem.args, problem.facts, problem.to_dict())
            print("".join(traceback.TracebackException.from_exception(problem, capture_locals=False).format()))
        else:
            raise AssertionError("this should have been refused")

    def stored(self) -> None:
        """Add every object below the root to the file."""
        from omnigraph.storage.objects import open_objects
        from omnigraph.storage.roots import GraphRoot

        objects = open_objects(GraphRoot.parse(self.root, self.options))
        with self.dump.open("ab") as file:
            for info in objects.list():
                file.write(info.key.encode() + b"\n" + objects.get(info.key) + b"\n")

    def command(self, *words: str) -> int:
        """Run a command of the command line."""
        from typer.testing import CliRunner

        from omnigraph.cli.app import app

        given = [word for key, value in self.options.items() for word in ("--storage", f"{key}={value}")]
        result = CliRunner().invoke(app, [*words, *given])
        print(words, result.exit_code, result.stdout, result.stderr)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result.exit_code


def much(teller: Teller, planted: str | None) -> None:
    """Do a bit of everything with good keys."""
    import omnigraph as og
    from omnigraph import failpoints
    from omnigraph.engine.parts import Begun
    from omnigraph.failpoints import Failpoint, FailpointError
    from omnigraph.testing.commits import session_of

    graph = og.init(teller.root, SCHEMA, storage_options=teller.options, actor="teller")
    with graph.transaction(message="first", user_metadata=planted or "nothing") as tx:
        tx.append("Person", [{"name": "Ann", "age": 1}, {"name": "Bob", "age": 2}])
        tx.append("Knows", [{"src": "Ann", "dst": "Bob"}])
    teller.tell(graph, graph.snapshot(), tx.receipt, session_of(graph), session_of(graph).root)
    with teller.refused(), graph.transaction() as tx:
        tx.append("Person", [{"name": "Ann"}])
    with teller.refused(), graph.transaction() as tx:
        tx.append("Knows", [{"src": "Ann", "dst": "nobody"}])
    _conflict(teller, graph)
    with teller.refused():
        graph.load(f"{teller.root}/no-such-file.jsonl")
    with teller.refused():
        og.init(teller.root, SCHEMA, storage_options=teller.options)
    begun = graph.branches.get("main")
    teller.tell(graph.announce(Begun(base=begun.head, incarnation=begun.incarnation), ["Person"]))
    failpoints._PLANS.update(failpoints.parse(f"{Failpoint.AFTER_SEALS}=raise"))
    try:
        with graph.transaction(message="promised") as tx:
            tx.upsert("Person", [{"name": "Cid", "age": 3}])
    except FailpointError as died:
        teller.tell(died)
    failpoints._PLANS.clear()
    teller.stored()  # with a sidecar and an intent
    teller.tell(*graph.recover(), *graph.recoveries())
    teller.tell(graph.ensure_indices(), graph.optimize(), graph.verify(deep=True), graph.cleanup(keep=1, dry_run=True))
    teller.tell(graph.schema.apply(SCHEMA + "\nnode More { x: I32? }"), graph.diff("main@1", "main").to_dict())
    teller.tell(graph.changes(since=1).to_dict(), *graph.log(limit=None), graph.history(), graph.tags.create("t"))
    print(graph.report(diff=("main@1", "main")).html, graph._repr_html_(), graph.snapshot()._repr_html_())
    _commands(teller)
    teller.stored()


def _conflict(teller: Teller, graph: Any) -> None:
    graph.branches.create("side")
    for branch, age in (("main", 10), ("side", 20)):
        with graph.transaction(branch) as tx:
            tx.upsert("Person", [{"name": "Ann", "age": age}])
    with teller.refused():
        graph.branches.merge("side")
    teller.tell(*graph.branches.conflicts("side"), graph.branches.merge("side", policy="theirs"))


def _commands(teller: Teller) -> None:
    root, report = teller.root, str(teller.dump.with_suffix(".html"))
    assert [teller.command(*words) for words in (("snapshot", root), ("commit", "list", root, "--json"))] == [0, 0]
    assert teller.command("report", root, "-o", report) == 0
    print(Path(report).read_text(encoding="utf-8"))
    assert teller.command("cleanup", root, "--keep", "1") == 0  # only says what would go
    for wrong in (("branch", "delete", root, "nope"), ("snapshot", root, "--nonsense"), ("snapshot", f"{root}-none")):
        assert teller.command(*wrong) != 0
        assert teller.command(*wrong, "--json") != 0


def refusals(teller: Teller) -> None:
    """Be refused, or not answered, in every way there is."""
    import omnigraph as og
    from omnigraph.storage.objects import open_objects
    from omnigraph.storage.roots import GraphRoot

    silent = {**teller.options, "aws_endpoint": "http://127.0.0.1:9", "connect_timeout": "1s", "timeout": "1s"}
    for options in (teller.options, silent):
        tries: tuple[Callable[[], object], ...] = (
            lambda options=options: og.open(teller.root, storage_options=options),  # type: ignore[misc]
            lambda options=options: og.open(teller.root, storage_options=options, read_only=True),  # type: ignore[misc]
            lambda options=options: og.init(f"{teller.root}-x", SCHEMA, storage_options=options),  # type: ignore[misc]
        )
        for attempt in tries:
            with teller.refused():
                attempt()
        objects = open_objects(GraphRoot.parse(teller.root, options))
        for attempt in (lambda: objects.put("a", b""), lambda: objects.get("a"), lambda: list(objects.list())):  # noqa: B023
            with teller.refused():
                attempt()
        teller.tell(objects, objects.root, objects.root.options)
    with tempfile.TemporaryDirectory() as name:
        graph = og.init(Path(name) / "local", SCHEMA)
        with teller.refused():
            graph.load(f"{teller.root}/x.jsonl", storage_options=teller.options)
    assert teller.command("snapshot", teller.root) != 0
    assert teller.command("snapshot", teller.root, "--json") != 0


def main() -> None:
    """Do as told."""
    order = json.loads(sys.stdin.readline())
    for name in ("http_proxy", "HTTP_PROXY"):
        os.environ.pop(name, None)
    everything = logging.StreamHandler(sys.stderr)
    everything.setFormatter(_All())
    logging.basicConfig(level=logging.DEBUG, handlers=[everything])
    from omnigraph.storage import objects

    objects.RETRIES_MAX = 1  # type: ignore[misc]
    teller = Teller(order["root"], order["options"], Path(order["dump"]))
    if order["planted"]:
        logging.getLogger("omnigraph").debug("a slip", extra={"reason": order["planted"]})
    if order["job"] == "much":
        much(teller, order["planted"])
    else:
        refusals(teller)
    print("all done", flush=True)


if __name__ == "__main__":
    main()
