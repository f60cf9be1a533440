"""What may be said to the data source, as typed values. What is not known or contradicts itself is refused.

Spark hands options over as texts whose names have lost their case; here they get their names and types back.
"""

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeVar

from omnigraph.errors import InvalidOptionError

Operation = Literal["append", "upsert", "overwrite", "delete"]

STORAGE: Final = "storage."
SESSION: Final = "spark.omnigraph."
COMMON: Final = ("path", "type", "table", "branch")
READ: Final = ("tag", "commit", "versionAsOf", "timestampAsOf", "columns", "filter")
WRITE: Final = (
    "operation",
    "actor",
    "message",
    "userMetadata",
    "txnAppId",
    "txnVersion",
    "createBranchFrom",
    "constraints",
    "transaction",
    "maxRowsPerFile",
    "maxBytesPerFile",
)
FEED: Final = (
    "readChangeFeed",
    "startingVersion",
    "endingVersion",
    "startingTimestamp",
    "endingTimestamp",
    "netChanges",
    "maxCommitsPerTrigger",
)
STREAM: Final = ("checkpointLocation", "queryName")
"""What Spark itself is told of a stream that writes, and passes on."""
INTERNAL: Final = ("_limit", "_parallelism")
EVERY: Final = (*COMMON, *READ, *WRITE, *FEED, *STREAM)
OF_THE_WHOLE: Final = ("actor", "message", "userMetadata", "createBranchFrom", "constraints")
"""What is said once of a transaction, and not of each save for it."""
LATEST: Final = "latest"
OPERATIONS: Final[dict[str, Operation]] = {
    "insert": "append",
    "upsert": "upsert",
    "overwrite": "overwrite",
    "delete": "delete",
}
CONSTRAINTS: Final = ("fail", "quarantine", "off")

_SPELLED: Final = {name.lower(): name for name in (*EVERY, *INTERNAL)}

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """What to read; storage options are never shown."""

    path: str
    type: str
    branch: str | None = None
    tag: str | None = None
    commit: str | None = None
    version: int | None = None
    timestamp: str | None = None
    columns: tuple[str, ...] | None = None
    filter: str | None = None
    limit: int | None = None
    parallelism: int | None = None
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def parse(cls, raw: Mapping[str, str]) -> "ReadOptions":
        """Read what a caller said; whatever is wrong is named."""
        given = _Given(raw, (*READ, "readChangeFeed"), "writing")
        given.refuse_together("branch", ("tag", "commit"))
        given.refuse_together("tag", ("commit", "versionAsOf", "timestampAsOf"))
        given.refuse_together("commit", ("versionAsOf", "timestampAsOf"))
        given.refuse_together("versionAsOf", ("timestampAsOf",))
        return cls(
            path=given.path(),
            type=given.type(),
            branch=given.text("branch"),
            tag=given.text("tag"),
            commit=given.text("commit"),
            version=given.number("versionAsOf", least=1),
            timestamp=given.text("timestampAsOf"),
            columns=given.names("columns"),
            filter=given.text("filter"),
            limit=given.number("_limit", least=0),
            parallelism=given.number("_parallelism", least=1),
            storage=given.storage,
        )


def is_feed(raw: Mapping[str, str]) -> bool:
    """Tell whether what changed is to be read, and not what is there."""
    return flag("readChangeFeed", next((raw[key] for key in raw if key.lower() == "readchangefeed"), None))


def is_for_reading(raw: Mapping[str, str]) -> bool:
    """Tell whether nothing was said that only a write is told."""
    return not any(_SPELLED.get(key.lower()) in (*WRITE, *STREAM) for key in raw)


def flag(name: str, text: str | None) -> bool:
    """Return what was said by true or false; nothing is false."""
    if text is not None and text.strip().lower() not in ("true", "false"):
        raise InvalidOptionError(f"option {name!r} is {text[:60]!r}; write true or false", option=name)
    return text is not None and text.strip().lower() == "true"


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedOptions:
    """Which changes to read; storage options are never shown."""

    path: str
    type: str | None = None
    branch: str | None = None
    starting_version: int | None = None
    starting_timestamp: str | None = None
    is_from_latest: bool = False
    ending_version: int | None = None
    ending_timestamp: str | None = None
    is_net: bool = False
    commits_per_trigger: int | None = None
    parallelism: int | None = None
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def parse(cls, raw: Mapping[str, str]) -> "FeedOptions":
        """Read what a caller said; whatever is wrong is named."""
        given = _Given(raw, FEED, "reading tables and for writing")
        given.refuse_together("startingVersion", ("startingTimestamp",))
        given.refuse_together("endingVersion", ("endingTimestamp",))
        is_from_latest = (given.text("startingVersion") or "").strip().lower() == LATEST
        return cls(
            path=given.path(),
            type=given.type() if given.has("type") or given.has("table") else None,
            branch=given.text("branch"),
            starting_version=None if is_from_latest else given.number("startingVersion", least=1),
            starting_timestamp=given.text("startingTimestamp"),
            is_from_latest=is_from_latest,
            ending_version=given.number("endingVersion", least=1),
            ending_timestamp=given.text("endingTimestamp"),
            is_net=flag("netChanges", given.text("netChanges")),
            commits_per_trigger=given.number("maxCommitsPerTrigger", least=1),
            parallelism=given.number("_parallelism", least=1),
            storage=given.storage,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """Where and how to write; storage options are never shown."""

    path: str
    type: str
    operation: Operation
    branch: str | None = None
    actor: str | None = None
    message: str | None = None
    user_metadata: str | None = None
    txn: tuple[str, int] | None = None
    create_branch_from: str | None = None
    constraints: str = "fail"
    transaction: str | None = None
    rows_per_file: int | None = None
    bytes_per_file: int | None = None
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def parse(cls, raw: Mapping[str, str], *, overwrite: bool, is_stream: bool = False) -> "WriteOptions":
        """Read what a caller said; ``overwrite`` is Spark's save mode."""
        given = _Given(raw, (*WRITE, *STREAM) if is_stream else WRITE, "reading")
        given.need_together("txnAppId", "txnVersion")
        if is_stream and given.has("txnAppId"):
            raise InvalidOptionError(
                "a stream's batches are known by its own id: leave txnAppId and txnVersion away", option="txnAppId"
            )
        given.refuse_of_the_whole(is_stream=is_stream)
        if given.has("createBranchFrom") and not given.has("branch"):
            raise InvalidOptionError("createBranchFrom says where a branch begins; say which, with branch")
        app, version = given.text("txnAppId"), given.number("txnVersion", least=0)
        return cls(
            path=given.path(),
            type=given.type(),
            operation=_operation(given.text("operation"), overwrite=overwrite),
            branch=given.text("branch"),
            actor=given.text("actor"),
            message=given.text("message"),
            user_metadata=given.text("userMetadata"),
            txn=None if app is None or version is None else (app, version),
            create_branch_from=given.text("createBranchFrom"),
            constraints=_without_rejected(checked_constraints(given.text("constraints"))),
            transaction=given.text("transaction"),
            rows_per_file=given.number("maxRowsPerFile", least=1),
            bytes_per_file=given.number("maxBytesPerFile", least=1),
            storage=given.storage,
        )


def session_defaults(names: tuple[str, ...], configured: Callable[[str], str | None]) -> dict[str, str]:
    """Return the options a session has as ``spark.omnigraph.<option>``, of those that are asked for."""
    found = {name: configured(SESSION + name) for name in names}
    return {name: value for name, value in found.items() if value is not None}


def _operation(text: str | None, *, overwrite: bool) -> Operation:
    if text is None:
        return "overwrite" if overwrite else "append"
    operation = OPERATIONS.get(text.lower())
    if operation is None:
        raise InvalidOptionError(f"there is no operation {text[:60]!r}; {_nearest(text, list(OPERATIONS))}")
    if overwrite != (operation == "overwrite"):
        mode = "overwrite" if overwrite else "append"
        right = "append" if overwrite else "overwrite"
        raise InvalidOptionError(f"operation {text!r} contradicts mode {mode!r}; write .mode({right!r}) with it")
    return operation


def checked_constraints(text: str | None) -> str:
    """Return how constraints are treated, if that is a way there is."""
    if text is None:
        return "fail"
    if text.lower() not in CONSTRAINTS:
        raise InvalidOptionError(f"constraints is {text[:60]!r}; choose one of {', '.join(CONSTRAINTS)}")
    return text.lower()


def _without_rejected(constraints: str) -> str:
    """Refuse a write whose rejected rows could not be handed back: saving a DataFrame returns nothing."""
    if constraints == "quarantine":
        raise InvalidOptionError(
            "constraints 'quarantine' hands rows back, and a save can not: use SparkGraph.transaction, or fail or off"
        )
    return constraints


def _nearest(name: str, known: list[str]) -> str:
    (near,) = difflib.get_close_matches(name.lower(), [each.lower() for each in known], n=1, cutoff=0.0)
    spelled = next(each for each in known if each.lower() == near)
    return f"did you mean {spelled!r}?"


class _Given:
    """Options as they came, under the names they are documented by."""

    def __init__(self, raw: Mapping[str, str], own: tuple[str, ...], elsewhere: str) -> None:
        self._values: dict[str, str] = {}
        self.storage: dict[str, str] = {}
        for key, value in raw.items():
            name = key.lower()
            if name.startswith(STORAGE):
                self.storage[name.removeprefix(STORAGE)] = value
            else:
                self._values[_known(name, own, elsewhere)] = value

    def has(self, name: str) -> bool:
        return name in self._values

    def text(self, name: str) -> str | None:
        value = self._values.get(name)
        if value is not None and not value.strip():
            raise InvalidOptionError(f"option {name!r} is empty; give it a value or leave it away", option=name)
        return value

    def number(self, name: str, *, least: int) -> int | None:
        value = self.text(name)
        if value is None:
            return None
        digits = value.strip()
        if not (digits.isascii() and digits.isdecimal()) or not least <= int(digits) < 2**63:
            raise InvalidOptionError(f"option {name!r} is {value[:60]!r}; write a whole number from {least}")
        return int(digits)

    def names(self, name: str) -> tuple[str, ...] | None:
        value = self.text(name)
        if value is None:
            return None
        names = tuple(part.strip() for part in value.split(","))
        if not all(names) or len(set(names)) != len(names):
            raise InvalidOptionError(f"option {name!r} is {value[:200]!r}; write each column once: id,name")
        return names

    def path(self) -> str:
        path = self.text("path")
        if path is None:
            raise InvalidOptionError("no graph was named; give its root to load() or save()")
        return path

    def type(self) -> str:
        named = self.text("type"), self.text("table")
        found = [name for name in named if name is not None]
        if len(found) != 1:
            raise InvalidOptionError("name one node or edge type: option type=Person, or table=node:Person")
        return found[0]

    def refuse_together(self, name: str, others: tuple[str, ...]) -> None:
        for other in others:
            if self.has(name) and self.has(other):
                raise InvalidOptionError(f"options {name!r} and {other!r} contradict each other; choose one")

    def refuse_of_the_whole(self, *, is_stream: bool) -> None:
        if not self.has("transaction"):
            return
        if is_stream:
            raise InvalidOptionError(
                "every batch of a stream is a commit of its own: leave transaction away, or use foreachBatch",
                option="transaction",
            )
        for name in OF_THE_WHOLE:
            if self.has(name):
                raise InvalidOptionError(f"option {name!r} is said where the transaction begins, not here", option=name)

    def need_together(self, name: str, other: str) -> None:
        if self.has(name) != self.has(other):
            raise InvalidOptionError(f"options {name!r} and {other!r} go together; give both or none")


def _known(name: str, own: tuple[str, ...], elsewhere: str) -> str:
    spelled = _SPELLED.get(name)
    if spelled is None:
        raise InvalidOptionError(f"there is no option {name[:60]!r}; {_nearest(name, list(EVERY))}", option=name[:60])
    if spelled not in (*COMMON, *INTERNAL, *own):
        where = "change feeds, with readChangeFeed," if spelled in FEED else elsewhere
        where = "streams that write" if spelled in STREAM else where
        raise InvalidOptionError(f"option {spelled!r} is for {where} only", option=spelled)
    return spelled


def as_texts(values: Mapping[str, Any]) -> dict[str, str]:
    """Return options as Spark takes them; what is None was not said."""
    return {name: str(value) for name, value in values.items() if value is not None}
