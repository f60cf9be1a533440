"""The report in a real browser: light and dark, by keyboard alone, on a phone, without a word on the console.

The browser is Chromium as Qt ships it, from the package index; it runs as a program of its own (`looking.py`).
"""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.browser.flights_kit import build

import omnigraph as og

HERE = Path(__file__).parent
DESK, PHONE = (1200, 1500), (390, 844)
TABS = 60

pytestmark = pytest.mark.long

OVERFLOW = """(() => {
  const wide = document.documentElement.clientWidth;
  const out = [...document.body.querySelectorAll('*')].filter((each) =>
    each.getBoundingClientRect().right > wide + 1 && !each.closest('.scroll, nav, .skip'));
  const told = out.slice(0, 5).map((each) => each.outerHTML.slice(0, 120));
  return {scroll: document.documentElement.scrollWidth, wide, out: told};
})()"""
COLOURS = """(() => {
  const style = getComputedStyle(document.body);
  const said = getComputedStyle(document.querySelector('.first'));
  return [style.backgroundColor, said.color];
})()"""
FOCUS = """(() => {
  const at = document.activeElement;
  const style = getComputedStyle(at);
  return {what: at.tagName, href: at.getAttribute('href'), id: at.id, label: at.getAttribute('aria-label'),
          outline: style.outlineStyle + ' ' + style.outlineWidth, theme: document.documentElement.dataset.theme || null,
          open: at.parentElement && at.parentElement.tagName === 'DETAILS' ? at.parentElement.open : null};
})()"""
OVERLAPS = """(() => {
  const hits = [];
  for (const svg of document.querySelectorAll('.types')) {
    const boxes = [...svg.querySelectorAll('text')].map((each) => [each.textContent, each.getBoundingClientRect()]);
    boxes.forEach(([one, a], n) => boxes.slice(n + 1).forEach(([two, b]) => {
      const across = a.left < b.right - 1 && b.left < a.right - 1;
      if (across && a.top < b.bottom - 1 && b.top < a.bottom - 1) hits.push([one, two]);
    }));
    for (const group of svg.querySelectorAll('.type')) {
      const box = group.querySelector('.box').getBoundingClientRect();
      for (const text of group.querySelectorAll('text')) {
        const place = text.getBoundingClientRect();
        const isOut = place.left < box.left || place.right > box.right || place.bottom > box.bottom;
        if (isOut) hits.push([text.textContent, 'outside']);
      }
    }
  }
  const rows = [...document.querySelectorAll('.log li')].map((each) => each.getBoundingClientRect());
  const dots = [...document.querySelectorAll('.lanes circle')].map((each) => each.getBoundingClientRect());
  const middle = (each) => (each.top + each.bottom) / 2;
  const off = dots.filter((dot, n) => Math.abs(middle(dot) - middle(rows[n])) > 3).length;
  return {hits, off, rows: rows.length, dots: dots.length};
})()"""


class Look(NamedTuple):
    """What came of one look at the page."""

    answer: Any
    after: list[Any]
    console: list[str]
    wanted: list[str]
    picture: Path


class Browser:
    """Looks at one page, as often as it is asked."""

    def __init__(self, page: Path, folder: Path) -> None:
        self._page = page
        self._folder = folder

    def look(self, name: str, size: tuple[int, int], script: str = "null", **more: Any) -> Look:
        order = {"name": name, "width": size[0], "height": size[1], "script": script, **more}
        flags = {"QT_QPA_PLATFORM": "offscreen", "QTWEBENGINE_DISABLE_SANDBOX": "1"}
        chromium = [
            "--disable-gpu",
            "--force-color-profile=srgb",
            f"--blink-settings=preferredColorScheme={0 if more.get('dark') else 1}",
        ]
        done = subprocess.run(
            [sys.executable, str(HERE / "looking.py"), str(self._page), str(self._folder)],
            input=json.dumps([order]),
            env={**os.environ, **flags, "QTWEBENGINE_CHROMIUM_FLAGS": " ".join(chromium)},
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        assert done.returncode == 0, f"the browser did not run: {done.stderr[-2_000:]}"
        [answer] = json.loads(done.stdout)
        return Look(**{**answer, "picture": Path(answer["picture"])})


LOAD = "import PyQt6.QtWebEngineWidgets"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Browser:
    if importlib.util.find_spec("PyQt6") is None:
        pytest.skip("there is no browser here: install the dev dependencies, which bring PyQt6-WebEngine")
    loaded = subprocess.run([sys.executable, "-c", LOAD], capture_output=True, text=True, check=False)
    if "cannot open shared object file" in loaded.stderr:  # the wheel has all but what most systems have
        pytest.skip(f"the browser needs a library of the system: {loaded.stderr.splitlines()[-1]}")
    folder = tmp_path_factory.mktemp("browser")
    graph = build(folder / "flights.omni")
    graph.report(folder / "report.html", diff=("first-load", "main"), merge="review", into="main")
    return Browser(folder / "report.html", folder)


def is_quiet(look: Look) -> bool:
    """Tell whether the page said nothing and wanted nothing but itself."""
    return look.console == [] and len(look.wanted) == 1 and look.wanted[0].endswith("/report.html")


def test_the_page_says_nothing_on_the_console_and_wants_nothing_from_the_network(browser: Browser) -> None:
    look = browser.look("light", DESK, COLOURS)
    assert is_quiet(look), (look.console, look.wanted)
    assert look.answer == ["rgb(250, 249, 246)", "rgb(29, 35, 48)"]
    assert look.picture.stat().st_size > 20_000


def test_a_reader_who_prefers_dark_gets_dark_and_the_button_turns_it_around(browser: Browser) -> None:
    look = browser.look("dark", DESK, COLOURS, dark=True)
    assert is_quiet(look), (look.console, look.wanted)
    assert look.answer == ["rgb(20, 23, 29)", "rgb(231, 229, 223)"]
    press = "document.getElementById('theme').click(); " + COLOURS
    turned = browser.look("turned", DESK, press)
    assert turned.answer == look.answer
    assert browser.look("turned-back", DESK, press, dark=True).answer == ["rgb(250, 249, 246)", "rgb(29, 35, 48)"]


def test_nothing_on_a_phone_is_wider_than_the_phone(browser: Browser) -> None:
    look = browser.look("phone", PHONE, OVERFLOW)
    assert is_quiet(look), (look.console, look.wanted)
    assert look.answer["out"] == []
    assert look.answer["scroll"] <= look.answer["wide"]


def test_every_part_is_reached_by_key_in_the_order_of_the_page_and_is_seen_to_have_the_focus(browser: Browser) -> None:
    look = browser.look("keys", DESK, keys=["Tab"] * TABS, after=FOCUS)
    reached = look.after
    assert (reached[0]["what"], reached[0]["href"]) == ("A", "#report")
    assert reached[1]["id"] == "theme"
    links = [each["href"] for each in reached[2:] if each["href"]]
    anchors = ("history", "branches", "diff", "merge", "schema", "tables", "recoveries", "crashes")
    assert links[: len(anchors)] == [f"#{name}" for name in anchors]
    assert {"SUMMARY", "DIV"} <= {each["what"] for each in reached}
    assert any((each["label"] or "").startswith("Commit graph") for each in reached)
    assert any((each["label"] or "").startswith("Schema diagram") for each in reached)
    focused = [each for each in reached if each["what"] != "BODY"]
    assert all(each["outline"] == "solid 3px" for each in focused)
    assert is_quiet(look)


def test_the_button_and_what_folds_work_by_key(browser: Browser) -> None:
    look = browser.look("pressed", DESK, keys=["Tab", "Tab", "Space"], after=FOCUS)
    assert [each["theme"] for each in look.after] == [None, None, "dark"]
    first = "document.querySelectorAll('summary')[1].focus(); null"
    folds = browser.look("folds", DESK, first, keys=["Enter", "Enter"], after=FOCUS)
    assert [each["open"] for each in folds.after] == [True, False]


def test_no_text_of_the_diagram_lies_on_another_and_every_dot_is_beside_its_commit(browser: Browser) -> None:
    look = browser.look("overlaps", DESK, OVERLAPS)
    assert look.answer["hits"] == []
    assert look.answer["off"] == 0
    assert look.answer["rows"] == look.answer["dots"] > 15


HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "\u202eturned around",
    "\u05e9\u05dc\u05d5\u05dd",
    "no-space-in-it-" * 60,
)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> Browser:
    """A report whose names, messages and values want to be more than text, on more branches than there are lanes."""
    folder = tmp_path_factory.mktemp("hostile")
    long = "ANameThatNobodyWouldTypeByHand" * 4
    schema = (
        f"node Thing {{ name: String @key  text: String? }}\nnode {long} {{ a: String? }}\nedge To: Thing -> {long}"
    )
    graph = og.init(folder / ("long-name-" * 15), schema, actor=HOSTILE[0])
    with graph.transaction(message=HOSTILE[1]) as tx:
        tx.append("Thing", [{"name": text, "text": text * 300} for text in HOSTILE])
    for number in range(14):
        name = f"branch/{number}-{'long-' * number}"
        graph.branches.create(name)
        with graph.transaction(name, message=HOSTILE[number % len(HOSTILE)]) as tx:
            tx.upsert("Thing", [{"name": HOSTILE[0], "text": f"of {number}"}])
    with graph.transaction(message=HOSTILE[4]) as tx:
        tx.upsert("Thing", [{"name": HOSTILE[0], "text": HOSTILE[1]}])
    graph.report(folder / "report.html", diff=("main@1", "main"), merge="branch/0-", into="main")
    return Browser(folder / "report.html", folder)


def test_hostile_names_run_nothing_and_do_not_break_the_page(hostile: Browser) -> None:
    look = hostile.look("hostile", DESK, "[document.scripts.length, document.images.length]")
    assert is_quiet(look), (look.console, look.wanted)
    assert look.answer == [1, 0]
    assert hostile.look("hostile-overlaps", DESK, OVERLAPS).answer["hits"] == []
    phone = hostile.look("hostile-phone", PHONE, OVERFLOW)
    assert phone.answer["out"] == []
    assert phone.answer["scroll"] <= phone.answer["wide"]
