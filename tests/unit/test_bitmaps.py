"""Roaring bitmaps: whatever is not surely one of the form that is known is refused."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.rules.bitmaps import COOKIE, numbers_of


def written(numbers: set[int]) -> bytes:
    """Write a bitmap the slow way."""
    by_key: dict[int, list[int]] = {}
    for number in sorted(numbers):
        by_key.setdefault(number >> 16, []).append(number & 0xFFFF)
    heads = b"".join(struct.pack("<HH", key, len(low) - 1) for key, low in by_key.items())
    bodies = []
    for low in by_key.values():
        if len(low) <= 4_096:
            bodies.append(struct.pack(f"<{len(low)}H", *low))
        else:
            bits = sum(1 << bit for bit in low)
            bodies.append(bits.to_bytes(8_192, "little"))
    place = 8 + 8 * len(by_key)
    places = []
    for body in bodies:
        places.append(struct.pack("<I", place))
        place += len(body)
    return struct.pack("<II", COOKIE, len(by_key)) + heads + b"".join(places) + b"".join(bodies)


@given(st.sets(st.integers(0, 2**32 - 1), max_size=50), st.sets(st.integers(0, 200_000), max_size=50))
def test_numbers_are_read_back_ascending(far: set[int], near: set[int]) -> None:
    found = numbers_of(written(far | near))
    assert found is not None
    assert found.tolist() == sorted(far | near)


def test_many_numbers_close_together_are_read_back() -> None:
    numbers = set(range(3, 60_000)) | set(range(70_000, 74_096)) | {2**31}
    found = numbers_of(written(numbers))
    assert found is not None
    assert found.tolist() == sorted(numbers)


@given(st.binary(max_size=200))
def test_random_bytes_are_refused(data: bytes) -> None:
    assert numbers_of(data) is None or data[:4] == COOKIE.to_bytes(4, "little")


@pytest.mark.parametrize("numbers", [{1}, set(range(5_000)), {5, 70_000}])
def test_half_of_one_is_refused(numbers: set[int]) -> None:
    whole = written(numbers)
    for end in range(0, len(whole), 7):
        assert numbers_of(whole[:end]) is None
    assert numbers_of(struct.pack("<I", COOKIE + 1) + whole[4:]) is None


def test_a_container_that_has_other_numbers_than_it_says_is_refused() -> None:
    whole = bytearray(written(set(range(5_000))))
    whole[-1] |= 0x80
    assert numbers_of(bytes(whole)) is None
