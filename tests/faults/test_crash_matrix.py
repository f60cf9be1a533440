"""Every failpoint, every writer, every fault, every way to recover: all cells green, and the page says what is so."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from omnigraph.failpoints import Failpoint
from omnigraph.testing import crash_page
from omnigraph.testing.crash_matrix import FAULTS, STORIES, WHO, WRITE_POINTS, Bench, HarnessError
from omnigraph.testing.crash_writers import WRITERS

pytestmark = [pytest.mark.crash, pytest.mark.long]

PAGE = Path(__file__).parents[2] / "docs" / "internals" / "crash-matrix.md"


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(tmp_path_factory.mktemp("matrix"))


def page_sections() -> dict[str, str]:
    """The page's tables by their headings."""
    parts = re.split(r"^(?=## )", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {part.splitlines()[0].removeprefix("## ").lower(): part for part in parts[1:]}


@pytest.mark.parametrize("name", STORIES)
def test_every_cell_holds_what_the_oracle_asks_and_the_page_says_so(
    bench: Bench, name: str, record_property: Callable[[str, object], None]
) -> None:
    story = bench.story(name)
    cells = list(bench.cells(story))
    print(f"{name}: {len(cells)} cells")
    record_property("cells", len(cells))
    assert len({(c.arrival, c.fault, c.who) for c in cells}) == len(cells)
    assert len(cells) == len(story.arrivals) * len(FAULTS) * len(WHO), "none is skipped"
    assert [cell for cell in cells if cell.wrong] == []
    assert page_sections()[name.lower()].strip() == crash_page.section(name, cells).strip(), crash_page.COMMAND


def test_the_page_has_a_table_for_every_story_and_its_total_is_their_sum() -> None:
    sections = page_sections()
    assert list(sections) == [name.lower() for name in STORIES]
    counts = [int(re.findall(r"^(\d+) cells\.$", text, flags=re.MULTILINE)[0]) for text in sections.values()]
    (total,) = re.findall(r"\*\*(\d+) cells\*\*", PAGE.read_text(encoding="utf-8"))
    assert int(total) == sum(counts) >= len(WRITERS) * len(WRITE_POINTS) * len(FAULTS) * len(WHO)
    assert "wrong" not in PAGE.read_text(encoding="utf-8")


def test_every_failpoint_of_the_catalogue_is_come_by_in_some_story(bench: Bench) -> None:
    seen = {arrival.point for name in STORIES for arrival in bench.story(name).arrivals}
    assert seen == set(Failpoint)


def test_a_writer_that_does_not_come_by_a_failpoint_is_an_error_of_the_harness(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("omnigraph.engine.committer.reach", lambda point: None)
    with pytest.raises(HarnessError, match=re.escape("commit.after_seals")):
        bench.story("append")


def test_every_failpoint_says_which_window_it_opens() -> None:
    assert set(crash_page.windows()) == set(Failpoint)
    assert all(text.endswith(".") for text in crash_page.windows().values())
