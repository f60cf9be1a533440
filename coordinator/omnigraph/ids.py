"""Where time, identifiers and randomness come from.

Everything that mints an id or reads a clock is given a :class:`Sources`, so a test owns both.
"""

import os
import random
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NewType

from ulid import ULID

CommitId = NewType("CommitId", str)
Incarnation = NewType("Incarnation", str)
TableId = NewType("TableId", str)
TypeId = NewType("TypeId", str)
PropertyId = NewType("PropertyId", str)

MOMENT_CHARACTERS = 10
DICE_CHARACTERS = 16
ULID_CHARACTERS = MOMENT_CHARACTERS + DICE_CHARACTERS
_SPELLING = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ" * 8
"""A letter for every byte, each equally often: five bits of a byte make one letter."""
_ULID = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}")


def _utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Clock, id mint and dice of one process."""

    now: Callable[[], datetime] = _utc_now
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    random: Callable[[], float] = field(default=random.random)

    def mint(self) -> str:
        """Return a fresh ULID: 26 characters, sorted by time."""
        return str(ULID.from_datetime(self.now()))

    def mint_many(self, count: int) -> bytes:
        """Return fresh ULIDs of one moment, one after the other; a hundredth of the work that minting each would be."""
        dice = os.urandom(count * DICE_CHARACTERS).translate(_SPELLING)
        every = bytearray(count * ULID_CHARACTERS)
        for place, letter in enumerate(self.mint()[:MOMENT_CHARACTERS].encode("ascii")):
            every[place::ULID_CHARACTERS] = bytes([letter]) * count
        for place in range(DICE_CHARACTERS):
            every[MOMENT_CHARACTERS + place :: ULID_CHARACTERS] = dice[place * count : (place + 1) * count]
        return bytes(every)


def is_ulid(text: str) -> bool:
    """Tell whether ``text`` is spelled like one of our identifiers; such a text is safe in a path or predicate."""
    return _ULID.fullmatch(text) is not None
