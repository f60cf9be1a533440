"""What rows may be given as to a transaction: pandas DataFrames, and files by their path."""

import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]  # its types are a package of their own
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

import omnigraph as og
from omnigraph.engine import rows_given
from omnigraph.errors import InvalidDataError, InvalidOptionError

SCHEMA = """
node Person {
    name: String @key  age: I32?  score: F64?  born: Date?  seen: DateTime?  tags: [String]?  photo: Blob?
    mood: enum(up, down)?
    @range(age, 0..150)
}
edge Knows: Person -> Person { since: Date? }
"""
PEOPLE = pa.table({"name": ["Ann", "Bob", "Cid"], "age": pa.array([41, None, 7], pa.int32())})


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    return og.init(tmp_path / "g", SCHEMA)


def ages(graph: og.Graph) -> dict[str, int | None]:
    return {row["name"]: row["age"] for row in graph.snapshot().read("Person").to_pylist()}


# -- pandas -------------------------------------------------------------------------------------------------


def test_a_frame_of_every_kind_of_column_is_stored_value_for_value(graph: og.Graph) -> None:
    frame = pd.DataFrame(
        {
            "name": ["Ann", "Bob"],
            "age": [41, None],  # which pandas makes floats of
            "score": [0.5, float("nan")],
            "born": [date(1990, 1, 2), None],
            "seen": pd.to_datetime(["2026-11-01T12:30:00+01:00", None]),
            "tags": [["a", "b"], None],
            "photo": [b"\x00\xff", None],
            "mood": pd.Categorical(["up", None]),
        },
        index=[7, 3],
    )
    with graph.transaction() as tx:
        tx.append("Person", frame)
    ann, bob = sorted(graph.snapshot().read("Person").to_pylist(), key=lambda row: str(row["name"]))
    assert ann == {
        "id": "Ann",
        "name": "Ann",
        "age": 41,
        "score": 0.5,
        "born": date(1990, 1, 2),
        "seen": datetime(2026, 11, 1, 11, 30, tzinfo=UTC),
        "tags": ["a", "b"],
        "photo": b"\x00\xff",
        "mood": "up",
    }
    assert {name: value for name, value in bob.items() if value is not None} == {"id": "Bob", "name": "Bob"}


def test_frames_go_with_every_verb_and_with_other_rows_in_one_commit(graph: og.Graph) -> None:
    with graph.transaction() as tx:
        tx.append("Person", pd.DataFrame({"age": [1, 2]}, index=pd.Index(["Ann", "Bob"], name="name")))
        tx.append("Person", [{"name": "Cid"}])
        tx.append("Knows", pd.DataFrame({"src": ["Ann"], "dst": ["Cid"]}))
    with graph.transaction() as tx:
        tx.upsert("Person", pd.DataFrame({"name": ["Bob", "Dan"], "age": pd.array([3, None], "Int32")}))
        tx.overwrite("Knows", pd.DataFrame({"src": [], "dst": []}))
    assert ages(graph) == {"Ann": 1, "Bob": 3, "Cid": None, "Dan": None}
    assert graph.snapshot().count("Knows") == 0


def test_a_long_frame_is_taken_in_pieces_and_none_is_lost(graph: og.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_given, "FRAME_ROWS", 100)
    monkeypatch.setattr(rows_given, "LONG_ROWS_MIN", 500)
    frame = pd.DataFrame({"name": [f"p{number}" for number in range(1_050)], "age": np.arange(1_050) % 100})
    with graph.transaction() as tx:
        tx.append("Person", frame)
    assert ages(graph) == dict(zip(frame["name"], frame["age"], strict=True))


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"name": ["Ann"], "age": [1.5]}, "age does not fit"),
        ({"name": ["Ann"], "age": ["1"]}, "age does not fit"),
        ({"name": ["Ann"], "age": [2**40]}, "age does not fit"),
        ({"name": [1]}, "name does not fit"),
        ({"name": ["Ann", 2]}, r"node:Person\.name does not fit"),
        ({"name": ["Ann"], "agee": [1]}, "did you mean 'age'"),
        ({"name": [None]}, "required"),
        ({0: ["Ann"]}, "texts as names"),
    ],
)
def test_what_does_not_fit_is_named_and_nothing_is_applied(
    graph: og.Graph, columns: dict[Any, list[Any]], says: str
) -> None:
    with pytest.raises(InvalidDataError, match=says), graph.transaction() as tx:
        tx.append("Person", pd.DataFrame(columns))
    assert graph.refresh().version == 1


def test_bad_rows_of_a_frame_can_be_left_out(graph: og.Graph) -> None:
    with graph.transaction(constraints="quarantine") as tx:
        tx.append("Person", pd.DataFrame({"name": ["Ann", "Bob", "Old"], "age": [1, 2, 200]}))
    assert sorted(ages(graph)) == ["Ann", "Bob"]
    assert [row["name"] for row in tx.rejected("Person").read_all().to_pylist()] == ["Old"]


def test_a_write_needs_no_pandas(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "class Gone:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'pandas': raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Gone())\n"
        "import omnigraph as og\n"
        "graph = og.init(sys.argv[1], 'node P { name: String @key }')\n"
        "with graph.transaction() as tx: tx.append('P', [{'name': 'a'}])\n"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "g")], check=True)


# -- files --------------------------------------------------------------------------------------------------


def as_parquet(path: Path) -> Path:
    pq.write_table(PEOPLE, path / "anything.parquet")
    return path / "anything.parquet"


def as_csv(path: Path) -> Path:
    pa_csv.write_csv(PEOPLE, str(path / "people.csv"))
    return path / "people.csv"


def as_lines(path: Path) -> Path:
    lines = [
        '{"type": "Person", "data": {"name": "Ann", "age": 41}}',
        '{"type": "Person", "data": {"name": "Bob"}}',
        '{"type": "Person", "data": {"name": "Cid", "age": 7}}',
    ]
    (path / "people.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return path / "people.jsonl"


def as_folder(path: Path) -> Path:
    (path / "many").mkdir()
    for number in range(3):
        pq.write_table(PEOPLE.slice(number, 1), path / "many" / f"part-{number}.parquet")
    return path / "many" / "part-*.parquet"


@pytest.mark.parametrize("make", [as_parquet, as_csv, as_lines, as_folder])
@pytest.mark.parametrize("spell", [str, Path])
def test_a_path_stands_for_the_rows_of_its_files(
    graph: og.Graph, tmp_path: Path, make: Callable[[Path], Path], spell: Callable[[Path], Any]
) -> None:
    path = spell(make(tmp_path))
    with graph.transaction() as tx:
        tx.append("Person", path)
        tx.append("Knows", [{"src": "Ann", "dst": "Cid"}])
    assert ages(graph) == {"Ann": 41, "Bob": None, "Cid": 7}
    with graph.transaction() as tx:
        tx.upsert("Person", path)
    assert tx.receipt.commit is None
    with graph.transaction() as tx:
        tx.overwrite("Person", path)
    assert ages(graph) == {"Ann": 41, "Bob": None, "Cid": 7}


def test_files_are_as_strict_as_a_load_and_say_where(graph: og.Graph, tmp_path: Path) -> None:
    (tmp_path / "bad.csv").write_text("name,age\nAnn,1\nBob,x\n", encoding="utf-8")
    (tmp_path / "other.jsonl").write_text('{"edge": "Knows", "from": "a", "to": "b"}', encoding="utf-8")
    with pytest.raises(InvalidDataError, match="record 2"), graph.transaction() as tx:
        tx.append("Person", tmp_path / "bad.csv")
    with pytest.raises(InvalidDataError), graph.transaction() as tx:
        tx.append("Person", tmp_path / "other.jsonl")
    for wrong in ("nowhere.csv", "people.xlsx", "Ann"):
        with pytest.raises(InvalidOptionError), graph.transaction() as tx:
            tx.append("Person", tmp_path / wrong)
    assert graph.refresh().version == 1


def test_bad_records_of_a_file_can_be_left_out(graph: og.Graph, tmp_path: Path) -> None:
    (tmp_path / "some.csv").write_text("name,age\nAnn,1\nBob,x\nOld,200\n", encoding="utf-8")
    with graph.transaction(constraints="quarantine") as tx:
        tx.append("Person", tmp_path / "some.csv")
    assert ages(graph) == {"Ann": 1}
    assert {row["name"] for row in tx.rejected("Person").read_all().to_pylist()} == {"Bob", "Old"}


def test_a_rerun_reads_no_file(graph: og.Graph, tmp_path: Path) -> None:
    path = as_csv(tmp_path)
    for rerun in (False, True):
        with graph.transaction(txn=("nightly", 1)) as tx:
            tx.append("Person", path)
        assert tx.receipt.rerun is rerun
        path.unlink(missing_ok=True)
