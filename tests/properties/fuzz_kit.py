"""Texts with one thing wrong, for parsers that must say where."""

import random
import re
from collections.abc import Sequence


def mutated(text: str, dice: random.Random, token: re.Pattern[str], tokens: Sequence[str]) -> str:
    """Return a text with a character or a token deleted, inserted, replaced, doubled or swapped."""
    pieces = token.findall(text) if dice.random() < 0.7 else list(text)
    place, other = (dice.randrange(len(pieces)) for _ in range(2))
    new = (
        dice.choice(tokens)
        if dice.random() < 0.8
        else chr(dice.choice([dice.randrange(128), dice.randrange(0x11_0000)]))
    )
    match dice.randrange(5):
        case 0:
            del pieces[place]
        case 1:
            pieces.insert(place, new)
        case 2:
            pieces[place] = new
        case 3:
            pieces.insert(other, pieces[place])
        case _:
            pieces[place], pieces[other] = pieces[other], pieces[place]
    return "".join(pieces)
