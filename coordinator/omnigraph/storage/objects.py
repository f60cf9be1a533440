"""Small objects below a graph root, on local disk or S3, behind one interface with our own errors."""

import contextlib
import itertools
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, Literal, Protocol, TypeAlias, TypeVar

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PermissionDeniedError, UnauthenticatedError
from obstore.store import LocalStore, S3Store

from omnigraph.errors import InvalidNameError, ObjectExistsError, ObjectNotFoundError, StorageError
from omnigraph.storage.roots import GraphRoot, check_key, scrub

__all__ = ["ObjectInfo", "ObjectReader", "ObjectStore", "ObstoreObjects", "check_prefix", "open_objects"]

DELETE_BATCH_MAX: Final = 1_000  # what one S3 DeleteObjects request may name
RETRIES_MAX: Final = 8
RETRY_SECONDS_MAX: Final = 60
CONFLICTS_MAX: Final = 5
CONFLICT_PAUSE_SECONDS: Final = 0.05
DETAIL_CHARS_MAX: Final = 300
READ_BYTES: Final = 8 * 2**20  # what one request for a part of an object asks for

_Store: TypeAlias = LocalStore | S3Store
_T = TypeVar("_T")
_Reason: TypeAlias = Literal[
    "permission",
    "credentials",
    "disk_full",
    "no_bucket",
    "clock",
    "conflict",
    "unsupported",
    "unreachable",
    "foreign_name",
    "outside",
    "other",
]

_FAILURES = (BaseError, OSError, ValueError)
_ERRNO = re.compile(r"os error (\d+)|\bcode: (\d+),")
_S3_CODE = re.compile(r"<Code>(\w+)</Code>|\(code: (\w+)\)")
_S3_MESSAGE = re.compile(r"<Message>([^<]*)</Message>")
_REASON_OF_ERRNO: Final[dict[str, _Reason]] = {
    "1": "permission",
    "13": "permission",
    "30": "permission",
    "28": "disk_full",
    "122": "disk_full",
}
_REASON_OF_CODE: Final[dict[str, _Reason]] = {
    "AccessDenied": "permission",
    "AllAccessDisabled": "permission",
    "NoSuchBucket": "no_bucket",
    "InvalidAccessKeyId": "credentials",
    "SignatureDoesNotMatch": "credentials",
    "ExpiredToken": "credentials",
    "InvalidToken": "credentials",
    "RequestTimeTooSkewed": "clock",
    "NotImplemented": "unsupported",
}
_REMEDY: Final[dict[_Reason, str]] = {
    "permission": "permission denied: grant this user or identity the right to do it (see the storage reference)",
    "credentials": "the store refused the credentials: check the keys, the token and its expiry",
    "disk_full": "the disk is full: free some space and try again; nothing was stored under this key",
    "no_bucket": "the bucket does not exist: create it, or correct the graph root",
    "clock": "the store refused the request's time: set this machine's clock",
    "conflict": "other requests on the same key kept getting in the way: try again",
    "unsupported": "the store does not know this kind of request: use one with conditional puts",
    "unreachable": "the store did not answer: check the endpoint and the network",
    "foreign_name": "a file with a name omnigraph never writes is in the way: rename or remove it",
    "outside": "the path leads outside the graph root through a symbolic link: remove the link",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectInfo:
    """What a store knows of an object without reading it."""

    key: str
    size: int
    modified: datetime
    """When it was last written by the store's clock, in UTC."""


class ObjectStore(Protocol):
    """Whole objects under keys relative to one root; every key is checked before it is used."""

    def put(self, key: str, data: bytes) -> None:
        """Store ``data`` whole under ``key``, replacing what was there."""

    def put_if_absent(self, key: str, data: bytes) -> None:
        """Store ``data`` if the key is free, else raise ObjectExistsError; of several callers one wins.

        After a lost answer the store may have tried twice and met its own object, so a caller that must
        know whether it won reads the object back and compares.
        """

    def get(self, key: str) -> bytes:
        """Return the whole object, or raise ObjectNotFoundError."""

    def head(self, key: str) -> ObjectInfo:
        """Return size and time of the object, or raise ObjectNotFoundError."""

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Yield every object below the folder ``prefix``, in no particular order; a missing one yields nothing."""

    def delete(self, keys: Iterable[str]) -> None:
        """Remove the objects; those that are missing are not an error."""


def check_prefix(prefix: str) -> str:
    """Return ``prefix`` without its closing slash if it can hold objects; empty means the root."""
    return check_key(prefix.removesuffix("/")) if prefix else ""


class ObstoreObjects:
    """The object store of a graph root, local or S3; makes no request and no folder until it must."""

    def __init__(self, root: GraphRoot) -> None:
        self._root = root
        self._store: _Store | None = None

    @property
    def root(self) -> GraphRoot:
        """The root all keys are relative to."""
        return self._root

    def __repr__(self) -> str:
        return f"ObstoreObjects({self._root})"

    def put(self, key: str, data: bytes) -> None:
        """Store ``data`` whole under ``key``, replacing what was there."""
        check_key(key)
        self._refuse_escape("put", key, _folder(key))
        self._run("put", key, lambda: obstore.put(self._writer(), key, data, use_multipart=False))

    def put_if_absent(self, key: str, data: bytes) -> None:
        """Store ``data`` if the key is free, else raise ObjectExistsError; of several callers one wins."""
        check_key(key)
        self._refuse_escape("put", key, _folder(key))
        for attempt in range(1, CONFLICTS_MAX + 1):
            try:
                self._run("put", key, lambda: self._create(key, data))
                return
            except StorageError as error:
                if error.facts.get("reason") != "conflict" or attempt == CONFLICTS_MAX:
                    raise
            time.sleep(CONFLICT_PAUSE_SECONDS * attempt)

    def _create(self, key: str, data: bytes) -> None:
        try:
            obstore.put(self._writer(), key, data, mode="create", use_multipart=False)
        except AlreadyExistsError as taken:
            # 409 says that another request is under way on the key, not that an object is there.
            if "409 Conflict" in str(taken):
                raise BlockingIOError(str(taken)) from None
            raise

    def get(self, key: str) -> bytes:
        """Return the whole object, or raise ObjectNotFoundError."""
        check_key(key)
        self._refuse_escape("get", key, key)
        return self._run("get", key, lambda: bytes(obstore.get(self._reader(), key).bytes()))

    def open(self, key: str) -> "ObjectReader":
        """Return the object as a file that is read a part at a time, or raise ObjectNotFoundError."""
        check_key(key)
        self._refuse_escape("get", key, key)
        file = self._run("get", key, lambda: obstore.open_reader(self._reader(), key, buffer_size=READ_BYTES))
        return ObjectReader(file, lambda call: self._run("get", key, call))

    def head(self, key: str) -> ObjectInfo:
        """Return size and time of the object, or raise ObjectNotFoundError."""
        check_key(key)
        self._refuse_escape("head", key, key)
        return _info(self._run("head", key, lambda: obstore.head(self._reader(), key)))

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Yield every object below the folder ``prefix``, in no particular order; a missing one yields nothing."""
        return self._entries(check_prefix(prefix))

    def delete(self, keys: Iterable[str]) -> None:
        """Remove the objects; those that are missing are not an error."""
        if isinstance(keys, str):
            raise InvalidNameError("delete takes several keys, not one string", key=keys)
        remaining = iter(keys)
        while batch := [check_key(key) for key in itertools.islice(remaining, DELETE_BATCH_MAX)]:
            if not self._root.is_local:
                self._remove(batch)
                continue
            # One by one: a bulk delete of the local store stops at the first file that is missing.
            for key in batch:
                self._refuse_escape("delete", key, _folder(key))
                with contextlib.suppress(ObjectNotFoundError):
                    self._remove([key])

    def _remove(self, keys: Sequence[str]) -> None:
        self._run("delete", keys[0], lambda: obstore.delete(self._reader(), keys))

    def _entries(self, prefix: str) -> Iterator[ObjectInfo]:
        folders: dict[str, bool] = {}
        try:
            stream = self._run("list", prefix, lambda: obstore.list(self._reader(), prefix=prefix or None))
        except ObjectNotFoundError:
            return
        while batch := self._run("list", prefix, lambda: next(stream, None)):
            for entry in map(_info, batch):
                folder = _folder(entry.key)
                if folder not in folders:
                    folders[folder] = self._is_inside(folder)
                if folders[folder] and _is_ours(entry.key):
                    yield entry

    def _writer(self) -> _Store:
        """Return the store, making the root folder of a local one."""
        return self._open(make_folder=True)

    def _reader(self) -> _Store:
        """Return the store, or raise FileNotFoundError when a local root is not there yet."""
        return self._open(make_folder=False)

    def _open(self, *, make_folder: bool) -> _Store:
        if self._store is not None:
            return self._store
        if self._root.bucket is None:
            if not make_folder and not Path(self._root.path).exists():
                raise FileNotFoundError(self._root.path)
            if Path(self._root.path).is_file():
                raise NotADirectoryError(f"the graph root {self._root} is a file, not a folder")
            # Emptied folders stay: removing them races with a put that is about to use one.
            self._store = LocalStore(self._root.path, mkdir=make_folder, automatic_cleanup=False)
        else:
            self._store = S3Store(
                self._root.bucket,
                prefix=self._root.path or None,
                config=self._root.options.for_clients(),  # type: ignore[arg-type]  # its TypedDict lists short names only
                retry_config={"max_retries": RETRIES_MAX, "retry_timeout": timedelta(seconds=RETRY_SECONDS_MAX)},
            )
        return self._store

    def _is_inside(self, relative: str) -> bool:
        """Tell whether a local path, links followed, stays below the root."""
        if not self._root.is_local:
            return True
        top = os.path.realpath(self._root.path)
        real = os.path.realpath(f"{top}/{relative}")
        return real == top or real.startswith(top.rstrip("/") + "/")

    def _refuse_escape(self, operation: str, key: str, relative: str) -> None:
        if not self._is_inside(relative):
            raise self._failure(operation, key, "outside", "")

    def _run(self, operation: str, key: str, call: Callable[[], _T]) -> _T:
        """Do one operation of the library and raise our errors for its own."""
        try:
            return call()
        except _FAILURES as cause:
            failure = cause
        # Out here there is no current exception, so a cause that holds a secret is not kept as context either.
        text = str(failure)
        clean = scrub(repr(failure) + text, self._root.options) == repr(failure) + text
        raise self._translated(operation, key, failure) from (failure if clean else None)

    def _translated(self, operation: str, key: str, failure: Exception) -> Exception:
        text = str(failure)
        facts = {"operation": operation, "key": scrub(key, self._root.options)}
        if isinstance(failure, AlreadyExistsError):
            return ObjectExistsError(f"{facts['key']!r} exists already", **facts)
        reason = _reason(failure, text)
        if isinstance(failure, FileNotFoundError) and operation != "put" and reason == "other":
            return ObjectNotFoundError(f"there is no object {facts['key']!r}", **facts)
        return self._failure(operation, key, reason, _detail(text))

    def _failure(self, operation: str, key: str, reason: _Reason, detail: str) -> StorageError:
        where = f"{self._root}/{key}" if key else str(self._root)
        told = ": ".join(part for part in (_REMEDY.get(reason, ""), detail) if part)
        message = scrub(f"could not {operation} {where}: {told}", self._root.options)
        return StorageError(message, operation=operation, key=scrub(key, self._root.options), reason=reason)


class ObjectReader:
    """An object as a binary file: read from anywhere, a part at a time; errors are ours."""

    closed = False

    def __init__(self, file: Any, run: Callable[[Callable[[], Any]], Any]) -> None:
        self._file = file
        self._run = run
        self.size = int(file.size)

    def read(self, size: int = -1) -> bytes:
        """Read up to so many bytes; none means the end."""
        return bytes(self._run(lambda: self._file.read() if size < 0 else self._file.read(size)))

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to a place, and return it."""
        return int(self._run(lambda: self._file.seek(offset, whence)))

    def tell(self) -> int:
        """Return the place that is read next."""
        return int(self._run(self._file.tell))

    def close(self) -> None:
        """Read no more."""
        self.closed = True
        self._file.close()


def open_objects(root: GraphRoot) -> ObstoreObjects:
    """Return the objects below ``root``; touches nothing yet."""
    return ObstoreObjects(root)


def _folder(key: str) -> str:
    return key.rpartition("/")[0]


def _info(meta: "obstore.ObjectMeta") -> ObjectInfo:
    return ObjectInfo(key=meta["path"], size=meta["size"], modified=meta["last_modified"].astimezone(UTC))


def _is_ours(key: str) -> bool:
    """Tell whether a listed key is one we could have written; a stranger's is neither shown nor touched."""
    try:
        check_key(key)
    except InvalidNameError:
        return False
    return True


def _reason(failure: Exception, text: str) -> _Reason:
    """Name what went wrong, from the library's type and, where that is general, from its text."""
    if isinstance(failure, BlockingIOError):
        return "conflict"
    code = _S3_CODE.search(text)
    if code and (code[1] or code[2]) in _REASON_OF_CODE:
        return _REASON_OF_CODE[code[1] or code[2]]
    if isinstance(failure, PermissionDeniedError | PermissionError) or "403 Forbidden" in text:
        return "permission"
    if isinstance(failure, UnauthenticatedError):
        return "credentials"
    if "501 Not Implemented" in text:
        return "unsupported"
    number = _ERRNO.search(text)
    if number and (number[1] or number[2]) in _REASON_OF_ERRNO:
        return _REASON_OF_ERRNO[number[1] or number[2]]
    if "error sending request" in text or "operation timed out" in text:
        return "unreachable"
    return "foreign_name" if type(failure).__name__ == "InvalidPathError" else "other"


def _detail(text: str) -> str:
    """Return the telling part of a library message: the store's own words, else its first line."""
    words = _S3_MESSAGE.search(text)
    line = words[1] if words else text.partition("\n")[0]
    return line[:DETAIL_CHARS_MAX]
