"""Objects of a store that look older than they are: a store has no way to date one back, as a disk has."""

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from functools import wraps
from pathlib import Path
from typing import Final, NamedTuple

from omnigraph.storage.objects import ObjectInfo, ObstoreObjects

__all__ = ["AGES", "age", "let_objects_age"]

AGES: Final = "OMNIGRAPH_TEST_S3_AGES"
"""Names the file that says which objects are older, for this process and for those it starts."""
LIST: Final = ObstoreObjects.list
HEAD: Final = ObstoreObjects.head


class _Dated(NamedTuple):
    """When an object was written, and when it shall look written; one that is written again is as young as it is."""

    truly: datetime
    shown: datetime


_known: dict[str, _Dated] = {}
_bytes_read = 0


def let_objects_age() -> None:
    """From now on, and once for all: what a store is asked about an object is answered with the age it was given."""

    @wraps(LIST)
    def listed(self: ObstoreObjects, prefix: str = "") -> Iterator[ObjectInfo]:
        return (_shown(self, info) for info in LIST(self, prefix))

    @wraps(HEAD)
    def head(self: ObstoreObjects, key: str) -> ObjectInfo:
        return _shown(self, HEAD(self, key))

    setattr(ObstoreObjects, "list", listed)  # noqa: B010
    setattr(ObstoreObjects, "head", head)  # noqa: B010


def age(objects: ObstoreObjects, folder: str, by: timedelta) -> None:
    """Let time go by for every object below a folder that is there now."""
    there = list(LIST(objects, folder))
    with Path(os.environ[AGES]).open("a", encoding="utf-8") as file:
        for info in there:
            shown = _shown(objects, info).modified - by
            file.write(json.dumps([_name(objects, info), info.modified.isoformat(), shown.isoformat()]) + "\n")


def _shown(objects: ObstoreObjects, info: ObjectInfo) -> ObjectInfo:
    _read()
    dated = _known.get(_name(objects, info))
    return info if dated is None or dated.truly != info.modified else replace(info, modified=dated.shown)


def _name(objects: ObstoreObjects, info: ObjectInfo) -> str:
    return f"{objects.root}/{info.key}"


def _read() -> None:
    global _bytes_read
    ages = Path(os.environ[AGES])
    if not ages.exists() or ages.stat().st_size == _bytes_read:
        return
    with ages.open("rb") as file:
        file.seek(_bytes_read)
        for line in file:
            name, truly, shown = json.loads(line)
            _known[name] = _Dated(datetime.fromisoformat(truly), datetime.fromisoformat(shown))
        _bytes_read = file.tell()
