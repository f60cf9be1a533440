"""Showing what omnigraph logs: a line of JSON per record, or a line of text.

Nothing is shown unless someone asks: the application's own handlers, :func:`to_json`, :func:`to_text`, the command
line's options, or the variable ``OMNIGRAPH_LOG``. What is shown here is scrubbed of secrets first, whoever put them
into a record.
"""

import json
import logging
import math
import os
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, TextIO

from omnigraph.errors import InvalidOptionError
from omnigraph.observing import ROOT
from omnigraph.storage.roots import scrub_all

__all__ = ["JsonLines", "TextLines", "from_environment", "off", "to_json", "to_text"]

VARIABLE: Final = "OMNIGRAPH_LOG"
LEVELS: Final = ("debug", "info", "warning", "error")
_PLAIN: Final = frozenset((*vars(logging.makeLogRecord({})), "message", "asctime"))
_NESTED_MAX: Final = 8


class JsonLines(logging.Formatter):
    """A record as one line of JSON: ``time``, ``level``, ``logger``, ``message`` and all its fields that are known."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        told: dict[str, Any] = {
            "time": _moment(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        told |= {name: value for name, value in _fields(record).items() if name not in told}
        if record.exc_info:
            told["traceback"] = self.formatException(record.exc_info)
        return json.dumps(_clean(told))


class TextLines(logging.Formatter):
    """A record as a line for people, with its fields behind it, and a traceback below it if it has one."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        fields = " ".join(f"{name}={value}" for name, value in _fields(record).items())
        line = f"{_moment(record)} {record.levelname} {record.getMessage()} {fields}".rstrip()
        line = line.replace("\n", "\\n")
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return scrub_all(line)


def to_json(stream: TextIO | None = None, level: str | int = "info") -> logging.Handler:
    """Write a line of JSON for every record of omnigraph's to a stream, standard error unless one is given."""
    return _show(JsonLines(), stream, level)


def to_text(stream: TextIO | None = None, level: str | int = "info") -> logging.Handler:
    """Write a line of text for every record of omnigraph's to a stream, standard error unless one is given."""
    return _show(TextLines(), stream, level)


def off() -> None:
    """Take back what :func:`to_json` and :func:`to_text` did; handlers that others added stay."""
    top = logging.getLogger(ROOT)
    for handler in [each for each in top.handlers if isinstance(each.formatter, JsonLines | TextLines)]:
        top.removeHandler(handler)
    top.setLevel(logging.NOTSET)


def from_environment(environment: Mapping[str, str] | None = None) -> logging.Handler | None:
    """Do what the variable ``OMNIGRAPH_LOG`` says, as in ``json:info`` or ``text:debug``; nothing if it is not set."""
    said = (os.environ if environment is None else environment).get(VARIABLE, "")
    if not said:
        return None
    form, _, level = said.lower().partition(":")
    if form not in ("json", "text") or (level and level not in LEVELS):
        raise InvalidOptionError(f"{VARIABLE} is json or text and a level, as in json:info; {said[:60]!r} is not")
    return (to_json if form == "json" else to_text)(level=level or "info")


def _show(lines: logging.Formatter, stream: TextIO | None, level: str | int) -> logging.Handler:
    number = logging.getLevelNamesMapping().get(level.upper()) if isinstance(level, str) else level
    if number is None:
        raise InvalidOptionError(f"there is no level {str(level)[:60]!r}; there are {', '.join(LEVELS)}")
    off()  # once is enough, and the last one to ask is right
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(lines)
    top = logging.getLogger(ROOT)
    top.addHandler(handler)
    top.setLevel(number)
    return handler


def _moment(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    """Return what a record has beside what every record of Python's has."""
    return {name: value for name, value in vars(record).items() if name not in _PLAIN and value is not None}


def _clean(value: Any, depth: int = 0) -> Any:
    """Return a value that JSON has, without secrets; what JSON does not have is told as a text."""
    if value is None or isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if depth < _NESTED_MAX and isinstance(value, Mapping):
        return {scrub_all(str(key)): _clean(each, depth + 1) for key, each in value.items()}
    if depth < _NESTED_MAX and isinstance(value, list | tuple | set | frozenset):
        return [_clean(each, depth + 1) for each in value]
    return scrub_all(str(value))
