"""The documentation as a site: it builds without a warning, has every page, and a broken link breaks it."""

import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import dev
import pytest

HERE = Path(__file__).resolve().parents[2]
DOCS = HERE / "docs"
PAGES = sorted(page.relative_to(DOCS).with_suffix("") for page in DOCS.rglob("*.md"))


class Page(HTMLParser):
    """What a page of the site links to, loads, and has to be linked to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.ids: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = dict(attributes)
        self.ids |= {value for name, value in attributes if name == "id" and value}
        if tag == "a" and found.get("href"):
            self.links.append(str(found["href"]))
        if tag in ("link", "script", "img") and (address := found.get("href") or found.get("src")):
            self.loads.append(address)


def built(docs: Path, site: Path) -> "subprocess.CompletedProcess[str]":
    """Build as `dev.py docs` does."""
    command = [sys.executable, "-m", "sphinx", *dev.SITE, str(docs), str(site)]
    return subprocess.run(command, cwd=HERE, capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = built(DOCS, folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {file.resolve(): Page(file.read_text(encoding="utf-8")) for file in site.rglob("*.html")}


def test_every_page_is_there_and_in_the_navigation(site: Path, pages: dict[Path, Page]) -> None:
    first = pages[(site / "index.html").resolve()]
    for page in PAGES:
        assert (site / page).with_suffix(".html").resolve() in pages
        assert f"{page}.html" in first.links or str(page) == "index"


def test_every_link_of_the_site_leads_to_a_page_and_a_place_on_it(pages: dict[Path, Page]) -> None:
    followed = 0
    for file, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme:
                continue
            there = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            assert there.is_file(), f"{file.name}: {link}"
            if parts.fragment and there in pages:
                assert unquote(parts.fragment) in pages[there].ids, f"{file.name}: {link}"
            followed += 1
    assert followed > 1_000


def test_the_site_loads_nothing_from_elsewhere(pages: dict[Path, Page]) -> None:
    loaded = {address for page in pages.values() for address in page.loads}
    assert loaded
    assert [address for address in loaded if urlsplit(address).scheme or address.startswith("//")] == []


def test_schemas_are_shown_in_colour(site: Path) -> None:
    page = (site / "reference" / "schema-language.html").read_text(encoding="utf-8")
    assert re.search(r'class="highlight-pg.*?<span class="kd">node</span>', page, re.DOTALL)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[gone](guides/nowhere.md)", "nowhere"),
        ("[gone](start.md#no-such-heading)", "no-such-heading"),
        ("[fine](start.md)", "lonely"),
    ],
    ids=["a page that is missing", "a heading that is missing", "a page that nothing leads to"],
)
def test_what_is_broken_breaks_the_build(tmp_path: Path, text: str, says: str) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    shutil.copy(DOCS / "start.md", docs)
    start = (docs / "start.md").read_text(encoding="utf-8")
    (docs / "start.md").write_text(re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", start), encoding="utf-8")
    (docs / "index.md").write_text(f"# First\n\n[Start](start.md)\n\n{text}\n", encoding="utf-8")
    if says == "lonely":
        (docs / "lonely.md").write_text("# Lonely\n", encoding="utf-8")
    done = built(docs, tmp_path / "site")
    assert done.returncode != 0
    assert says in done.stderr
