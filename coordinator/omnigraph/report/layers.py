"""Where boxes stand in a diagram: in layers from left to right, so that lines run between them and cross few others.

It is the usual way to draw a directed graph: turn around the lines that close a circle, give every box a layer to the
right of all that lead to it, put a place for a long line into every layer it passes, order each layer by the middle of
its neighbours, and move boxes towards these without letting them overlap.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Final

SWEEPS: Final = 12
GAP: Final = 22
PLACE_HEIGHT: Final = 10


@dataclass(frozen=True, slots=True)
class Spot:
    """Where something stands: its middle, top to bottom, and its layer."""

    layer: int
    middle: float
    height: float

    @property
    def top(self) -> float:
        """Where it begins."""
        return self.middle - self.height / 2


@dataclass(slots=True)
class Net:
    """Things with a height in layers, each of which is tied to some of the layers beside it."""

    heights: dict[str, float] = field(default_factory=dict)
    layer_of: dict[str, int] = field(default_factory=dict)
    ties: dict[str, list[str]] = field(default_factory=dict)

    def add(self, key: str, layer: int, height: float) -> None:
        """Put something into a layer."""
        self.heights[key] = height
        self.layer_of[key] = layer
        self.ties[key] = []

    def tie(self, one: str, other: str) -> None:
        """Let two stand near each other."""
        self.ties[one].append(other)
        self.ties[other].append(one)

    def placed(self) -> dict[str, Spot]:
        """Order every layer and say where everything stands; the topmost begins at zero."""
        layers: dict[int, list[str]] = {}
        for key, layer in self.layer_of.items():
            layers.setdefault(layer, []).append(key)
        middles: dict[str, float] = {}
        for keys in layers.values():
            middles |= self._stacked(keys, dict.fromkeys(keys, 0.0))
        numbers = sorted(layers)
        best = (self._crossings(middles), middles)
        for sweep in range(SWEEPS):
            is_forward = sweep % 2 == 0
            for number in numbers if is_forward else reversed(numbers):
                wanted = {key: self._wanted(key, middles, is_forward) for key in layers[number]}
                layers[number] = sorted(layers[number], key=wanted.__getitem__)
                middles = middles | self._stacked(layers[number], wanted)
            best = min(best, (self._crossings(middles), middles), key=lambda found: found[0])
        middles = best[1]
        for number in (*numbers, *reversed(numbers)):  # at last look to both sides, and change the order no more
            ordered = sorted(layers[number], key=middles.__getitem__)
            wanted = {key: self._between(key, middles) for key in ordered}
            middles = middles | self._stacked(ordered, wanted)
        top = min((middles[key] - self.heights[key] / 2 for key in middles), default=0.0)
        return {key: Spot(self.layer_of[key], middles[key] - top, self.heights[key]) for key in middles}

    def _crossings(self, middles: Mapping[str, float]) -> int:
        """Count the ties that cross others between the same two layers."""
        gaps: dict[int, list[tuple[float, float]]] = {}
        for key, others in self.ties.items():
            layer = self.layer_of[key]
            ends = ((middles[key], middles[other]) for other in others if self.layer_of[other] > layer)
            gaps.setdefault(layer, []).extend(ends)
        return sum(
            (one[0] - other[0]) * (one[1] - other[1]) < 0
            for ties in gaps.values()
            for one, other in combinations(ties, 2)
        )

    def _wanted(self, key: str, middles: Mapping[str, float], is_forward: bool) -> float:
        """Return the mean of the neighbours on one side; where there are none, where it is."""
        side = -1 if is_forward else 1
        beside = [each for each in self.ties[key] if (self.layer_of[each] - self.layer_of[key]) * side > 0]
        return _mean([middles[each] for each in beside], middles[key])

    def _between(self, key: str, middles: Mapping[str, float]) -> float:
        return _mean([middles[each] for each in self.ties[key]], middles[key])

    def _stacked(self, keys: Sequence[str], wanted: Mapping[str, float]) -> dict[str, float]:
        """Return middles as near to what is wanted as can be, in this order and without overlap."""
        offsets, below = [], 0.0
        for key in keys:
            offsets.append(below + self.heights[key] / 2)
            below += self.heights[key] + GAP
        pools: list[tuple[float, int]] = []
        for key, offset in zip(keys, offsets, strict=True):
            mean, size = wanted[key] - offset, 1
            while pools and pools[-1][0] > mean:
                other, count = pools.pop()
                mean, size = (mean * size + other * count) / (size + count), size + count
            pools.append((mean, size))
        shifts = [mean for mean, size in pools for _ in range(size)]
        return {key: shift + offset for key, shift, offset in zip(keys, shifts, offsets, strict=True)}


def ranks(keys: Sequence[str], lines: Iterable[tuple[str, str]]) -> dict[str, int]:
    """Return a rank for each, greater than those of all that lead to it; lines that close a circle turn around."""
    follows: dict[str, list[str]] = {key: [] for key in keys}
    for one, other in lines:
        if one != other and other not in follows[one]:
            follows[one].append(other)
    order = _finished(keys, follows)
    place = {key: number for number, key in enumerate(order)}
    found = dict.fromkeys(keys, 0)
    forward: dict[str, list[str]] = {key: [] for key in keys}
    for one, others in follows.items():
        for other in others:
            first, last = (one, other) if place[one] < place[other] else (other, one)
            forward[first].append(last)
    for key in order:
        for other in forward[key]:
            found[other] = max(found[other], found[key] + 1)
    return found


def folded(rank: int, columns: int) -> int:
    """Return the column of a rank where only so many fit: from left to right, back again, and so on."""
    turn = 2 * (columns - 1)
    place = rank % turn if turn else 0
    return min(place, turn - place)


def _finished(keys: Sequence[str], follows: Mapping[str, Sequence[str]]) -> list[str]:
    """Return keys such that what follows comes later, as far as there is no circle; without recursion."""
    seen: set[str] = set()
    done: list[str] = []
    arriving = {other for others in follows.values() for other in others}
    for start in sorted(keys, key=lambda key: key in arriving):  # what nothing leads to comes first
        if start in seen:
            continue
        seen.add(start)
        waiting = [(start, iter(follows[start]))]
        while waiting:
            key, rest = waiting[-1]
            following = next((other for other in rest if other not in seen), None)
            if following is None:
                done.append(key)
                waiting.pop()
            else:
                seen.add(following)
                waiting.append((following, iter(follows[following])))
    return done[::-1]


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise
