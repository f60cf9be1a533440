"""Text that is not UTF-8 is refused whoever made it, and a text of plain letters is not looked into one by one."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.rules.values import MisfitError, converted


def texts(values: list[bytes | None]) -> pa.StringArray:
    """Return bytes as texts, as a producer does that Arrow takes the word of."""
    binary: Any = pa.array(values, pa.binary())
    is_there, offsets, data = binary.buffers()
    return pa.StringArray.from_buffers(len(binary), offsets, data, is_there)


def is_text(value: bytes | None) -> bool:
    try:
        (value or b"").decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


PIECES = st.sampled_from(
    [b"", b"plain", b"\x7f", b"\x80", "ü".encode(), "ü".encode()[:1], b"\xed\xa0\x80", b"\xff", b"\x00"]
)


@given(st.lists(st.one_of(st.none(), st.lists(PIECES, max_size=3).map(b"".join)), max_size=6), st.integers(0, 6))
def test_what_is_not_utf8_is_refused_and_all_else_is_taken(values: list[bytes | None], start: int) -> None:
    column = pa.chunked_array([texts(values).slice(start)], pa.string())
    if all(map(is_text, values[start:])):
        assert converted(column, pa.string()).equals(column)
    else:
        with pytest.raises(MisfitError):
            converted(column, pa.string())


@pytest.mark.parametrize("ends", [[0, 5, 3], [0, -1, 5]])
def test_offsets_that_lie_are_refused(ends: list[int]) -> None:
    offsets = pa.py_buffer(np.array(ends, np.int32).tobytes())
    column = pa.StringArray.from_buffers(2, offsets, pa.py_buffer(b"plain"))
    with pytest.raises(MisfitError):
        converted(pa.chunked_array([column]), pa.string())
