"""What a report draws: commits in lanes, types in layers, and texts that stay texts."""

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from itertools import combinations, count, pairwise
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.ids import CommitId, Incarnation
from omnigraph.model.catalog import Catalog
from omnigraph.model.drawing import html_table
from omnigraph.model.lineage import Branch, Commit, Tag
from omnigraph.report.commit_drawing import commit_graph
from omnigraph.report.facts import History
from omnigraph.report.lanes import LANES_MAX, Lanes, LinkKind, lanes_of
from omnigraph.report.layers import GAP, Net, ranks
from omnigraph.report.markup import Markup, tag
from omnigraph.report.schema_drawing import schema_diagram
from omnigraph.report.words import counted, percent, short, size, value
from omnigraph.rules.schema_compile import FreshIds, compile_schema

START = datetime(2026, 1, 1, tzinfo=UTC)
HOSTILE = ("<script>alert(1)</script>", "\" onload='x'", "a&b", "\u202eabc", "\x00\x1b[31m", "]]>", "ש" * 40)


def commit(number: int, branch: str, *parents: int, message: str | None = None) -> Commit:
    return Commit(
        id=CommitId(f"c{number:03}"),
        branch=branch,
        incarnation=Incarnation(branch),
        version=number,
        parents=tuple(CommitId(f"c{parent:03}") for parent in parents),
        actor=None,
        operation="append",
        message=message,
        created_at=START + timedelta(seconds=number),
        schema_hash="",
        lineage=(),
        pins={},
    )


def newest_first(*commits: Commit) -> list[Commit]:
    return sorted(commits, key=lambda each: each.created_at, reverse=True)


@st.composite
def histories(draw: st.DrawFn) -> list[Commit]:
    """Any history: every commit follows one that is there, on its branch or on a new one, and may merge another."""
    made = [commit(0, "main")]
    heads = {"main": 0}
    for number in range(1, draw(st.integers(1, 40))):
        if draw(st.integers(0, 4)) == 0:
            branch, parent = f"b{number}", draw(st.integers(0, number - 1))
        else:
            branch = draw(st.sampled_from(sorted(heads)))
            parent = heads[branch]
        others = [draw(st.integers(0, number - 1))] if draw(st.booleans()) else []
        made.append(commit(number, branch, parent, *(other for other in others if other != parent)))
        heads[branch] = number
    kept = draw(st.integers(1, len(made)))
    return newest_first(*made)[:kept]


def stretches(lanes: Lanes) -> dict[str, tuple[int, int, int]]:
    """Lane and rows that every branch takes, with the lines that lead down its lane."""
    found: dict[str, tuple[int, int, int]] = {}

    def take(branch: str, lane: int, top: int, bottom: int) -> None:
        _, old_top, old_bottom = found.get(branch, (lane, top, bottom))
        found[branch] = (lane, min(top, old_top), max(bottom, old_bottom))

    branch_of = {(dot.row, dot.lane): dot.commit.branch for dot in lanes.dots}
    for dot in lanes.dots:
        take(dot.commit.branch, dot.lane, dot.row, dot.row)
    for link in lanes.links:
        if link.kind in (LinkKind.LINE, LinkKind.FORK, LinkKind.BEYOND):
            end = link.row if link.kind != LinkKind.FORK else link.row - 1
            take(link.child.commit.branch, link.child.lane, link.child.row, end)
        elif link.kind == LinkKind.MERGE:
            take(branch_of[(link.row, link.lane)], link.lane, link.child.row + 1, link.row)
    return found


@given(histories())
def test_no_two_branches_are_drawn_over_each_other_and_every_child_is_above_its_parents(commits: list[Commit]) -> None:
    lanes = lanes_of(commits, Incarnation("main"))
    assert [dot.row for dot in lanes.dots] == list(range(lanes.height))
    assert lanes.height + lanes.left_out == len(commits)
    assert lanes.width <= LANES_MAX
    for one, other in combinations(stretches(lanes).values(), 2):
        assert one[0] != other[0] or one[2] < other[1] or other[2] < one[1]
    assert all(link.child.row < link.row for link in lanes.links)


@given(histories())
def test_every_parent_that_is_drawn_has_a_line_and_one_that_is_not_leads_out_of_the_picture(
    commits: list[Commit],
) -> None:
    lanes = lanes_of(commits)
    there = {dot.commit.id: dot for dot in lanes.dots}
    wanted = [(dot.row, there[parent].row) for dot in lanes.dots for parent in dot.commit.parents if parent in there]
    drawn = [(link.child.row, link.row) for link in lanes.links if link.kind != LinkKind.BEYOND]
    assert sorted(drawn) == sorted(wanted)
    beyond = {link.child.row for link in lanes.links if link.kind == LinkKind.BEYOND}
    assert beyond == {d.row for d in lanes.dots if d.commit.parents and d.commit.parents[0] not in there}


def test_a_merge_leads_into_the_lane_of_its_source_and_beside_it_where_newer_commits_are_in_the_way() -> None:
    base = [commit(1, "main"), commit(2, "b", 1), commit(3, "main", 1)]
    plain = lanes_of(newest_first(*base, commit(4, "main", 3, 2)), Incarnation("main"))
    assert [link.kind for link in plain.links] == [LinkKind.LINE, LinkKind.MERGE, LinkKind.LINE, LinkKind.FORK]
    busy = lanes_of(newest_first(*base, commit(4, "b", 2), commit(5, "main", 3, 2)), Incarnation("main"))
    assert LinkKind.ASIDE in {link.kind for link in busy.links}


def test_every_row_has_its_own_piece_of_the_picture_so_that_a_page_may_end_anywhere() -> None:
    commits = newest_first(
        commit(1, "main"), commit(2, "b", 1), commit(3, "b", 2), commit(4, "main", 1, 2), commit(5, "main", 4)
    )
    page = commit_graph(History(commits=tuple(commits), total=5, branches=(), tags=()), "main")
    pieces = [row.findall("svg") for row in ET.fromstring(page).iter("li")]
    assert [len(each) for each in pieces] == [1] * 5
    # main, then the merge that leads aside of b, both commits of b, and the fork
    assert [len(piece.findall("path")) for (piece,) in pieces] == [1, 3, 4, 4, 2]
    assert [len(piece.findall("circle")) for (piece,) in pieces] == [1] * 5


def test_a_lane_that_is_free_again_is_used_again() -> None:
    one = [commit(1, "main"), commit(2, "a", 1), commit(3, "main", 1, 2)]
    two = [commit(4, "b", 3), commit(5, "main", 3, 4)]
    lanes = lanes_of(newest_first(*one, *two), Incarnation("main"))
    assert lanes.width == 2
    assert {dot.commit.branch: dot.lane for dot in lanes.dots} == {"main": 0, "a": 1, "b": 1}


def test_commits_of_branches_that_find_no_lane_are_left_out_and_counted() -> None:
    many = [commit(0, "main"), *(commit(number, f"b{number}", 0) for number in range(1, 30))]
    lanes = lanes_of(newest_first(*many), Incarnation("main"))
    assert lanes.width == LANES_MAX
    assert lanes.left_out == 30 - lanes.height > 0
    history = History(commits=tuple(newest_first(*many)), total=5_000, branches=(), tags=())
    page = commit_graph(history, "main")
    assert "4,970 older commits of 5,000 are not drawn" in page
    assert f"{lanes.left_out} commits of branches that found no free lane are left out" in page


def branch(name: str, head: str) -> Branch:
    return Branch(
        name=name,
        incarnation=Incarnation("main"),
        head=CommitId(head),
        version=1,
        created_at=START,
        created_by=None,
        parent=None,
        lineage=(),
    )


@pytest.mark.parametrize("text", HOSTILE)
def test_names_and_messages_are_text_whatever_is_in_them(text: str) -> None:
    named = commit(0, "main", message=text)
    tagged = Tag(name=text, commit=named.id, created_at=START, created_by=text)
    page = commit_graph(History(commits=(named,), total=1, branches=(branch(text, "c000"),), tags=(tagged,)), "main")
    tree = ET.fromstring(page)  # what is not well-formed is an error
    assert {each.tag for each in tree.iter()} <= {
        "div",
        "svg",
        "path",
        "circle",
        "title",
        "ol",
        "li",
        "p",
        "span",
        "bdi",
        "b",
    }
    assert not any(name.startswith("on") for each in tree.iter() for name in each.attrib)
    assert "\u202e" not in page
    assert "\x00" not in page


@given(st.text(), st.text())
def test_what_is_between_tags_and_in_attributes_comes_back_as_it_was(inside: str, title: str) -> None:
    made = tag("p", inside, title=title)
    tree = ET.fromstring(made.replace("\r", " "))
    assert len(tree) == 0
    assert set(tree.attrib) == {"title"}
    assert "<script" not in html_table(inside, [title], [[inside]]).replace("&lt;script", "")


def test_a_notebook_shows_counts_on_the_right_and_texts_on_the_left() -> None:
    rest = "padding: 0.2em 0.5em; white-space: nowrap"
    left, right = (f'style="text-align: left; {rest}"', f'style="text-align: right; {rest}"')
    shown = html_table("t", ("table", "version", "rows"), [("A", "1234", 1_234_567), ("B", "5", "")])
    assert f"<th {left}>table</th><th {left}>version</th><th {right}>rows</th>" in shown
    assert f"<td {left}>A</td><td {left}>1234</td><td {right}>1,234,567</td>" in shown
    assert f"<td {left}>B</td><td {left}>5</td><td {left}></td>" in shown
    assert f"<th {left}>table</th>" in html_table("nothing", ("table",), [])
    assert f"<td {left}>True</td>" in html_table("t", ("is",), [(True,)])


def test_markup_is_only_what_was_made_as_markup() -> None:
    assert (
        tag("p", "<b>", Markup("<b></b>"), None, 1_234, ["x", tag("i", "y")]) == "<p>&lt;b&gt;<b></b>1,234x<i>y</i></p>"
    )
    assert tag("br", hidden=True, class_="a", data_x=None) == '<br hidden class="a">'
    with pytest.raises(ValueError, match="names no attribute"):
        tag("p", **{"on click": "x"})


def compiled(source: str) -> Catalog:
    numbers = count()
    return compile_schema(source, FreshIds(lambda: f"{next(numbers):026}"))


def boxes(page: str) -> Iterator[tuple[float, float, float, float]]:
    for each in ET.fromstring(page).iter("rect"):
        x, y, wide, high = (float(each.attrib[name]) for name in ("x", "y", "width", "height"))
        yield x, y, x + wide, y + high


@st.composite
def schemas(draw: st.DrawFn) -> str:
    """Any number of types and edges between them, loops and circles included."""
    number = draw(st.integers(1, 7))
    columns = [draw(st.integers(0, 15)) for _ in range(number)]
    nodes = [f"node T{n} {{ {' '.join(f'p{c}: String?' for c in range(each))} }}" for n, each in enumerate(columns)]
    ends = draw(st.lists(st.tuples(st.integers(0, number - 1), st.integers(0, number - 1)), max_size=10))
    edges = [f"edge E{n}: T{one} -> T{other}" for n, (one, other) in enumerate(ends)]
    return "\n".join([*nodes, *edges])


@given(schemas())
def test_no_box_of_a_schema_lies_on_another_and_all_lie_in_the_picture(source: str) -> None:
    catalog = compiled(source)
    page = schema_diagram(catalog)
    found = list(boxes(page))
    assert len(found) == len(catalog.table_types)
    for one, other in combinations(found, 2):
        assert one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1]
    picture = next(ET.fromstring(page).iter("svg"))
    assert max(box[2] for box in found) <= float(picture.attrib["width"])
    assert max(box[3] for box in found) <= float(picture.attrib["height"])


def test_every_edge_has_an_arrow_also_one_that_leads_back_to_where_it_comes_from() -> None:
    page = schema_diagram(
        compiled("node A { a: String @key }\nnode B { }\nedge Self: A -> A\nedge To: A -> B\nedge Fro: B -> A")
    )
    tree = ET.fromstring(page)
    assert len(list(tree.iter("polygon"))) == 3
    texts = ["".join(each.itertext()) for each in tree.iter("text")]
    assert {"A", "B", "Self", "To", "Fro", "◆ a", "String"} <= set(texts)


def test_long_names_are_cut_to_the_box_and_many_properties_are_counted() -> None:
    long = "p" + "x" * 120
    source = f"node N{'a' * 120} {{ {long}: String {' '.join(f'q{n}: String' for n in range(40))} }}"
    tree = ET.fromstring(schema_diagram(compiled(source)))
    texts = ["".join(each.itertext()) for each in tree.iter("text")]
    assert max(map(len, texts)) < 40
    assert "and 29 more properties" in texts


def test_a_schema_of_very_many_types_is_drawn_in_part_and_says_so() -> None:
    nodes = "\n".join(f"node T{number} {{ a: String }}" for number in range(80))
    assert "20 more types not drawn" in schema_diagram(compiled(nodes))


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.sampled_from("abcdef")), max_size=15))
def test_ranks_grow_along_every_line_of_a_graph_without_circles(lines: Sequence[tuple[str, str]]) -> None:
    forward = [(min(line), max(line)) for line in lines]
    found = ranks("abcdef", forward)
    assert all(found[one] < found[other] for one, other in forward if one != other)


@given(st.lists(st.floats(10, 200), min_size=1, max_size=8), st.data())
def test_what_stands_in_one_layer_keeps_a_gap(heights: list[float], data: st.DataObject) -> None:
    net = Net()
    net.add("left", 0, 40)
    for number, height in enumerate(heights):
        net.add(str(number), 1, height)
        if data.draw(st.booleans()):
            net.tie("left", str(number))
    spots = sorted((spot for key, spot in net.placed().items() if key != "left"), key=lambda spot: spot.middle)
    for upper, lower in pairwise(spots):
        assert upper.middle + upper.height / 2 + GAP <= lower.top + 1e-6


def test_words_for_numbers_sizes_shares_and_values() -> None:
    assert [size(number) for number in (0, 1023, 1024, 1_500_000)] == ["0 B", "1023 B", "1.0 KiB", "1.4 MiB"]
    assert [percent(share) for share in (0, 0.0001, 0.5, 0.99999, 1)] == ["0 %", "0.1 %", "50.0 %", "99.9 %", "100 %"]
    assert (counted(1, "row"), counted(2, "row"), counted(2, "branch", "branches")) == ("1 row", "2 rows", "2 branches")
    assert short("abcdef", 4) == "abc…"
    assert "null" in value(None)
    assert value("null") == "<bdi>null</bdi>"
    assert "empty text" in value("")
    assert "3 B of bytes" in value(b"abc")
    assert value(True) == "<bdi>true</bdi>"
    long = value("x" * 10_000)
    assert len(long) < 400
    assert "10,000 characters, of which 160 are shown" in long
    assert len(value([1.5] * 2_000)) < 400


def palettes() -> dict[str, dict[str, str]]:
    """The colours of the page by theme, as its style has them."""
    text = files("omnigraph.report").joinpath("page.css").read_text(encoding="utf-8")
    found = re.findall(r"(:root[^{]*)\{([^{}]*--ground[^{}]*)\}", text)
    return {selector.strip(): dict(re.findall(r"--([\w-]+): (#[0-9a-f]{3,6})", body)) for selector, body in found}


def light(colour: str) -> float:
    full = colour[1:] if len(colour) == 7 else "".join(letter * 2 for letter in colour[1:])
    parts = [int(full[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    dark, bright = sorted((light(one), light(other)))
    return (bright + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("theme", [":root", ':root[data-theme="dark"]'])
def test_every_text_can_be_read_on_its_ground_in_light_and_in_dark(theme: str) -> None:
    colours = palettes()[theme]
    grounds = [(text, ground) for text in ("ink", "soft", "accent") for ground in ("ground", "surface", "faint")]
    pairs = [*grounds, *((name, f"{name}-soft") for name in ("accent", "add", "change", "remove"))]
    pairs += [(name, "surface") for name in ("add", "change", "remove")]
    assert [pair for pair in pairs if contrast(colours[pair[0]], colours[pair[1]]) < 4.5] == []
    lanes = [colours[f"c{number}"] for number in range(8)]
    assert [lane for lane in lanes if contrast(lane, colours["surface"]) < 3] == []
    assert len(set(lanes)) == 8


def test_what_a_reader_prefers_and_what_the_button_chooses_look_the_same() -> None:
    assert palettes()[':root:not([data-theme="light"])'] == palettes()[':root[data-theme="dark"]']
