"""Offsets of a stream of changes, asked for as Spark asks for them; no session is needed."""

import pickle
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import StringType, StructField, StructType
from tests.spark.stream_kit import SOURCE_SCHEMA

import omnigraph as og
from omnigraph.errors import (
    BranchConflictError,
    BranchNotFoundError,
    CommitExpiredError,
    CommitNotFoundError,
    InvalidDataError,
    InvalidOptionError,
)
from pyspark_omnigraph.options import WriteOptions
from pyspark_omnigraph.source import OmnigraphDataSource
from pyspark_omnigraph.streaming import FeedStreamReader
from pyspark_omnigraph.streaming_sink import OmnigraphStreamWriter


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    """Version 2 inserts two people, 3 updates one of them, 4 inserts one."""
    graph = og.init(tmp_path / "g", SOURCE_SCHEMA)
    for people in ({"Ann": 1, "Ben": 2}, {"Ben": 22}, {"Cid": 3}):
        write(graph, **people)
    return graph


def write(graph: og.Graph, **people: int) -> None:
    with graph.transaction() as tx:
        tx.upsert("Person", [{"name": name, "age": age} for name, age in people.items()])


def reader(graph: og.Graph, **options: Any) -> FeedStreamReader:
    """A reader as Spark makes it: from a source that was pickled."""
    said = {"path": graph.root, "readchangefeed": "true", "type": "Person"} | options
    source = OmnigraphDataSource({name.lower(): str(value) for name, value in said.items()})
    schema = source.schema()
    made = pickle.loads(pickle.dumps(source)).streamReader(schema)
    assert isinstance(made, FeedStreamReader)
    return made


def told(stream: FeedStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[int, str, str]]:
    parts = [pickle.loads(pickle.dumps(part)) for part in stream.partitions(start, end)]
    rows = [row for part in parts for batch in stream.read(part) for row in batch.to_pylist()]
    return sorted((row["_commit_version"], row["_change_type"], row["id"]) for row in rows)


def test_a_new_stream_tells_what_is_there_and_then_what_changes(graph: og.Graph) -> None:
    stream = reader(graph)
    start = stream.initialOffset()
    end = stream.latestOffset(start, stream.getDefaultReadLimit())
    assert (end["version"], end["commit"]) == (4, graph.refresh().id)
    assert told(stream, start, end) == [(4, "insert", "Ann"), (4, "insert", "Ben"), (4, "insert", "Cid")]
    assert stream.latestOffset(end, stream.getDefaultReadLimit()) == end
    assert list(stream.partitions(end, end)) == []
    write(graph, Dan=4)
    later = stream.latestOffset(end, stream.getDefaultReadLimit())
    assert told(stream, end, later) == [(5, "insert", "Dan")]
    assert stream.reportLatestOffset() == later


def test_a_stream_begins_with_a_version_a_time_or_what_comes_next(graph: og.Graph) -> None:
    made = {each.version: each.created_at for each in graph.log()}
    assert reader(graph, startingVersion=3).initialOffset()["version"] == 2
    assert reader(graph, startingVersion=1).initialOffset()["version"] == 0
    assert reader(graph, startingVersion=5).initialOffset()["version"] == 4
    assert reader(graph, startingVersion="latest").initialOffset()["version"] == 4
    assert reader(graph, startingTimestamp=made[3].isoformat()).initialOffset()["version"] == 2
    assert reader(graph, startingTimestamp=datetime.now(UTC).isoformat()).initialOffset()["version"] == 4
    with pytest.raises(CommitNotFoundError, match="has no version 5; it has 1 to 4"):
        reader(graph, startingVersion=6).initialOffset()
    with pytest.raises(InvalidOptionError, match="lies in the future"):
        reader(graph, startingTimestamp="2999-01-01").initialOffset()


def test_a_batch_holds_as_many_commits_as_it_may_and_no_later_ones_than_were_there(graph: og.Graph) -> None:
    stream = reader(graph, startingVersion=1, maxCommitsPerTrigger=2)
    limit = stream.getDefaultReadLimit()
    offsets = [stream.initialOffset()]
    stream.prepareForTriggerAvailableNow()
    write(graph, Dan=4)
    while (following := stream.latestOffset(offsets[-1], limit)) != offsets[-1]:
        offsets.append(following)
    assert [offset["version"] for offset in offsets] == [0, 2, 4]
    updated = [(3, "update_postimage", "Ben"), (3, "update_preimage", "Ben")]
    assert told(stream, offsets[0], offsets[1]) == [(2, "insert", "Ann"), (2, "insert", "Ben")]
    assert told(stream, offsets[1], offsets[2]) == [*updated, (4, "insert", "Cid")]
    older = reader(graph, startingVersion=1, maxCommitsPerTrigger=2)  # as Spark 4.0 asks
    assert list(older.partitions(offsets[0], offsets[1])) != []
    assert older.latestOffset()["version"] == 4


def test_a_branch_that_was_made_anew_is_refused(graph: og.Graph) -> None:
    graph.branches.create("review")
    stream = reader(graph, branch="review", startingVersion=1)
    start = stream.initialOffset()
    end = stream.latestOffset(start, stream.getDefaultReadLimit())
    graph.branches.delete("review")
    graph.branches.create("review")
    for each in (stream, reader(graph, branch="review", startingVersion=1)):  # it goes on, or is started again
        with pytest.raises(BranchConflictError, match="deleted and created again"):
            each.latestOffset(end, None)
        with pytest.raises(BranchConflictError, match="deleted and created again"):
            each.partitions(start, end)
    graph.branches.delete("review")
    with pytest.raises(BranchNotFoundError):
        stream.latestOffset(end, None)


def test_what_was_read_may_be_cleaned_up_and_what_was_not_is_missed(graph: og.Graph) -> None:
    stream = reader(graph, startingVersion=4)
    start = stream.initialOffset()
    second = reader(graph, startingVersion=2).initialOffset()
    write(graph, Dan=4)
    graph.cleanup(keep=2)
    end = stream.latestOffset(start, None)
    assert told(stream, start, end) == [(4, "insert", "Cid"), (5, "insert", "Dan")]  # both only inserted
    with pytest.raises(CommitExpiredError, match="was cleaned up"):
        stream.partitions(second, end)
    write(graph, Dan=44)
    graph.cleanup(keep=1)
    with pytest.raises(CommitExpiredError, match="was cleaned up"):  # an update is compared with what was before
        stream.partitions(end, stream.latestOffset(end, None))


def test_what_a_stream_can_not_do_is_refused_before_it_begins(graph: og.Graph, tmp_path: Path) -> None:
    with pytest.raises(InvalidOptionError, match="set readChangeFeed to true"):
        reader(graph, readchangefeed="false")
    with pytest.raises(InvalidOptionError, match="a stream has no end"):
        reader(graph, endingVersion=3)
    said = {"path": graph.root, "type": "Person", "checkpointlocation": str(tmp_path)}

    def begin(column: str, **options: str) -> OmnigraphStreamWriter:
        rows = StructType([StructField(column, StringType())])
        return OmnigraphStreamWriter.begun(WriteOptions.parse(said | options, overwrite=False, is_stream=True), rows)

    with pytest.raises(InvalidDataError, match="has no column 'nme'; did you mean 'name'"):
        begin("nme")
    with pytest.raises(BranchNotFoundError):
        begin("name", branch="nowhere")
    begin("name", branch="side", createBranchFrom="main")
    assert graph.branches.get("side").version == 4
