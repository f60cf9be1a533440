"""Random sequences of everything this layer can do, on three handles at once, against a model of plain dictionaries."""

import os
import shutil
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from omnigraph.engine.graph import Graph
from omnigraph.engine.opening import create_graph, open_graph
from omnigraph.errors import (
    AlreadyExistsError,
    BranchConflictError,
    CommitNotFoundError,
    InvalidNameError,
    NotFoundError,
    ProtectedBranchError,
)
from omnigraph.ids import Sources
from omnigraph.model.lineage import Commit
from omnigraph.testing.commits import bare_commit, session_of
from omnigraph.testing.model import GraphModel, ModelCommit

SEQUENCES = 2_000 if os.environ.get("OMNIGRAPH_DEEP") else 220
STEPS = 40 if os.environ.get("OMNIGRAPH_DEEP") else 25
HANDLES = 3

NAMES = st.sampled_from(["main", "a", "b", "B", "team/x", "v1", "..", "", "a//b", "naïve", "x" * 300])
PICK = st.integers(min_value=0, max_value=10_000)
HANDLE = st.integers(min_value=0, max_value=HANDLES - 1)
SKEW = st.sampled_from([-3_600.0, -1.0, 0.0, 0.001, 5.0])

# Small limits, so that folding, pruning and sweeping happen within a few steps, and stale handles meet freed versions.
SMALL = {
    "omnigraph.rules.folding.TAIL_ROWS_MAX": 3,
    "omnigraph.rules.folding.FAN": 3,
    "omnigraph.storage.manifest.VERSIONS_KEPT": 3,
    "omnigraph.storage.manifest.PRUNE_EVERY_PUBLISHES": 2,
    "omnigraph.storage.manifest.SWEEP_EVERY_PUBLISHES": 4,
    "omnigraph.storage.manifest.CLOCK_GRAIN": timedelta(0),
}


class GraphMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="omnigraph-machine-"))
        self.clock = datetime(2026, 1, 1, tzinfo=UTC)
        self.sources = Sources(now=lambda: self.clock)
        self.model = GraphModel()
        self.patches = [patch(name, value) for name, value in SMALL.items()]
        for each in self.patches:
            each.start()

    def teardown(self) -> None:
        for each in self.patches:
            each.stop()
        shutil.rmtree(self.folder)

    @initialize()
    def create(self) -> None:
        first = create_graph(
            self.folder / "g", "node A { k: String @key }", storage_options=None, actor="m", sources=self.sources
        )
        self.handles = [first, self.open(), self.open()]
        genesis = first.refresh()
        self.model.begin(remembered(genesis), genesis.incarnation)

    def open(self, read_only: bool = False) -> Graph:
        return open_graph(self.folder / "g", storage_options=None, actor="m", read_only=read_only, sources=self.sources)

    def a_ref(self, pick: int) -> str:
        known = [*self.model.branches, *self.model.tags, *self.model.commits]
        return known[pick % len(known)]

    def a_branch(self, pick: int) -> str:
        return list(self.model.branches)[pick % len(self.model.branches)]

    @rule(handle=HANDLE, pick=PICK, skew=SKEW, stale=st.booleans())
    def publish(self, handle: int, pick: int, skew: float, stale: bool) -> None:
        self.clock += timedelta(seconds=skew)
        branch = self.a_branch(pick)
        before = self.model.branches[branch].head
        try:
            made = bare_commit(self.handles[handle], branch, message=f"{pick}", stale=stale)
        except BranchConflictError:
            assert stale, "a handle that looked first knows the branch"
            return
        assert made.version == before.version + 1
        assert made.parents == (before.id,)
        assert made.created_at > before.created_at
        self.model.add(branch, remembered(made))

    @rule(handle=HANDLE, name=NAMES, pick=PICK)
    def create_branch(self, handle: int, name: str, pick: int) -> None:
        start = self.a_ref(pick)
        if not self.model.may_create(name):
            with pytest.raises((InvalidNameError, AlreadyExistsError)):
                self.handles[handle].branches.create(name, from_=start)
            return
        made = self.handles[handle].branches.create(name, from_=start)
        chain = self.model.find(start)
        assert chain is not None
        assert (made.head, made.version) == (chain[-1].id, chain[-1].version)
        assert all(made.incarnation != other.incarnation for other in self.model.branches.values())
        self.model.branches[name] = type(self.model.branches["main"])(made.incarnation, chain)

    @rule(handle=HANDLE, name=NAMES)
    def delete_branch(self, handle: int, name: str) -> None:
        if name == "main" or name not in self.model.branches:
            with pytest.raises(ProtectedBranchError if name == "main" else NotFoundError):
                self.handles[handle].branches.delete(name)
            return
        self.handles[handle].branches.delete(name)
        del self.model.branches[name]

    @rule(handle=HANDLE, old=NAMES, new=NAMES)
    def rename_branch(self, handle: int, old: str, new: str) -> None:
        kept = self.model.branches.get(old)
        if old == "main" or kept is None:
            with pytest.raises(ProtectedBranchError if old == "main" else NotFoundError):
                self.handles[handle].branches.rename(old, new)
            return
        del self.model.branches[old]
        if self.model.may_create(new):
            self.model.branches[new] = kept
            assert self.handles[handle].branches.rename(old, new).incarnation == kept.incarnation
        else:
            self.model.branches[old] = kept
            with pytest.raises((InvalidNameError, AlreadyExistsError)):
                self.handles[handle].branches.rename(old, new)

    @rule(handle=HANDLE, name=NAMES, pick=PICK)
    def create_tag(self, handle: int, name: str, pick: int) -> None:
        at = self.a_ref(pick)
        if not self.model.may_create(name):
            with pytest.raises((InvalidNameError, AlreadyExistsError)):
                self.handles[handle].tags.create(name, at=at)
            return
        made = self.handles[handle].tags.create(name, at=at)
        chain = self.model.find(at)
        assert chain is not None
        assert made.commit == chain[-1].id
        self.model.tags[name] = chain[-1]

    @rule(handle=HANDLE, name=NAMES)
    def delete_tag(self, handle: int, name: str) -> None:
        if name not in self.model.tags:
            with pytest.raises(NotFoundError):
                self.handles[handle].tags.delete(name)
            return
        self.handles[handle].tags.delete(name)
        del self.model.tags[name]

    @rule(handle=HANDLE, branch=PICK, pick=PICK)
    def restore(self, handle: int, branch: int, pick: int) -> None:
        name, wanted = self.a_branch(branch), self.a_ref(pick)
        before = self.model.branches[name].head
        made = self.handles[handle].restore(name, to=wanted)
        assert (made.version, made.parents) == (before.version + 1, (before.id,))
        self.model.add(name, remembered(made))

    @rule(handle=HANDLE, pick=PICK, version=st.integers(min_value=1, max_value=12))
    def travel_to_a_version(self, handle: int, pick: int, version: int) -> None:
        branch = self.a_branch(pick)
        chain = self.model.branches[branch].chain
        if version > len(chain):
            with pytest.raises(CommitNotFoundError):
                self.handles[handle].snapshot(branch, version=version)
        else:
            assert self.handles[handle].snapshot(branch, version=version).commit.id == chain[version - 1].id

    @rule(handle=HANDLE, pick=PICK, near=PICK, off=st.sampled_from([-1, 0, 1]))
    def travel_to_a_moment(self, handle: int, pick: int, near: int, off: int) -> None:
        branch = self.a_branch(pick)
        chain = self.model.branches[branch].chain
        moment = chain[near % len(chain)].created_at + timedelta(microseconds=off)
        expected = self.model.as_of(branch, moment)
        if expected is None:
            with pytest.raises(CommitNotFoundError):
                self.handles[handle].snapshot(branch, timestamp=moment)
        else:
            assert self.handles[handle].snapshot(branch, timestamp=moment).commit.id == expected.id

    @rule(handle=HANDLE, pick=PICK)
    def find_any_commit_ever_made(self, handle: int, pick: int) -> None:
        known = list(self.model.commits.values())
        wanted = known[pick % len(known)]
        assert remembered(self.handles[handle].commit(wanted.id)) == wanted

    @rule(handle=HANDLE)
    def reopen(self, handle: int) -> None:
        self.handles[handle] = self.open()

    @rule(handle=HANDLE)
    def clean_up(self, handle: int) -> None:
        session_of(self.handles[handle]).manifest.cleanup(timedelta(0))

    @rule(handle=HANDLE)
    def look_through_an_old_handle(self, handle: int) -> None:
        self.agree(self.handles[handle])

    @invariant()
    def a_newcomer_sees_what_the_model_has(self) -> None:
        if self.model.branches:
            self.agree(self.open(read_only=True))

    def agree(self, graph: Graph) -> None:
        listed = graph.branches.list()
        assert listed[0].name == "main"
        assert {b.name: (b.incarnation, b.head, b.version) for b in listed} == {
            name: (b.incarnation, b.head.id, b.head.version) for name, b in self.model.branches.items()
        }
        assert {t.name: t.commit for t in graph.tags.list()} == {n: c.id for n, c in self.model.tags.items()}
        for name, branch in self.model.branches.items():
            assert [c.id for c in graph.log(name, limit=None)] == [c.id for c in reversed(branch.chain)]


def remembered(commit: Commit) -> ModelCommit:
    return ModelCommit(
        id=commit.id,
        version=commit.version,
        content=f"{commit.operation}:{commit.message}",
        created_at=commit.created_at,
        parents=commit.parents,
    )


def test_random_histories_agree_with_a_plain_model() -> None:
    run_state_machine_as_test(
        GraphMachine,
        settings=settings(
            max_examples=SEQUENCES,
            stateful_step_count=STEPS,
            deadline=None,
            print_blob=True,
            # A failing sequence is printed as found; shrinking real storage takes longer than reading it.
            phases=[Phase.explicit, Phase.reuse, Phase.generate],
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
        ),
    )
