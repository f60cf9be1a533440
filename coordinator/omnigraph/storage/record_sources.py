"""Where rows come from: one file or several, on disk or in an object store, each with a format and a name.

A pattern and a folder mean several files. What a folder holds says what is in it: a file is named after its type, or
lies in a folder that is. Files that begin with a dot or an underscore are other tools' and are left out.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from os import PathLike
from pathlib import Path
from typing import Any, Final, TypeAlias

import pyarrow as pa

from omnigraph.errors import InvalidOptionError, ObjectNotFoundError
from omnigraph.storage.objects import ObjectReader, ObstoreObjects, open_objects
from omnigraph.storage.record_files import Format, format_of, stem_of
from omnigraph.storage.roots import GraphRoot, check_key

OBJECT_SCHEME: Final = "s3://"
PART_PREFIX: Final = "part"
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_PATTERN = re.compile(r"[*?\[]")

Place: TypeAlias = Path | tuple[ObstoreObjects, str]
"""Where a file is: on disk, or under a key."""


@dataclass(frozen=True, slots=True)
class RecordFile:
    """A file of rows: what it is called, how it is to be read, and the name its type may have."""

    name: str
    format: Format
    type: str
    place: Place
    is_of_folder: bool = False
    """Whether it was found in a folder, where names say what is in files."""

    @property
    def is_columns(self) -> bool:
        """Whether it holds columns, which are not read in one go from its beginning to its end."""
        return self.format in ("parquet", "arrow")

    @contextmanager
    def opened(self) -> Iterator[tuple[Any, int]]:
        """Open it for reading, from anywhere in it; with it comes its size."""
        file: Any
        if isinstance(self.place, Path):
            try:
                file = pa.OSFile(str(self.place), "rb") if self.is_columns else self.place.open("rb")
            except OSError as problem:
                raise InvalidOptionError(f"the file can not be read: {problem}") from problem
            size = self.place.stat().st_size
        else:
            file = self._object(*self.place)
            size = file.size
        try:
            yield file, size
        finally:
            file.close()

    def _object(self, objects: ObstoreObjects, key: str) -> ObjectReader:
        try:
            return objects.open(key)
        except ObjectNotFoundError:
            raise InvalidOptionError(f"the file can not be read: there is no {self.name!r} at {objects.root}") from None


def files_of(
    source: "str | PathLike[str]", format: Format | None, options: Mapping[str, str] | None
) -> list[RecordFile]:
    """Return the files that a path, a pattern, a folder or an address of an object store means, by name."""
    text = str(source)
    scheme = _SCHEME.match(text)
    if scheme is None:
        if options:
            raise InvalidOptionError("storage options are for s3:// sources; this source is a local path")
        return _local(Path(source), format)
    if scheme[0].lower() != OBJECT_SCHEME:
        raise InvalidOptionError(f"a source is a local path or an address such as s3://bucket/key, not {scheme[0]}…")
    return _stored(text, format, options)


def _local(path: Path, format: Format | None) -> list[RecordFile]:
    if path.is_dir():
        return _in_folder({key: path / key for key in _keys_below(path)}, path.name, format)
    if path.exists() or not _PATTERN.search(path.name):
        return [_file(path.name, format, path)]
    entries = (entry for entry in path.parent.glob(path.name) if _is_visible(entry.name) and entry.is_file())
    return _matching({entry.name: entry for entry in entries}, path.name, format)


def _stored(text: str, format: Format | None, options: Mapping[str, str] | None) -> list[RecordFile]:
    folder, _, name = text.rpartition("/")
    is_pattern = _PATTERN.search(name) is not None
    objects = open_objects(GraphRoot.parse(folder, options))
    if not name or is_pattern:
        found: dict[str, Place] = {each.key: (objects, each.key) for each in objects.list() if _is_visible(each.key)}
        if not name:
            return _in_folder(found, folder.rpartition("/")[2], format)
        return _matching({key: place for key, place in found.items() if fnmatchcase(key, name)}, name, format)
    return [_file(name, format, (objects, check_key(name)))]


def _matching(found: Mapping[str, Place], name: str, format: Format | None) -> list[RecordFile]:
    flat = {key: place for key, place in found.items() if "/" not in key}
    if not flat:
        raise InvalidOptionError(f"no file matches {name!r}")
    return [_file(key, format, flat[key]) for key in sorted(flat)]


def _in_folder(found: Mapping[str, Place], folder: str, format: Format | None) -> list[RecordFile]:
    files = []
    for key in sorted(found):
        parent, _, name = key.rpartition("/")
        if not parent:
            files.append(replace(_file(key, format, found[key], f" in {folder!r}"), is_of_folder=True))
        elif "/" in parent or not name.startswith(PART_PREFIX):
            raise InvalidOptionError(f"{key!r} in {folder!r} is no <Type>/part* file, so its type is unknown")
        else:
            kind = stem_of(Path(parent)) if Path(parent).suffix else parent
            files.append(RecordFile(key, format or format_of(Path(name)), kind, found[key], is_of_folder=True))
    return files


def _file(name: str, format: Format | None, place: Place, where: str = "") -> RecordFile:
    return RecordFile(name, format or format_of(Path(name), where), stem_of(Path(name)), place)


def _keys_below(folder: Path) -> list[str]:
    """Return what a folder and its folders hold, as paths below it."""
    try:
        below = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
    except OSError as problem:
        raise InvalidOptionError(f"the folder can not be read: {problem}") from problem
    return [key for key in below if _is_visible(key)]


def _is_visible(key: str) -> bool:
    """Leave out what other tools leave beside their output, such as ``_SUCCESS``."""
    return not any(part.startswith((".", "_")) for part in key.split("/"))
