"""The report: one page that tells what is so, lets nothing else in, gives no secret away, and is bounded."""

import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from tests.engine.cli_kit import CANARY, run, spawn, wide_terminal
from tests.engine.merge_kit import SCHEMA, person

import omnigraph as og
from omnigraph.cli.output import Exit
from omnigraph.errors import BranchNotFoundError, InvalidOptionError, RefNotFoundError
from omnigraph.report.crash_summary import CrashSummary, shipped
from omnigraph.testing.commits import bare_commit
from omnigraph.testing.places import place
from omnigraph.testing.s3_server import SeaweedServer

__all__ = ["wide_terminal"]  # a fixture

HERE = Path(__file__).parents[2]
VOID = {"meta", "br", "input", "col"}
HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "'; drop table x; --",
    "\u202eright to left\u202c",
    "שלום עולם",
    "a\x00b\x1b[31m",
    "</style></script></title>",
)


class Page(HTMLParser):
    """A page as a parser sees it: every element closed, and what is in it."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == [], "every element is closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(self.texts)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    """Main and a branch that changed the age of Ann and Ben each in its own way; one tag."""
    graph = og.init(tmp_path / "people.omni", SCHEMA, actor="ann")
    with graph.transaction(message="first load") as tx:
        tx.append("Person", [person("Ann", age=30), person("Ben"), person("Cid")])
    graph.tags.create("loaded")
    graph.branches.create("review")
    with graph.transaction("review", actor="bob") as tx:
        tx.upsert("Person", [person("Ann", age=31), person("Ben", city="Ulm"), person("New")])
    with graph.transaction(message="older") as tx:
        tx.upsert("Person", [person("Ann", age=40)])
    return graph


def test_a_report_tells_commits_names_tables_schema_and_that_nothing_was_recovered(graph: og.Graph) -> None:
    page = Page(graph.report().html)
    for text in ("people.omni", "first load", "review", "loaded", "main@3", "Person", "Nothing was ever recovered"):
        assert text in page.text, text
    sections = [each["id"] for each in page.all("section")]
    assert sections == ["history", "branches", "schema", "tables", "recoveries", "crashes"]
    assert {f"#{name}" for name in sections} <= {each["href"] for each in page.all("a")}
    assert len(page.all("circle")) == 4


def test_a_diff_shows_counts_by_table_and_rows_with_what_they_were(graph: og.Graph) -> None:
    page = Page(graph.report(diff=("loaded", "review")).html)
    assert "diff" in [each["id"] for each in page.all("section")]
    assert re.search(r"node:Person\s+1\s+2\s+0", page.text)
    for text in ("loaded", "(main@2)", "30", "31", "Ulm", "New"):
        assert text in page.text, text
    same = Page(graph.report(diff=("main", "main")).html)
    assert "Nothing differs" in same.text


def test_conflicts_show_base_ours_and_theirs_and_nothing_is_merged(graph: og.Graph) -> None:
    before = graph.refresh()
    page = Page(graph.report(merge="review", into="main").html)
    assert "It can not be merged as it is" in page.text
    assert re.search(r"age\s+30\s+40\s+31", page.text)
    assert "DivergentUpdate" in page.text
    heads = [text for text in page.texts if text.startswith(("ours", "theirs"))]
    assert heads == ["ours: main", "theirs: review"]
    assert graph.refresh() == before


def test_a_merge_without_conflict_and_one_with_nothing_to_do_say_so(graph: og.Graph) -> None:
    assert "There is nothing to merge" in graph.report(merge="loaded").html
    graph.branches.create("next", from_="review")
    with graph.transaction("next") as tx:
        tx.append("Person", [person("Zoe")])
    assert "It would be a fast-forward" in graph.report(merge="next", into="review").html


def test_a_recovery_is_in_the_log_of_recoveries(graph: og.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    promised = killed(graph, monkeypatch)
    waiting = Page(og.open(graph.root, read_only=True).report().html)
    assert "1 write promised and not finished yet" in waiting.text
    [done] = graph.recover()
    page = Page(graph.report().html)
    assert done.commit == promised
    assert re.search(rf"RolledForward\s+main\s+append\s+cy\s+1\s+{promised}", page.text)


def killed(graph: og.Graph, monkeypatch: pytest.MonkeyPatch) -> str:
    """Leave a promise behind, as a writer does that dies; return the id of its commit."""

    def die(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    other = og.open(graph.root, actor="cy")
    with monkeypatch.context() as patch:
        patch.setattr("omnigraph.engine.sealing.Sealer.seal", die)
        with pytest.raises(KeyboardInterrupt), other.transaction() as tx:
            tx.append("Person", [person("Promised")])
    [promise] = (place(graph.root) / "__recovery").glob("*.json")
    body = json.loads(promise.read_bytes()) | {"owner": ["another-host", 1]}
    promise.write_text(json.dumps(body))
    return str(body["commit"])


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_names_and_values_are_text_and_nothing_else(tmp_path: Path, text: str) -> None:
    graph = og.init(tmp_path / "g", SCHEMA, actor="ann")
    plain = "".join(letter for letter in text if letter.isprintable())  # no actor has others
    with graph.transaction(message=text, actor=plain, user_metadata=text) as tx:
        tx.append("Person", [person(text, city=text * 200), person("x" * 4_000, city="y" * 10_000)])
    graph.branches.create("other", from_="main@1")
    with graph.transaction("other") as tx:
        tx.append("Person", [person(text, city="Ulm")])
    html = graph.report(diff=("main@1", "main"), merge="other", into="main").html
    page = Page(html)
    assert len(page.all("script")) == len(page.all("style")) == 1
    assert not page.all("img")
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on") or name == "style"]
    assert "\u202e" not in html
    assert "\x00" not in html
    assert max(len(each) for each in page.texts if "--ground" not in each and "use strict" not in each) < 1_000
    assert len(html) < 200_000
    for shown in (graph, graph.snapshot(), graph.log(), graph.history(), graph.diff("main@1", "main")):
        assert "<script" not in shown._repr_html_()
        assert "<img" not in shown._repr_html_()


def test_the_page_fetches_nothing_and_runs_nothing_but_its_own_script(graph: og.Graph) -> None:
    html = graph.report(diff=("loaded", "main"), merge="review").html
    page = Page(html)
    assert not re.findall(r"""(?:src|srcset|action|data|poster)=["']""", html)
    assert all(str(each["href"]).startswith("#") for each in page.all("a"))
    assert not page.all("link")
    assert "@import" not in html
    assert "url(" not in html
    (policy,) = [each["content"] for each in page.all("meta") if each.get("http-equiv") == "Content-Security-Policy"]
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy


def test_tables_have_captions_and_scopes_and_what_scrolls_can_be_reached_by_key(graph: og.Graph) -> None:
    page = Page(graph.report(diff=("loaded", "main"), merge="review").html)
    assert len(page.all("table")) == len(page.all("caption")) > 5
    assert all(each.get("scope") in ("col", "row") for each in page.all("th"))
    scrolling = [each for each in page.all("div") if "scroll" in (each.get("class") or "").split()]
    assert scrolling
    assert all(each.get("tabindex") == "0" and each.get("aria-label") for each in scrolling)
    assert page.all("html")[0]["lang"] == "en"
    assert page.all("a")[0] == {"href": "#report", "class": "skip"}
    assert all(
        (each.get("role") == "img" and each.get("aria-label")) or each.get("aria-hidden") for each in page.all("svg")
    )


def test_no_storage_option_and_no_secret_is_in_a_report_or_in_a_notebook(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", CANARY)
    made = graph.report(diff=("loaded", "main"), merge="review")
    shown = [made.html, made._repr_html_(), graph._repr_html_(), graph.snapshot()._repr_html_(), repr(made)]
    assert not [text for text in shown if CANARY in text]
    with pytest.raises(InvalidOptionError) as refused:
        og.open(f"s3://key:{CANARY}@bucket/g", read_only=True)
    assert CANARY not in str(refused.value)


@pytest.mark.s3
def test_of_a_graph_on_s3_neither_keys_nor_endpoint_are_told(
    s3_server: SeaweedServer, s3_root: Callable[[], str], tmp_path: Path
) -> None:
    root, options = s3_root(), s3_server.storage_options()
    graph = og.init(root, SCHEMA, storage_options=options)
    with graph.transaction() as tx:
        tx.append("Person", [person("Ann")])
    words = [word for name, value in options.items() for word in ("--storage", f"{name}={value}")]
    said = run("report", root, "-o", str(tmp_path / "r.html"), "--diff", "main@1..main", *words)
    shown = said.out + said.err + (tmp_path / "r.html").read_text(encoding="utf-8") + graph._repr_html_()
    assert root in shown
    assert not [name for name, value in options.items() if len(value) > 6 and value in shown]


def test_of_a_long_history_only_the_newest_commits_are_drawn_and_the_rest_is_counted(graph: og.Graph) -> None:
    for _ in range(150):
        bare_commit(graph)
    page = Page(graph.report().html)
    assert len(page.all("circle")) == 100
    assert "54 older commits of 154 are not drawn" in page.text
    assert "older than the picture" in page.text
    few = Page(graph.report(commits=5).html)
    assert len(few.all("circle")) == 5
    assert len(graph.report().html) < 200_000
    for wrong in (0, 1_001):
        with pytest.raises(InvalidOptionError, match="1 to 1000 commits"):
            graph.report(commits=wrong)


def test_a_table_that_can_not_be_read_says_why_and_the_rest_is_told(graph: og.Graph) -> None:
    [table] = (place(graph.root) / "nodes").iterdir()
    for file in (table / "_versions").rglob("*.manifest"):
        file.unlink()
    page = Page(spawn("report", graph.root, "-o", "-").out)  # a process that has never seen it whole
    assert "can not be opened" in page.text
    assert "first load" in page.text


def test_a_report_is_about_the_branch_that_is_named_and_about_that_of_the_handle(graph: og.Graph) -> None:
    assert "review at version 3" in " ".join(Page(graph.report(branch="review").html).text.split())
    assert "review at version 3" in " ".join(Page(graph.on("review").report().html).text.split())
    with pytest.raises(BranchNotFoundError):
        graph.report(branch="nobody")
    with pytest.raises(RefNotFoundError):
        graph.report(diff=("main", "nobody"))
    with pytest.raises(InvalidOptionError, match="say what by merge"):
        graph.report(into="main")


def test_a_report_is_written_whole_or_not_at_all_and_a_graph_that_is_read_only_is_left_as_it_is(
    graph: og.Graph, tmp_path: Path
) -> None:
    before = sorted(place(graph.root).rglob("*"))
    path = tmp_path / "out" / "report.html"
    with pytest.raises(InvalidOptionError, match="can not be written"):
        graph.report(path)
    path.parent.mkdir()
    reader = og.open(graph.root, read_only=True)
    made = reader.report(path)
    assert path.read_text(encoding="utf-8") == made.html
    assert list(path.parent.iterdir()) == [path]
    assert sorted(place(graph.root).rglob("*")) == before


def test_graphs_snapshots_logs_histories_schemas_and_reports_draw_themselves_in_a_notebook(graph: og.Graph) -> None:
    assert ">review</td>" in graph._repr_html_()
    assert ">first load</td>" in graph._repr_html_()
    assert (
        '>node:Person</td><td style="text-align: right; padding: 0.2em 0.5em; white-space: nowrap">3</td>'
        in graph.snapshot()._repr_html_()
    )
    assert ">older</td>" in graph.log()._repr_html_()
    assert graph.log() == list(graph.iter_log())
    assert ">Person</text>" in graph.schema._repr_html_()
    frame = Page(graph.report()._repr_html_())
    assert frame.all("iframe")[0]["sandbox"] == "allow-scripts"
    assert "Content-Security-Policy" in str(frame.all("iframe")[0]["srcdoc"])


def test_the_command_writes_the_file_and_says_where(
    graph: og.Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said = run("report", graph.root, "--json").json
    assert said == {
        "path": str(tmp_path / "omnigraph-report.html"),
        "bytes": (tmp_path / "omnigraph-report.html").stat().st_size,
    }
    shown = run("report", graph.root, "-o", "r.html", "--diff", "loaded..review", "--merge", "review", "--into", "main")
    assert shown.out.startswith(f"wrote {tmp_path / 'r.html'} (")
    assert "DivergentUpdate" in (tmp_path / "r.html").read_text(encoding="utf-8")
    two = run("report", graph.root, "-o", "-", "--diff", "loaded", "--diff", "main@3", "--branch", "review").out
    assert two.startswith("<!doctype html>")
    assert "(main@2)" in two
    run("report", graph.root, "--diff", "loaded", expect=Exit.USAGE)
    run("report", graph.root, "--diff", "a..b..c", expect=Exit.USAGE)
    run("report", graph.root, "--merge", "nobody", expect=Exit.NOT_FOUND)


def test_the_crash_matrix_that_is_shipped_is_that_of_the_page() -> None:
    page = (HERE / "docs" / "internals" / "crash-matrix.md").read_text(encoding="utf-8")
    assert shipped() == CrashSummary.of_page(page)
    (total,) = re.findall(r"\*\*(\d+) cells\*\*", page)
    assert shipped().cells == int(total)
    assert shipped().wrong == 0
    worse = CrashSummary.of_page(page.replace("| applied |", "| **wrong** |", 1))
    assert worse.wrong == 1
