"""The programs for spark-submit: one commit each, one line of JSON, and the command line's exit codes."""

import json
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import omnigraph as og
from omnigraph.testing.places import aged, place
from pyspark_omnigraph import jobs

JOBS = Path(__file__).resolve().parents[2] / "jobs"


@pytest.fixture
def files(spark: SparkSession, tmp_path: Path) -> Path:
    """Parquet files of people and of who knows whom, and a file of ids."""
    place = tmp_path / "files"
    people = [("Ann", 41), ("Bob", 17), ("Cid", 65)]
    spark.createDataFrame(people, "name string, age int").write.parquet(str(place / "people"))
    spark.createDataFrame([("Ann", "Bob")], "src string, dst string").write.parquet(str(place / "knows"))
    spark.createDataFrame([("Ann", 42), ("Dan", 3)], "name string, age int").write.parquet(str(place / "later"))
    spark.createDataFrame([("Bob",)], "id string").write.parquet(str(place / "gone"))
    (place / "people.csv").write_text("name,age\nEve,5\n")
    (place / "broken.csv").write_text('name,age\nEve,5\nFay,"x\n')
    return place


def said(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    return dict(json.loads(capsys.readouterr().out.splitlines()[-1]))


def names(root: str, branch: str = "main") -> list[str]:
    return sorted(map(str, og.open(root).snapshot(branch).read("Person")["name"].to_pylist()))


def test_load_writes_several_types_in_one_commit_and_a_rerun_does_nothing(
    root: str, files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    order = [root, f"Person={files}/people", f"Knows={files}/knows", "--actor", "etl", "--message", "m"]
    assert jobs.load([*order, "--txn", "nightly:7"]) == 0
    first = said(capsys)
    assert first["tables"]["node:Person"]["rows_inserted"] == 3
    head = og.open(root).refresh()
    assert (head.id, head.actor, head.message) == (first["commit"], "etl", "m")
    assert jobs.load([*order, "--txn", "nightly:7"]) == 0
    assert said(capsys)["rerun"] is True
    assert og.open(root).refresh().id == head.id


def test_upsert_and_delete(root: str, files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert jobs.load([root, f"Person={files}/people", f"Knows={files}/knows"]) == 0
    assert jobs.upsert([root, f"Person={files}/later", "--branch", "review", "--create-from", "main"]) == 0
    assert names(root, "review") == ["Ann", "Bob", "Cid", "Dan"]
    assert names(root) == ["Ann", "Bob", "Cid"]
    capsys.readouterr()
    assert jobs.delete([root, f"Person={files}/gone"]) == 0
    assert said(capsys)["tables"]["edge:Knows"]["rows_deleted"] == 1
    assert names(root) == ["Ann", "Cid"]
    assert jobs.load([root, f"Person={files}/people.csv", "--format", "csv", "--mode", "overwrite"]) == 0
    assert names(root) == ["Eve"]


def test_export_writes_one_commit_and_its_files_can_be_loaded(
    spark: SparkSession, root: str, files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert jobs.load([root, f"Person={files}/people", f"Knows={files}/knows"]) == 0
    version = said(capsys)["version"]
    assert jobs.delete([root, f"Person={files}/gone"]) == 0
    out = tmp_path / "out"
    capsys.readouterr()
    assert jobs.export([root, str(out), "--version", str(version)]) == 0
    assert said(capsys)["rows"]["node:Person"] == 3
    assert spark.read.parquet(str(out / "nodes" / "Person")).count() == 3
    other = str(tmp_path / "other")
    og.init(other, og.open(root).schema.source())
    assert jobs.load([other, f"Person={out}/nodes/Person", f"Knows={out}/edges/Knows"]) == 0
    assert names(other) == ["Ann", "Bob", "Cid"]
    assert (
        og.open(other).snapshot().read("Knows").to_pylist()
        == og.open(root).snapshot(version=version).read("Knows").to_pylist()
    )


@pytest.mark.parametrize(
    ("program", "extra", "code", "says"),
    [
        ("load", ["Persn={files}/people"], 3, "Persn"),
        ("load", ["people"], 2, "Type=path"),
        ("load", ["Person={files}/people", "--txn", "nightly"], 2, "APP:VERSION"),
        ("load", ["Person={files}/people", "--create-from", "main"], 2, "--branch"),
        ("load", ["Person={files}/people", "--branch", "nowhere"], 3, "nowhere"),
        ("load", ["Knows={files}/knows"], 5, "existing Person"),
        ("delete", ["Person={files}/people"], 2, "no column id"),
        ("export", ["{files}/out", "--type", "Nobody"], 3, "Nobody"),
        ("index", ["--type", "Nobody"], 3, "Nobody"),
        ("optimize", ["--branch", "nowhere"], 3, "nowhere"),
        ("optimize", ["--rows-per-fragment", "0"], 2, "rows_per_fragment"),
        ("cleanup", [], 2, "keep"),
        ("cleanup", ["--keep", "1", "--grace", "soon", "--confirm"], 2, "grace"),
    ],
)
def test_what_is_wrong_is_one_line_and_an_exit_code_and_nothing_is_applied(
    root: str, files: Path, capsys: pytest.CaptureFixture[str], program: str, extra: list[str], code: int, says: str
) -> None:
    before = og.open(root).refresh().id
    assert getattr(jobs, program)([root, *(each.format(files=files) for each in extra)]) == code
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.startswith("[")
    assert says in error
    assert og.open(root).refresh().id == before


def test_upkeep_indexes_compacts_cleans_and_verifies(
    root: str, files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("people", "later"):
        assert jobs.upsert([root, f"Person={files}/{name}"]) == 0
    capsys.readouterr()
    assert jobs.index([root, "--type", "Person", "--actor", "night"]) == 0
    indexed = said(capsys)
    assert indexed["tables"]["node:Person"]["name"]["share"] == 1.0
    assert og.open(root).refresh().actor == "night"
    assert jobs.optimize([root, "--branch", "main"]) == 0
    assert said(capsys)["tables"]["node:Person"]["fragments_after"] == 1
    aged(root, timedelta(days=30))
    head = og.open(root).refresh()
    assert jobs.cleanup([root, "--keep", "1"]) == 0
    told = said(capsys)
    assert told["dry_run"] is True
    assert told["files"] > 0
    assert jobs.cleanup([root, "--keep", "1", "--confirm"]) == 0
    assert said(capsys)["files"] >= told["files"]
    assert og.open(root).refresh() == head
    assert names(root) == ["Ann", "Bob", "Cid", "Dan"]
    assert jobs.verify([root, "--deep"]) == 0
    assert said(capsys)["sound"] is True
    for data in list(place(root).glob("nodes/*/data/*.lance")):
        data.unlink()
    assert jobs.verify([root]) == 1
    assert said(capsys)["sound"] is False


@pytest.mark.parametrize("program", ["load", "upsert", "delete", "export", "index", "optimize", "cleanup", "verify"])
def test_each_program_explains_itself(program: str) -> None:
    done = subprocess.run(
        [sys.executable, str(JOBS / f"{program}.py"), "--help"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "root" in done.stdout
