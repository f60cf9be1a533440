"""Writing files of rows: under another name until they are whole, and never over something else by accident."""

import gzip
import os
import secrets
import shutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from omnigraph.errors import InvalidNameError, ObjectExistsError, StorageError
from omnigraph.model.schema import TYPE_NAME
from omnigraph.storage.record_files import STANDARD_STREAM, is_gzip

PARQUET_SUFFIX: Final = ".parquet"


def write_lines(stream: Any, lines: Iterable[str]) -> int:
    """Write lines of JSON, and return how many bytes that were."""
    text = "\n".join(lines)
    if not text:
        return 0
    data = f"{text}\n".encode()
    try:
        stream.write(data)
    except BrokenPipeError:
        raise
    except OSError as problem:
        raise _failed(problem) from problem
    return len(data)


@contextmanager
def json_target(target: "Path | Any", *, overwrite: bool) -> Iterator[Any]:
    """Give a binary stream: a file that appears whole when the block ends well, or the stream that was given."""
    if not isinstance(target, Path):
        stream = sys.stdout.buffer if target == STANDARD_STREAM else target
        yield stream
        stream.flush()
        return
    _refuse_taken(target, overwrite=overwrite, folder=False)
    working = _beside(target)
    try:
        with _writing(), working.open("xb") as raw:
            if is_gzip(target):
                with gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=0) as packed:
                    yield packed
            else:
                yield raw
            raw.flush()
            os.fsync(raw.fileno())
        _refuse_taken(target, overwrite=overwrite, folder=False)
        with _writing():
            _name(working, target, overwrite=overwrite)
    finally:
        working.unlink(missing_ok=True)


@contextmanager
def folder_target(target: Path, *, overwrite: bool) -> Iterator[Path]:
    """Give a new folder that gets its name when the block ends well."""
    _refuse_taken(target, overwrite=overwrite, folder=True)
    working, old = _beside(target), _beside(target)
    try:
        with _writing():
            working.mkdir()
            yield working
        _refuse_taken(target, overwrite=overwrite, folder=True)
        with _writing():
            if target.exists():
                target.rename(old)
            working.rename(target)
    finally:
        for folder in (working, old if target.exists() else working):
            shutil.rmtree(folder, ignore_errors=True)


def write_parquet(folder: Path, type: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> tuple[int, int]:
    """Write one type's rows into its file, and return how many rows and bytes that were."""
    if not TYPE_NAME.fullmatch(type):
        raise InvalidNameError(f"{type[:60]!r} can not name a file")
    path = folder / f"{type}{PARQUET_SUFFIX}"
    rows = 0
    with _writing(), pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for batch in batches:
            writer.write_batch(batch)
            rows += batch.num_rows
    return rows, path.stat().st_size


def _name(working: Path, target: Path, *, overwrite: bool) -> None:
    """Give a whole file its name; one that appeared meanwhile is not replaced unasked."""
    if overwrite:
        working.replace(target)
        return
    try:
        os.link(working, target)
    except FileExistsError:
        raise _taken(target, "exists already; choose another name, or pass overwrite=True") from None
    except OSError:  # a file system without links: then a file that appeared this very moment is replaced
        working.replace(target)


def _refuse_taken(target: Path, *, overwrite: bool, folder: bool) -> None:
    with _writing():
        if not target.exists() and not target.is_symlink():
            return
        if not overwrite:
            raise _taken(target, "exists already; choose another name, or pass overwrite=True")
        if target.is_dir() != folder:
            kinds = ("a folder", "a file") if folder else ("a file", "a folder")
            raise _taken(target, f"is {kinds[1]} and is not replaced by {kinds[0]}; remove it, or choose another name")
        if folder and any(entry.suffix != PARQUET_SUFFIX or not entry.is_file() for entry in target.iterdir()):
            raise _taken(
                target, "holds more than Parquet files, so it is not replaced; remove them, or choose another name"
            )


def _taken(target: Path, problem: str) -> ObjectExistsError:
    return ObjectExistsError(f"{target} {problem}; nothing was written", target=str(target))


def _beside(target: Path) -> Path:
    return target.with_name(f".{target.name[:100]}.{secrets.token_hex(8)}.tmp")


@contextmanager
def _writing() -> Iterator[None]:
    try:
        yield
    except (OSError, pa.ArrowException) as problem:
        raise _failed(problem) from problem


def _failed(problem: Exception) -> StorageError:
    return StorageError(f"the export can not be written: {problem}")
