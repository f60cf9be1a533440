"""The line of a feed: the commits of a range, each decoded as far as it is asked for."""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import omnigraph as og
from omnigraph.engine.feed_line import Link, line_of
from omnigraph.errors import CommitExpiredError, CorruptGraphError
from omnigraph.ids import CommitId, TableId
from omnigraph.rules.feed import Told, told_of

SCHEMA = "node Person { name: String @key }  node City { name: String @key }"


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    graph = og.init(tmp_path / "g", SCHEMA)
    for number in range(3):
        with graph.transaction() as tx:
            tx.append("Person", [{"name": f"p{number}"}])
    return graph


def links(graph: og.Graph, since: int | None = None) -> Sequence[Link | None]:
    return line_of(graph._session, graph._history, "main", since=since, until=None)[1]


def test_a_link_is_the_commit_it_stands_for(graph: og.Graph) -> None:
    first, *rest = links(graph)
    assert first is None
    found = [link for link in rest if link is not None]
    assert [link.commit for link in found] == graph.log(limit=None)[::-1]
    tables = [kind.table_id for kind in graph.snapshot().catalog.table_types]
    for link in found:
        assert {table: link.pin(table) for table in tables} == {table: link.commit.pins.get(table) for table in tables}
        assert (link.operation, link.schema_hash) == (link.commit.operation, link.commit.schema_hash)
        assert (tuple(link.parents), link.metrics) == (link.commit.parents, link.commit.metrics)
    base, *after = links(graph, since=2)
    assert base is not None and base.row.version == 2
    assert [link.row.version for link in after if link is not None] == [3, 4]


def test_the_pins_of_a_commit_that_was_cleaned_up_are_refused_by_name(graph: og.Graph) -> None:
    last = links(graph)[-1]
    assert last is not None
    gone = last.row.without_pins(datetime(2026, 1, 1, tzinfo=UTC))
    link = Link.of(gone, json.loads(gone.body))
    assert link.is_expired
    with pytest.raises(CommitExpiredError, match=last.row.id):
        link.pin(TableId("any"))


@pytest.mark.parametrize("body", [{}, [], 7, "text", None, {"operation": "append", "schema": "", "parents": []}])
def test_what_is_no_commit_is_told_by_the_id_of_its_row(graph: og.Graph, body: Any) -> None:
    last = links(graph)[-1]
    assert last is not None
    with pytest.raises(CorruptGraphError, match="can not be decoded") as problem:
        Link.of(last.row, body)
    assert problem.value.facts["commit"] == last.row.id


@pytest.mark.parametrize("pins", [None, 7, [7], [{}], [{"table": "t"}], [{"table": "t", "version": "x"}]])
def test_what_are_no_pins_is_told_by_the_id_of_the_commit(graph: og.Graph, pins: Any) -> None:
    last = links(graph)[-1]
    assert last is not None
    link = Link.of(replace(last.row, body="{}"), {**last.body, "pins": pins})
    with pytest.raises(CorruptGraphError, match=last.row.id):
        link.pin(TableId("t"))


@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=4), min_size=1, max_size=5), st.data())
def test_rows_are_told_the_commits_they_are_of_whatever_those_are_called(ids: list[str], data: st.DataObject) -> None:
    told = [
        Told(version=number, commit=CommitId(id), at=datetime(2026, 1, 1 + number, 5, tzinfo=UTC))
        for number, id in enumerate(ids)
    ]
    which = data.draw(st.lists(st.integers(0, len(ids) - 1), max_size=9))
    columns = told_of(told, np.asarray(which, np.int64))
    for column in columns:
        column.validate(full=True)
    assert list(zip(*(column.to_pylist() for column in columns), strict=True)) == [tuple(told[each]) for each in which]
