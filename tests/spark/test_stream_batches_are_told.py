"""A batch of a stream is one operation: what its commit logs has the id of the batch. No Spark session is needed."""

import io
import json
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph import logs
from pyspark_omnigraph.options import WriteOptions
from pyspark_omnigraph.streaming_sink import OmnigraphStreamWriter, StreamPart


def test_a_batch_of_a_stream_and_its_commit_have_one_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = og.init(tmp_path / "g", "node Person { name: String @key }")
    branch = graph.branches.get("main")
    options = WriteOptions(path=graph.root, type="Person", operation="append")
    writer = OmnigraphStreamWriter(options, branch.head, branch.incarnation)
    rows = graph.snapshot().scan("Person").schema.empty_table()
    text = writer.order(graph, branch.head).stage(rows.to_reader())
    monkeypatch.delenv(logs.VARIABLE, raising=False)
    lines = io.StringIO()
    logs.to_json(lines, "debug")
    try:
        writer.commit([StreamPart(0, text, "query", branch.head, branch.incarnation, False)], 7)
    finally:
        logs.off()
    told = [json.loads(line) for line in lines.getvalue().splitlines()]
    end = told[-1]
    assert (end["operation"], end["level"], end["batch"], end["graph"]) == ("stream_batch", "INFO", 7, graph.root)
    assert {line["operation"] for line in told} == {"stream_batch", "recover", "commit"}
    assert {line["operation_id"] for line in told} == {end["operation_id"]}
