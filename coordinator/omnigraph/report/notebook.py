"""What a graph, a snapshot, a schema and a log show of themselves in a notebook: little, and at once."""

from collections.abc import Sequence
from typing import Final

from omnigraph.model.catalog import Catalog
from omnigraph.model.drawing import html_table
from omnigraph.model.lineage import Branch, Commit
from omnigraph.report.markup import Markup, tag
from omnigraph.report.schema_drawing import schema_diagram
from omnigraph.report.words import moment, short

ROWS_SHOWN_MAX: Final = 20
TEXT_CHARACTERS_MAX: Final = 120


class Log(list[Commit]):
    """Commits in a list, which a notebook shows as a table."""

    def _repr_html_(self) -> str:
        return log_card(self)


def graph_card(title: str, branches: Sequence[Branch], commits: Sequence[Commit]) -> str:
    """Return a graph's branches, and the newest commits of the one it is bound to."""
    rows = [(short(one.name, TEXT_CHARACTERS_MAX), str(one.version), one.head) for one in branches[:ROWS_SHOWN_MAX]]
    return html_table(_titled(title, len(branches)), ("branch", "version", "head"), rows) + log_card(commits)


def log_card(commits: Sequence[Commit]) -> str:
    """Return commits, newest first."""
    rows = [
        (
            str(commit.version),
            moment(commit.created_at),
            commit.operation,
            short(commit.actor or "", TEXT_CHARACTERS_MAX),
            short(commit.message or "", TEXT_CHARACTERS_MAX),
            commit.id,
        )
        for commit in commits[:ROWS_SHOWN_MAX]
    ]
    columns = ("version", "time (UTC)", "operation", "actor", "message", "commit")
    return html_table(_titled("commits, newest first", len(commits)), columns, rows)


def snapshot_card(commit: Commit, sizes: Sequence[tuple[str, int]]) -> str:
    """Return the tables of a snapshot with their rows."""
    title = f"{short(commit.branch, TEXT_CHARACTERS_MAX)}@{commit.version}, {moment(commit.created_at)} UTC"
    return html_table(_titled(title, len(sizes)), ("table", "rows"), sizes[:ROWS_SHOWN_MAX])


def schema_card(catalog: Catalog) -> str:
    """Return the diagram of a schema, in the colours of the notebook it stands in."""
    return tag("div", tag("style", Markup(STYLE)), schema_diagram(catalog), class_="omnigraph-types")


def _titled(title: str, number: int) -> str:
    return title if number <= ROWS_SHOWN_MAX else f"{title} (the first {ROWS_SHOWN_MAX} of {number:,})"


STYLE: Final = """
.omnigraph-types .scroll { overflow-x: auto; }
.omnigraph-types .box { fill: none; stroke: currentColor; opacity: .6; }
.omnigraph-types .edge .box { stroke-dasharray: 4 3; opacity: .45; }
.omnigraph-types .rule { opacity: .3; }
.omnigraph-types .title { font: 600 14px sans-serif; }
.omnigraph-types .edge .title { font-weight: 400; font-size: 13px; }
.omnigraph-types .property, .omnigraph-types .kind { font: 12px monospace; }
.omnigraph-types .kind { opacity: .65; }
.omnigraph-types .way { opacity: .6; }
"""
