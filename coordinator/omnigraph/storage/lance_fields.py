"""Lance's own account of the columns of a table, taken apart and put together again.

Lance numbers columns, and its files say by number which columns they hold. A column that is renamed keeps its number,
one that is dropped takes it along, and no other may ever get it while a file still holds values under it. Lance has no
way to say that for a version that is not the newest, so the numbers are put where they belong here: a column is a
message of Lance's table format, with its name, its number and the number of what it is part of.
"""

import base64
import binascii
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import pyarrow as pa
from lance import LanceDataset, LanceOperation
from lance.fragment import FragmentMetadata
from lance.schema import LanceSchema

from omnigraph.errors import CorruptGraphError

NAME, NUMBER, PARENT, NULLABLE, METADATA = 2, 3, 4, 6, 10
VERSION_FIELD, VERSION_FRAGMENT = 1, 2
VARINT, EIGHT_BYTES, SIZED, FOUR_BYTES = 0, 1, 2, 5
WIDTHS: Final = {EIGHT_BYTES: 8, FOUR_BYTES: 4}
NO_PARENT: Final = -1
SIGN: Final = 2**63

Item: TypeAlias = tuple[int, int, "int | bytes"]


@dataclass(frozen=True, slots=True)
class Field:
    """One message, item by item: what is not looked at stays as it is."""

    items: tuple[Item, ...]

    @classmethod
    def parse(cls, raw: bytes) -> "Field":
        """Read a message."""
        try:
            return cls(tuple(_items(raw)))
        except IndexError:
            raise CorruptGraphError("Lance's account of a column can not be read") from None

    def to_bytes(self) -> bytes:
        """Write it."""
        return b"".join(_item_bytes(*item) for item in self.items)

    @property
    def name(self) -> str:
        """What the column is called."""
        found = self._get(NAME)
        return found.decode() if isinstance(found, bytes) else ""

    @property
    def number(self) -> int:
        """Its number."""
        return self._whole(NUMBER)

    @property
    def parent(self) -> int:
        """The number of what it is part of."""
        return self._whole(PARENT)

    def having(self, tag: int, value: "int | bytes") -> "Field":
        """Return the message with another value; one that is zero is not written, as the format has it."""
        rest = tuple(item for item in self.items if item[0] != tag)
        if value in (0, b""):
            return replace(self, items=rest)
        item: Item = (tag, SIZED if isinstance(value, bytes) else VARINT, value)
        return replace(self, items=tuple(sorted((*rest, item), key=lambda each: each[0])))

    def _get(self, tag: int) -> "int | bytes | None":
        return next((value for number, _, value in self.items if number == tag), None)

    def _whole(self, tag: int) -> int:
        found = self._get(tag)
        whole = found if isinstance(found, int) else 0
        return whole - 2 * SIGN if whole >= SIGN else whole


Column: TypeAlias = tuple[Field, ...]
"""A column with all that it is made of, itself first."""


@dataclass(frozen=True, slots=True)
class Columns:
    """All columns of a table."""

    about: str
    columns: tuple[Column, ...]

    @classmethod
    def of(cls, schema: LanceSchema) -> "Columns":
        """Take Lance's account apart."""
        about, *fields = _parts(schema)
        columns: list[list[Field]] = []
        for field in map(Field.parse, fields):
            if field.parent == NO_PARENT:
                columns.append([field])
            else:
                columns[-1].append(field)  # the parts of a column follow it
        return cls(about, tuple(tuple(column) for column in columns))

    def named(self, name: str) -> Column:
        """Return a column by its name."""
        found = next((column for column in self.columns if column[0].name == name), None)
        if found is None:
            raise CorruptGraphError(f"the table has no column {name!r}, although its schema says so")
        return found

    @property
    def numbers(self) -> tuple[int, ...]:
        """The numbers of all columns and of their parts."""
        return tuple(field.number for column in self.columns for field in column)

    def texts(self) -> tuple[str, ...]:
        """Return all of it as text."""
        fields = [field.to_bytes() for column in self.columns for field in column]
        return (self.about, *(base64.b64encode(field).decode("ascii") for field in fields))


def new_column(field: "pa.Field[Any]", numbers: Sequence[int]) -> Column:
    """Return a column that Lance does not have yet, with the numbers it shall have."""
    (column,) = Columns.of(LanceSchema.from_pyarrow(pa.schema([field]))).columns
    if len(column) != len(numbers):
        raise CorruptGraphError(f"Lance makes another column of {field.name!r} than expected")
    renumbered = {each.number: number for each, number in zip(column, numbers, strict=True)}
    return tuple(
        each.having(NUMBER, renumbered[each.number]).having(PARENT, _signed(renumbered.get(each.parent, NO_PARENT)))
        for each in column
    )


def width(field: "pa.Field[Any]") -> int:
    """Return how many numbers a column takes."""
    return len(Columns.of(LanceSchema.from_pyarrow(pa.schema([field]))).numbers)


def renamed(column: Column, name: str, *, nullable: bool) -> Column:
    """Return a column under another name, which may hold nulls or not."""
    first = column[0].having(NAME, name.encode()).having(NULLABLE, int(nullable))
    return (first, *column[1:])


def with_metadata(version: bytes, metadata: Mapping[str, Mapping[bytes, bytes]]) -> bytes:
    """Return Lance's account of a version, without its fragments, with more metadata for some of its columns."""
    return b"".join(
        _item_bytes(tag, wire, _with_metadata(value, metadata))
        if tag == VERSION_FIELD and isinstance(value, bytes)
        else _item_bytes(tag, wire, value)
        for tag, wire, value in _items(version)
        if tag != VERSION_FRAGMENT
    )


def _with_metadata(raw: bytes, metadata: Mapping[str, Mapping[bytes, bytes]]) -> bytes:
    field = Field.parse(raw)
    if field.parent != NO_PARENT or field.name not in metadata:
        return raw
    added = (_item_bytes(1, SIZED, key) + _item_bytes(2, SIZED, value) for key, value in metadata[field.name].items())
    return raw + b"".join(_item_bytes(METADATA, SIZED, entry) for entry in added)


def numbers_in_use(handle: LanceDataset) -> int:
    """Return a number that no column of a version has, nor any of its files, nor any after it."""
    used = set(Columns.of(handle.lance_schema).numbers)
    for fragment in handle.get_fragments():
        for file in fragment.metadata.files:
            used |= set(file.fields)
    return max(used, default=-1) + 1


def schema_of(texts: Sequence[str]) -> LanceSchema:
    """Read :meth:`Columns.texts` back."""
    try:
        fields = [base64.b64decode(text, validate=True) for text in texts[1:]]
        return LanceSchema._from_protos(texts[0], *fields)  # noqa: SLF001  (what Lance's own pickles call)
    except (binascii.Error, ValueError, OSError, IndexError) as problem:
        raise CorruptGraphError(f"the columns that were staged can not be read: {problem}") from None


def kept_columns(handle: LanceDataset, schema: Sequence[str]) -> LanceSchema | None:
    """Return the columns that a version has already, as they shall be; None unless a new one takes a name of theirs."""
    wanted, there = Columns.of(schema_of(schema)), Columns.of(handle.lance_schema)
    known, names = set(there.numbers), {column[0].name for column in there.columns}
    new = [column for column in wanted.columns if column[0].number not in known]
    if not any(column[0].name in names for column in new):
        return None
    kept = tuple(column for column in wanted.columns if column[0].number in known)
    return schema_of(Columns(wanted.about, kept).texts())


def reshaping(
    handle: LanceDataset, schema: Sequence[str], fragments: list[FragmentMetadata], *, is_rewrite: bool
) -> Any:
    """Return the operation that gives a version other columns."""
    wanted = schema_of(schema)
    if is_rewrite:
        return LanceOperation.Overwrite(wanted, fragments)
    if not fragments and set(Columns.of(wanted).numbers) <= set(Columns.of(handle.lance_schema).numbers):
        return LanceOperation.Project(wanted)
    return LanceOperation.Merge(fragments or [each.metadata for each in handle.get_fragments()], wanted)


def _parts(schema: LanceSchema) -> tuple[Any, ...]:
    made: Any = schema.__reduce__()
    return tuple(made[1])


def _signed(number: int) -> int:
    return number + 2 * SIGN if number < 0 else number


def _items(raw: bytes) -> Iterator[Item]:
    at = 0
    while at < len(raw):
        key, at = _varint(raw, at)
        tag, wire = key >> 3, key & 7
        if wire == VARINT:
            value, at = _varint(raw, at)
            yield tag, wire, value
            continue
        size, at = _varint(raw, at) if wire == SIZED else (WIDTHS[wire], at)
        if at + size > len(raw):
            raise IndexError(at)
        yield tag, wire, raw[at : at + size]
        at += size


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = raw[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def _item_bytes(tag: int, wire: int, value: "int | bytes") -> bytes:
    key = _varint_bytes(tag << 3 | wire)
    if isinstance(value, int):
        return key + _varint_bytes(value)
    return key + (_varint_bytes(len(value)) if wire == SIZED else b"") + value


def _varint_bytes(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
