"""Where rows of a load came from: sources of many files and objects, and errors that name file and record."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.engine.test_load import RECORDS, SCHEMA, file, names, rows

import omnigraph as og
from omnigraph.errors import ConstraintError, InvalidDataError, InvalidOptionError
from omnigraph.storage.objects import open_objects
from omnigraph.storage.roots import GraphRoot
from omnigraph.testing.s3_server import SeaweedServer


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    return og.init(tmp_path / "g.omni", SCHEMA)


# -- errors of the transaction say where ----------------------------------------------------------------

PEOPLE = "\n".join(f'{{"type": "Person", "data": {{"name": "p{n}", "age": {n}}}}}' for n in range(6))


def test_ids_that_come_twice_are_named_with_their_records(graph: og.Graph, tmp_path: Path) -> None:
    text = f'{PEOPLE}\n{{"type": "Note", "data": {{"text": "x"}}}}\n{{"type": "Person", "data": {{"name": "p2"}}}}'
    for mode in ("append", "merge", "overwrite"):
        with pytest.raises(InvalidDataError, match="'p2' is records 3, 8") as caught:
            graph.load(file(tmp_path, text), mode)
        assert caught.value.facts["records"] == {"p2": [3, 8]}
        assert caught.value.facts["table_key"] == "node:Person"


def test_ids_that_exist_are_named_with_their_records(graph: og.Graph, tmp_path: Path) -> None:
    graph.load(file(tmp_path, '{"type": "Person", "data": {"name": "p4"}}'))
    with pytest.raises(InvalidDataError, match="exist already: 'p4'; 'p4' is record 5"):
        graph.load(file(tmp_path, PEOPLE))


STRICT = """
node Person { name: String @key  age: I32?  mail: String? @unique  @range(age, 0..99) }
node Pair { a: I64  b: String  age: I32?  @key(a, b)  @range(age, 0..99) }
edge Knows: Person -> Person @card(0..1)
"""
BROKEN = """{"type": "Person", "data": {"name": "a", "age": 1, "mail": "m"}}
{"type": "Person", "data": {"name": "b", "age": 100}}
{"type": "Person", "data": {"name": "c", "mail": "m"}}
{"type": "Pair", "data": {"a": 1, "b": "x", "age": -1}}
{"edge": "Knows", "from": "a", "to": "b"}
{"edge": "Knows", "from": "b", "to": "nobody"}
{"edge": "Knows", "from": "a", "to": "c"}
"""


def test_rows_that_break_constraints_are_named_with_their_records(tmp_path: Path) -> None:
    graph = og.init(tmp_path / "strict.omni", STRICT)
    with pytest.raises(ConstraintError, match="record 2") as caught:
        graph.load(file(tmp_path, BROKEN))
    found = {(each["table_key"], each["constraint"]): each["sample"] for each in caught.value.facts["violations"]}
    assert found["node:Person", "@range(age)"] == [{"id": "b", "age": 100, "record": 2}]
    assert found["node:Pair", "@range(age)"] == [{"id": '[1,"x"]', "age": -1, "record": 4}]
    assert found["node:Person", "@unique(mail)"][0]["record"] == 1
    (lost,) = found["edge:Knows", "to an existing Person"]
    assert (lost["dst"], lost["record"]) == ("nobody", 6)
    assert found["edge:Knows", "@card(0..1)"] == [{"src": "a", "edges": 2, "records": [5, 7]}]


def test_records_of_several_files_are_named_with_their_file(tmp_path: Path) -> None:
    graph = og.init(tmp_path / "strict.omni", STRICT)
    folder = tmp_path / "in"
    folder.mkdir()
    file(folder, BROKEN, "b.jsonl")
    file(folder, "name,age\nx,1\ny,-7\n", "Person.csv")
    with pytest.raises(ConstraintError) as caught:
        graph.load(folder)
    (sample,) = [each["sample"] for each in caught.value.facts["violations"] if each["constraint"] == "@range(age)"][:1]
    assert {(row["id"], row["file"], row["record"]) for row in sample} == {("y", "Person.csv", 2), ("b", "b.jsonl", 2)}
    file(folder, '{"type": "Person", "data": {"name": "x"}}', "c.jsonl")
    with pytest.raises(InvalidDataError, match=r"'x' is records Person\.csv:1, c\.jsonl:1"):
        graph.load(folder)
    file(folder, "{}", "d.jsonl")
    with pytest.raises(InvalidDataError, match=r"file 'd\.jsonl', record 1 \(line 1\)") as bad:
        graph.load(folder)
    assert bad.value.facts["file"] == "d.jsonl"


@pytest.mark.parametrize("name", ["", "x" * 5_000])
def test_an_id_of_the_wrong_length_is_named_with_its_record(graph: og.Graph, tmp_path: Path, name: str) -> None:
    for bad in ({"type": "Person", "data": {"name": name}}, {"type": "Note", "id": name, "data": {"text": "x"}}):
        with pytest.raises(InvalidDataError, match=r"record 7 \(line 7\).*an id has 1 to 4096 characters"):
            graph.load(file(tmp_path, f"{PEOPLE}\n{json.dumps(bad)}"))


# -- other sources --------------------------------------------------------------------------------------


def test_a_pattern_means_all_files_that_match(graph: og.Graph, tmp_path: Path) -> None:
    for name in ("a.jsonl", "b.jsonl", ".hidden.jsonl", "c.json"):
        file(tmp_path, f'{{"type": "Person", "data": {{"name": "{name}"}}}}', name)
    graph.load(str(tmp_path / "*.jsonl"))
    assert names(graph) == ["a.jsonl", "b.jsonl"]
    file(tmp_path, "name\nx\n", "x.csv")
    file(tmp_path, "name\ny\n", "y.csv")
    assert graph.load(tmp_path / "?.csv", type="Person").rows == {"node:Person": 2}


@pytest.mark.s3
def test_objects_are_read_where_they_are(
    graph: og.Graph, tmp_path: Path, s3_server: SeaweedServer, s3_root: Callable[[], str]
) -> None:
    place, options = s3_root(), s3_server.storage_options()
    store = open_objects(GraphRoot.parse(place, options))
    pq.write_table(pa.table({"name": ["z"]}), tmp_path / "z.parquet")
    with pa.ipc.new_file(str(tmp_path / "n.arrow"), pa.schema([("text", pa.string())])) as writer:
        writer.write_table(pa.table({"text": ["arrow"]}))
    store.put("in.jsonl", RECORDS.encode())
    store.put("more/in.jsonl.gz", gzip.compress(b'{"type": "Person", "data": {"name": "gz"}}'))
    store.put("all/Person/part-1.parquet", (tmp_path / "z.parquet").read_bytes())
    store.put("all/Note.arrow", (tmp_path / "n.arrow").read_bytes())
    store.put("all/_SUCCESS", b"")
    for source in ("in.jsonl", "more/*.jsonl.gz", "all/"):
        graph.load(f"{place}/{source}", storage_options=options)
    assert names(graph) == ["Ann", "Bo", "gz", "z"]
    assert {row["text"] for row in rows(graph, "Note")} == {"hello", "arrow"}
    for source, problem in {"no.jsonl": "there is no", "none/*.jsonl": "no file matches", "in.what": "guessed"}.items():
        with pytest.raises(InvalidOptionError, match=problem) as caught:
            graph.load(f"{place}/{source}", storage_options=options)
        assert options["aws_secret_access_key"] not in str(caught.value)
    remote = og.init(s3_root(), SCHEMA, storage_options=options)
    assert remote.load(f"{place}/in.jsonl").rows["node:Person"] == 2  # reached as the graph is
    with pytest.raises(InvalidOptionError, match=r"for s3:// sources"):
        graph.load(file(tmp_path, RECORDS), storage_options=options)
