"""A fast way to read JSON that has one plain object per line: many lines are decoded at once.

Nothing is taken here that :mod:`omnigraph.rules.json_stream` would refuse, and nothing is read differently: the same
decoder does the work. Whatever is not plain, also what is wrong, is left to that module, which says where it is.
"""

import gc
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from omnigraph.rules.json_stream import CONSTANTS, RepeatedNameError, object_of

_SPACED_COLON = re.compile(r'"[ \t\r\n]+:')
_DECODE = json.JSONDecoder(parse_constant=CONSTANTS.__getitem__).decode
_DECODE_WATCHING = json.JSONDecoder(parse_constant=CONSTANTS.__getitem__, object_pairs_hook=object_of).decode


def plain_records(text: str) -> list[dict[str, Any]] | None:
    """Return one object per line, or None if the text must be read with more care.

    All line ends stand between a closing and an opening brace. So one that is inside a record could only be inside a
    list of objects, and whoever takes the records must refuse those, as no column holds any.
    """
    body = text.replace("\r\n", "\n").removesuffix("\n")
    breaks = body.count("\n")
    if not (body.startswith("{") and body.endswith("}") and body.count("}\n{") == breaks):
        return None
    listed = "[" + body.replace("\n", ",\n") + "]"
    try:
        found: list[Any] = _DECODE(listed)
        if not _has_each_name_once(listed, found):
            found = _DECODE_WATCHING(listed)
    except (ValueError, RecursionError, RepeatedNameError):
        return None
    # Two objects on one line, with a comma between them, are no records: then there are more of them than lines.
    return found if len(found) == breaks + 1 and set(map(type, found)) == {dict} else None


def _has_each_name_once(text: str, records: list[Any]) -> bool:
    """Tell whether no object names anything twice, by counting; "no" may also mean that it can not be told so.

    Every name ends in a quote and a colon, so there are at most as many names as such places, and what was decoded has
    fewer names than the text if one came twice.
    """
    if _SPACED_COLON.search(text):
        return False
    data = [record.get("data") for record in records if type(record) is dict]
    if not {dict, type(None)}.issuperset(map(type, data)) or len(data) != len(records):
        return False
    return sum(map(len, records)) + sum(map(len, filter(None, data))) == text.count('":')


@contextmanager
def uncollected() -> Iterator[None]:
    """Hold garbage collection back: new objects are many here, none is garbage, and looking takes half the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
