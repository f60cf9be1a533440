"""Graphs as things that lie somewhere: copied, put aside and removed as a whole, on a disk or on a store."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Any, Final

from omnigraph.errors import ObjectNotFoundError
from omnigraph.storage.layout import RECOVERY
from omnigraph.storage.objects import ObstoreObjects, open_objects
from omnigraph.storage.roots import GraphRoot
from omnigraph.testing.ages import age

__all__ = ["StoredPath", "aged", "beside", "copy", "objects_of", "place", "remove", "without_promises"]

AT_ONCE: Final = 16


def objects_of(root: "str | os.PathLike[str]") -> ObstoreObjects:
    """Return everything that lies below a root."""
    return open_objects(GraphRoot.parse(root))


def place(root: "str | os.PathLike[str]") -> Any:
    """Return the folder of a graph as a path, to look at or spoil what lies in it; on a store, what acts like one."""
    found = GraphRoot.parse(root)
    return Path(found.path) if found.is_local else StoredPath(objects_of(root))


def aged(root: "str | os.PathLike[str]", by: timedelta, folder: str = "") -> None:
    """Let time go by for everything that is stored below a root now."""
    if not GraphRoot.parse(root).is_local:
        age(objects_of(root), folder, by)
        return
    for path in (place(root) / folder).rglob("*"):
        if path.is_file():
            then = path.stat().st_mtime - by.total_seconds()
            os.utime(path, (then, then))


def beside(root: "str | os.PathLike[str]") -> Path:
    """Return a local folder for what is not the graph's."""
    found = GraphRoot.parse(root)
    return Path(found.path).parent if found.is_local else Path(tempfile.mkdtemp(prefix="omnigraph-beside-"))


@dataclass(frozen=True, order=True)
class StoredPath:
    """Objects below a root, spoken of as tests speak of files and folders."""

    objects: ObstoreObjects = field(compare=False)
    key: str = ""

    def __truediv__(self, name: str) -> "StoredPath":
        return StoredPath(self.objects, f"{self.key}/{name}".strip("/"))

    def __str__(self) -> str:
        return self.key

    @property
    def name(self) -> str:
        """The last part of the key."""
        return self.key.rpartition("/")[2]

    @property
    def stem(self) -> str:
        """The name without what follows its last dot."""
        return PurePosixPath(self.key).stem

    @property
    def parent(self) -> "StoredPath":
        """What it lies in."""
        return StoredPath(self.objects, self.key.rpartition("/")[0])

    def relative_to(self, other: "StoredPath") -> PurePosixPath:
        """Return the way from another one to this one."""
        return PurePosixPath(self.key).relative_to(other.key)

    def rglob(self, pattern: str) -> "Iterator[StoredPath]":
        """Yield objects below, at any depth."""
        for info in self.objects.list(self.key):
            if fnmatchcase(PurePosixPath(info.key).name, pattern):
                yield StoredPath(self.objects, info.key)

    def glob(self, pattern: str) -> "Iterator[StoredPath]":
        """Yield what fits a pattern, one part of it for each level: objects, and folders that have some."""
        wanted = pattern.split("/")
        seen: set[str] = set()
        for info in self.objects.list(self.key):
            parts = info.key[len(self.key) :].strip("/").split("/")[: len(wanted)]
            if len(parts) == len(wanted) and all(map(fnmatchcase, parts, wanted)) and "/".join(parts) not in seen:
                seen.add("/".join(parts))
                yield self / "/".join(parts)

    def iterdir(self) -> "Iterator[StoredPath]":
        """Yield what lies in it."""
        return self.glob("*")

    def exists(self) -> bool:
        """Tell whether it is an object, or there is one below it."""
        return self.is_file() or any(True for _ in self.objects.list(self.key))

    def is_file(self) -> bool:
        """Tell whether it is an object."""
        try:
            self.objects.head(self.key)
        except ObjectNotFoundError:
            return False
        return True

    def mkdir(self, *, parents: bool = False, exist_ok: bool = False) -> None:
        """Do nothing: a store has no folders."""

    def is_dir(self) -> bool:
        """Tell whether there is an object below it."""
        return any(True for _ in self.objects.list(self.key))

    def with_suffix(self, suffix: str) -> "StoredPath":
        """Return it with another ending."""
        return StoredPath(self.objects, str(PurePosixPath(self.key).with_suffix(suffix)))

    def stat(self) -> SimpleNamespace:
        """Return its size and when it was written."""
        info = self.objects.head(self.key)
        return SimpleNamespace(st_size=info.size, st_mtime_ns=int(info.modified.timestamp() * 1e9))

    def read_bytes(self) -> bytes:
        """Read it."""
        return self.objects.get(self.key)

    def read_text(self, encoding: str = "utf-8") -> str:
        """Read it as text."""
        return self.read_bytes().decode(encoding)

    def write_bytes(self, data: bytes) -> None:
        """Write it, over what was there."""
        self.objects.put(self.key, data)

    def write_text(self, text: str, encoding: str = "utf-8") -> None:
        """Write text."""
        self.write_bytes(text.encode(encoding))

    def unlink(self) -> None:
        """Delete it."""
        self.objects.delete([self.key])

    def rename(self, target: "StoredPath") -> "StoredPath":
        """Move it, or all that is below it."""
        if self.is_file():
            target.write_bytes(self.read_bytes())
            self.unlink()
        for below in list(self.rglob("*")):
            below.rename(target / str(below.relative_to(self)))
        return target


def copy(root: "str | os.PathLike[str]", target: Path) -> Path:
    """Copy a graph, whatever state it is in, over what is there."""
    if GraphRoot.parse(root).is_local:
        return Path(shutil.copytree(root, target, dirs_exist_ok=True))
    here, there = objects_of(root), objects_of(target)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(lambda info: there.put(info.key, here.get(info.key)), here.list()))
    return target


def remove(root: Path) -> None:
    """Remove a graph."""
    if GraphRoot.parse(root).is_local:
        shutil.rmtree(root)
    else:
        objects = objects_of(root)
        objects.delete([info.key for info in objects.list()])


@contextmanager
def without_promises(root: "str | os.PathLike[str]") -> Iterator[None]:
    """Put the one pending promise of a graph aside for a while, as if a writer had begun before it was made."""
    objects = objects_of(root)
    (key,) = (info.key for info in objects.list(RECOVERY) if info.key.endswith(".json"))
    promise = objects.get(key)
    objects.delete([key])
    yield
    objects.put(key, promise)
