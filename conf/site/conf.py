"""The documentation as a site: `python3 dev.py docs` builds `docs/` into `site/`, and every warning is an error.

The navigation is what `docs/index.md` links to, in its order, so there is one list of pages and not two.
"""

import re
from typing import Any

from pygments.lexer import RegexLexer, words
from pygments.lexers.special import TextLexer
from pygments.token import Comment, Keyword, Name, Number, Punctuation, String, Text

CAPTIONS = {
    "": "Begin",
    "concepts": "Concepts",
    "guides": "Guides",
    "reference": "Reference",
    "internals": "Internals",
    "decisions": "Decisions",
}
CHANGELOG = re.compile(r"\[(?P<text>[^\]]+)\]\((?P<file>(?:\.\./)+CHANGELOG\.md)\)")
LINK = re.compile(r"\]\((?P<page>[\w./-]+)\.md(?:#[\w-]+)?\)")

project = "omnigraph"
author = "The omnigraph authors"
project_copyright = author
extensions = ["myst_parser"]
html_theme = "furo"
html_title = "omnigraph"
html_show_sphinx = False
html_copy_source = False
myst_heading_anchors = 6
pygments_dark_style = "monokai"  # the theme's own underlines what is imported, like a link
nitpicky = True


class SchemaLexer(RegexLexer):
    """The schema language and the mutation language, well enough to be read in colour."""

    name = "omnigraph"
    aliases = ("pg", "pg-fragment", "gq")
    tokens = {
        "root": [
            (r"//[^\n]*", Comment.Single),
            (r"/\*.*?\*/", Comment.Multiline),
            (r'"(?:\\.|[^"\\])*"', String),
            (r"@\w+", Name.Decorator),
            (r"\$\w+", Name.Variable),
            (words(("node", "edge", "interface", "implements", "enum", "query"), suffix=r"\b"), Keyword.Declaration),
            (words(("insert", "upsert", "update", "delete", "set", "where", "and"), suffix=r"\b"), Keyword),
            (words(("String", "Bool", "I32", "I64", "U32", "U64", "F32", "F64"), suffix=r"\b"), Keyword.Type),
            (words(("Date", "DateTime", "Blob", "Vector"), suffix=r"\b"), Keyword.Type),
            (r"-?\d+(?:\.\d+)?", Number),
            (r"\w+", Name),
            (r"\s+", Text),
            (r".", Punctuation),
        ]
    }


def navigation(text: str) -> str:
    """Return tables of contents for the pages that a text links to, by folder."""
    pages = dict.fromkeys(found["page"] for found in LINK.finditer(text) if not found["page"].startswith(".."))
    trees = []
    for folder, caption in CAPTIONS.items():
        inside = [page for page in pages if page.rpartition("/")[0] == folder]
        trees.append("\n".join(("```{toctree}", ":hidden:", f":caption: {caption}", "", *inside, "```")))
    return "\n\n".join(trees)


def prepare(_app: Any, page: str, source: list[str]) -> None:
    """Put the navigation into the first page, and offer what lies outside `docs/` as a file."""
    source[0] = CHANGELOG.sub(r"{download}`\g<text> <\g<file>>`", source[0])
    if page == "index":
        source[0] = f"{source[0]}\n\n{navigation(source[0])}\n"


def setup(app: Any) -> dict[str, bool]:
    """Tell Sphinx about the language and the navigation."""
    for alias in SchemaLexer.aliases:
        app.add_lexer(alias, SchemaLexer)
    app.add_lexer("csv", TextLexer)
    app.connect("source-read", prepare)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
