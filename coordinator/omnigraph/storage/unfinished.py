"""Files that a writer on local disk was killed in the middle of: the store writes them under a name of their own.

It gives them their real name when they are whole, and never lists what is not. So only the disk itself knows of them.
"""

import os
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from omnigraph.storage.objects import ObjectInfo
from omnigraph.storage.roots import GraphRoot

UNFINISHED: Final = re.compile(r".#[0-9]+\Z", re.DOTALL)


def unfinished(root: GraphRoot, folders: Sequence[str], before: datetime) -> Iterator[ObjectInfo]:
    """Yield files below folders that were begun and not finished, and not touched since; links are not followed."""
    if not root.is_local:
        return
    for folder in folders:
        for place, _, names in os.walk(Path(root.path) / folder):
            for name in filter(UNFINISHED.search, names):
                file = Path(place) / name
                try:
                    seen = file.lstat()
                except FileNotFoundError:
                    continue  # it is finished now
                modified = datetime.fromtimestamp(seen.st_mtime, UTC)
                if modified < before:
                    key = file.relative_to(root.path).as_posix()
                    yield ObjectInfo(key=key, size=seen.st_size, modified=modified)


def remove_unfinished(root: GraphRoot, files: Sequence[ObjectInfo]) -> None:
    """Remove such files; those that are missing are not an error."""
    for file in files:
        (Path(root.path) / file.key).unlink(missing_ok=True)
