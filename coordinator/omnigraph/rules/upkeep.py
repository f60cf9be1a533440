"""What the kinds of upkeep may be told."""

from typing import Final

from omnigraph.errors import InvalidOptionError

FRAGMENT_ROWS: Final = 1_048_576
FRAGMENT_ROWS_MAX: Final = 2**31


def check_fragment_rows(rows: int | None) -> int:
    """Return how many rows a fragment is to have."""
    if rows is None:
        return FRAGMENT_ROWS
    if type(rows) is not int or not 1 <= rows <= FRAGMENT_ROWS_MAX:
        raise InvalidOptionError(f"rows_per_fragment is {rows!r}; it is a number from 1 to {FRAGMENT_ROWS_MAX}")
    return rows
