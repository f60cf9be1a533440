"""Several things are read at once and given out in order; what is not wanted any more is not read."""

import threading

import pytest

from omnigraph.storage.read_ahead import read_ahead


def test_what_was_read_comes_in_order_and_no_more_at_once_than_allowed() -> None:
    together = threading.Barrier(3)
    busy: list[int] = []
    most = 0

    def read(number: int) -> int:
        nonlocal most
        busy.append(number)
        most = max(most, len(busy))
        if number < 3:
            together.wait(timeout=10)  # nobody gets past this alone: they are read at once
        busy.remove(number)
        return number * 10

    assert list(read_ahead(read, range(20), 3)) == [number * 10 for number in range(20)]
    assert most == 3


def test_a_failure_is_raised_in_its_place() -> None:
    found = read_ahead(lambda number: 6 // number, [3, 2, 0, 1], 2)
    assert (next(found), next(found)) == (2, 3)
    with pytest.raises(ZeroDivisionError):
        next(found)


def test_whoever_stops_early_leaves_the_rest_unread() -> None:
    seen: list[int] = []

    def note(number: int) -> int:
        seen.append(number)
        return number

    found = read_ahead(note, range(100), 4)
    assert next(found) == 0
    found.close()
    assert len(seen) <= 5
