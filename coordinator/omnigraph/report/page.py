"""The page: one HTML file that needs nothing else, and that lets nothing else in."""

import base64
import hashlib
from functools import cache
from importlib.resources import files
from typing import Final

from omnigraph.report import changes, sections
from omnigraph.report.commit_drawing import commit_graph
from omnigraph.report.crash_summary import shipped
from omnigraph.report.facts import ReportFacts
from omnigraph.report.markup import Markup, Part, tag
from omnigraph.report.schema_drawing import schema_diagram
from omnigraph.report.words import commit_id, counted, moment, name, percent, short, size

TITLE_CHARACTERS_MAX: Final = 80
OUTCOME_SECTION: Final = "merge"


def render(facts: ReportFacts) -> str:
    """Return the whole page."""
    parts = _sections(facts)
    body = [
        tag("a", "Skip to the report", href="#report", class_="skip"),
        tag("header", _title(facts), _navigation(parts), class_="top"),
        tag("main", _tiles(facts), [_section(*part) for part in parts], id="report", tabindex=-1),
        tag(
            "footer",
            tag(
                "p",
                f"Made {moment(facts.made_at)} UTC by {facts.made_by}. This file needs no network.",
            ),
        ),
        tag("script", Markup(_text("page.js"))),
    ]
    graph_name = short(_last(facts.root), TITLE_CHARACTERS_MAX)
    head = [
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_policy()),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", f"{graph_name} · omnigraph report"),
        tag("style", Markup(_text("page.css"))),
    ]
    return "<!doctype html>\n" + tag("html", tag("head", head), tag("body", body), lang="en") + "\n"


def _sections(facts: ReportFacts) -> list[tuple[str, str, Markup]]:
    """Return every section that there is something to say in: its anchor, title and content."""
    history = facts.history
    found = [
        ("history", "History", commit_graph(history, facts.branch)),
        ("branches", "Branches and tags", sections.branches(history)),
    ]
    if facts.diff is not None:
        found.append(("diff", "Diff", changes.diff(facts.diff)))
    if facts.merge is not None:
        found.append((OUTCOME_SECTION, "Merge", changes.merge(facts.merge)))
    return [
        *found,
        ("schema", "Schema", schema_diagram(facts.catalog)),
        ("tables", "Tables and indexes", sections.table_sizes(facts)),
        ("recoveries", "Recoveries", sections.recoveries(facts.recoveries)),
        ("crashes", "Crash matrix", sections.crash_matrix(shipped())),
    ]


def _section(anchor: str, title: str, content: Markup) -> Markup:
    heading = tag("h2", title, id=f"{anchor}-title")
    return tag("section", heading, content, id=anchor, aria_labelledby=f"{anchor}-title")


def _title(facts: ReportFacts) -> Markup:
    toggle = tag("button", "Dark", id="theme", type="button", hidden=True)
    head = facts.head
    about = [
        tag("b", name(facts.branch)),
        f" at version {head.version:,} · ",
        commit_id(head.id),
        f" · {moment(head.created_at)} UTC",
    ]
    return tag(
        "div",
        tag("div", tag("p", "omnigraph report", class_="brand"), toggle, class_="line"),
        tag("h1", name(_last(facts.root), TITLE_CHARACTERS_MAX)),
        tag("p", name(facts.root, 200), class_="root"),
        tag("p", about, class_="about"),
        class_="title",
    )


def _navigation(parts: list[tuple[str, str, Markup]]) -> Markup:
    links = [tag("li", tag("a", title, href=f"#{anchor}")) for anchor, title, _ in parts]
    return tag("nav", tag("ul", links), aria_label="Sections")


def _tiles(facts: ReportFacts) -> Markup:
    rows = {kind: sum(one.rows for one in facts.tables if one.key.startswith(kind)) for kind in ("node", "edge")}
    covered = [each for one in facts.tables for each in one.indexes.values() if each.rows]
    share = sum(each.rows_covered for each in covered) / sum(each.rows for each in covered) if covered else None
    history = facts.history
    tiles: list[tuple[str, Part, str]] = [
        ("commits", history.total, f"on {counted(len(history.branches), 'branch', 'branches')}"),
        ("nodes", rows["node"], counted(len(facts.catalog.nodes), "type")),
        ("edges", rows["edge"], counted(len(facts.catalog.edges), "type")),
        (
            "stored",
            size(sum(one.bytes for one in facts.tables)),
            counted(sum(one.files for one in facts.tables), "file"),
        ),
        ("indexed", "—" if share is None else percent(share), "of rows, in all indexes" if covered else "no index yet"),
        ("recovered", facts.recoveries.total, "after a writer died" if facts.recoveries.total else "no writer died"),
    ]
    return tag("dl", [_tile(*each) for each in tiles], class_="tiles", aria_label="At a glance")


def _tile(label: str, number: Part, under: str) -> Markup:
    return tag(
        "div", tag("dt", label), tag("dd", tag("span", number, class_="figure"), tag("span", under, class_="under"))
    )


def _last(root: str) -> str:
    return root.rstrip("/").rpartition("/")[2] or root


def _policy() -> str:
    """Return a policy under which nothing is fetched and nothing runs but what this page was made with."""
    style, script = (_digest(_text(file)) for file in ("page.css", "page.js"))
    return f"default-src 'none'; style-src '{style}'; script-src '{script}'; base-uri 'none'; form-action 'none'"


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


@cache
def _text(file: str) -> str:
    return files("omnigraph.report").joinpath(file).read_text(encoding="utf-8")
