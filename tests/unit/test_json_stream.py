"""JSON that arrives in pieces: every value is found, and what is no JSON is refused where it stands."""

import math
from typing import Any

import pytest

from omnigraph.rules import json_stream
from omnigraph.rules.json_stream import JsonError, JsonStream


def streamed(text: str, step: int) -> list[tuple[Any, int, int]]:
    stream = JsonStream()
    found = [r for start in range(0, len(text), step) for r in stream.take(text[start : start + step], last=False)]
    found += stream.take("", last=True)
    return [(record.value, record.number, record.line) for record in found]


@pytest.mark.parametrize("step", [1, 2, 3, 7, 1000])
def test_values_are_found_wherever_the_text_is_cut(step: int) -> None:
    text = '\n {"a": "x\\u00e9\\ud83c\\udf89", "b": [1.5e-3, -12]}\t{}\r\n{\n  "c":\n null,"d":false\n}'
    text += '\n\n{"e": -Infinity}'
    assert streamed(text, step) == [
        ({"a": "xé🎉", "b": [0.0015, -12]}, 1, 2),
        ({}, 2, 2),
        ({"c": None, "d": False}, 3, 3),
        ({"e": -math.inf}, 4, 8),
    ]


@pytest.mark.parametrize(
    ("text", "number", "line", "problem"),
    [
        ('{}\n{"a": }\n{}', 2, 2, "expecting value"),
        ('{}\n\n{"a": "x', 2, 3, "unterminated string"),
        ('{"a": "x\ny"}', 1, 1, "invalid control character"),
        ('{"a": 1, "b": {"c": 1, "c": 1}}', 1, 1, "an object has 'c' twice"),
        ("{} {'a': 1}", 2, 1, "expecting property name"),
        ("{}\nnope", 2, 2, "expecting value"),
        ("[" * 100_000, 1, 1, "nested too deeply"),
        ('{"a": ' + "9" * 5_000 + "}", 1, 1, "invalid JSON"),
        ("{} ,", 2, 1, "expecting value"),
    ],
)
@pytest.mark.parametrize("step", [5, 10**6])
def test_text_that_is_no_json_is_refused_with_its_record_and_line(
    text: str, number: int, line: int, problem: str, step: int
) -> None:
    with pytest.raises(JsonError, match=problem) as caught:
        streamed(text, step)
    assert (caught.value.number, caught.value.line) == (number, line)


def test_a_mistake_is_found_without_reading_the_rest() -> None:
    stream = JsonStream()
    with pytest.raises(JsonError, match="expecting value"):
        list(stream.take('{"a": oops}' + " " * 100, last=False))


def test_a_record_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_stream, "RECORD_CHARACTERS_MAX", 100)
    with pytest.raises(JsonError, match="more than 100 characters"):
        streamed('{"a": "' + "x" * 200, 50)
