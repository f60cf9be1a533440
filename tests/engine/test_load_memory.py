"""A load needs no more memory for more records, but for eight bytes a row; and what it checks stays exact."""

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.engine import integrity, portions, repeats
from omnigraph.errors import ConstraintError, InvalidDataError

SCHEMA = """
node Person { name: String @key  note: String? }
edge Likes: Person -> Person
"""
FEW, MANY = 200_000, 800_000
BYTES_A_ROW_MAX = 200
"""Eight are the fingerprint, some are buffers that few rows do not fill; a record has more than 400 here."""

CHILD = """
import json, sys
from pathlib import Path
import omnigraph as og

graph = og.open(sys.argv[1])
Path("/proc/self/clear_refs").write_text("5")
rows = graph.load(sys.argv[2]).rows
lines = Path("/proc/self/status").read_text().splitlines()
print(json.dumps({"rows": sum(rows.values()), "peak": next(l.split()[1] for l in lines if l.startswith("VmHWM:"))}))
"""


def write_people(path: Path, count: int) -> None:
    """Write people and edges between them, two records for each number."""
    with path.open("w") as out:
        for n in range(count // 2):
            note = f"{n * 2_654_435_761 % 2**61} is all there is to say about {n}; " * 14
            out.write(f'{{"type": "Person", "data": {{"name": "person-{n}", "note": "{note}"}}}}\n')
            out.write(f'{{"edge": "Likes", "from": "person-{n}", "to": "person-{n * 7_919 % (n + 1)}"}}\n')


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="peak memory is read from Linux")
def test_memory_does_not_grow_with_the_input(tmp_path: Path) -> None:
    peaks = {}
    for count in (FEW, MANY):
        og.init(tmp_path / f"{count}.omni", SCHEMA)
        write_people(tmp_path / "in.jsonl", count)
        assert (tmp_path / "in.jsonl").stat().st_size > 2 * BYTES_A_ROW_MAX * count
        command = [sys.executable, "-c", CHILD]
        command += [str(tmp_path / name) for name in (f"{count}.omni", "in.jsonl")]
        said = json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)
        assert said["rows"] == count
        peaks[count] = int(said["peak"]) * 1024
    assert peaks[MANY] - peaks[FEW] < BYTES_A_ROW_MAX * (MANY - FEW)


@pytest.fixture
def small_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few rows count as many, so that they are looked at in portions."""
    monkeypatch.setattr(portions, "ROWS_TOGETHER_MAX", 7)
    monkeypatch.setattr(integrity, "ROWS_TOGETHER_MAX", 7)
    monkeypatch.setattr(repeats, "SORTED_TOGETHER_MAX", 7)


def likes(pairs: list[tuple[str, str]]) -> pa.Table:
    return pa.table({"id": [f"{a}-{b}" for a, b in pairs], "src": [a for a, _ in pairs], "dst": [b for _, b in pairs]})


@pytest.mark.usefixtures("small_portions")
def test_ends_are_checked_exactly_in_portions(tmp_path: Path) -> None:
    graph = og.init(tmp_path / "g.omni", SCHEMA)
    everyone = [f"p{n}" for n in range(60)]
    with graph.transaction() as tx:
        tx.append("Person", pa.table({"name": everyone[:30]}))
    pairs = [(a, everyone[number * 7 % 60]) for number, a in enumerate(everyone)]
    with graph.transaction() as tx:
        tx.append("Person", pa.table({"name": everyone[30:]}))
        tx.append("Likes", likes(pairs))
    assert graph.snapshot().count("Likes") == 60
    lost = [(a, f"nobody-{a}") for a in everyone[::3]]
    with pytest.raises(ConstraintError) as caught, graph.transaction() as tx:
        tx.append("Likes", likes([("p1", "p2"), *lost]))
    (found,) = caught.value.facts["violations"]
    assert (found["constraint"], found["count"]) == ("to an existing Person", 20)
    assert {row["dst"] for row in found["sample"]} == {f"nobody-{a}" for a in everyone[::3]}


@pytest.mark.usefixtures("small_portions")
def test_ends_that_an_overwrite_takes_away_are_found_in_portions(tmp_path: Path) -> None:
    graph = og.init(tmp_path / "g.omni", SCHEMA)
    everyone = [f"p{n}" for n in range(40)]
    with graph.transaction() as tx:
        tx.append("Person", pa.table({"name": everyone}))
    with pytest.raises(ConstraintError) as caught, graph.transaction() as tx:
        tx.overwrite("Person", pa.table({"name": everyone[:20]}))
        tx.append("Likes", likes([(a, a) for a in everyone[10:30]]))
    assert {(each["constraint"], each["count"]) for each in caught.value.facts["violations"]} == {
        ("from an existing Person", 10),
        ("to an existing Person", 10),
    }


@pytest.mark.usefixtures("small_portions")
def test_ids_that_come_twice_are_found_in_portions(tmp_path: Path) -> None:
    graph = og.init(tmp_path / "g.omni", SCHEMA)
    twice = [f"p{n}" for n in range(0, 500, 50)]
    with pytest.raises(InvalidDataError, match="10 ids of node:Person occur more than once"), graph.transaction() as tx:
        tx.append("Person", pa.table({"name": [f"p{n}" for n in range(500)]}))
        tx.append("Person", pa.table({"name": twice}))
    with graph.transaction() as tx:
        tx.append("Person", pa.table({"name": [f"p{n}" for n in range(500)]}))
    assert graph.snapshot().count("Person") == 500
