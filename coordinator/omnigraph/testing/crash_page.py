"""The page of the crash matrix, made of what was seen."""

import ast
import inspect
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from omnigraph import failpoints
from omnigraph.report.crash_summary import FILE, CrashSummary

COMMAND = "python -m omnigraph.testing.crash_matrix --write docs/internals/crash-matrix.md"

_HEAD = """# The crash matrix

What becomes of a write that is disturbed, at every failpoint it comes by. **{total} cells**, none skipped; this page
is generated from what was seen, and a test compares it with what it sees:

```text
{command}
```

A fault is an exception (`raise`), a process that kills itself with signal 9 (`kill`), or an answer that is lost after
the deed (`lost`). Then somebody recovers: the `next open` of the graph; the `next write` through a handle that was open
all along (after `raise` and `lost` that of the very process that failed); or `two at once`. In every cell the oracle
holds: all or nothing of the write over all its tables, no id twice, what was acknowledged is there, a reported error
means it never will be, one audit row per sidecar that was left and none otherwise, a commit that recovery publishes has
the promised id, a merge has both parents, linear history, no sidecar left, the next write succeeds, and opening once
more adds nothing.

An entry says whether the work is there in the end, and what the audit says if there was something to recover.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One fault, one recovery, and what came of it."""

    story: str
    arrival: str
    fault: str
    who: str
    applied: bool
    audit: str | None
    wrong: tuple[str, ...] = ()

    @property
    def entry(self) -> str:
        """What the page says."""
        if self.wrong:
            return "**wrong**"
        return f"{'applied' if self.applied else 'not applied'}{f', {self.audit}' if self.audit else ''}"


def render(sections: Mapping[str, Sequence[Cell]]) -> str:
    """Return the whole page."""
    total = sum(len(cells) for cells in sections.values())
    parts = [_HEAD.format(total=total, command=COMMAND), *(section(name, cells) for name, cells in sections.items())]
    return "\n".join(parts)


def write_summary(page: str) -> None:
    """Write the summary of a page that is shipped with the package, for the report."""
    summary = json.dumps(CrashSummary.of_page(page).to_json(), indent=1, ensure_ascii=False)
    Path(str(files("omnigraph.report").joinpath(FILE))).write_text(summary + "\n", encoding="utf-8")


def section(name: str, cells: Sequence[Cell]) -> str:
    """Return the table of one story: a row per arrival, a column per fault and recovery."""
    columns = list(dict.fromkeys((cell.fault, cell.who) for cell in cells))
    found = {(cell.arrival, cell.fault, cell.who): cell.entry for cell in cells}
    said = windows()
    lines = [
        f"## {name[0].upper()}{name[1:]}",
        "",
        f"{len(cells)} cells.",
        "",
        "| failpoint | window | " + " | ".join(f"`{fault}`, {who}" for fault, who in columns) + " |",
        "|---" * (len(columns) + 2) + "|",
    ]
    for arrival in dict.fromkeys(cell.arrival for cell in cells):
        entries = " | ".join(found[arrival, fault, who] for fault, who in columns)
        point, _, time = arrival.partition(", ")
        lines.append(f"| `{point}`{f', {time}' if time else ''} | {said[point]} | {entries} |")
    return "\n".join(lines) + "\n"


def windows() -> dict[str, str]:
    """Return what the catalogue of failpoints says about each."""
    (catalogue,) = ast.parse(inspect.getsource(failpoints.Failpoint)).body
    assert isinstance(catalogue, ast.ClassDef)
    said: dict[str, str] = {}
    for named, text in zip(catalogue.body, catalogue.body[1:], strict=False):
        if isinstance(named, ast.Assign) and isinstance(named.value, ast.Constant):
            assert isinstance(text, ast.Expr)
            assert isinstance(text.value, ast.Constant)
            said[str(named.value.value)] = " ".join(str(text.value.value).split())
    return said
