"""What branches and tags may be called.

One or more segments joined by ``/``; a segment starts with an ASCII letter or digit and goes on with
letters, digits, ``.``, ``_`` and ``-``. Names are rows, never paths, so the rule is about people and
SQL, not about safety: no look-alikes, nothing that needs quoting in a shell, nothing that could be
taken for a commit id.
"""

import difflib
import re
from collections.abc import Iterable

from omnigraph.errors import InvalidNameError
from omnigraph.ids import is_ulid

NAME_CHARACTERS_MAX = 200
_SEGMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\Z", re.ASCII)


def check_ref_name(name: str, what: str = "branch") -> str:
    """Return the name if the rule allows it, or say which part of the rule it breaks."""
    problem = _problem(name)
    if problem:
        shown = name if len(name) <= 60 else name[:57] + "..."
        raise InvalidNameError(f"{shown!r} can not name a {what}: {problem}", name=shown)
    return name


def _problem(name: str) -> str | None:
    if not name:
        return "it is empty"
    if len(name) > NAME_CHARACTERS_MAX:
        return f"it has {len(name)} characters; at most {NAME_CHARACTERS_MAX} are allowed"
    for segment in name.split("/"):
        if not segment:
            return "'/' separates segments, so it may not stand at an end or twice in a row"
        if not _SEGMENT.match(segment):
            return "use ASCII letters, digits, '.', '_' and '-', starting each segment with a letter or digit"
        if ".." in segment or segment.endswith((".", ".lock")):
            return "'..', a final '.' and '.lock' are not allowed"
    if is_ulid(name.upper()):
        return "it could be taken for a commit id"
    return None


def nearest(name: str, known: Iterable[str]) -> str:
    """Return `` (did you mean 'x'?)`` for the closest known name, or nothing."""
    close = difflib.get_close_matches(name[:NAME_CHARACTERS_MAX], list(known), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""
