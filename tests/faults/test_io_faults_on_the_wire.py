"""Faults on the way to an object store: lost answers, refusals, silence. The caller is told what really happened.

An answer means applied; an error means not applied, now or ever; OUTCOME_UNKNOWN names the commit to look for.
"""

import json
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import pytest
from tests.faults.told_kit import Told, is_commit, visible, write

import omnigraph as og
from omnigraph.engine import publisher
from omnigraph.errors import StorageError
from omnigraph.storage import objects
from omnigraph.storage.objects import open_objects
from omnigraph.storage.roots import GraphRoot
from omnigraph.testing.s3_proxy import Request, S3Proxy
from omnigraph.testing.s3_server import SeaweedServer

pytestmark = [pytest.mark.s3, pytest.mark.crash]

SCHEMA = "node Person { name: String @key  age: I32? }\nnode Event { what: String }"
When = Literal["before", "after"]
Which = Callable[[Request], bool]


@dataclass(frozen=True, slots=True)
class Line:
    """A graph on a real store, reached directly or over a line that can be disturbed."""

    server: SeaweedServer
    proxy: S3Proxy
    root: str

    @property
    def options(self) -> dict[str, str]:
        return {**self.server.storage_options(), "aws_endpoint": self.proxy.endpoint}

    def open(self) -> og.Graph:
        """Open over the line that can be disturbed."""
        return og.open(self.root, storage_options=self.options)

    def direct(self) -> og.Graph:
        return og.open(self.root, storage_options=self.server.storage_options())

    def reader(self) -> og.Graph:
        return og.open(self.root, storage_options=self.server.storage_options(), read_only=True)

    def sidecars(self) -> list[str]:
        found = open_objects(GraphRoot.parse(self.root, self.server.storage_options())).list("__recovery")
        return [info.key for info in found]

    def undisturbed(self) -> None:
        self.proxy.on_request = None
        self.proxy.latency_seconds = 0.0
        self.proxy.reset()


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A graph with a person, made once on local disk: a graph may be copied anywhere."""
    graph = og.init(tmp_path_factory.mktemp("template") / "g", SCHEMA)
    with graph.transaction() as tx:
        tx.append("Person", [{"name": "first", "age": 1}])
    return graph.root


@pytest.fixture
def line(
    s3_server: SeaweedServer, s3_root: Callable[[], str], template: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Line]:
    """A graph with a person; clients are impatient, so that giving up does not take minutes."""
    monkeypatch.setattr(objects, "RETRIES_MAX", 2)
    monkeypatch.setattr(publisher, "DEADLINE_SECONDS", 3.0)
    monkeypatch.setenv("OBJECT_STORE_CLIENT_MAX_RETRIES", "1")
    monkeypatch.setenv("OBJECT_STORE_CLIENT_RETRY_TIMEOUT", "3")
    root = s3_root()
    source = open_objects(GraphRoot.parse(template))
    target = open_objects(GraphRoot.parse(root, s3_server.storage_options()))
    for info in source.list():
        target.put(info.key, source.get(info.key))
    with S3Proxy(s3_server.endpoint) as proxy:
        yield Line(s3_server, proxy, root)


def check(line: Line, graph: og.Graph, name: str, told: Told) -> bool:
    """See that what was told is so, now and after recovery, and that nothing is in the way; return whether it is."""
    line.undisturbed()
    if told.outcome == "applied":
        assert visible(line.reader(), name)
    if told.outcome == "refused":
        assert not visible(line.reader(), name)
    healed = line.direct()
    healed.recover()
    assert line.sidecars() == []
    there = visible(healed, name)
    assert there or told.outcome != "applied", "what was acknowledged is gone"
    assert not there or told.outcome != "refused", f"was refused, and came back: {told.error}"
    if told.outcome == "unknown":
        assert told.commit is not None, f"does not name the commit: {told.error}"
        assert told.commit in str(told.error)
        assert is_commit(healed, told.commit) == there, "the name given leads to the answer"
    for turn, handle in enumerate((graph, line.direct())):
        assert write(handle, f"{name}-next{turn}").outcome == "applied", "nothing is in the way"
    assert line.sidecars() == []
    operations = [row.operation for row in healed.recoveries()]
    assert len(operations) == len(set(operations)), "a recovery is told once"
    return there


def puts(part: str) -> Which:
    return lambda request: request.method == "PUT" and part in request.path


def lists(part: str) -> Which:
    return lambda request: request.method == "GET" and "list-type" in request.query and part in request.query


SIDECAR, SWAP, HEAD_FILE = puts("/__recovery/"), puts("/__manifest/_versions/"), puts("/__manifest/data/")
ROWS, SEAL = puts("/data/"), puts("/_versions/d")
PUTS: dict[str, Which] = {"rows": ROWS, "sidecar": SIDECAR, "seal": SEAL, "head file": HEAD_FILE, "swap": SWAP}


# -- one answer is lost -------------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("what", PUTS)
def test_one_lost_put_is_made_good_or_told_and_never_applied_twice(line: Line, what: str, when: When) -> None:
    graph = line.open()
    line.proxy.cut_at(1, when=when, do=line.proxy.reset, only=PUTS[what])
    told = write(graph, "x")
    assert told.outcome != "unknown", told.error
    check(line, graph, "x", told)


@pytest.mark.parametrize("when", ["before", "after"])
def test_any_single_request_of_a_write_may_be_lost_and_the_caller_is_told_the_truth(line: Line, when: When) -> None:
    graph = line.open()
    assert write(graph, "warm").outcome == "applied"
    line.proxy.reset()
    assert write(graph, "count").outcome == "applied"
    calls = len(line.proxy.requests)
    assert calls >= 10
    outcomes = []
    for number in range(1, calls + 1):
        line.proxy.reset()
        line.proxy.cut_at(number, when=when, do=line.proxy.reset)
        told = write(graph, f"x{number}")
        line.undisturbed()
        there = visible(line.direct(), f"x{number}")
        assert (told.outcome == "applied") == there, f"request {number} of {calls}: {told}"
        outcomes.append(told.outcome)
    assert outcomes.count("applied") >= calls - 2, outcomes
    assert line.sidecars() == []


# -- the line goes dead -------------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("what", PUTS)
def test_a_line_that_goes_dead_at_a_put_leaves_the_caller_with_the_truth(line: Line, what: str, when: When) -> None:
    graph = line.open()
    line.proxy.cut_at(1, when=when, only=PUTS[what])
    told = write(graph, "x")
    assert line.proxy.is_cut
    assert told.outcome == ("refused" if what == "rows" else "unknown"), told.error
    there = check(line, graph, "x", told)
    if what != "rows" and not (what == "sidecar" and when == "before"):
        assert there, "what was promised and could be kept was kept"


# -- refusals -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [500, 503, 429])
def test_a_store_that_refuses_everything_for_a_moment_is_asked_again(line: Line, status: int) -> None:
    graph = line.open()
    line.proxy.on_request = lambda request: status if request.index <= 1 else None
    told = write(graph, "x")
    assert told.outcome == "applied", told.error
    assert check(line, graph, "x", told)


@pytest.mark.parametrize("status", [503, 403])
@pytest.mark.parametrize("what", PUTS)
def test_a_put_that_is_refused_for_good_is_a_typed_error_or_an_honest_doubt(line: Line, what: str, status: int) -> None:
    graph = line.open()
    line.proxy.on_request = lambda request: status if PUTS[what](request) else None
    told = write(graph, "x")
    expected = {"rows": "refused", "sidecar": "refused", "seal": "refused"}
    assert told.outcome == expected.get(what, "unknown"), told.error
    assert isinstance(told.error, StorageError)
    check(line, graph, "x", told)


def test_a_promise_that_can_not_be_written_aborts_the_write_clean(line: Line) -> None:
    graph = line.open()
    before = line.reader().refresh()
    line.proxy.on_request = lambda request: 403 if SIDECAR(request) else None
    told = write(graph, "x")
    assert (told.outcome, line.sidecars()) == ("refused", [])
    assert line.reader().refresh() == before
    assert not check(line, graph, "x", told)


def test_a_listing_of_promises_that_fails_is_loud_and_readers_are_not_affected(line: Line) -> None:
    graph = line.open()
    line.proxy.on_request = lambda request: 503 if lists("__recovery")(request) else None
    with pytest.raises(StorageError, match="__recovery"):
        graph.transaction()
    with pytest.raises(StorageError, match="__recovery"):
        line.open()
    reader = og.open(line.root, storage_options=line.options, read_only=True)
    assert reader.snapshot().count("Person") == 1
    told = write(graph, "x")
    assert told.outcome == "refused"
    assert not check(line, graph, "x", told)


def test_a_promise_that_can_not_be_deleted_is_a_warning_and_later_audited_once(
    line: Line, caplog: pytest.LogCaptureFixture
) -> None:
    graph = line.open()
    line.proxy.on_request = lambda request: (
        503 if request.method in ("POST", "DELETE") and "uploads" not in request.query else None
    )
    with caplog.at_level(logging.WARNING, logger="omnigraph"):
        told = write(graph, "x")
    assert told.outcome == "applied"
    assert [record.message for record in caplog.records] == ["a sidecar was left behind"]
    [left] = line.sidecars()
    line.undisturbed()
    healed = line.direct()
    assert [(row.kind, row.commit) for row in healed.recoveries()] == [("RolledForward", told.commit)]
    assert left not in line.sidecars()
    assert check(line, graph, "x", told)
    assert len(line.direct().recoveries()) == 1


# -- silence ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", PUTS)
def test_a_put_that_arrives_after_the_client_gave_up_on_it_is_not_applied_twice(line: Line, what: str) -> None:
    graph = og.open(line.root, storage_options={**line.options, "timeout": "1s"})
    slept: list[str] = []

    def dawdle(request: Request) -> int | None:
        if PUTS[what](request) and not slept:
            slept.append(request.path)
            time.sleep(2.5)
        return None

    line.proxy.on_request = dawdle
    told = write(graph, "x")
    assert slept
    assert told.outcome != "unknown", told.error
    time.sleep(1.6)  # until the late one has arrived too
    check(line, graph, "x", told)


def test_a_store_that_never_answers_a_put_of_the_manifest_leaves_an_honest_doubt(line: Line) -> None:
    graph = og.open(line.root, storage_options={**line.options, "timeout": "1s"})

    def stall(request: Request) -> int | None:
        if "__manifest" in request.path and request.method == "PUT":
            time.sleep(1.5)
            return 503
        return None

    line.proxy.on_request = stall
    told = write(graph, "x")
    assert told.outcome == "unknown"
    check(line, graph, "x", told)


# -- what lies in the way -----------------------------------------------------------------------------


@pytest.mark.parametrize("body", [b"", b"{", b'{"format": 99}', b"\xff", json.dumps([]).encode()])
def test_a_promise_nobody_understands_is_refused_loudly_and_kept(line: Line, body: bytes) -> None:
    graph = line.open()
    key = "__recovery/01K00000000000000000000000.json"
    open_objects(GraphRoot.parse(line.root, line.server.storage_options())).put(key, body)
    for act in (lambda: graph.transaction(), lambda: line.open(), lambda: graph.recover()):
        with pytest.raises(StorageError, match="Readers are not affected") as refused:
            act()
        assert refused.value.code == "RECOVERY_REFUSED"
    assert line.sidecars() == [key]
    assert line.reader().snapshot().count("Person") == 1
    open_objects(GraphRoot.parse(line.root, line.server.storage_options())).delete([key])
    assert write(graph, "x").outcome == "applied"
