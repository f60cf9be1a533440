"""What the crash matrix proved when this release was made, as it is shipped with it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Final

FILE: Final = "crash_matrix.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """One thing that was disturbed: a writer, or a recovery; and by failpoint how often it ended how."""

    name: str
    cells: int
    points: Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class CrashSummary:
    """Every cell, counted; ``windows`` say what each failpoint is."""

    cells: int
    windows: Mapping[str, str]
    stories: tuple[Story, ...]

    @property
    def wrong(self) -> int:
        """How many cells did not hold what they must."""
        every = (counts for story in self.stories for counts in story.points.values())
        return sum(number for counts in every for entry, number in counts.items() if "wrong" in entry)

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "cells": self.cells,
            "windows": dict(self.windows),
            "stories": [
                {"name": one.name, "cells": one.cells, "points": {k: dict(v) for k, v in one.points.items()}}
                for one in self.stories
            ],
        }

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> "CrashSummary":
        """Read it back."""
        stories = tuple(Story(name=one["name"], cells=one["cells"], points=one["points"]) for one in body["stories"])
        return cls(cells=body["cells"], windows=body["windows"], stories=stories)

    @classmethod
    def of_page(cls, page: str) -> "CrashSummary":
        """Return the summary of the page that the generator wrote."""
        stories, windows = [], dict[str, str]()
        for part in page.split("\n## ")[1:]:
            title, *lines = part.splitlines()
            points: dict[str, dict[str, int]] = {}
            for line in lines:
                if line.startswith("| `"):
                    point, window, entries = _cells(line)
                    windows.setdefault(point, window)
                    counts = points.setdefault(point, {})
                    for entry in entries:
                        counts[entry] = counts.get(entry, 0) + 1
            cells = sum(number for counts in points.values() for number in counts.values())
            stories.append(Story(name=title.strip(), cells=cells, points=points))
        return cls(cells=sum(story.cells for story in stories), windows=windows, stories=tuple(stories))


@cache
def shipped() -> CrashSummary:
    """Return what this release was shipped with."""
    text = files("omnigraph.report").joinpath(FILE).read_text(encoding="utf-8")
    return CrashSummary.from_json(json.loads(text))


def _cells(line: str) -> tuple[str, str, Sequence[str]]:
    point, window, *entries = [cell.strip() for cell in line.strip().strip("|").split("|")]
    return point.split("`")[1], window, entries
