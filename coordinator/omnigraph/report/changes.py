"""The sections about two commits: what differs between them, and what stands in the way of a merge."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from omnigraph.model.diffs import TableDiff
from omnigraph.model.lineage import Commit
from omnigraph.model.merges import Conflict, MergeResult, Outcome
from omnigraph.report.facts import DiffFacts
from omnigraph.report.markup import Markup, Part, joined, tag
from omnigraph.report.tables import BAR_WIDTH, pill, stacked, table
from omnigraph.report.words import counted, name, short, value

CONFLICTS_SHOWN_MAX: Final = 30
COLUMNS_SHOWN_MAX: Final = 8
CELL_CHARACTERS_MAX: Final = 80
SORTS: Final = (("inserted", "add"), ("updated", "change"), ("deleted", "remove"))
KINDS: Final = {"insert": "add", "update": "change", "delete": "remove"}
SAID: Final = {
    Outcome.ALREADY_UP_TO_DATE: "There is nothing to merge: the target has all of it.",
    Outcome.FAST_FORWARD: "It would be a fast-forward: nothing happened on the target since.",
    Outcome.MERGED: "It would merge without conflict.",
    Outcome.CONFLICTS: "It can not be merged as it is.",
}


def diff(facts: DiffFacts) -> Markup:
    """Return what differs, counted by table as bars, and a few rows of each."""
    old, new = (_point(*each) for each in ((facts.old_name, facts.old), (facts.new_name, facts.new)))
    lead = tag("p", old, " → ", new, class_="lead")
    if not facts.tables:
        return joined([lead, tag("p", "Nothing differs: both commits have the same rows.", class_="empty")])
    most = max(each.rows for each in facts.tables.values()) or 1
    rows = [
        (name(key), *(getattr(each, what) for what, _ in SORTS), _bar(each, most)) for key, each in facts.tables.items()
    ]
    columns = ("table", "inserted", "updated", "deleted", "")
    counts = table("Rows that differ, by table", columns, rows, ("inserted", "updated", "deleted"))
    samples = [_sample(key, facts, is_open=number == 0) for number, key in enumerate(facts.samples)]
    return joined([lead, counts, _legend(), tag("div", samples, class_="stack")])


def _legend() -> Markup:
    words = [tag("span", tag("span", "■ ", class_=kind, aria_hidden="true"), word, " ") for word, kind in SORTS]
    return tag("p", words, class_="note legend")


def _bar(each: TableDiff, most: int) -> Markup:
    widths = [(getattr(each, what) / most * BAR_WIDTH, kind) for what, kind in SORTS]
    return stacked([(max(2.0, width), kind) for width, kind in widths if width > 0])


def _sample(key: str, facts: DiffFacts, *, is_open: bool) -> Markup:
    rows = facts.samples.get(key, ())
    each = facts.tables[key]
    columns = [
        *(f"column {one} added" for one in each.columns_added),
        *(f"column {one} removed" for one in each.columns_removed),
    ]
    shown = f"{len(rows)} of {each.rows:,} rows" if len(rows) < each.rows else counted(each.rows, "row")
    said = ", ".join([shown, *columns])
    body = table(f"Rows of {key}", ("change", "id", "what"), [_change(row) for row in rows], kind="sample")
    return tag(
        "details",
        tag("summary", tag("b", name(key)), " ", tag("span", said, class_="note")),
        body if rows else None,
        open=is_open,
    )


def _change(row: Mapping[str, Any]) -> Sequence[Part]:
    before, after = row.get("before"), row.get("after")
    names: Sequence[str] = row.get("changed") or list(after or before or {})
    names = [each for each in names if row["change"] == "update" or (after or before or {}).get(each) is not None]
    cells = [_cell(column, row["change"], before or {}, after or {}) for column in names[:COLUMNS_SHOWN_MAX]]
    rest = len(names) - len(cells)
    more = tag("span", f"and {rest} more", class_="note") if rest > 0 else None
    return (
        pill(row["change"], KINDS.get(row["change"], "none")),
        value(row["id"], 40),
        tag("ul", cells, more, class_="cells"),
    )


def _cell(column: str, change: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Markup:
    label = tag("span", name(column, 40), class_="label")
    if change == "update":
        old, new = (value(side.get(column), CELL_CHARACTERS_MAX) for side in (before, after))
        return tag("li", label, " ", tag("del", old), " → ", tag("ins", new))
    return tag("li", label, " ", value((after or before).get(column), CELL_CHARACTERS_MAX))


def merge(result: MergeResult) -> Markup:
    """Return what a merge would do, and every conflict as base, ours and theirs have it."""
    total = sum(number for counts in result.conflict_counts.values() for number in counts.values())
    lead = tag(
        "p",
        tag("b", name(result.source)),
        " → ",
        tag("b", name(result.target)),
        ". ",
        SAID[result.outcome],
        class_="lead",
    )
    parts: list[Part] = [lead]
    if result.tables:
        rows = [(name(key), *_merged(each)) for key, each in result.tables.items()]
        parts.append(
            table(
                "What it would do",
                ("table", "inserted", "updated", "deleted"),
                rows,
                ("inserted", "updated", "deleted"),
            )
        )
    if total:
        rows = [
            (name(key or "schema"), kind, number)
            for key, counts in result.conflict_counts.items()
            for kind, number in counts.items()
        ]
        parts.append(table(f"{counted(total, 'conflict')}", ("table", "kind", "conflicts"), rows, ("conflicts",)))
        parts += [_conflict(each, result) for each in result.conflicts[:CONFLICTS_SHOWN_MAX]]
        left = total - min(len(result.conflicts), CONFLICTS_SHOWN_MAX)
        parts.append(tag("p", f"{counted(left, 'more conflict')} not shown.", class_="note") if left > 0 else None)
    return joined(parts)


def _merged(each: Any) -> Sequence[Part]:
    if each.adopted:
        return "as the source has it", "", ""
    return each.rows_inserted, each.rows_updated, each.rows_deleted


def _conflict(each: Conflict, result: MergeResult) -> Markup:
    """Return one conflict: a line per column that is not the same on all sides."""
    sides = (each.base, each.ours, each.theirs)
    columns = list(dict.fromkeys(column for side in sides if side for column in side))
    there = [side for side in sides if side is not None]
    split = [one for one in columns if len(there) == 1 or len({repr(side.get(one)) for side in there}) > 1]
    rows = [(name(column, 40), *(_side(side, column) for side in sides)) for column in split[: COLUMNS_SHOWN_MAX * 2]]
    head = tag(
        "h3",
        pill(str(each.kind), "remove"),
        " ",
        name(each.table_key or "schema"),
        " ",
        value(each.row_id or "", 60) if each.row_id else None,
    )
    heads = ("column", "base", f"ours: {short(result.target, 24)}", f"theirs: {short(result.source, 24)}")
    caption = f"{each.kind} {short(each.row_id or '', 40)}: what each side has"
    same = len(columns) - len(split)
    body = table(caption, heads, rows, kind="sides") if rows else None
    note = (
        tag("p", f"{counted(same, 'column')} {'is' if same == 1 else 'are'} the same.", class_="note")
        if same and rows
        else None
    )
    return tag("article", head, tag("p", tag("bdi", short(each.message, 400))), body, note, class_="conflict")


def _side(side: Mapping[str, Any] | None, column: str) -> Markup:
    if side is None:
        return tag("span", "no such row", class_="null")
    return value(side.get(column), CELL_CHARACTERS_MAX)


def _point(called: str | None, commit: Commit) -> Markup:
    """Return a commit by what it was called, and where it is if that does not say it."""
    place = f"{short(commit.branch, 60)}@{commit.version}"
    if called is None or called == place:
        return tag("b", name(place))
    return joined([tag("b", name(called)), tag("span", f" ({place})", class_="note")])
