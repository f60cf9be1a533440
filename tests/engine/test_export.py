"""Exporting a commit: what is written, in which order, and that a target appears whole or not at all."""

import gzip
import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.engine.cli_kit import run, spawn, wide_terminal

import omnigraph as og
from omnigraph.cli.output import Exit
from omnigraph.engine import exporting
from omnigraph.errors import InvalidOptionError, ObjectExistsError, StorageError, TypeNotFoundError

__all__ = ["wide_terminal"]  # a fixture

SCHEMA = """
edge Knows: Person -> Person { since: Date? }
node Person { name: String @key  age: I32?  face: Blob? }
node Note { text: String }
"""
LINES = [
    '{"type":"Note","data":{"id":"n1","text":"\u2028 ü 🎉"}}',
    '{"type":"Person","data":{"id":"Ann","name":"Ann","age":41,"face":"base64:AP8="}}',
    '{"type":"Person","data":{"id":"Bo","name":"Bo","age":null,"face":null}}',
    '{"edge":"Knows","from":"Bo","to":"Ann","data":{"id":"k1","since":"1969-12-31"}}',
]


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    graph = og.init(tmp_path / "g.omni", SCHEMA)
    with graph.transaction() as tx:
        tx.append("Person", [{"name": "Bo"}, {"name": "Ann", "age": 41, "face": b"\x00\xff"}])
        tx.append("Note", [{"id": "n1", "text": "\u2028 ü 🎉"}])
        tx.append("Knows", [{"id": "k1", "src": "Bo", "dst": "Ann", "since": _date("1969-12-31")}])
    return graph


def _date(text: str) -> Any:
    return pa.scalar(text).cast(pa.date32()).as_py()


def lines(path: Path) -> list[str]:
    return path.read_bytes().decode().split("\n")[:-1]


def left_behind(folder: Path) -> list[str]:
    return [entry.name for entry in folder.iterdir() if entry.name.endswith(".tmp")]


# -- what is written ------------------------------------------------------------------------------------


def test_lines_are_nodes_then_edges_by_name_then_by_id(graph: og.Graph, tmp_path: Path) -> None:
    done = graph.export(tmp_path / "out.jsonl")
    assert lines(tmp_path / "out.jsonl") == LINES
    assert done.rows == {"node:Note": 1, "node:Person": 2, "edge:Knows": 1}
    assert (done.format, done.commit, done.version) == ("jsonl", graph.refresh().id, 2)
    assert done.bytes == (tmp_path / "out.jsonl").stat().st_size
    assert json.loads(json.dumps(done.to_dict()))["target"] == str(tmp_path / "out.jsonl")


def test_an_export_is_of_one_commit(graph: og.Graph, tmp_path: Path) -> None:
    graph.tags.create("t")
    with graph.transaction() as tx:
        tx.append("Note", [{"text": "later"}])
    for number, at in enumerate(({"tag": "t"}, {"version": 2}, {"commit": graph.log()[1].id})):
        target = tmp_path / f"{number}.jsonl"
        graph.export(target, **at)  # type: ignore[arg-type]  # one of several ways to name a commit
        assert lines(target) == LINES


def test_types_are_chosen_by_name_or_table_key(graph: og.Graph, tmp_path: Path) -> None:
    done = graph.export(tmp_path / "out.ndjson", types=["edge:Knows", "Note", "Note"])
    assert list(done.rows) == ["node:Note", "edge:Knows"]
    with pytest.raises(TypeNotFoundError, match="did you mean 'Person'"):
        graph.export(tmp_path / "x.jsonl", types=["Persn"])
    with pytest.raises(InvalidOptionError, match="a list of types"):
        graph.export(tmp_path / "x.jsonl", types="Person")
    assert not (tmp_path / "x.jsonl").exists()


def test_streams_and_compressed_files_hold_the_same_lines(graph: og.Graph, tmp_path: Path) -> None:
    stream = io.BytesIO()
    graph.export(stream)
    assert stream.getvalue().decode().split("\n") == [*LINES, ""]
    graph.export(tmp_path / "out.jsonl.gz")
    assert gzip.decompress((tmp_path / "out.jsonl.gz").read_bytes()) == stream.getvalue()


def test_parquet_is_a_file_for_each_type(graph: og.Graph, tmp_path: Path) -> None:
    done = graph.export(tmp_path / "out", format="parquet")
    assert sorted(entry.name for entry in (tmp_path / "out").iterdir()) == [
        "Knows.parquet",
        "Note.parquet",
        "Person.parquet",
    ]
    people = pq.read_table(tmp_path / "out" / "Person.parquet")
    assert people.column("name").to_pylist() == ["Ann", "Bo"]
    assert people.column("face").to_pylist() == [b"\x00\xff", None]
    assert not people.schema.metadata
    assert done.rows["node:Person"] == 2
    assert graph.export(tmp_path / "out.parquet", types=["Note"]).format == "parquet"


def test_a_table_without_rows_is_an_empty_file_or_no_lines(tmp_path: Path) -> None:
    empty = og.init(tmp_path / "e.omni", SCHEMA)
    assert empty.export(tmp_path / "e.jsonl").rows == {"node:Note": 0, "node:Person": 0, "edge:Knows": 0}
    assert lines(tmp_path / "e.jsonl") == []
    empty.export(tmp_path / "e.parquet")
    assert pq.read_table(tmp_path / "e.parquet" / "Person.parquet").num_rows == 0


def test_too_many_rows_to_sort_come_in_table_order(
    graph: og.Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporting, "ORDERED_ROWS_MAX", 1)
    graph.export(tmp_path / "out.jsonl", types=["Person"])
    assert [json.loads(line)["data"]["id"] for line in lines(tmp_path / "out.jsonl")] == ["Bo", "Ann"]


def test_progress_is_told(graph: og.Graph, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    graph.export(tmp_path / "out.jsonl", progress=lambda *seen: told.append(seen))
    assert told == [(1, 4), (3, 4), (4, 4)]


# -- where it is written --------------------------------------------------------------------------------


def test_a_target_that_exists_is_replaced_only_if_asked(graph: og.Graph, tmp_path: Path) -> None:
    target = tmp_path / "out.jsonl"
    target.write_text("mine")
    with pytest.raises(ObjectExistsError, match="exists already"):
        graph.export(target)
    assert target.read_text() == "mine"
    graph.export(target, overwrite=True)
    assert lines(target) == LINES
    for _ in range(2):
        graph.export(tmp_path / "out", format="parquet", overwrite=True)
    with pytest.raises(ObjectExistsError):
        graph.export(tmp_path / "out", format="parquet")
    (tmp_path / "out" / "mine.txt").touch()
    with pytest.raises(ObjectExistsError, match="more than Parquet files"):
        graph.export(tmp_path / "out", format="parquet", overwrite=True)
    with pytest.raises(ObjectExistsError, match="is a folder"):
        graph.export(tmp_path / "out", format="jsonl", overwrite=True)
    with pytest.raises(ObjectExistsError, match="is a file"):
        graph.export(target, format="parquet", overwrite=True)
    assert left_behind(tmp_path) == []


TAKEN: dict[str, tuple[str, str, bool, str]] = {
    "a file": ("mine.jsonl", "jsonl", False, "choose another name, or pass overwrite=True"),
    "a folder of Parquet": ("parquet", "parquet", False, "choose another name, or pass overwrite=True"),
    "an empty folder": ("empty", "parquet", False, "choose another name, or pass overwrite=True"),
    "a link to nothing": ("dangling.jsonl", "jsonl", False, "choose another name, or pass overwrite=True"),
    "a folder, for a file": ("parquet", "jsonl", True, "is not replaced by a file; remove it"),
    "a file, for a folder": ("mine.jsonl", "parquet", True, "is not replaced by a folder; remove it"),
    "a folder of other things": ("other", "parquet", True, "more than Parquet files, so it is not replaced; remove"),
}


@pytest.mark.parametrize("case", TAKEN)
def test_what_is_there_is_not_touched_and_the_error_says_what_to_do(graph: og.Graph, tmp_path: Path, case: str) -> None:
    name, format, overwrite, advice = TAKEN[case]
    place = tmp_path / "there"
    for folder in ("parquet", "empty", "other"):
        (place / folder).mkdir(parents=True)
    for file in ("mine.jsonl", "parquet/mine.parquet", "other/mine.txt"):
        (place / file).write_text("mine")
    (place / "dangling.jsonl").symlink_to(place / "nothing")
    before = sorted((path, path.is_file() and path.read_text()) for path in place.rglob("*"))
    with pytest.raises(ObjectExistsError, match=advice) as caught:
        graph.export(place / name, format=format, overwrite=overwrite)
    assert caught.value.facts["target"] == str(place / name)
    assert "nothing was written" in caught.value.message
    assert sorted((path, path.is_file() and path.read_text()) for path in place.rglob("*")) == before


def test_a_file_that_appears_while_an_export_runs_is_not_replaced(graph: og.Graph, tmp_path: Path) -> None:
    target = tmp_path / "out.jsonl"

    def appear(rows: int, total: int) -> None:
        target.write_text("mine")

    with pytest.raises(ObjectExistsError, match="exists already"):
        graph.export(target, progress=appear)
    assert target.read_text() == "mine"
    assert left_behind(tmp_path) == []


@pytest.mark.parametrize("name", ["out.jsonl", "out.parquet"])
def test_an_export_that_fails_leaves_nothing_behind(
    graph: og.Graph, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(rows: int, total: int) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        graph.export(tmp_path / name, progress=fail)
    assert not (tmp_path / name).exists()
    assert left_behind(tmp_path) == []
    with pytest.raises(StorageError, match="can not be written"):
        graph.export(tmp_path / "no such folder" / name)


def test_targets_that_make_no_sense_are_refused(graph: og.Graph, tmp_path: Path) -> None:
    for target, format, problem in [
        (tmp_path / "out", None, "can not be guessed"),
        (tmp_path / "out.csv", None, "not as csv"),
        (tmp_path / "out", "xml", "no format 'xml'"),
        (io.BytesIO(), "parquet", "into a folder"),
        (5, None, "a target is"),
        ("s3://bucket/out.jsonl", None, "to a local path"),
    ]:
        with pytest.raises(InvalidOptionError, match=problem):
            graph.export(target, format=format)


# -- the command ----------------------------------------------------------------------------------------


def test_the_command_exports_and_says_what(graph: og.Graph, tmp_path: Path) -> None:
    target = str(tmp_path / "out.jsonl")
    said = run("export", graph.root, target)
    assert said.out.startswith(f"exported main@2 ({graph.refresh().id}) to {target}: ")
    assert run("export", graph.root, target, expect=Exit.CONFLICT).err.startswith("[OBJECT_EXISTS]")
    told = run("export", graph.root, target, "--overwrite", "--type", "Note", "--version", "2", "--json").json
    assert (told["rows"], told["version"]) == ({"node:Note": 1}, 2)
    run("export", graph.root, str(tmp_path / "p"), "--format", "parquet", "--branch", "main")
    assert (tmp_path / "p" / "Note.parquet").exists()


def test_a_dash_is_standard_output_and_nothing_else_is_on_it(graph: og.Graph, tmp_path: Path) -> None:
    said = spawn("export", graph.root, "-", "--json")
    assert said.out.split("\n") == [*LINES, ""]
    assert (said.code, said.err) == (0, "")
