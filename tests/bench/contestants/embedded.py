"""Contestants that need no Spark: the graph's own Python interface, plain Lance, deltalake and DuckLake."""

import importlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from tests.bench.contestants.protocol import (
    FILTER,
    GRID,
    SINGLES,
    TABLES,
    Contestant,
    NotPossibleError,
    outer_join,
    told,
)


def counts(kinds: Any) -> dict[str, int]:
    """Count what a column says."""
    return told({str(each["values"]): int(each["counts"]) for each in pc.value_counts(kinds).to_pylist()})


class Embedded(Contestant):
    """What all of them have in common: inputs are in memory before anything is measured."""

    def prepare(self) -> None:
        names = (*TABLES, *GRID, "delete", "singles", "theirs", "ours")
        self.given: dict[str, pa.Table] = {name: pq.read_table(self.file(name)) for name in names}
        self.ids = self.points()
        self.gone = [str(each) for each in self.given["delete"].column("id").to_pylist()]
        self.listed = ", ".join(f"'{each}'" for each in self.ids)
        self.marks: dict[str, Any] = {}

    def one(self, number: int) -> pa.Table:
        """Return a single row."""
        return self.given["singles"].slice(number % SINGLES, 1)


class Graph(Embedded):
    """omnigraph by its Python interface, with every constraint checked."""

    def prepare(self) -> None:
        super().prepare()
        from tests.bench.contestants.schema import SCHEMA

        import omnigraph as og

        self.graph = og.init(self.root / "g.omni", SCHEMA)

    def load(self) -> None:
        with self.graph.transaction() as tx:
            for name in TABLES:
                tx.append(name, self.given[name])

    def scan(self) -> int:
        return self.rows().num_rows

    def filtered(self) -> int:
        return self.graph.snapshot().read("Flight", where=FILTER).num_rows

    def point(self) -> int:
        return self.graph.snapshot().read("Flight", where=f"id IN ({self.listed})").num_rows

    def upsert(self, name: str) -> None:
        with self.graph.transaction() as tx:
            tx.upsert("Flight", self.given[name])

    def delete(self) -> None:
        with self.graph.transaction() as tx:
            tx.delete("Flight", ids=self.gone)

    def single(self, number: int) -> None:
        with self.graph.transaction() as tx:
            tx.append("Flight", self.one(number))

    def mark(self, name: str) -> None:
        self.marks[name] = self.graph.refresh().id

    def diff(self) -> dict[str, int]:
        rows = self.graph.diff(self.marks["loaded"], self.marks["changed"]).rows("Flight").read_all()
        return counts(rows.column("change"))

    def index(self) -> None:
        self.graph.ensure_indices(types=["Flight"])

    def fork(self) -> None:
        self.graph.branches.create("review")
        for branch, rows in (("review", "theirs"), ("main", "ours")):
            with self.graph.transaction(branch) as tx:
                tx.upsert("Flight", self.given[rows])

    def merge(self) -> None:
        assert self.graph.branches.merge("review", into="main").outcome == "Merged"

    def rows(self) -> pa.Table:
        return self.graph.snapshot().read("Flight")


class Lance(Embedded):
    """One dataset for each table and nothing around them, with Lance's own settings."""

    def prepare(self) -> None:
        super().prepare()
        self.lance = importlib.import_module("lance")

    def open(self, version: int | None = None) -> Any:
        """Open the flights anew, as a program does that comes to them."""
        return self.lance.dataset(str(self.root / "Flight.lance"), version=version)

    def load(self) -> None:
        for name in TABLES:
            self.lance.write_dataset(self.given[name], str(self.root / f"{name}.lance"))

    def scan(self) -> int:
        return self.rows().num_rows

    def filtered(self) -> int:
        return int(self.open().to_table(filter=FILTER).num_rows)

    def point(self) -> int:
        return int(self.open().to_table(filter=f"id IN ({self.listed})").num_rows)

    def upsert(self, name: str) -> None:
        merging = self.open().merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
        merging.execute(self.given[name])

    def delete(self) -> None:
        self.open().merge_insert("id").when_matched_delete().execute(self.given["delete"])

    def single(self, number: int) -> None:
        self.lance.write_dataset(self.one(number), str(self.root / "Flight.lance"), mode="append")

    def mark(self, name: str) -> None:
        self.marks[name] = self.open().version

    def diff(self) -> dict[str, int]:
        import duckdb

        with duckdb.connect() as base:
            base.register("was", self.open(self.marks["loaded"]).to_table())
            base.register("now", self.open(self.marks["changed"]).to_table())
            found = base.sql(outer_join("was", "now")).to_arrow_table()
        return counts(found.column("change"))

    def index(self) -> None:
        self.open().create_scalar_index("id", "BTREE")

    def fork(self) -> None:
        raise NotPossibleError("a dataset can be branched by itself, and no branch be merged")

    def rows(self) -> pa.Table:
        found: pa.Table = self.open().to_table()
        return found


class DeltaLake(Embedded):
    """The Python package deltalake, with the change feed on: without it there would be nothing to compare by."""

    def prepare(self) -> None:
        super().prepare()
        self.delta = importlib.import_module("deltalake")

    @property
    def place(self) -> str:
        """Where the flights are."""
        return str(self.root / "Flight")

    def load(self) -> None:
        feed = {"delta.enableChangeDataFeed": "true"}
        for name in TABLES:
            self.delta.write_deltalake(str(self.root / name), self.given[name], configuration=feed)

    def scan(self) -> int:
        return self.rows().num_rows

    def filtered(self) -> int:
        wanted = (pc.field("carrier") == "UA") & (pc.field("dep_delay") > 60)
        return int(self.delta.DeltaTable(self.place).to_pyarrow_dataset().to_table(filter=wanted).num_rows)

    def point(self) -> int:
        wanted = pc.field("id").isin(self.ids)
        return int(self.delta.DeltaTable(self.place).to_pyarrow_dataset().to_table(filter=wanted).num_rows)

    def merging(self, rows: pa.Table) -> Any:
        """Begin a merge of rows by their ids."""
        matched = {"predicate": "t.id = s.id", "source_alias": "s", "target_alias": "t"}
        return self.delta.DeltaTable(self.place).merge(source=rows, **matched)

    def upsert(self, name: str) -> None:
        self.merging(self.given[name]).when_matched_update_all().when_not_matched_insert_all().execute()

    def delete(self) -> None:
        self.merging(self.given["delete"]).when_matched_delete().execute()

    def single(self, number: int) -> None:
        self.delta.write_deltalake(self.place, self.one(number), mode="append")

    def mark(self, name: str) -> None:
        self.marks[name] = self.delta.DeltaTable(self.place).version()

    def diff(self) -> dict[str, int]:
        table = self.delta.DeltaTable(self.place)
        first, last = self.marks["loaded"] + 1, self.marks["changed"]
        found = pa.table(table.load_cdf(starting_version=first, ending_version=last).read_all())
        return counts(found.column("_change_type"))

    def rows(self) -> pa.Table:
        found: pa.Table = self.delta.DeltaTable(self.place).to_pyarrow_table()
        return found


class DuckLake(Embedded):
    """DuckDB with its lake extension: the catalog is a DuckDB file beside the data."""

    def prepare(self) -> None:
        super().prepare()
        self.finish()
        duckdb = importlib.import_module("duckdb")
        carrier = importlib.import_module("duckdb_extension_ducklake")
        (extension,) = Path(str(carrier.__file__)).parent.rglob("*.duckdb_extension")
        self.base = duckdb.connect()
        self.base.execute(f"LOAD '{extension}'")
        self.base.execute(f"ATTACH 'ducklake:{self.root}/catalog.ducklake' AS lake (DATA_PATH '{self.root}/data')")
        for name, rows in self.given.items():
            self.base.register(f"given {name}", rows)

    def finish(self) -> None:
        if hasattr(self, "base"):
            self.base.close()

    def load(self) -> None:
        self.base.execute("BEGIN")
        for name in TABLES:
            self.base.execute(f'CREATE TABLE lake.{name} AS FROM "given {name}"')
        self.base.execute("COMMIT")

    def scan(self) -> int:
        return self.rows().num_rows

    def filtered(self) -> int:
        return int(self.read(f"SELECT * FROM lake.Flight WHERE {FILTER}").num_rows)

    def point(self) -> int:
        return int(self.read(f"SELECT * FROM lake.Flight WHERE id IN ({self.listed})").num_rows)

    def read(self, query: str) -> pa.Table:
        """Return what a query finds, in memory as for all others."""
        found: pa.Table = self.base.execute(query).fetch_arrow_table()
        return found

    def upsert(self, name: str) -> None:
        self.base.execute(
            f'MERGE INTO lake.Flight t USING "given {name}" s ON t.id = s.id '
            "WHEN MATCHED THEN UPDATE WHEN NOT MATCHED THEN INSERT"
        )

    def delete(self) -> None:
        self.base.execute('DELETE FROM lake.Flight WHERE id IN (SELECT id FROM "given delete")')

    def single(self, number: int) -> None:
        self.base.execute(f'INSERT INTO lake.Flight FROM "given singles" LIMIT 1 OFFSET {number % SINGLES}')

    def mark(self, name: str) -> None:
        self.marks[name] = self.base.execute("SELECT max(snapshot_id) FROM lake.snapshots()").fetchone()[0]

    def diff(self) -> dict[str, int]:
        # `table_changes` is a join of these two and waits for itself for ever after large changes (DuckDB 1.5.5).
        span = f"'Flight', {self.marks['loaded'] + 1}, {self.marks['changed']}"
        for kind in ("insertions", "deletions"):
            self.base.register(
                kind, self.read(f"SELECT snapshot_id, rowid, * FROM ducklake_table_{kind}('lake', 'main', {span})")
            )
        joined = self.read(
            "SELECT CASE WHEN d.rowid IS NULL THEN 'insert' WHEN i.rowid IS NULL THEN 'delete' ELSE 'update_postimage' "
            "END AS change_type FROM insertions i FULL OUTER JOIN deletions d USING (snapshot_id, rowid)"
        )
        return counts(joined.column("change_type"))

    def rows(self) -> pa.Table:
        return self.read("SELECT * FROM lake.Flight")
