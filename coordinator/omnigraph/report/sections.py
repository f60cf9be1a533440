"""The sections of a report about what is there: branches and tags, tables and indexes, recoveries, the crash matrix."""

from collections.abc import Iterable, Sequence
from typing import Final

from omnigraph.model.indexes import IndexCoverage
from omnigraph.model.lineage import Branch
from omnigraph.report.crash_summary import CrashSummary, Story
from omnigraph.report.facts import History, Recoveries, ReportFacts, TableSize
from omnigraph.report.markup import Markup, Part, joined, tag
from omnigraph.report.tables import bar, pill, table
from omnigraph.report.words import commit_id, counted, name, percent, short, size, stamp

NAMES_SHOWN_MAX: Final = 200
REASON_CHARACTERS_MAX: Final = 200
GOOD: Final = {"RolledForward": "good", "RolledBack": "warn", "OrphanedBranchDiscarded": "warn"}


def branches(history: History) -> Markup:
    """Return the tables of branches and tags."""
    drawn = {commit.id: commit for commit in history.commits}
    rows = [_branch(one, one.head in drawn) for one in history.branches[:NAMES_SHOWN_MAX]]
    made = table("Branches", ("branch", "version", "head", "forked from", "created (UTC)", "by"), rows, ("version",))
    named = history.tags[:NAMES_SHOWN_MAX]
    tagged = [(name(one.name), commit_id(one.commit), stamp(one.created_at), _who(one.created_by)) for one in named]
    tags: Markup | None = None
    if tagged:
        tags = table("Tags", ("tag", "commit", "created (UTC)", "by"), tagged)
    left = len(history.branches) + len(history.tags) - len(rows) - len(tagged)
    note = f"{counted(left, 'more name')} not shown." if left else "" if tagged else "There are no tags."
    return joined([made, tags, tag("p", note, class_="note") if note else None])


def _branch(branch: Branch, is_drawn: bool) -> Sequence[Part]:
    head = joined([commit_id(branch.head), None if is_drawn else tag("span", " older than the picture", class_="note")])
    parent = name(branch.parent) if branch.parent else "—"
    return name(branch.name), branch.version, head, parent, stamp(branch.created_at), _who(branch.created_by)


def _who(actor: str | None) -> Part:
    return name(actor) if actor else "—"


def table_sizes(facts: ReportFacts) -> Markup:
    """Return the tables of a snapshot: how large they are, and what their indexes cover."""
    most = max((one.rows for one in facts.tables), default=0) or 1
    rows = [_table(one, most) for one in facts.tables]
    caption = f"What each table holds at {short(facts.branch, 60)}@{facts.head.version}"
    made = table(caption, ("table", "rows", "", "files", "bytes", "indexes"), rows, ("rows", "files", "bytes"))
    left = facts.tables_left_out
    return joined([made, tag("p", f"{counted(left, 'more table')} not looked at.", class_="note") if left else None])


def _table(one: TableSize, most: int) -> Sequence[Part]:
    kind, _, type_name = one.key.partition(":")
    key = joined([tag("span", kind, class_=f"sort {kind}"), " ", name(type_name, 40)])
    if one.trouble is not None:
        return (
            key,
            one.rows,
            bar(one.rows / most),
            "?",
            "?",
            tag("span", short(one.trouble, REASON_CHARACTERS_MAX), class_="bad"),
        )
    indexes = joined([_index(column, each) for column, each in one.indexes.items()])
    return (
        key,
        one.rows,
        bar(one.rows / most),
        one.files,
        size(one.bytes),
        indexes or tag("span", "none yet", class_="null"),
    )


def _index(column: str, each: IndexCoverage) -> Markup:
    kind = "good" if each.share >= 1 else "warn" if each.rows_covered else "none"
    said = f"{each.kind}: {each.rows_covered:,} of {each.rows:,} rows covered"
    return joined([tag("span", f"{short(column, 30)} {percent(each.share)}", class_=f"pill {kind}", title=said), " "])


def recoveries(given: Recoveries) -> Markup:
    """Return the log of recoveries, newest first."""
    parts: list[Part] = []
    if given.pending:
        text = f"{counted(given.pending, 'write')} promised and not finished yet. "
        parts.append(
            tag(
                "p",
                text,
                "A writer may be at work; the next write or read-write open settles what it left.",
                class_="callout",
            )
        )
    if not given.rows:
        parts.append(tag("p", "Nothing was ever recovered: no writer died in the middle of a commit.", class_="empty"))
        return joined(parts)
    rows = [
        (
            stamp(one.at),
            pill(one.kind, GOOD.get(one.kind, "none")),
            name(one.branch),
            one.writer,
            _who(one.actor),
            one.tables,
            commit_id(one.commit),
        )
        for one in given.rows
    ]
    columns = ("time (UTC)", "what became of it", "branch", "writer", "for", "tables", "commit")
    parts.append(table("Recoveries, newest first", columns, rows, ("tables",)))
    left = given.total - len(given.rows)
    parts.append(
        tag("p", f"{counted(left, 'older recovery', 'older recoveries')} not shown.", class_="note") if left else None
    )
    return joined(parts)


def crash_matrix(summary: CrashSummary) -> Markup:
    """Return what was proven about crashes: a table of writers, and one of recoveries that were disturbed."""
    writers = [story for story in summary.stories if not story.name.startswith("Recovery")]
    others = [story for story in summary.stories if story.name.startswith("Recovery")]
    lead = (
        f"{summary.cells:,} cells: an exception, a kill and a lost answer at every failpoint, each recovered in "
        "three ways. "
        f"{'None' if not summary.wrong else f'{summary.wrong:,}'} broke a promise. These are facts about this release, "
        "not about this graph."
    )
    matrices = [
        _matrix("Writers that were disturbed", summary, writers),
        _matrix("Recoveries that were disturbed", summary, others),
    ]
    return joined(
        [
            tag("p", lead, class_="lead"),
            tag("div", matrices, class_="stack"),
            tag(
                "p",
                tag("span", "●", class_="yes"),
                " applied, whole · ",
                tag("span", "○", class_="no"),
                " not applied, nothing left behind",
                class_="note",
            ),
        ]
    )


def _matrix(caption: str, summary: CrashSummary, stories: Sequence[Story]) -> Markup:
    points = [point for point in summary.windows if any(point in story.points for story in stories)]
    rows = [
        (joined([tag("code", point), tag("span", summary.windows[point], class_="under")]), *_ends(point, stories))
        for point in points
    ]
    columns = ("window", *(story.name.removeprefix("Recovery of ").capitalize() for story in stories))
    cells = counted(sum(story.cells for story in stories), "cell")
    summary_line = tag("summary", tag("b", caption), " ", tag("span", cells, class_="note"))
    return tag("details", summary_line, table(caption, columns, rows, kind="matrix"))


def _ends(point: str, stories: Sequence[Story]) -> Iterable[Markup]:
    for story in stories:
        counts = story.points.get(point)
        if not counts:
            yield tag("span", "—", class_="null", title="never comes by here")
            continue
        told = "; ".join(f"{number} {entry}" for entry, number in counts.items())
        is_wrong = any("wrong" in entry for entry in counts)
        is_applied = not any(entry.startswith("not") for entry in counts)
        mark, kind = ("✕", "bad") if is_wrong else ("●", "yes") if is_applied else ("○", "no")
        word = "wrong" if is_wrong else "applied" if is_applied else "not applied"
        yield tag(
            "span", tag("span", mark, aria_hidden="true"), tag("span", word, class_="unseen"), class_=kind, title=told
        )
