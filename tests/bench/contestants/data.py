"""A year of flights from New York as Parquet files, what is changed in them, and what must come out of each change.

The rows are those of the demo. Where a year is too little, it is repeated in later years; nothing else is made up.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from tests.bench.contestants.protocol import COLUMNS, FILTER, GRID, POINT_IDS, SINGLES, digest_query

from pyspark_omnigraph.demo.data import MISSING_AIRPORTS, files, unpacked

DELETED: Final = (100, 3)
THEIRS: Final = (100, 5)
OURS: Final = (100, 6)
NEW_YEARS: Final = 20
"""How many years later than any other the flights are that an upsert adds: a tenth as many as it changes."""
NODES: Final = {
    "Airport": "SELECT faa, name, lat, lon FROM read_csv('{csv}/airports.csv', nullstr='NA')",
    "Carrier": "SELECT carrier AS code, name FROM read_csv('{csv}/airlines.csv', nullstr='NA')",
    "Plane": "SELECT tailnum, manufacturer, model, seats::INT AS seats, year::INT AS year "
    "FROM read_csv('{csv}/planes.csv', nullstr='NA')",
}
FLIGHTS: Final = """
SELECT concat_ws('-', origin, dest, carrier, flight, strftime(flown, '%Y%m%d%H')) AS id,
       origin AS src, dest AS dst, carrier,
       flight::INT AS number, flown AS hour, tailnum, dep_delay::INT AS dep_delay, distance::INT AS distance
FROM (SELECT *, time_hour::TIMESTAMP + to_years(copy::INT) AS flown
      FROM read_csv('{flights}', nullstr='NA', types={{'time_hour': 'TIMESTAMP'}}), range({copies}) AS copies(copy))
"""


@dataclass(slots=True)
class Inputs:
    """Files for one size, and a model that knows what a table must hold after each change."""

    folder: Path
    rows: int = 0
    airports: int = 0
    late: int = 0
    points: int = 0
    points_left: int = 0
    """How many of them are there after the changes: some were deleted."""
    expected: dict[str, tuple[int, str]] = field(default_factory=dict)
    changes: dict[str, int] = field(default_factory=dict)


def make(folder: Path, copies: int, every: int) -> Inputs:
    """Write the files of so many years, with every so many-th flight of them."""
    folder.mkdir(parents=True)
    made = Inputs(folder)
    base = duckdb.connect()
    flights = unpacked(folder)
    base.execute(f"CREATE TABLE years AS {FLIGHTS.format(flights=flights, copies=copies)}")
    base.execute(
        "CREATE TABLE base AS SELECT * EXCLUDE n, (row_number() OVER (ORDER BY id)) - 1 AS n FROM "
        f"(SELECT *, (row_number() OVER (ORDER BY id)) - 1 AS n FROM years) WHERE n % {every} = 0"
    )
    flights.unlink()
    for name, query in NODES.items():
        base.execute(f"CREATE TABLE {name} AS {query.format(csv=files())}")
    airports = [(each["faa"], each["name"], each["lat"], each["lon"]) for each in MISSING_AIRPORTS]
    base.executemany("INSERT INTO Airport VALUES (?, ?, ?, ?)", airports)
    for name in NODES:
        _write(base, folder / f"{name}.parquet", f"SELECT * FROM {name}")
    columns = ", ".join(COLUMNS)
    _write(base, folder / "Flight.parquet", f"SELECT {columns} FROM base ORDER BY n")
    base.execute(f"CREATE TABLE model AS SELECT {columns} FROM base")
    made.rows = _count(base, "base")
    made.airports = _count(base, "Airport")
    made.late = _count(base, f"(SELECT 1 FROM base WHERE {FILTER})")
    _expect(base, made, "load")
    step = max(1, made.rows // POINT_IDS)
    _write(base, folder / "points.parquet", f"SELECT id FROM base WHERE n % {step} = 4 ORDER BY n LIMIT {POINT_IDS}")
    base.execute("CREATE TABLE points AS FROM given")
    made.points = _count(base, "points")
    inserted = updated = 0
    for name, (step, at) in GRID.items():
        _write(base, folder / f"{name}.parquet", _changed(step, at, is_growing=True))
        updated += _count(base, f"(SELECT 1 FROM base WHERE n % {step} = {at})")
        inserted += _count(base, f"(SELECT 1 FROM base WHERE n % {step * 10} = {at})")
        _apply(base)
        _expect(base, made, name)
    _write(base, folder / "delete.parquet", f"SELECT id FROM base WHERE n % {DELETED[0]} = {DELETED[1]}")
    deleted = _count(base, "given")
    base.execute("DELETE FROM model WHERE id IN (SELECT id FROM given)")
    _expect(base, made, "delete")
    made.changes = {"insert": inserted, "update": updated, "delete": deleted}
    _write(base, folder / "singles.parquet", _moved(f"FROM base WHERE n < {SINGLES} ORDER BY n", NEW_YEARS * 2))
    base.execute("INSERT INTO model FROM given")
    _expect(base, made, "commit")
    made.points_left = _count(base, "(SELECT 1 FROM model WHERE id IN (SELECT id FROM points))")
    for name, (step, at) in (("theirs", THEIRS), ("ours", OURS)):
        _write(base, folder / f"{name}.parquet", _changed(step, at, is_growing=False))
        _apply(base)
    _expect(base, made, "merge")
    base.close()
    return made


def _changed(step: int, at: int, *, is_growing: bool) -> str:
    """Return the query of rows whose delay is another one, and as many again by ten in years to come."""
    late = "COALESCE(dep_delay, 0) + 1 AS dep_delay"
    changed = f"SELECT {', '.join(COLUMNS)} FROM (SELECT * REPLACE ({late}) FROM base) WHERE n % {step} = {at}"
    grown = _moved(f"FROM base WHERE n % {step * 10} = {at}", NEW_YEARS)
    return f"{changed} UNION ALL {grown}" if is_growing else changed


def _moved(source: str, years: int) -> str:
    """Return the query of rows that fly some years later."""
    return (
        f"SELECT id || '+{years}' AS id, src, dst, carrier, number, hour + INTERVAL {years} YEAR AS hour, tailnum, "
        f"dep_delay, distance {source}"
    )


def _apply(base: duckdb.DuckDBPyConnection) -> None:
    """Do to the model what was written last."""
    base.execute("DELETE FROM model WHERE id IN (SELECT id FROM given)")
    base.execute("INSERT INTO model FROM given")


def _write(base: duckdb.DuckDBPyConnection, file: Path, query: str) -> None:
    """Write rows, with hours in UTC, which DuckDB can say only with an extension."""
    base.execute(f"CREATE OR REPLACE TABLE given AS {query}")
    rows = base.sql("FROM given").to_arrow_table()
    at = rows.schema.get_field_index("hour")
    if at >= 0:
        rows = rows.set_column(at, "hour", rows.column("hour").cast(pa.timestamp("us", "UTC")))
    pq.write_table(rows, file)


def _count(base: duckdb.DuckDBPyConnection, source: str) -> int:
    row = base.execute(f"SELECT count(*) FROM {source}").fetchone()
    assert row is not None
    return int(row[0])


def _expect(base: duckdb.DuckDBPyConnection, made: Inputs, after: str) -> None:
    row = base.execute(digest_query("(SELECT * REPLACE (epoch_us(hour) AS hour) FROM model)")).fetchone()
    assert row is not None
    made.expected[after] = (int(row[0]), str(row[1]))
