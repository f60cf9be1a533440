"""Errors that went through Spark, and are ours again."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pyspark.errors import PySparkException

from omnigraph.errors import OmnigraphError, error_of

# Python prints an exception as its full name, a colon and its text; ours begins with its code in brackets.
_OURS: Final = re.compile(r"omnigraph\.errors\.\w+: \[(?P<code>[A-Z_]+)\] (?P<message>[^\n]+)")


def found_in(text: str) -> OmnigraphError | None:
    """Return the last error of ours that a traceback tells of, or None if it tells of none."""
    found = list(_OURS.finditer(text))
    return error_of(found[-1]["code"], found[-1]["message"]) if found else None


@contextmanager
def ours() -> Iterator[None]:
    """Raise errors of ours that Spark wrapped in its own as what they are."""
    try:
        yield
    except PySparkException as wrapped:
        problem = found_in(str(wrapped))
        if problem is None:
            raise
        raise problem from None
