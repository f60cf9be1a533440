"""Random graphs, exported and loaded into a fresh graph: the same rows, bit for bit."""

import os
import string
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import omnigraph as og
from omnigraph.rules.values import compute

TRIPS = 25 * (20 if os.environ.get("OMNIGRAPH_DEEP") == "1" else 1)
DAYS = st.integers(-(2**31), 2**31 - 1) | st.sampled_from([-1, 0, -719_163, 2_932_897])
MOMENTS = st.integers(-(2**63), 2**63 - 1) | st.sampled_from([-1, 0, 1, -62_135_596_800_000_001])
TEXTS = st.text(max_size=6) | st.sampled_from(["", "null", "\u2028\u2029", "🎉", "\x00", '"\\', "base64:", "NaN"])
FLOATS_32 = st.floats(width=32) | st.sampled_from([0.1, 3.4028234663852886e38, 1e-45, -0.0])

ARROW: dict[str, tuple[pa.DataType, Any]] = {
    "String": (pa.string(), TEXTS),
    "enum(a, b)": (pa.string(), st.sampled_from(["a", "b"])),
    "Bool": (pa.bool_(), st.booleans()),
    "I32": (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "I64": (pa.int64(), st.integers(-(2**63), 2**63 - 1) | st.just(-(2**63))),
    "U32": (pa.uint32(), st.integers(0, 2**32 - 1)),
    "U64": (pa.uint64(), st.integers(0, 2**64 - 1) | st.just(2**64 - 1)),
    "F32": (pa.float32(), FLOATS_32),
    "F64": (pa.float64(), st.floats()),
    "Date": (pa.date32(), DAYS),
    "DateTime": (pa.timestamp("us", "UTC"), MOMENTS),
}
PLAIN = st.sampled_from(sorted(ARROW))
TYPES = st.one_of(
    PLAIN,
    PLAIN.filter(lambda name: not name.startswith("enum")).map(lambda name: f"[{name}]"),
    st.sampled_from(["Vector(1)", "Vector(3)", "Blob"]),
)
KEYED = st.sampled_from(["", "@key(k)", "@key(k, n)"])


def values_of(type_: str) -> Any:
    if type_ == "Blob":
        return st.binary(max_size=6)
    if type_.startswith("["):
        return st.lists(st.none() | ARROW[type_[1:-1]][1], max_size=3)
    if type_.startswith("Vector"):
        return st.lists(FLOATS_32, min_size=int(type_[7:-1]), max_size=int(type_[7:-1]))
    return ARROW[type_][1]


def column(type_: str, values: list[Any]) -> Any:
    if type_ == "Blob":
        return pa.array(values, pa.large_binary())
    if type_.startswith("["):
        return pa.array(values, pa.list_(ARROW[type_[1:-1]][0]))
    if type_.startswith("Vector"):
        return pa.array(values, pa.list_(pa.float32(), int(type_[7:-1])))
    return pa.array(values, ARROW[type_][0])


@st.composite
def graphs(draw: st.DrawFn) -> tuple[str, dict[str, pa.Table]]:
    """Draw a schema of a few types, and rows for each."""
    schema, tables = [], {}
    for name in draw(st.lists(st.sampled_from(["A", "B", "E"]), min_size=1, unique=True)):
        properties = {
            f"p_{letter}": (draw(TYPES), draw(st.booleans()))
            for letter in string.ascii_lowercase[: draw(st.integers(0, 4))]
        }
        key = draw(KEYED) if name != "E" else ""
        body = [f"{p}: {type_}{'?' if nullable else ''}" for p, (type_, nullable) in properties.items()]
        head = "edge E: N -> N" if name == "E" else f"node {name}"
        schema.append(f"{head} {{ k: String  n: I64  {'  '.join(body)}  {key} }}")
        keys = draw(
            st.lists(st.tuples(TEXTS.filter(bool), st.integers(0, 3)), max_size=5, unique_by=lambda pair: pair[0])
        )
        given_columns = {
            "k": pa.array([k for k, _ in keys], pa.string()),
            "n": pa.array([n for _, n in keys], pa.int64()),
        }
        for property_, (type_, nullable) in properties.items():
            cell = values_of(type_) | st.none() if nullable else values_of(type_)
            given_columns[property_] = column(type_, [draw(cell) for _ in keys])
        if name == "E":
            given_columns["src"] = given_columns["dst"] = given_columns["k"]
        if not key:
            given_columns["id"] = given_columns["k"]
        tables[name] = pa.table(given_columns)
    return "node N { x: String? }\n" + "\n".join(schema), tables


def bits(table: Any) -> list[Any]:
    """Return rows by id, floats as their bits, so that -0.0 is not 0.0 and NaN is NaN."""
    ordered = table.sort_by("id")
    return [[str(ordered.column("id").to_pylist())], *[_bits(ordered.column(name)) for name in ordered.schema.names]]


def _bits(column: Any) -> Any:
    kind = column.type
    if pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind):
        return compute.list_value_length(column).to_pylist(), _bits(compute.list_flatten(column))
    if pa.types.is_floating(kind):
        nan = compute.fill_null(compute.is_nan(column), False).to_pylist()
        return [
            ("NaN" if is_nan else None if v is None else v.hex())
            for is_nan, v in zip(nan, column.to_pylist(), strict=True)
        ]
    if pa.types.is_temporal(kind):
        return column.cast(pa.int32() if pa.types.is_date(kind) else pa.int64()).to_pylist()
    return column.to_pylist()


@settings(max_examples=TRIPS, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large], deadline=None)
@given(graphs())
def test_what_is_exported_loads_back_as_it_was(drawn: tuple[str, dict[str, pa.Table]]) -> None:
    schema, tables = drawn
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        first = og.init(folder / "first", schema)
        with first.transaction(constraints="off") as tx:  # edges to anywhere: this is about values
            for type_, table in tables.items():
                tx.append(type_, table)
        first.export(folder / "out.jsonl")
        first.export(folder / "out.parquet")
        for source in ("out.jsonl", "out.parquet"):
            copy = og.init(folder / f"copy of {source}", schema)
            copy.load(folder / source, constraints="off")
            for type_ in tables:
                assert bits(copy.snapshot().read(type_)) == bits(first.snapshot().read(type_))
            copy.export(folder / f"again {source}", format="jsonl")
            assert (folder / f"again {source}").read_bytes() == (folder / "out.jsonl").read_bytes()


def test_the_comparison_tells_rows_apart() -> None:
    def one(values: Any) -> list[Any]:
        return bits(pa.table({"id": ["a"], "v": values}))

    assert one([0.0]) != one([-0.0])
    assert one(pa.array([None], pa.float64())) != one([float("nan")])
    assert one(pa.array([[]], pa.list_(pa.int32()))) != one(pa.array([None], pa.list_(pa.int32())))
