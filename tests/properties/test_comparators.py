"""The two ways rows are compared, in plans and in Arrow, give the same verdict on values of every type."""

import math
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.engine.integrity import ENGINE
from omnigraph.rules.same_rows import same_values

floats = st.sampled_from([0.0, -0.0, 1.0, math.inf, -math.inf, math.nan, -math.nan, 5e-324, None])
texts = st.sampled_from(["", "a", "A", "ä", "a\u0308", "a\0b", "a, b", "null", None])
item = pa.field("item", pa.float64())
CASES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "text": (pa.string(), texts),
    "flag": (pa.bool_(), st.sampled_from([True, False, None])),
    "i32": (pa.int32(), st.sampled_from([0, 1, -(2**31), None])),
    "i64": (pa.int64(), st.sampled_from([2**53, 2**53 + 1, -(2**63), None])),
    "u32": (pa.uint32(), st.sampled_from([0, 2**32 - 1, None])),
    "u64": (pa.uint64(), st.sampled_from([0, 2**64 - 1, 2**64 - 2, None])),
    "f32": (pa.float32(), st.sampled_from([0.0, -0.0, 0.5, math.nan, math.inf, None])),
    "f64": (pa.float64(), floats),
    "day": (pa.date32(), st.sampled_from([date(1, 1, 1), date(2026, 1, 1), date(9999, 12, 31), None])),
    "moment": (
        pa.timestamp("us", tz="UTC"),
        st.sampled_from([datetime(1970, 1, 1, tzinfo=UTC), datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=UTC), None]),
    ),
    "list": (pa.list_(item), st.none() | st.lists(floats, max_size=2)),
    "words": (pa.list_(pa.string()), st.none() | st.lists(texts, max_size=2)),
    "vector": (
        pa.list_(pa.float32(), 2),
        st.none() | st.lists(st.sampled_from([0.0, -0.0, math.nan, None]), min_size=2, max_size=2),
    ),
    "digest": (pa.binary(), st.sampled_from([b"", b"\0", b"a", None])),
}
SAME = "SELECT number FROM pairs WHERE one IS NOT DISTINCT FROM other"


@pytest.mark.parametrize("name", CASES)
@given(data=st.data())
def test_a_plan_and_arrow_agree_on_which_values_are_the_same(name: str, data: st.DataObject) -> None:
    kind, values = CASES[name]
    pairs = data.draw(st.lists(st.tuples(values, values), min_size=1, max_size=8))
    one, other = (pa.array([pair[side] for pair in pairs], kind) for side in (0, 1))
    rows = [pa.StructArray.from_arrays([side], fields=[pa.field("c0", kind)]) for side in (one, other)]
    table = pa.table({"number": list(range(len(pairs))), "one": rows[0], "other": rows[1]})
    found = set(ENGINE.run(SAME, {"pairs": table}).read_all().column("number").to_pylist())
    wanted = {number for number, same in enumerate(same_values(one, other).to_pylist()) if same}
    assert found == wanted, pairs
