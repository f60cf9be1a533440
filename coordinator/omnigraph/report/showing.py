"""A report that was made: as a text, as a file, and as a frame in a notebook."""

from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from omnigraph.errors import InvalidOptionError
from omnigraph.report.markup import Markup, tag

FRAME_HEIGHT = 720


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One self-contained HTML page."""

    html: str

    def __repr__(self) -> str:
        return f"<Report of {self.bytes:,} bytes>"

    @property
    def bytes(self) -> int:
        """How large the file is."""
        return len(self.html.encode())

    def save(self, path: "str | PathLike[str]") -> Path:
        """Write the page to a file, whole or not at all, and return where it is."""
        target = Path(path)
        unfinished = target.with_name(f".{target.name}.unfinished")
        try:
            unfinished.write_text(self.html, encoding="utf-8")
            unfinished.replace(target)
        except OSError as problem:
            raise InvalidOptionError(
                f"the report can not be written to {str(path)[:200]!r}: {problem.strerror}"
            ) from None
        return target.resolve()

    def to_dict(self) -> dict[str, Any]:
        """Return plain values: how large it is."""
        return {"bytes": self.bytes}

    def _repr_html_(self) -> str:
        frame = tag(
            "iframe",
            sandbox="allow-scripts",
            width="100%",
            height=FRAME_HEIGHT,
            frameborder=0,
            title="omnigraph report",
        )
        return Markup(frame.replace("<iframe", f'<iframe srcdoc="{_quoted(self.html)}"', 1))


def _quoted(page: str) -> str:
    return page.replace("&", "&amp;").replace('"', "&quot;")
