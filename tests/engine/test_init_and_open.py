"""A graph begins as one atomic commit, opens anywhere it is copied to, and read-only means that nothing is written."""

import hashlib
import inspect
import json
import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.errors import (
    CommitOutcomeUnknownError,
    GraphExistsError,
    GraphNotFoundError,
    InvalidOptionError,
    OmnigraphError,
    ReadOnlyError,
    SchemaError,
    StorageError,
    UnsupportedFormatError,
)
from omnigraph.ids import is_ulid
from omnigraph.testing.commits import bare_commit, session_of
from omnigraph.testing.places import place
from omnigraph.testing.s3_server import SeaweedServer

SCHEMA = "node Person { name: String @key  age: I32? }\nedge Knows: Person -> Person"


def files_of(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


def fingerprint(root: Path) -> dict[str, tuple[int, int, str]]:
    """Everything a file system knows of a folder but access times."""
    seen = {}
    for path in (root, *sorted(root.rglob("*"))):
        facts = path.lstat()
        digest = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "folder"
        seen[str(path.relative_to(root))] = (facts.st_mode, facts.st_mtime_ns, digest)
    return seen


def a_graph(root: Path) -> og.Graph:
    """A graph with data, a branch, a tag and some history."""
    graph = og.init(root, SCHEMA, actor="ann")
    with graph.transaction(message="people") as tx:
        tx.append("Person", [{"name": "Ann", "age": 41}, {"name": "Bob"}])
    graph.tags.create("v1")
    graph.branches.create("review")
    with graph.transaction("review") as tx:
        tx.append("Knows", [{"src": "Ann", "dst": "Bob"}])
    return graph


def every_read(graph: Any) -> dict[str, Any]:
    """Call everything that reads; return what can be compared."""
    snap = graph.snapshot()
    review = graph.on("review")
    log = graph.log("review", limit=None)
    review.refresh()
    snap.scan("Person").read_all()
    graph.commit(log[-1].id)
    list(graph.iter_log(actor="ann"))
    graph.snapshot(timestamp=log[0].created_at)
    return {
        "branches": [branch.name for branch in graph.branches.list()],
        "branch": graph.branches.get("review").version,
        "tags": [tag.name for tag in graph.tags.list()],
        "tag": graph.snapshot(tag=graph.tags.get("v1").name).count("Person"),
        "log": [commit.version for commit in log],
        "people": sorted(snap.read("Person", where="age > 1 OR age IS NULL").column("name").to_pylist()),
        "grown": snap.count("Person", where="age > 1"),
        "entity": snap.entity("Person", "Ann")["age"],
        "edges": review.snapshot().count("Knows"),
        "first": graph.snapshot(version=1).to_dict()["tables"],
        "schema": graph.schema.show() == graph.schema.show("review") and bool(graph.schema.source()),
    }


READ = {
    "branches": ["main", "review"],
    "branch": 3,
    "tags": ["v1"],
    "tag": 2,
    "log": [3, 2, 1],
    "people": ["Ann", "Bob"],
    "grown": 1,
    "entity": 41,
    "edges": 1,
    "first": {"node:Person": 0, "edge:Knows": 0},
    "schema": True,
}


# -- init ---------------------------------------------------------------------------------------------


def test_init_is_one_version_and_makes_no_tables(tmp_path: Path) -> None:
    root = tmp_path / "g"
    og.init(root, SCHEMA)
    assert len(list((root / "__manifest" / "_versions").glob("*.manifest"))) == 1
    assert not (root / "nodes").exists()
    assert not (root / "edges").exists()
    assert {name.split("/")[0] for name in files_of(root)} == {"__manifest"}


def test_a_new_graph_has_one_commit_that_says_who_made_it(tmp_path: Path) -> None:
    graph = og.init(tmp_path / "g", SCHEMA, actor="ann")
    [first] = graph.log()
    assert (first.version, first.parents, first.actor, first.operation) == (1, (), "ann", "init")
    assert graph.refresh() == first == graph.commit(first.id)


def test_init_where_a_graph_is_refuses_and_changes_nothing(tmp_path: Path) -> None:
    a_graph(tmp_path / "g")
    before = fingerprint(tmp_path / "g")
    with pytest.raises(GraphExistsError) as refused:
        og.init(tmp_path / "g", SCHEMA)
    assert refused.value.root == str(tmp_path / "g")
    assert fingerprint(tmp_path / "g") == before


@pytest.mark.parametrize("schema", ["", "node {", "node A { x: Strin }", "edge E: A -> B"])
def test_a_bad_schema_leaves_nothing_behind(tmp_path: Path, schema: str) -> None:
    with pytest.raises(SchemaError):
        og.init(tmp_path / "g", schema)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("actor", ["", "omnigraph:recovery", "a\nb", "x" * 201])
def test_a_bad_actor_leaves_nothing_behind(tmp_path: Path, actor: str) -> None:
    with pytest.raises(InvalidOptionError, match="actor"):
        og.init(tmp_path / "g", SCHEMA, actor=actor)
    assert list(tmp_path.iterdir()) == []


def test_the_schema_is_text_or_the_path_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "people.pg"
    file.write_text(SCHEMA + "\n// a remark\n", encoding="utf-8")
    given: list[Any] = [SCHEMA, file, str(file)]
    shown = {og.init(tmp_path / str(n), schema).schema.show() for n, schema in enumerate(given)}
    assert len(shown) == 1
    assert og.open(tmp_path / "1").schema.source().endswith("// a remark\n")


def test_a_schema_file_that_is_not_there_or_no_text_is_refused_typed(tmp_path: Path) -> None:
    (tmp_path / "raw.pg").write_bytes(b"\xff\xfe")
    for name in ("missing.pg", "raw.pg"):
        with pytest.raises(InvalidOptionError, match="schema file can not be read"):
            og.init(tmp_path / "g", str(tmp_path / name))
    assert not (tmp_path / "g").exists()


@pytest.mark.parametrize("read_only", [False, True])
def test_opening_where_no_graph_is_is_refused_typed_and_makes_no_folder(tmp_path: Path, read_only: bool) -> None:
    with pytest.raises(GraphNotFoundError, match=r"omnigraph\.init") as refused:
        og.open(tmp_path / "nowhere", read_only=read_only)
    assert refused.value.root == str(tmp_path / "nowhere")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_with_unrelated_files_is_no_graph_but_may_become_one(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "x.parquet").write_bytes(b"mine too")
    with pytest.raises(GraphNotFoundError):
        og.open(tmp_path)
    a_graph(tmp_path)
    assert every_read(og.open(tmp_path)) == READ
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert (tmp_path / "data" / "x.parquet").read_bytes() == b"mine too"


def test_importing_the_package_imports_neither_lance_nor_arrow() -> None:
    heavy = "sorted({'lance', 'pyarrow', 'obstore', 'lark'} & set(sys.modules))"
    code = f"import sys, json, omnigraph; dir(omnigraph); print(json.dumps({heavy}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []


# -- copies -------------------------------------------------------------------------------------------


def test_a_copy_of_a_graph_opens_and_goes_its_own_way(tmp_path: Path) -> None:
    original = a_graph(tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "far" / "away" / "b")
    copy = og.open(tmp_path / "far" / "away" / "b")
    assert every_read(copy) == READ
    for graph, name in ((original, "Original"), (copy, "Copy")):
        with graph.transaction() as tx:
            tx.append("Person", [{"name": name}])
    copy.branches.delete("review")
    assert original.snapshot().entity("Person", "Copy") is None
    assert copy.snapshot().entity("Person", "Original") is None
    assert [b.name for b in original.branches.list()] == ["main", "review"]
    shutil.rmtree(tmp_path / "a")
    assert set(copy.snapshot().read("Person").column("id").to_pylist()) == {"Ann", "Bob", "Copy"}


# -- read-only ----------------------------------------------------------------------------------------

WRITES: dict[str, Callable[[og.Graph], object]] = {
    "transaction": lambda graph: graph.transaction(),
    "restore": lambda graph: graph.restore("main", to="v1"),
    "create branch": lambda graph: graph.branches.create("x"),
    "delete branch": lambda graph: graph.branches.delete("review"),
    "rename branch": lambda graph: graph.branches.rename("review", "x"),
    "create tag": lambda graph: graph.tags.create("x"),
    "delete tag": lambda graph: graph.tags.delete("v1"),
}


def test_a_session_of_every_read_changes_no_file_no_folder_and_no_time(tmp_path: Path) -> None:
    a_graph(tmp_path / "g")
    before = fingerprint(tmp_path / "g")
    assert every_read(og.open(tmp_path / "g", read_only=True)) == READ
    assert fingerprint(tmp_path / "g") == before


@pytest.mark.parametrize("write", WRITES)
def test_every_writing_method_of_a_read_only_graph_is_refused_and_writes_nothing(tmp_path: Path, write: str) -> None:
    a_graph(tmp_path / "g")
    graph = og.open(tmp_path / "g", read_only=True)
    before = fingerprint(tmp_path / "g")
    for handle in (graph, graph.on("review")):
        with pytest.raises(ReadOnlyError):
            WRITES[write](handle)
    assert fingerprint(tmp_path / "g") == before
    assert (graph.read_only, "read-only" in repr(graph)) == (True, True)


def test_a_graph_whose_files_may_not_be_written_opens_and_reads(tmp_path: Path) -> None:
    root = tmp_path / "g"
    a_graph(root)
    for path in (root, *root.rglob("*")):
        path.chmod(0o444 if path.is_file() else 0o555)
    try:
        assert every_read(og.open(root, read_only=True)) == READ
    finally:
        for path in (root, *root.rglob("*")):
            path.chmod(0o644 if path.is_file() else 0o755)


ON_A_MOUNT = """
import json, sys
from pathlib import Path
from typing import Any
import omnigraph as og

{every_read}
root = Path(sys.argv[1])
try:
    (root / "probe").write_text("x")
    sys.exit("the mount can be written")
except OSError:
    pass
seen = every_read(og.open(root, read_only=True))
try:
    og.open(root).branches.create("x")
    sys.exit("a branch was created on a read-only mount")
except og.OmnigraphError as refused:
    print(json.dumps({{"seen": seen, "refused": refused.code}}))
"""


def test_a_graph_on_a_read_only_mount_opens_and_reads_and_refuses_writes_typed(tmp_path: Path) -> None:
    a_graph(tmp_path / "g")
    (tmp_path / "mount").mkdir()
    script = tmp_path / "reads.py"
    script.write_text(ON_A_MOUNT.format(every_read=textwrap.dedent(inspect.getsource(every_read))))
    steps = 'mount --bind "$1" "$2" && mount -o remount,ro,bind "$2" || exit 77; exec "$3" "$4" "$2"'
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("only root may mount; the S3 test below shows the same with a reading identity")
    command = ["unshare", "-m", "sh", "-c", steps, "sh", tmp_path / "g", tmp_path / "mount", sys.executable, script]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    if done.returncode == 77 or "unshare:" in done.stderr:
        pytest.skip("this machine does not let a test mount; the S3 test below shows the same")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"seen": READ, "refused": "STORAGE"}


@pytest.mark.s3
def test_an_identity_that_may_only_read_opens_and_reads_and_can_write_nothing(
    s3_server: SeaweedServer, s3_root: Callable[[], str], tmp_path: Path
) -> None:
    from omnigraph.storage.objects import open_objects
    from omnigraph.storage.roots import GraphRoot

    a_graph(tmp_path / "g")
    root, reader = s3_root(), s3_server.storage_options(read_only=True)
    there = open_objects(GraphRoot.parse(root, s3_server.storage_options()))
    for info in (here := open_objects(GraphRoot.parse(tmp_path / "g"))).list():
        there.put(info.key, here.get(info.key))
    before = {info.key: info.modified for info in there.list()}
    assert every_read(og.open(root, read_only=True, storage_options=reader)) == READ
    with pytest.raises(StorageError) as refused:
        og.open(root, storage_options=reader).branches.create("x")
    assert reader["aws_secret_access_key"] not in str(refused.value)
    assert {info.key: info.modified for info in there.list()} == before


# -- the stamp ----------------------------------------------------------------------------------------


def stamp_from_the_future(graph: og.Graph) -> None:
    session_of(graph).manifest.restamp(1, 2)


@pytest.mark.parametrize("read_only", [False, True])
def test_a_graph_of_a_newer_format_is_refused_in_every_mode_and_left_alone(tmp_path: Path, read_only: bool) -> None:
    stamp_from_the_future(a_graph(tmp_path / "g"))
    before = fingerprint(tmp_path / "g")
    with pytest.raises(UnsupportedFormatError, match="upgrade omnigraph") as refused:
        og.open(tmp_path / "g", read_only=read_only)
    assert (refused.value.found, refused.value.supported) == (2, 1)
    with pytest.raises(OmnigraphError):
        og.init(tmp_path / "g", SCHEMA)
    assert fingerprint(tmp_path / "g") == before


@pytest.mark.parametrize("write", WRITES)
def test_a_writer_that_was_there_before_the_newer_format_is_refused_and_writes_nothing(
    tmp_path: Path, write: str
) -> None:
    graph = a_graph(tmp_path / "g")
    stamp_from_the_future(og.open(tmp_path / "g"))
    before = fingerprint(tmp_path / "g")
    with pytest.raises(UnsupportedFormatError, match="upgrade omnigraph"):
        WRITES[write](graph)
    with pytest.raises(UnsupportedFormatError, match="upgrade omnigraph"):
        graph.snapshot()
    assert fingerprint(tmp_path / "g") == before


def test_a_publish_that_was_under_way_when_the_format_changed_changes_nothing_visible(tmp_path: Path) -> None:
    graph = a_graph(tmp_path / "g")
    tx = graph.transaction()
    tx.append("Person", [{"name": "Late"}])
    stamp_from_the_future(og.open(tmp_path / "g"))
    versions = files_of(tmp_path / "g" / "__manifest" / "_versions")
    with pytest.raises(CommitOutcomeUnknownError, match="upgrade omnigraph") as unknown:
        tx.__exit__(None, None, None)
    assert is_ulid(unknown.value.commit)
    assert unknown.value.commit in str(unknown.value)
    [promise] = (place(tmp_path / "g") / "__recovery").iterdir()
    assert f'"commit": "{unknown.value.commit}"' in promise.read_text(), "only a newer omnigraph may decide about it"
    with pytest.raises(UnsupportedFormatError, match="upgrade omnigraph"):
        bare_commit(graph, stale=True)
    assert files_of(tmp_path / "g" / "__manifest" / "_versions") == versions
