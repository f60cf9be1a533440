"""A process killed (-9) at each object-store call of an operation, before the store saw it and after it had applied it.

Whatever the moment: the graph opens, what was acknowledged is there, the operation is visible as a whole
or not at all, and the next process can go on.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

import pytest

import omnigraph as og
from omnigraph.errors import GraphNotFoundError
from omnigraph.storage.objects import open_objects
from omnigraph.storage.roots import GraphRoot
from omnigraph.testing.commits import bare_commit
from omnigraph.testing.s3_proxy import Request, S3Proxy
from omnigraph.testing.s3_server import SeaweedServer
from omnigraph.testing.worker import SCHEMA, Job, Order, Worker, start

pytestmark = [pytest.mark.s3, pytest.mark.crash]

When = Literal["before", "after"]
KILLS_AT_ONCE = 4
"""Most of the time children import what they need and the store keeps losers of races waiting."""
JOBS: tuple[Job, ...] = ("init", "publish", "append", "create-branch", "delete-branch", "rename-branch", "create-tag")


@dataclass(frozen=True, slots=True)
class Store:
    """A real store that graphs are made on."""

    server: SeaweedServer
    new_root: Callable[[], str]

    def at_every_call(self, calls: int, kill: "Callable[[Bench, int], bool]") -> int:
        """Kill at each call, several at the same time, each on a line of its own; return how often one was cut."""

        def one(number: int) -> bool:
            with S3Proxy(self.server.endpoint) as proxy:
                return kill(Bench(self.server, proxy, self.new_root), number)

        with ThreadPoolExecutor(KILLS_AT_ONCE) as pool:
            return sum(pool.map(one, range(1, calls + 1)))


@dataclass(frozen=True, slots=True)
class Bench:
    """A real store, and a line to it that can be cut."""

    server: SeaweedServer
    proxy: S3Proxy
    new_root: Callable[[], str]

    @property
    def cut_options(self) -> dict[str, str]:
        return {**self.server.storage_options(), "aws_endpoint": self.proxy.endpoint}

    def open(self, root: str) -> og.Graph:
        return og.open(root, storage_options=self.server.storage_options())


@dataclass(frozen=True, slots=True)
class Template:
    """Two graphs on local disk, made once: a graph may be copied anywhere."""

    plain: Path
    with_branch: Path


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Template:
    folder = tmp_path_factory.mktemp("templates")
    made = Template(folder / "plain", folder / "with-branch")
    for root in (made.plain, made.with_branch):
        graph = og.init(root, SCHEMA)
        with graph.transaction() as tx:
            tx.append("Person", [{"name": "Ann"}])
    og.open(made.with_branch).branches.create("x")
    return made


@pytest.fixture
def store(s3_server: SeaweedServer, s3_root: Callable[[], str]) -> Store:
    return Store(s3_server, s3_root)


def counted(request: Request) -> bool:
    """The conditional-put probe of `init` races threads, so its calls come in no fixed order: not counted."""
    return "__probe" not in request.path and "__probe" not in request.query


def prepare(bench: Bench, job: Job, template: Template) -> tuple[str, str]:
    """Copy a graph with some history into the store; return its root and the last acknowledged commit."""
    root = bench.new_root()
    if job == "init":
        return root, ""
    target = open_objects(GraphRoot.parse(root, bench.server.storage_options()))
    folder = template.with_branch if job in ("delete-branch", "rename-branch") else template.plain
    source = open_objects(GraphRoot.parse(folder))
    for info in source.list():
        target.put(info.key, source.get(info.key))
    return root, og.open(folder).refresh().id


def run(bench: Bench, job: Job, root: str, cut: tuple[int, When] | None) -> tuple[bool, int]:
    """Do the job in a child, killed where the cut says; return whether it was acknowledged, and the calls it made."""
    name = "main" if job in ("init", "publish", "append") else "x"
    worker: Worker = start(Order(job=job, root=root, storage_options=bench.cut_options, name=name, wait=True))
    worker.ready()
    bench.proxy.reset()
    if cut is not None:
        bench.proxy.cut_at(cut[0], when=cut[1], do=worker.kill, only=counted)
    worker.go()
    said = worker.acknowledged()
    calls = len([request for request in bench.proxy.requests if counted(request)])
    assert all("done" in line for line in said)
    return bool(said), calls


def check(bench: Bench, job: Job, root: str, last: str, acknowledged: bool) -> None:
    """See that the graph is whole, and that life goes on."""
    if job == "init":
        check_init(bench, root, acknowledged)
        return
    graph = bench.open(root)
    log = graph.log(limit=None)
    assert last in {commit.id for commit in log}
    assert [commit.version for commit in log] == list(range(len(log), 0, -1))
    names = {branch.name for branch in graph.branches.list()}
    people = graph.snapshot().count("Person")
    done = {
        "publish": len(log) == 3,
        "append": len(log) == 3,
        "create-branch": "x" in names,
        "delete-branch": "x" not in names,
        "rename-branch": "x-new" in names,
        "create-tag": any(tag.name == "x" for tag in graph.tags.list()),
    }[job]
    assert people == (2 if job == "append" and done else 1)
    assert graph.snapshot().read("Person").num_rows == people
    assert done or not acknowledged, "what was acknowledged is gone"
    assert ("x" in names) + ("x-new" in names) <= 1, "a name half exists"
    if not done:
        again, _ = run(bench, job, root, None)
        assert again
    after = bare_commit(bench.open(root))
    assert after.version == bench.open(root).refresh().version


def check_init(bench: Bench, root: str, acknowledged: bool) -> None:
    try:
        graph = bench.open(root)
    except GraphNotFoundError:
        assert not acknowledged
        graph = og.init(root, SCHEMA, storage_options=bench.server.storage_options())
    assert [commit.version for commit in graph.log(limit=None)] == [1]
    assert [branch.name for branch in graph.branches.list()] == ["main"]
    assert bare_commit(graph).version == 2


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("job", JOBS)
def test_a_kill_at_any_call_leaves_a_graph_that_opens_and_keeps_what_was_acknowledged(
    store: Store, template: Template, job: Job, when: str, record_property: Callable[[str, object], None]
) -> None:
    with S3Proxy(store.server.endpoint) as proxy:
        unharmed = Bench(store.server, proxy, store.new_root)
        root, _ = prepare(unharmed, job, template)
        acknowledged, calls = run(unharmed, job, root, None)
    assert acknowledged
    assert calls >= 4, "an operation that stores something makes calls"

    def kill(bench: Bench, number: int) -> bool:
        root, last = prepare(bench, job, template)
        acknowledged, _ = run(bench, job, root, (number, cast("When", when)))
        is_cut = bench.proxy.is_cut
        check(bench, job, root, last, acknowledged)
        return is_cut

    killed = store.at_every_call(calls, kill)
    record_property("kills", killed)
    assert killed == calls, "every call was cut once"


def probes(request: Request) -> bool:
    """Pick the calls of the probe that `init` makes; its threads race, so which one is the n-th varies."""
    return not counted(request)


@pytest.mark.long
def test_a_kill_at_any_call_of_the_probe_leaves_nothing_that_stands_in_the_way(
    store: Store, record_property: Callable[[str, object], None]
) -> None:
    def init(bench: Bench, cut: int | None) -> tuple[str, bool]:
        """Create a graph in a child, killed at a call of the probe; return its root, and whether it was created."""
        root = bench.new_root()
        worker = start(Order(job="init", root=root, storage_options=bench.cut_options, name="main", wait=True))
        worker.ready()
        bench.proxy.reset()
        if cut is not None:
            bench.proxy.cut_at(cut, when="before" if cut % 2 else "after", do=worker.kill, only=probes)
        worker.go()
        return root, bool(worker.acknowledged())

    def kill(bench: Bench, number: int) -> bool:
        check_init(bench, *init(bench, number))
        return bench.proxy.is_cut

    with S3Proxy(store.server.endpoint) as proxy:
        _, is_created = init(Bench(store.server, proxy, store.new_root), None)
        calls = len([request for request in proxy.requests if probes(request)])
    assert is_created
    assert calls >= 8
    killed = store.at_every_call(calls, kill)
    record_property("kills", killed)
    assert killed >= calls - 2, "the number of calls may vary by a retry"
