"""Staged work on one table: values that travel from an executor to the driver and live in a sidecar.

Fragments are Lance's own metadata, kept as the JSON text Lance writes and reads. Nothing here opens a
file; all of it survives a round trip through :func:`staged_from_json`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias, TypeVar

from omnigraph.errors import CorruptGraphError, UnsupportedFormatError

STAGED_SCHEMA = 1

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSet:
    """Some rows of one fragment: ``offsets`` are their physical places, ascending, in compact text."""

    fragment: int
    rows: int
    offsets: str

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {"fragment": self.fragment, "rows": self.rows, "offsets": self.offsets}

    @classmethod
    def from_json(cls, body: Any) -> "RowSet":
        """Read it back; strict."""
        read = _Reader(body, {"fragment", "rows", "offsets"})
        return cls(fragment=read.count("fragment"), rows=read.count("rows"), offsets=read.text("offsets"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletion:
    """Rows to take out of one fragment of the base version.

    ``file`` is Lance's description of the deletion file that was written for it; without one, no row
    of the fragment remains and the fragment itself goes.
    """

    out: RowSet
    file: str | None

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {"out": self.out.to_json(), "file": self.file}

    @classmethod
    def from_json(cls, body: Any) -> "Deletion":
        """Read it back; strict."""
        read = _Reader(body, {"out", "file"})
        return cls(out=RowSet.from_json(read.body["out"]), file=read.text_or_none("file"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """A new fragment whose rows take the place of others: ``row_ids`` are the ids they keep, in compact text.

    Lance would carry the ids inside the fragment's own JSON, as a list of bytes ten times as long.
    """

    fragment: str
    row_ids: str

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {"fragment": self.fragment, "row_ids": self.row_ids}

    @classmethod
    def from_json(cls, body: Any) -> "Replacement":
        """Read it back; strict."""
        read = _Reader(body, {"fragment", "row_ids"})
        return cls(fragment=read.text("fragment"), row_ids=read.text("row_ids"))


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedAppend:
    """Rows to add; they fit on any version whose schema they were staged for."""

    kind: ClassVar[str] = "append"

    fragments: tuple[str, ...]
    rows: int
    bytes: int
    files: tuple[str, ...]

    @property
    def is_empty(self) -> bool:
        """Whether sealing it would change nothing."""
        return not self.fragments

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {**_head(self.kind), **_written(self)}

    @classmethod
    def from_json(cls, body: Any) -> "StagedAppend":
        """Read it back; strict."""
        return cls(**_Reader(body, {*_HEAD, *_WRITTEN}).written())


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedOverwrite:
    """Rows to put in the place of all others; none at all empties the table."""

    kind: ClassVar[str] = "overwrite"

    fragments: tuple[str, ...]
    rows: int
    bytes: int
    files: tuple[str, ...]

    @property
    def is_empty(self) -> bool:
        """Whether sealing it would change nothing; that depends on what is there, so never."""
        return False

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {**_head(self.kind), **_written(self)}

    @classmethod
    def from_json(cls, body: Any) -> "StagedOverwrite":
        """Read it back; strict."""
        return cls(**_Reader(body, {*_HEAD, *_WRITTEN}).written())


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedDelete:
    """Rows to take out of exactly ``base_version``; empty when nothing matched."""

    kind: ClassVar[str] = "delete"

    base_version: int
    deletions: tuple[Deletion, ...]
    files: tuple[str, ...]

    @property
    def deleted(self) -> int:
        """How many rows go."""
        return sum(deletion.out.rows for deletion in self.deletions)

    @property
    def is_empty(self) -> bool:
        """Whether nothing matched: then nothing was staged and there is nothing to seal."""
        return not self.deletions

    def to_json(self) -> dict[str, Any]:
        """Return plain values; the version as text, because most JSON readers lose its low bits."""
        return {
            **_head(self.kind),
            "base": str(self.base_version),
            "deletions": [deletion.to_json() for deletion in self.deletions],
            "files": list(self.files),
        }

    @classmethod
    def from_json(cls, body: Any) -> "StagedDelete":
        """Read it back; strict."""
        read = _Reader(body, {*_HEAD, "base", "deletions", "files"})
        return cls(
            base_version=read.version("base"),
            deletions=tuple(Deletion.from_json(item) for item in read.items("deletions", dict)),
            files=read.texts("files"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedUpsert:
    """Rows to add or replace by id, worked out against exactly ``base_version``.

    ``replacements`` are the new forms of existing rows and carry their row ids; ``insertions`` are new
    rows; ``deletions`` take out the old forms. ``unchanged`` says which rows of the base version are
    what the input says already: they were not written, but when the work is moved onto another
    version their values are still owed, and the base version has them.

    ``rows_deleted`` of the rows that ``deletions`` take out have no new form: they go. Such work is never moved.
    """

    kind: ClassVar[str] = "upsert"

    base_version: int
    replacements: tuple[Replacement, ...]
    insertions: tuple[str, ...]
    deletions: tuple[Deletion, ...]
    unchanged: tuple[RowSet, ...]
    rows_inserted: int
    bytes: int
    files: tuple[str, ...]
    rows_deleted: int = 0

    @property
    def rows_updated(self) -> int:
        """How many existing rows get other values."""
        return sum(deletion.out.rows for deletion in self.deletions) - self.rows_deleted

    @property
    def rows_unchanged(self) -> int:
        """How many rows of the input were there already, value for value."""
        return sum(rows.rows for rows in self.unchanged)

    @property
    def rows(self) -> int:
        """How many rows were written."""
        return self.rows_inserted + self.rows_updated

    @property
    def fragments(self) -> tuple[str, ...]:
        """All new fragments, replacements first."""
        return (*(replacement.fragment for replacement in self.replacements), *self.insertions)

    @property
    def is_empty(self) -> bool:
        """Whether sealing it would change nothing."""
        return not self.replacements and not self.insertions and not self.rows_deleted

    def to_json(self) -> dict[str, Any]:
        """Return plain values; the version as text, because most JSON readers lose its low bits."""
        return {
            **_head(self.kind),
            "base": str(self.base_version),
            "replacements": [replacement.to_json() for replacement in self.replacements],
            "insertions": list(self.insertions),
            "deletions": [deletion.to_json() for deletion in self.deletions],
            "unchanged": [rows.to_json() for rows in self.unchanged],
            "inserted": self.rows_inserted,
            "bytes": self.bytes,
            "files": list(self.files),
            # Only if there are some: who does not know the word must not take such work for a plain upsert.
            **({"deleted": self.rows_deleted} if self.rows_deleted else {}),
        }

    @classmethod
    def from_json(cls, body: Any) -> "StagedUpsert":
        """Read it back; strict."""
        names = {"base", "replacements", "insertions", "deletions", "unchanged", "inserted", "bytes", "files"}
        mixed = {"deleted"} if isinstance(body, Mapping) and "deleted" in body else set()
        read = _Reader(body, {*_HEAD, *names, *mixed})
        return cls(
            base_version=read.version("base"),
            replacements=tuple(Replacement.from_json(item) for item in read.items("replacements", dict)),
            insertions=read.texts("insertions"),
            deletions=tuple(Deletion.from_json(item) for item in read.items("deletions", dict)),
            unchanged=tuple(RowSet.from_json(item) for item in read.items("unchanged", dict)),
            rows_inserted=read.count("inserted"),
            bytes=read.count("bytes"),
            files=read.texts("files"),
            rows_deleted=read.count("deleted") if mixed else 0,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedReshape:
    """Other columns for the rows of exactly ``base_version``: ``schema`` is Lance's own account of them, as text.

    Without ``fragments`` no row is touched. With some, they take the place of those the version has: the same rows with
    more columns or, if it ``is_rewrite``, the same rows in new files that hold no other columns.
    """

    kind: ClassVar[str] = "reshape"

    base_version: int
    schema: tuple[str, ...]
    fragments: tuple[str, ...] = ()
    is_rewrite: bool = False
    rows: int = 0
    bytes: int = 0
    files: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether sealing it would change nothing: never, as there would be no promise of it."""
        return False

    def to_json(self) -> dict[str, Any]:
        """Return plain values; the version as text, because most JSON readers lose its low bits."""
        own = {"base": str(self.base_version), "columns": list(self.schema), "rewrite": self.is_rewrite}
        return {**_head(self.kind), **own, **_written(self)}

    @classmethod
    def from_json(cls, body: Any) -> "StagedReshape":
        """Read it back; strict."""
        read = _Reader(body, {*_HEAD, "base", "columns", "rewrite", *_WRITTEN})
        return cls(
            base_version=read.version("base"),
            schema=read.texts("columns"),
            is_rewrite=read.truth("rewrite"),
            **read.written(),
        )


Staged: TypeAlias = StagedAppend | StagedOverwrite | StagedDelete | StagedUpsert | StagedReshape
"""What can be sealed."""

_KINDS: dict[str, type[Staged]] = {
    kind.kind: kind for kind in (StagedAppend, StagedOverwrite, StagedDelete, StagedUpsert, StagedReshape)
}
_HEAD = ("schema", "kind")
_WRITTEN = ("fragments", "rows", "bytes", "files")


def staged_from_json(body: Any) -> Staged:
    """Read staged work back; a newer form is refused by its number, anything malformed as corrupt."""
    if not isinstance(body, Mapping):
        raise CorruptGraphError("staged work is no JSON object")
    number = body.get("schema")
    if type(number) is int and number > STAGED_SCHEMA:
        raise UnsupportedFormatError(
            f"staged work has form {number}, and this omnigraph reads up to {STAGED_SCHEMA}; upgrade it", found=number
        )
    kind = _KINDS.get(str(body.get("kind")))
    if type(number) is not int or number != STAGED_SCHEMA or kind is None:
        raise CorruptGraphError(f"staged work of form {number!r} and kind {body.get('kind')!r} is not known")
    return kind.from_json(body)


def _head(kind: str) -> dict[str, Any]:
    return {"schema": STAGED_SCHEMA, "kind": kind}


def _written(staged: StagedAppend | StagedOverwrite | StagedReshape) -> dict[str, Any]:
    return {
        "fragments": list(staged.fragments),
        "rows": staged.rows,
        "bytes": staged.bytes,
        "files": list(staged.files),
    }


class _Reader:
    """Reads a JSON object whose names are known exactly; whatever else is found is corrupt."""

    def __init__(self, body: Any, names: set[str]) -> None:
        if not isinstance(body, Mapping) or set(body) != names:
            found = sorted(map(str, body)) if isinstance(body, Mapping) else type(body).__name__
            raise CorruptGraphError(f"staged work holds {found} where {sorted(names)} belong")
        self.body: Mapping[str, Any] = body

    def _typed(self, name: str, kind: type[_T]) -> _T:
        value = self.body[name]
        if type(value) is not kind:
            raise CorruptGraphError(f"staged work holds {value!r} as {name!r}; a value of type {kind.__name__} belongs")
        return value

    def count(self, name: str) -> int:
        value = self._typed(name, int)
        if value < 0:
            raise CorruptGraphError(f"staged work holds {value} as {name!r}; it counts something")
        return value

    def text(self, name: str) -> str:
        return self._typed(name, str)

    def text_or_none(self, name: str) -> str | None:
        return None if self.body[name] is None else self._typed(name, str)

    def truth(self, name: str) -> bool:
        return self._typed(name, bool)

    def version(self, name: str) -> int:
        text = self._typed(name, str)
        if not (text.isascii() and text.isdecimal()):
            raise CorruptGraphError(f"staged work holds {text!r} as {name!r}; a version number belongs")
        return int(text)

    def items(self, name: str, kind: type[_T]) -> tuple[_T, ...]:
        values = self._typed(name, list)
        if any(type(value) is not kind for value in values):
            raise CorruptGraphError(f"staged work holds something else than {kind.__name__} in {name!r}")
        return tuple(values)

    def texts(self, name: str) -> tuple[str, ...]:
        return self.items(name, str)

    def written(self) -> dict[str, Any]:
        return {
            "fragments": self.texts("fragments"),
            "rows": self.count("rows"),
            "bytes": self.count("bytes"),
            "files": self.texts("files"),
        }
