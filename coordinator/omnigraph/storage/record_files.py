"""Reading files of rows as streams: JSON, CSV, Parquet and Arrow. What is held at once has a limit."""

import codecs
import csv
import gzip
import io
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from omnigraph.errors import InvalidDataError, InvalidOptionError
from omnigraph.model.schema import did_you_mean
from omnigraph.rules.json_stream import JsonStream
from omnigraph.storage.row_scratch import pieces

Format: TypeAlias = Literal["jsonl", "csv", "parquet", "arrow"]
FORMATS: Final[tuple[Format, ...]] = ("jsonl", "csv", "parquet", "arrow")
SUFFIXES: Final[dict[str, Format]] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
}
STANDARD_STREAM: Final = "-"
GZIP_SUFFIX: Final = ".gz"
CHUNK_BYTES: Final = 2 * 2**20
CSV_BLOCK_BYTES: Final = 4 * 2**20
CSV_HEADER_BYTES_MAX: Final = 2**20
BATCH_ROWS_MAX: Final = 8_192
BATCH_BYTES: Final = 8 * 2**20

_UNREADABLE = (OSError, EOFError, zlib.error, pa.ArrowException, UnicodeDecodeError)


class Input:
    """Bytes on their way in, counted; ``total`` is how many there are, where that is known."""

    def __init__(self, raw: Any, total: int | None = None) -> None:
        self._raw = raw
        self.total = total
        self.count = 0
        self.closed = False

    def read(self, size: int = -1) -> bytes:
        """Read up to so many bytes; none means the end."""
        data = self._raw.read(size)
        if not isinstance(data, bytes | bytearray | memoryview):
            raise InvalidOptionError("the source gives text, or nothing yet; open it in binary mode")
        self.count += len(data)
        return bytes(data)


def check_format(name: str) -> Format:
    """Return a format by its name; the error suggests the nearest one."""
    for known in FORMATS:
        if name == known:
            return known
    hint = did_you_mean(name, FORMATS)
    raise InvalidOptionError(
        f"there is no format {name[:60]!r}; there are {', '.join(FORMATS)}; {hint or ''}".rstrip("; ")
    )


def format_of(path: Path, where: str = "") -> Format:
    """Guess the format of a file from its name; an error may say where the file is."""
    plain = path.with_suffix("") if is_gzip(path) else path
    found = SUFFIXES.get(plain.suffix.lower())
    if found is None or (is_gzip(path) and found not in ("jsonl", "csv")):
        known = ", ".join(SUFFIXES)
        raise InvalidOptionError(
            f"the format of {path.name!r}{where} can not be guessed from its name ({known}); load, export: give format="
        )
    return found


def is_gzip(path: Path) -> bool:
    """Tell whether a file's name says that it is compressed."""
    return path.suffix.lower() == GZIP_SUFFIX


def stem_of(path: Path) -> str:
    """Return a file's name without what tells its format."""
    return (path.with_suffix("") if is_gzip(path) else path).stem


@contextmanager
def unpacked(raw: Any, name: str, size: int | None) -> Iterator[tuple[Any, Input]]:
    """Give what to read of a file that may be compressed, and the count of bytes on the way."""
    counted = Input(raw, size or None)
    if is_gzip(Path(name)):
        gunzip: Any = gzip.GzipFile
        with gunzip(fileobj=counted) as plain:
            yield plain, counted
    else:
        yield counted, counted


def standard_input() -> Any:
    """Return the bytes that are piped in."""
    return sys.stdin.buffer


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Turn the complaints of decoders into ours."""
    try:
        yield
    except _UNREADABLE as problem:
        raise InvalidDataError(f"{what} can not be read: {problem}; nothing was applied") from problem


# -- text -----------------------------------------------------------------------------------------------


def text_blocks(stream: Any, found: JsonStream) -> Iterator[tuple[str, bool]]:
    """Yield a stream of bytes as text, some lines at a time, with whether it is the last; ``found`` reads along."""
    decoder = codecs.getincrementaldecoder("utf-8-sig")("strict")
    rest = ""
    while True:
        # A record that does not end is given twice as much at every look, so that it is not decoded again and again.
        with reading("the input"):
            data = stream.read(max(CHUNK_BYTES, found.waiting))
        try:
            text = rest + decoder.decode(data, final=not data)
        except UnicodeDecodeError as problem:
            line = found.last_line + bytes(problem.object[: problem.start]).count(b"\n")
            raise InvalidDataError(
                f"line {line} is not UTF-8 text: {problem.reason}; nothing was applied", line=line
            ) from problem
        end = text.rfind("\n") + 1 if data else len(text)
        if end == 0:
            end = len(text)
        yield text[:end], not data
        if not data:
            return
        rest = text[end:]


class _Rejoined:
    """A stream whose beginning has been looked at."""

    closed = False

    def __init__(self, head: bytes, rest: Any) -> None:
        self._head = io.BytesIO(head)
        self._rest = rest

    def read(self, size: int = -1) -> bytes:
        return self._head.read(size) or bytes(self._rest.read(size))


def csv_batches(stream: Any) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a CSV file as texts; an empty field is null, a quoted empty one is an empty text."""
    with reading("the CSV file"):
        head = _head(stream)
        names = _header(head)
        if not names:
            return
        rejoined: Any = _Rejoined(head, stream)
        reader = pa_csv.open_csv(
            rejoined,
            read_options=pa_csv.ReadOptions(block_size=CSV_BLOCK_BYTES, use_threads=False),
            parse_options=pa_csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
            convert_options=pa_csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()),
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
        if len(set(reader.schema.names)) != len(reader.schema.names):
            raise InvalidDataError("the header of the CSV file names a column twice; nothing was applied")
        yield from reader


def _head(stream: Any) -> bytes:
    """Read the beginning of a file, which has the header; the last line of a short file gets its end."""
    head = b""
    while len(head) < CSV_HEADER_BYTES_MAX:
        more = stream.read(CSV_HEADER_BYTES_MAX - len(head))
        if not more:
            return head if head.endswith((b"\n", b"\r")) else head + b"\n" if head else head
        head += more
    return head


def _header(head: bytes) -> list[str]:
    text = codecs.getincrementaldecoder("utf-8-sig")("strict").decode(head)
    try:
        return next(csv.reader(io.StringIO(text, newline=""), strict=True), [])
    except csv.Error as problem:
        raise InvalidDataError(f"the header of the CSV file can not be read: {problem}") from problem


# -- columns --------------------------------------------------------------------------------------------


def parquet_batches(opened: Any, name: str) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a Parquet file, in batches of bounded rows and bytes."""
    with reading(f"the Parquet file {name!r}"), pq.ParquetFile(opened, pre_buffer=False) as file:
        groups = [file.metadata.row_group(number) for number in range(file.metadata.num_row_groups)]
        widest = max((group.total_byte_size // max(1, group.num_rows) for group in groups), default=1)
        rows = max(1, min(BATCH_ROWS_MAX, BATCH_BYTES // max(1, widest)))
        for batch in file.iter_batches(batch_size=rows, use_threads=False):
            yield from pieces(batch)


def parquet_names(opened: Any, name: str) -> list[str]:
    """Return the columns of a Parquet file, which can be read again from its beginning."""
    with reading(f"the Parquet file {name!r}"):
        names = list(pq.read_schema(opened).names)
        opened.seek(0)
        return names


def arrow_batches(opened: Any, *, is_file: bool) -> Iterator[pa.RecordBatch]:
    """Yield the rows of an Arrow stream, or of a file of either form, which can be read from anywhere."""
    with reading("the Arrow file"):
        if not is_file:
            yield from _validated(pa.ipc.open_stream(opened))
            return
        has_index = opened.read(6) == b"ARROW1"
        opened.seek(0)
        if has_index:
            file = pa.ipc.open_file(opened)
            yield from _validated(map(file.get_batch, range(file.num_record_batches)))
        else:
            yield from _validated(pa.ipc.open_stream(opened))


def _validated(batches: Any) -> Iterator[pa.RecordBatch]:
    """Yield batches of a file, which may claim anything: offsets that lead nowhere would be followed."""
    for batch in batches:
        batch.validate(full=True)
        yield from pieces(batch)


def _cut(batches: Any) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield from pieces(batch)


def table_batches(rows: "pa.Table | pa.RecordBatch | pa.RecordBatchReader") -> Iterator[pa.RecordBatch]:
    """Yield rows that are in memory, or come from someone else's reader, in pieces."""
    if isinstance(rows, pa.RecordBatch):
        yield from pieces(rows)
    else:
        yield from _cut(rows.to_batches() if isinstance(rows, pa.Table) else rows)
