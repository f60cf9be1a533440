"""Loading files: what is taken, what is refused and where, and that a load is one commit or nothing."""

import gzip
import io
import json
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.engine.cli_kit import run, wide_terminal

import omnigraph as og
from omnigraph.cli.output import Exit
from omnigraph.engine import intake
from omnigraph.errors import (
    BranchNotFoundError,
    ConstraintError,
    InvalidDataError,
    InvalidNameError,
    InvalidOptionError,
    ReadOnlyError,
    TypeNotFoundError,
)
from omnigraph.storage import record_files

__all__ = ["wide_terminal"]  # a fixture

SCHEMA = """
node Person { name: String @key  age: I32?  bio: String? }
node Note { text: String }
edge Knows: Person -> Person { since: Date? }
"""
RECORDS = """
{"type": "Person", "data": {"name": "Ann", "age": 41}}
{"edge": "Knows", "from": "Ann", "to": "Bo", "data": {"since": "2020-01-01"}}
{"type": "Person", "data": {"name": "Bo"}}
{"type": "Note", "id": "n1", "data": {"text": "hello"}}
"""


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    return og.init(tmp_path / "g.omni", SCHEMA)


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of temporary files: nothing may be left in it."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def left_in(folder: Path) -> list[str]:
    """What a load left behind; where writers queue and where plans spill is the process's own."""
    ours = ("omnigraph-turns-", "omnigraph-engine-")
    return [entry.name for entry in folder.iterdir() if not entry.name.startswith(ours)]


def file(tmp_path: Path, text: str | bytes, name: str = "in.jsonl") -> Path:
    path = tmp_path / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def rows(graph: og.Graph, type: str, branch: str | None = None) -> list[dict[str, Any]]:
    return sorted(graph.snapshot(branch).read(type).to_pylist(), key=lambda row: str(row["id"]))


def names(graph: og.Graph, branch: str | None = None) -> list[str]:
    return [row["name"] for row in rows(graph, "Person", branch)]


# -- a load is one commit -------------------------------------------------------------------------------


def test_a_file_of_interleaved_types_becomes_one_commit(graph: og.Graph, tmp_path: Path, temporary: Path) -> None:
    done = graph.load(file(tmp_path, RECORDS), message="first", actor="etl")
    assert done.rows == {"node:Person": 2, "edge:Knows": 1, "node:Note": 1}
    assert (done.branch, done.branch_created, done.receipt.version) == ("main", False, 2)
    head = graph.refresh()
    assert (head.id, head.message, head.actor) == (done.receipt.commit, "first", "etl")
    assert names(graph) == ["Ann", "Bo"]
    assert rows(graph, "Note") == [{"id": "n1", "text": "hello"}]
    assert (rows(graph, "Knows")[0]["src"], rows(graph, "Knows")[0]["dst"]) == ("Ann", "Bo")
    assert json.loads(json.dumps(done.to_dict()))["rows"]["node:Person"] == 2
    assert left_in(temporary) == []


def test_records_may_be_spread_over_lines(graph: og.Graph) -> None:
    text = json.dumps({"type": "Person", "data": {"name": "Ann"}}, indent=2)
    graph.load(io.BytesIO(f"\ufeff{text}{text.replace('Ann', 'Bo')}".encode()))
    assert names(graph) == ["Ann", "Bo"]


def test_append_refuses_an_id_that_is_there_and_nothing_is_applied(graph: og.Graph, tmp_path: Path) -> None:
    path = file(tmp_path, RECORDS)
    graph.load(path)
    with pytest.raises(InvalidDataError, match="exist already"):
        graph.load(path)
    assert graph.refresh().version == 2


def test_merge_replaces_whole_rows_and_keeps_the_others(graph: og.Graph, tmp_path: Path) -> None:
    graph.load(file(tmp_path, RECORDS))
    changed = '{"type": "Person", "data": {"name": "Ann", "bio": "x"}} {"type": "Person", "data": {"name": "Cy"}}'
    done = graph.load(file(tmp_path, changed), "merge")
    assert (done.receipt.tables["node:Person"].rows_inserted, done.receipt.tables["node:Person"].rows_updated) == (1, 1)
    assert names(graph) == ["Ann", "Bo", "Cy"]
    assert rows(graph, "Person")[0] == {"id": "Ann", "name": "Ann", "age": None, "bio": "x"}


def test_overwrite_replaces_the_tables_that_occur_and_no_other(graph: og.Graph, tmp_path: Path) -> None:
    graph.load(file(tmp_path, RECORDS))
    graph.load(file(tmp_path, " "), "overwrite", type="Knows")
    graph.load(file(tmp_path, '{"type": "Person", "data": {"name": "Cy"}}'), "overwrite")
    assert names(graph) == ["Cy"]
    assert graph.snapshot().count("Note") == 1


def test_overwrite_with_a_type_and_no_rows_empties_its_table(graph: og.Graph, tmp_path: Path) -> None:
    graph.load(file(tmp_path, RECORDS))
    with pytest.raises(ConstraintError, match="edge:Knows from an existing Person"):
        graph.load(file(tmp_path, " \n"), "overwrite", type="Person")
    graph.load(file(tmp_path, " \n"), "overwrite", type="Knows")
    done = graph.load(file(tmp_path, " \n"), "overwrite", type="Person")
    assert done.rows == {"node:Person": 0}
    assert (graph.snapshot().count("Person"), graph.snapshot().count("Note")) == (0, 1)


def test_an_empty_input_makes_no_commit(graph: og.Graph, tmp_path: Path) -> None:
    done = graph.load(file(tmp_path, ""))
    assert (done.receipt.commit, done.rows, graph.refresh().version) == (None, {}, 1)


def test_a_rerun_with_the_same_txn_reads_nothing(graph: og.Graph, tmp_path: Path) -> None:
    first = graph.load(file(tmp_path, RECORDS), txn=("nightly", 1))

    class Unread(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            raise AssertionError("the input was read")

    again = graph.load(Unread(), txn=("nightly", 1))
    assert (again.receipt.rerun, again.receipt.commit, again.rows) == (True, first.receipt.commit, {})
    assert graph.load(tmp_path / "gone.jsonl", txn=("nightly", 1)).receipt.rerun
    assert graph.load(Unread(), branch="new", create_from="main", txn=("nightly", 1)).branch_created is False
    assert again.rejected("Person").read_all().num_rows == 0
    with pytest.raises(AssertionError, match="was read"):
        graph.load(Unread(), txn=("nightly", 2))


def mixed(count: int) -> str:
    """People and notes, mixed, a line each."""
    lines = (
        f'{{"type": "Person", "data": {{"name": "p{n}"}}}}'
        if n % 3
        else f'{{"type": "Note", "data": {{"text": "{n}"}}}}'
        for n in range(count)
    )
    return "\n".join(lines)


@pytest.mark.parametrize("chunk", [17, 1_000])
def test_rows_are_turned_into_columns_a_part_at_a_time(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch, temporary: Path, chunk: int
) -> None:
    monkeypatch.setattr(record_files, "CHUNK_BYTES", chunk)
    told: list[tuple[int, int, int | None]] = []
    data = mixed(300).encode()
    done = graph.load(io.BytesIO(data), progress=lambda *seen: told.append(seen))
    assert done.rows == {"node:Note": 100, "node:Person": 200}
    assert [row["name"] for row in graph.snapshot().read("Person").to_pylist()] == [
        f"p{n}" for n in range(300) if n % 3
    ]
    assert told[-1] == (300, len(data), None)
    assert len(told) > 10
    assert sorted(told) == told
    assert left_in(temporary) == []


# -- branches -------------------------------------------------------------------------------------------


def test_a_missing_branch_is_forked_if_its_start_is_given(graph: og.Graph, tmp_path: Path) -> None:
    path = file(tmp_path, RECORDS)
    with pytest.raises(BranchNotFoundError):
        graph.load(path, branch="review")
    done = graph.load(path, branch="review", create_from="main")
    assert (done.branch, done.branch_created) == ("review", True)
    assert (names(graph, "review"), names(graph)) == (["Ann", "Bo"], [])
    again = graph.load(path, "merge", "review", create_from="main")
    assert again.branch_created is False


@pytest.mark.parametrize("text", ["{", '{"type": "Person"}', '{"type": "Persn"}'])
def test_a_branch_is_not_forked_for_an_input_that_can_not_be_read(graph: og.Graph, tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidDataError):
        graph.load(file(tmp_path, text), branch="review", create_from="main")
    assert [branch.name for branch in graph.branches.list()] == ["main"]


def test_what_would_be_refused_later_is_refused_before_reading(graph: og.Graph, tmp_path: Path) -> None:
    path = file(tmp_path, "{")
    with pytest.raises(InvalidOptionError, match=r"no mode 'apend'.*did you mean 'append'"):
        graph.load(path, "apend")
    with pytest.raises(InvalidNameError):
        graph.load(path, branch="no such name", create_from="main")
    with pytest.raises(InvalidOptionError):
        graph.load(path, actor="omnigraph:me")
    with pytest.raises(InvalidOptionError, match=r"no format 'jsnl'.*did you mean 'jsonl'"):
        graph.load(path, format="jsnl")
    with pytest.raises(TypeNotFoundError, match="Person"):
        graph.load(path, type="Persn")
    with pytest.raises(ReadOnlyError):
        og.open(graph.root, read_only=True).load(path)


# -- errors say where -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bad", "problem", "facts"),
    [
        ('{"type": "Person", "data": {"name": "x", "age": "old"}}', "age does not fit", ("node:Person", "age")),
        ('{"type": "Person", "data": {"name": "x", "agee": 1}}', "did you mean 'age'", ("node:Person", "agee")),
        ('{"type": "Person", "data": {"age": 1}}', "name is required", ("node:Person", "name")),
        ('{"type": "Person", "data": {"name": "x"}, "id": "y"}', "differs from the key", ("node:Person", "id")),
        ('{"type": "Note", "data": {"text": "a", "text": "b"}}', "has 'text' twice", (None, None)),
        ('{"edge": "Knows", "to": "x"}', "'from'", ("edge:Knows", None)),
        ('{"edge": "Knows", "from": 1, "to": "x"}', "src does not fit", ("edge:Knows", "src")),
        ('{"type": "Note", "data": {"text": "\\ud800"}}', "text does not fit", ("node:Note", "text")),
        ("nope", "invalid JSON", (None, None)),
    ],
)
def test_an_error_names_the_record_and_the_line_it_begins_on(
    graph: og.Graph, tmp_path: Path, temporary: Path, bad: str, problem: str, facts: tuple[str | None, str | None]
) -> None:
    text = '{"type": "Person",\n "data": {"name": "a"}}\n\n{"type": "Note", "data": {"text": "ok"}}\n' + bad + "\n"
    with pytest.raises(InvalidDataError, match=problem) as caught:
        graph.load(file(tmp_path, text))
    assert (caught.value.facts["record"], caught.value.facts["line"]) == (3, 5)
    assert "record 3 (line 5)" in str(caught.value)
    assert (caught.value.facts.get("table_key"), caught.value.facts.get("column")) == facts
    assert graph.refresh().version == 1
    assert left_in(temporary) == []


def test_bytes_that_are_not_text_are_refused_with_their_line(graph: og.Graph, tmp_path: Path) -> None:
    with pytest.raises(InvalidDataError, match="line 2 is not UTF-8"):
        graph.load(file(tmp_path, b'{"type": "Note", "data": {"text": "a"}}\n"\xff"'))


def test_sources_that_can_not_be_opened_are_refused(graph: og.Graph, tmp_path: Path) -> None:
    for source, problem in [
        (tmp_path / "no.jsonl", "can not be read"),
        (tmp_path / "what.txt", "can not be guessed"),
        (tmp_path / "*.jsonl", "no file matches"),
        ("http://host/x.jsonl", "such as s3://bucket/key"),
        (5, "a source is"),
        (io.StringIO("{}"), "binary"),
    ]:
        with pytest.raises(InvalidOptionError, match=problem):
            graph.load(source)


# -- fast and slow --------------------------------------------------------------------------------------


def test_plain_lines_and_others_are_read_alike(
    graph: og.Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = '{"type": "Person",\n "data": {"name": "odd"}}\n'
    monkeypatch.setattr(record_files, "CHUNK_BYTES", 1_000)
    others = mixed(60).replace('"p', '"q')
    done = graph.load(file(tmp_path, f"{mixed(100)}\n{odd}{others}"))
    assert done.rows == {"node:Note": 54, "node:Person": 107}
    bad = f'{mixed(100)}\n{odd}{{"type": "Person", "data": {{"name": 5}}}}\n'
    with pytest.raises(InvalidDataError, match="name does not fit") as caught:
        graph.load(file(tmp_path, bad))
    assert (caught.value.record, caught.value.line) == (102, 103)


def test_whoever_is_never_plain_is_not_tried_forever(
    graph: og.Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_files, "CHUNK_BYTES", 100)
    tries: list[str] = []
    monkeypatch.setattr(intake, "plain_records", lambda text: tries.append(text))
    graph.load(file(tmp_path, mixed(200)))
    assert len(tries) == intake.HASTY_FAILURES_MAX + 1
    assert graph.snapshot().count("Person") == 133


# -- other formats --------------------------------------------------------------------------------------


def test_compressed_files_are_read(graph: og.Graph, tmp_path: Path) -> None:
    graph.load(file(tmp_path, gzip.compress(RECORDS.encode()), "in.jsonl.gz"))
    assert names(graph) == ["Ann", "Bo"]
    for broken in (b"no gzip", gzip.compress(RECORDS.encode())[:-9]):
        with pytest.raises(InvalidDataError, match="can not be read"):
            graph.load(file(tmp_path, broken, "broken.jsonl.gz"))


CSV = 'name,age,bio\nAnn,41,""\n"B,o",,\n"C\ny",,"say ""hi"""\n'


def test_a_csv_file_is_of_the_type_it_is_named_after(graph: og.Graph, tmp_path: Path) -> None:
    graph.load(file(tmp_path, CSV, "Person.csv"))
    assert rows(graph, "Person") == [
        {"id": "Ann", "name": "Ann", "age": 41, "bio": ""},
        {"id": "B,o", "name": "B,o", "age": None, "bio": None},
        {"id": "C\ny", "name": "C\ny", "age": None, "bio": 'say "hi"'},
    ]
    with pytest.raises(TypeNotFoundError, match="people"):
        graph.load(file(tmp_path, CSV, "people.csv"))
    graph.load(file(tmp_path, '\ufefffrom,to\nAnn,"B,o"\n', "k.csv"), type="Knows")
    graph.load(file(tmp_path, gzip.compress(b'src,dst,since\nAnn,"B,o",2020-02-03\n'), "Knows.csv.gz"))
    assert graph.snapshot().count("Knows") == 2
    graph.load(io.BytesIO(b"text\n\nx\n"[:5] + b"x\n"), format="csv", type="Note")
    assert [row["text"] for row in rows(graph, "Note")] == ["x"]


@pytest.mark.parametrize(
    ("text", "problem", "record"),
    [
        ("name,age\na,1\nb,x\n", "age does not fit", 2),
        ("name,age\na,1\n,2\n", "name is required", 2),
        ("name,agee\na,1\n", "did you mean 'age'", None),
        ("name,age,age\na,1,1\n", "twice", None),
        ("name,age\na\n", "can not be read.*columns", None),
        ("name\na\n\nb\n", "name is required", 2),
        ("age\n1\n", "name is required", 1),
        ("name\n\xff\n", "can not be read", None),
    ],
)
def test_a_csv_file_that_does_not_fit_is_refused(
    graph: og.Graph, tmp_path: Path, text: str, problem: str, record: int | None
) -> None:
    with pytest.raises(InvalidDataError, match=problem) as caught:
        graph.load(file(tmp_path, text.encode("latin-1"), "Person.csv"))
    assert caught.value.facts.get("record") == record
    assert graph.refresh().version == 1


@pytest.mark.parametrize("text", ["", "name,age\n", "name,age"])
def test_a_csv_file_without_rows_has_none(graph: og.Graph, tmp_path: Path, text: str) -> None:
    assert graph.load(file(tmp_path, text, "Person.csv")).rows == {"node:Person": 0}


def test_parquet_and_arrow_files_are_read_by_column_name(graph: og.Graph, tmp_path: Path) -> None:
    people = pa.table({"age": pa.array([1, 2], pa.int64()), "name": ["a", "b"]})
    pq.write_table(people, tmp_path / "Person.parquet")
    graph.load(tmp_path / "Person.parquet")
    with pa.ipc.new_file(str(tmp_path / "p.arrow"), people.schema) as writer:
        writer.write_table(people)
    with pa.ipc.new_stream(str(tmp_path / "p.feather"), people.schema) as stream:
        stream.write_table(people)
    for name in ("p.arrow", "p.feather"):
        assert graph.load(tmp_path / name, "merge", type="Person").receipt.commit is None
    with (tmp_path / "p.feather").open("rb") as opened:
        assert graph.load(opened, "merge", type="Person", format="arrow").rows == {"node:Person": 2}
    graph.load(pa.table({"from": ["a"], "to": ["b"]}), type="Knows")
    graph.load(people.append_column("bio", pa.array(["x", "y"])).to_reader(), "merge", type="Person")
    assert [row["bio"] for row in rows(graph, "Person")] == ["x", "y"]
    with pytest.raises(InvalidOptionError, match="give type="):
        graph.load(people)


def test_columns_that_do_not_fit_are_refused(graph: og.Graph, tmp_path: Path) -> None:
    pq.write_table(pa.table({"nam": ["a"]}), tmp_path / "Person.parquet")
    with pytest.raises(InvalidDataError, match="did you mean 'name'"):
        graph.load(tmp_path / "Person.parquet")
    with pytest.raises(InvalidDataError, match="age does not fit") as caught:
        graph.load(pa.table({"name": ["a", "b"], "age": [1, 2**40]}), type="Person")
    assert caught.value.record == 2
    for name in ("Person.parquet", "Person.arrow"):
        with pytest.raises(InvalidDataError, match="can not be read"):
            graph.load(file(tmp_path, b"ARROW1 and then nothing of the kind", name), type="Person")
    with (tmp_path / "Person.parquet").open("rb") as opened, pytest.raises(InvalidOptionError, match="from a path"):
        graph.load(opened, type="Person", format="parquet")


def test_a_folder_holds_a_file_or_a_folder_of_parts_for_each_type(graph: og.Graph, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    (folder / "Person.parquet").mkdir(parents=True)
    (folder / "Knows").mkdir()
    pq.write_table(pa.table({"text": ["t"]}), folder / "Note.parquet")
    pq.write_table(pa.table({"name": ["a"]}), folder / "Person.parquet" / "part-0.parquet")
    pq.write_table(pa.table({"name": ["b"]}), folder / "Person.parquet" / "part-1.parquet")
    pq.write_table(pa.table({"src": ["a"], "dst": ["b"]}), folder / "Knows" / "part.parquet")
    (folder / "_SUCCESS").touch()
    assert graph.load(folder).rows == {"node:Note": 1, "node:Person": 2, "edge:Knows": 1}
    assert names(graph) == ["a", "b"]
    assert graph.load(folder, "overwrite", type="Note").rows == {"node:Note": 1}
    with pytest.raises(InvalidDataError, match="can not be read"):
        graph.load(folder, format="csv")
    (folder / "Knows" / "x.parquet").touch()
    with pytest.raises(InvalidOptionError, match=r"Knows/x\.parquet"):
        graph.load(folder)
    (folder / "Knows" / "x.parquet").unlink()
    (folder / "readme.txt").touch()
    with pytest.raises(InvalidOptionError, match=r"readme\.txt"):
        graph.load(folder)
    (folder / "readme.txt").rename(folder / "Persn.parquet")
    with pytest.raises(TypeNotFoundError, match="did you mean 'Person'"):
        graph.load(folder)


def test_an_exception_of_a_reader_comes_through_and_nothing_is_applied(graph: og.Graph, temporary: Path) -> None:
    def batches() -> Any:
        yield pa.record_batch({"name": ["a"]})
        raise KeyError("mine")

    reader = pa.RecordBatchReader.from_batches(pa.schema([("name", pa.string())]), batches())
    with pytest.raises(KeyError, match="mine"):
        graph.load(reader, type="Person")
    assert graph.refresh().version == 1
    assert left_in(temporary) == []


# -- the command ----------------------------------------------------------------------------------------


def test_the_command_loads_and_says_what(graph: og.Graph, tmp_path: Path) -> None:
    path = str(file(tmp_path, RECORDS))
    said = run("load", graph.root, path, "--branch", "review", "--from", "main", "--message", "m", "--actor", "ann")
    head = graph.snapshot("review").commit
    assert said.out.startswith(f"loaded into branch review, made from main: version 2 ({head.id})\n")
    assert (head.message, head.actor) == ("m", "ann")
    assert said.err == ""
    told = run("load", graph.root, path, "--mode", "merge", "--txn", "nightly:7", "--json").json
    assert (told["branch"], told["rows"]["node:Person"], told["receipt"]["version"]) == ("main", 2, 2)
    again = run("load", graph.root, path, "--txn", "nightly:7")
    assert "landed before" in again.out
    nothing = str(file(tmp_path, "", "nothing.json"))
    assert "nothing to do" in run("load", graph.root, nothing).out


def test_the_command_reports_where_a_file_is_wrong(graph: og.Graph, tmp_path: Path) -> None:
    path = str(file(tmp_path, '{"type": "Note", "data": {"txt": 1}}', "x.data"))
    problem = run("load", graph.root, path, "--format", "jsonl", "--json", expect=Exit.ERROR).problem
    assert (problem["kind"], problem["record"], problem["line"], problem["column"]) == ("INVALID_DATA", 1, 1, "txt")
    assert run("load", graph.root, path, expect=Exit.USAGE).err.startswith("[INVALID_OPTION]")
    assert "APP:VERSION" in run("load", graph.root, path, "--txn", "x", expect=Exit.USAGE).err
