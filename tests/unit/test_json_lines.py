"""Reading many lines of JSON at once: never anything else than reading them one by one, or an answer of None."""

import gc
import json
import math
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from omnigraph.ids import Sources
from omnigraph.model.catalog import Catalog
from omnigraph.rules.json_lines import plain_records, uncollected
from omnigraph.rules.json_stream import JsonError, JsonStream
from omnigraph.rules.record_groups import groups_of
from omnigraph.rules.records import BadRecordError, batch_of_rows, record_of
from omnigraph.rules.schema_compile import FreshIds, compile_schema

SCHEMA = """
node A { k: String @key  n: I64?  f: F64?  b: Bool?  l: [I64]?  v: Vector(2)?  d: Date?  from: String? }
node B { t: String? }
edge E: A -> B { w: F32? }
"""
CATALOG: Catalog = compile_schema(SCHEMA, FreshIds(Sources().mint))


def careful(text: str) -> dict[str, Any] | None:
    """Read one by one, as a load does that has to say what is wrong; None if anything is."""
    rows: dict[str, Any] = {}
    places: dict[str, list[int]] = {}
    try:
        for record in JsonStream().take(text, last=True):
            kind, row = record_of(CATALOG, record.value)
            rows.setdefault(kind.name, []).append(row)
            places.setdefault(kind.name, []).append(record.number - 1)
        return {
            name: (batch_of_rows(CATALOG.type(name), some).to_pydict(), places[name]) for name, some in rows.items()
        }
    except (JsonError, BadRecordError):
        return None


def hasty(text: str) -> dict[str, Any] | None:
    records = plain_records(text)
    groups = None if records is None else groups_of(CATALOG, records)
    if groups is None:
        return None
    return {group.kind.name: (group.batch.to_pydict(), group.places.tolist()) for group in groups}


PLAIN = """{"type": "A", "data": {"k": "a", "n": 1, "f": 2, "b": true, "l": [1, null], "v": [1, 2.5]}}
{"type": "A", "data": {"d": "2020-01-01", "k": "b"}}
{"edge": "E", "from": "a", "to": "b", "data": {"w": 1.5}}
{"edge": "E", "from": "a", "to": "b"}
{"type":"B","id":"i","data":{"t":"\\u00e9\\ud83c\\udf89 \\": ü"}}
{"data": {"t": null}, "type": "B"}
{"type": "B"}
"""


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_plain_lines_are_read_as_they_would_be_one_by_one(end: str) -> None:
    text = PLAIN.replace("\n", end)
    assert hasty(text) is not None
    assert hasty(text) == careful(text)
    assert list(hasty(text) or ()) == ["A", "E", "B"]


UNUSUAL = [
    "",
    "null",
    "[]",
    '{"type": "B"} null',
    '{"type": "B"}{"type": "B"}',
    '{"type": "B"},{"type": "B"}',
    '{"type": "B"}\n\n{"type": "B"}',
    '{"type":\n"B"}',
    '{"type": "B", "data": {"t": "x}\n{y"}}',
    '{"type": "B", "data": {"t": "a", "t": "b"}}',
    '{"type": "B", "data": {"t" : "a", "t" : "b"}}',
    '{"type": "B", "type": "B"}',
    '{"type": "B", "data": {"t": "\\":", "t": "b"}}',
    '{"type": "B", "data": {"t": [{}\n{}]}},{"type": "B"}',
    '{"type": "B", "data": {"t": "\\ud800"}}',
    '{"type": "B", "data": {"t": 1}}',
    '{"type": "B", "data": null}',
    '{"type": "B", "data": []}',
    '{"type": "B", "id": "i", "data": {"id": "i"}}',
    '{"type": ["B"]}',
    '{"type": null}',
    '{"type": "", "edge": "E", "from": "a", "to": "b"}',
    '{"type": "E", "from": "a", "to": "b"}',
    '{"edge": "B"}',
    '{"edge": "E", "from": "a"}',
    '{"edge": "E", "from": "a", "to": "b", "data": {"src": "c"}}',
    '{"type": "B", "x": 1}',
    '{"type": "B", "data": {"x": 1}}',
    '{"type": "A", "data": {"n": 1}}',
    '{"type": "A", "data": {"k": "a", "n": 9223372036854775808}}',
    '{"type": "A", "data": {"k": "a", "f": 1e999}}',
    '{"type": "A", "data": {"k": "a", "f": 9007199254740993}}',
    '{"type": "A", "data": {"k": "a", "b": 1}}',
    '{"type": "A", "data": {"k": ""}}',
]


@pytest.mark.parametrize("text", UNUSUAL)
def test_what_is_unusual_or_wrong_is_left_to_a_careful_look(text: str) -> None:
    assert hasty(text) is None


def test_words_for_floats_are_read_as_the_same_objects() -> None:
    text = '{"type": "A", "data": {"k": "a", "f": -Infinity}}\n{"type": "A", "data": {"k": "b", "f": NaN}}'
    found = hasty(text)
    assert found is not None
    low, nan = found["A"][0]["f"]
    assert low == -math.inf
    assert math.isnan(nan)


_NAMES = st.sampled_from(["type", "edge", "from", "to", "data", "id", "k", "n", "f", "l", "t", "w", 'x"', ""])
_SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False),
    st.sampled_from(["A", "B", "E", "a", '":', "}\n{", "2020-01-01", "Infinity", ""]),
)
_VALUES = st.recursive(
    _SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=4), max_leaves=6
)
_GOOD = st.sampled_from(PLAIN.splitlines())
_PIECES = st.one_of(
    _GOOD,
    _GOOD,
    _VALUES.map(json.dumps),
    st.dictionaries(_NAMES, _VALUES, max_size=5).map(json.dumps),
    st.sampled_from(["", " ", ",", '{"type": "B",', '"data": {}}', "{}", "[{}", "{}]", '{"type": "B", "type": "B"}']),
)
_SEPARATORS = st.sampled_from(["\n", "\n", "\n", "\n", "\r\n", " ", "", ",", ",\n", "\n\n"])


@given(st.lists(st.tuples(_PIECES, _SEPARATORS), max_size=6))
@example([('{"type": "B", "data": {"t": [{}', "\n"), ("{}]}}", ","), ('{"type": "B"}', "\n")])
def test_a_hasty_look_never_sees_anything_else_than_a_careful_one(pieces: list[tuple[str, str]]) -> None:
    text = "".join(piece + separator for piece, separator in pieces)
    found = hasty(text)
    if found is not None:
        assert repr(found) == repr(careful(text))


def test_garbage_is_collected_again_afterwards() -> None:
    assert gc.isenabled()
    with pytest.raises(KeyError), uncollected():
        assert not gc.isenabled()
        raise KeyError
    assert gc.isenabled()
    gc.disable()
    try:
        with uncollected():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
