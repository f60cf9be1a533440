"""What may be said to the data source, and what is refused; no session is needed."""

import pytest

from omnigraph.errors import InvalidOptionError
from pyspark_omnigraph.options import (
    FeedOptions,
    ReadOptions,
    WriteOptions,
    is_feed,
    is_for_reading,
    session_defaults,
)

HERE = {"path": "g", "type": "Person"}


def test_every_read_option_becomes_a_typed_value_whatever_its_case() -> None:
    said = {
        "Path": "g",
        "TABLE": "node:Person",
        "branch": "review",
        "versionasof": " 12 ",
        "Columns": "id, name",
        "filter": "age > 3",
        "_limit": "5",
        "storage.AWS_REGION": "eu",
    }
    assert ReadOptions.parse(said) == ReadOptions(
        path="g",
        type="node:Person",
        branch="review",
        version=12,
        columns=("id", "name"),
        filter="age > 3",
        limit=5,
        storage={"aws_region": "eu"},
    )


def test_every_write_option_becomes_a_typed_value() -> None:
    said = HERE | {
        "branch": "review",
        "operation": "Upsert",
        "actor": "etl",
        "message": "m",
        "userMetadata": "u",
        "txnAppId": "nightly",
        "txnVersion": "7",
        "createBranchFrom": "main",
        "constraints": "off",
        "maxRowsPerFile": "10",
        "maxBytesPerFile": "20",
    }
    assert WriteOptions.parse(said, overwrite=False) == WriteOptions(
        path="g",
        type="Person",
        branch="review",
        operation="upsert",
        actor="etl",
        message="m",
        user_metadata="u",
        txn=("nightly", 7),
        create_branch_from="main",
        constraints="off",
        rows_per_file=10,
        bytes_per_file=20,
    )


@pytest.mark.parametrize(
    ("said", "overwrite", "operation"),
    [
        ({}, False, "append"),
        ({}, True, "overwrite"),
        ({"operation": "insert"}, False, "append"),
        ({"operation": "overwrite"}, True, "overwrite"),
        ({"operation": "delete"}, False, "delete"),
    ],
)
def test_the_operation_follows_the_mode_unless_it_is_given(
    said: dict[str, str], overwrite: bool, operation: str
) -> None:
    assert WriteOptions.parse(HERE | said, overwrite=overwrite).operation == operation


@pytest.mark.parametrize(
    ("said", "says"),
    [
        ({"versionAsof_": "1"}, "did you mean 'versionAsOf'"),
        ({"brnch": "x"}, "did you mean 'branch'"),
        ({"branch": "a", "commit": "b"}, "'branch' and 'commit' contradict"),
        ({"branch": "a", "tag": "b"}, "'branch' and 'tag' contradict"),
        ({"tag": "a", "versionAsOf": "1"}, "'tag' and 'versionAsOf' contradict"),
        ({"commit": "a", "timestampAsOf": "2026"}, "contradict"),
        ({"versionAsOf": "1", "timestampAsOf": "2026"}, "contradict"),
        ({"versionAsOf": "latest"}, "write a whole number from 1"),
        ({"versionAsOf": "0"}, "write a whole number from 1"),
        ({"columns": "a,,b"}, "write each column once"),
        ({"columns": "a,a"}, "write each column once"),
        ({"branch": " "}, "is empty"),
        ({"table": "node:Person"}, "name one node or edge type"),
        ({"actor": "me"}, "is for writing only"),
        ({"startingVersion": "1"}, "is for change feeds, with readChangeFeed, only"),
    ],
)
def test_what_can_not_be_read_is_refused_and_named(said: dict[str, str], says: str) -> None:
    with pytest.raises(InvalidOptionError, match=says):
        ReadOptions.parse(HERE | said)


@pytest.mark.parametrize(
    ("said", "overwrite", "says"),
    [
        ({"operation": "upsrt"}, False, "did you mean 'upsert'"),
        ({"operation": "upsert"}, True, r"contradicts mode 'overwrite'; write .mode\('append'\)"),
        ({"operation": "overwrite"}, False, r"write .mode\('overwrite'\)"),
        ({"txnAppId": "a"}, False, "'txnAppId' and 'txnVersion' go together"),
        ({"txnVersion": "1"}, False, "go together"),
        ({"createBranchFrom": "main"}, False, "say which, with branch"),
        ({"constraints": "quarantine"}, False, "use SparkGraph.transaction"),
        ({"constraints": "maybe"}, False, "choose one of fail, quarantine, off"),
        ({"maxRowsPerFile": "0"}, False, "whole number from 1"),
        ({"filter": "a"}, False, "is for reading only"),
        ({"transaction": "x", "message": "m"}, False, "'message' is said where the transaction begins"),
        ({"transaction": "x", "constraints": "off"}, False, "'constraints' is said where the transaction begins"),
        (
            {"transaction": "x", "branch": "b", "createBranchFrom": "main"},
            False,
            "is said where the transaction begins",
        ),
    ],
)
def test_what_can_not_be_written_is_refused_and_named(said: dict[str, str], overwrite: bool, says: str) -> None:
    with pytest.raises(InvalidOptionError, match=says):
        WriteOptions.parse(HERE | said, overwrite=overwrite)


@pytest.mark.parametrize("missing", ["path", "type"])
def test_the_graph_and_the_type_must_be_named(missing: str) -> None:
    with pytest.raises(InvalidOptionError, match=r"no graph was named|name one node or edge type"):
        ReadOptions.parse({name: value for name, value in HERE.items() if name != missing})


def test_storage_options_are_never_shown() -> None:
    said = HERE | {"storage.aws_secret_access_key": "s3cr3t-value"}
    shown = repr(ReadOptions.parse(said)) + repr(WriteOptions.parse(said, overwrite=False))
    assert "s3cr3t-value" not in shown
    assert "Person" in shown


def test_a_sessions_defaults_are_those_that_are_configured() -> None:
    configured = {"spark.omnigraph.branch": "review", "spark.branch": "no"}
    assert session_defaults(("branch", "actor"), configured.get) == {"branch": "review"}


def test_a_save_for_a_transaction_may_be_named_and_a_stream_is_none() -> None:
    said = HERE | {"transaction": "01J", "txnAppId": "nightly", "txnVersion": "7", "branch": "review"}
    assert WriteOptions.parse(said, overwrite=True) == WriteOptions(
        path="g", type="Person", operation="overwrite", branch="review", transaction="01J", txn=("nightly", 7)
    )
    with pytest.raises(InvalidOptionError, match="every batch of a stream is a commit of its own"):
        WriteOptions.parse(HERE | {"transaction": "01J"}, overwrite=False, is_stream=True)
    with pytest.raises(InvalidOptionError, match="'transaction' is for writing only"):
        ReadOptions.parse(HERE | {"transaction": "01J"})


# -- change feeds and streams -------------------------------------------------------------------------------


def test_every_feed_option_becomes_a_typed_value_and_a_type_may_be_left_out() -> None:
    said = {
        "path": "g",
        "READCHANGEFEED": "True",
        "branch": "review",
        "startingversion": "3",
        "endingTimestamp": "2026-11-01",
        "netChanges": "true",
        "maxCommitsPerTrigger": "5",
    }
    assert is_feed(said)
    assert FeedOptions.parse(said) == FeedOptions(
        path="g",
        branch="review",
        starting_version=3,
        ending_timestamp="2026-11-01",
        is_net=True,
        commits_per_trigger=5,
    )
    latest = FeedOptions.parse({"path": "g", "readChangeFeed": "true", "startingVersion": "Latest"})
    assert (latest.is_from_latest, latest.starting_version, latest.type) == (True, None, None)
    assert not is_feed(HERE | {"readChangeFeed": "false"})
    assert ReadOptions.parse(HERE | {"readChangeFeed": "false"}) == ReadOptions.parse(HERE)


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ({"readChangeFeed": "yes"}, "write true or false"),
        ({"readChangeFeed": "true", "startingVersion": "0"}, "a whole number from 1"),
        ({"readChangeFeed": "true", "endingVersion": "latest"}, "a whole number from 1"),
        ({"readChangeFeed": "true", "endingVersion": "3", "endingTimestamp": "2026-11-01"}, "contradict"),
        ({"readChangeFeed": "true", "versionAsOf": "3"}, "is for reading tables and for writing only"),
        ({"readChangeFeed": "true", "maxCommitsPerTriger": "3"}, "did you mean 'maxCommitsPerTrigger'"),
    ],
)
def test_a_feed_option_that_is_wrong_is_named(said: dict[str, str], problem: str) -> None:
    with pytest.raises(InvalidOptionError, match=problem):
        if is_feed(said):
            FeedOptions.parse(HERE | said)


def test_a_stream_that_writes_takes_what_spark_says_and_no_txn() -> None:
    said = HERE | {"checkpointLocation": "c", "queryName": "q"}
    assert WriteOptions.parse(said, overwrite=False, is_stream=True) == WriteOptions.parse(HERE, overwrite=False)
    with pytest.raises(InvalidOptionError, match="is for streams that write only"):
        WriteOptions.parse(said, overwrite=False)
    with pytest.raises(InvalidOptionError, match="known by its own id"):
        WriteOptions.parse(HERE | {"txnAppId": "a", "txnVersion": "1"}, overwrite=False, is_stream=True)
    assert (is_for_reading(HERE), is_for_reading(said), is_for_reading(HERE | {"OPERATION": "upsert"})) == (
        True,
        False,
        False,
    )
