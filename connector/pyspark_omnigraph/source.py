"""The data source ``omnigraph``: from options to a reader of one pinned snapshot, or to a writer.

Spark makes a source in one process, plans its read in another and its write in a third. What is read is decided in the
first of them, once: a read planned twice (a self-join does that) must not see two states of the graph. The SQL catalog
keeps the source that told it of a table, and all scans of that table are planned from it.
"""

from typing import TYPE_CHECKING, Any

from pyspark.sql import datasource
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from pyspark_omnigraph.workers import settling

if TYPE_CHECKING:
    from omnigraph.engine.table_at import TableAt
    from pyspark_omnigraph.feed import PinnedFeed
    from pyspark_omnigraph.reader import Pinned

FORMAT = "omnigraph"
QUESTION = "_op"
"""What the SQL catalog asks, and what a row-level change of it is marked with."""


class OmnigraphDataSource(DataSource):
    """Reads and writes the node and edge types of a graph."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._pinned: Pinned | PinnedFeed | None = None
        self._told_of: TableAt | None = None

    @classmethod
    def name(cls) -> str:
        """Return what stands in ``format(...)``."""
        return FORMAT

    @settling
    def schema(self) -> StructType:
        """Pin the snapshot, and return the columns of the type in it; or answer a question of the SQL catalog."""
        if QUESTION in self.options:
            from pyspark_omnigraph.catalog import answer

            answered = answer(self.options)
            self._told_of = answered.at
            return answered.told
        return self._pin().schema()

    @settling
    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader of the columns of ``schema`` at the snapshot that was pinned before."""
        if QUESTION in self.options:
            from pyspark_omnigraph.pushdown import PushedReader

            return PushedReader.pushed(self._told_of, self.options, schema)
        from pyspark_omnigraph.reader import OmnigraphReader, Pinned

        pinned = self._pin()
        if not isinstance(pinned, Pinned):
            from pyspark_omnigraph.feed import FeedReader

            return FeedReader.planned(pinned, schema)
        return OmnigraphReader.planned(pinned, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  (Spark's name)
        """Return a reader of what changes, commit by commit."""
        from pyspark_omnigraph.streaming import FeedStreamReader

        return FeedStreamReader.begun(self._pin(), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802  (the same)
        """Return a writer of batches with ``schema``, each of which becomes one commit."""
        if not hasattr(datasource, "DataSourceStreamArrowWriter"):
            from omnigraph.errors import InvalidOptionError

            raise InvalidOptionError("a stream that writes needs Spark 4.1 or later; or use foreachBatch")
        from pyspark_omnigraph.options import WriteOptions
        from pyspark_omnigraph.streaming_sink import OmnigraphStreamWriter

        return OmnigraphStreamWriter.begun(
            WriteOptions.parse(self.options, overwrite=overwrite, is_stream=True), schema
        )

    @settling
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return a writer of rows with ``schema``, or refuse before any task runs."""
        from pyspark_omnigraph.options import WriteOptions
        from pyspark_omnigraph.writer import OmnigraphWriter, SavingWriter

        if QUESTION in self.options:
            from pyspark_omnigraph.rowlevel import ChangeWriter

            return ChangeWriter.asked(self.options)
        options = WriteOptions.parse(self.options, overwrite=overwrite)
        kind = OmnigraphWriter if options.transaction is None else SavingWriter
        return kind.begun(options, schema)

    def __getstate__(self) -> dict[str, Any]:
        # Spark pickles a source once, when it was made to be read, and plans from that copy. With a schema of the
        # caller's it never asks for ours, so this is the last moment to pin what is read.
        # A source that a stream writes to is pickled too, and has nothing to pin.
        from pyspark_omnigraph.options import is_for_reading

        if QUESTION not in self.options and is_for_reading(self.options):
            self._pin()
        return self.__dict__

    def _pin(self) -> "Pinned | PinnedFeed":
        if self._pinned is None:
            from pyspark_omnigraph.feed import PinnedFeed
            from pyspark_omnigraph.options import FeedOptions, ReadOptions, is_feed
            from pyspark_omnigraph.reader import Pinned

            if is_feed(self.options):
                self._pinned = PinnedFeed.now(FeedOptions.parse(self.options))
            else:
                self._pinned = Pinned.now(ReadOptions.parse(self.options))
        return self._pinned
