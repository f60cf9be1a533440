"""Records of files: which row each is, value for value, and what is refused, where and why."""

import json
import math
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest

from omnigraph.ids import Sources
from omnigraph.model.catalog import Catalog
from omnigraph.model.schema import TableType
from omnigraph.rules import record_values
from omnigraph.rules.json_stream import decode
from omnigraph.rules.moments import days_of, microseconds_of
from omnigraph.rules.record_text import json_texts, record_lines
from omnigraph.rules.records import (
    BadRecordError,
    batch_of_columns,
    batch_of_rows,
    batch_of_texts,
    plain_schema,
    record_of,
)
from omnigraph.rules.schema_compile import FreshIds, compile_schema
from omnigraph.rules.values import MisfitError

SCHEMA = """
interface Named { name: String }
node Person implements Named { name: String @key  age: I32? }
node Note { text: String }
edge Knows: Person -> Person { since: Date? }
"""
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def catalog(schema: str = SCHEMA) -> Catalog:
    return compile_schema(schema, FreshIds(Sources().mint))


def kind(name: str = "Person") -> TableType:
    return catalog().type(name)


def with_value(type_: str) -> TableType:
    return catalog(f"node N {{ k: String @key  v: {type_}? }}").type("N")


def loaded(type_: str, *texts: str) -> list[Any]:
    """Read values as JSON and return what would be stored."""
    rows = [{"k": str(number), "v": decode(text)} for number, text in enumerate(texts)]
    return list(batch_of_rows(with_value(type_), rows).column("v").to_pylist())


def same(found: Any, wanted: Any) -> bool:
    """Compare values and their types; NaN is NaN."""
    if isinstance(wanted, list):
        return len(found) == len(wanted) and all(map(same, found, wanted))
    is_nan = isinstance(wanted, float) and math.isnan(wanted)
    return type(found) is type(wanted) and (found == wanted or (is_nan and math.isnan(found)))


# -- one record -----------------------------------------------------------------------------------------


def test_a_node_record_is_its_data() -> None:
    assert record_of(catalog(), {"type": "Person", "data": {"name": "a"}})[1] == {"name": "a"}
    assert record_of(catalog(), {"type": "Note"})[1] == {}


def test_an_edge_record_has_its_endpoints_among_the_columns() -> None:
    found, row = record_of(catalog(), {"edge": "Knows", "from": "a", "to": "b", "data": {"since": None}})
    assert (found.name, row) == ("Knows", {"src": "a", "dst": "b", "since": None})


def test_an_id_may_stand_beside_data_or_in_it_or_both_if_they_agree() -> None:
    for value in ({"id": "i"}, {"data": {"id": "i"}}, {"id": "i", "data": {"id": "i"}}):
        assert record_of(catalog(), {"type": "Note", **value})[1] == {"id": "i"}


REFUSED: dict[str, tuple[Any, str]] = {
    "an array": ([], "a record is an object .*, not an array"),
    "a number": (3, "not a number"),
    "null": (None, "not null"),
    "a boolean": (True, "not a boolean"),
    "neither type nor edge": ({"data": {}}, "neither 'type' nor 'edge'"),
    "both type and edge": ({"type": "Note", "edge": "Knows"}, "both 'type' and 'edge'"),
    "a type that is no text": ({"type": 1}, "name of a type is a text"),
    "an unknown type": ({"type": "Persn"}, "no node or edge type 'Persn'.*did you mean 'Person'"),
    "another letter case": ({"edge": "knows", "from": "a", "to": "b"}, "did you mean 'Knows'"),
    "an interface": ({"type": "Named"}, "interface"),
    "an edge type as a node": ({"type": "Knows"}, '\'Knows\' is an edge type; write "edge": "Knows"'),
    "a node type as an edge": ({"edge": "Note", "from": "a", "to": "b"}, "'Note' is a node type"),
    "no from": ({"edge": "Knows", "to": "b"}, "has 'from'"),
    "no to": ({"edge": "Knows", "from": "b"}, "has 'to'"),
    "an endpoint in data": (
        {"edge": "Knows", "from": "a", "to": "b", "data": {"src": "a"}},
        "'src' is given as 'from'",
    ),
    "data that is a list": ({"type": "Note", "data": []}, "'data' is an object"),
    "data that is null": ({"type": "Note", "data": None}, "'data' is an object"),
    "a misspelt field": ({"type": "Note", "dat": {}}, "no field 'dat'; did you mean 'data'"),
    "a property beside data": ({"type": "Person", "name": "a"}, "no field 'name'; properties belong in 'data'"),
    "from on a node": ({"type": "Note", "from": "a"}, "no field 'from'"),
    "two ids that differ": ({"type": "Note", "id": "a", "data": {"id": "b"}}, "given twice"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_record_that_can_not_be_understood_is_refused(case: str) -> None:
    value, problem = REFUSED[case]
    with pytest.raises(BadRecordError, match=problem):
        record_of(catalog(), value)


def test_one_type_may_be_asked_for() -> None:
    known = catalog()
    with pytest.raises(BadRecordError, match="node:Note, but only node:Person"):
        record_of(known, {"type": "Note"}, known.type("Person"))


# -- values ---------------------------------------------------------------------------------------------

TAKEN: list[tuple[str, str, Any]] = [
    ("String", '""', ""),
    ("String", '"\\u2028\\u0000\\ud83c\\udf89"', "\u2028\x00🎉"),
    ("Bool", "true", True),
    ("I32", "-2147483648", -(2**31)),
    ("I32", "2.0", 2),
    ("I64", "-9223372036854775808", -(2**63)),
    ("U64", "18446744073709551615", 2**64 - 1),
    ("U64", "9007199254740993", 2**53 + 1),
    ("F64", "1", 1.0),
    ("F64", "0.1", 0.1),
    ("F64", "Infinity", math.inf),
    ("F64", '"-Infinity"', -math.inf),
    ("F32", '"Infinity"', math.inf),
    ("F32", "1.5", 1.5),
    ("Date", '"1969-12-31"', date(1969, 12, 31)),
    ("Date", "-1", date(1969, 12, 31)),
    ("DateTime", '"2026-01-01T12:00:00Z"', NOON),
    ("DateTime", '"2026-01-01t17:00:00.000+05:00"', NOON),
    ("DateTime", '"2026-01-01 12:00:00"', NOON),
    ("DateTime", '"2026-01-01T12:00:00.0000010000Z"', NOON.replace(microsecond=1)),
    ("DateTime", "1767268800000", NOON),
    ("[I32]", "[]", []),
    ("[I32]", "[1, null]", [1, None]),
    ("[Date]", '["2026-01-01", null]', [date(2026, 1, 1), None]),
    ("[F64]", '["NaN"]', [math.nan]),
    ("Vector(2)", "[1, 2.5]", [1.0, 2.5]),
    ("Blob", '"base64:AP8="', b"\x00\xff"),
    ("Blob", '"base64:"', b""),
    ("enum(a, b)", '"a"', "a"),
    ("I32", "null", None),
    ("[I32]", "null", None),
    ("Vector(2)", "null", None),
    ("Blob", "null", None),
]


@pytest.mark.parametrize(("type_", "text", "value"), TAKEN)
def test_a_value_is_taken_as_it_is(type_: str, text: str, value: Any) -> None:
    assert same(loaded(type_, text), [value])


MISFITS: list[tuple[str, str, str]] = [
    ("String", "1", "1 is not a string"),
    ("String", '"\\ud800"', "surrogates"),
    ("Bool", "1", "not a bool"),
    ("Bool", '"true"', "not a bool"),
    ("I32", "2147483648", "does not fit"),
    ("I32", "1.5", "1.5 is not"),
    ("I32", "true", "True is not"),
    ("I32", '"1"', "is not"),
    ("I32", "NaN", "nan is not"),
    ("U32", "-1", "does not fit"),
    ("U64", "18446744073709551616", "does not fit"),
    ("F64", '"1.5"', "'1.5' is not"),
    ("F64", '"nan"', "'nan' is not"),
    ("F64", "true", "True is not"),
    ("F64", "1e999", "too large"),
    ("F32", "1e39", "too large"),
    ("F64", "9007199254740993", "does not fit"),
    ("String", "NaN", "nan is not"),
    ("Date", '"2026-02-29"', "2026-02-29 is not in the calendar"),
    ("Date", '"20260101"', "write it as"),
    ("Date", '"2026-01-01T00:00:00Z"', "is not a date"),
    ("Date", "1.0", "is not a date"),
    ("Date", "2147483648", "does not fit"),
    ("Date", "true", "True is not a date"),
    ("DateTime", '"2026-01-01"', "is not a time"),
    ("DateTime", '"2026-01-01T24:00:00Z"', "is not a time"),
    ("DateTime", '"2026-01-01T12:00:60Z"', "is not a time"),
    ("DateTime", '"2026-01-01T12:00:00.0000001Z"', "more exact than a microsecond"),
    ("DateTime", "9223372036854775807", "does not fit"),
    ("[I32]", "1", "1 is not a list"),
    ("[I32]", '["x"]', "'x' is not"),
    ("[I32]", "[[1]]", "is not"),
    ("[I32]", "{}", "is not a list"),
    ("Vector(2)", "[1]", "1 numbers where 2"),
    ("Vector(2)", '[1, "x"]', "'x' is not"),
    ("Vector(2)", "[1, 1e39]", "too large"),
    ("Blob", '"file:///etc/passwd"', "base64:"),
    ("Blob", '"base64:A"', "base64"),
    ("Blob", '"base64:AP8=\\n"', "base64"),
    ("Blob", "1", "not a blob"),
]


@pytest.mark.parametrize(("type_", "text", "problem"), MISFITS)
def test_a_value_that_does_not_fit_is_refused_and_its_row_is_named(type_: str, text: str, problem: str) -> None:
    with pytest.raises(BadRecordError, match=problem) as caught:
        loaded(type_, "null", "null", text, "null", text)
    assert (caught.value.row, caught.value.table, caught.value.column) == (2, "node:N", "v")


@pytest.mark.parametrize("text", ["1e999", "3.5e38"])
def test_an_infinity_that_was_written_hides_no_number_that_is_too_large(text: str) -> None:
    with pytest.raises(BadRecordError, match="too large") as caught:
        loaded("F32", "Infinity", '"-Infinity"', text)
    assert caught.value.row == 2


def test_a_required_value_that_is_missing_is_refused_and_its_row_is_named() -> None:
    for row in ({}, {"text": None}):
        with pytest.raises(BadRecordError, match=r"node:Note\.text is required") as caught:
            batch_of_rows(kind("Note"), [{"text": "x"}, row])
        assert caught.value.row == 1


def test_an_unknown_property_is_refused_and_the_nearest_is_named() -> None:
    with pytest.raises(BadRecordError, match="no property 'agee'; did you mean 'age'") as caught:
        batch_of_rows(kind(), [{"name": "a"}, {"name": "b", "agee": None}])
    assert (caught.value.row, caught.value.column) == (1, "agee")


def test_an_id_that_differs_from_its_key_is_refused() -> None:
    assert batch_of_rows(kind(), [{"name": "a", "id": "a"}, {"name": "b"}]).num_rows == 2
    with pytest.raises(BadRecordError, match="differs from the key") as caught:
        batch_of_rows(kind(), [{"name": "a", "id": "a"}, {"name": "b", "id": "c"}])
    assert caught.value.row == 1


@pytest.mark.parametrize(
    "text", ["0001-01-01", "9999-12-31", "-0001-03-01", "0000-02-29", "10000-01-01", "+12345-06-07"]
)
def test_dates_of_any_year_are_read_and_written(text: str) -> None:
    (written,) = json_texts(pa.array([days_of(text)], pa.int32()).cast(pa.date32()))
    assert days_of(json.loads(written)) == days_of(text)


@pytest.mark.parametrize("number", [-(2**63), 2**63 - 1, 0, -1, 10**18, -62_135_596_800_000_001])
def test_every_moment_a_column_can_hold_is_written_and_read(number: int) -> None:
    (written,) = json_texts(pa.array([number], pa.int64()).cast(pa.timestamp("us", "UTC")))
    assert microseconds_of(json.loads(written)) == number


def test_dates_and_moments_refuse_what_only_python_would_take() -> None:
    for text in ("2026-W01-1", "٢٠٢٦-01-01", " 2026-01-01", "2026-1-1"):
        with pytest.raises(MisfitError):
            days_of(text)


# -- CSV and Arrow --------------------------------------------------------------------------------------

CELLS: list[tuple[str, str | None, Any]] = [
    ("String", "", ""),
    ("String", None, None),
    ("I64", "-5", -5),
    ("U64", "18446744073709551615", 2**64 - 1),
    ("F64", "1e3", 1000.0),
    ("F64", "NaN", math.nan),
    ("Bool", "TRUE", True),
    ("Date", "2026-01-01", date(2026, 1, 1)),
    ("DateTime", "2026-01-01T12:00:00Z", NOON),
    ("[I32]", "[1,null]", [1, None]),
    ("Vector(1)", "[2]", [2.0]),
    ("Blob", "base64:AA==", b"\x00"),
]


@pytest.mark.parametrize(("type_", "text", "value"), CELLS)
def test_a_cell_is_taken_as_its_column_says(type_: str, text: str | None, value: Any) -> None:
    texts = pa.record_batch({"k": pa.array(["a"]), "v": pa.array([text], pa.string())})
    assert same(batch_of_texts(with_value(type_), texts).column("v").to_pylist(), [value])


@pytest.mark.parametrize(
    ("type_", "text"),
    [
        *(("I32", text) for text in ("1_0", " 1", "0x1", "1.0", "")),
        *(("F64", "nan"), ("F64", "1e999"), ("Bool", "yes"), ("Bool", "1"), ("Date", "01/02/2026")),
        *(("[I32]", "1,2"), ("[I32]", '[1,1e999,"x"]')),
    ],
)
def test_a_cell_that_does_not_fit_is_refused_and_its_row_is_named(type_: str, text: str) -> None:
    texts = pa.record_batch({"k": pa.array(["a", "b"]), "v": pa.array([None, text], pa.string())})
    with pytest.raises(BadRecordError, match=r"node:N\.v does not fit") as caught:
        batch_of_texts(with_value(type_), texts)
    assert caught.value.row == 1


def test_columns_may_be_called_from_and_to() -> None:
    batch = pa.record_batch({"from": ["a"], "to": ["b"]})
    assert batch_of_columns(kind("Knows"), batch).to_pylist() == [{"id": None, "src": "a", "dst": "b", "since": None}]
    with pytest.raises(BadRecordError, match="'src' twice"):
        batch_of_columns(kind("Knows"), pa.record_batch({"from": ["a"], "src": ["a"], "to": ["b"]}))


def test_a_column_of_another_kind_is_refused_as_a_whole_and_a_value_by_its_row() -> None:
    with pytest.raises(BadRecordError, match="convert it first") as caught:
        batch_of_columns(kind(), pa.record_batch({"name": ["a"], "age": ["1"]}))
    assert caught.value.row is None
    with pytest.raises(BadRecordError, match=r"age does not fit") as caught:
        batch_of_columns(kind(), pa.record_batch({"name": ["a", "b", "c"], "age": [1, 2**40, 2**41]}))
    assert caught.value.row == 1
    doubles = pa.record_batch({"k": ["a", "b"], "v": pa.array([math.inf, 1e300])})
    with pytest.raises(BadRecordError, match="too large") as caught:
        batch_of_columns(with_value("F32"), doubles)
    assert caught.value.row == 1


# -- lines ----------------------------------------------------------------------------------------------


def test_lines_are_compact_and_in_the_order_of_the_columns() -> None:
    found = batch_of_rows(kind(), [{"id": "ü", "name": "ü", "age": 3}, {"id": 'a"b', "name": 'a"b'}])
    assert record_lines(kind(), found) == [
        '{"type":"Person","data":{"id":"ü","name":"ü","age":3}}',
        '{"type":"Person","data":{"id":"a\\"b","name":"a\\"b","age":null}}',
    ]
    edge = batch_of_rows(kind("Knows"), [{"id": "1", "src": "100%s", "dst": "b", "since": "2026-01-01"}])
    assert record_lines(kind("Knows"), edge) == [
        '{"edge":"Knows","from":"100%s","to":"b","data":{"id":"1","since":"2026-01-01"}}'
    ]


def test_32_bit_floats_are_written_with_the_fewest_digits_that_return_them() -> None:
    values = pa.array([0.1, 16777216.0, 3.4028235e38, 1e-45, -0.0, None, math.nan, math.inf, 1 / 3], pa.float32())
    assert json_texts(values) == [
        "0.1",
        "16777216.0",
        "3.4028235e+38",
        "1e-45",
        "-0.0",
        "null",
        '"NaN"',
        '"Infinity"',
        "0.33333334",
    ]


def test_every_type_has_a_column_in_files() -> None:
    blob = plain_schema(with_value("Blob")).field("v")
    assert (blob.type, blob.metadata) == (pa.large_binary(), None)
    with pytest.raises(MisfitError):
        record_values.typed_column([None], pa.time32("s"))
