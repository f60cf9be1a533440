"""What a contestant can be asked, and the lines by which it is asked: nothing here needs more than Arrow and DuckDB."""

import gc
import json
import os
import shutil
import sys
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

COLUMNS: Final = ("id", "src", "dst", "carrier", "number", "hour", "tailnum", "dep_delay", "distance")
GRID: Final = {"upsert 0.1 %": (1_000, 0), "upsert 1 %": (100, 1), "upsert 10 %": (10, 2)}
"""Each changes every so many-th row, beginning at another one, so that no row is changed twice."""
KINDS: Final = ("insert", "update", "delete")
TABLES: Final = ("Airport", "Carrier", "Plane", "Flight")
FILTER: Final = "carrier = 'UA' AND dep_delay > 60"
POINT_IDS: Final = 100
SINGLES: Final = 7
"""Writes of one row in each round."""


class NotPossibleError(Exception):
    """A contestant has nothing of the kind; the text says what it has instead."""


def digest_query(source: str) -> str:
    """Return the query that counts rows and adds up a hash of each, whatever their order; ``hour`` is a number."""
    cells = ", '|', ".join(f"coalesce({name}::VARCHAR, '~')" for name in COLUMNS)
    return f"SELECT count(*), coalesce(sum(md5_number_lower(concat({cells}))::HUGEINT), 0)::VARCHAR FROM {source}"


def digest(rows: pa.Table) -> tuple[int, str]:
    """Return how many rows there are, and a sum over all their values."""
    import duckdb

    at = rows.schema.get_field_index("hour")
    number = rows.column("hour").cast(pa.timestamp("us")).cast(pa.int64())
    plain = rows.set_column(at, "hour", number)
    connection = duckdb.connect()
    connection.register("plain", plain)
    row = connection.execute(digest_query("plain")).fetchone()
    connection.close()
    assert row is not None
    return int(row[0]), str(row[1])


def outer_join(old: str, new: str) -> str:
    """Return the query by which users compare two versions of a table that keeps no record of changes."""
    cells = " OR ".join(f"o.{each} IS DISTINCT FROM n.{each}" for each in COLUMNS[1:])
    return (
        "SELECT CASE WHEN o.id IS NULL THEN 'insert' WHEN n.id IS NULL THEN 'delete' ELSE 'update' END AS change, n.* "
        f"FROM {old} o FULL OUTER JOIN {new} n ON o.id = n.id WHERE o.id IS NULL OR n.id IS NULL OR {cells}"
    )


def told(found: dict[str, int]) -> dict[str, int]:
    """Return changes by kind, in one set of words; what was before an update is left away."""
    return {kind: found.get(kind, 0) + (found.get("update_postimage", 0) if kind == "update" else 0) for kind in KINDS}


class Contestant(ABC):
    """One who keeps the tables, and changes and reads them; what is measured is marked as such."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.inputs = folder
        self.number = 0
        self.root = folder / "round-0"

    def begin(self, inputs: str) -> None:
        """Begin a round in an empty folder."""
        shutil.rmtree(self.root, ignore_errors=True)
        self.number += 1
        self.root = self.folder / f"round-{self.number}"
        self.root.mkdir(parents=True)
        self.inputs = Path(inputs)
        self.prepare()

    def file(self, name: str) -> str:
        """Return where a file of this round's inputs is."""
        return str(self.inputs / f"{name}.parquet")

    def points(self) -> list[str]:
        """Return the ids that are looked up."""
        return [str(each) for each in pq.read_table(self.file("points")).column("id").to_pylist()]

    def size(self) -> int:
        """Return the bytes of all files."""
        return sum(each.stat().st_size for each in self.root.rglob("*") if each.is_file())

    def prepare(self) -> None:  # noqa: B027  (not everyone has something to do)
        """Do what is not measured: bring inputs into memory, name catalogs."""

    def finish(self) -> None:  # noqa: B027
        """Let go of what was started."""

    @abstractmethod
    def load(self) -> None:
        """Measured: write all tables."""

    @abstractmethod
    def scan(self) -> int:
        """Measured: read every column of every flight; return how many there are."""

    @abstractmethod
    def filtered(self) -> int:
        """Measured: read the flights that a filter leaves."""

    @abstractmethod
    def point(self) -> int:
        """Measured: read the flights of some ids."""

    @abstractmethod
    def upsert(self, name: str) -> None:
        """Measured: change flights and add some."""

    @abstractmethod
    def delete(self) -> None:
        """Measured: remove flights."""

    @abstractmethod
    def single(self, number: int) -> None:
        """Measured: add one flight."""

    @abstractmethod
    def mark(self, name: str) -> None:
        """Remember the version that is there now."""

    @abstractmethod
    def diff(self) -> dict[str, int]:
        """Measured: tell what was inserted, updated and deleted between the marks ``loaded`` and ``changed``."""

    @abstractmethod
    def rows(self) -> pa.Table:
        """Return all flights."""

    def index(self) -> None:
        """Measured: build an index of ids."""
        raise NotPossibleError("it has no index")

    def fork(self) -> None:
        """Make a branch with changes, and change other rows where it came from."""
        raise NotPossibleError("it has no branches")

    def merge(self) -> None:
        """Measured: merge the branch."""
        raise NotPossibleError("it has no branches")

    def check(self) -> tuple[int, str]:
        """Return the digest of all flights."""
        return digest(self.rows().select(list(COLUMNS)))


def peak(*, reset: bool = False) -> float:
    """Return this process's peak memory in MB."""
    if reset:
        gc.collect()
        pa.default_memory_pool().release_unused()
        Path("/proc/self/clear_refs").write_text("5")
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024


def serve(make: Any) -> None:
    """Do what each line of the standard input says, and answer with one line; what others print goes elsewhere."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    contestant: Contestant = make()
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        before = peak(reset=True)
        begun = time.perf_counter()
        try:
            result = getattr(contestant, order["act"])(*order["given"])
        except NotPossibleError as refused:
            said: dict[str, Any] = {"not": str(refused)}
        else:
            said = {"seconds": time.perf_counter() - begun, "memory": peak() - before, "result": result}
        print(json.dumps(said), file=answers, flush=True)
    contestant.finish()
