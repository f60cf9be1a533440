"""Which of the small fragments at the end of a table become one, so that there are never many of them.

Fragments have tiers by their rows. When `FAN` of one tier have come together at the end, they become one, with all that
is smaller among and after them. So a row is written anew once per tier, however many commits come after it.
"""

from collections.abc import Sequence
from typing import Final

FAN: Final = 32
LOOK_EVERY: Final = 16
SMALL_ROWS_MAX: Final = 16_384
SMALL_BYTES_MAX: Final = 2**20
TIERS: Final = (32, 1_024)
"""Up to how many rows, and not with so many, a fragment is of each tier; the last tier has those of more."""
SMALL_FRAGMENTS_MAX: Final = 4 * FAN * (len(TIERS) + 1)
"""More of them are not looked at: where there are, somebody wrote them before this was done."""


def is_due(fragments: int, added: int) -> bool:
    """Tell whether to look at the end of a table that gets more fragments: looking takes time too."""
    return (fragments + added) // LOOK_EVERY > fragments // LOOK_EVERY and fragments >= FAN


def rolled_up(rows: Sequence[int]) -> int:
    """Return how many of the last fragments become one, given the rows of the small ones at the end; 0 if none do."""
    found = 0
    for tier in range(len(TIERS) + 1):
        suffix = same = 0
        for count in reversed(rows):
            if _tier(count) > tier:
                break
            suffix += 1
            same += _tier(count) == tier
        if same >= FAN:
            found = suffix
    return found


def _tier(rows: int) -> int:
    return sum(rows >= limit for limit in TIERS)
