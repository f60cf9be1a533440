"""The writers of the crash matrix, the graph they write to, and how a fault is put in their way."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Literal, TypeAlias

import omnigraph as og
from omnigraph import failpoints
from omnigraph.engine.transaction import Transaction
from omnigraph.errors import CommitOutcomeUnknownError, OmnigraphError
from omnigraph.failpoints import Failpoint, FailpointError, LostAnswerError
from omnigraph.testing.nursery import Child, bear

Fault = Literal["raise", "kill", "lost"]
Said = Literal["acknowledged", "refused", "unknown"]
State: TypeAlias = dict[str, list[dict[str, Any]]]

SCHEMA = """
node Person {
  name: String @key
  age: I32?
}
edge Knows: Person -> Person {
  since: I32?
  @key(src, dst)
}
"""
ACTOR = "alice"
NEXT_ACTOR = "bob"
SIDE = "side"
REVIEW = "review"
MERGE = "merge"
OPEN = "open"


def _append(tx: Transaction) -> None:
    tx.append("Person", [{"name": "Cid", "age": 50}])


def _upsert(tx: Transaction) -> None:
    tx.upsert("Person", [{"name": "Ann", "age": 31}, {"name": "Ben", "age": 40}, {"name": "Cid", "age": 50}])


def _overwrite(tx: Transaction) -> None:
    tx.overwrite("Knows", [{"src": "Ben", "dst": "Ann", "since": 2010}])


def _delete(tx: Transaction) -> None:
    tx.delete("Person", "name = 'Eve'")


def _transaction(tx: Transaction) -> None:
    tx.append("Person", [{"name": "Cid", "age": 50}])
    tx.upsert("Knows", [{"src": "Ann", "dst": "Ben", "since": 2024}, {"src": "Ben", "dst": "Cid", "since": 2024}])


def _merge(graph: og.Graph, branch: str) -> str:
    return str(graph.branches.merge(REVIEW, branch, message="merge", actor=ACTOR).commit)


TRANSACTIONS: Mapping[str, Callable[[Transaction], None]] = {
    "append": _append,
    "upsert": _upsert,
    "overwrite": _overwrite,
    "delete": _delete,
    "transaction": _transaction,
}
"""Each changes one table, the last one two of them in one commit."""
WRITERS: tuple[str, ...] = (*TRANSACTIONS, MERGE)
"""A merge adopts one table and merges the rows of another."""


@dataclass(frozen=True, slots=True, order=True)
class Arrival:
    """The ``number``-th time that somebody comes by a failpoint."""

    point: Failpoint
    number: int

    def __str__(self) -> str:
        return str(self.point) if self.number == 1 else f"{self.point}, time {self.number}"

    def plan(self, fault: Fault) -> str:
        """Spell a plan for this very arrival as the environment would."""
        return f"{self.point}={fault}@{self.number - 1}*1"


def new_graph(root: Path) -> None:
    """Make the graph every cell begins with."""
    graph = og.init(root, SCHEMA, actor=ACTOR)
    with graph.transaction() as tx:
        tx.append("Person", [{"name": "Ann", "age": 30}, {"name": "Ben", "age": 40}, {"name": "Eve", "age": 20}])
        tx.append("Knows", [{"src": "Ann", "dst": "Ben", "since": 2000}])


def diverge(root: Path) -> None:
    """Give a graph a branch that changed two tables since main changed one of them."""
    graph = og.open(root, actor=ACTOR)
    graph.branches.create(REVIEW)
    with graph.transaction(REVIEW) as tx:
        tx.upsert("Person", [{"name": "Ann", "age": 33}, {"name": "Mia", "age": 1}])
        tx.upsert("Knows", [{"src": "Mia", "dst": "Ann", "since": 2024}])
    with graph.transaction() as tx:
        tx.upsert("Person", [{"name": "Ben", "age": 41}])


def write(graph: og.Graph, writer: str, branch: str = "main") -> str:
    """Let one writer write; return its commit."""
    if writer not in TRANSACTIONS:
        return _merge(graph, branch)
    with graph.transaction(branch, message=writer, actor=ACTOR) as tx:
        TRANSACTIONS[writer](tx)
    return str(tx.receipt.commit)


def write_next(graph: og.Graph, name: str) -> str:
    """Write what the next writer would; return its commit."""
    with graph.transaction(message="next", actor=NEXT_ACTOR) as tx:
        tx.append("Person", [{"name": name}])
    return str(tx.receipt.commit)


def state_of(graph: og.Graph) -> State:
    """Return all rows there are, in the order of their ids."""
    snapshot = graph.snapshot()
    return {kind: sorted(snapshot.read(kind).to_pylist(), key=lambda row: row["id"]) for kind in ("Person", "Knows")}


def with_next(state: State, name: str) -> State:
    """Return the state with what the next writer adds."""
    people = [*state["Person"], {"id": name, "name": name, "age": None}]
    return {**state, "Person": sorted(people, key=lambda row: row["id"])}


# -- faults ---------------------------------------------------------------------------------------------


class _Recording(dict[Failpoint, Any]):
    """Plans that make nothing fail and remember who came by."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Failpoint] = []

    def __bool__(self) -> bool:
        return True

    def get(self, point: Failpoint, default: Any = None) -> Any:
        """Remember the point."""
        self.seen.append(point)
        return default


@contextmanager
def planned(text: str) -> Iterator[None]:
    """Install plans for this process, as the environment would have."""
    with _installed(failpoints.parse(text)):
        yield


@contextmanager
def recorded() -> Iterator[list[Arrival]]:
    """Collect every arrival at a failpoint of this process."""
    recording = _Recording()
    arrivals: list[Arrival] = []
    with _installed(recording):
        yield arrivals
    for number, point in enumerate(recording.seen):
        arrivals.append(Arrival(point, recording.seen[: number + 1].count(point)))


@contextmanager
def _installed(plans: dict[Failpoint, Any]) -> Iterator[None]:
    before = failpoints._PLANS  # noqa: SLF001 - there is no other way in, on purpose
    failpoints._PLANS = plans  # noqa: SLF001
    try:
        yield
    finally:
        failpoints._PLANS = before  # noqa: SLF001


def act_here(act: Callable[[], object], arrival: Arrival, fault: Fault) -> Said:
    """Do something in this process with a fault in its way; return what its caller was told."""
    with planned(arrival.plan(fault)):
        try:
            act()
        except (FailpointError, LostAnswerError, CommitOutcomeUnknownError):
            return "unknown"
        except OmnigraphError:
            return "refused"
    return "acknowledged"


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What a child shall do: a writer's name, or open the graph and so recover it."""

    root: str
    job: str
    branch: str = "main"


def act_in_child(order: Order, arrival: Arrival) -> Said:
    """Do something in a process of its own that kills itself on the way; anything but its death is an error."""
    child = start(order, arrival.plan("kill"))
    code = child.ended()
    if not child.was_killed or child.heard:
        raise AssertionError(f"the child at {arrival} was to die, not to end with {code}; what it printed says why")
    return "unknown"


def start(order: Order, plans: str) -> Child:
    """Let a child carry out an order with failpoints in its way; it says when it is done."""
    return bear(_act, order, plans)


def _act(line: "Connection[Any, Any]", order: Order, plans: str) -> None:
    with planned(plans):
        _carry_out(order)
    line.send("done")


def _carry_out(order: Order) -> None:
    graph = og.open(order.root, actor=ACTOR)
    if order.job != OPEN:
        write(graph, order.job, order.branch)
