"""Incoming rows fit a table exactly or are refused: nothing truncated, wrapped, nulled or reinterpreted."""

from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from itertools import count
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.errors import InvalidDataError
from omnigraph.ids import Sources
from omnigraph.model.schema import TableType
from omnigraph.rules.arrow_schema import BLOB_STORAGE, arrow_schema
from omnigraph.rules.conform import conform
from omnigraph.rules.identity import key_id, key_ids
from omnigraph.rules.schema_compile import FreshIds, compile_schema
from omnigraph.rules.values import MisfitError, column_of, converted

mint = Sources().mint_many
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
PLUS_5 = timezone(timedelta(hours=5))


def kind_of(schema: str, name: str = "N") -> TableType:
    return compile_schema(schema, FreshIds(Sources().mint)).type(name)


def with_value(type_: str) -> TableType:
    return kind_of(f"node N {{ k: String @key  v: {type_}? }}")


def stored(type_: str, values: Any) -> list[Any]:
    """Give values as a column of Arrow, or as dictionaries, and return what would be stored."""
    rows: Any
    if isinstance(values, list):
        rows = [{"k": str(number), "v": value} for number, value in enumerate(values)]
    else:
        rows = pa.table({"k": [str(number) for number in range(len(values))], "v": values})
    fitted: Any = conform(with_value(type_), rows, mint)
    assert fitted.schema.equals(arrow_schema(with_value(type_)))
    return list(fitted.column("v").to_pylist())


def arrow(values: list[Any], type_: pa.DataType | None = None) -> Any:
    return pa.array(values, type_)


ACCEPTED = [
    ("String", ["a", "", "ü𝄞", None], ["a", "", "ü𝄞", None]),
    ("String", arrow(["a"], pa.large_string()), ["a"]),
    ("String", arrow(["a", "a"]).dictionary_encode(), ["a", "a"]),
    ("enum(x, y)", ["x"], ["x"]),
    ("Bool", [True, False, None], [True, False, None]),
    ("I32", [2**31 - 1, -(2**31), None], [2**31 - 1, -(2**31), None]),
    ("I32", arrow([7], pa.int64()), [7]),
    ("I32", [2.0], [2]),
    ("I32", arrow([2.0]), [2]),
    ("I64", [2**63 - 1, -(2**63)], [2**63 - 1, -(2**63)]),
    ("U32", [0, 2**32 - 1], [0, 2**32 - 1]),
    ("U64", [2**64 - 1], [2**64 - 1]),
    ("U64", arrow([2**64 - 1], pa.uint64()), [2**64 - 1]),
    ("F32", [1.5, None], [1.5, None]),
    ("F64", [0.1, 3], [0.1, 3.0]),
    ("F64", arrow([3]), [3.0]),
    ("Date", [date(2026, 1, 1)], [date(2026, 1, 1)]),
    ("Date", arrow([datetime(2026, 1, 1)], pa.date64()), [date(2026, 1, 1)]),  # noqa: DTZ001 - a date has no zone
    ("DateTime", [NOON], [NOON]),
    ("DateTime", [NOON.astimezone(PLUS_5)], [NOON]),
    ("DateTime", arrow([NOON], pa.timestamp("s", "+05:00")), [NOON]),
    ("DateTime", arrow([NOON], pa.timestamp("ns", "America/New_York")), [NOON]),
    ("[I32]", [[1, None], [], None], [[1, None], [], None]),
    ("[I32]", arrow([[1]], pa.large_list(pa.int64())), [[1]]),
    ("[String]", [["a"]], [["a"]]),
    ("Vector(2)", [[1.0, 2.0], None], [[1.0, 2.0], None]),
    ("Vector(2)", arrow([[1.0, 2.0]]), [[1.0, 2.0]]),
    ("Blob", [b"\x00\xff", b"", None], [b"\x00\xff", b"", None]),
    ("Blob", arrow([b"x"], pa.binary()), [b"x"]),
    ("I32", pa.nulls(2), [None, None]),
]


@pytest.mark.parametrize(("type_", "given", "expected"), ACCEPTED)
def test_a_value_that_fits_is_stored_as_it_is(type_: str, given: Any, expected: list[Any]) -> None:
    found = stored(type_, given)
    if type_ == "Blob":
        assert all(blob is None or blob["uri"] is None for blob in found)
        found = [None if blob is None else blob["data"] for blob in found]
    assert found == expected


REFUSED = [
    ("String", [1]),
    ("String", arrow([1])),
    ("String", arrow([b"ab"])),
    ("String", arrow([7]).dictionary_encode()),
    ("String", ["\ud800"]),
    ("Bool", [1]),
    ("Bool", ["true"]),
    ("Bool", arrow([1])),
    ("I32", [2**31]),
    ("I32", [-(2**31) - 1]),
    ("I32", arrow([2**31])),
    ("I32", [1.5]),
    ("I32", arrow([1.5])),
    ("I32", [float("nan")]),
    ("I32", arrow([float("nan")])),
    ("I32", ["1"]),
    ("I32", arrow(["1"])),
    ("I32", [True]),
    ("I32", arrow([True])),
    ("I32", arrow([Decimal("1.5")])),
    ("I64", [2**63]),
    ("I64", arrow([2**63], pa.uint64())),
    ("U32", [-1]),
    ("U32", arrow([-1])),
    ("U32", [2**32]),
    ("U64", [-1]),
    ("U64", [2**64]),
    ("F32", [2**24 + 1]),
    ("F32", [1e300]),
    ("F32", arrow([1e300])),
    ("F64", [2**53 + 1]),
    ("F64", arrow([2**53 + 1])),
    ("F64", ["1.5"]),
    ("Date", ["2026-01-01"]),
    ("Date", [time(1, 2)]),
    ("Date", [NOON]),
    ("Date", arrow([NOON])),
    ("Date", [5]),
    ("Date", arrow([5])),
    ("DateTime", ["2026-01-01T00:00:00Z"]),
    ("DateTime", [timedelta(1)]),
    ("DateTime", arrow([1], pa.timestamp("ns", "UTC"))),  # below a microsecond
    ("DateTime", [5]),
    ("DateTime", arrow([5])),
    ("[I32]", [[2**31]]),
    ("[I32]", arrow([[2**31]])),
    ("[I32]", [[1.5]]),
    ("[I32]", arrow([[1.5]])),
    ("[I32]", [7]),
    ("[I32]", [["1"]]),
    ("[I32]", arrow([["1"]])),
    ("[String]", arrow([[1]])),
    ("Vector(2)", [[1.0]]),
    ("Vector(2)", [[1.0, 2.0, 3.0]]),
    ("Vector(2)", arrow([[1.0]])),
    ("Vector(2)", arrow([[1.0, 2.0, 3.0]], pa.list_(pa.float32(), 3))),
    ("Vector(1)", arrow([["1"]])),
    ("Vector(1)", [[1e300]]),
    ("Blob", [7]),
    ("Blob", arrow([7])),
    ("Blob", [{"data": None, "uri": "file:///etc/hosts"}]),
]


@pytest.mark.parametrize(("type_", "given"), REFUSED)
def test_a_value_that_would_be_changed_is_refused_and_the_column_named(type_: str, given: Any) -> None:
    with pytest.raises(InvalidDataError, match=r"node:N\.v"):
        stored(type_, given)


def test_the_address_of_another_object_is_never_taken_from_data() -> None:
    given = arrow([{"data": None, "uri": "file:///etc/hosts"}], BLOB_STORAGE)
    try:
        found = stored("Blob", given)
    except InvalidDataError:
        return
    assert found == [None]


PERSON = "node N { name: String @key  age: I32  bio: String? }"


def test_a_missing_required_column_is_named() -> None:
    with pytest.raises(InvalidDataError, match=r"node:N\.age is required, but no such column was given"):
        conform(kind_of(PERSON), [{"name": "Ann"}], mint)


@pytest.mark.parametrize("as_arrow", [False, True])
def test_a_null_in_a_required_column_is_refused_with_its_row(as_arrow: bool) -> None:
    rows: Any = [{"name": n, "age": a} for n, a in (("Ann", 1), ("Bob", None), ("Cid", 3), ("Dan", None))]
    with pytest.raises(InvalidDataError, match=r"2 rows have none \(first: row 2\)") as refused:
        conform(kind_of(PERSON), pa.Table.from_pylist(rows) if as_arrow else rows, mint)
    assert (refused.value.table_key, refused.value.column, refused.value.row) == ("node:N", "age", 2)


def test_a_column_only_some_rows_have_is_null_for_the_others() -> None:
    made: Any = conform(kind_of(PERSON), [{"name": "Ann", "age": 1, "bio": "x"}, {"name": "Bob", "age": 2}], mint)
    assert made.column("bio").to_pylist() == ["x", None]


@pytest.mark.parametrize("as_arrow", [False, True])
def test_an_unknown_column_is_refused_with_the_nearest_name(as_arrow: bool) -> None:
    rows: Any = [{"name": "Ann", "age": 1}, {"name": "Bob", "agee": 2}]
    with pytest.raises(InvalidDataError, match=r"no column 'agee'; did you mean 'age'\?"):
        conform(kind_of(PERSON), pa.table({"name": ["Ann"], "agee": [1]}) if as_arrow else rows, mint)


def test_a_column_given_twice_is_refused() -> None:
    columns: Any = [pa.array(["Ann"]), pa.array([1]), pa.array([2])]
    twice = pa.Table.from_arrays(columns, names=["name", "age", "age"])
    with pytest.raises(InvalidDataError, match="a column twice"):
        conform(kind_of(PERSON), twice, mint)
    with pytest.raises(InvalidDataError, match="a column twice"):
        conform(kind_of(PERSON), twice.to_batches()[0], mint)


def test_columns_come_out_in_the_order_of_the_schema_whatever_order_they_came_in() -> None:
    batch: Any = pa.RecordBatch.from_pydict({"bio": ["x"], "age": [1], "name": ["Ann"]})
    made = conform(kind_of(PERSON), batch, mint)
    assert made.to_pylist() == [{"id": "Ann", "name": "Ann", "age": 1, "bio": "x"}]
    assert made.schema.names == ["id", "name", "age", "bio"]


def test_many_chunks_come_out_as_one_table_in_order() -> None:
    parts = [pa.table({"name": [f"p{n}"], "age": pa.array([n], pa.int32())}) for n in range(5)]
    made: Any = conform(kind_of(PERSON), pa.concat_tables(parts), mint)
    assert made.column("id").to_pylist() == ["p0", "p1", "p2", "p3", "p4"]


def test_no_rows_in_a_table_with_columns_are_no_rows() -> None:
    empty = pa.table({"name": pa.array([], pa.string()), "age": pa.array([], pa.int32())})
    assert conform(kind_of(PERSON), empty, mint).num_rows == 0


def test_an_empty_list_of_rows_is_no_rows() -> None:
    assert conform(kind_of(PERSON), [], mint).num_rows == 0


def test_rows_without_columns_are_rows_all_the_same() -> None:
    assert conform(kind_of("node N { v: I32? }"), [{}, {}], mint).num_rows == 2


# -- ids ----------------------------------------------------------------------------------------------


def minted(number: int) -> bytes:
    return f"MINTED{number:020}".encode()


def ids(schema: str, rows: list[dict[str, Any]], name: str = "N") -> list[Any]:
    numbers = count(1)
    made: Any = conform(kind_of(schema, name), rows, lambda many: b"".join(minted(next(numbers)) for _ in range(many)))
    return list(made.column("id").to_pylist())


KEYS = [
    ("a: String @key", {"a": "Ann"}, "Ann"),
    ("a: String @key", {"a": '["x"]'}, '["x"]'),
    ("a: enum(x, y) @key", {"a": "x"}, "x"),
    ("a: I64 @key", {"a": 7}, "[7]"),
    ("a: U64 @key", {"a": 2**64 - 1}, f"[{2**64 - 1}]"),
    ("a: Date @key", {"a": date(2026, 1, 1)}, '["2026-01-01"]'),
    ("a: DateTime @key", {"a": NOON.astimezone(PLUS_5)}, '["2026-01-01T12:00:00+00:00"]'),
    ("a: String  b: I32  @key(a, b)", {"a": 'q"ü', "b": 1}, '["q\\"ü",1]'),
    ("b: I32  a: String  @key(a, b)", {"a": "x", "b": 1}, '["x",1]'),
]


@pytest.mark.parametrize(("columns", "row", "expected"), KEYS)
def test_an_id_is_made_from_the_key(columns: str, row: dict[str, Any], expected: str) -> None:
    schema = f"node N {{ {columns} }}"
    assert ids(schema, [row]) == [expected]
    assert ids(schema, [{**row, "id": expected}]) == [expected]
    assert ids(schema, [{**row, "id": None}]) == [expected]


@pytest.mark.parametrize(("columns", "row", "_"), KEYS)
def test_an_id_that_contradicts_the_key_is_refused(columns: str, row: dict[str, Any], _: str) -> None:
    with pytest.raises(InvalidDataError, match="'id' differs from the key"):
        ids(f"node N {{ {columns} }}", [{**row, "id": "other"}])


KEY_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "String": st.text(st.characters(codec="utf-8") | st.sampled_from('"\\\x00\x1f\n,[]')),
    "I32": st.integers(-(2**31), 2**31 - 1),
    "I64": st.integers(-(2**63), 2**63 - 1),
    "U64": st.integers(0, 2**64 - 1),
    "Bool": st.booleans(),
    "Date": st.dates(),
    "DateTime": st.datetimes(timezones=st.just(UTC)),
}


@given(st.data())
def test_ids_made_of_whole_columns_are_those_made_of_single_keys(data: st.DataObject) -> None:
    types = data.draw(st.lists(st.sampled_from(sorted(KEY_VALUES)), min_size=1, max_size=3))
    rows = data.draw(st.lists(st.tuples(*(KEY_VALUES[type_] for type_ in types)), min_size=1, max_size=5))
    kind = (
        with_value(types[0])
        if len(types) == 1
        else kind_of("node N { " + " ".join(f"c{n}: {type_}" for n, type_ in enumerate(types)) + " }")
    )
    fields = [field.type for field in arrow_schema(kind) if field.name not in ("id", "k")]
    columns = {
        f"c{n}": pa.chunked_array([column_of([row[n] for row in rows], fields[n]).combine_chunks()])
        for n in range(len(types))
    }
    made = key_ids(columns, tuple(columns)).to_pylist()
    is_text = types == ["String"]
    assert made == [row[0] if is_text else key_id(row) for row in rows]


def test_composite_keys_that_only_look_alike_stay_apart() -> None:
    schema = "node N { a: String  b: String  @key(a, b) }"
    made = ids(schema, [{"a": "x,y", "b": "z"}, {"a": "x", "b": "y,z"}, {"a": 'x","y', "b": "z"}])
    assert len(set(made)) == 3


def test_without_a_key_an_id_is_the_given_one_or_a_new_one() -> None:
    schema = "node N { v: I32 }"
    assert ids(schema, [{"v": 1}, {"v": 2}]) == [minted(1).decode(), minted(2).decode()]
    assert ids(schema, [{"v": 1, "id": "mine"}, {"v": 2}]) == ["mine", minted(1).decode()]


def test_a_keyed_edge_has_the_id_of_its_key_and_a_keyless_one_a_new_one() -> None:
    keyed = "node P { k: String @key }\nedge E: P -> P { since: I32  @key(src, dst, since) }"
    row = {"src": "a", "dst": "b", "since": 7}
    assert ids(keyed, [row], "E") == ['["a","b",7]']
    assert ids("node P { k: String @key }\nedge E: P -> P", [{"src": "a", "dst": "b"}], "E") == [minted(1).decode()]


@pytest.mark.parametrize("missing", ["src", "dst"])
def test_an_edge_without_an_end_is_refused(missing: str) -> None:
    schema = "node P { k: String @key }\nedge E: P -> P"
    row = {"src": "a", "dst": "b"}
    del row[missing]
    with pytest.raises(InvalidDataError, match=rf"edge:E\.{missing} is required"):
        ids(schema, [row], "E")


@pytest.mark.parametrize(
    ("schema", "row"),
    [
        ("node N { a: String @key }", {"a": ""}),
        ("node N { a: String @key }", {"a": "x" * 4_097}),
        ("node N { v: I32? }", {"v": 1, "id": ""}),
        ("node N { a: String  b: String  @key(a, b) }", {"a": "x" * 5_000, "b": "y"}),
    ],
)
def test_an_empty_or_huge_id_is_refused(schema: str, row: dict[str, Any]) -> None:
    with pytest.raises(InvalidDataError, match="1 to 4096 characters"):
        ids(schema, [row])


def test_an_id_that_is_no_text_is_refused() -> None:
    with pytest.raises(InvalidDataError, match=r"node:N\.id"):
        conform(kind_of("node N { v: I32? }"), pa.table({"id": [7], "v": [1]}), mint)


@pytest.mark.parametrize("values", [[float("inf"), 1e39], [1e39, float("-inf"), None], [[float("inf"), 1e300]]])
def test_a_number_that_is_too_large_is_refused_also_beside_an_infinity(values: list[Any]) -> None:
    wanted: Any = pa.list_(pa.float32()) if isinstance(values[0], list) else pa.float32()
    wide: Any = pa.list_(pa.float64()) if isinstance(values[0], list) else pa.float64()
    with pytest.raises(MisfitError, match="too large"):
        column_of(values, wanted)
    with pytest.raises(MisfitError, match="too large"):
        converted(pa.chunked_array([pa.array(values, wide)]), wanted)


def test_infinities_that_were_given_are_kept() -> None:
    given = [float("inf"), float("-inf"), 1.5]
    assert column_of(given, pa.float32()).to_pylist() == given
    assert converted(pa.chunked_array([pa.array(given, pa.float64())]), pa.float32()).to_pylist() == given


def test_lists_that_were_sent_without_a_buffer_of_values_are_read_and_do_not_crash() -> None:
    nothing: Any = pa.Array.from_buffers(pa.float32(), 0, [None, None])
    offsets = pa.py_buffer(bytes(8))
    null: Any = pa.Array.from_buffers(pa.list_(pa.float32()), 1, [pa.py_buffer(b"\0"), offsets], 1, 0, [nothing])
    empty: Any = pa.Array.from_buffers(pa.list_(pa.float32()), 1, [None, offsets], 0, 0, [nothing])
    vector: Any = pa.list_(pa.float32(), 3)
    assert converted(pa.chunked_array([null]), vector).to_pylist() == [None]
    with pytest.raises(MisfitError, match="expected size"):
        converted(pa.chunked_array([empty]), vector)
