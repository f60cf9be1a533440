"""A stream of what changes on a branch: its offsets are commits.

An offset names a commit, and the incarnation of the branch it is on. A stream that begins without a version or a time
first tells the rows that are there, as inserts of the newest commit; its first offset says so.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

import omnigraph as og
from omnigraph.errors import BranchConflictError, InvalidOptionError
from pyspark_omnigraph.feed import (
    MICROSECOND,
    FeedPartition,
    PinnedFeed,
    moment_of,
    opened,
    read_part,
    refuse_another,
)
from pyspark_omnigraph.reader import Pinned
from pyspark_omnigraph.workers import Unpacked

try:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxFiles, SupportsTriggerAvailableNow
except ImportError:  # Spark 4.0 and 4.1 know of no limits
    ReadAllAvailable = ReadMaxFiles = SupportsTriggerAvailableNow = object  # type: ignore[assignment, misc]

Offset: TypeAlias = dict[str, Any]
INCARNATION, VERSION, COMMIT, SNAPSHOT = "incarnation", "version", "commit", "snapshot"
NOTHING: Final = ""
"""Stands for a commit before the first."""


class FeedStreamReader(Unpacked, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Tells what each commit changed, some commits at a time."""

    def __init__(self, pinned: PinnedFeed, wanted: pa.Schema) -> None:
        self._pinned = pinned
        self._wanted = wanted
        self._seen: Offset | None = None
        self._target: int | None = None

    @classmethod
    def begun(cls, pinned: PinnedFeed | Pinned, schema: StructType) -> "FeedStreamReader":
        """Begin to read, or say what a stream can not do."""
        if isinstance(pinned, Pinned):
            raise InvalidOptionError("a stream reads what changes: set readChangeFeed to true", option="readChangeFeed")
        options = pinned.options
        if options.ending_version is not None or options.ending_timestamp is not None or options.is_net:
            raise InvalidOptionError(
                "a stream has no end and tells every change: leave endingVersion, endingTimestamp and netChanges away"
            )
        return cls(pinned, pinned.wanted(schema))

    # Names and signatures of the methods are Spark's.

    def initialOffset(self) -> Offset:  # noqa: N802
        """Return where a new query begins."""
        graph, options = opened(self._pinned.options), self._pinned.options
        branch = self._branch(graph)
        if options.is_from_latest:
            return self._offset(branch.version, branch.head)
        if options.starting_version is not None:
            return self._before(graph, options.starting_version - 1)
        if options.starting_timestamp is not None:
            return self._before(graph, moment_of(options.starting_timestamp) - MICROSECOND)
        return self._offset(0, NOTHING) | {SNAPSHOT: True}

    def latestOffset(self, start: Offset | None = None, limit: Any = None) -> Offset:  # noqa: N802
        """Return where the next batch ends: with the newest commit, or a limited number of commits on."""
        graph = opened(self._pinned.options)
        branch = self._branch(graph)
        begun = start or self._seen
        last = branch.version if self._target is None else min(self._target, branch.version)
        if begun is not None:
            refuse_another(branch, begun[INCARNATION])
            most = self._most(limit)
            if begun[VERSION] >= last:
                return begun
            if most is not None and not begun.get(SNAPSHOT):
                last = min(last, begun[VERSION] + most)
        if last == branch.version:
            return self._offset(last, branch.head)
        return self._offset(last, graph.snapshot(branch.name, version=last).commit.id)

    def getDefaultReadLimit(self) -> Any:  # noqa: N802
        """Return how much a batch may hold: files stand for commits, of which Spark knows nothing."""
        most = self._pinned.options.commits_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxFiles(most)

    def reportLatestOffset(self) -> Offset:  # noqa: N802
        """Return the newest commit, for those who watch."""
        branch = self._branch(opened(self._pinned.options))
        return self._offset(branch.version, branch.head)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Read up to what is there now, and no further."""
        self._target = self._branch(opened(self._pinned.options)).version

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Return the parts of one batch: the same whenever it is asked for, because commits do not change."""
        self._seen = end
        if start[VERSION] >= end[VERSION]:
            return []
        refuse_another_of(start, end)
        graph = opened(self._pinned.options)
        refuse_another(self._branch(graph), end[INCARNATION])
        changes = self._pinned.changes(graph, start[VERSION], end[VERSION], is_net=bool(start.get(SNAPSHOT)))
        if changes.last is None or changes.last.id != end[COMMIT]:
            raise BranchConflictError(
                f"version {end[VERSION]} of branch {self._pinned.branch!r} is another commit than the stream has seen; "
                "begin anew, with a new checkpoint",
                branch=self._pinned.branch,
            )
        return [FeedPartition(part) for part in self._pinned.parts(changes)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Stream one part."""
        return read_part(partition, self._wanted)

    def _branch(self, graph: og.Graph) -> og.Branch:
        branch = graph.branches.get(self._pinned.branch)
        refuse_another(branch, self._pinned.incarnation)
        return branch

    def _before(self, graph: og.Graph, since: "int | datetime") -> Offset:
        """Return the offset that a range begins after."""
        if isinstance(since, datetime) and since > datetime.now(UTC):
            raise InvalidOptionError("startingTimestamp lies in the future; a stream begins with what is there")
        changes = self._pinned.changes(graph, since, self._branch(graph).version, is_net=False)
        base = changes.base
        return self._offset(0, NOTHING) if base is None else self._offset(base.version, base.id)

    def _most(self, limit: Any) -> int | None:
        """Return how many commits a batch may hold; Spark asks for all of them where a trigger wants that."""
        if limit is None:
            return self._pinned.options.commits_per_trigger
        most = getattr(limit, "max_files", None)
        return None if most is None else int(most)

    def _offset(self, version: int, commit: str) -> Offset:
        return {INCARNATION: str(self._pinned.incarnation), VERSION: version, COMMIT: str(commit)}


def refuse_another_of(start: Offset, end: Offset) -> None:
    """Refuse offsets of two branches."""
    if start[INCARNATION] != end[INCARNATION]:
        raise BranchConflictError("this checkpoint is of another branch; begin anew, with a new checkpoint")
